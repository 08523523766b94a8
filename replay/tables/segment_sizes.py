"""How many bytes the segments of brokers' logs hold, and where one had to end by its size (LogSegment.shouldRoll).

Before a leader appends a batch it begins a new segment if the batch would make the last one larger than segment.bytes.
It stores a batch as it came, so produce lines tell the sizes, and a line about a roll tells where a segment began. A
segment may end earlier: by its age, which depends on the producers' timestamps, or because an index of it is full.
So it is compared only that where one had to end, the line says so. If a broker compresses batches anew, or turns them
into an older or newer format, it stores them in another size: followers' fetches return what is stored, and where one
returned fewer bytes than its batches were produced in, nothing is said of the segment.

Of followers' logs see `follower_segments`: what is said here of a batch holds there of what a fetch returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.arrays.ints import NEVER
from replay.arrays.records import blank, together
from replay.engine import codes as c
from replay.engine.events import kinds_in
from replay.evidence.future_logs import FUTURE_LOG
from replay.evidence.roll_reasons import BY_SIZE
from replay.evidence.segments import CHANGES, ROLLED
from replay.protocol.state import BOUNDED, NONE
from replay.tables.answer_sizes import doubts_of
from replay.tables.rare_events import in_turn

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.events import Event, EventBatch, Events, Picked
    from replay.tables.rare_events import Rare

CHECK: Final = "segment_roll"
SIZE_CHECK: Final = "segment_size"
LIMIT_COLUMN: Final = "segment_bytes"
STOP_KINDS: Final = ("config_change", "role_change", "observation", "truncation", "log_load")
KEPT_US: Final = 5_000_000  # a line about a roll, and the followers' fetches of a batch, come this soon after an append
UNREAD, AS_PRODUCED, SMALLER = range(3)  # what a follower's fetch shows of how batches are stored


class Batch:
    """A batch that the leader appended; of a follower's log all that one fetch returned."""

    seq: int
    us: int
    base: int
    end: int
    size: int  # bytes; NONE: not known
    read: int  # by the follower's fetch that begins with it


class SegmentSizes:
    """The segment that the leader of one partition appends to; what is found does not depend on events' batches."""

    check, size_check = CHECK, SIZE_CHECK

    def __init__(self) -> None:
        """Start without a leader."""
        self.limit = NONE  # segment.bytes
        self.broker, self.epoch = NONE, NONE  # whose log it is
        self.waiting = blank(0, Batch)  # batches about which lines may still come
        self.latest = NONE  # the latest time of a batch that waits no longer
        self.held: list[dict[str, Any]] = []  # rows about rolls, until the batch behind has settled
        self.others: list[dict[str, Any]] = []  # rows about rolls of other brokers' logs
        self.begin(NONE, NONE)
        self.counts = {name: [0, 0] for name in (self.check, self.size_check)}  # compared, matched
        self.first_odd: dict[str, tuple[int, str]] = {}  # of each check: the event that first differs, and how

    def begin(self, base: int, total: int) -> None:
        """A segment begins at `base`; `total`: its bytes so far, NONE if nothing tells where it begins."""
        self.base, self.end, self.total = base, base, total
        self.by_line = False  # whether a line tells that it begins there
        self.reads: set[int] = set()
        self.overdue: tuple[int, str] | None = None  # a batch before which it had to end

    def unless_held(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a row of `segment_timeline`; none if it is about a roll: that is kept until what it lacks is known."""
        if row["what"] != CHANGES[ROLLED] or row["base_offset"] is None:
            return [row]
        self.held.append(row)
        return []

    def take(self, events: Events, rare: Rare) -> list[dict[str, Any]]:
        """Take the events of a batch, the rows about whose rolls are held; return rows that lack nothing more."""
        stops = [one for one in in_turn(rare, STOP_KINDS) if self.may_interrupt(one)]
        return self.walk(batches_in(events), events.at(events.places_of(is_read)), stops)

    def walk(self, batches: Picked, reads: Picked, stops: list[Event]) -> list[dict[str, Any]]:
        """Go through what is appended, what fetches show of it, and what may interrupt the segment, by seq."""
        seqs, read_seqs = batches.numbers("seq"), reads.numbers("seq")
        told, first, first_read = [], 0, 0
        for one in stops:
            if not self.interrupts(one):
                continue
            last, last_read = np.searchsorted(seqs, one["seq"]), np.searchsorted(read_seqs, one["seq"])
            self.add(batches.at(np.arange(first, last)), reads.at(np.arange(first_read, last_read)))
            told += self.settle(len(self.waiting), one["seq"], last=True)
            first, first_read = int(last), int(last_read)
            self.change(one)
        self.add(batches.at(np.arange(first, len(batches))), reads.at(np.arange(first_read, len(reads))))
        told += self.settle(int((self.settled() < NEVER).sum()), NEVER, last=False)
        return told

    def may_interrupt(self, event: Event) -> bool:
        """Whether an event of `STOP_KINDS` is one that `interrupts` is asked about."""
        return event["kind"] in {"config_change", "role_change", "observation"}

    def interrupts(self, event: Event) -> bool:
        """Whether nothing is known of the segment from here on: another leads, or in another log, or it may be longer.

        When a broker hears of another limit no line tells, so its segment of that time is left out.
        """
        if event["kind"] == "config_change":
            return event.get(LIMIT_COLUMN) is not None  # events of older tables have no such column
        if event["kind"] == "observation":
            return bool(event["cause"] == FUTURE_LOG and event["broker_id"] == self.broker)
        return bool(event["role"] == "leader" and event["leader_epoch"] > self.epoch)

    def change(self, event: Event) -> None:
        """Go on behind what interrupts. A log that is empty begins with a segment at 0."""
        empty = False
        if event["kind"] == "config_change":
            self.limit = event[LIMIT_COLUMN] or NONE
        elif event["kind"] == "role_change":
            self.broker, self.epoch = event["broker_id"], event["leader_epoch"]
            empty = event["leo"] == 0
        self.begin(0 if empty else NONE, 0 if empty else NONE)

    def add(self, batches: Picked, reads: Picked) -> None:
        """Add batches of the leader, and what followers' fetches show of those that have not settled."""
        batches = batches.at(batches.numbers("broker_id", NONE) == self.broker)
        if not len(batches) and not len(reads):
            return
        new = blank(len(batches), Batch)
        for name, column in (("seq", "seq"), ("us", "ts"), ("base", "base_offset"), ("end", "next_offset")):
            new[name] = batches.numbers(column, NONE)
        new["size"] = np.where(batches.read(doubts_of) < BOUNDED, batches.numbers("bytes", NONE), NONE)
        self.waiting = together([self.waiting, new])
        mine = reads.at(reads.numbers("broker_id", NONE) == self.broker)
        if not len(self.waiting) or not len(mine):
            return
        own, most = self.waiting, len(self.waiting) - 1
        offset, until, size = (mine.numbers(name, NONE) for name in ("fetch_offset", "next_offset", "bytes"))
        i = np.minimum(np.searchsorted(own["base"], offset), most)
        j = np.minimum(np.searchsorted(own["end"], until), most)
        sums = np.concatenate([[0], np.cumsum(np.maximum(own["size"], 0))])
        unknown = np.concatenate([[0], np.cumsum(own["size"] < 0)])
        fits = (own["base"][i] == offset) & (own["end"][j] == until) & (unknown[j + 1] == unknown[i])
        fits &= self.settled()[i] > mine.numbers("seq")
        produced = sums[j + 1] - sums[i]
        shown = np.select([fits & (produced > size), fits & (produced == size)], [SMALLER, AS_PRODUCED], UNREAD)
        found = own["read"].copy()
        np.maximum.at(found, i, shown)
        own["read"] = found

    def settled(self) -> Ints:
        """At which seq each batch that waits has settled: that of the first batch `KEPT_US` later; NEVER: not yet."""
        latest = np.maximum.accumulate(np.maximum(self.waiting["us"], self.latest))
        place = np.searchsorted(latest, self.waiting["us"] + KEPT_US)
        place = np.maximum(place, np.arange(len(place)))
        return np.concatenate([self.waiting["seq"], [NEVER]])[place]

    def settle(self, count: int, seq: int, *, last: bool) -> list[dict[str, Any]]:
        """Settle the first batches that wait, at `seq` at the latest; return the rows that lack nothing more.

        `last`: no other batch comes in this tenure.
        """
        if not count and not self.held:
            return []
        batches, until = self.waiting[:count], np.minimum(self.settled()[:count], seq)
        told: list[dict[str, Any]] = []
        kept, first = [], 0
        for row in sorted(self.held, key=lambda one: (one["base_offset"], one["seq"])):
            base, own = row["base_offset"], row["broker_id"] == self.broker
            place = int(np.searchsorted(batches["base"], base))
            if row["seq"] >= seq or (own and place == count and not last):
                kept.append(row)
                continue
            (told if own else self.others).append(row)
            behind = int(np.searchsorted(batches["end"], base, "right"))
            late = base < self.end or (behind < count and until[behind] <= row["seq"])
            if own and late:
                self.begin(NONE, NONE)  # it is not known what is in which segment
            elif own and base > self.base:
                self.fill(batches[first:place])
                there = place < count and batches["base"][place] == base
                self.roll(row, int(batches["size"][place]) if there else NONE)
                first = place
        self.fill(batches[first:])
        if count:
            self.latest = max(self.latest, int(batches["us"].max()))
        self.waiting, self.held = self.waiting[count:], kept
        return told

    def fill(self, batches: Records[Batch]) -> None:
        """Append batches to the segment."""
        if not len(batches):
            return
        self.reads |= set(np.unique(batches["read"]).tolist())
        if self.total >= 0:
            whole = batches["base"] == np.concatenate([[self.end], batches["end"][:-1]])
            sums = self.total + np.cumsum(batches["size"])
            gap = first_of(~whole | (batches["size"] < 0))
            over = first_of(sums > self.limit) if self.limit > 0 else len(batches)
            self.total = int(sums[-1]) if len(batches) == min(gap, over) else NONE
            if over < gap:
                self.overdue = (
                    int(batches["seq"][over]),
                    (
                        f"the segment at {self.base} would hold {sums[over]} bytes with the batch at "
                        f"{batches['base'][over]}, and no line tells of a roll there"
                    ),
                )
        self.end = int(batches["end"][-1])

    def roll(self, row: dict[str, Any], size: int) -> None:
        """A line tells that the segment ends before a batch of this size: tell its bytes, and whether it had to."""
        base = row["base_offset"]
        if SMALLER not in self.reads:
            if self.total >= 0 and self.end == base:
                row["segment_bytes"] = self.total
                self.hold_against(row, size)
            elif self.overdue is not None and self.by_line and AS_PRODUCED in self.reads:
                self.note(self.check, *self.overdue, agrees=False)
        self.begin(base, 0)
        self.by_line = True

    def hold_against(self, row: dict[str, Any], size: int) -> None:
        """Compare the bytes that were counted, and whether they must end here, with what the broker's line states.

        Kafka asks for the size first, so where that decides the reason is the size, whatever else the line shows.
        """
        seq, base, stated, limit = row["seq"], row["base_offset"], row.get("logged_bytes"), row.get("logged_limit")
        had_to = size >= 0 and 0 < (limit or self.limit) < self.total + size
        if had_to:
            row["reason"] = BY_SIZE
            self.note(self.check, seq, "", agrees=True)
        elif size >= 0 and row.get("reason") == BY_SIZE and AS_PRODUCED in self.reads:
            text = (
                f"the segment before {base} would hold {self.total + size} bytes with the batch there, which is allowed"
            )
            self.note(self.check, seq, text, agrees=False)
        if stated is None or AS_PRODUCED not in self.reads:
            return
        agrees = stated == self.total and self.limit in (NONE, limit)
        text = f"the segment before {base} has {stated} of {limit} bytes by its line, and {self.total} of {self.limit}"
        self.note(self.size_check, seq, f"{text} as counted", agrees=agrees)

    def note(self, check: str, seq: int, text: str, *, agrees: bool) -> None:
        """Count a comparison."""
        self.counts[check][0] += 1
        self.counts[check][1] += agrees
        if not agrees:
            self.first_odd.setdefault(check, (seq, text))

    def finish(self) -> list[dict[str, Any]]:
        """Return the rows that are still held. Call once, after the last batch."""
        return self.settle(len(self.waiting), NEVER, last=True)

    def checks(self) -> list[dict[str, Any]]:
        """The checks of where segments ended and of their sizes, if anything was compared. Call after `finish`."""
        told = []
        for check, (compared, matched) in self.counts.items():
            seq, text = self.first_odd.get(check, (None, None))
            row = {"check": check, "compared": compared, "matched": matched}
            told += [{**row, "first_mismatch_seq": seq, "note": text}] if compared else []
        return told


def first_of(flags: Flags) -> int:
    """The place of the first that is set; their number if none is."""
    return int(flags.argmax()) if flags.any() else len(flags)


def batches_in(events: Events) -> Picked:
    """The appends among events."""
    return events.at(events.kinds == c.APPEND)


def is_read(batch: EventBatch) -> Flags:
    """Which events are fetches that returned records to followers, and certainly all that the next one shows."""
    of = batch.events.numbers
    found: Flags = (kinds_in(batch) == c.FETCH_READ) & (of("replica_id", NONE) >= 0) & (of("bytes") > 0)
    found &= (doubts_of(batch) < BOUNDED) & (of("error_code") == 0)
    return found
