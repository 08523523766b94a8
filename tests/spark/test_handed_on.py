"""An order by Spark's workers reads what is new, and what was handed on; the tables are those of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hourly_case import arrive
from made_lines import START_MS, TOPIC
from made_recording import MadeCluster
from made_shape import Shape
from test_incremental import rows, run

from pipelines.stages import handing_on, replay
from pipelines.stages.carried import from_bytes
from pipelines.stages.renewal import Renewal
from pipelines.warehouse import delta_io, delta_reads
from replay.evidence.tenures import micros
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from pipelines.stages.carried import Carried
    from pipelines.stages.run import Run

# Up to when there are lines at each run. After eight minutes a leader dies; the brokers' logs begin to grow with that.
MINUTES = (5, 9, 12, None)
STAGES = ("ingest", "replay")


def handed_on(done: Run) -> Carried | None:
    """What a run has handed on."""
    found = done.warehouse.arrow("order_states", "r")["state"].to_pylist()
    return from_bytes(found[0]) if found else None


def state(recording: Path, hw: int) -> None:
    """Let a broker have written its checkpoint, which states no time."""
    stated = recording / "segments" / "node-1" / "replication-offset-checkpoint"
    stated.parent.mkdir(parents=True, exist_ok=True)
    stated.write_text("0\n3\n" + "".join(f"{TOPIC} {partition} {hw}\n" for partition in range(3)))


def test_workers_go_on_from_what_was_handed_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_on, "WHOLE_ROWS", 0)
    monkeypatch.setattr(delta_reads, "LARGE_BYTES", 0)
    monkeypatch.setattr(handing_on, "ROWS", 1_500)
    # In each minute a partition has so many events that a state is worth while.
    shape = Shape(events=110_000, partitions=3, elections=1, flaps=0, tick_ms=80)
    MadeCluster(shape, tmp_path / "made").write()
    arrived, handed = tmp_path / "arrived", []
    for minute in MINUTES:
        arrive(tmp_path / "made", arrived, None if minute is None else START_MS + minute * 60_000)
        for recording in (tmp_path / "made", arrived):
            state(recording, hw=1_000 * len(handed))
        with monkeypatch.context() as at_last:
            if len(handed) > 1:  # it works on what is new and was handed on alone,
                at_last.setattr(Renewal, "facts_here", None)
                at_last.setattr(replay, "replay", None)  # and replays what it has just ordered;
                at_last.setattr(delta_io, "merge", None)  # its facts do not go through the JVM
            steps = run(spark, arrived, tmp_path / "steps", STAGES, driver_facts=0)
        handed.append(handed_on(steps))
    last, before = handed[-1], handed[-2]
    assert last
    assert before
    assert last.horizon > before.horizon
    assert sum(left.facts for left in last.left.values()) > sum(left.facts for left in before.left.values()) > 0
    for left in last.left.values():
        assert left.mark is not None
        assert micros(left.mark["window"]) == left.since
    one = run(spark, tmp_path / "made", tmp_path / "one", STAGES)
    for table in TABLES:
        if table not in {"runs", "expectation_results", "order_states", "files"}:
            assert rows(steps, table) == rows(one, table), table


def test_news_are_what_is_new_of_logs_that_grow(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what these had before: by the news it is decided whether the driver works on them itself."""
    noted, look = [], Renewal.look

    def noting(self: Renewal) -> object:
        noted.append(self.news.facts)
        return look(self)

    monkeypatch.setattr(Renewal, "look", noting)
    MadeCluster(Shape(events=9_000, partitions=3, elections=0, flaps=0, tick_ms=80), tmp_path / "made").write()
    stand = []
    for second in (40, 80):
        arrive(tmp_path / "made", tmp_path / "arrived", START_MS + second * 1_000)
        steps = run(spark, tmp_path / "arrived", tmp_path / "steps", STAGES)
        stand.append(steps.warehouse.row_counts("r")["facts"])
    again = noted[1] - (stand[1] - stand[0])
    assert noted[0] == stand[0]
    assert 0 <= again < 100  # the last moment of each log
