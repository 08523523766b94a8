"""A run that goes on looks at what has changed since the last validation, and says what one of all rows says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from test_incremental import arrive, run

from pipelines.expectations.suites import all_rules
from pipelines.stages import validate
from pipelines.stages.validate import find_earlier

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from pipelines.expectations.earlier import Earlier
    from pipelines.expectations.rules import TableRule
    from pipelines.warehouse.delta_io import Warehouse
    from pipelines.warehouse.table_files import TableFiles

STAGES = ("ingest", "replay", "validate")


def test_what_has_not_changed_is_not_validated_again(
    spark: SparkSession, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Earlier | None] = []
    spared: list[list[TableRule]] = []

    def noted(
        warehouse: Warehouse, recording_id: str, rules_digest: str, files: Mapping[str, TableFiles]
    ) -> Earlier | None:
        found.append(find_earlier(warehouse, recording_id, rules_digest, files))
        spared.append([rule for rule in all_rules() if found[-1] is not None and found[-1].tells_of(rule)])
        return found[-1]

    monkeypatch.setattr(validate, "find_earlier", noted)
    monkeypatch.setattr(validate, "ALL_BYTES", 0)
    root, warehouse = tmp_path / "r", tmp_path / "steps"
    arrive(recordings / "last-replica", root, is_over=False)
    run(spark, root, warehouse, STAGES)
    assert found == [None]
    arrive(recordings / "last-replica", root, is_over=True)
    done = run(spark, root, warehouse, STAGES)
    assert len(found) == 2
    assert {rule.table for rule in spared[-1]} >= {"facts", "replication_events", "hw_timeline", "fetch_rounds"}
    assert len([rule for rule in spared[-1] if rule.onward]) > 12
    assert found[-1] is not None
    assert len(found[-1].changes["replication_events"].new.files)
    going_on = done.validation
    assert going_on is not None
    whole = validate.validate(spark, done.warehouse, "r", done.run_id, done.settings)
    # The run itself is in `runs` only now.
    assert but_of_runs(going_on.results) == but_of_runs(whole.results)
    assert len(found) == 2


def but_of_runs(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in results if "runs" not in row["table"].split(", ")]


def test_with_other_rules_everything_is_validated_again(
    spark: SparkSession, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, warehouse = tmp_path / "r", tmp_path / "steps"
    arrive(recordings / "last-replica", root, is_over=False)
    run(spark, root, warehouse, STAGES)
    arrive(recordings / "last-replica", root, is_over=True)
    own = {"name": "has_a_time", "table": "facts", "rule": "ts IS NOT NULL", "meaning": "Each fact has a time."}
    found: list[Earlier | None] = []
    monkeypatch.setattr(validate, "find_earlier", lambda *given: found.append(find_earlier(*given)))
    monkeypatch.setattr(validate, "ALL_BYTES", 0)
    done = run(spark, root, warehouse, STAGES, expectations={"expectation": [own]})
    assert found == [None]
    assert done.validation is not None
    (row,) = (row for row in done.validation.results if row["expectation"] == "has_a_time")
    assert row["rows_checked"] == done.counts["facts"]
