"""Wall clocks to UTC: a broker's stamps carry no zone, and once a year an hour comes twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from schemas.errors import InputError

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_BACKWARDS = 20 * _MINUTE
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)  # a printed wall clock has no zone


def zone(name: str) -> ZoneInfo:
    """The zone of that name; InputError where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"unknown time zone {name!r}: give a name such as Europe/Berlin or UTC"
        raise InputError(message) from error


class ZoneClock:
    """Moves one file's wall clock to UTC.

    In the repeated hour the order of the lines decides: a file's first lines there are the first pass, and a jump back
    of more than twenty minutes begins the second. `second_pass` says that the file starts in the second one.
    """

    def __init__(self, name: str, *, second_pass: bool = False) -> None:
        """Take the zone by its name."""
        self._zone = None if name in {"UTC", "Etc/UTC", "Z"} else zone(name)
        self._fold = int(second_pass)
        self._last = 0
        self._minutes: dict[int, tuple[int, int]] = {}

    def utc(self, local: int) -> int:
        """Microseconds in UTC of a wall clock's microseconds."""
        if self._zone is None:
            return local
        first, second = self._offsets(local // _MINUTE)
        if first == second:
            self._fold = 0
        elif local < self._last - _BACKWARDS:
            self._fold = 1
        self._last = local
        return local - (second if self._fold else first)

    @property
    def is_utc(self) -> bool:
        """Whether the wall clock is UTC, so that nothing is to be decided."""
        return self._zone is None

    def offset(self, local: int) -> int:
        """Microseconds ahead of UTC at that wall clock time, in the first pass."""
        return 0 if self._zone is None else self._offsets(local // _MINUTE)[0]

    def is_repeated(self, local: int) -> bool:
        """Whether that wall clock time comes twice."""
        if self._zone is None:
            return False
        first, second = self._offsets(local // _MINUTE)
        return first > second

    def _offsets(self, minute: int) -> tuple[int, int]:
        """Offsets from UTC of the first and second pass; equal except in a repeated hour (or one that never was)."""
        found = self._minutes.get(minute)
        if found is None:
            wall = _EPOCH + timedelta(minutes=minute)
            first, second = (
                _micros(wall.replace(fold=fold, tzinfo=self._zone).utcoffset() or timedelta()) for fold in (0, 1)
            )
            found = (first, second) if first > second else (first, first)
            self._minutes[minute] = found
        return found


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
