"""What a failed rule says, and how the validations of a recording went from run to run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipelines.expectations.data_docs import Shown, self_contained
from pipelines.expectations.found_rows import in_words, lines_asked, places_of, with_lines
from pipelines.expectations.history import history_lines, quality_history
from pipelines.page.drawing import svg_of
from pipelines.page.trust_pictures import trend
from pipelines.stages.report_text import _expectation_section

START = datetime(2024, 5, 1, 3, 0, tzinfo=UTC)


def run(number: int, status: str = "ok") -> dict[str, Any]:
    began = START + timedelta(hours=number)
    return {"run_id": f"run{number}", "started": began, "finished": began, "status": status}


def history_of(
    rows: list[dict[str, Any]], runs: list[dict[str, Any]], run_id: str | None = None
) -> list[dict[str, Any]]:
    return quality_history(pa.Table.from_pylist(rows), runs, run_id)


def results(number: int, **held: bool) -> list[dict[str, Any]]:
    return [
        {
            "run_id": f"run{number}",
            "table": "facts, files",
            "expectation": name,
            "severity": "error",
            "success": success,
        }
        for name, success in held.items()
    ]


def test_the_trend_tells_what_newly_failed_and_what_was_mended() -> None:
    rows = [
        *results(1, a=True, b=False),
        *results(2, a=False, b=True),
        *results(3, a=False, c=True),
        *results(4, a=True),
    ]
    history = history_of(rows, [run(3), run(1), run(2)], "run4")
    assert [row["run_id"] for row in history] == ["run1", "run2", "run3", "run4"]
    assert (history[0]["newly_failed"], history[0]["mended"]) == (None, None)
    assert (history[1]["newly_failed"], history[1]["mended"]) == (["facts.a"], ["facts.b"])
    assert (history[2]["newly_failed"], history[2]["mended"]) == ([], [])  # c is new, and b was not evaluated
    assert (history[1]["checked"], history[1]["held"], history[1]["failed_errors"]) == (2, 1, 1)
    assert history[3]["started_ts"] is None
    assert history_lines(history) == [
        "this run: 1 of 1 hold; mended: facts.a",
        "2024-05-01 06:00:00 UTC: 1 of 2 hold, 1 error, 0 warnings",
        "2024-05-01 05:00:00 UTC: 1 of 2 hold, 1 error, 0 warnings; newly failed: facts.a; mended: facts.b",
        "2024-05-01 04:00:00 UTC: 1 of 2 hold, 1 error, 0 warnings",
    ]


def test_runs_that_failed_or_did_not_validate_are_no_part_of_the_trend() -> None:
    history = history_of([*results(1, a=True), *results(2, a=False)], [run(1), run(2, "failed"), run(3)])
    assert [row["run_id"] for row in history] == ["run1"]
    assert history_lines(history) == []


def test_of_many_runs_the_last_are_shown() -> None:
    rows = [row for number in range(9) for row in results(number, a=True)]
    lines = history_lines(history_of(rows, [run(number) for number in range(9)]))
    assert (len(lines), lines[-1]) == (6, "and 4 earlier in expectation_results")


def test_the_trend_is_drawn_newest_run_first_and_has_the_same_as_a_table() -> None:
    history = history_of([*results(1, a=True, b=False), *results(2, a=False, b=True)], [run(1)], "run2")
    picture = trend(history)
    drawn = {(bar["who"], bar["state"]): bar["count"] for bar in picture.spec["data"]["values"]}
    assert [row[0] for row in picture.rows] == ["this run", "2024-05-01 04:00:00 (run1)"]
    assert sum(drawn.values()) == 4
    assert drawn["this run", "hold"] == 1
    assert picture.rows[0][1] == "1"
    assert picture.rows[0][-2:] == ("facts.a", "facts.b")
    assert "this run" in svg_of(picture)


PLACE = {"topic": "orders", "incarnation": 0, "partition": 2, "seq": 7, "source_file": None, "source_line": None}


def test_rows_are_named_by_place_and_line() -> None:
    rows = [
        {"topic": "orders", "incarnation": 0, "partition": 2, "seq": 7, "hw": 4},
        {"broker_id": 1, "place": {**PLACE, "source_file": "a.log", "source_line": 3}},
        {"table": "hw_timeline", "row": '{"topic": "orders", "incarnation": 1, "partition": 2, "seq": 9}'},
        {"source_file": "b.log", "source_line": 4},
        {"check": "role_hw", "row": "no JSON"},
    ]
    places = places_of(rows)
    assert len(places) == 4
    asked = lines_asked(places, "events") or pytest.fail("nothing was asked")
    assert asked.count("seq = ") == 2
    told = with_lines(places, [{**PLACE, "source_file": "server.log", "source_line": 812}])
    assert [in_words(place) for place in told] == [
        "orders-2 seq 7 [server.log:812]",
        "orders-2 seq 7 [a.log:3]",
        "orders-2 (incarnation 1) seq 9",
        "b.log:4",
    ]


def test_a_hostile_topic_stays_text_in_the_query_for_lines() -> None:
    asked = lines_asked([{**PLACE, "topic": "x' OR '1'='1"}], "events")
    assert asked is not None
    assert r"topic = 'x\' OR \'1\'=\'1'" in asked


def test_the_report_says_where_and_what_it_means() -> None:
    row = {"severity": "error", "table": "hw_timeline", "meaning": "It holds.", "expectation": "x", "rows_failed": 2}
    row |= {"rows_checked": 9, "rows_allowed": 1, "places": [PLACE], "answer": "It may be wrong."}
    title, (line,) = _expectation_section({"checked": 3, "failed": [row]})
    assert title == "Expectations: 1 of 3 do not hold"
    assert line == "error: hw_timeline: It holds. [x] 2 of 9 rows (1 may); first at orders-2 seq 7. It may be wrong."
    before = {**row, "rows_allowed": None, "places": None, "answer": None}  # of a run before there was such a column
    assert _expectation_section({"checked": 3, "failed": [before]})[1] == [
        "error: hw_timeline: It holds. [x] 2 of 9 rows"
    ]


def test_pages_say_what_they_are_about_and_escape_it() -> None:
    shown = Shown("<b>x</b> y", "run", START)
    page = self_contained("<html><head></head><body class='a'>text</body></html>", shown.header)
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt; y" in page
    assert "validated 2024-05-01 03:00:00 UTC" in page
    assert 'href="../../reports/%3Cb%3Ex%3C/b%3E%20y.html"' in page
