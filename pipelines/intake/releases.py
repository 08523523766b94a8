"""The releases of Kafka whose logs are known, and sentences about others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replay.protocol.profile import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable

OLDEST: Final = (2, 4)
NEWEST: Final = (4, 4)


def too_old(versions: Iterable[str]) -> str | None:
    """Return a sentence about releases older than the oldest known one; None if there are none."""
    old = _outside(versions, older=True)
    if not old:
        return None
    return f"Kafka {', '.join(old)} is older than {_text(OLDEST)}, the first release whose logs are known."


def too_new(versions: Iterable[str]) -> str | None:
    """Return a sentence about releases newer than the newest known one; None if there are none."""
    new = _outside(versions, older=False)
    return (
        f"Kafka {', '.join(new)} is newer than {_text(NEWEST)}, the last release whose logs are known." if new else None
    )


def _outside(versions: Iterable[str], *, older: bool) -> list[str]:
    found = set()
    for text in versions:
        version = parse_version(text)
        if version is not None and (version[:2] < OLDEST if older else version[:2] > NEWEST):
            found.add((version, text))
    return [text for _, text in sorted(found)]


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
