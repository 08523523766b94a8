"""Parsing on Spark says what parsing in one process says, whatever the tasks."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pipelines.intake.collect import collect
from pipelines.lines.rows import FACT_SCHEMA
from pipelines.recording.recording import discover
from pipelines.spark import held, staging
from pipelines.spark.row_files import RowFile, frame_of
from pipelines.stages import ingest
from pipelines.warehouse.delta_io import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.recording.recording import Recording

# The driver reads them; Spark does, and they are few and so in the driver's memory; or they are too many for it.
EACH_WAY = pytest.mark.parametrize(
    ("few", "most"),
    [(held.DRIVER_FACTS, staging.SMALL_BYTES), (0, staging.SMALL_BYTES), (0, 10)],
    ids=["by the driver", "few", "many"],
)
ORDER = [("source_file", "ascending"), ("source_line", "ascending"), ("fact_id", "ascending")]


@pytest.fixture(scope="module")
def recording(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A small real recording with a plain log, a copy of it, and a damaged file."""
    root = tmp_path_factory.mktemp("recordings") / "small"
    shutil.copytree(recordings / "last-replica", root)
    logs = root / "logs" / "node-1"
    packed = logs / "server.log.gz"
    (logs / "server.log").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.write_bytes(packed.read_bytes()[:-2000])
    (root / "logs" / "node-2" / "notes.txt").write_text("nothing of Kafka's\n")
    return discover(root)


def sorted_rows(table: pa.Table) -> list[dict[str, object]]:
    return table.sort_by(ORDER).to_pylist()


@EACH_WAY
def test_same_facts_as_in_one_process(
    spark: SparkSession, recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, most: int
) -> None:
    for limit in ("SMALL_BYTES", "STREAM_BYTES"):
        monkeypatch.setattr(staging, limit, most)
    expected = collect(recording)
    monkeypatch.setattr(ingest, "RANGE_BYTES", 300_000)  # so that the plain log is read in several ranges
    parsed = ingest.parse(spark, recording, str(tmp_path / "staging"), few=few)
    assert isinstance(parsed.facts, pa.Table) == (most > 10)
    found = staging.as_arrow(parsed.facts, expected.facts.schema.names)
    assert found.schema.names == expected.facts.schema.names
    assert sorted_rows(found.cast(expected.facts.schema)) == sorted_rows(expected.facts)
    lines = staging.as_arrow(parsed.rejected, expected.rejected.schema.names).to_pylist()
    rejected = {(row["source_file"], row["source_line"], row["reason"]) for row in lines}
    assert len(lines) == len(rejected)
    assert rejected == {(r["source_file"], r["source_line"], r["reason"]) for r in expected.rejected.to_pylist()}
    assert {file for file, _, _ in rejected} == {"logs/node-1/server.log.gz", "logs/node-2/notes.txt"}
    whole = next(entry for entry in parsed.inputs if entry["path"] == "logs/node-1/server.log")
    alone = expected.counts["logs/node-1/server.log"]
    assert (whole["lines"], whole["facts"]) == (alone.lines, alone.facts)
    assert (whole["first_ts"], whole["last_ts"]) == (alone.first_ts, alone.last_ts)
    assert sum(sum(loggers.values()) for loggers in whole["no_interest"].values()) == alone.no_interest.total()


def test_inspect_says_what_can_be_answered(spark: SparkSession, recording: Recording) -> None:
    found = ingest.inspect(spark, recording)
    assert found["kafka_versions"] == ["4.1.0"]
    assert [broker["broker"] for broker in found["brokers"]] == [0, 1, 2, 3]
    assert {broker["server log"] for broker in found["brokers"]} == {"TRACE"}
    assert found["rejected_lines"] == 3  # a cut line, the cut stream, the file that is nothing known
    assert any("Acknowledgements" in sentence for sentence in found["answers"])
    assert any("metadata dump states" in sentence for sentence in found["answers"])


@EACH_WAY
def test_a_shared_file_is_told_apart_as_in_one_process(
    spark: SparkSession, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, most: int
) -> None:
    for limit in ("SMALL_BYTES", "STREAM_BYTES"):
        monkeypatch.setattr(staging, limit, most)
    shutil.copytree(recordings / "last-replica", tmp_path / "shared")
    logs = tmp_path / "shared" / "logs"
    texts = [gzip.decompress((logs / f"node-{n}" / "server.log.gz").read_bytes()) for n in (2, 3)]
    (logs / "node-2" / "server.log").write_bytes(b"".join(texts))
    for n in (2, 3):
        (logs / f"node-{n}" / "server.log.gz").unlink()
    shared = discover(tmp_path / "shared")
    expected = collect(shared)
    monkeypatch.setattr(ingest, "RANGE_BYTES", 100_000)
    parsed = ingest.parse(spark, shared, str(tmp_path / "staging"), few=few)
    found = staging.as_arrow(parsed.facts, expected.facts.schema.names)
    assert sorted_rows(found.cast(expected.facts.schema)) == sorted_rows(expected.facts)
    whose = {entry["broker_id"] for entry in parsed.inputs if entry["path"] == "logs/node-2/server.log"}
    assert whose >= {2, 3, None}
    told = ingest.inspect(spark, shared)["answers"]
    assert any(sentence.startswith("logs/node-2/server.log holds lines of brokers 2, 3") for sentence in told)


def test_a_table_takes_over_files_that_workers_wrote(
    spark: SparkSession, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("SMALL_BYTES", "STREAM_BYTES"):
        monkeypatch.setattr(staging, limit, 10)
    recording = discover(recordings / "last-replica", recording_id="r")
    expected = collect(recording).facts
    warehouse = Warehouse(spark, str(tmp_path / "ware house's"))
    parsed = ingest.parse(spark, recording, str(tmp_path / "ware house's" / "_staging"), few=0)
    assert parsed.files
    warehouse.append_facts(parsed.facts, "r", files=parsed.files)
    place = warehouse.place_of("facts")
    assert place is not None
    assert sorted(file.name for file in place.rglob("part-*")) == [file.name for file in parsed.files]
    by_spark = warehouse.read("facts", "r").toArrow()
    for found in (by_spark, warehouse.arrow("facts", "r")):
        assert sorted_rows(found.select(expected.schema.names).cast(expected.schema)) == sorted_rows(expected)

    warehouse.append_facts(parsed.facts, "r", files=parsed.files)  # what stands is not added again
    assert warehouse.read("facts", "r").count() == len(expected)
    assert len([*place.rglob("part-*")]) == len(parsed.files)


def test_files_with_a_fact_that_breaks_a_check_are_not_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    rows = {"recording_id": "r", "source_file": "a.log", "source_line": 1}
    told = [{**rows, "fact_id": "1", "kind": "api"}, {**rows, "fact_id": "2", "kind": "whim"}]
    file = RowFile(tmp_path / "staged")
    file.add(pa.Table.from_pylist(told, FACT_SCHEMA))
    files = [tmp_path / "staged" / name for name in file.close()["name"].to_pylist()]
    warehouse = Warehouse(spark, str(tmp_path / "w"))
    warehouse.append_facts(frame_of(spark, files, "r", FACT_SCHEMA), "r", files=files)
    assert [row.fact_id for row in warehouse.read("facts", "r").collect()] == ["1"]
    assert warehouse.read("set_aside", "r").count() == 1
