"""Pieces of Vega-Lite that the pictures of an incident are put together from, and words for what is in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pipelines.page.colours import COLOURS
from schemas.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WIDTH: Final = 720
MOST_ROWS: Final = 200  # of the table under a picture
LONGEST_NAME: Final = 60
LETTER: Final = 6.3  # width of a letter of 12 pixels, on average
UNSURE: Final = ("bounded", "unknown")


def colour(name: str) -> str:
    """Return a colour of the page."""
    return COLOURS[name].light


def name_of(incident: Mapping[str, Any]) -> str:
    """Return the partition's name, shortened if somebody gave its topic a very long one."""
    return f"{short(incident['topic'])}-{incident['partition']}"


def short(text: object, longest: int = LONGEST_NAME) -> str:
    """Return text from a log, fit to be shown and not too long."""
    plain = printable(text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


def key_of(incident: Mapping[str, Any], picture: str) -> str:
    """Return the key of a picture: letters, digits and hyphens, whatever the incident's id is."""
    return f"{picture}-{''.join(one for one in str(incident['incident_id']) if one.isascii() and one.isalnum())}"


def clock(us: int | None) -> str:
    """Return the time of day, in UTC."""
    if us is None:
        return "not known"
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):%H:%M:%S}.{us % 1_000_000 // 1000:03d}"


def day(us: int) -> str:
    """Return the day, in UTC."""
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):%Y-%m-%d}"


def brokers(ids: Iterable[int]) -> str:
    """Return brokers as Kafka lists them."""
    return f"[{', '.join(str(one) for one in sorted(ids))}]"


def offsets(first: int, last: int | None) -> str:
    """Return a range of offsets in words; an open end is said to be one."""
    if last is None:
        return f"{first} and on, nobody knows how far"
    return str(first) if first == last else f"{first} to {last}"


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number of things."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def layer(mark: str, values: Sequence[Mapping[str, Any]], encoding: Mapping[str, Any], **how: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a layer of marks with its data; only marks with a description say anything on demand."""
    about = {"description": {"field": "told", "type": "nominal"}} if "told" in (values[0] if values else {}) else {}
    return {
        "data": {"values": list(values)},
        "mark": {"type": mark, "aria": bool(about), **how},
        "encoding": {**encoding, **about},
    }


def bounded_table(rows: Sequence[Sequence[str]]) -> tuple[Sequence[Sequence[str]], str | None]:
    """Return the rows of a picture's table, at most `MOST_ROWS`, and what to say of the others."""
    if len(rows) <= MOST_ROWS:
        return rows, None
    return rows[:MOST_ROWS], f"The table has the first {MOST_ROWS} of {len(rows):,} rows."


def sentences(*told: str | None) -> str | None:
    """Return the sentences that there are; None: none."""
    return " ".join(one for one in told if one) or None
