"""What all parts of an incident's timeline share: its scales, its looks, the words above it, and the key below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.page.marks import WIDTH, colour, layer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.page.flags import Flag

STRIP: Final = 17  # height of a broker's lane
PANEL: Final = 96
LOOKS: Final[Mapping[str, dict[str, Any]]] = {
    "leo": {"strokeWidth": 3, "color": colour("accent")},
    "hw": {"strokeWidth": 1.5, "color": colour("ink"), "strokeDash": [5, 3]},
}
SILENT: Final[dict[str, Any]] = {"strokeDash": [1, 4], "strokeWidth": 3, "color": colour("risk")}


class Scene(NamedTuple):
    """What the panels of all brokers share."""

    start: int
    end: int
    low: int
    high: int
    flags: Sequence[Flag]

    def time(self) -> dict[str, Any]:
        """Return the scale of time."""
        return {"domain": [self.start / 1000, self.end / 1000], "nice": False, "type": "utc"}

    def offset(self) -> dict[str, Any]:
        """Return the scale of offsets; it leaves room for the lane."""
        return {"domain": [self.low, self.high], "nice": False, "zero": False, "range": [PANEL, STRIP + 12]}


def x_of(scene: Scene, field: str = "at") -> dict[str, Any]:
    """Return the encoding of a time."""
    return {"field": field, "type": "temporal", "scale": scene.time()}


def y_of(scene: Scene, field: str) -> dict[str, Any]:
    """Return the encoding of an offset."""
    return {"field": field, "type": "quantitative", "scale": scene.offset()}


def heading(scene: Scene) -> dict[str, Any]:
    """Return the view with the flags' words."""
    height = 16 * (1 + max((flag.row for flag in scene.flags), default=0))
    values = [
        {"at": flag.time / 1000, "y": 16 * flag.row + 8, "what": flag.words, "told": flag.told} for flag in scene.flags
    ]
    x = {"field": "at", "type": "temporal", "scale": scene.time(), "axis": None}
    y = {"field": "y", "type": "quantitative", "scale": {"domain": [0, height], "range": [0, height]}, "axis": None}
    sides: list[dict[str, Any]] = []
    for is_left, align, dx in ((True, "right", -7), (False, "left", 7)):
        side = [one for one, flag in zip(values, scene.flags, strict=True) if flag.is_left == is_left]
        if side:
            encoding = {"x": x, "y": y, "text": {"field": "what"}}
            plain = [{**one, "told": ""} for one in side]
            how = {"align": align, "dx": dx, "baseline": "middle"}
            rim = {"stroke": colour("card"), "strokeWidth": 4, "strokeJoin": "round"}
            sides += [layer("text", plain, encoding, **how, **rim), layer("text", side, encoding, **how)]
    stems = layer(
        "rule",
        [{**one, "foot": height} for one in values],
        {"x": x, "y": y, "y2": {"field": "foot"}},
        color=colour("faint"),
    )
    dots = layer(
        "point", values, {"x": x, "y": y}, shape="circle", filled=True, size=45, color=colour("ink"), opacity=1
    )
    return {
        "width": WIDTH,
        "height": height,
        "layer": [stems, dots, *sides]
        if values
        else [layer("rule", [{"at": scene.start / 1000}], {"x": x}, opacity=0)],
    }


def legend() -> dict[str, Any]:
    """Return the view that says what the lines are."""
    samples: list[tuple[str, str, dict[str, Any]]] = [
        ("end of the log (LEO)", "rule", LOOKS["leo"]),
        ("high watermark (HW)", "rule", LOOKS["hw"]),
        ("lost", "rect", {"color": colour("lost"), "fillOpacity": 0.18, "stroke": colour("lost")}),
        ("acknowledged", "rule", {"color": colour("safe"), "strokeWidth": 8, "strokeDash": [1.5, 3]}),
        ("cut", "point", {"shape": "triangle-down", "filled": True, "size": 90, "color": colour("lost"), "opacity": 1}),
        ("no request log", "rule", SILENT),
    ]
    at: list[dict[str, Any]] = []
    x = 0.0
    for what, mark, how in samples:
        place = {"x": {"value": x + 10}} if mark == "point" else {"x": {"value": x}, "x2": {"value": x + 20}}
        y = {"y": {"value": 3}, "y2": {"value": 13}} if mark == "rect" else {"y": {"value": 8}}
        at.append(layer(mark, [{}], {**place, **y}, **how))
        at.append(
            layer(
                "text",
                [{"what": what}],
                {"x": {"value": x + 25}, "y": {"value": 8}, "text": {"field": "what"}},
                align="left",
                baseline="middle",
                fontSize=11,
            )
        )
        x += 25 + len(what) * 6.2 + 16
    return {"width": WIDTH, "height": 16, "layer": at}
