"""How large a made history is, how it is spread, and what happens in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

EVENTS_PER_BATCH = 9  # of a batch with two followers and a consumer, see `made_history.History.steady`


@dataclass(frozen=True, slots=True)
class Shape:
    """A made cluster. The same shape gives the same bytes."""

    events: int = 1_000_000  # about
    partitions: int = 100
    idle: int = 0  # partitions beside these that are led and fetched, and never written to (recordings only)
    skew: float = 0.0  # share of all events that partition 0 has; the others share the rest evenly
    replicas: int = 3
    batch_records: int = 10  # 1 to twice this less one, evenly
    record_bytes: int = 100
    flaps: int = 1  # per partition: a follower leaves the ISR and comes back
    elections: int = 1  # per partition: the leader dies and comes back
    away_ticks: int = 20  # for so long (recordings only)
    lost_batches: int = 3  # acknowledged with acks=1 by the leader that dies, fetched by nobody; 0: nothing is lost
    seed: int = 0
    tick_ms: int = 20  # between two times at which some partitions take a batch (recordings only)
    wait_ms: int = 500  # for so long a fetch waits for records (recordings only)

    def batches_of(self, partition: int) -> int:
        """How many batches a partition takes."""
        if self.partitions == 1:
            share = 1.0
        elif self.skew:
            share = self.skew if partition == 0 else (1 - self.skew) / (self.partitions - 1)
        else:
            share = 1 / self.partitions
        return max(int(self.events * share) // EVENTS_PER_BATCH, 1)

    def named(self, **changes: object) -> Shape:
        """The same shape but for some of its values."""
        return replace(self, **changes)  # type: ignore[arg-type]
