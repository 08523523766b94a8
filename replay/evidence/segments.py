"""Lines about the segments of a partition's logs: rolled, deleted, cleaned, copied to the remote tier, deleted there.

A segment ends where the next one of its broker's log begins. Brokers log each roll and each copy at INFO, so the end is
known where those lines are. A remote segment is named by an id; the line that it was copied tells which it is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.rows import Row

ROLLED, DELETED, COPIED, REMOTE_DELETED = (
    "segment_rolled", "segment_deleted", "segment_copied", "remote_segment_deleted"
)  # fmt: skip
LOCAL_START, CLEANING = "local_log_start", "compaction"
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


class SegmentChange(NamedTuple):
    """What a line says of a segment."""

    row: Row
    what: str
    base: int | None
    end: int | None
    reason: str | None


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


def reason_of(value: str | None) -> str | None:
    """Return why a segment was deleted; None: the line does not say."""
    return next((reason for pattern, reason in REASONS if pattern.match(value or "")), None)


def segment_changes(lines: Iterable[Row]) -> list[SegmentChange]:
    """Return what lines (facts `log_change`, `segment_change`) say of segments, in the order of their times."""
    told = [row for row in lines if row["name"] in CHANGES and row["ts"] is not None]
    told.sort(key=lambda row: (micros(row["ts"]), row["broker_id"], row["source_file"] or "", row["source_line"] or 0))
    bases = Bases()
    for row in told:
        if row["base_offset"] is not None and row["name"] in (ROLLED, DELETED, COPIED):
            bases.of_broker[row["broker_id"]].append(row["base_offset"])
        if row["name"] == COPIED:
            bases.copied[row["text"] or ""] = row["broker_id"], row["base_offset"]
    for known in bases.of_broker.values():
        known.sort()
    return [change_of(row, bases) for row in told]


def change_of(row: Row, bases: Bases) -> SegmentChange:
    """Return what one line says."""
    name, broker, base, end = row["name"], row["broker_id"], row["base_offset"], None
    if name == REMOTE_DELETED:
        broker, base = bases.copied.get(row["text"] or "", (broker, None))
    if name in (DELETED, COPIED, REMOTE_DELETED):
        end = bases.end_of(broker, base)
    elif name == CLEANING:
        end = row["offset"]
    reason = reason_of(row["value"]) if name in (DELETED, REMOTE_DELETED) else None
    return SegmentChange(row, CHANGES[name], base, end, reason)
