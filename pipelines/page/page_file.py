"""From the contents to the page's one file: style sheet and script inlined, and a policy that allows nothing else.

The policy names the one style sheet and the one script by their hashes. So even if something from a log got into the
page as markup, a browser would neither run it nor load anything for it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import re
from functools import cache
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipelines.page.colours import style_of_colours
from pipelines.page.drawing import svg_of
from schemas.text import printable

if TYPE_CHECKING:
    from pipelines.page.contents import Contents
    from pipelines.page.picture import Picture

MOST_BYTES: Final = 2_000_000
# Elements and attributes that no drawing has, and that would load or run something.
_ALIVE: Final = re.compile(
    r"<(?:script|image|foreignObject|iframe|style|a)\b|<[^<>]*\s(?:on\w+|style|(?:xlink:)?href)=", re.IGNORECASE
)


def html_of(contents: Contents) -> str:
    """Return the page."""
    style = style_of_colours() + _text_of("page.css")
    script = _text_of("page.js")
    page = (
        _environment()
        .get_template("page.html")
        .render(
            it=contents,
            style=Markup(style),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704
            style_hash=_hash_of(style),
            script_hash=_hash_of(script),
        )
    )
    return page + "\n"


def _text_of(name: str) -> str:
    return (importlib.resources.files("pipelines.page") / "templates" / name).read_text(encoding="utf-8")


def _hash_of(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    """Templates escape everything; control characters of names from logs are written out."""
    environment = Environment(
        loader=PackageLoader("pipelines.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else printable(value),
    )
    environment.filters["drawn"] = _drawn
    return environment


def _drawn(picture: Picture) -> Markup:
    """Return the picture as markup; ValueError if it has anything in it that a drawing does not need."""
    svg = svg_of(picture)
    if _ALIVE.search(svg):
        message = f"the picture {picture.key} has markup that no drawing needs"
        raise ValueError(message)
    return Markup(svg)  # noqa: S704 - made by vl-convert, which escapes what it draws
