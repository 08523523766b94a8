"""The replay stage: against Spark's floor, against other means, and as its input grows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from made_history import History
from made_shape import Shape
from measure import Cost, cost_of, side_by_side
from workbench import ID, Line, against, folder_mb, shuffled_mb

from pipelines.spark.packed import table_rows
from pipelines.spark.staging import stage
from pipelines.stages import replay
from pipelines.warehouse.delta_io import Warehouse
from replay.engine import kernel
from replay.tables import partition_replay
from replay.tables.partitions import KEY, replayed
from schemas.tables import REPLAY_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from workbench import Bench

MILLION = 1_000_000


def fold_alone(events: pa.Table, rows: int = 20_000) -> tuple[float, float]:
    """CPU seconds of one partition's replay in this process, Arrow batches to Arrow rows; of them in the kernel."""
    inside = 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal inside
        begun = time.process_time()
        out = kernel.fold(*arguments)
        inside += time.process_time() - begun
        return out

    start = time.process_time()
    with patch.object(partition_replay, "fold", timed):
        for _ in replayed(events.to_batches(rows)):
            pass
    return time.process_time() - start, inside


def case_kernel(bench: Bench, events: int) -> list[Line]:
    """The engine by itself: compiled, and the same rules as they stand."""
    made = pa.concat_tables(History(Shape(events=min(events, MILLION), partitions=1), 0).tables())
    small = made.slice(0, 50_000)
    fold_alone(small)
    whole, inside = np.median([fold_alone(made) for _ in range(bench.rounds)], axis=0).tolist()
    kept = bench.place / "fold"
    pq.write_table(small, kept)
    script = f"import replay_cases as r, pyarrow.parquet as q; print(*r.fold_alone(q.read_table({str(kept)!r})))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    plain_whole, plain_inside = map(float, done.stdout.split())
    rates = {
        "compiled": len(made) / inside,
        "not compiled": len(small) / plain_inside,
        "compiled, Arrow to Arrow": len(made) / whole,
        "not compiled, Arrow to Arrow": len(small) / plain_whole,
    }
    seconds = (inside, plain_inside, whole, plain_whole)
    ratios = {"compiled": rates["compiled"] / rates["not compiled"]}
    ratios["compiled, Arrow to Arrow"] = rates["compiled, Arrow to Arrow"] / rates["not compiled, Arrow to Arrow"]
    bars = {"compiled": ">= 10 M/s"}
    return [
        Line("kernel alone, one core", name, ratios.get(name), bars.get(name, ""), Cost(cpu, 0, cpu, 0, 0), rate)
        for (name, rate), cpu in zip(rates.items(), seconds, strict=True)
    ]


def replay_all(bench: Bench, events: str, target: Path) -> None:
    """The replay job's own work: replay, stage, write table by table."""
    warehouse = Warehouse(bench.spark, str(target))
    frame = bench.spark.read.format("delta").load(events)
    tagged = replay.replay(bench.spark, frame, {})
    write_tables(warehouse, stage(tagged, str(target / "_staged"), len(REPLAY_TABLES)).frame)


def replay_into(bench: Bench, events: str) -> None:
    """The same, into a place that is emptied first."""
    replay_all(bench, events, bench.fresh("replay-out"))


def write_tables(warehouse: Warehouse, rows: DataFrame) -> None:
    """Staged rows into their Delta tables."""
    warehouse.replace_all({table.name: table_rows(rows, table.name) for table in REPLAY_TABLES}, ID)


def floor_all(bench: Bench, events: str, told: str, target: Path) -> None:
    """The same without Python: read, shuffle, sort, stage; then write the rows that a replay has told before."""
    frame = replay.read_of(bench.spark.read.format("delta").load(events))
    ordered = frame.repartition(*KEY).sortWithinPartitions(*KEY, "seq")
    ordered.write.mode("overwrite").parquet(str(target / "_staged"))
    tables = {table.name: bench.spark.read.format("delta").load(f"{told}/{table.name}") for table in REPLAY_TABLES}
    Warehouse(bench.spark, str(target)).replace_all(tables, ID)


def tell(bench: Bench, events: str) -> str:
    """The tables that a replay of these events tells: what the floor writes."""
    path = f"{events}-told"
    if not Path(path).exists():
        replay_all(bench, events, Path(path))
    return path


def case_replay(bench: Bench, events: int) -> list[Line]:
    """Replay against the floor."""
    path = bench.events(Shape(events=events, partitions=100))
    told = tell(bench, path)
    costs = side_by_side(
        {
            "replay": partial(replay_into, bench, path),
            "floor": lambda: floor_all(bench, path, told, bench.fresh("floor-out")),
        },
        bench.rounds,
    )
    return against("replay / Spark floor", costs, "replay", "floor", "<= 1.3", events)


def case_peers(bench: Bench, events: int) -> list[Line]:
    """What less costs by other means: HW and LEO alone, as windows or a loop."""
    path = bench.events(Shape(events=events, partitions=100))
    spark = bench.spark

    def windows() -> None:
        frame = spark.read.format("delta").load(path)
        frame.createOrReplaceTempView("made_events")
        over = "(PARTITION BY topic, incarnation, `partition`, broker_id ORDER BY seq)"
        spark.sql(
            f"SELECT topic, `partition`, seq, broker_id, max(next_offset) OVER {over} AS leo, "  # noqa: S608
            f"max(response_hw) OVER {over} AS hw FROM made_events"
        ).write.mode("overwrite").parquet(str(bench.place / "peer-windows"))

    def pandas_loop() -> None:
        frame = (
            spark.read.format("delta").load(path).select(*KEY, "seq", "kind", "broker_id", "next_offset", "response_hw")
        )
        rows = frame.groupBy(*KEY).applyInPandas(
            loop, "`partition` int, seq bigint, broker_id int, leo bigint, hw bigint"
        )
        rows.write.format("parquet").mode("overwrite").save(str(bench.place / "peer-pandas"))

    def duck() -> None:
        over = "(PARTITION BY topic, incarnation, partition, broker_id ORDER BY seq)"
        target = bench.place / "peer-duckdb.parquet"
        duckdb.sql(
            f"COPY (SELECT topic, partition, seq, broker_id, max(next_offset) OVER {over} AS leo, "  # noqa: S608
            f"max(response_hw) OVER {over} AS hw FROM read_parquet('{path}/*.parquet')) TO '{target}' (FORMAT parquet)"
        )

    costs = side_by_side(
        {
            "replay, all tables": partial(replay_into, bench, path),
            "HW and LEO by window functions": windows,
            "HW and LEO by applyInPandas": pandas_loop,
            "HW and LEO by DuckDB, in this process": duck,
        },
        bench.rounds,
    )
    return [
        Line("peers", name, costs["replay, all tables"].wall / cost.wall, "<= 1", cost, events / cost.wall)
        for name, cost in costs.items()
    ]


def loop(frame: Any) -> Any:
    """HW and LEO of a partition by a plain loop."""
    import pandas as pd  # noqa: PLC0415 - only in the workers of this peer

    leo: dict[int, int] = {}
    hw: dict[int, int] = {}
    rows = []
    for row in frame.sort_values("seq").itertuples():
        if row.kind == "append":
            leo[row.broker_id] = max(leo.get(row.broker_id, 0), int(row.next_offset))
        elif row.kind in {"fetch_read", "consumer_read"} and row.response_hw == row.response_hw:
            hw[row.broker_id] = max(hw.get(row.broker_id, 0), int(row.response_hw))
        else:
            continue
        rows.append((row.partition, row.seq, row.broker_id, leo.get(row.broker_id), hw.get(row.broker_id)))
    return pd.DataFrame(rows, columns=["partition", "seq", "broker_id", "leo", "hw"])


def case_growth(bench: Bench, events: int) -> list[Line]:
    """Time per event from a hundredth of the events to all of them, each once, after the least for warming up."""
    amounts = (events // 100, events // 10, events)
    paths = [bench.events(Shape(events=amount, partitions=100)) for amount in amounts]
    replay_into(bench, paths[0])
    costs = [cost_of(partial(replay_into, bench, path)) for path in paths]
    each = [cost.wall / amount for cost, amount in zip(costs, amounts, strict=True)]
    return [
        Line("growth", f"{amount:,} events", one / each[0], "<= 1.1", cost, amount / cost.wall)
        for amount, cost, one in zip(amounts, costs, each, strict=True)
    ]


def case_skew(bench: Bench, events: int) -> list[Line]:
    """One partition with nine tenths of the events against an even spread: CPU seconds."""
    even = bench.events(Shape(events=events, partitions=100))
    skewed = bench.events(Shape(events=events, partitions=100, skew=0.9))
    costs = side_by_side(
        {
            "one partition with 90 %": partial(replay_into, bench, skewed),
            "even": partial(replay_into, bench, even),
        },
        bench.rounds,
    )
    lines = against("skew, CPU seconds", costs, "one partition with 90 %", "even", "<= 1.3, <= 512 MB", events)
    lines[0].ratio = costs["one partition with 90 %"].cpu / costs["even"].cpu
    return lines


def case_partitions(bench: Bench, events: int) -> list[Line]:
    """Few partitions against many, with as many events."""
    few = bench.events(Shape(events=events, partitions=10))
    many = bench.events(Shape(events=events, partitions=min(100_000, events // 40), elections=0, flaps=0))
    costs = side_by_side(
        {
            "many partitions": partial(replay_into, bench, many),
            "10 partitions": partial(replay_into, bench, few),
        },
        bench.rounds,
    )
    return against("partitions", costs, "many partitions", "10 partitions", "<= 2", events)


def case_sizes(bench: Bench, events: int) -> list[Line]:
    """What a million events are on disk and in the shuffle, before and after their replay."""
    path = bench.events(Shape(events=events, partitions=100))
    target = bench.fresh("sizes-out")
    before = shuffled_mb(bench.spark)
    cost = cost_of(partial(replay_all, bench, path, target))
    sizes = {
        "events, as a table": folder_mb(Path(path)),
        "shuffled by the replay": shuffled_mb(bench.spark) - before,
        "staged by the replay": folder_mb(target / "_staged"),
        **{table.name: folder_mb(target / table.name) for table in REPLAY_TABLES},
    }
    sizes["all tables of the replay"] = sum(sizes[table.name] for table in REPLAY_TABLES)
    return [
        Line("sizes", name, None, "", cost, size / events * MILLION, "MB per million events")
        for name, size in sizes.items()
        if size / events * MILLION >= 1
    ]
