"""What pictures of the cluster are made of: lanes, a time axis, colours, and words for what is not drawn."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pipelines.page.colours import COLOURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

WIDTH: Final = 760
MOST_LANES: Final = 24  # partitions, or logs, in one picture
MOST_MOMENTS: Final = 60  # of losses, drawn into other pictures
# Around a picture: browsers' letters may be wider than those it was measured with.
PADDING: Final = {"left": 36, "right": 36, "top": 5, "bottom": 5}


def moment(us: int | None) -> str:
    """Return a time in UTC, in words."""
    return "not known" if us is None else f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def seconds(value: float | None) -> str:
    """Return a length of time."""
    return "open" if value is None else f"{value:,.1f} s"


def times(count: int) -> str:
    """Return how often something was."""
    return "once" if count == 1 else f"{count:,} times"


def spec_of(
    values: Sequence[Row], layers: list[dict[str, Any]], losses: Sequence[int], step: int = 26
) -> dict[str, Any]:
    """Return a picture of lanes over time, with a line for each of the first losses."""
    moments = [{"at": us / 1000, "told": f"a loss at {moment(us)}"} for us in sorted(set(losses))[:MOST_MOMENTS]]
    rule = {
        "data": {"values": moments},
        "mark": {"type": "rule", "color": COLOURS["lost"].light, "strokeDash": [4, 3], "strokeWidth": 1.5},
        "encoding": {"x": {"field": "at", "type": "temporal"}, "description": {"field": "told"}},
    }
    return {
        "width": WIDTH,
        "height": {"step": step, "for": "position"},
        "padding": PADDING,
        "data": {"values": list(values)},
        "layer": [*layers, *([rule] if moments else [])],
    }


def lane(names: Iterable[str]) -> dict[str, Any]:
    """Return the lanes, in this order."""
    axis = {"title": None, "domain": False, "ticks": False, "grid": False}
    return {"y": {"field": "who", "type": "nominal", "sort": list(names), "axis": axis}}


def from_to(span: tuple[int, int]) -> dict[str, Any]:
    """Return from when to when a mark reaches, in a recording of this span."""
    scale = {"type": "utc", "domain": [span[0] / 1000, span[1] / 1000], "clamp": True, "nice": False}
    day = 86_400_000_000
    form = "%H:%M:%S" if span[1] - span[0] < day // 8 else "%H:%M" if span[1] - span[0] < day else "%b %d %H:%M"
    axis = {"title": None, "format": form, "tickCount": 8, "grid": True, "labelOverlap": True}
    return {"x": {"field": "start", "type": "temporal", "scale": scale, "axis": axis}, "x2": {"field": "end"}}


def shade(field: str, most: float) -> dict[str, Any]:
    """Return how strongly something is filled; a page in the dark can change the colour, and it stays right."""
    scale = {"domain": [0, most], "range": [0.08, 0.7]}
    return {"field": field, "type": "quantitative", "legend": None, "scale": scale}


def colours(field: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Return which colour of the page stands for what."""
    scale = {"domain": list(names), "range": [COLOURS[name].light for name in names.values()]}
    return {
        "field": field,
        "type": "nominal",
        "scale": scale,
        "legend": {"title": None, "columnPadding": 44, "columns": 2},
    }


def losses_words(losses: Sequence[int]) -> str:
    """Return what a caption says of the lines of losses."""
    return " A dashed red line is a loss." if losses else ""


def left_out(count: int, noun: str, table: str) -> str | None:
    """Return what a picture says of what it does not draw; None: nothing."""
    if count <= 0:
        return None
    return f"{count:,} more {noun}{'' if count == 1 else 's'} are not drawn: see {table}."
