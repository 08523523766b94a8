"""What is written to a terminal: tables and paragraphs of a given width, and colour only where it is asked for.

Everything passes through `printable` here, so that no name from a log can reach a terminal as an order.
"""

from __future__ import annotations

import textwrap
from io import StringIO
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemas.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

NARROWEST: Final = 80
DEFAULT_WIDTH: Final = 100  # where nobody says how wide the terminal is


class Screen:
    """Lines for a terminal, as they are added."""

    def __init__(self, width: int = DEFAULT_WIDTH, *, colour: bool = False) -> None:
        """Begin an empty screen. Narrower than `NARROWEST` no table can be read, so lines then wrap by themselves."""
        self.width = max(width, NARROWEST)
        self.console = Console(
            file=StringIO(),
            width=self.width,
            force_terminal=colour,
            color_system="standard" if colour else None,
            no_color=not colour,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
        )

    def text(self) -> str:
        """Return what was written, without blanks at the ends of lines."""
        file = self.console.file
        written = file.getvalue() if isinstance(file, StringIO) else ""
        return "\n".join(line.rstrip() for line in written.splitlines())

    def blank(self) -> None:
        """Write an empty line."""
        self.console.print()

    @property
    def height(self) -> int:
        """Lines so far."""
        return len(self.text().splitlines())

    def line(self, text: object, style: str = "", indent: int = 0, hanging: int = 0, most: int | None = None) -> None:
        """Write a paragraph; what does not fit on its first line is indented by `hanging` more.

        `most`: so many lines of it at most, which then end with dots.
        """
        lines = textwrap.wrap(
            printable(text),
            self.width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hanging),
            break_on_hyphens=False,
            max_lines=most,
            placeholder=" ...",
        )
        for line in lines or [""]:
            self.console.print(Text(line, style=style), soft_wrap=True)

    def exact(self, text: object, indent: int = 0) -> None:
        """Write a line that is to be copied, which a terminal may wrap where it likes."""
        self.console.print(Text(" " * indent + printable(text)), soft_wrap=True)

    def heading(self, text: object) -> None:
        """Write the title of a part, after an empty line."""
        self.blank()
        self.line(text, "bold")

    def fields(self, named: Sequence[tuple[str, object]], indent: int = 2) -> None:
        """Write names and values below each other, leaving out values that are empty or null."""
        shown = [(name, value) for name, value in named if value not in (None, "")]
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in shown:
            table.add_row(Text(" " * indent + printable(name)), Text(printable(value)))
        if shown:
            self.console.print(table)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        right: Sequence[str] = (),
        whole: Sequence[str] = (),
        styles: Sequence[str] = (),
    ) -> None:
        """Write a table: columns of `right` hold numbers, those of `whole` never wrap; `styles`: those of the rows."""
        gap = 2 if self.width > DEFAULT_WIDTH else 1
        table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
        for name in columns:
            table.add_column(
                Text(name), justify="right" if name in right else "left", no_wrap=name in whole, overflow="fold"
            )
        for place, row in enumerate(rows):
            cells = (Text("" if value is None else printable(value)) for value in row)
            table.add_row(*cells, style=styles[place] if styles else "")
        self.console.print(table)
