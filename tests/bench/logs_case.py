"""From the same log files: Tidemark with all its tables, and a query that gives the HW and LEO of each broker alone.

The query is what an engineer would write on the spot: of each line of the request logs, DuckDB parses the JSON, and
takes what answers say of the HW, and what followers ask for and producers were told of the LEO. It knows no sessions (a
partition that an incremental fetch does not name again is not there), no order among brokers, no elections, no loss.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import duckdb
from made_shape import Shape
from measure import side_by_side
from workbench import ID, Line

from pipelines.recording.recording import discover
from pipelines.stages.run import execute

if TYPE_CHECKING:
    from pathlib import Path

    from workbench import Bench

ASKED = {"topicId": "VARCHAR", "partitions": [{"partition": "INTEGER", "fetchOffset": "BIGINT"}]}
ANSWERED = {
    "topicId": "VARCHAR",
    "name": "VARCHAR",
    "partitions": [{"partitionIndex": "INTEGER", "highWatermark": "BIGINT"}],
    "partitionResponses": [{"index": "INTEGER", "baseOffset": "BIGINT"}],
}
LINE = {
    "requestHeader": {"requestApiKeyName": "VARCHAR"},
    "request": {"replicaState": {"replicaId": "INTEGER"}, "topics": [ASKED]},
    "response": {"responses": [ANSWERED]},
}
READ = r"""
CREATE TABLE lines AS
SELECT CAST(regexp_extract(filename, 'node-([0-9]+)', 1) AS INTEGER) AS broker_id,
       strptime(line[2:24], '%Y-%m-%d %H:%M:%S,%g') AS ts,
       from_json(substr(line, strpos(line, '{'), strpos(line, ' (kafka.request') - strpos(line, '{')), ?) AS said
FROM read_csv(?, columns = {'line': 'VARCHAR'}, delim = '\x01', quote = '', escape = '', header = false,
              filename = true, max_line_size = 10000000)
WHERE line LIKE '%Completed request:{%'
"""
HW = """
SELECT topic, one.partitionIndex AS partition, broker_id, ts,
       max(one.highWatermark) OVER (PARTITION BY topic, partition, broker_id ORDER BY ts) AS hw
FROM (SELECT broker_id, ts, answer.topicId AS topic, unnest(answer.partitions) AS one
      FROM (SELECT broker_id, ts, unnest(said.response.responses) AS answer FROM lines
            WHERE said.requestHeader.requestApiKeyName = 'FETCH'))
"""
LEO = """
SELECT topic, partition, broker_id, ts, max(leo) OVER (PARTITION BY topic, partition, broker_id ORDER BY ts) AS leo
FROM (
    SELECT asked.topicId AS topic, one.partition, broker_id, ts, one.fetchOffset AS leo
    FROM (SELECT broker_id, ts, asked, unnest(asked.partitions) AS one
          FROM (SELECT said.request.replicaState.replicaId AS broker_id, ts, unnest(said.request.topics) AS asked
                FROM lines WHERE said.requestHeader.requestApiKeyName = 'FETCH'))
    WHERE broker_id >= 0
    UNION ALL
    SELECT answer.name, one.index, broker_id, ts, one.baseOffset
    FROM (SELECT broker_id, ts, answer, unnest(answer.partitionResponses) AS one
          FROM (SELECT broker_id, ts, unnest(said.response.responses) AS answer
                FROM lines WHERE said.requestHeader.requestApiKeyName = 'PRODUCE'))
)
"""


def by_duckdb(recording: Path, into: Path) -> None:
    """Write `hw.parquet` and `leo.parquet` of a recording's request logs."""
    into.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as database:
        database.execute(READ, [json.dumps(LINE), f"{recording}/logs/*/kafka-request.log*"])
        for name, query in (("hw", HW), ("leo", LEO)):
            database.execute(f"COPY ({query}) TO '{into}/{name}.parquet' (FORMAT parquet)")


def case_logs(bench: Bench, events: int) -> list[Line]:
    """All tables of the replay from log files, beside HW and LEO by DuckDB."""
    folder = bench.recording(Shape(events=events // 2, partitions=60, elections=1))  # two rows of the table for each

    def all_tables() -> None:
        recording = discover(str(folder), recording_id=ID)
        execute(bench.spark, str(bench.fresh("logs-out")), ID, recording, ("ingest", "replay"), {}, lambda *_: None)

    costs = side_by_side(
        {
            "all tables, by Tidemark": all_tables,
            "HW and LEO, by DuckDB": lambda: by_duckdb(folder, bench.fresh("logs-peer")),
        },
        bench.rounds,
    )
    peer = costs["HW and LEO, by DuckDB"].wall
    return [
        Line("from log files", name, cost.wall / peer, "<= 10", cost, events / cost.wall)
        for name, cost in costs.items()
    ]
