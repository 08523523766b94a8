"""Lines of steps, thinned so that their shape stays."""

from __future__ import annotations

from typing import NamedTuple

Point = tuple[int, int, bool]  # when, how far, and whether that is bounded or not known


class Line(NamedTuple):
    """How an offset of a broker moved."""

    broker: int
    what: str  # leo or hw
    points: list[Point]

    def stretches(self, end: int) -> list[tuple[list[tuple[int, int]], bool]]:
        """Return the line in stretches that are sure or not; what was said last is drawn on to the end."""
        made: list[tuple[list[tuple[int, int]], bool]] = []
        for place, (time, value, is_unsure) in enumerate(self.points):
            following = self.points[place + 1] if place + 1 < len(self.points) else None
            if not made or made[-1][1] != is_unsure:
                made.append(([], is_unsure))
            made[-1][0].append((time, value))
            if following is not None and following[2] != is_unsure:
                made[-1][0].extend([(following[0], value), following[:2]])
        if self.points and self.points[-1][0] < end:
            made[-1][0].append((end, self.points[-1][1]))
        return made


def thinned(lines: list[Line], most: int) -> tuple[list[Line], tuple[int, int]]:
    """Return the lines with at most so many points in all, and how many there were and are.

    Of each slot of time the first, the last, the least and the greatest stay, in their order.
    """
    points = sum(len(line.points) for line in lines)
    if points <= most:
        return lines, (points, points)
    start = min(line.points[0][0] for line in lines if line.points)
    end = max(line.points[-1][0] for line in lines if line.points)
    slots, few = most, lines
    while slots and sum(len(line.points) for line in few) > most:
        slots = slots * 3 // 4
        few = [line._replace(points=_thinned(line.points, start, end, max(1, slots))) for line in lines]
    return few, (points, sum(len(line.points) for line in few))


def _thinned(points: list[Point], start: int, end: int, slots: int) -> list[Point]:
    of_slots: dict[int, list[int]] = {}
    for place, (time, _, _) in enumerate(points):
        of_slots.setdefault(min(slots - 1, (time - start) * slots // max(1, end - start)), []).append(place)
    kept: set[int] = set()
    for places in of_slots.values():
        kept.update((places[0], places[-1]))
        kept.add(min(places, key=lambda place: points[place][1]))
        kept.add(max(places, key=lambda place: points[place][1]))
    return [points[place] for place in sorted(kept)]
