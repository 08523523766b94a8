"""Draws pictures as SVG that stands in a page: without a browser, a network, a script or a style of its own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any, Final

from pipelines.page.colours import COLOURS
from schemas.text import printable

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
    "rule": {"color": COLOURS["ink"].light},  # else black, which the page cannot make light
}

_SVG: Final = "http://www.w3.org/2000/svg"
# Characters that XML cannot hold, beside those that `printable` writes out. The library that draws does not refuse
# such text: it ends the whole process, which is the driver of a run.
_NOT_XML: Final = re.compile("[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")
_TOKENS: Final = {shades.light: name for name, shades in COLOURS.items()}
# What the library says about its own structure: to a screen reader the picture is one image with a description.
_STRUCTURE: Final = ("role", "aria-label", "aria-roledescription", "aria-hidden", "class")


def svg_of(picture: Picture) -> str:
    """Return the picture as SVG: the same bytes whatever was drawn before, with ids that no other picture has.

    Colours of the page become its style sheet's variables, with the colour for light where there is no style sheet.
    The first call of a process takes a second or two, the others a tenth.
    """
    root = ET.fromstring(drawn(picture))  # noqa: S314 - made by vl-convert from text made fit for it
    _name(root, picture)
    _rename_ids(root, picture.key)
    for element in list(root.iter()):
        _let_page_colour(element)
        if element is not root:
            _keep_label_of_mark(element)
    ET.register_namespace("", _SVG)
    return ET.tostring(root, encoding="unicode")


def drawn(picture: Picture) -> str:
    """Return the picture as vl-convert draws it, in the colours for light."""
    import vl_convert  # noqa: PLC0415 - 33 MB, and what runs in executors has none of it

    svg: str = vl_convert.vegalite_to_svg(fit(dict(picture.spec)), config=CONFIG, allowed_base_urls=[])
    return svg


def fit(value: Any) -> Any:  # noqa: ANN401 - a part of a specification is whatever JSON can be
    """Return a part of a specification with all its text written so that it can be drawn."""
    if isinstance(value, str):
        return _NOT_XML.sub(lambda match: f"\\u{ord(match.group()):04x}", printable(value))
    if isinstance(value, dict):
        return {key: fit(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [fit(one) for one in value]
    return value


def _name(root: ET.Element, picture: Picture) -> None:
    """Say what the picture is; its size is the natural one, which the page may change."""
    for name in ("class", "version"):
        root.attrib.pop(name, None)
    named = {tag: f"{picture.key}-svg-{tag}" for tag in ("title", "desc")}
    root.attrib.update({"role": "img", "aria-labelledby": " ".join(named.values())})
    for place, (tag, text) in enumerate((("title", picture.title), ("desc", picture.caption))):
        element = ET.Element(f"{{{_SVG}}}{tag}", {"id": named[tag]})
        element.text = fit(text)
        root.insert(place, element)


def _rename_ids(root: ET.Element, key: str) -> None:
    """Number the clip paths anew: the library counts on from picture to picture."""
    made = [
        element for element in root.iter() if "id" in element.attrib and not element.attrib["id"].startswith(f"{key}-")
    ]
    names = {element.attrib["id"]: f"{key}-{place}" for place, element in enumerate(made, 1)}
    for element in made:
        element.attrib["id"] = names[element.attrib["id"]]
    for element in root.iter():
        for name, value in element.attrib.items():
            element.attrib[name] = _REFERENCE.sub(lambda match: f"url(#{names[match.group(1)]})", value)


def _let_page_colour(element: ET.Element) -> None:
    for what in ("fill", "stroke"):
        token = _TOKENS.get(element.attrib.get(what, ""))
        if token is not None:
            element.attrib[what] = f"var(--{token}, {COLOURS[token].light})"


def _keep_label_of_mark(element: ET.Element) -> None:
    """Keep what is said of a single mark, which the page shows on demand, and nothing about the library's structure."""
    what = element.attrib.get("aria-roledescription", "")
    is_mark = what == "bar" or what.endswith(" mark")
    if element.attrib.get("role") == "graphics-symbol" and is_mark and element.attrib.get("aria-label"):
        element.attrib.pop("aria-roledescription")
        return
    for name in _STRUCTURE:
        element.attrib.pop(name, None)
