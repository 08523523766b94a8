"""Reads single lines of a recording's files, to be quoted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipelines.recording.reading import Outcome, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipelines.recording.recording import Source

MOST_BYTES: Final = 1 << 28  # of text, in all, that is read for the sake of quotes
LONGEST_QUOTE: Final = 1200
Place = tuple[str, int]  # a file by its name, and a line, from 1 on


def place_of(source: str) -> Place | None:
    """Return the place that `FILE:LINE` names; None: it names none."""
    name, _, line = source.rpartition(":")
    return (name, int(line)) if name and line.isdecimal() else None


def quotes_of(sources: Iterable[Source], places: Iterable[Place], most: int = MOST_BYTES) -> Mapping[Place, str]:
    """Return the lines at these places, as far as their files are there and can be reached within `most` bytes of text.

    A file is read from its beginning, since most are compressed, and no further than to the last line wanted.
    """
    wanted: dict[str, set[int]] = {}
    for name, line in places:
        wanted.setdefault(name, set()).add(line)
    paths = {source.name: source.path for source in sources if source.name in wanted}
    found: dict[Place, str] = {}
    # The nearest lines first: of a budget that does not suffice for all, the farthest are left out.
    for name in sorted(paths, key=lambda one: (max(wanted[one]), one)):
        try:
            most -= _read(name, paths[name], wanted[name], most, found)
        except OSError:  # gone since it was parsed, or not to be read: what is quoted is a kindness, not evidence
            continue
        if most <= 0:
            break
    return found


def _read(name: str, path: str, lines: set[int], most: int, found: dict[Place, str]) -> int:
    """Read on to the last of the lines; return how much text that was."""
    last, number, taken = max(lines), 0, 0
    for block in read_lines(path, Outcome()):
        for line in sorted(one for one in lines if number < one <= number + len(block)):
            found[name, line] = _shortened(block[line - number - 1])
        number += len(block)
        taken += sum(map(len, block))
        if number >= last or taken >= most:
            break
    return taken


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]} … ({len(text) - LONGEST_QUOTE:,} more)"
