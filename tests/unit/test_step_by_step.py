"""Logs that arrive bit by bit state what they state all at once, and each of their lines is read once."""

from __future__ import annotations

import gzip
import os
import random
from typing import TYPE_CHECKING

import pytest
from arriving_logs import arrivals_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lines_in_layouts import rendered, role
from step_by_step import Taken
from without_spark import events_of_facts, tables_of

from pipelines.intake.pieces import rest_of
from pipelines.recording.recording import discover

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from pipelines.recording.recording import Recording

LINES = 250
STAMPS = [f"2026-11-21 03:00:{second:02},{second:03}" for second in range(60)]


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def found(root: Path, **said: object) -> Recording:
    return discover(root, recording_id="r", **said)  # type: ignore[arg-type]


def all_at_once(root: Path) -> Taken:
    one = Taken()
    one.take(found(root))
    return one


@pytest.mark.parametrize("name", ["last-replica", "unclean-election"])
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_what_arrives_step_by_step_is_what_one_run_reads(
    name: str, seed: int, recordings: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("arrivals") / "r"
    arrivals = arrivals_of(recordings / name, root, random.Random(seed), LINES)  # noqa: S311 - a test's choice
    taken = Taken()
    for step in range(1, arrivals.steps + 1):
        arrivals.lay_out(step)
        taken.take(found(root))
    one = all_at_once(root)
    assert rows(taken.facts) == rows(one.facts)
    assert rows(taken.rejected) == rows(one.rejected)
    assert [(entry.path, entry.length, entry.digest) for entry in taken.entries if entry.state != "gone"] == [
        (entry.path, entry.length, entry.digest) for entry in one.entries
    ]


def test_the_tables_of_hours_are_the_tables_of_a_day(recordings: Path, tmp_path: Path) -> None:
    arrivals = arrivals_of(recordings / "last-replica", tmp_path / "r", random.Random(5), 600)  # noqa: S311
    taken = Taken()
    for step in range(1, arrivals.steps + 1):
        arrivals.lay_out(step)
        taken.take(found(tmp_path / "r"))
    one = all_at_once(tmp_path / "r")
    recording = found(tmp_path / "r")
    told = [
        [
            {name: rows(table) for name, table in tables_of(events).items()}
            for events in events_of_facts(facts, recording)
        ]
        for facts in (taken.facts, one.facts)
    ]
    assert len(told[0]) > 1
    assert told[0] == told[1]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The place of a broker's log in a recording."""
    path = tmp_path / "r" / "logs" / "node-1" / "server.log"
    path.parent.mkdir(parents=True)
    return path


def lines(first: int, last: int) -> str:
    return "".join(f"{rendered(role(second, STAMPS[second]), 'apache')}\n" for second in range(first, last))


def offsets(taken: Taken) -> list[int]:
    return sorted(offset for offset in taken.facts["offset"].to_pylist() if offset is not None)


def test_only_the_last_moment_and_what_follows_is_read_of_a_log_that_grew(log: Path) -> None:
    taken = Taken()
    log.write_text(lines(1, 40))
    taken.take(found(log.parents[2]))
    assert taken.lines == 39
    log.write_text(lines(1, 42))
    taken.take(found(log.parents[2]))
    assert taken.lines == 3
    assert offsets(taken) == list(range(1, 42))


def test_of_a_log_that_grew_only_the_rest_is_looked_through(log: Path) -> None:
    taken = Taken()
    log.write_text(lines(1, 40))
    taken.take(found(log.parents[2]))
    begun = taken.entries[0].begun
    assert begun is not None
    before = log.stat().st_size
    log.write_text(lines(1, 42))
    (source,) = found(log.parents[2]).sources
    assert rest_of(source, None) == log.stat().st_size
    assert rest_of(source, begun) == log.stat().st_size - begun.place
    assert log.stat().st_size - before < rest_of(source, begun) < before
    log.write_text(lines(50, 55))  # rolled: another file
    (source,) = found(log.parents[2]).sources
    assert rest_of(source, begun) == log.stat().st_size


def test_a_torn_line_states_nothing_for_good_until_its_rest_is_there(log: Path) -> None:
    taken, whole = Taken(), lines(1, 12)
    log.write_text(whole[:-30])
    taken.take(found(log.parents[2]))
    assert len(taken.rejected) == 1
    assert [entry.state for entry in taken.entries] == ["partly"]
    log.rename(log.with_name("server.log.2026-11-21-03"))
    log.with_name("server.log.2026-11-21-03").write_text(whole)
    log.write_text(lines(12, 20))
    taken.take(found(log.parents[2]))
    assert len(taken.rejected) == 0
    assert offsets(taken) == list(range(1, 20))
    assert set(taken.facts["source_file"].to_pylist()) == {
        "logs/node-1/server.log", "logs/node-1/server.log.2026-11-21-03",
    }  # fmt: skip


def test_a_line_that_stays_torn_is_rejected_once(log: Path) -> None:
    taken = Taken()
    log.write_text(lines(1, 12)[:-30])
    for name in ("server.log.1", "server.log.2"):
        taken.take(found(log.parents[2]))
        next(log.parent.iterdir()).rename(log.with_name(name))
    taken.take(found(log.parents[2]))
    assert [row["source_file"] for row in taken.rejected.to_pylist()] == ["logs/node-1/server.log.2"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_content_is_known_under_any_name(log: Path, suffix: str) -> None:
    taken, data = Taken(), lines(1, 30).encode()
    log.write_bytes(data)
    taken.take(found(log.parents[2]))
    log.unlink()
    log.with_name(f"rolled{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    taken.take(found(log.parents[2]))
    assert taken.lines == 0
    assert set(taken.facts["source_file"].to_pylist()) == {f"logs/node-1/rolled{suffix}"}


def test_other_content_of_the_same_size_is_read_if_the_store_tells_that_it_was_written(log: Path) -> None:
    taken = Taken()
    log.write_text(lines(10, 30))
    os.utime(log, (1000, 1000))
    taken.take(found(log.parents[2]))
    log.write_text(lines(30, 50))
    os.utime(log, (2000, 2000))
    taken.take(found(log.parents[2]))
    assert offsets(taken) == list(range(10, 50))
    gone = {name for name in taken.facts["source_file"].to_pylist() if "@" in name}
    assert len(gone) == 1  # what the lost content stated stays, and is told apart from what has its name now


def test_nothing_is_looked_into_if_no_file_was_written_to(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Taken()
    log.write_text(lines(1, 30))
    os.utime(log, (1000, 1000))
    taken.take(found(log.parents[2]))
    monkeypatch.setattr("step_by_step.seen", lambda *_: pytest.fail("a file was opened"))
    taken.take(found(log.parents[2]))
    assert taken.plan is not None
    assert taken.plan.is_nothing_new


def test_a_file_of_which_something_else_is_said_is_read_again(log: Path) -> None:
    taken = Taken()
    log.write_text(lines(1, 30))
    taken.take(found(log.parents[2]))
    first = taken.facts["ts"].to_pylist()
    taken.take(found(log.parents[2], time_zones={1: "America/New_York"}))
    assert taken.lines == 29
    assert len(taken.facts) == len(first)
    assert not set(first) & set(taken.facts["ts"].to_pylist())


def test_full_reads_everything_again_and_finds_the_same(log: Path) -> None:
    taken = Taken()
    log.write_text(lines(1, 30))
    taken.take(found(log.parents[2]))
    before = rows(taken.facts)
    taken.take(found(log.parents[2]), full=True)
    assert taken.lines == 29
    assert rows(taken.facts) == before


def test_a_later_checkpoint_of_a_name_holds(log: Path) -> None:
    taken = Taken()
    stated = log.parents[2] / "segments" / "node-1" / "replication-offset-checkpoint"
    stated.parent.mkdir(parents=True)
    for hw in (100, 200):
        stated.write_text(f"0\n1\norders 0 {hw}\n")
        taken.take(found(log.parents[2]))
    assert taken.facts["hw"].to_pylist() == [200]


def test_files_of_one_content_whose_names_tell_different_things_are_read_each(log: Path) -> None:
    taken = Taken()
    folder = log.parents[2] / "segments" / "node-1"
    folder.mkdir(parents=True)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (folder / name).write_text("0\n1\norders 0 100\n")
        taken.take(found(log.parents[2]))
    assert sorted(taken.facts["name"].to_pylist()) == [
        "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "remarks", ["", "log4j:WARN No appenders could be found.\nSLF4J: Defaulting to no-operation\n"]
)
def test_a_dump_that_is_made_again_is_one_dump_whatever_its_tool_remarks_behind_it(
    tmp_path: Path, remarks: str
) -> None:
    dump, taken = tmp_path / "cluster-metadata.dump.txt.gz", Taken()
    for last in (1, 4, 9):
        batches = [
            f"baseOffset: {k} lastOffset: {k} count: 1 partitionLeaderEpoch: 1 CreateTime: {1_795_233_690_000 + k}\n"
            f"| offset: {k} CreateTime: {1_795_233_690_000 + k} payload: "
            f'{{"type":"TOPIC_RECORD","version":0,"data":{{"name":"t{k}","topicId":"{k:022d}"}}}}\n'
            for k in range(last + 1)
        ]
        dump.write_bytes(gzip.compress("".join(["Log starting offset: 0\n", *batches, remarks]).encode()))
        taken.take(found(tmp_path))
        assert [entry.path for entry in taken.entries] == [dump.name]
        assert sum(name is not None for name in taken.facts["topic"].to_pylist()) == last + 1
    assert rows(taken.facts) == rows(all_at_once(tmp_path).facts)
