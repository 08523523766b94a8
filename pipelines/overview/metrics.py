"""Makes `cluster_metrics`: broker by broker from `partition_meters`, in the driver or, of many rows, by Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.spark.spark_schemas import spark_ddl
from pipelines.spark.staging import SMALL_BYTES
from pipelines.warehouse.came_and_went import changes_of
from pipelines.warehouse.commit_point import last_complete_run
from pipelines.warehouse.superseded import engine_version
from pipelines.warehouse.within import Within
from replay.arrays.columns import codes, numbers
from replay.evidence.tenures import micros
from replay.tables.changed_minutes import first_changed_minute, stretches_before
from replay.tables.cluster_metrics import PARTS, brokers_of, metrics_of, span_of
from schemas.meters import CLUSTER_METRICS, METRICS, PARTITION_METERS
from schemas.model import EVIDENCE
from schemas.runs import COVERAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from pipelines.spark.staging import Rows
    from pipelines.warehouse.delta_io import Warehouse
    from replay.arrays.ints import Ints

    Stretches = Sequence[dict[str, Any]]
    Span = tuple[int, int]

MOST: Final = 10_000_000  # rows that stand, which are compared with those of now: some months of three brokers
_OTHER: Final = np.iinfo(np.int64).min  # null
_NUMBERS: Final = ("minute", "broker_id", "value", "lowest", "highest", "quota_limit", "over_quota_seconds")
_CODES: Final = {
    name: {word: k for k, word in enumerate(words)} for name, words in (("metric", METRICS), ("evidence", EVIDENCE))
}
_TOLD: Final = (*_NUMBERS, *_CODES)  # from these the other columns follow
_ASKED: Final = pa.schema([PARTITION_METERS.arrow_schema.field(name).with_nullable(nullable=True) for name in PARTS])


def renew(warehouse: Warehouse, recording_id: str, *, goes_on: bool = False) -> None:
    """Write it anew from the first minute on that differs. A minute may hear of any partition; few old ones do.

    `goes_on`: what the last complete run wrote still stands, so only minutes that may differ are made.
    """
    coverage = warehouse.arrow(COVERAGE.name, recording_id)
    small = warehouse.small_rows(PARTITION_METERS.name, recording_id)
    parts = warehouse.read(PARTITION_METERS.name, recording_id) if small is None else small
    in_doubt = None if small is None or not goes_on else _first_in_doubt(warehouse, recording_id, small, coverage)
    rows = cluster_metrics(parts, stretches_of(coverage), recording_id, in_doubt)
    stands = _standing(warehouse, recording_id, in_doubt) if isinstance(rows, pa.Table) else None
    if stands is None or not len(stands):
        _replace(warehouse, rows, recording_id, in_doubt)
    elif (differs := first_changed(stands, rows)) is not None:
        _replace(warehouse, rows, recording_id, differs)


def _replace(warehouse: Warehouse, rows: Rows, recording_id: str, since: int | None) -> None:
    """Write the rows of a minute and all later ones; None: of all minutes."""
    within = None if since is None else _from(since)
    warehouse.replace(CLUSTER_METRICS.name, rows, recording_id, within=within)


def _first_in_doubt(warehouse: Warehouse, recording_id: str, parts: pa.Table, coverage: pa.Table) -> int | None:
    """Return the first minute that may differ since the last replay of the recording; None: any may."""
    last = last_complete_run(warehouse, recording_id, "versions", "table_versions", stage="replay")
    if last is None or json.loads(last["versions"]).get("engine") != engine_version():
        return None
    names = (CLUSTER_METRICS.name, PARTITION_METERS.name, COVERAGE.name)
    changes = changes_of(warehouse.table_files(names, recording_id), json.loads(last["table_versions"]))
    if len(changes) < len(names):
        return None
    own, meters, of_coverage = (changes[name] for name in names)
    if len(own.new.files) + len(own.gone.files) or max(part.size_bytes for part in meters) > SMALL_BYTES:
        return None
    gone, new = (part.rows(PARTS) for part in (meters.gone, meters.new))
    before = stretches_before(coverage, of_coverage.new.rows(), of_coverage.gone.rows())
    return first_changed_minute(parts, gone, new, stretches_of(before), stretches_of(coverage))


def _standing(warehouse: Warehouse, recording_id: str, begin: int | None) -> pa.Table | None:
    """Return what is compared of the rows that stand from a minute on (None: all of them); None: they are too many."""
    if begin is None:
        return warehouse.whole(CLUSTER_METRICS.name, recording_id, MOST, _TOLD)
    return warehouse.since(CLUSTER_METRICS.name, recording_id, "minute", begin)


def first_changed(stands: pa.Table, rows: pa.Table) -> int | None:
    """Return the first minute of which other rows stand than these (microseconds); None: the same ones do.

    `stands`: `_TOLD` of them is enough. A month has millions of rows, so they are compared as numbers.
    """
    old, new = _in_turn(stands), _in_turn(rows)
    least = min(len(old[0]), len(new[0]))
    same = np.ones(least, np.bool_)
    for one, other in zip(old, new, strict=True):
        same &= one[:least] == other[:least]
    place = least if same.all() else int(same.argmin())
    minutes = [minute[place] for minute, *_ in (old, new) if place < len(minute)]
    return int(min(minutes)) if minutes else None


def _from(minute: int) -> Within:
    """Return the condition that a row is of this minute or a later one."""
    at = pa.scalar(minute, pa.timestamp("us", "UTC"))
    sql = f"minute >= timestamp_micros({minute})"
    return Within(sql, lambda rows: pc.greater_equal(rows["minute"], at), ("minute",))


def stretches_of(coverage: pa.Table) -> list[dict[str, Any]]:
    """Return rows of `coverage` with times in microseconds."""
    return [{**row, **{name: micros(row[name]) for name in ("start_ts", "end_ts")}} for row in coverage.to_pylist()]


def cluster_metrics(parts: Rows, coverage: Stretches, recording_id: str, since: int | None = None) -> Rows:
    """Return the rows of a recording; as a frame, if its parts are one.

    `since`: the first minute that is asked for, of parts in memory; of a frame all minutes are returned.
    """
    span = span_of(coverage)
    if span is None:
        return CLUSTER_METRICS.arrow_schema.empty_table()
    if not isinstance(parts, pa.Table):
        return _by_spark(parts, coverage, span, recording_id)
    read = parts.select(list(PARTS))
    found = [
        metrics_of(broker, read.filter(_is_of(read, broker)), coverage, span, since)
        for broker in (*brokers_of(coverage), None)
    ]
    return _named(pa.concat_tables(found), recording_id)


def _is_of(rows: pa.Table, broker: int | None) -> pa.ChunkedArray:
    return pc.is_null(rows["broker_id"]) if broker is None else pc.equal(rows["broker_id"], broker)  # null: left out


def _named(rows: pa.Table, recording_id: str) -> pa.Table:
    names = pa.array([recording_id] * len(rows), pa.string())
    whole = rows.append_column("recording_id", names).select(CLUSTER_METRICS.arrow_schema.names)
    return whole.cast(CLUSTER_METRICS.arrow_schema)


def _in_turn(rows: pa.Table) -> list[Ints]:
    """Return what a comparison needs of rows, the minute first, in one order."""
    texts = [codes(rows[name], known, _OTHER) for name, known in _CODES.items()]
    found = [*(numbers(rows[name], _OTHER) for name in _NUMBERS), *texts]
    minute, broker, metric = found[0], found[1], texts[0]
    order = np.lexsort((broker, metric, minute))
    return [column[order] for column in found]


def _by_spark(parts: DataFrame, coverage: Stretches, span: Span, recording_id: str) -> DataFrame:
    """Return the same by one task for each broker; a broker of which no partition tells has its zeros all the same."""
    spark = parts.sparkSession
    none = dict.fromkeys(PARTS)
    every = [{**none, "broker_id": broker} for broker in (*brokers_of(coverage), None)]
    asked = spark.createDataFrame(pa.Table.from_pylist(every, _ASKED))
    rows = parts.select(*PARTS).unionByName(asked)

    def of_broker(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        mine = table.filter(pc.is_valid(table["metric"]))
        return _named(metrics_of(key[0].as_py(), mine, coverage, span), recording_id)

    return rows.groupBy("broker_id").applyInArrow(of_broker, spark_ddl(CLUSTER_METRICS.arrow_schema))
