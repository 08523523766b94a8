"""How many bytes the segments of followers' logs hold, and where one had to end by its size.

A follower appends all that a fetch returned at once (ReplicaFetcherThread.processPartitionData, UnifiedLog.append), so
before it does it begins a new segment if that would make its last one larger than segment.bytes. Its segments therefore
end between answers: where the leader's do as long as both logs had their segments alike, since no answer goes beyond
the end of a leader's segment. An answer that was cut by one of its limits ends with a part of a batch, which the
follower drops: how much it appends of it is not known. A segment is known from a line about a roll on, or from 0 if the
log was empty as its broker began to follow, until the broker starts again, cuts its log or takes up another role. If no
line tells of the fetch behind a roll within a few seconds, none is waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.arrays.ints import NEVER
from replay.arrays.records import blank, together
from replay.evidence.future_logs import FUTURE_LOG
from replay.evidence.tenures import micros
from replay.protocol.state import NONE
from replay.tables.answer_sizes import UNLIMITED, limit_in
from replay.tables.rare_events import in_turn
from replay.tables.segment_sizes import AS_PRODUCED, KEPT_US, LIMIT_COLUMN, STOP_KINDS, Batch, SegmentSizes, is_read

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.events import Event, Events, Picked
    from replay.tables.rare_events import Rare

CHECK: Final = "follower_segment_roll"
SIZE_CHECK: Final = "follower_segment_size"


class Moment:
    """An event and its time."""

    seq: int
    us: int


class FollowerSegments(SegmentSizes):
    """The segment that one broker appends to as a follower."""

    check, size_check = CHECK, SIZE_CHECK

    def __init__(self, broker: int) -> None:
        """Start with a segment of which nothing is known."""
        super().__init__()
        self.broker = broker
        self.awaited: list[tuple[int, int]] = []  # rolls, and until when the fetches behind are waited for

    def may_interrupt(self, event: Event) -> bool:
        """Whether an event of `STOP_KINDS` is about this broker's log, or a limit."""
        return bool(event["kind"] == "config_change" or event["broker_id"] == self.broker)

    def interrupts(self, event: Event) -> bool:
        """Whether nothing is known of the segment from here on: the log may be cut, or is another one, or is led."""
        if event["kind"] == "config_change":
            return event.get(LIMIT_COLUMN) is not None
        if event["kind"] == "observation":
            return bool(event["cause"] == FUTURE_LOG)
        return bool(event["kind"] != "role_change" or event["leader_epoch"] > self.epoch)

    def change(self, event: Event) -> None:
        """Go on behind what interrupts. A log that is empty begins with a segment at 0."""
        empty = False
        if event["kind"] == "config_change":
            self.limit = event[LIMIT_COLUMN] or NONE
        elif event["kind"] == "role_change":
            self.epoch = event["leader_epoch"]
            empty = event["role"] == "follower" and event["leo"] == 0
        self.begin(0 if empty else NONE, 0 if empty else NONE)

    def follow(
        self, rows: list[dict[str, Any]], reads: Picked, stops: list[Event], clock: Records[Moment]
    ) -> list[dict[str, Any]]:
        """Go through a batch of events, whose times are in `clock`; `rows`: about its rolls. Return those told now."""
        self.awaited += [(row["seq"], micros(row["ts"]) + KEPT_US) for row in rows]
        told: list[dict[str, Any]] = []
        seqs, start = reads.numbers("seq"), -1
        for stop, over in [*self.ends(clock), (NEVER, [])]:
            self.held += [row for row in rows if start <= row["seq"] < stop]
            here = reads.at((seqs >= start) & (seqs < stop))
            inside = [one for one in stops if start <= one["seq"] < stop]
            told += self.walk(here, here.at(np.zeros(0, np.int64)), inside)
            due = [row for row in self.held if row["seq"] in over]
            if any(row["base_offset"] >= self.waiting["end"].max(initial=NONE) for row in due):
                later = [row for row in self.held if row["seq"] > due[-1]["seq"]]
                self.held = [row for row in self.held if row["seq"] <= due[-1]["seq"]]
                told += self.settle(len(self.waiting), stop, last=True)
                self.held += later
            start = stop
        return told

    def ends(self, clock: Records[Moment]) -> list[tuple[int, list[int]]]:
        """At which events the time is over for which rolls: the first event that came so much later."""
        found: dict[int, list[int]] = {}
        waiting = []
        for roll, until in self.awaited:
            later = (clock["seq"] > roll) & (clock["us"] >= until)
            if later.any():
                found.setdefault(int(clock["seq"][later.argmax()]), []).append(roll)
            else:
                waiting.append((roll, until))
        self.awaited = waiting
        return sorted(found.items())

    def add(self, batches: Picked, reads: Picked) -> None:  # noqa: ARG002 - what fetches returned is what is stored
        """Add what fetches returned to the follower."""
        base, end = batches.numbers("fetch_offset", NONE), batches.numbers("next_offset", NONE)
        last = self.waiting["end"][-1:].tolist() or [self.end]
        before = np.maximum.accumulate(np.concatenate([last, end]))[:-1]
        rises = (end > base) & (base >= before)
        new = blank(int(rises.sum()), Batch)
        for name, values in (("seq", batches.numbers("seq")), ("us", batches.numbers("ts")), ("base", base)):
            new[name] = values[rises]
        new["end"], new["size"], new["read"] = end[rises], whole_sizes(batches)[rises], AS_PRODUCED
        self.waiting = together([self.waiting, new])


def whole_sizes(reads: Picked) -> Ints:
    """The bytes of answers that no limit cut; NONE where one did, or may have."""
    size, whole = reads.numbers("bytes", NONE), reads.numbers("request_bytes", NONE)
    most, most_of_all = limit_in(reads, "partition_max_bytes"), limit_in(reads, "max_bytes")
    is_whole = (most < UNLIMITED) & (size < most) & (whole >= 0) & (whole < most_of_all)
    return np.where(is_whole, size, NONE)


class LogSegments:
    """The segments of the leader's log and of the followers' logs of one partition."""

    def __init__(self) -> None:
        """Start without a leader."""
        self.leader = SegmentSizes()
        self.followers: dict[int, FollowerSegments] = {}
        self.limits: list[Event] = []  # events that told of a limit

    def unless_held(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a row of `segment_timeline`; none if it is about a roll: that is kept until what it lacks is known."""
        return self.leader.unless_held(row)

    def take(self, events: Events, rare: Rare) -> list[dict[str, Any]]:
        """Take the events of a batch, the rows about whose rolls are held; return rows that lack nothing more."""
        told = self.leader.take(events, rare)
        reads = events.at(events.places_of(is_read))
        stops = in_turn(rare, STOP_KINDS)
        replicas = reads.numbers("replica_id", NONE)
        others = self.rows_of_others()
        known = {*np.unique(replicas).tolist(), *others}
        told_of = (one["broker_id"] for one in rare["role_change"] if one["role"] == "follower")
        known |= {broker for broker in told_of if broker is not None}
        for broker in sorted(known - self.followers.keys()):
            self.followers[broker] = FollowerSegments(broker)
            for one in self.limits:
                self.followers[broker].change(one)
        self.limits += [one for one in rare["config_change"] if one.get(LIMIT_COLUMN) is not None]
        clock = blank(len(events), Moment)
        clock["seq"], clock["us"] = events.numbers("seq"), events.numbers("ts", NONE)
        for broker, log in sorted(self.followers.items()):
            mine = reads.at(replicas == broker)
            about = [one for one in stops if log.may_interrupt(one)]
            told += log.follow(others.get(broker, []), mine, about, clock)
        return told

    def rows_of_others(self) -> dict[int, list[dict[str, Any]]]:
        """Rows about rolls of logs of which the leader's is none, by broker; they are handed over."""
        found: dict[int, list[dict[str, Any]]] = {}
        for row in self.leader.others:
            found.setdefault(row["broker_id"], []).append(row)
        self.leader.others = []
        return found

    def finish(self) -> list[dict[str, Any]]:
        """Return the rows that are still held. Call once, after the last batch."""
        told = self.leader.finish()
        for broker, rows in self.rows_of_others().items():
            self.followers.setdefault(broker, FollowerSegments(broker)).held += rows
        for log in self.followers.values():
            told += log.finish()
        return told

    def checks(self) -> list[dict[str, Any]]:
        """The checks of where segments ended and of their sizes, if anything was compared. Call after `finish`."""
        told = self.leader.checks()
        of_followers = [row for log in self.followers.values() for row in log.checks()]
        for check in (CHECK, SIZE_CHECK):
            rows = [row for row in of_followers if row["check"] == check]
            first = [(row["first_mismatch_seq"], row["note"]) for row in rows if row["first_mismatch_seq"] is not None]
            seq, note = min(first) if first else (None, None)
            counts = {name: sum(row[name] for row in rows) for name in ("compared", "matched")}
            told += [{"check": check, **counts, "first_mismatch_seq": seq, "note": note}] if rows else []
        return told
