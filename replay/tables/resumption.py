"""From where each partition is replayed: the newest state before its first event that differs, or the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = Mapping[str, Any]
Place = tuple[str, int, int]  # topic, incarnation, partition
WHOLE: Final = -1  # place of the row about a whole partition


@dataclass(slots=True)
class Resumption:
    """What to replay."""

    since: dict[Place, Row | None]  # of each partition to replay the row of the state to go on from; None: the start
    gone: list[Place]  # partitions that have no events any more
    given_up: set[tuple[str, int, int, int]]  # of partitions to replay the places of states whose window is not kept

    is_everything: bool  # whether every partition is replayed from its start


def resumed(windows: Iterable[Row], checkpoints: Iterable[Row], engine: str, shared: Iterable[Row] = ()) -> Resumption:
    """Decide it from rows of `event_windows` and `replay_checkpoints` (their states are not looked at).

    A partition is left alone if its tables were made of the events that it has now. A state is good if the same engine
    left it, and the same events lie before it. `shared`: of partitions that were just ordered, the window from which on
    their events differ; it may no longer be among those that are kept, and most replays go on from there.
    """
    differ: dict[Place, Row] = {place_of(row): row for row in shared}
    begun: dict[Place, dict[int, Row]] = {}
    for row in windows:
        begun.setdefault(place_of(row), {})[row["place"]] = row
    kept: dict[Place, dict[int, Row]] = {}
    for row in checkpoints:
        kept.setdefault(place_of(row), {})[row["place"]] = row
    found = Resumption({}, sorted(set(kept) - set(begun)), set(), is_everything=True)
    for place, boundaries in begun.items():
        mine = kept.get(place, {})
        whole = mine.get(WHOLE)
        if whole is not None and whole["digest"] == boundaries[0]["total"]:
            continue
        good = [
            k
            for k, row in mine.items()
            if whole is not None
            and k > 0
            and row["engine"] == engine
            and any(_begins_at(row, one) for one in (boundaries.get(k), differ.get(place)))
        ]
        found.since[place] = mine[max(good)] if good else None
        found.given_up |= {(*place, k) for k in mine if k != WHOLE and k not in boundaries}
    found.is_everything = len(found.since) == len(begun) and not any(found.since.values())
    return found


def _begins_at(state: Row, boundary: Row | None) -> bool:
    """Whether a state is of the beginning of a window, after the same events."""
    return boundary is not None and all(state[name] == boundary[name] for name in ("place", "window", "digest"))


def place_of(row: Row) -> Place:
    """Return which partition a row is of."""
    return row["topic"], row["incarnation"], row["partition"]
