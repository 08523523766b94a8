"""How each acks=all produce that waited must have ended, derived and compared with its answer (DelayedProduce).

What ends the wait is decided in this order: the high watermark passes the batch while its leader leads, and the ISR of
that moment decides between no error and NOT_ENOUGH_REPLICAS_AFTER_APPEND; the log directory fails, the topic is deleted
or the leader loses its role; else only its time can have been up. A line states when an answer left, so whatever came
before it had its effect. Things that happen within the inaccuracy of these times may have come in either order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replay.arrays.ints import NEVER
from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.emit import CheckRow
from replay.engine.stamps import CLOCK_SLACK_US, STAMP_EARLY_US, TIMER_LATE_US, timed_out
from replay.evidence.tenures import micros
from replay.protocol.produce import (
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from replay.protocol.state import UNSET
from replay.tables.rare_events import in_turn
from replay.tables.rounds import ready_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.engine.purgatory import OpenBatch
    from replay.tables.rare_events import Rare
    from replay.tables.rounds import BatchAnswer


REFUSALS: Final = (c.CHECK_PRODUCE_GUARD, c.CHECK_REFUSAL, c.CHECK_DELETION)


class Outages:
    """When log directories failed, and when the topic was deleted: what ends waiting produces besides their leader."""

    def __init__(self) -> None:
        """Start with nothing failed."""
        self.failed: dict[int, list[tuple[int, int]]] = {}  # broker id -> from when to when a log directory was offline
        self.deleted = NEVER

    def take(self, rare: Rare) -> None:
        """Take the rare events of a batch. Of several lines about one failure the first counts."""
        for row in in_turn(rare, ("observation", "log_load", "topic_change")):
            if row["kind"] == "topic_change":
                self.deleted = min(self.deleted, micros(row["ts"]))
            elif row["kind"] == "log_load":
                self.end(row["broker_id"], micros(row["ts"]))
            elif row["cause"] == c.STORAGE_FAILED and not self.is_offline(row["broker_id"], micros(row["ts"])):
                self.failed.setdefault(row["broker_id"], []).append((micros(row["ts"]), NEVER))

    def end(self, broker: int, us: int) -> None:
        """End the outage of a broker that starts anew."""
        spans = self.failed.get(broker)
        if spans and spans[-1][1] == NEVER:
            spans[-1] = spans[-1][0], us

    def is_offline(self, broker: int, us: int) -> bool:
        """Whether the broker's log directory was offline."""
        return any(begin <= us < end for begin, end in self.failed.get(broker, ()))

    def refusing(
        self, rows: Records[CheckRow], events: Records[EventRecord], brokers: Sequence[int]
    ) -> Records[CheckRow]:
        """Return the fold's checks, in which a broker whose log directory has failed refuses what clients ask of it."""
        if not self.failed:
            return rows
        out = rows.copy()
        for k in np.flatnonzero(np.isin(rows["check"], REFUSALS)).tolist():
            ts = int(events[int(np.searchsorted(events["seq"], out[k].seq))].ts)
            if self.is_offline(brokers[out[k].broker], ts + STAMP_EARLY_US):
                out["computed"][k] = KAFKA_STORAGE_ERROR
        return out


def outcomes(
    at: Records[OpenBatch], answered: Ints, committed: Flags, outages: Outages, brokers: Sequence[int]
) -> Ints:
    """The error with which each batch must have been answered then; UNSET: it depends on what is unknown.

    `committed`: whether the high watermark had passed the batch by then.
    """
    failed = np.zeros(len(at), np.bool_)
    if outages.failed:
        times = zip(at["broker"].tolist(), answered.tolist(), strict=True)
        failed[:] = [outages.is_offline(brokers[b], us) for b, us in times]
    lost = np.where(at["lost_ts"] == UNSET, NEVER, at["lost_ts"])
    ended: Ints = np.select(
        [failed, outages.deleted <= answered, lost <= answered],
        [KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER],
        REQUEST_TIMED_OUT,
    )
    return np.where(committed, at["outcome"], ended)


def derived_errors(
    at: Records[OpenBatch], told: Records[BatchAnswer], outages: Outages, brokers: Sequence[int]
) -> Ints:
    """The error with which each batch must have been answered; UNSET: it depends on what is unknown.

    If the answer left so close to what would have ended the wait otherwise that either may have come first, it agrees
    with either. A batch of which no answer is known has the one of its commit, for no line says how long it waited.
    """
    ready, stated = ready_at(told), told["error_code"]
    late = ready + CLOCK_SLACK_US
    has_commit: Flags = at["commit_seq"] != UNSET
    answered = outcomes(at, late, has_commit & (at["commit_lo"] <= late), outages, brokers)
    for surely in (at["commit_ts"] + CLOCK_SLACK_US, at["commit_lo"]):  # may not have been committed; was
        computed = outcomes(at, ready, has_commit & (surely <= ready), outages, brokers)
        answered = np.where(computed == stated, computed, answered)
    return np.where(told["ts"] == UNSET, np.where(has_commit, at["outcome"], UNSET), answered)


def outcome_checks(at: Records[OpenBatch], told: Records[BatchAnswer], computed: Ints) -> Records[CheckRow]:
    """Whether each batch was answered as derived; one whose answer or min.insync.replicas is unknown is left out.

    `computed`: the `derived_errors`.
    """
    stated = told["error_code"]
    rows = blank(len(at), CheckRow, c.CHECK_DELAYED_PRODUCE)
    rows["seq"], rows["broker"], rows["computed"], rows["stated"] = at["seq"], at["broker"], computed, stated
    compared: Flags = (stated != UNSET) & (computed != UNSET)
    return rows[compared]


def timeout_checks(at: Records[OpenBatch], told: Records[BatchAnswer]) -> Records[CheckRow]:
    """Whether the time of each produce that waited was up if, and only if, it was answered REQUEST_TIMED_OUT.

    Its timer starts as its handler parks it, so the time in purgatory has passed since then at least, and the handler's
    time besides at most. Time is up for the whole request: a partition that had been satisfied long before is answered
    without error, but with those that had not been. A broker that stood still may have been woken by something else.
    """
    handled, parked, allowed = told["local_us"], told["remote_us"], told["allowed_us"]
    stated = (told["error_code"] == REQUEST_TIMED_OUT) | (told["timed_out"] == 1)
    may_be_up, must_be_up = timed_out(handled, parked, allowed), parked > allowed + TIMER_LATE_US
    computed = np.where(stated, may_be_up, must_be_up & (told["still_us"] <= 0))
    rows = blank(len(at), CheckRow, c.CHECK_PRODUCE_TIMEOUT)
    rows["seq"], rows["broker"], rows["computed"], rows["stated"] = at["seq"], at["broker"], computed, stated
    compared: Flags = (told["error_code"] != UNSET) & (allowed >= 0) & (handled >= 0) & (parked > 0)
    return rows[compared]
