"""Whether anybody but a run has written to a table: what the log of its commits says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.warehouse.commits import is_left_alone, mark_of

if TYPE_CHECKING:
    from pathlib import Path

MINE, OTHERS, OF_ANOTHER = mark_of("r", "mine"), mark_of("r", "before"), mark_of("another", "x")


def said(place: Path, commits: list[tuple[str, str | None]]) -> bool:
    log = place / "_delta_log"
    log.mkdir()
    for version, (operation, mark) in enumerate(commits, start=1):
        info: dict[str, Any] = {"operation": operation, "userMetadata": mark}
        (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}))
    nobody: Any = None  # Spark is not asked about a table on this machine
    return is_left_alone(nobody, str(place), place, "r", len(commits), 1, "mine")


@pytest.mark.parametrize(
    ("commits", "is_alone"),
    [
        ([("WRITE", OTHERS)], True),  # which was looked at before
        ([("WRITE", OTHERS), ("WRITE", MINE), ("WRITE", OF_ANOTHER), ("ADD CONSTRAINT", OTHERS)], True),
        ([("WRITE", OTHERS), ("WRITE", OTHERS), ("WRITE", MINE)], False),
        ([("WRITE", OTHERS), ("DELETE", None)], False),  # by hand: nobody knows of what
    ],
)
def test_only_a_commit_that_is_known_to_be_of_this_run_or_of_another_recording_leaves_rows_alone(
    tmp_path: Path, commits: list[tuple[str, str | None]], *, is_alone: bool
) -> None:
    assert said(tmp_path, commits) is is_alone


def test_a_log_that_was_cleaned_up_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    nobody: Any = None
    assert not is_left_alone(nobody, str(tmp_path), tmp_path, "r", 5, 1, "mine")
