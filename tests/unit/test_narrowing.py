"""A narrowed run says so first, and leaves alone what it did not look at."""

from __future__ import annotations

from pipelines.stages.report import _narrowed
from pipelines.warehouse.narrowing import Narrowing
from schemas.consequences import PARTITION_RISK
from schemas.incidents import CONFORMANCE, DATA_LOSS_INCIDENTS
from schemas.offsets import HW_TIMELINE

FROM, TO = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"


def test_a_run_over_everything_leaves_nothing_out_and_says_nothing_of_it() -> None:
    everything = Narrowing.of({"shuffle_partitions": 8})
    assert not everything
    assert everything.condition(HW_TIMELINE) is None
    verdict = {"headline": "Nothing acknowledged was lost"}
    assert _narrowed(verdict, everything) == {**verdict, "looked_at": None}


def test_a_narrowed_run_says_so_in_its_headline() -> None:
    part = Narrowing.of({"topics": ["a.*", "b"], "from": FROM})
    told = _narrowed({"headline": "Nothing acknowledged was lost"}, part)
    assert told["headline"] == f"Of topics like a.*, b from {FROM} only: Nothing acknowledged was lost"
    assert told["looked_at"] == f"topics like a.*, b from {FROM}"


def test_only_rows_that_were_looked_at_are_replaced() -> None:
    topic = "topic RLIKE '^(?:a|b)$|^(?:o\\'c\\\\.x)$'"
    part = Narrowing.of({"topics": ["a|b", "o'c\\.x"], "to": TO})
    assert part.condition(HW_TIMELINE) == f"{topic} AND (ts IS NULL OR ts <= TIMESTAMP '{TO}')"
    assert part.condition(DATA_LOSS_INCIDENTS) == f"{topic} AND (lost_ts IS NULL OR lost_ts <= TIMESTAMP '{TO}')"
    assert part.condition(CONFORMANCE) == topic
    late = Narrowing.of({"from": FROM})
    assert late.condition(PARTITION_RISK) == f"(end_ts IS NULL OR end_ts >= TIMESTAMP '{FROM}')"
