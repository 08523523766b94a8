"""Why a broker began a segment, by the line that it writes before (LogSegment.shouldRoll).

Just before an append begins a segment, its broker says at DEBUG how full the last one is and for how long it has been
filled, each beside its limit. The line does not say which of them decided, nor the size of the batch that is asked for
first: so of a segment that is neither too old nor has a full index, nor offsets too far apart, it was the size.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

BY_SIZE, BY_AGE, BY_INDEX, BY_OFFSETS, BY_RETENTION = (
    "segment_bytes", "segment_ms", "index_full", "offset_range", "retention"
)  # fmt: skip
_ELIGIBLE: Final = "deletion"  # 3.7+: the line says that it is for retention alone
_STATED: Final = re.compile(r"(\w+) = (-?\d+)/(-?\d+)")
_MAX_SPAN: Final = 2**31 - 1  # so far behind a segment's first offset an index can point
_LARGEST_BATCH: Final = 2**24  # offsets; a batch spans fewer


class StatedRoll(NamedTuple):
    """What the line states; None: it does not."""

    size: int | None = None  # bytes of the segment that ends
    limit: int | None = None  # segment.bytes
    reason: str | None = None


def stated_roll(value: str, base: int | None, before: int | None) -> StatedRoll:
    """Read the line. `base`: where the new segment begins; `before`: where the one that ends does; None: not known."""
    if value == _ELIGIBLE:
        return StatedRoll(reason=BY_RETENTION)
    stated = {name: (int(is_now), int(limit)) for name, is_now, limit in _STATED.findall(value)}
    size, limit = stated["log_size"]
    age, oldest = stated.get("inactive_time_ms") or stated["age_ms"]
    if size > 0 and age > oldest:
        return StatedRoll(size, limit, BY_AGE)
    return StatedRoll(size, limit, BY_INDEX if has_full_index(stated) else _by_size_or_offsets(base, before))


def has_full_index(stated: dict[str, tuple[int, int]]) -> bool:
    """Whether an index is full; that of times keeps its last entry for when its segment ends (TimeIndex.isFull)."""
    count, most = stated.get("offset_index_size") or stated["index_size"]
    times, most_times = stated.get("time_index_size", (0, 2))
    return count >= most or times >= most_times - 1


def _by_size_or_offsets(base: int | None, before: int | None) -> str | None:
    """Which of the two it was; where the ended segment begins nowhere that is known, it begins at 0 or later."""
    span = None if base is None else base - (before or 0)
    if span is None:
        return None
    if span <= _MAX_SPAN - _LARGEST_BATCH:
        return BY_SIZE
    return BY_OFFSETS if before is not None and span > _MAX_SPAN else None
