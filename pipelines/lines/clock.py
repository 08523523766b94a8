"""Converts wall clocks to UTC: brokers' stamps carry no zone, and one hour a year occurs twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from schemas.errors import InputError

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_BACKWARDS = 20 * _MINUTE
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)  # a printed wall clock has no zone


def zone(name: str) -> ZoneInfo:
    """Return the zone of that name; InputError if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"unknown time zone {name!r}: give a name such as Europe/Berlin or UTC"
        raise InputError(message) from error


class ZoneClock:
    """Converts one file's wall clock to UTC; call it for the lines in their order.

    In the repeated hour the order of the lines decides: a file's first lines there are in the first pass, and a jump
    back of more than twenty minutes begins the second. `second_pass` says that the file starts in the second one.
    """

    def __init__(self, name: str, *, second_pass: bool = False) -> None:
        """Use the zone of that name; InputError if there is none."""
        self._zone = None if name in {"UTC", "Etc/UTC", "Z"} else zone(name)
        self._fold = int(second_pass)
        self._last = 0
        self._minutes: dict[int, tuple[int, int]] = {}

    def utc(self, local: int) -> int:
        """Convert microseconds of the wall clock to microseconds in UTC."""
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
        """Whether the wall clock is UTC, so that there is no repeated hour."""
        return self._zone is None

    def offset(self, local: int) -> int:
        """Return the microseconds that the zone is ahead of UTC at that wall clock time, in its first pass."""
        return 0 if self._zone is None else self._offsets(local // _MINUTE)[0]

    def is_repeated(self, local: int) -> bool:
        """Whether that wall clock time occurs twice."""
        if self._zone is None:
            return False
        first, second = self._offsets(local // _MINUTE)
        return first > second

    def _offsets(self, minute: int) -> tuple[int, int]:
        """Return the offsets from UTC in the first and second pass: equal unless the time occurs twice."""
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
