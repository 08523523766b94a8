"""What is found by looking at all facts of a recording: what they cover, and what holds for the whole cluster.

It is a few hundred rows, whatever the recording's size. Few facts are summed up in one piece, here. Of more, workers
sum up pieces, which they read from files if these are on this machine, and the summaries are put together here
(`replay.evidence.summary`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pipelines.overview.coverage import Coverage, coverage_told
from pipelines.spark.buckets import ROWS_AT_ONCE, gathered
from pipelines.spark.file_pieces import pieces_of, rows_in
from pipelines.spark.packed import STREAM, packed, rows_of_stream
from pipelines.spark.spark_schemas import spark_ddl
from replay.arrays.columns import completed_to
from replay.evidence.cluster import WHOLE, ClusterFacts, collected, collected_of
from replay.evidence.standstills import CONNECTION_COLUMNS, CONNECTION_SCHEMA, connections_in, connections_together
from replay.evidence.summary import PARTS, SUMMED, Summary, put_together, summary_of
from schemas.facts import FACTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from pipelines.spark.staging import Rows

    Tables = Iterator[pa.Table]


class Overview(NamedTuple):
    """What is found by looking at all facts of a recording."""

    coverage: Coverage
    cluster: ClusterFacts


def overview_of(facts: Rows, files: Sequence[Path] = ()) -> Overview:
    """Look at all facts of one recording. `files`: the same facts as Parquet, if it is on this machine."""
    if isinstance(facts, pa.Table):
        told = summary_of(facts)
        return Overview(coverage_told(told), collected_of(facts, told))
    told = summary_by_workers(facts, files)
    one = facts.select("recording_id").head()
    cluster = collected(
        one.recording_id if one else "", told, _whole(facts, files), partial(_connections, facts, files)
    )
    return Overview(coverage_told(told), cluster)


def summary_by_workers(facts: DataFrame, files: Sequence[Path] = ()) -> Summary:
    """Let workers sum up facts in pieces, and put the summaries together."""

    def summed(tables: Tables) -> Iterator[pa.RecordBatch]:
        one = put_together(map(summary_of, tables))
        yield from packed({name: [rows] for name, rows in one._asdict().items()})

    found: dict[str, list[pa.Table]] = {name: [part.schema.empty_table()] for name, part in PARTS.items()}
    told = _by_workers(facts, files, SUMMED, summed, STREAM)
    for name, rows in zip(told["output"].to_pylist(), told["rows"], strict=True):
        found[name].append(completed_to(rows_of_stream(rows), PARTS[name].schema))
    return put_together([Summary(**{name: pa.concat_tables(tables) for name, tables in found.items()})])


def _whole(facts: DataFrame, files: Sequence[Path]) -> pa.Table:
    """Return the facts about no single partition, with all their columns."""
    if not files:
        return facts.where(WHOLE.sql).toArrow()
    given = [field for field in FACTS.arrow_schema if field.name != "recording_id"]

    def chosen(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in rows_in(pieces, pa.schema(given), WHOLE):
            yield from packed({"whole": [rows]})

    told = pieces_of(facts.sparkSession, files).mapInArrow(chosen, spark_ddl(STREAM)).toArrow()
    some = [completed_to(rows_of_stream(rows), FACTS.arrow_schema) for rows in told["rows"]]
    return pa.concat_tables([FACTS.arrow_schema.empty_table(), *some])


def _connections(facts: DataFrame, files: Sequence[Path], silences: pa.Table) -> pa.Table:
    """Return what `connections_in` does of all facts."""

    def told(tables: Tables) -> Iterator[pa.RecordBatch]:
        for rows in tables:
            yield from connections_in(rows, silences).to_batches()

    return connections_together(_by_workers(facts, files, CONNECTION_COLUMNS, told, CONNECTION_SCHEMA))


def _by_workers(
    facts: DataFrame,
    files: Sequence[Path],
    columns: Sequence[str],
    do: Callable[[Tables], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> pa.Table:
    """Let workers do something with these columns of all facts; return all that they found."""
    given = pa.schema([FACTS.arrow_schema.field(name) for name in columns])

    def done(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (
            rows_in(batches, given)
            if files
            else gathered((pa.Table.from_batches([one]).cast(given) for one in batches), ROWS_AT_ONCE)
        )
        return do(tables)

    sent = pieces_of(facts.sparkSession, files) if files else facts.select(*columns)
    return sent.mapInArrow(done, spark_ddl(schema)).toArrow()
