"""Logs at the end of the recording: which replicas hold different batches at one offset, and what survived after all.

Dumped segments decide: what the last leader's log holds is not lost, and what it holds in place of an acknowledged
record that the replay still has is a loss that no log line reports. Without dumps, only the log of a broker that died
and was not seen again is compared with the leader's: the log of any replica that fetches from a leader is truncated to
where the two diverge (KIP-101, KIP-595), possibly by a fetch that no line reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from replay.engine.codes import DUMP_DIFFERS
from replay.evidence.tenures import micros
from replay.losses.slots import Slots, joined, known_from, lost_slots, spans_of
from replay.protocol.state import BOUNDED, ROLE_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from replay.losses.loss_ledger import AppendedBatch, Ledger
    from replay.losses.story import Row
    from replay.protocol.state import State


@dataclass(slots=True)
class FinalLogs:
    """Evidence about the logs at the end, by broker id."""

    held: dict[int, list[Slots]] = field(default_factory=dict)  # as dumped, rising
    whole: dict[int, bool] = field(default_factory=dict)  # whether the dump has no holes
    stated_hw: dict[int, int] = field(default_factory=dict)  # replication-offset-checkpoint
    differing: list[Row] = field(default_factory=list)
    came_back: dict[int, int] = field(default_factory=dict)  # seq of the last unfencing
    took_role: dict[int, int] = field(default_factory=dict)  # seq of the last role

    def take(self, row: Row) -> None:
        """Take in a `log_dump`, `broker_change` or `role_change` event, in replay order."""
        broker = row["broker_id"]
        if row["kind"] == "broker_change":
            if row["fenced"] is False:
                self.came_back[broker] = row["seq"]
        elif row["kind"] == "role_change":
            self.took_role[broker] = row["seq"]
        elif row["cause"] == DUMP_DIFFERS:
            self.differing.append(row)
        else:
            self.held.setdefault(broker, []).append(Slots(row["leader_epoch"], row["base_offset"], row["next_offset"]))
            self.whole[broker] = self.whole.get(broker, True) and row["evidence"] == "observed"
            if row["hw"] is not None:
                self.stated_hw[broker] = row["hw"]

    def epoch_at(self, broker: int, offset: int) -> int | None:
        """Leader epoch of the record at an offset in the broker's dumped log; None if it has none there."""
        return next((span.epoch for span in self.held.get(broker, ()) if span.first <= offset < span.end), None)

    def is_current(self, s: State, b: int, broker: int) -> bool:
        """Whether the broker has no dump, or one that reaches at least as far as its log in the replay."""
        return broker not in self.held or self.held[broker][-1].end >= s.leo[b]

    def survivors(self, s: State, b: int, broker: int) -> list[Slots]:
        """What the broker's log holds at the end according to its dump; empty if the dump is outdated."""
        return self.held.get(broker, []) if self.is_current(s, b, broker) else []

    def hw(self, s: State, b: int, broker: int) -> int:
        """High watermark of a replica at the end; the checkpoint may be some seconds older."""
        return max(int(s.hw[b]), self.stated_hw.get(broker, 0))

    def divergences(
        self, s: State, brokers: Sequence[int], led: int, elected: dict[int, Any]
    ) -> Iterator[dict[str, Any]]:
        """Rows of `replica_divergences`. `elected`: leader epoch -> when its leader was elected."""
        place = {broker: b for b, broker in enumerate(brokers) if s.partition[0].assigned & (1 << b)}
        found = [
            (
                (row["broker_id"], row["replica_id"]),
                (Slots(row["leader_epoch"], row["base_offset"], row["next_offset"]), row["other_leader_epoch"]),
                (row["crc"], row["other_crc"], row["evidence"]),
            )
            for row in self.differing
        ]
        found += self.left_behind(s, brokers, led)
        for (one, other), (slots, other_epoch), (crc, other_crc, evidence) in found:
            if one not in place or other not in place:
                continue
            hws = self.hw(s, place[one], one), self.hw(s, place[other], other)
            end = min(slots.end, *hws)
            same = slots.epoch == other_epoch
            older = not same and not all(self.is_current(s, place[broker], broker) for broker in (one, other))
            if slots.first >= end or older:
                continue
            newer = max(slots.epoch, other_epoch)
            yield {
                "broker_a": one,
                "broker_b": other,
                "first_offset": slots.first,
                "last_offset": end - 1,
                "records": end - slots.first,
                "differs": "batch" if same else "epoch",
                "epoch_a": slots.epoch,
                "epoch_b": other_epoch,
                "crc_a": crc,
                "crc_b": other_crc,
                "hw_a": hws[0],
                "hw_b": hws[1],
                "since_ts": None if same else elected.get(newer),
                "evidence": evidence,
            }

    def left_behind(self, s: State, brokers: Sequence[int], led: int) -> Iterator[tuple[Any, Any, Any]]:
        """Divergences between the leader's log and that of a broker gone since an older epoch, both certainly known."""
        if led < 0 or s.role[led] != ROLE_LEADER:
            return
        leader = brokers[led]
        for b, broker in enumerate(brokers):
            both_dumped = broker in self.held and leader in self.held
            if b == led or both_dumped or not self.stayed_away(s, b, broker, led):
                continue
            floor = max(known_from(s, b), known_from(s, led), int(s.log_start[b]), int(s.log_start[led]))
            for mine in spans_of(s, b):
                for other in spans_of(s, led):
                    first, end = max(mine.first, other.first, floor), min(mine.end, other.end)
                    if mine.epoch != other.epoch and first < end:
                        low = broker < leader
                        one, two = (mine.epoch, other.epoch) if low else (other.epoch, mine.epoch)
                        pair = (min(broker, leader), max(broker, leader))
                        yield pair, (Slots(one, first, end), two), (None, None, "derived")

    def stayed_away(self, s: State, b: int, broker: int, led: int) -> bool:
        """Whether the broker's log is certainly as its last role left it: fenced, and never back without a role.

        For a former leader it suffices that what it certainly appended is known.
        """
        ends = s.leo_evidence[b] < BOUNDED or s.role[b] == ROLE_LEADER
        known = ends and s.unsure_from[b] >= s.unsure_until[b] and not s.gone[b]
        older = 0 <= s.epoch[b] < s.epoch[led]
        return bool(known and older and s.fenced[b]) and self.took_role.get(broker, -1) > self.came_back.get(broker, -1)

    def replaced(self, s: State, led: int, leader: int, ledger: Ledger) -> list[Slots]:
        """Answered batches that the replay has in the last leader's log, but whose offsets its dump fills otherwise.

        The dump holds records of other epochs there. Only whole batches with a line count: a span of the epoch cache
        alone may be off by one record. A hole in the dump does not count as another epoch.
        """
        held = self.held.get(leader, [])
        if not held or not self.whole[leader] or s.leo_evidence[led] >= BOUNDED:
            return []
        believed = [Slots(*span) for span in lost_slots(spans_of(s, led), held, known_from(s, led))]
        out = []
        for batch, _ in ledger.within(believed):
            # If an older epoch's records are there, the dump is older than the batch.
            newer = [span for span in held if span.epoch > batch.epoch]
            covered = any(span.first <= batch.base and batch.end <= span.end for span in newer)
            if covered and is_answered(batch):
                out.append(Slots(batch.epoch, batch.base, batch.end))
        return joined(out)


def is_answered(batch: AppendedBatch) -> bool:
    """Whether a line says that the batch was answered without error, and its end follows from evidence."""
    return batch.known and batch.sure and batch.answer is not None and batch.answer.error == 0


def elections(leaderships: Iterable[dict[str, Any]]) -> dict[int, Any]:
    """Leader epoch -> when it began, from rows of `leadership_timeline`."""
    return {row["leader_epoch"]: None if row["start_ts"] is None else micros(row["start_ts"]) for row in leaderships}
