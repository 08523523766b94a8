"""From the same log files: Tidemark with all its tables, and queries that give the HW and LEO of each broker alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log_peers import by_duckdb, by_polars, by_spark
from made_shape import Shape
from measure import side_by_side
from workbench import ID, Line

from pipelines.recording.recording import discover
from pipelines.stages.run import execute

if TYPE_CHECKING:
    from workbench import Bench

OURS, PEERS = "all tables, by Tidemark", ("DuckDB", "Polars", "Spark SQL")
BAR = "<= 10"


def case_logs(bench: Bench, events: int) -> list[Line]:
    """All tables of the replay from log files, beside HW and LEO by each peer: how many times as long ours takes."""
    folder = bench.recording(Shape(events=events // 2, partitions=60, elections=1))  # two rows of the table for each

    def all_tables() -> None:
        recording = discover(str(folder), recording_id=ID)
        execute(bench.spark, str(bench.fresh("logs-out")), ID, recording, ("ingest", "replay"), {}, lambda *_: None)

    contenders = {
        OURS: all_tables,
        "DuckDB": lambda: by_duckdb(folder, bench.fresh("logs-peer")),
        "Polars": lambda: by_polars(folder, bench.fresh("logs-peer")),
        "Spark SQL": lambda: by_spark(bench.spark, folder, bench.fresh("logs-peer")),
    }
    costs = side_by_side(contenders, bench.rounds)
    ours = Line("from log files", OURS, None, "", costs[OURS], events / costs[OURS].wall)
    return [ours] + [
        Line(
            "from log files",
            f"HW and LEO, by {peer}",
            costs[OURS].wall / costs[peer].wall,
            BAR,
            costs[peer],
            events / costs[peer].wall,
        )
        for peer in PEERS
    ]
