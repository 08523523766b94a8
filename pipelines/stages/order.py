"""The order stage: turns all facts of a recording into `replication_events`.

It makes two grouped passes. First fetch sessions are rebuilt per broker and session, because an incremental fetch is
one of every partition in its session; then each partition's facts are ordered on their own. What holds for the whole
cluster (registrations, configuration, topic ids, standstills) is small, and every partition gets all of it. Few facts
are ordered by the driver itself, by the same functions (`order_here`).
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Iterator  # noqa: TC003 - Spark reads the annotations
from functools import partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.overview.cluster import overview_of
from pipelines.spark.beside import PROCESSES, Beside
from pipelines.spark.buckets import ROWS_AT_ONCE, bucket_count, bucket_of, divided, gathered, streams_by
from pipelines.spark.file_pieces import pieces_of, rows_in
from pipelines.spark.packed import STREAM, packed, rows_of_stream, stream_of
from pipelines.spark.spark_schemas import spark_ddl
from pipelines.spark.staging import as_frame
from pipelines.spark.workers import settle
from pipelines.stages.carried import is_before
from pipelines.stages.partition_order import order_tables, ordered
from pipelines.stages.spilled_fetches import SpilledFetches
from pipelines.stages.standing_windows import StandingWindows
from pipelines.warehouse.later import MINUTE_US
from pipelines.warehouse.superseded import engine_version
from replay.arrays.columns import numbers, numbers_of, texts
from replay.evidence.choices import FETCHES, Choice, any_mask, any_of, any_sql
from replay.evidence.cluster import cluster_told
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.rows import METADATA_TOPIC, used_columns
from replay.evidence.session_lines import EntangledError
from replay.evidence.sessions import sessions_rebuilt
from replay.evidence.steady import OF_THE_END, NeedsAllError
from replay.order.windows import HOUR_US
from schemas.facts import FACTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, GroupedData, SparkSession

    from pipelines.overview.cluster import Overview
    from pipelines.stages.carried import Carried, Carrying
    from pipelines.stages.standing_windows import Of
    from replay.arrays.ints import Ints
    from replay.evidence.steady import LeftOut

# Columns of the facts that neither sessions nor the order read.
UNREAD = (
    "recording_id", "api_key", "producer_epoch", "base_sequence", "is_control", "is_transactional",
)  # fmt: skip
FEW_FACTS: Final = 100_000  # up to so many the driver orders them itself, before another process has loaded the rules
EVENTS_AT_ONCE: Final = 5_000  # events returned to Spark at once, at least: small partitions are combined
READ_SCHEMA: Final = pa.schema([field for field in FACTS.arrow_schema if field.name not in UNREAD])
ORDERED = (  # facts that the order or its checks need; neither reads `api` and `leo_update`
    FETCHES,
    Choice(kinds=("hw_update",), names=("leader",), filled=("partition",)),
    Choice(others=("fetch", "hw_update", "api", "leo_update"), filled=("partition",)),
)


def order(  # noqa: PLR0913, PLR0917 - the facts, in the forms in which they may be there, and what is known
    spark: SparkSession,
    facts: DataFrame,
    settings: Mapping[str, Any],
    overview: Overview | None = None,
    standing: pa.Table | None = None,
    files: Sequence[Path] = (),
    carried: Carried | None = None,
) -> DataFrame:
    """Return as one stream (`packed`) the outputs of `order_tables` for one recording's facts.

    `overview`: of all facts; None: it is made here, of those that are given. `standing`: the rows of
    `event_windows` of the events that stand in the warehouse, so that only what differs is made; None: everything is.
    `files`: the same facts as Parquet, if it is on this machine: workers read it themselves, so that facts do not
    become rows of the JVM's first. `carried`: what the order before has handed on; then those of the facts are ordered
    that are behind it, and the stream may say that these do not suffice (`NEEDS_ALL`).
    """
    seen = overview_of(facts, files) if overview is None else overview
    cluster = cluster_told(seen.cluster, settings, seen.coverage.missing)
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    buckets = bucket_count(cluster.facts if carried is None else cluster.facts - carried.fewer, tasks)
    tasks = min(tasks, buckets)
    known = {} if standing is None else dict(divided(bucket_of(standing, buckets), standing))
    since_us = None if carried is None else carried.horizon
    late = f"ts >= timestamp_micros({since_us}) OR ({OF_THE_END.sql})"
    behind = facts if since_us is None else facts.where(late)
    sent = pieces_of(spark, files, since_us) if files else behind.where(any_sql(ORDERED)).drop(*UNREAD)

    def parting(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        read = rows_in(batches, READ_SCHEMA) if files else (pa.Table.from_batches([batch]) for batch in batches)
        some = read if since_us is None else map(partial(behind_of, us=since_us), read)
        return by_session(map(partial(in_sessions, count=buckets), some), cluster.names, buckets)

    parted = sent.mapInArrow(parting, spark_ddl(BY_SESSION))
    if carried is not None:
        parted = parted.unionByName(as_frame(spark, streams_of(carried, buckets)))
    rebuilt = by_number(parted, "session", tasks).applyInArrow(rebuilding(buckets), spark_ddl(BY_PARTITION))
    left = {} if carried is None else carried.left
    return by_number(rebuilt, "bucket", tasks).applyInArrow(
        ordering(ToldOfCluster(cluster), known, length_us(settings), engine_version(), left), spark_ddl(STREAM)
    )


def behind_of(facts: pa.Table, us: int) -> pa.Table:
    """Return the facts from a moment on."""
    return facts.filter(pc.invert(is_before(facts, us)))


def streams_of(carried: Carried, buckets: int) -> pa.Table:
    """Return what an order has handed on, as `by_session` hands facts on."""
    rows: list[tuple[int, int, bytes]] = []
    for broker, states in sorted(carried.sessions.items()):
        number = number_of_session(broker, numbers(states["state_session"])) % buckets
        rows += [(k, STATES, stream) for k, stream in streams_by(number, states)]
    rows += [(k, k, stream) for k, stream in streams_by(bucket_of(carried.rows, buckets), carried.rows)]
    return pa.Table.from_pylist([dict(zip(BY_SESSION.names, row, strict=True)) for row in rows], BY_SESSION)


def order_here(
    facts: pa.Table,
    settings: Mapping[str, Any],
    overview: Overview | None = None,
    standing: pa.Table | None = None,
    carrying: Carrying | None = None,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the outputs of `order_tables` for one recording's facts, without Spark; arguments as of `order`.

    `carrying`: what the order before has handed on, and this one hands on; the facts are those since then.
    """
    seen = overview_of(facts) if overview is None else overview
    cluster = cluster_told(seen.cluster, settings, seen.coverage.missing)
    told = ToldOfCluster(cluster)
    if carrying is not None:
        carrying.begin(facts, cluster.names)
    is_shared = len(facts) > FEW_FACTS and standing is None and PROCESSES > 1
    waiting = in_buckets(facts, told, settings, standing, carrying, PROCESSES if is_shared else 1)
    del facts
    if not is_shared:
        for tables, windows in waiting:
            yield from order_tables(tables, told, windows)
        return
    with Beside(PROCESSES) as others:
        for _ in range(PROCESSES):
            others(import_module, ordered.__module__)  # while sessions are rebuilt here
        asked = deque(others(ordered, [*map(stream_of, tables)], told, windows) for tables, windows in waiting)
        while asked:
            yield from asked.popleft().result()


def in_buckets(
    facts: pa.Table,
    told: ToldOfCluster,
    settings: Mapping[str, Any],
    standing: pa.Table | None,
    carrying: Carrying | None = None,
    processes: int = 1,
) -> Iterator[tuple[list[pa.Table], StandingWindows]]:
    """Yield what `order_tables` takes of each bucket, with its fetches' sessions rebuilt; arguments as above.

    `processes`: among how many the buckets are shared; each is to get as many.
    """
    found = bucket_count(len(facts) + (0 if carrying is None else carrying.given_before), 1)
    buckets = -(-found // processes) * processes
    given = [facts]
    del facts
    parted: defaultdict[int, list[pa.Table]] = defaultdict(list)
    are_early: defaultdict[int, list[bool]] = defaultdict(list)
    for is_early, rows in in_parts(given, told.cluster.names, carrying):
        for bucket, mine in divided(bucket_of(rows, buckets), rows):
            parted[bucket].append(used_columns(mine))
            are_early[bucket].append(is_early)
    known = {} if standing is None else dict(divided(bucket_of(standing, buckets), standing))
    for bucket in sorted(parted):
        windows = StandingWindows.of(known.get(bucket), length_us(settings), engine_version())
        if carrying is not None:
            windows.left = carrying.left_before
            carrying.note(parted[bucket], are_early[bucket], windows)
        yield parted.pop(bucket), windows


def with_sessions(given: list[pa.Table], names: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield the facts that the order needs, of one recording, with its fetches' sessions rebuilt.

    The same as `by_session` and `rebuilding` make of them, but nothing is packed into streams, since nothing has to go
    through a shuffle. `given`: the facts, which are taken out of the list.
    """
    yield from (rows for _, rows in in_parts(given, names))


def in_parts(
    given: list[pa.Table], names: Mapping[str, str], carrying: Carrying | None = None
) -> Iterator[tuple[bool, pa.Table]]:
    """Yield the same, and whether it is of the first part, if the facts are in two."""
    facts = with_topics(given.pop(), names)
    is_ordered, is_fetch = (any_mask(choices, facts).to_numpy() for choices in (ORDERED, (FETCHES,)))
    told = {*used_columns(facts).column_names, "topic", "ts"}.difference(UNREAD)
    facts = facts.select([name for name in facts.column_names if name in told]).combine_chunks()
    others, fetches = np.flatnonzero(is_ordered & ~is_fetch), np.flatnonzero(is_fetch)
    if len(others):
        rest = known_partitions(facts.take(others))
        yield from [(False, rest)] if carrying is None else carrying.others(rest)
    by_broker: dict[int, Callable[[], pa.Table]] = {}
    broker = numbers_of(facts, "broker_id")[fetches]
    for one in np.unique(broker).tolist():
        by_broker[one] = partial(_by_id, facts, fetches[broker == one])
    if carrying is None:
        for fetched in by_broker.values():
            yield from ((False, known_partitions(rows)) for rows in sessions_rebuilt(fetched()))
        return
    yield from carrying.handed_on()
    yield from ((is_early, known_partitions(rows)) for is_early, rows in carrying.fetches(by_broker, facts[:0]))


def _by_id(facts: pa.Table, some: Ints) -> pa.Table:
    """Return some of the facts, by their ids."""
    return facts.take(some[pc.sort_indices(facts["fact_id"].take(some)).to_numpy()])


def length_us(settings: Mapping[str, Any]) -> int:
    """Return the length of a window."""
    minutes = settings.get("window_minutes")
    return HOUR_US if minutes is None else int(minutes) * MINUTE_US


def by_number(frame: DataFrame, name: str, tasks: int) -> GroupedData:
    """Group rows by a number that starts at 0; numbers are dealt to the tasks in turn."""
    return frame.repartitionById(tasks, name).groupBy(name)


BY_PARTITION = pa.schema([pa.field("bucket", pa.int32()), pa.field("rows", pa.binary())])
BY_SESSION = pa.schema([pa.field("session", pa.int32()), *BY_PARTITION])  # bucket null: fetches to be rebuilt
STATES: Final = -1  # as bucket: what sessions go on from
NEEDS_ALL: Final = "needs_all"  # says that not all facts were given that are needed
LACKING: Final = pa.schema([pa.field("topic", pa.string()), pa.field("partition", pa.int64())])  # null: a session


def with_topics(facts: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Fill in missing topic names by topic id; where no name is known for the id, the id itself is used."""
    ids = pa.array(names.keys(), pa.string())
    named = pa.array(names.values(), pa.string()).take(pc.index_in(facts["topic_id"], ids))
    topics = pc.coalesce(facts["topic"], named, facts["topic_id"])
    return facts.set_column(facts.schema.get_field_index("topic"), "topic", topics)


def session_of_fetch(facts: pa.Table) -> Ints:
    """Return a number for each fetch that is that of its broker and session; without a session it is its connection's.

    Of facts of other kinds the number means nothing.
    """
    epoch = facts["session_epoch"]
    opened = pc.if_else(pc.equal(epoch, 0), facts["response_session_id"], 0)
    session = numbers(pc.if_else(pc.greater(epoch, 0), facts["session_id"], opened))
    place, connections = texts(facts["connection"])
    connection = np.array([zlib.crc32(name.encode()) for name in connections], np.int64)[place]
    return number_of_session(numbers(facts["broker_id"]), session) + np.where(session == 0, connection, 0)


def number_of_session(broker: Ints | int, session: Ints) -> Ints:
    """Return a number for each session of each broker."""
    found: Ints = (broker * 31 + session) * 31
    return found


def in_sessions(facts: pa.Table, count: int) -> pa.Table:
    """Return the facts that the order needs, as `by_session` takes them: of fetches, the number of their session."""
    wanted = any_of(ORDERED, facts)
    wanted = wanted.drop_columns([name for name in UNREAD if name in wanted.column_names])
    number = session_of_fetch(wanted) % count
    return wanted.append_column("session", pc.if_else(FETCHES.mask(wanted), pa.array(number, pa.int32()), None))


def by_session(tables: Iterable[pa.Table], names: Mapping[str, str], buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield fetches by session (`BY_SESSION`), and all other facts by partition, since they need no session."""
    for told in gathered(tables, ROWS_AT_ONCE):
        given = [with_topics(told, names)]
        del told  # a table of so many facts takes a hundred megabytes with the copies that are made of it
        is_fetch = pc.is_valid(given[0]["session"])
        others = known_partitions(given[0].filter(pc.invert(is_fetch)).drop_columns("session"))
        given.append(given.pop().filter(is_fetch))
        rows: list[tuple[int, int | None, bytes]]
        rows = [(k, k, one) for k, one in streams_by(bucket_of(others, buckets), others)]
        del others
        rows += [(k, None, one) for k, one in streams_by(numbers(given[0]["session"]), given.pop())]
        yield pa.RecordBatch.from_pylist([dict(zip(BY_SESSION.names, row, strict=True)) for row in rows], BY_SESSION)


def known_partitions(rows: pa.Table) -> pa.Table:
    """Return rows whose topic is known by name or id, without the metadata log."""
    others = pc.invert(pc.is_in(rows["topic"], pa.array(METADATA_TOPIC)))
    known = pc.and_(pc.is_valid(rows["topic"]), others)
    return rows if pc.all(known).as_py() else rows.filter(known)  # a filter copies a hundred columns


def rebuilding(buckets: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Make the function that Spark calls for sessions: it completes fetches; all rows leave it by partition."""

    def batches_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fetches = SpilledFetches()
        for batch in batches:
            yield batch.filter(pc.greater_equal(batch["bucket"], 0)).select(BY_PARTITION.names)
            for stream in batch["rows"].filter(pc.is_null(batch["bucket"])):
                fetches.add(stream)
            for stream in batch["rows"].filter(pc.equal(batch["bucket"], STATES)):
                fetches.go_on_from(rows_of_stream(stream))
        try:
            for rows in map(known_partitions, fetches.rebuilt()):
                told = dict(streams_by(bucket_of(rows, buckets), rows))
                yield pa.RecordBatch.from_pydict({"bucket": [*told], "rows": [*told.values()]}, schema=BY_PARTITION)
        except EntangledError:
            yield pa.RecordBatch.from_pylist([{"bucket": 0, "rows": None}], BY_PARTITION)

    return batches_of


def order_partitions(
    batches: Iterable[pa.RecordBatch], told: ToldOfCluster, standing: StandingWindows | None = None
) -> Iterator[tuple[str, pa.Table]]:
    """Order the partitions of a bucket whose facts come as streams, as `order_tables` does; null: some are lacking."""

    def tables() -> Iterator[pa.Table]:
        for stream in (stream for batch in batches for stream in batch["rows"]):
            if not stream.is_valid:
                raise NeedsAllError
            yield rows_of_stream(stream)

    yield from order_tables(tables(), told, standing)


def ordering(
    told: ToldOfCluster, standing: Mapping[int, pa.Table], window_us: int, engine: str, left: Mapping[Of, LeftOut]
) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Make the function that Spark calls for each bucket; its annotations tell Spark that it works batch by batch.

    `standing`: by bucket, what stands in the warehouse. `engine`: a digest of its sources. `left`: what is not given of
    partitions' facts.
    """

    def batches_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches)
        known = StandingWindows.of(standing.get(first["bucket"][0].as_py()), window_us, engine)
        known.left, known.tells_alone = left, True
        kept: defaultdict[str, list[pa.Table]] = defaultdict(list)
        count = 0
        try:
            for name, rows in order_partitions(chain([first], batches), told, known):
                kept[name].append(rows)
                count += len(rows)
                if count >= EVENTS_AT_ONCE:
                    yield from packed(kept)
                    count = 0
        except NeedsAllError as error:
            kept[NEEDS_ALL].append(pa.Table.from_pylist([dict(zip(LACKING.names, error.args, strict=False))], LACKING))
        yield from packed(kept)
        settle("order")

    return batches_of
