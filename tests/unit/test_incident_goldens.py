"""Incidents from log lines to the report's text: tests/testdata/incidents, a file for each mechanism of loss.

A file has the lines of a real recording that its incident rests on, as brokers wrote them, each under the name of its
file (`==> logs/node-1/server.log`), and at its end what the report says. `--rewrite-golden` writes that end anew.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from without_spark import events_of, tables_of

from pipelines.stages.report_text import incident_text
from schemas.incidents import MECHANISMS

HERE = Path(__file__).parent
GOLDENS = sorted((HERE.parent / "testdata" / "incidents").glob("*.txt"))
HEADING = "==> "
TOLD = f"{HEADING}what Tidemark says"
# Mechanisms that no recorded cluster has shown. Each is pinned by a history whose facts are made by hand: they were
# never lines of a log, and nothing here writes them as lines.
WITHOUT_LINES = {
    "fast_failover_divergence": (
        "needs brokers before 2.0, of which there are no recordings",
        "test_follower_counted_with_other_records_of_an_epoch_unknown_to_its_leader",
    ),
    "stale_fetch_accepted": (
        "needs a protocol before 2.1 and a fetch that crosses two elections",
        "test_follower_counted_with_other_records_of_an_epoch_unknown_to_its_leader",
    ),
    "stale_isr_rejoin": (
        "needs a member of the ISR that loses its unflushed log and starts before anyone hears that it was gone",
        "test_member_of_the_isr_that_started_again_with_less_is_a_stale_isr_rejoin",
    ),
    "eligible_leader_regressed": (
        "needs an eligible leader replica that loses its unflushed log while the partition has no leader",
        "test_eligible_replica_that_lacks_what_was_committed_is_an_eligible_leader_regressed",
    ),
    "out_of_range_reset": (
        "needs a protocol before 2.7 and a leader whose log is shorter than what was promised",
        "test_records_dropped_for_an_out_of_range_answer_are_an_out_of_range_reset",
    ),
    "other": (
        "is what no rule explains: a recording of it would be a rule that is missing",
        "test_loss_that_no_rule_explains_is_other",
    ),
}


def unpacked(golden: str, folder: Path) -> Path:
    """The lines of a golden as the files of a recording."""
    for part in golden.split(f"\n{HEADING}")[1:]:
        name, _, lines = part.partition("\n")
        if f"{HEADING}{name}" != TOLD:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(lines.rstrip("\n") + "\n", encoding="utf-8")
    return folder


def told_of(folder: Path) -> str:
    """What the report says of each incident."""
    incidents = [row for events in events_of(folder) for row in tables_of(events)["data_loss_incidents"].to_pylist()]
    return "\n\n".join("\n".join(incident_text(incident)) for incident in incidents) + "\n"


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_log_lines_come_to_the_text_that_stands_below_them(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    golden = path.read_text(encoding="utf-8")
    lines, _, written = golden.partition(f"{TOLD}\n")
    told = told_of(unpacked(golden, tmp_path / "recording"))
    if request.config.getoption("--rewrite-golden"):
        path.write_text(f"{lines}{TOLD}\n{told}", encoding="utf-8")
        return
    assert told == written


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_golden_tells_of_one_incident_of_the_mechanism_in_its_name(path: Path) -> None:
    _, _, written = path.read_text(encoding="utf-8").partition(f"{TOLD}\n")
    assert [line[-len(path.stem) - 2 :] for line in written.splitlines() if line.startswith("  how: ")] == [
        f"[{path.stem}]"
    ]


def test_every_mechanism_has_a_golden_or_a_reason_to_have_none() -> None:
    assert sorted([*(path.stem for path in GOLDENS), *WITHOUT_LINES]) == sorted(MECHANISMS)


def test_mechanism_without_a_golden_has_a_history() -> None:
    tree = ast.parse((HERE / "test_mechanisms.py").read_text(encoding="utf-8"))
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {test for _, test in WITHOUT_LINES.values()} <= tests
