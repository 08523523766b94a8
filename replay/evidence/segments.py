"""Lines about the segments of a partition's logs: rolled, deleted, cleaned, copied to the remote tier, deleted there.

A segment ends where the next one of its broker's log begins. Brokers log each roll and each copy at INFO, so the end is
known where those lines are. A remote segment is named by an id; the line that it was copied tells which it is.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from replay.evidence.roll_reasons import BY_RETENTION, StatedRoll, stated_roll
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.rows import Row

ROLLED, DELETED, COPIED, REMOTE_DELETED = (
    "segment_rolled", "segment_deleted", "segment_copied", "remote_segment_deleted"
)  # fmt: skip
LOCAL_START, CLEANING, ROLLING = "local_log_start", "compaction", "segment_rolling"
CHANGES: Final = {  # fact -> what `segment_timeline` calls it
    ROLLED: "rolled",
    DELETED: "deleted",
    CLEANING: "cleaned",
    LOCAL_START: "local_log_start",
    COPIED: "copied",
    REMOTE_DELETED: "remote_deleted",
}
REASONS: Final = (  # why a segment went, by how a line names it in any version
    (re.compile(r"local .*log start offset"), "local_log_start"),
    (re.compile(r"local .*retention time"), "local_retention_time"),
    (re.compile(r"local .*retention size"), "local_retention_size"),
    (re.compile(r"retention time"), "retention_time"),
    (re.compile(r"retention size"), "retention_size"),
    (re.compile(r"log.start.offset"), "log_start"),
    (re.compile(r"leader-epoch-cache"), "leader_epochs"),
)
NEXT_LINE_US: Final = 10_000_000  # a broker's line that a segment has begun comes this soon behind the one why
AT_ONCE_US: Final = 1_000_000  # where retention takes the whole log, its lines and that of the roll are this close
NOTHING: Final = StatedRoll()


class SegmentChange(NamedTuple):
    """What a line says of a segment."""

    row: Row
    what: str
    base: int | None
    end: int | None
    reason: str | None
    stated: StatedRoll = NOTHING  # of a roll: what the broker said before it


@dataclass(slots=True)
class Bases:
    """Where segments begin, as lines tell it."""

    of_broker: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # rising, once all are known
    copied: dict[str, tuple[int, int]] = field(default_factory=dict)  # remote segment -> who copied it, its base

    def end_of(self, broker: int, base: int | None) -> int | None:
        """Return where a segment of a broker's log ends: where the next one begins."""
        known = self.of_broker[broker]
        place = bisect_right(known, base) if base is not None else len(known)
        return known[place] if place < len(known) else None

    def before(self, broker: int, base: int | None) -> int | None:
        """Return where the segment before one of a broker's log begins."""
        known = self.of_broker[broker]
        place = bisect_left(known, base) if base is not None else 0
        return known[place - 1] if place else None


def reason_of(value: str | None) -> str | None:
    """Return why a segment was deleted; None: the line does not say."""
    return next((reason for pattern, reason in REASONS if pattern.match(value or "")), None)


def segment_changes(lines: Iterable[Row]) -> list[SegmentChange]:
    """Return what lines (facts `log_change`, `segment_change`) say of segments, in the order of their times."""
    told = [row for row in lines if row["name"] in (*CHANGES, ROLLING) and row["ts"] is not None]
    told.sort(key=lambda row: (micros(row["ts"]), row["broker_id"], row["source_file"] or "", row["source_line"] or 0))
    bases = Bases()
    for row in told:
        if row["base_offset"] is not None and row["name"] in (ROLLED, DELETED, COPIED):
            bases.of_broker[row["broker_id"]].append(row["base_offset"])
        if row["name"] == COPIED:
            bases.copied[row["text"] or ""] = row["broker_id"], row["base_offset"]
    for known in bases.of_broker.values():
        known.sort()
    stated, paired = stated_rolls(told, bases)
    return [change_of(row, bases, stated.get(id(row), NOTHING)) for row in told if id(row) not in paired]


def stated_rolls(told: list[Row], bases: Bases) -> tuple[dict[int, StatedRoll], set[int]]:
    """Return what is stated of the rolls that lines tell, by the line's id; and which lines another says more of.

    The line why comes before the line that the segment has begun. Retention that takes a whole log has none of its own:
    a broker that writes such lines at all wrote none, and the segment that ended went at once.
    """
    stated: dict[int, StatedRoll] = {}
    paired: set[int] = set()
    said: dict[int, Row] = {}  # broker -> its line about a roll that is to come
    for row in told:
        broker, base = row["broker_id"], row["base_offset"]
        if row["name"] == ROLLED:
            line = said.pop(broker, None)
            if line is not None and micros(row["ts"]) - micros(line["ts"]) <= NEXT_LINE_US:
                paired.add(id(line))
                stated[id(row)] = stated_roll(line["value"], base, bases.before(broker, base))
        elif row["name"] == ROLLING:
            said[broker] = row
            stated[id(row)] = stated_roll(row["value"], None, None)
    telling = {row["broker_id"] for row in told if row["name"] == ROLLING and stated[id(row)].size is not None}
    gone: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    for row in told:
        if row["name"] == DELETED and row["broker_id"] in telling:
            gone[row["broker_id"], bases.end_of(row["broker_id"], row["base_offset"])].append(micros(row["ts"]))
    for row in told:
        if row["name"] == ROLLED and id(row) not in stated:
            times = gone.get((row["broker_id"], row["base_offset"]), ())
            if any(abs(micros(row["ts"]) - us) <= AT_ONCE_US for us in times):
                stated[id(row)] = StatedRoll(reason=BY_RETENTION)
    return stated, paired


def change_of(row: Row, bases: Bases, stated: StatedRoll) -> SegmentChange:
    """Return what one line says; `stated`: of a roll. A line that a segment is to begin tells of the roll, too."""
    name, broker, base, end = row["name"], row["broker_id"], row["base_offset"], None
    if name in (ROLLED, ROLLING):
        return SegmentChange(row, CHANGES[ROLLED], base, None, stated.reason, stated)
    if name == REMOTE_DELETED:
        broker, base = bases.copied.get(row["text"] or "", (broker, None))
    if name in (DELETED, COPIED, REMOTE_DELETED):
        end = bases.end_of(broker, base)
    elif name == CLEANING:
        end = row["offset"]
    reason = reason_of(row["value"]) if name in (DELETED, REMOTE_DELETED) else None
    return SegmentChange(row, CHANGES[name], base, end, reason)
