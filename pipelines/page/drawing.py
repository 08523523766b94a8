"""Draws pictures as SVG, without a browser and without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipelines.page.colours import COLOURS

if TYPE_CHECKING:
    from pipelines.page.picture import Picture

_FONT: Final = "system-ui, sans-serif"
CONFIG: Final[dict[str, Any]] = {
    "background": None,
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": COLOURS["muted"].light,
        "titleColor": COLOURS["muted"].light,
        "gridColor": COLOURS["line"].light,
        "domainColor": COLOURS["faint"].light,
        "tickColor": COLOURS["faint"].light,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 260,
    },
    "legend": {
        "labelColor": COLOURS["ink"].light,
        "titleColor": COLOURS["muted"].light,
        "labelFontSize": 12,
        "orient": "top",
        "labelLimit": 400,
        "symbolType": "square",
    },
    "text": {"color": COLOURS["ink"].light, "fontSize": 12},
}


def svg_of(picture: Picture) -> str:
    """Return the picture as SVG. The first call of a process takes a second or two, the others a tenth."""
    import vl_convert  # noqa: PLC0415 - 33 MB, and what runs in executors has none of it

    svg: str = vl_convert.vegalite_to_svg(dict(picture.spec), config=CONFIG, allowed_base_urls=[])
    return svg
