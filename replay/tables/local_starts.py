"""Where brokers' own logs start, whose older records are in the remote tier alone (KIP-405), and who reads from there.

A broker says at INFO to where it moved its local log start, and a fetch of a consumer below it is read from the tier
(`ReplicaManager.handleOffsetOutOfRangeError`). Until a line tells where it is, and after a log came by other ways (from
the tier, or from another directory), nothing is known of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from replay.engine.codes import LOG_CREATED
from replay.engine.completions import LOCAL, REMOTE
from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.future_logs import FUTURE_LOG
from replay.evidence.segments import CHANGES, LOCAL_START
from replay.evidence.tenures import micros
from replay.protocol.state import NONE, UNSET

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.engine.events import Event, Picked

REPLACED: Final = ("tiered_storage", "out_of_range")  # a follower's log that begins anew, elsewhere


@dataclass(slots=True)
class LocalStarts:
    """The local log start of each broker: from which event and time on it was where; NONE: not known."""

    of_broker: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Take a rare event that may move it."""
        kind, broker, start = event["kind"], event["broker_id"], NONE
        moves = self.of_broker.get(broker, [])
        _, latest, before = moves[-1] if moves else (NONE, NONE, NONE)
        if kind == "segment_change":
            if event["cause"] != CHANGES[LOCAL_START]:
                return
            start = event["log_start_offset"]
        elif not moves:
            return  # without such a line the log may as well be all there is
        elif kind == "log_start_change":
            start = max(before, event["log_start_offset"] or 0) if before >= 0 else NONE
        elif kind == "log_load":
            start = 0 if event["cause"] == LOG_CREATED else before
        elif kind == "truncation" and event["cause"] not in REPLACED and event["truncate_to"] is not None:
            start = min(before, event["truncate_to"])  # cut below its start, the log begins there (truncateTo)
        elif kind == "observation" and event["cause"] != FUTURE_LOG:
            return
        if start != before:
            self.of_broker.setdefault(broker, []).append((event["seq"], max(latest, micros(event["ts"])), start))

    def read_from(self, fetches: Picked) -> Ints:
        """Whether each fetch of a consumer was read from the tier or the own log, by when its broker took it up.

        Only what precedes it in the order of events tells that, so that it does not matter what has been read beyond.
        """
        of = fetches.numbers
        found = np.full(len(fetches), UNSET, np.int64)
        if not self.of_broker:
            return found
        offset, broker = of("fetch_offset", NONE), of("broker_id", NONE)
        taken = of("ts", 0) - of("remote_us", 0)
        reads = (of("replica_id", NONE) < 0) & (offset >= 0) & (of("run_count", UNSET) == UNSET)
        for b, moves in self.of_broker.items():
            mine = np.flatnonzero(reads & (broker == b))
            seqs, times, starts = (np.array(column, np.int64) for column in zip(*moves, strict=True))
            mine = mine[seqs[0] < of("seq")[mine]]
            known = np.searchsorted(seqs, of("seq")[mine])
            first = np.minimum(known, np.searchsorted(times, taken[mine] - CLOCK_SLACK_US, "right")) - 1
            stop = np.minimum(known, np.searchsorted(times, taken[mine] + CLOCK_SLACK_US, "right"))
            from_, to = np.maximum(first, 0), np.maximum(stop, 1)  # before the first line it was lower than that says
            least, most = starts[from_], starts[from_]
            for k in np.flatnonzero(to - from_ > 1).tolist():  # as it moves
                may = starts[from_[k] : to[k]]
                least[k], most[k] = may.min(), may.max()
            is_local, is_remote = offset[mine] >= most, (offset[mine] < least) & (first >= 0)
            found[mine] = np.where(least < 0, UNSET, np.select([is_local, is_remote], [LOCAL, REMOTE], UNSET))
        return found
