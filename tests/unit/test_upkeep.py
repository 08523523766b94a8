"""What upkeep lets go of, and what it never does."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest

from jobs import cli, upkeep_text
from pipelines.stages.thinning import (
    PastRun,
    Retention,
    lines_gone,
    newest,
    results_gone,
    states_gone,
    vacuum_hours,
)
from pipelines.warehouse.stretches import ALWAYS, FILES, DataFile, Stretch, stretches
from replay.tables.resumption import WHOLE, resumed
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOUR = 3_600_000_000
DAY = 24 * HOUR
NOW = 1_000 * DAY
ALL = ("ingest", "replay", "validate", "report")


def run(number: int, at: int, stages: tuple[str, ...] = ALL, status: str = "ok", recording: str = "prod") -> PastRun:
    return PastRun(recording, f"run-{number}", at - HOUR, at, status, stages, "engine", {})


HOURLY = [run(number, NOW - (200 - number) * HOUR) for number in range(200)]


def names(*numbers: int) -> set[str]:
    return {f"run-{number}" for number in numbers}


def test_rejected_lines_go_with_the_age_of_the_run_that_read_them() -> None:
    assert lines_gone(HOURLY, Retention(rejected_lines_days=8), NOW) == names(*range(8))
    assert lines_gone(HOURLY, Retention(rejected_lines_days=0), NOW) == set()


def test_the_newest_validations_keep_their_results() -> None:
    assert results_gone(HOURLY, Retention(expectation_results_runs=150)) == names(*range(50))
    assert results_gone(HOURLY, Retention(expectation_results_runs=0)) == set()
    others = [run(number, NOW + number * HOUR, ("ingest", "report")) for number in range(200, 300)]
    assert results_gone([*HOURLY, *others], Retention(expectation_results_runs=150)) == names(*range(50))


def test_the_results_that_a_run_with_nothing_new_asks_for_stay_however_old_they_are() -> None:
    """It says how the validation of the last replay ended; without its rows it would say that all held."""
    alone = [run(number, NOW + number * HOUR, ("validate",)) for number in range(200, 300)]
    gone = results_gone([*HOURLY, *alone], Retention(expectation_results_runs=5))
    assert gone == names(*range(295)) - {"run-199"}
    failed = run(300, NOW + 300 * HOUR, ALL, "failed")
    assert "run-199" not in results_gone([*HOURLY, *alone, failed], Retention(expectation_results_runs=5))


def boundary(place: int, digest: str, **rest: Any) -> dict[str, Any]:
    return {"topic": "t", "incarnation": 0, "partition": 1, "place": place, "window": place, "digest": digest, **rest}


WINDOWS = [boundary(place, f"d{place}", total="all") for place in (0, 4, 6, 7)]
STATES = [
    boundary(WHOLE, "all", engine="old"),
    boundary(4, "d4", engine="new"),
    boundary(5, "d5", engine="new"),  # its boundary is no longer kept
    boundary(6, "other", engine="new"),  # other events lie before it now
    boundary(7, "d7", engine="old"),
]


@pytest.mark.parametrize(
    ("engines", "left"), [({"new"}, [WHOLE, 4]), ({"new", "old"}, [WHOLE, 4, 7]), (set(), [WHOLE])]
)
def test_of_states_those_stay_that_a_run_can_go_on_from(engines: set[str | None], left: list[int]) -> None:
    gone = states_gone(WINDOWS, STATES, engines)
    kept = [row for row in STATES if row not in gone]
    assert [row["place"] for row in kept] == left


@pytest.mark.parametrize("total", ["all", "more"])
@pytest.mark.parametrize("engine", ["new", "old"])
def test_the_next_run_goes_on_from_where_it_would_have_gone_on(total: str, engine: str) -> None:
    windows = [{**row, "total": total} for row in WINDOWS]
    gone = states_gone(windows, STATES, {engine})
    kept = [row for row in STATES if row not in gone]
    after, before = resumed(windows, kept, engine), resumed(windows, STATES, engine)
    assert (after.since, after.gone) == (before.since, before.gone)
    assert not after.given_up  # what a run would have deleted is gone


def test_files_are_kept_for_as_long_as_readers_of_any_recording_need_them() -> None:
    assert vacuum_hours(HOURLY, Retention(), NOW) == 7 * 24
    idle = run(0, NOW - 40 * DAY, recording="idle")
    assert vacuum_hours([*HOURLY, idle], Retention(), NOW) == 40 * 24 + 2  # since it started, and an hour
    failed = run(1, NOW - 10 * DAY, status="failed", recording="idle")
    assert vacuum_hours([*HOURLY, idle, failed], Retention(), NOW) == 40 * 24 + 2
    tended = run(2, NOW, ("maintain",), recording="idle")
    assert vacuum_hours([*HOURLY, idle, failed, tended], Retention(), NOW) == 7 * 24
    assert newest([idle, failed, tended], "replay") is idle


FULL = 128


def conditions(files: list[DataFile], until: int) -> list[tuple[int, int]]:
    return [(one.since_us, one.until_us) for one in stretches(files, until, FULL)]


def test_small_files_that_follow_each_other_are_a_stretch() -> None:
    hourly = [DataFile(10, 1, hour, hour) for hour in range(20)]
    assert conditions(hourly, 15) == [(0, 15)]
    assert conditions([*hourly[:5], DataFile(100, 1, 5, 5), *hourly[6:]], 15) == [(0, 5), (6, 15)]
    assert conditions([hourly[0], DataFile(100, 1, 1, 1), hourly[2]], 15) == []


def test_what_was_written_anew_is_left_alone_but_for_a_small_end() -> None:
    large = [DataFile(100, 1, 0, 0), DataFile(100, 1, 0, 0), DataFile(100, 1, 7, 7)]
    assert conditions(large, 100) == []
    end, *hourly = [DataFile(10, 1, hour, hour) for hour in range(14, 20)]
    assert conditions([*large, end], 100) == []
    assert conditions([*large, end, *hourly], 100) == [(14, 100)]


def test_a_stretch_has_no_more_files_than_a_query_for_one_moment_may_read() -> None:
    hourly = [DataFile(60, 1, hour, hour) for hour in range(100)]
    found = stretches(hourly, 100, FULL)
    assert [one.until_us for one in found[:-1]] == [one.since_us for one in found[1:]]
    assert all(one.bytes <= FILES * FULL + 60 for one in found)
    assert sum(one.bytes for one in found) == 6000


def test_rows_without_a_time_stand_before_all_others() -> None:
    assert Stretch(ALWAYS, 7, 1).condition("ts") == "(ts < TIMESTAMP '1970-01-01 00:00:00.000007Z' OR ts IS NULL)"
    assert "NULL" not in Stretch(3, 7, 1).condition("ts")


def settings(tmp_path: Path, text: str) -> Mapping[str, Any]:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    return cli.settings(argparse.Namespace(settings=path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("facts_days = 90", "no setting 'retention.facts_days': .* all other rows stay, since later runs make theirs"),
        ("vacuum_days = 0", "whole number, 1 or more"),
        ("rejected_lines_days = -1", "0 or more"),
        ("expectation_results_runs = true", "should be a whole number"),
    ],
)
def test_a_retention_that_would_make_a_later_run_wrong_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        settings(tmp_path, f"[retention]\n{text}\n")


def test_retention_is_a_section(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="retention is 7, and should be a section"):
        settings(tmp_path, "retention = 7")


def test_the_shipped_settings_are_what_holds_without_any(tmp_path: Path) -> None:
    assert Retention.of(cli.settings(argparse.Namespace(settings=cli.SETTINGS_FILE))) == Retention()
    assert Retention.of(settings(tmp_path, "[retention]\nvacuum_days = 30")) == Retention(vacuum_days=30)


def test_people_are_told_what_became_of_each_recording_and_table() -> None:
    from pipelines.stages.tending import Tended  # noqa: PLC0415 - it needs Spark's packages
    from pipelines.stages.upkeep import Holding, Outcome, Upkeep  # noqa: PLC0415

    done = Outcome("prod", Tended({"rejected_lines": 1200}, ["facts"]))
    left = Outcome("lab", skipped="run it first")
    before, after = Holding(10, 168, 2_000_000, 9_000_000), Holding(10, 2, 1_000_000, 9_000_000)
    upkeep = Upkeep("/lake", [done, left], 168, ["dead"], {"facts": before}, {"facts": after})
    told = "\n".join(upkeep_text.lines(upkeep, {}))
    assert "prod: let go of 1,200 rows of rejected_lines; put together small files of facts" in told
    assert "lab: left as it is: run it first" in told
    assert "168 -> 2" in told
    assert "2.0 -> 1.0" in told
    upkeep.after = None
    told = "\n".join(upkeep_text.lines(upkeep, {}))
    assert "prod: would let go of 1,200 rows" in told
    assert "would delete what dead runs had staged in 1 folders" in told
