"""Since when there are news: what a grown log states again counts only if it says something else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipelines.intake.ledger import Change
from pipelines.stages.news import News, Times, news_since, told
from pipelines.warehouse.spans import HOUR_US
from replay.arrays.ints import NEVER
from schemas.facts import FACTS

if TYPE_CHECKING:
    from pathlib import Path

LONG_AGO, HORIZON, NOW = HOUR_US, 50 * HOUR_US, 51 * HOUR_US


def facts(*rows: tuple[str, int | None, int]) -> pa.Table:
    """Facts: id, time, offset."""
    told = [
        {"recording_id": "r", "fact_id": name, "ts": us, "offset": offset, "source_file": "server.log",
         "source_line": line, "kind": "log_load"}
        for line, (name, us, offset) in enumerate(rows)
    ]  # fmt: skip
    fields = [field.with_nullable(nullable=True) for field in FACTS.arrow_schema]
    return pa.Table.from_pylist(told, pa.schema(fields)).cast(pa.schema(fields))


class Stands:
    """What a warehouse tells of the facts that stand, and up to when the last order has handed something on."""

    def __init__(self, rows: pa.Table, handed_on: bool) -> None:  # noqa: FBT001 - of a parameter
        self.rows, self.handed_on = rows, handed_on

    def arrow(self, _name: str, _recording_id: str, columns: list[str]) -> pa.Table:
        times = pa.array([HORIZON] * self.handed_on, pa.int64()).cast(pa.timestamp("us", "UTC"))
        return pa.table({columns[0]: times})

    def stated(self, _recording_id: str, _spans: Any, ids: pa.Array) -> pa.Table:
        return self.rows.filter(pc.is_in(self.rows["fact_id"], ids))


STOOD = facts(("a", LONG_AGO, 1), ("b", LONG_AGO, 2))


def since(now: pa.Table, stood: pa.Table = STOOD, *, handed_on: bool = True) -> int | None:
    """Read these facts, where the lines of `stood` are read again."""
    change = Change("server.log", "server.log", 0, (LONG_AGO, LONG_AGO))
    parsed: Any = SimpleNamespace(facts=now, files=[], plan=SimpleNamespace(changes=[change]))
    changed = stood.select(["fact_id", "source_line", "ts", "kind", "leader_epoch"])
    changed = changed.append_column("is_gone", pa.array([True] * len(changed)))
    warehouse: Any = Stands(stood, handed_on)
    return news_since(warehouse, "r", parsed, Times.of(now), changed)


def test_what_is_stated_again_as_it_stood_is_no_news() -> None:
    assert since(pa.concat_tables([STOOD, facts(("c", NOW, 3))])) == NOW
    assert since(STOOD) == NEVER


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(facts(("a", LONG_AGO, 1), ("b", LONG_AGO, 7), ("c", NOW, 3)), id="another offset"),
        pytest.param(facts(("a", LONG_AGO, 1), ("c", NOW, 3)), id="one is gone"),
        pytest.param(facts(("a", LONG_AGO, 1), ("b", LONG_AGO, 2), ("d", LONG_AGO, 2)), id="one has come"),
    ],
)
def test_what_says_something_else_is_news_from_its_time_on(now: pa.Table) -> None:
    assert since(now) == LONG_AGO


def checkpoint(**told: Any) -> pa.Table:
    """A fact without a time: an offset that a checkpoint states, or where an epoch starts."""
    row = {**facts(("k", None, 9)).to_pylist()[0], "kind": "checkpoint", **told}
    return pa.Table.from_pylist([row], STOOD.schema)


@pytest.mark.parametrize(
    ("came", "since_us", "count"),
    [
        pytest.param([STOOD], NEVER, 0, id="the same in another file"),
        pytest.param([STOOD, facts(("c", NOW, 3))], NOW, 1, id="one is new"),
        pytest.param([STOOD.slice(0, 1)], LONG_AGO, 1, id="one is gone"),
        pytest.param([facts(("a", LONG_AGO, 1), ("b", NOW, 2))], LONG_AGO, 2, id="one has another time"),
        pytest.param([STOOD, STOOD.slice(1)], LONG_AGO, 1, id="one stands twice"),
        pytest.param([STOOD, checkpoint()], NEVER, 1, id="an offset of a checkpoint, which states no time"),
        pytest.param([STOOD, checkpoint(leader_epoch=3)], None, 1, id="the start of an epoch, which states none"),
    ],
)
def test_news_of_all_runs_are_where_files_that_came_differ_from_those_that_went(
    came: list[pa.Table], since_us: int | None, count: int
) -> None:
    assert News.between(pa.concat_tables(came), STOOD) == News(count, since_us, are_of_all=True)


def test_facts_in_files_are_compared_with_those_that_stand(tmp_path: Path) -> None:
    """Such a file does not name the recording."""
    again = pa.concat_tables([STOOD.slice(1), facts(("c", NOW, 3))])
    pq.write_table(again.drop_columns(["recording_id"]), tmp_path / "facts.parquet")
    ids = STOOD["fact_id"].combine_chunks()
    read = told([tmp_path / "facts.parquet"], "r", ids)
    assert read.keys() == {"b"}
    assert read == told(STOOD.slice(1), "r", ids)
    assert read != told(facts(("b", LONG_AGO, 7)), "r", ids)


def test_nothing_is_compared_where_nothing_was_handed_on() -> None:
    assert since(STOOD, handed_on=False) == LONG_AGO


def test_facts_without_a_time_may_be_from_whenever() -> None:
    assert since(facts(("a", LONG_AGO, 1), ("b", LONG_AGO, 2), ("c", None, 3))) is None
    undated = facts(("a", None, 1))
    assert since(pa.concat_tables([undated, facts(("c", NOW, 3))]), stood=undated) == NOW
