"""Where what an order was handed does not suffice: the worker says for which partition, and so does the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from facts_builder import History

from pipelines.spark.packed import stream_of, unpacked
from pipelines.stages import order
from pipelines.stages.order import BY_PARTITION, LACKING, NEEDS_ALL, ordering
from pipelines.stages.renewal import Renewal
from replay.evidence.cluster import cluster_told, collected_of
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.missing_lines import MissingLines
from replay.evidence.session_lines import EntangledError
from replay.evidence.steady import LeftOut, NeedsAllError

if TYPE_CHECKING:
    from collections.abc import Iterator


def asked_for(streams: list[bytes | None]) -> list[dict[str, Any]]:
    """For what a worker asks that gets these streams of a bucket's rows; requests of one partition were left out."""
    history = History()
    cluster = cluster_told(collected_of(history.table()), {}, MissingLines())
    left = {("orders", 0): LeftOut(0, (), 5, (0, 0))}
    work = ordering(ToldOfCluster(cluster), {}, 1_000_000, "engine", left)
    rows = pa.RecordBatch.from_pydict({"bucket": [0] * len(streams), "rows": streams}, schema=BY_PARTITION)
    told = [batch for batch in work(iter([rows])) if batch.column(0)[0].as_py() == NEEDS_ALL]
    return [row for batch in unpacked(told, LACKING) for row in batch.to_pylist()]


def test_a_worker_names_the_partition_for_which_it_lacks_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "settle", lambda _: None)  # what a worker does once, this process is not to do
    history = History()
    history.decide(0, 1, [1, 2])
    history.produce(100, 1, 0)
    assert asked_for([stream_of(history.table())]) == [{"topic": "orders", "partition": 0}]
    assert asked_for([None]) == [{"topic": None, "partition": None}]  # a session whose lines are out of order


@pytest.mark.parametrize(
    ("error", "told"),
    [(NeedsAllError("made", 9), " for made-9"), (EntangledError(), " for a fetch session"), (NeedsAllError(), "")],
)
def test_a_run_says_for_what_it_ordered_all_facts(monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    answers: Iterator[Any] = iter([error, ("staged", None)])

    def by_workers(*_: object, **__: object) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    said: list[str] = []
    nothing: Any = None
    renewal = Renewal(nothing, nothing, "r", "", {}, say=said.append)
    monkeypatch.setattr(Renewal, "ordered_by_workers", by_workers)
    monkeypatch.setattr(Renewal, "facts_here", lambda _: None)
    monkeypatch.setattr(Renewal, "overview", lambda *_: None)
    monkeypatch.setattr(Renewal, "arrow", lambda *_: pa.table({"horizon": pa.nulls(0)}))
    carried: Any = "what the run before handed on"
    assert renewal.ordered(nothing, None, None, carried) == ("staged", None)
    assert said == [f"all facts were ordered: what the run before had handed on was not enough{told}"]


def test_a_run_says_so_if_what_holds_for_all_facts_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> object:
        raise NeedsAllError

    class Handed:
        horizon = 5

        def later(self, *_: object) -> Handed:
            return self

    said: list[str] = []
    handed: Any = Handed()
    nothing: Any = None
    for name, answer in (("carried", handed), ("facts_here", None), ("overview", "of all")):
        monkeypatch.setattr(Renewal, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(Renewal, "overview_of_later", lacking)
    assert Renewal(nothing, handed, "r", "", {}, say=said.append).look() == ("of all", None, None)
    assert said == ["all facts were ordered: what the run before had handed on was not enough"]
