"""The replay stage: turns `replication_events` into one tagged stream with the rows of every replay table.

Each partition is replayed once, batch by batch, in seq order; the largest start first (`spread`). The rows of all
tables leave in one frame: `output` names the table, `rows` holds thousands of its rows as one Arrow stream. So they
pass through Spark's staging as bytes (`packed`). Events that the same run has ordered are read from there as well
(`replay_streams`), and few events are replayed by the driver itself (`replay_here`).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from pipelines.spark.packed import STREAM, packed
from pipelines.spark.row_files import streamed
from pipelines.spark.spark_schemas import spark_ddl
from pipelines.spark.spread import spread
from pipelines.spark.workers import settle
from pipelines.stages.checkpoints import BEFORE_EVENTS, GIVEN_PLACE, GIVEN_STATE, Checkpoints
from pipelines.stages.event_streams import states_in
from pipelines.warehouse.changes import Changes
from replay.arrays.columns import taken
from replay.arrays.memory import give_back
from replay.tables.partitions import KEY, replayed
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from replay.tables.resumption import Place

# Columns of the events that no rule reads: names of lines and requests, and what only the order needed.
UNREAD: Final = ("event_id", "ts_error_us", "implied", "run_gap_us", "recovering")
ROWS_A_BATCH: Final = 20_000  # rows returned to Spark at once, about: small partitions are combined
BYTES_A_BATCH: Final = 32 << 20  # of states
# After so many batches memory is given back. The next rows ask for it again: after each batch, that would cost a third
# of a long replay's CPU. What is never given back comes to 80 MB in a worker.
BATCHES_BETWEEN: Final = 2


def replay(
    spark: SparkSession, events: DataFrame, settings: Mapping[str, Any], states: DataFrame | None = None
) -> DataFrame:
    """Return the tagged stream for the events of any number of partitions.

    `states`: rows of `replay_checkpoints` to go on from; of their partitions, the events are those from their windows
    on.
    """
    del spark, settings
    rows = read_of(events)
    if states is not None:
        given = (F.col("place").alias(GIVEN_PLACE), F.col("state").alias(GIVEN_STATE))
        begun = states.select(*KEY, "window", *given, F.lit(BEFORE_EVENTS).cast("bigint").alias("seq"))
        rows = rows.unionByName(begun, allowMissingColumns=True)
    ordered = spread(rows, KEY).sortWithinPartitions(*KEY, "seq")
    # Not a grouped function: it would bring each partition in Arrow batches of its own, and most may be small.
    return ordered.mapInArrow(replay_partitions, spark_ddl(STREAM))


def replay_streams(
    spark: SparkSession, files: Sequence[Path], since: Mapping[Place, int] | None = None, states: Path | None = None
) -> DataFrame:
    """Return the same for events that stand in files on this machine as streams, as `order` stages them.

    Each partition's events are in one file, in seq order. So no row has to go through the JVM, or to another task.
    `since`: which of them are replayed (`Changes`); None: all. `states`: a file of those to go on from.
    """
    largest_first = sorted(files, key=lambda file: (-file.stat().st_size, file))
    tasks = spark.sparkContext.parallelize([(str(file),) for file in largest_first], max(len(files), 1))
    read = pa.schema([field for field in REPLICATION_EVENTS.arrow_schema if field.name not in UNREAD])
    changes = None if since is None else Changes(since)

    def replayed_of(told: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        named = (Path(name) for batch in told for name in batch.column(0).to_pylist())
        events = streamed(named, read)
        some = events if changes is None else (batch.filter(changes.are_replaced(batch)) for batch in events)
        return replay_partitions((batch for batch in some if len(batch)), () if states is None else states_in(states))

    return spark.createDataFrame(tasks, "file string").mapInArrow(replayed_of, spark_ddl(STREAM))


def read_of(events: DataFrame) -> DataFrame:
    """Return the events without columns that only readers of the table need: the engine's input."""
    return events.drop(*UNREAD)


def replay_partitions(
    batches: Iterable[pa.RecordBatch], states: Iterable[Mapping[str, Any]] = ()
) -> Iterable[pa.RecordBatch]:
    """Replay whole partitions, one after the other, each in seq order; rows of several share a batch.

    `states`: those to go on from, where they are not among the batches.
    """
    keeper = Checkpoints()
    keeper.give(states)
    events = (batch for told in batches for batch in keeper.take(told).combine_chunks().to_batches())
    for kept in _rows_of(events, keeper):
        yield from packed(kept)
    settle("replay")


def replay_here(events: pa.Table, states: Iterable[Mapping[str, Any]] = ()) -> Iterator[tuple[str, pa.Table]]:
    """Yield each table's rows, of the events of any number of partitions, in this process; arguments as of `replay`."""
    keeper = Checkpoints()
    keeper.give(states)
    read = events.drop_columns([*UNREAD])
    in_turn = pc.sort_indices(read, sort_keys=[(name, "ascending") for name in (*KEY, "seq")])
    ordered = taken(read, in_turn.to_numpy())
    for kept in _rows_of(ordered.to_batches(max_chunksize=ROWS_A_BATCH), keeper):
        for name in sorted(kept):
            yield name, pa.concat_tables(kept[name])


def _rows_of(events: Iterable[pa.RecordBatch], keeper: Checkpoints) -> Iterator[dict[str, list[pa.Table]]]:
    """Yield each table's rows of some thousand events, and the states that were made among them."""
    kept: defaultdict[str, list[pa.Table]] = defaultdict(list)
    count, batches = 0, 0
    for name, rows in replayed(events, keeper):
        kept[name].append(rows)
        count += len(rows)
        if count >= ROWS_A_BATCH or keeper.size >= BYTES_A_BATCH:
            keeper.hand_out(kept)
            yield kept
            kept = defaultdict(list)
            count, batches = 0, batches + 1
            if batches % BATCHES_BETWEEN == 0:
                give_back()
    keeper.end()
    keeper.hand_out(kept)
    yield kept
