"""The recipes of CONTRIBUTING are complete: a change is made where the recipe says, and shows at the other end.

A made-up mechanism of loss is in `test_mechanisms`, the switches of every Kafka version in `test_switches`.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from histories_of_losses import acks_one_failure
from test_parse_server_log import facts_of
from without_spark import tables_of

from pipelines.parse.wordings import server_log
from pipelines.parse.wordings.rule import TP, Rule
from replay.tables import output
from replay.tables.risk_spans import RiskSpans
from schemas.model import INT64, Column
from schemas.tables import TABLES

if TYPE_CHECKING:
    import pytest

REPOSITORY = Path(__file__).parent.parent.parent
WORDING = Rule("Partition: Parked", "9.9-", "isr_update parked", rf"Parked {TP} of replica (?P<replica_id>\d+)")
LINE = "[2026-11-21 03:49:31,158] INFO [Partition a-0 broker=1] Parked a-0 of replica 3 (kafka.cluster.Partition)"


def test_a_wording_is_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts_of(LINE)[0] == []
    monkeypatch.setattr(server_log, "RULES", (*server_log.RULES, WORDING))
    (fact,) = facts_of(LINE)[0]
    assert (fact["kind"], fact["name"], fact["topic"], fact["partition"], fact["replica_id"]) == (
        "isr_update", "parked", "a", 0, 3,
    )  # fmt: skip


def test_a_column_is_its_schema_and_what_makes_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    risk = TABLES["partition_risk"]
    wider = replace(risk, columns=(*risk.columns, Column("made_up", INT64, "Seven.")))
    monkeypatch.setitem(TABLES, "partition_risk", wider)
    finish = RiskSpans.finish

    def with_column(self: RiskSpans, *arguments: Any, **named: Any) -> list[dict[str, Any]]:
        return [{**row, "made_up": 7} for row in finish(self, *arguments, **named)]

    monkeypatch.setattr(RiskSpans, "finish", with_column)
    output.schema_of.cache_clear()
    try:
        rows = tables_of(acks_one_failure().events())["partition_risk"]
    finally:
        output.schema_of.cache_clear()
    assert rows.schema.field("made_up").type == pa.int64()
    assert set(rows["made_up"].to_pylist()) == {7}


A_TABLE = """
import sys
sys.path.insert(0, "tests/unit")
from schemas import tables
from schemas.model import INT64, PARTITION_KEY, Column, Table

# its schema, and its place among the tables of the replay
MADE_UP = Table("made_up", "Made up.", (*PARTITION_KEY, Column("seven", INT64, "Seven.")), ("topic", "partition"))
tables.REPLAY_TABLES = (*tables.REPLAY_TABLES, MADE_UP)
tables.TABLES["made_up"] = MADE_UP

# its rows, from the partition's replay
from replay.tables.partition_replay import PartitionReplay
finish = PartitionReplay.finish
def with_table(self):
    finish(self)
    self.out.add_rows("made_up", self.key, [{"seven": 7}])
PartitionReplay.finish = with_table

from histories_of_losses import acks_one_failure
from without_spark import tables_of
(row,) = tables_of(acks_one_failure().events())["made_up"].to_pylist()
assert (row["topic"], row["partition"], row["seven"]) == ("orders", 0, 7), row

from pipelines.stages.validate import VALIDATED
assert MADE_UP in VALIDATED
from schemas.dictionary import dictionary
assert "## made_up" in dictionary()
"""


def test_a_table_is_its_schema_its_place_and_its_rows() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", A_TABLE], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
