"""Brokers' clocks compared by the turns of leadership that they tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.intake.clocks import Turns, clocks_off, offset_between, sentences, together, turns_of
from pipelines.intake.inputs import inputs_of
from pipelines.parse.files.file_parser import parse_file
from pipelines.recording.recording import discover

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000
HOUR = 3600 * SECOND


def clock(ahead: int = 0, late: int = 0) -> Turns:
    return {f"a-{k}@{k}": k * 20 * SECOND + ahead + late * k for k in range(10)}


def test_a_clock_in_another_zone_is_told_by_its_turns() -> None:
    assert offset_between(clock(ahead=5 * HOUR), clock()) == 5 * HOUR
    assert clocks_off([(1, clock()), (2, clock(ahead=-5 * HOUR, late=SECOND)), (3, clock())]) == {
        2: -5 * HOUR + 4_500_000
    }


def test_seconds_of_skew_are_not_reported() -> None:
    assert clocks_off([(1, clock()), (2, clock(ahead=20 * SECOND)), (3, clock())]) == {}


def test_of_two_clocks_that_differ_nobody_knows_which_is_off() -> None:
    assert clocks_off([(1, clock()), (2, clock(ahead=HOUR))]) == {}
    assert clocks_off([(1, clock()), (2, clock(ahead=HOUR)), (None, clock())]) == {2: HOUR}


def test_turns_told_again_at_a_restart_are_no_other_clock() -> None:
    elected = {f"a-{k}@{k}": k * 60 * SECOND for k in range(10)}
    again = dict.fromkeys(elected, HOUR)
    assert offset_between(again, elected) is None
    at_once = {f"a-{k}@0": 5 * SECOND for k in range(10)}
    assert offset_between(dict.fromkeys(at_once, HOUR), at_once) is None


def test_very_many_turns_are_the_same_ones_in_every_file() -> None:
    one, other = ({f"a-{k}@0": k for k in range(start, 5000)} for start in (0, 10))
    assert len(together(one)) == 500
    assert len(together(one).keys() & together(other).keys()) > 490


def test_real_brokers_agree_until_one_is_put_into_another_zone(recordings: Path) -> None:
    for zones, expected in (({}, {}), ({2: "Asia/Kolkata"}, {2: -5.5})):
        recording = discover(recordings / "last-replica", time_zones=zones)
        told = [
            (source.broker_id, turns_of(batch.facts))
            for source in recording.sources
            if source.name.startswith("logs/")
            for batch in parse_file(recording, source)
            if batch.facts is not None
        ]
        off = clocks_off(told)
        assert {broker: round(offset / HOUR, 2) for broker, offset in off.items()} == expected


def test_the_warning_says_what_to_do() -> None:
    entries = [
        {
            "path": f"{broker}",
            "broker_id": broker,
            "first_line": 1,
            "turns": clock(ahead=(broker == 2) * 19_800 * SECOND),
        }
        for broker in (1, 2, 3)
    ]
    inputs = inputs_of(entries)
    assert [entry["clock_off_us"] for entry in inputs] == [None, 19_800 * SECOND, None]
    (sentence,) = sentences(inputs)
    assert "Broker 2's clock is 5 h 30 min ahead" in sentence
    assert "--time-zone 2=ZONE" in sentence
