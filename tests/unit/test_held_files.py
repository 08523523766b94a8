"""What the driver reads itself: by other processes, where there are very many files, as by its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pipelines.intake.pieces import COUNTS, FACT, Work
from pipelines.lines.rows import FACT_SCHEMA
from pipelines.recording.recording import discover
from pipelines.stages import held_files
from pipelines.stages.held_files import FILE_BYTES, SHARE_BYTES, held, shares_of

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.recording.recording import Recording
    from pipelines.spark.held import Held

MANY = 350_000  # facts for which there is room
COUNTS_SCHEMA = pa.schema([pa.field("counts", pa.string())])


@pytest.fixture
def recording(recordings: Path) -> Recording:
    return discover(str(recordings / "last-replica"), recording_id="r")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_files, "PROCESSES", 2)
    monkeypatch.setattr(held_files, "ALONE_BYTES", 0)


def works_of(recording: Recording) -> list[Work]:
    return [Work(source) for source in recording.sources]


def told(found: Held | None) -> tuple[pa.Table, list[str]]:
    assert found is not None
    return found.rows(FACT, FACT_SCHEMA), found.rows(COUNTS, COUNTS_SCHEMA)["counts"].to_pylist()


def test_several_processes_read_as_one(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    facts, counts = told(held(recording, works_of(recording), MANY))
    request.getfixturevalue("shared")
    monkeypatch.setattr(held_files, "SHARE_BYTES", 1_000_000)  # several shares
    again, counted = told(held(recording, works_of(recording), MANY))
    assert len(facts) > 10_000
    assert again.equals(facts)
    assert counted == counts


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_says_too_much_is_left_to_spark(
    recording: Recording, request: pytest.FixtureRequest, *, is_shared: bool
) -> None:
    if is_shared:
        request.getfixturevalue("shared")
    assert held(recording, works_of(recording), 10) is None
    assert held(recording, works_of(recording), MANY) is not None


def test_a_file_that_is_gone_is_told_as_by_one(
    recording: Recording, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    gone = [Work(replace(recording.sources[0], path=str(tmp_path / "gone.log")))]
    alone = told(held(recording, gone, MANY))
    request.getfixturevalue("shared")
    assert told(held(recording, gone, MANY)) == alone


def test_shares_follow_the_works_and_are_alike(recording: Recording) -> None:
    source = replace(recording.sources[0], name="server.log", size=0)
    works = [Work(replace(source, name=f"server.log.{n}", size=n * 1_000_000)) for n in range(100)]
    shares = shares_of(works)
    assert [one for share in shares for one in share] == works
    costs = [sum(one.source.size + FILE_BYTES for one in share) for share in shares]
    assert all(SHARE_BYTES <= cost < 4 * SHARE_BYTES for cost in costs[:-1])
    assert shares_of([]) == []
