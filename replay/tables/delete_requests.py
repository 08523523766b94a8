"""How each DeleteRecords must have ended, derived and compared with its answer (DelayedDeleteRecords).

The fold says which requests a leader refuses, and where its log starts and its low watermark is from each one on
(`StartRow`). A request that was taken waits until the low watermark has reached its offset, and is then answered with
it; otherwise with what the low watermark was as it was taken, and REQUEST_TIMED_OUT. What happens within the inaccuracy
of the answer's stamp may have come in either order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from replay.arrays.ints import NEVER
from replay.engine import codes as c
from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.tenures import micros
from replay.protocol.deletion import INVALID_TOPIC
from replay.protocol.produce import NO_ERROR, REQUEST_TIMED_OUT
from replay.tables.check_notes import note_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.records import Records
    from replay.engine.emit import CheckRow, StartRow
    from replay.engine.events import Event

KEPT_US: Final = 60_000_000  # so long after its answer nothing that was under way then is still to come


@dataclass(slots=True)
class Deletion:
    """A request that was taken and waits, or that has just been answered."""

    seq: int
    broker: int  # id
    answered: int  # when its answer was ready, microseconds
    error: int  # as answered
    stated: int | None  # low watermark as answered
    target: int  # the low watermark that ends its wait
    low: int  # the low watermark as it was taken
    by_answer: bool  # the target is known from the answer alone, which then cannot be compared with it
    done: int = NEVER  # when the low watermark had reached the target
    lows: set[int] = field(default_factory=set)  # what it was from then on, until the answer

    def outcome(self) -> int:
        """Return the error that follows; the stated one if the answer left just as the wait would have ended."""
        if self.done < NEVER and abs(self.done - self.answered) <= CLOCK_SLACK_US:
            return self.error
        return NO_ERROR if self.done <= self.answered else REQUEST_TIMED_OUT


@dataclass(slots=True)
class Sum:
    """Comparisons of one check."""

    compared: int = 0
    matched: int = 0
    first: tuple[int, str] | None = None  # seq and note of the first that differs

    def add(self, code: int, seq: int, broker: int, values: tuple[int, int]) -> None:
        """Add a comparison; `values`: computed, stated."""
        self.compared += 1
        self.matched += values[0] == values[1]
        if values[0] != values[1] and (self.first is None or seq < self.first[0]):
            self.first = seq, note_of(code, 0, values, [broker])


class DeleteRequests:
    """The DeleteRecords of one partition; what is compared does not depend on the batches that events come in."""

    def __init__(self, *, internal: bool) -> None:
        """`internal`: the topic is one of Kafka's own, of which nobody may delete records."""
        self.internal = internal
        self.waiting: list[Deletion] = []
        self.sums: dict[int, Sum] = {}

    def taken(
        self, asked: Sequence[Event], starts: Records[StartRow], checks: Records[CheckRow], brokers: Sequence[int]
    ) -> Records[CheckRow]:
        """Take a batch: its requests, where logs start, and which requests are refused; return all other checks."""
        own = checks["check"] == c.CHECK_DELETION
        told = (checks[name][own].tolist() for name in ("seq", "computed", "stated"))
        events, refused = {row["seq"]: row for row in asked}, {seq: values for seq, *values in zip(*told, strict=True)}
        for seq, (computed, stated) in refused.items():
            expected = INVALID_TOPIC if self.internal else computed
            if expected or stated:
                self.add(c.CHECK_DELETION, seq, events[seq]["broker_id"], (expected, stated))
        rows = zip(*(starts[name].tolist() for name in ("seq", "ts", "broker", "start", "low")), strict=True)
        for seq, us, place, start, low in rows:
            if refused.get(seq) == [NO_ERROR, NO_ERROR] and not self.internal:
                self.waiting.append(deletion_of(events[seq], start, low))
            for one in self.waiting:
                self.reach(one, brokers[place], low, us)
        if len(starts):
            self.settle(int(starts["ts"].max()))
        others: Records[CheckRow] = checks[~own]
        return others

    def reach(self, one: Deletion, broker: int, low: int, us: int) -> None:
        """Tell a request that a leader's low watermark is there."""
        if broker != one.broker or low < one.target or us > one.answered + CLOCK_SLACK_US:
            return
        one.done = min(one.done, us)
        one.lows.add(low)

    def settle(self, us: int) -> None:
        """Compare what was answered long before `us`."""
        ready = [one for one in self.waiting if one.answered + KEPT_US < us]
        self.waiting = [one for one in self.waiting if one.answered + KEPT_US >= us]
        for one in ready:
            self.compare(one)

    def compare(self, one: Deletion) -> None:
        """Compare a request's answer with what follows."""
        outcome = one.outcome()
        self.add(c.CHECK_DELETION, one.seq, one.broker, (outcome, one.error))
        if outcome != one.error or one.stated is None or one.by_answer:
            return
        lows = one.lows if outcome == NO_ERROR else {one.low}
        computed = one.stated if one.stated in lows else min(lows, default=c.CONSUMER)
        self.add(c.CHECK_LOW_WATERMARK, one.seq, one.broker, (computed, one.stated))

    def add(self, code: int, seq: int, broker: int, values: tuple[int, int]) -> None:
        """Add a comparison."""
        self.sums.setdefault(code, Sum()).add(code, seq, broker, values)

    def checks(self) -> list[dict[str, Any]]:
        """Return the rows of `conformance`. Call once, after the last batch."""
        for one in self.waiting:
            self.compare(one)
        return [
            {
                "check": c.CHECKS[code],
                "compared": told.compared,
                "matched": told.matched,
                "first_mismatch_seq": None if told.first is None else told.first[0],
                "note": None if told.first is None else told.first[1],
            }
            for code, told in sorted(self.sums.items())
        ]


def deletion_of(event: Event, start: int, low: int) -> Deletion:
    """Return a request that its leader took. `start`: where its log starts now; a request for the HW ends there."""
    ready = micros(event["ts"]) + sum(event[name] or 0 for name in ("local_us", "remote_us"))
    for_all = event["requested_offset"] < 0
    target = start if for_all else event["requested_offset"]
    stated, by_answer = (event["error_code"], event["low_watermark"]), for_all and event["evidence"] == "derived"
    return Deletion(event["seq"], event["broker_id"], ready, *stated, target, low, by_answer)
