"""The whole job on a real recording: what it finds, and that the tables do not depend on how it was run."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from whole_run import DERIVED, NAME, rows, run, without
from without_spark import events_of, tables_of

from pipelines.recording.recording import discover
from pipelines.spark import staging
from pipelines.stages import incident_page
from pipelines.warehouse import delta_io, delta_reads
from schemas.errors import InputError
from schemas.tables import REPLAY_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run

pytestmark = pytest.mark.spark


def shuffled(source: Path, target: Path) -> Path:
    """The same lines: every log cut in three files whose names do not tell their order, a tenth of them twice."""
    shutil.copytree(source, target)
    chance = random.Random(7)  # noqa: S311 - a test's choice, not a secret
    for log in sorted((target / "logs").glob("node-*/*.gz")):
        lines = gzip.decompress(log.read_bytes()).decode().splitlines(keepends=True)
        parts = [lines[0::1][: len(lines) // 3], lines[len(lines) // 3 : len(lines) // 2], lines[len(lines) // 2 :]]
        parts[1] = [
            line for line in parts[1] for _ in range(2 if line.startswith("[") and chance.random() < 0.1 else 1)
        ]
        chance.shuffle(parts)
        log.unlink()
        for k, part in enumerate(parts):
            (log.parent / f"{log.name[:-3]}.{k}").write_text("".join(part))
    return target


def test_a_run_tells_what_its_functions_tell_without_a_warehouse(first: Run, recordings: Path) -> None:
    told: dict[str, list[pa.Table]] = defaultdict(list)
    for events in events_of(recordings / NAME):
        for name, found in tables_of(events).items():
            told[name].append(found)
    for table in REPLAY_TABLES:
        columns = [column.name for column in table.columns]
        ours = first.warehouse.read(table.name, NAME).select(*columns).toArrow().cast(table.arrow_schema)
        theirs = pa.concat_tables([one.select(columns).cast(table.arrow_schema) for one in told[table.name]])
        assert sorted(map(str, ours.to_pylist())) == sorted(map(str, theirs.to_pylist())), table.name


def test_what_the_clients_lost_is_what_is_reported(first: Run, recordings: Path) -> None:
    truth: dict[str, Any] = json.loads(gzip.decompress((recordings / f"{NAME}.truth" / "brokers.json.gz").read_bytes()))
    lost = truth["partitions"]["ledger-0"]["lost_slot"]
    found = first.warehouse.read("data_loss_incidents", NAME).collect()
    assert len(found) == 1
    assert found[0].acked_all == sum(span["acks"]["all"] for span in lost)
    assert (found[0].first_offset, found[0].last_offset) == (lost[0]["from"], lost[-1]["to"])
    assert found[0].mechanism == "last_replica_standing"


def test_a_good_recording_breaks_no_expectation(first: Run) -> None:
    assert first.validation is not None
    assert first.validation.errors == 0
    assert Path(first.validation.docs_path.removeprefix("file://")).exists()


def test_a_page_that_cannot_be_made_is_said_and_ends_no_run(
    spark: SparkSession, first: Run, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        message = "<no> picture"
        raise ValueError(message)

    page = Path(first.page_path.removeprefix("file://")) if first.page_path else pytest.fail("it made none")
    before = page.read_text()
    monkeypatch.setattr(incident_page, "contents_of", fails)
    again = run(spark, recordings / NAME, Path(first.warehouse.path), ("report",))
    assert again.report
    assert any("ValueError('<no> picture')" in remark for remark in again.remarks)
    assert "ValueError(&#x27;&lt;no&gt; picture&#x27;)" in page.read_text()
    page.write_text(before)


def test_the_run_says_which_table_versions_belong_together(first: Run) -> None:
    row = first.warehouse.read("runs", NAME).where(F.col("run_id") == first.run_id).collect()[0]
    assert row.status == "ok"
    assert set(json.loads(row.table_versions)) >= {"facts", *DERIVED}


def test_the_run_says_which_release_each_broker_was_from_when_on(first: Run) -> None:
    row = first.warehouse.read("runs", NAME).where(F.col("run_id") == first.run_id).collect()[0]
    told = json.loads(row.kafka_versions)
    brokers = [one for one in told if "version" in one]
    assert {one["broker"] for one in brokers} >= {1, 2, 3}
    assert all(one["version"] and one["from"] for one in brokers)
    levels = [one["metadata.version"] for one in told if one not in brokers]
    assert len(levels) == 1
    assert levels[0].endswith("(Kafka 4.1)")


def test_tables_are_the_same_whatever_the_files_order_and_the_shuffle_and_whether_spark_makes_them(
    spark: SparkSession, first: Run, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "STREAM_BYTES", 10)  # nothing is small: Spark and its workers do it
    monkeypatch.setattr(delta_reads, "FRAME_BYTES", 10)
    for module in (staging, delta_io, delta_reads):
        monkeypatch.setattr(module, "SMALL_BYTES", 10)
    root, by_spark = shuffled(recordings / NAME, tmp_path / NAME), {"shuffle_partitions": 7, "driver_facts": 0}
    again = run(spark, root, tmp_path / "wh", ("ingest", "replay"), **by_spark)
    for table in DERIVED:
        assert without(PLACES, rows(first.warehouse, table)) == without(PLACES, rows(again.warehouse, table)), table


# What the lines say is the same; they stand elsewhere now.
PLACES = ("source_file", "source_line", "chain_sources")


def test_a_folder_without_logs_is_a_clear_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="logs"):
        discover(str(tmp_path))
