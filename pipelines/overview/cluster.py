"""What is found by looking at all facts of a recording: what they cover, and what holds for the whole cluster.

It is a few hundred rows, whatever the recording's size. Few facts are summed up in one piece, here. Of more, workers
sum up pieces, which they read from files if these are on this machine, and the summaries are put together here
(`replay.evidence.summary`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from pipelines.overview.coverage import Coverage, coverage_told
from pipelines.spark.buckets import ROWS_AT_ONCE, gathered, streams_by
from pipelines.spark.file_pieces import pieces_of, rows_in
from pipelines.spark.packed import STREAM, packed, rows_of_stream, stream_of
from pipelines.spark.spark_schemas import spark_ddl
from replay.arrays.columns import completed_to
from replay.evidence.client_gaps import GAP_SCHEMA
from replay.evidence.client_requests import bucket_of_clients, shared_connections
from replay.evidence.cluster import WHOLE, ClusterFacts, collected, collected_of
from replay.evidence.heard_in_short import stand_alone
from replay.evidence.request_runs import gaps_in_pieces
from replay.evidence.standstills import CONNECTION_COLUMNS, CONNECTION_SCHEMA, connections_in, connections_together
from replay.evidence.steady import NeedsAllError
from replay.evidence.summary import PARTS, SUMMED, Summary, put_together, summary_of
from schemas.facts import FACTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from pipelines.spark.staging import Rows
    from replay.evidence.in_short import InShort

    Tables = Iterator[pa.Table]


REQUESTS: Final = "requests"  # the part of a summary that is many rows
IN_BUCKETS: Final = pa.schema([pa.field("bucket", pa.int32()), *STREAM])


class Overview(NamedTuple):
    """What is found by looking at all facts of a recording."""

    coverage: Coverage
    cluster: ClusterFacts


def overview_of(facts: Rows, files: Sequence[Path] = ()) -> Overview:
    """Look at all facts of one recording. `files`: the same facts as Parquet, if it is on this machine."""
    if isinstance(facts, pa.Table):
        told = summary_of(facts)
        return Overview(coverage_told(told), collected_of(facts, told))
    told, gaps = looked_at(facts, files)
    one = facts.select("recording_id").head()
    recording_id, whole = one.recording_id if one else "", _whole(facts, files)
    cluster = collected(recording_id, told, whole, partial(_connections, facts, files))
    return Overview(coverage_told(told, gaps), cluster)


def overview_on(recording_id: str, before: InShort, whole: pa.Table, facts: Iterable[pa.Table]) -> Overview:
    """Look at the facts since a moment, together with what those before it tell. NeedsAllError: that does not suffice.

    `whole`: the facts about no single partition, of any time. `facts`: in tables, which may be gone through twice.
    """
    told = before.with_later(facts)
    gaps = before.gaps_in(told)
    if gaps is None:
        raise NeedsAllError
    coverage = coverage_told(told, gaps)
    if not stand_alone(told.heard, coverage.missing.edges):
        raise NeedsAllError
    return Overview(coverage, collected(recording_id, told, whole, partial(before.connections, facts)))


def coverage_by_workers(facts: DataFrame) -> Coverage:
    """Return what facts cover, of which there are those columns that are `SUMMED`."""
    return coverage_told(*looked_at(facts))


def looked_at(facts: DataFrame, files: Sequence[Path] = ()) -> tuple[Summary, pa.Table]:
    """Let workers sum up facts in pieces; return the summary of all, without requests, and clients' gaps in these.

    Requests are many, and a client's are looked at by themselves. So they stay with the workers, client by client.
    """
    spark = facts.sparkSession
    buckets = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)

    def summed(tables: Tables) -> Iterator[pa.RecordBatch]:
        rows = put_together(map(summary_of, tables))._asdict()
        requests = rows.pop(REQUESTS)
        told: list[tuple[int | None, str, bytes]] = [(None, name, stream_of(one)) for name, one in rows.items()]
        told += [(k, REQUESTS, one) for k, one in streams_by(bucket_of_clients(requests, buckets), requests)]
        yield pa.RecordBatch.from_pylist([dict(zip(IN_BUCKETS.names, row, strict=True)) for row in told], IN_BUCKETS)

    sums = _by_workers(facts, files, SUMMED, summed, IN_BUCKETS).persist()
    try:
        found: dict[str, list[pa.Table]] = {name: [part.schema.empty_table()] for name, part in PARTS.items()}
        few = sums.where("bucket IS NULL").toArrow()
        for name, rows in zip(few["output"].to_pylist(), few["rows"], strict=True):
            found[name].append(completed_to(rows_of_stream(rows), PARTS[name].schema))
        told = put_together([Summary(**{name: pa.concat_tables(tables) for name, tables in found.items()})])
        shared = shared_connections(told.users)

        def gaps(mine: pa.Table) -> pa.Table:
            def pieces() -> Iterator[pa.Table]:
                return (completed_to(rows_of_stream(rows), PARTS[REQUESTS].schema) for rows in mine["rows"])

            return gaps_in_pieces(pieces, shared)

        requests = sums.where("bucket IS NOT NULL")
        return told, requests.groupBy("bucket").applyInArrow(gaps, spark_ddl(GAP_SCHEMA)).toArrow()
    finally:
        sums.unpersist()


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

    found = _by_workers(facts, files, CONNECTION_COLUMNS, told, CONNECTION_SCHEMA)
    return connections_together(found.toArrow())


def _by_workers(
    facts: DataFrame,
    files: Sequence[Path],
    columns: Sequence[str],
    do: Callable[[Tables], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """Let workers do something with these columns of all facts; return what they find."""
    given = pa.schema([FACTS.arrow_schema.field(name) for name in columns])

    def done(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (
            rows_in(batches, given)
            if files
            else gathered((pa.Table.from_batches([one]).cast(given) for one in batches), ROWS_AT_ONCE)
        )
        return do(tables)

    sent = pieces_of(facts.sparkSession, files) if files else facts.select(*columns)
    return sent.mapInArrow(done, spark_ddl(schema))
