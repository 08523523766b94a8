"""What the end of a request log leaves open: whether a shutdown closed it before the broker had stopped."""

from __future__ import annotations

from typing import Any

from facts_builder import Second, by_source

from replay.evidence.coverage import MEMBER, REQUEST_LOG, STARTING, STOPPED, STOPPING, windows_of, with_windows
from replay.evidence.missing_lines import MissingLines


def at_us(ms: int) -> int:
    return ms * 1000


def life(source: str, ms: int) -> Second:
    """One line of a broker's server log about its start or its end."""
    return source, at_us(ms), at_us(ms), 1


def requests_from(first_ms: int, last_ms: int) -> list[Second]:
    return [(REQUEST_LOG, at_us(ms), at_us(ms), 1) for ms in range(first_ms, last_ms + 1, 100)]


def rows_of(lines: list[Second], end_ms: int) -> list[dict[str, Any]]:
    return windows_of(1, by_source([*lines, life(MEMBER, 0)]), MissingLines(), (at_us(0), at_us(end_ms)))


def windows(lines: list[Second], end_ms: int) -> list[tuple[str, int, int]]:
    rows = rows_of(lines, end_ms)
    mine = [row for row in rows if row["source"] == REQUEST_LOG]
    return [(r["state"], (r["start_ts"] - at_us(0)) // 1000, (r["end_ts"] - at_us(0)) // 1000) for r in mine]


def test_log_that_ends_at_a_shutdown_before_the_broker_had_stopped_misses_what_followed() -> None:
    lines = [*requests_from(0, 8000), life(STOPPING, 8050), life(STOPPING, 8055)]
    assert windows(lines, 9000) == [("logged", 0, 8000), ("missing", 8050, 9000)]
    assert with_windows(MissingLines(), rows_of(lines, 9000)).any_in(1, at_us(8500), at_us(8600))


def test_log_of_a_controller_that_a_shutdown_closed_misses_no_acknowledgement() -> None:
    lines = [*requests_from(0, 8000), life(STOPPING, 8050)]
    rows = windows_of(1, by_source(lines), MissingLines(), (at_us(0), at_us(9000)))
    assert [row["state"] for row in rows if row["source"] == REQUEST_LOG] == ["logged"]


def test_what_followed_a_shutdown_that_closed_the_log_lasts_until_the_next_start() -> None:
    again = [life(STARTING, 12_000), *requests_from(14_000, 16_000), life(STOPPING, 16_000), life(STOPPED, 16_700)]
    lines = [*requests_from(0, 8000), life(STOPPING, 8050), *again]
    assert windows(lines, 17_000) == [
        ("logged", 0, 8000),
        ("missing", 8050, 12_000),
        ("logged", 14_000, 16_000),
    ]


def test_log_of_a_broker_that_says_it_has_stopped_is_complete() -> None:
    lines = [*requests_from(0, 8400), life(STOPPING, 8050), life(STOPPED, 8900)]
    assert windows(lines, 9000) == [("logged", 0, 8400)]


def test_log_with_requests_well_after_the_first_word_of_a_shutdown_was_not_closed_by_it() -> None:
    """The broker was asked to stop, could not, and was killed."""
    lines = [*requests_from(0, 20_000), life(STOPPING, 8050)]
    assert windows(lines, 20_500) == [("logged", 0, 20_000)]


def test_silence_before_a_shutdown_that_closed_the_log_stays_a_silence() -> None:
    lines = [*requests_from(0, 1000), life(STOPPING, 30_000)]
    assert windows(lines, 31_000) == [("logged", 0, 1000), ("silent", 1000, 30_000), ("missing", 30_000, 31_000)]


def test_log_closed_by_a_shutdown_twice_misses_two_ends() -> None:
    lines = [
        *requests_from(0, 2000), life(STOPPING, 2050), life(STARTING, 4000),
        *requests_from(6000, 8000), life(STOPPING, 8050), life(STARTING, 9900), *requests_from(11_000, 12_000),
    ]  # fmt: skip
    assert [one for one in windows(lines, 12_000) if one[0] == "missing"] == [
        ("missing", 2050, 4000),
        ("missing", 8050, 9900),
    ]
