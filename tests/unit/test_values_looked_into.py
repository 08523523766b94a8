"""Great Expectations is given the values that a table's expectations look into, and so sees every breach of them."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from pipelines.expectations.counting import look_through
from pipelines.expectations.database import closed_database
from pipelines.expectations.rules import table_rules
from pipelines.stages import validate
from pipelines.stages.validate import _occurring, _rule_id, _run_suites
from schemas.runs import COVERAGE

ROW = {
    "recording_id": "r", "broker_id": 1, "source": "server_log", "start_ts": datetime(2026, 1, 1, tzinfo=UTC),
    "end_ts": datetime(2026, 1, 2, tzinfo=UTC), "state": "logged", "lines": 3, "evidence": "observed",
}  # fmt: skip


def broken(*rows: dict[str, object]) -> set[str]:
    """The rules of the schema of `coverage` that do not hold for these rows."""
    loose = pa.schema([field.with_nullable(nullable=True) for field in COVERAGE.arrow_schema])
    rules = [rule for rule in table_rules(COVERAGE) if rule.native]
    with closed_database({COVERAGE.name: pa.Table.from_pylist([*rows], loose)}) as db:
        frame = _occurring(look_through(db, COVERAGE.name, rules))
    counts: Future[dict[str, int]] = Future()
    counts.set_result({})
    suites = _run_suites({COVERAGE.name: frame}, rules, counts, "run", datetime.now(UTC))
    return {_rule_id(one) for suite in suites for one in suite.results if not one.success}


@pytest.mark.parametrize(
    ("altered", "rule"),
    [
        ({}, None),
        ({"reason": None}, None),
        ({"state": "perhaps"}, "state_known"),
        ({"state": None}, "state_not_null"),
        ({"start_ts": None}, "start_ts_not_null"),
        ({"recording_id": None}, "recording_id_not_null"),
    ],
)
def test_a_breach_is_seen_among_rows_that_are_sound(altered: dict[str, object], rule: str | None) -> None:
    expected = set() if rule is None else {f"{COVERAGE.name}__{rule}"}
    assert broken(ROW, {**ROW, **altered}, ROW) == expected


def test_a_table_without_rows_breaks_nothing() -> None:
    assert broken() == set()


def test_what_duckdb_has_no_memory_for_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Lake:
        def files_within(self, _names: list[str], _recording_id: str, most: int) -> dict[str, object]:
            asked.append(most)
            return {}

        def staging_dir(self, recording_id: str) -> str:
            return recording_id

        def looked_at(self, name: str, recording_id: str) -> None: ...

    def check(*_: object, **__: object) -> tuple[list[object], list[object]]:
        if len(asked) == 1:
            message = "failed to allocate data"
            raise duckdb.OutOfMemoryException(message)
        return [], []

    monkeypatch.setattr(validate, "check", check)
    monkeypatch.setattr(validate, "on_this_machine", lambda *_: None)
    monkeypatch.setattr(validate, "publish_docs", lambda *_: "page")
    assert validate.validate(None, Lake(), "r", "run").docs_path == "page"  # type: ignore[arg-type]
    assert asked == [validate.READ_BYTES, validate.SMALL_BYTES]
