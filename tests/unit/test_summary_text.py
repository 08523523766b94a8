"""The summary that a run prints: the answer first, on one screen, and nothing uncertain left out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from test_report_text import NEARLY, PLACE, SAID, START, findings

from pipelines.stages.summary_text import LINES, terminal
from schemas.incidents import DATA_LOSS_INCIDENTS

LOST = datetime(2024, 5, 1, 3, 0, 5, tzinfo=UTC)


def incident(number: int = 0, **some: Any) -> dict[str, Any]:
    row: dict[str, Any] = {field.name: None for field in DATA_LOSS_INCIDENTS.arrow_schema}
    counts = dict.fromkeys((name for name in row if name.startswith("acked_")), 0)
    told = {"mechanism": "acks_one_leader_failure", "severity": "S2", "evidence": "derived", "records": 1234}
    place = {**PLACE, "topic": f"topic-{number}", "first_offset": 7, "last_offset": 1240}
    return {**row, **counts, **place, **told, "lost_ts": LOST, "incident_id": f"{number:08x}{0:016x}", **some}


def lost(incidents: list[dict[str, Any]], **some: Any) -> dict[str, Any]:
    headline = "1,234 acknowledged records lost in 1 partition"
    told = {"verdict": "lost", "headline": headline, "acknowledged_possible": 0, "incidents": incidents}
    return findings(**{**told, **some})


def test_an_incident_is_one_line() -> None:
    lines = terminal(lost([incident(acked_one=1200, acked_possible=3)]), width=80).splitlines()
    assert lines[0] == "small: 1,234 acknowledged records lost in 1 partition"
    assert "1 incident on 2024-05-01" in lines
    (line,) = (one for one in lines if one.startswith("S2 "))
    told = ["S2", "00000000", "topic-0-0", "1,200+", "1,234", "acks_one_leader_failure", "03:00:05", "derived"]
    assert line.split() == told
    assert "+: more cannot be ruled out" in lines
    assert "S2: only records acknowledged by the leader alone (acks=1)" in lines


def test_what_is_unknown_is_no_number() -> None:
    row = incident(records=None, acked_all=None, acked_one=None, lost_ts=None, evidence="bounded")
    text = terminal(lost([row], incidents_with_unknown_acknowledgements=1))
    (line,) = (one for one in text.splitlines() if one.startswith("S2 "))
    assert line.split()[3:] == ["unknown", "unknown", "acks_one_leader_failure", "unknown", "bounded"]
    assert "acknowledgements: unknown for 1 incident" in text
    assert "evidence: 1 incident known only as a lower bound" in text


def test_the_day_is_said_where_there_are_several() -> None:
    text = terminal(lost([incident(), incident(1, lost_ts=LOST.replace(day=3))]))
    assert "2024-05-01 03:00:05.000" in text
    assert "2024-05-03 03:00:05.000" in text


EVERYTHING: dict[str, Any] = {
    "attribution": ["logs/node-1 is the log of broker 2, as its lines say. " * 9],
    "cannot_tell": ["no request log of a broker that led was read, so what was acknowledged is unknown"],
    "incidents_with_unknown_acknowledgements": 3,
    "withdrawn": [{**PLACE, "first_reported": START, "before": SAID, "now": None}] * 12,
    "not_covered": ["broker 1: no lines from 03:00 to 04:00, though it was at work"] * 40,
    "expectations": {
        "checked": 300,
        "failed": [
            {
                "table": "hw_timeline", "expectation": f"e{n}", "meaning": "A broker's HW is never beyond its LEO.",
                "severity": "error", "rows_checked": 9, "rows_failed": 1,
            }
            for n in range(30)
        ],
    },
    "conformance": [
        {
            "check": "leader_hw", "compared": 200, "matched": 199,
            "first": {"topic": "t", "partition": 0, "first_mismatch_seq": 4, "note": "6 for 7"},
        }
    ],
    "rejected_lines": {"lines": 7},
    "divergences": [{**PLACE}],
    "consumer_effects": [{"client_id": f"c{n}", "effect": "read_then_lost"} for n in range(99)],
    "nearly_lost": [NEARLY] * 9,
    "at_risk": [{"state": "leaderless", "partitions": 2, "still_open": 2}],
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 120])
def test_however_much_there_is_to_say_it_fits_a_screen(width: int) -> None:
    many = [incident(n, severity=f"S{n % 4}") for n in range(500)]
    text = terminal(lost(many, **EVERYTHING), width=width)
    lines = text.splitlines()
    assert len(lines) <= LINES + 6
    for words in (
        "500 incidents", "more: show incident lists all of them", "withdrawn or revised (12 in the report)",
        "not covered by logs", "30 of 300 do not hold", "leader_hw: 199 of 200 equal", "rejected: 7 lines",
        "acknowledgements: unknown for 3 incidents", "no request log of a broker that led", "and 96 more",
        "show incident 00000000", "show record topic-0-0@7", "show partition topic-0-0",
    ):  # fmt: skip
        assert words.lower() in " ".join(text.split()).lower(), words
    commands = [line for line in lines if line.startswith("    ./spark-submit.sh show ")]
    assert len(commands) == 3
    assert all(len(line) <= width for line in lines if line not in commands)


def test_one_incident_on_a_usual_terminal_leaves_room() -> None:
    assert len(terminal(lost([incident()]), width=80).splitlines()) <= 24


def test_where_all_is_known_nothing_is_uncertain() -> None:
    good = [{"check": "leader_hw", "compared": 200, "matched": 200, "first": None}]
    text = terminal(findings(conformance=good, expectations={"checked": 300, "failed": []}))
    assert "What is uncertain\n  nothing that the tables know of" in text
    assert "show partition TOPIC-PARTITION --warehouse w --recording-id small" in text


def test_what_was_not_checked_is_uncertain() -> None:
    text = terminal(findings())
    assert "expectations: not validated yet" in text
    assert "computed against reported: nothing to compare with" in text


def test_names_are_escaped_and_commands_quoted() -> None:
    text = terminal(lost([incident(topic="a;rm\x1b[2J\u202eb")]), colour=False)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "show record 'a;rm\\x1b[2J\\x202eb-0@7'" in text


def test_colour_is_there_only_where_it_is_asked_for() -> None:
    assert "\x1b" not in terminal(lost([incident()]))
    assert "\x1b[1;31m" in terminal(lost([incident()]), colour=True)
