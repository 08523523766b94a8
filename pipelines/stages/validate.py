"""The validate stage: Great Expectations over the tables of one recording; results as rows, Data Docs as pages.

Each rule is first evaluated to yes or no; rows are fetched only for rules that do not hold. Small tables are evaluated
in the driver's memory, where an expectation takes milliseconds, and large ones by Spark. Nothing is sent anywhere: the
context is in memory, its analytics are off, and the pages refer to nothing outside themselves.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read when Great Expectations is imported

import great_expectations as gx
import pandas as pd
from great_expectations.data_context.types.base import ProgressBarsConfig
from pyspark.sql import functions as F

from pipelines.expectations.data_docs import escaped, publish_docs
from pipelines.expectations.invariants import CONFORMANCE_TIES, invariants
from pipelines.expectations.rules import TableRule, table_rules
from pipelines.spark.configured import configured
from pipelines.spark.staging import SMALL_BYTES
from pipelines.warehouse.delta_io import estimated_bytes
from schemas.events import REPLICATION_EVENTS
from schemas.facts import FACTS
from schemas.runs import COVERAGE, REJECTED_LINES, SET_ASIDE
from schemas.tables import REPLAY_TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    import pyarrow as pa
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.warehouse.delta_io import Warehouse

VALIDATED: Final = (FACTS, REPLICATION_EVENTS, *REPLAY_TABLES, COVERAGE, REJECTED_LINES, SET_ASIDE)
# Up to this size a table is cached, in one task, and evaluated in the driver; of a larger one each pass reads its part.
KEPT_BYTES: Final = SMALL_BYTES
EXAMPLES: Final = 3
VIEW_PREFIX: Final = "tidemark_validated_"
INVARIANTS_SUITE: Final = "invariants"
ALIKE: Final = "keys that may stand twice"


@dataclass(frozen=True, slots=True)
class Validation:
    """The results: rows of `expectation_results`, how many rules did not hold, and where the pages are."""

    results: list[dict[str, Any]]
    errors: int
    warnings: int
    docs_path: str


def validate(
    spark: SparkSession, warehouse: Warehouse, recording_id: str, run_id: str, ties: int | None = None
) -> Validation:
    """Check every table of the recording and publish the pages; the caller writes the results to their table.

    `ties`: the setting `conformance_ties`.
    """
    names = [table.name for table in VALIDATED]
    rows = {name: small.rows for name in names if (small := warehouse.small(name, recording_id)) is not None}
    frames = {name: warehouse.looked_at(name, recording_id) for name in names}
    results, suites = check(spark, frames, recording_id, run_id, CONFORMANCE_TIES if ties is None else ties, rows)
    docs_path = publish_docs(suites, warehouse, recording_id)
    failed = [row["severity"] for row in results if not row["success"]]
    return Validation(results, failed.count("error"), failed.count("warning"), docs_path)


def check(
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    recording_id: str,
    run_id: str,
    ties: int = CONFORMANCE_TIES,
    rows: Mapping[str, pa.Table] | None = None,
) -> tuple[list[dict[str, Any]], list[ExpectationSuiteValidationResult]]:
    """Evaluate every rule on these frames; return rows of `expectation_results`, and Great Expectations' results.

    `rows`: those of the frames that are in the driver's memory already.
    """
    rules = all_rules(ties)
    views = {name: f"{VIEW_PREFIX}{name}" for name in frames}
    small = dict(rows or {})
    kept = {
        name: frame.coalesce(1).persist()
        for name, frame in frames.items()
        if name not in small and estimated_bytes(frame) <= KEPT_BYTES
    }
    for name, frame in {**frames, **kept}.items():
        frame.createOrReplaceTempView(views[name])
    try:
        small |= {name: frame.toArrow() for name, frame in kept.items()}
        looked_at = {name: _in_memory(small[name]) if name in small else frame for name, frame in frames.items()}
        # Of small tables the long query has a hundred short stages: Spark would plan it again after each of them.
        planning = {"spark.sql.adaptive.enabled": "false"} if {*small} == {*frames} else {}
        with configured(spark, planning), ThreadPoolExecutor(1) as beside:
            # The JVM plans the one long query while Great Expectations works in Python.
            counted = beside.submit(_counts, spark, [rule for rule in rules if rule.native is None], views)
            suites = _run_suites(looked_at, rules, counted, run_id)
        counts = counted.result()
        outcomes = {_rule_id(outcome): outcome for suite in suites for outcome in suite.results}
        results = [
            {
                "recording_id": recording_id,
                "run_id": run_id,
                **_result_row(spark, rule, outcomes[rule.id], views, counts),
            }
            for rule in rules
        ]
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)
        for frame in kept.values():
            frame.unpersist()
    return results, suites


def _rule_id(outcome: ExpectationValidationResult) -> str:
    """Return the id of the rule that the expectation was made from."""
    meta = outcome.expectation_config.meta if outcome.expectation_config else None
    return str((meta or {})["rule"])


def all_rules(ties: int = CONFORMANCE_TIES) -> list[TableRule]:
    """Return the rules of all validated tables, then the invariants across tables."""
    return [*(rule for table in VALIDATED for rule in table_rules(table)), *invariants(ties)]


def _counts(spark: SparkSession, rules: list[TableRule], views: Mapping[str, str]) -> dict[str, int]:
    """Count in one job the rows of each table (by its name), and the rows that break each rule (by its id).

    There are as few queries as possible: to plan and compile one takes longer than to run it on up to some millions of
    rows.
    """
    keyed = [rule for rule in rules if rule.key]
    alone = (rule for rule in rules if rule.condition is None and rule.key is None)
    asked = [_passed_once(name, view, rules) for name, view in views.items()]
    asked += [f"SELECT '{rule.id}' AS what, count(*) AS rows FROM ({rule.sql(views)})" for rule in alone]
    asked += [f"SELECT '{ALIKE}' AS what, count(*) AS rows FROM ({_alike(keyed, views)})"]
    counts = {row["what"]: row["rows"] for row in spark.sql(" UNION ALL ".join(asked)).collect()}
    return counts | {rule.id: spark.sql(rule.sql(views)).count() if counts[ALIKE] else 0 for rule in keyed}


def _passed_once(name: str, view: str, rules: list[TableRule]) -> str:
    """Return a query that counts the rows of a table, and those that break each of its conditions."""
    each = ((rule.id, rule.condition) for rule in rules if rule.table == name and rule.condition)
    broken = (f", '{rule}', count_if(NOT ({condition}))" for rule, condition in each)
    return f"SELECT explode(map('{name}', count(*){''.join(broken)})) AS (what, rows) FROM {view}"


def _alike(keyed: list[TableRule], views: Mapping[str, str]) -> str:
    """Return a query for hashes of keys that occur twice: if there are none, no key does, and no rows were moved."""
    hashes = (f"SELECT xxhash64('{rule.id}', {rule.key}) AS hashed FROM {views[rule.table]}" for rule in keyed)
    return f"SELECT hashed FROM ({' UNION ALL '.join(hashes)}) GROUP BY hashed HAVING count(*) > 1"


def _run_suites(
    frames: Mapping[str, DataFrame | pd.DataFrame],
    rules: list[TableRule],
    counts: Future[dict[str, int]],
    run_id: str,
) -> list[ExpectationSuiteValidationResult]:
    """Run one suite per table for what its schema demands, and one for all rules that are counted by queries."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    by_spark = context.data_sources.add_or_update_spark("warehouse", persist=False)
    in_memory = context.data_sources.add_or_update_pandas("small tables")
    when = gx.RunIdentifier(run_name=run_id, run_time=datetime.now(UTC))

    def run(name: str, frame: DataFrame | pd.DataFrame, asked: list[TableRule]) -> ExpectationSuiteValidationResult:
        source = in_memory if isinstance(frame, pd.DataFrame) else by_spark
        batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("recording")
        suite = gx.ExpectationSuite(name, expectations=[rule.expectation() for rule in asked])
        definition = gx.ValidationDefinition(name=name, data=batch, suite=context.suites.add(suite))
        validation = context.validation_definitions.add(definition)
        return validation.run(batch_parameters={"dataframe": frame}, result_format="BOOLEAN_ONLY", run_id=when)

    results = [run(name, frame, [r for r in rules if r.table == name and r.native]) for name, frame in frames.items()]
    counted = [rule for rule in rules if rule.native is None]
    breaches = pd.DataFrame([{rule.id: counts.result()[rule.id] for rule in counted}])
    return [*results, run(INVARIANTS_SUITE, breaches, counted)]


def _in_memory(rows: pa.Table) -> pd.DataFrame:
    """Return the rows with Arrow's types: a whole number that may be null stays one."""
    found: pd.DataFrame = rows.to_pandas(types_mapper=pd.ArrowDtype)
    return found


def _result_row(
    spark: SparkSession,
    rule: TableRule,
    outcome: ExpectationValidationResult,
    views: Mapping[str, str],
    counts: Mapping[str, int],
) -> dict[str, Any]:
    """Return the outcome as a row of `expectation_results`; if it failed, add count and examples for the pages."""
    failed: int | None = 0
    example: str | None = None
    outcome.result = {"observed_value": "no row breaks it", "unexpected_percent": 0.0}
    if not outcome.success:
        failed, example = _breaches(spark, rule, outcome, views)
        told = escaped(example)
        outcome.result = {
            "observed_value": told if failed is None or rule.native is None else f"{failed} rows break it",
            "partial_unexpected_list": [told],
            "unexpected_count": failed or 0,
            "element_count": counts[rule.table],
            "unexpected_percent": 100.0 * (failed or 0) / max(1, counts[rule.table]),
        }
    return {
        "table": ", ".join((rule.table, *rule.reads)),
        "expectation": rule.name,
        "meaning": rule.meaning,
        "severity": rule.severity,
        "success": bool(outcome.success),
        "rows_checked": counts[rule.table],
        "rows_failed": failed,
        "example": example,
    }


def _breaches(
    spark: SparkSession, rule: TableRule, outcome: ExpectationValidationResult, views: Mapping[str, str]
) -> tuple[int | None, str]:
    """Return how many rows break the rule and the first few as a JSON list; None if the rule is not about rows."""
    rows = spark.sql(rule.sql(views))
    as_json = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
    examples = [row["row"] for row in as_json.orderBy("row").limit(EXAMPLES).collect()]
    if examples:
        return rows.count(), f"[{', '.join(examples)}]"
    said = outcome.exception_info or {}
    return None, json.dumps([said.get("exception_message") or {"columns": spark.table(views[rule.table]).columns}])
