"""The colours of the page, in light and in dark: one list for its text and for its pictures.

A picture is drawn once, in the colours for light. Each is named in it, so that the style sheet says what it is, without
a script.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Shades(NamedTuple):
    """A colour in light and in dark."""

    light: str
    dark: str


COLOURS: Final[dict[str, Shades]] = {
    "ink": Shades("#1c2530", "#e4eaf1"),
    "muted": Shades("#566270", "#9fabb9"),
    "faint": Shades("#8a95a2", "#76828f"),
    "line": Shades("#dde3ea", "#2b3540"),
    "ground": Shades("#f7f9fb", "#0f141a"),
    "card": Shades("#ffffff", "#161d25"),
    "accent": Shades("#0b5cad", "#7db9ff"),
    "lost": Shades("#b3261e", "#ff8f85"),
    "risk": Shades("#a15c00", "#f2b655"),
    "safe": Shades("#1a7a3f", "#74d394"),
    "calm": Shades("#5b7fa6", "#8fb2d9"),
    "pale": Shades("#c3d3e4", "#3a4f66"),
}


def style_of_colours() -> str:
    """Return the part of the style sheet that says what the colours are, by name: a picture names them as well."""

    def values(shade: int) -> str:
        return "".join(f"--{name}:{shades[shade]};" for name, shades in COLOURS.items())

    light, dark = values(0), values(1)
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f":root[data-theme=light]{{color-scheme:light}}\n"
        f"@media print{{:root,:root[data-theme]{{color-scheme:light;{light}}}}}\n"
    )
