"""From the contents to the page's one file: style sheet and script inlined, and a policy that allows nothing else.

The policy names the one style sheet and the one script by their hashes. So even if something from a log got into the
page as markup, a browser would neither run it nor load anything for it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import xml.etree.ElementTree as ET
from functools import cache
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipelines.page.colours import style_of_colours
from pipelines.page.drawing import svg_of
from schemas.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.page.contents import Contents
    from pipelines.page.picture import Picture

MOST_BYTES: Final = 2_000_000
# What a drawing is made of; anything else could load or run something.
_ELEMENTS: Final = frozenset(
    {"svg", "title", "desc", "g", "path", "line", "rect", "circle", "text", "tspan", "defs", "clipPath"}
)


def html_of(contents: Contents, draw: Callable[[Picture], str] = svg_of) -> str:
    """Return the page; of what has no room in two megabytes it shows the worst, and says so.

    `draw`: returns a picture as SVG; each is asked for once.
    """
    style = style_of_colours() + _text_of("page.css")
    script = _text_of("page.js")
    drawings: dict[str, Markup] = {}

    def drawn(picture: Picture) -> Markup:
        if picture.key not in drawings:
            drawings[picture.key] = _checked(picture, draw(picture))
        return drawings[picture.key]

    template = _environment().get_template("page.html")
    shown: Contents | None = contents
    while True:
        page = template.render(
            it=shown,
            drawn=drawn,
            style=Markup(style),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704
            style_hash=_hash_of(style),
            script_hash=_hash_of(script),
        )
        shown = None if shown is None or len(page.encode()) < MOST_BYTES else shown.thinner()
        if shown is None:
            return page + "\n"


def _text_of(name: str) -> str:
    return (importlib.resources.files("pipelines.page") / "templates" / name).read_text(encoding="utf-8")


def _hash_of(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    """Templates escape everything; control characters of names from logs are written out."""
    return Environment(
        loader=PackageLoader("pipelines.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else printable(value),
    )


def _checked(picture: Picture, svg: str) -> Markup:
    """Return the picture as markup; ValueError if it has anything in it that a drawing does not need."""
    for element in ET.fromstring(svg).iter():  # noqa: S314 - it comes from `drawing`
        names = {element.tag.rpartition("}")[2], *element.attrib}
        alive = {name for name in element.attrib if name.lower().startswith("on") or "href" in name or name == "style"}
        if element.tag.rpartition("}")[2] not in _ELEMENTS or alive:
            message = f"the picture {picture.key} has markup that no drawing needs: {sorted(names)}"
            raise ValueError(message)
    return Markup(svg)  # noqa: S704 - made by vl-convert, which escapes what it draws
