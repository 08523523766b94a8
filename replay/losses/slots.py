"""The algebra of slots: what logs hold, as runs of offsets by leader epoch; what is lost is what one log lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.arrays.ints import Ints
    from replay.protocol.state import State


class Slots(NamedTuple):
    """Offsets [first, end) of one leader epoch."""

    epoch: int
    first: int
    end: int


def spans_of(s: State, b: int) -> list[Slots]:
    """The epoch cache of replica b as spans."""
    n = int(s.cache_len[b])
    starts = s.cache_start[b, :n].tolist()
    ends = [*starts[1:], int(s.leo[b])][:n]
    told = zip(s.cache_epoch[b, :n].tolist(), starts, ends, strict=True)
    return [Slots._make(span) for span in told if span[2] > span[1]]


def known_from(s: State, b: int) -> int:
    """Offset from which b's epoch cache describes its log; everything below is assumed to be held."""
    return int(s.cache_start[b, 0]) if s.cache_len[b] else int(s.leo[b])


def doubtful(s: State, b: int, slots: list[Slots]) -> list[Slots]:
    """The part of the slots that b may or may not hold, because the epochs of its records there are unknown."""
    first, end = int(s.unsure_from[b]), int(s.unsure_until[b])
    return [Slots(one.epoch, first, end) for one in slots] if first < end else []


def is_doubtful(s: State, b: int) -> bool:
    """Whether there are such offsets in b's log."""
    return int(s.unsure_from[b]) < int(s.unsure_until[b])


def lost_slots(old: list[Slots], new: list[Slots], floor: int) -> list[Slots]:
    """Slots of `old` from `floor` on that `new` lacks: for each epoch, whatever lies beyond its end in `new`."""
    kept = {span.epoch: span.end for span in new}
    out = []
    for span in old:
        first = max(span.first, floor, kept.get(span.epoch, span.first))
        if first < span.end:
            out.append(Slots(span.epoch, first, span.end))
    return out


def without(lost: list[Slots], told: list[Slots]) -> list[Slots]:
    """Slots of `lost` that are not in `told`, so that each slot appears in one incident."""
    out = lost
    for old in told:
        rest = []
        for slots in out:
            if slots.epoch != old.epoch or old.end <= slots.first or slots.end <= old.first:
                rest.append(slots)
                continue
            rest += [Slots(slots.epoch, slots.first, old.first)] if slots.first < old.first else []
            rest += [Slots(slots.epoch, old.end, slots.end)] if old.end < slots.end else []
        out = rest
    return out


def common(lost: list[Slots], held: list[Slots]) -> list[Slots]:
    """Slots that are in both."""
    return [
        Slots(slots.epoch, max(slots.first, span.first), min(slots.end, span.end))
        for slots in lost
        for span in held
        if slots.epoch == span.epoch and overlap(slots.first, slots.end, span)
    ]


def overlap(batch_first: int, batch_end: int, slots: Slots) -> int:
    """How many offsets of [batch_first, batch_end) are among the slots."""
    return max(0, min(batch_end, slots.end) - max(batch_first, slots.first))


def joined(slots: Iterable[Slots]) -> list[Slots]:
    """Slots in order, with neighbours of one epoch joined."""
    out: list[Slots] = []
    for one in sorted(slots):
        if out and out[-1].epoch == one.epoch and out[-1].end == one.first:
            out[-1] = out[-1]._replace(end=one.end)
        else:
            out.append(one)
    return out


def add_spans(spans: list[tuple[int, int]], first: Ints, end: Ints) -> None:
    """Add spans [first, end) one after the other; one that continues the last span extends it."""
    if spans:
        since, reached = spans[-1]
        until = np.maximum.accumulate(np.concatenate(([reached], end)))
        if bool(((first <= until[:-1]) & (first >= since)).all()):
            spans[-1] = (since, int(until[-1]))
            return
    for a, b in zip(first.tolist(), end.tolist(), strict=True):
        if spans and spans[-1][0] <= a <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], b))
        else:
            spans.append((a, b))
