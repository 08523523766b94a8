"""The validate stage: Great Expectations over the tables of one recording; results as rows, Data Docs as pages.

Each rule is first evaluated to yes or no; rows are fetched only for rules that do not hold. DuckDB reads tables whose
files lie on this machine, in this process, and Spark all others. Nothing is sent anywhere: the context is in memory,
its analytics are off, and the pages refer to nothing outside themselves.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Self

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read when Great Expectations is imported

import duckdb
import great_expectations as gx
import pandas as pd
from great_expectations.data_context.types.base import ProgressBarsConfig

from pipelines.expectations.breaking_rows import ByDuckDB, BySpark
from pipelines.expectations.counting import counts_by_duckdb, counts_by_spark, look_through
from pipelines.expectations.data_docs import Shown, escaped, publish_docs
from pipelines.expectations.database import READ_BYTES, closed_database
from pipelines.expectations.earlier import digest_of, find_earlier
from pipelines.expectations.found_rows import in_words, lines_asked, places_of, with_lines
from pipelines.expectations.invariants import CONFORMANCE_TIES
from pipelines.expectations.suites import EVERY, VALIDATED, all_rules
from pipelines.spark.hadoop import on_this_machine
from pipelines.spark.staging import SMALL_BYTES, estimated_bytes
from pipelines.stages.validation import Validation
from pipelines.warehouse.table_files import smallest
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.datasource.fluent.pandas_datasource import PandasDatasource
    from great_expectations.datasource.fluent.spark_datasource import SparkDatasource
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.expectations.breaking_rows import Tables
    from pipelines.expectations.counting import Looked
    from pipelines.expectations.database import Local
    from pipelines.expectations.earlier import Earlier
    from pipelines.expectations.rules import TableRule
    from pipelines.warehouse.delta_io import Warehouse
    from pipelines.warehouse.table_files import TableFiles

KEPT_BYTES: Final = SMALL_BYTES  # of a table that only Spark can read, and gives to DuckDB
ALL_BYTES: Final = SMALL_BYTES  # of all tables: to find out what has changed in fewer takes longer than to count them
MOST_TOLD: Final = 250_000  # rows that break a rule, which Python looks through for the first few
VIEW_PREFIX: Final = "tidemark_validated_"
INVARIANTS_SUITE: Final = "invariants"


def validate(
    spark: SparkSession,
    warehouse: Warehouse,
    recording_id: str,
    run_id: str,
    settings: Mapping[str, Any] | None = None,
    *,
    goes_on: bool = False,
) -> Validation:
    """Check every table of the recording and publish the pages; the caller writes the results to their table.

    Of the run's `settings` these count: `conformance_ties`, and `expectations`, what an expectations file says.
    `goes_on`: what held when the recording was validated last, and cannot have changed since, is not looked at again.
    """
    said, when = settings or {}, datetime.now(UTC)
    ties = said.get("conformance_ties")
    rules = all_rules(CONFORMANCE_TIES if ties is None else ties, said.get("expectations"))
    digest = digest_of(rules)
    spill = on_this_machine(spark, f"{warehouse.staging_dir(recording_id)}/validate")

    names = [table.name for table in EVERY]
    frame_of = partial(warehouse.looked_at, recording_id=recording_id)
    checked = partial(check, spark, frame_of, recording_id, run_id, rules, spill=spill, when=when)
    try:
        if goes_on:
            local, earlier = _since_earlier(warehouse, recording_id, digest, warehouse.table_files(names, recording_id))
            results, suites = checked(local=local, earlier=earlier)
        else:
            results, suites = checked(local=warehouse.files_within(names, recording_id, READ_BYTES))
    except duckdb.OutOfMemoryException:  # not everything can be spilled: all rows of a window's partition cannot
        results, suites = checked(local=warehouse.files_within(names, recording_id, SMALL_BYTES))
    docs_path = publish_docs(suites, warehouse, Shown(recording_id, run_id, when))
    failed = [row["severity"] for row in results if not row["success"]]
    return Validation(results, failed.count("error"), failed.count("warning"), docs_path, digest)


def _since_earlier(
    warehouse: Warehouse, recording_id: str, rules_digest: str, every: Mapping[str, TableFiles]
) -> tuple[Mapping[str, TableFiles], Earlier | None]:
    """Return the tables that DuckDB reads, and from which validation it goes on; None: it counts all rows."""
    is_worth_it = len(every) == len(EVERY) and sum(one.size_bytes for one in every.values()) > ALL_BYTES
    earlier = find_earlier(warehouse, recording_id, rules_digest, every) if is_worth_it else None
    if earlier is None or earlier.size_bytes > READ_BYTES:
        return smallest(every, READ_BYTES), None
    return every, earlier


def check(  # noqa: PLR0913 - what a validation is made of
    spark: SparkSession,
    frame_of: Callable[[str], DataFrame],
    recording_id: str,
    run_id: str,
    rules: Sequence[TableRule] | None = None,
    *,
    local: Mapping[str, Local] | None = None,
    earlier: Earlier | None = None,
    spill: Path | None = None,
    when: datetime | None = None,
) -> tuple[list[dict[str, Any]], list[ExpectationSuiteValidationResult]]:
    """Evaluate rules on these frames; return rows of `expectation_results`, and Great Expectations' results.

    `rules`: None, all without any settings. `local`: the tables that DuckDB reads. Of these a frame is asked for only
    if Spark evaluates a rule that reads one. `earlier`: what held of them before, and what has changed since. `spill`:
    the folder for what does not fit into DuckDB's memory. `when`: the run's time, for the pages.
    """
    rules = all_rules() if rules is None else rules
    here = dict(local or {})
    frames = {table.name: frame_of(table.name) for table in EVERY if table.name not in here}
    here |= {name: frame.toArrow() for name, frame in frames.items() if estimated_bytes(frame) <= KEPT_BYTES}
    changes = {} if earlier is None else earlier.tables
    with closed_database(here | changes, spill) as db, _Views(spark, frame_of) as views:
        looked = {name: look_through(db, name, rules, earlier) for name in here}
        given = {
            table.name: _occurring(looked[table.name]) if table.name in here else frames[table.name]
            for table in VALIDATED
        }
        with ThreadPoolExecutor(1) as beside:
            # What goes beyond a row is counted while Great Expectations works in Python.
            counted = beside.submit(
                _counts, spark, db, [rule for rule in rules if rule.native is None], looked, views, earlier
            )
            suites = _run_suites(given, rules, counted, run_id, when or datetime.now(UTC))
        counts = counted.result()
        outcomes = {_rule_id(outcome): outcome for suite in suites for outcome in suite.results}
        by_duckdb, by_spark = ByDuckDB(db), BySpark(spark, views)
        results = []
        for rule in rules:
            tables = by_duckdb if _is_told_here(rule, here, counts) else by_spark
            row = _result_row(rule, outcomes[rule.id], tables, counts)
            results.append({"recording_id": recording_id, "run_id": run_id, **row})
    return results, suites


class _Views(dict[str, str]):
    """The names of the tables' views for Spark: each is made when it is first asked for, and dropped at the end."""

    def __init__(self, spark: SparkSession, frame_of: Callable[[str], DataFrame]) -> None:
        super().__init__()
        self._spark = spark
        self._frame_of = frame_of

    def __missing__(self, name: str) -> str:
        self._frame_of(name).createOrReplaceTempView(f"{VIEW_PREFIX}{name}")
        self[name] = f"{VIEW_PREFIX}{name}"
        return self[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for view in self.values():
            self._spark.catalog.dropTempView(view)


def _is_told_here(rule: TableRule, here: Container[str], counts: Mapping[str, int]) -> bool:
    """Whether DuckDB reads all tables that a rule reads, and the events that say where its rows come from."""
    is_here = all(name in here for name in (rule.table, *rule.reads, REPLICATION_EVENTS.name))
    return is_here and counts.get(rule.id, counts[rule.table]) <= MOST_TOLD


def _counts(
    spark: SparkSession,
    db: duckdb.DuckDBPyConnection,
    rules: Sequence[TableRule],
    looked: Mapping[str, Looked],
    views: Mapping[str, str],
    earlier: Earlier | None,
) -> dict[str, int]:
    """Count the rows of each table (by its name), and the rows that break each rule (by its id)."""
    by_duckdb = [rule for rule in rules if {rule.table, *rule.reads} <= looked.keys()]
    by_spark = [rule for rule in rules if rule not in by_duckdb]
    large = [table.name for table in EVERY if table.name not in looked]
    return counts_by_duckdb(db, by_duckdb, looked, earlier) | counts_by_spark(spark, by_spark, views, large)


def _rule_id(outcome: ExpectationValidationResult) -> str:
    """Return the id of the rule that the expectation was made from."""
    meta = outcome.expectation_config.meta if outcome.expectation_config else None
    return str((meta or {})["rule"])


def _run_suites(
    frames: Mapping[str, DataFrame | pd.DataFrame],
    rules: Sequence[TableRule],
    counts: Future[dict[str, int]],
    run_id: str,
    when: datetime,
) -> list[ExpectationSuiteValidationResult]:
    """Run one suite per table for what its schema demands, and one for all rules that are counted by queries."""
    run_of = gx.RunIdentifier(run_name=run_id, run_time=when)

    def run(name: str, frame: DataFrame | pd.DataFrame, asked: list[TableRule]) -> ExpectationSuiteValidationResult:
        batch = _whole_of(name, is_small=isinstance(frame, pd.DataFrame)).get_batch({"dataframe": frame})
        suite = gx.ExpectationSuite(name, expectations=[rule.expectation() for rule in asked])
        found = batch.validate(suite, result_format="BOOLEAN_ONLY")
        found.meta |= {"run_id": run_of, "validation_time": when}
        return found

    results = [run(name, frame, [r for r in rules if r.table == name and r.native]) for name, frame in frames.items()]
    counted = [rule for rule in rules if rule.native is None]
    found = counts.result()
    breaches = pd.DataFrame([{rule.id: max(0, found[rule.id] - rule.allowed(found[rule.table])) for rule in counted}])
    return [*results, run(INVARIANTS_SUITE, breaches, counted)]


@cache
def _source(*, is_small: bool) -> PandasDatasource | SparkDatasource:
    """Return what Great Expectations reads frames through: one for all recordings of a process."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    if is_small:
        return context.data_sources.add_or_update_pandas("small tables")
    return context.data_sources.add_or_update_spark("warehouse", persist=False)


@cache
def _whole_of(name: str, *, is_small: bool) -> BatchDefinition[Any]:
    """Return what takes a frame as a whole for a table, under its name."""
    return _source(is_small=is_small).add_dataframe_asset(name).add_batch_definition_whole_dataframe("recording")


def _occurring(looked: Looked) -> pd.DataFrame:
    """Return what the table's own expectations look into: of each column the values that occur, each a few times."""
    longest = max(map(len, looked.occurring.values()), default=0)
    return pd.DataFrame(
        {
            column: pd.Series([*found, *found[:1] * (longest - len(found))], dtype=object)
            for column, found in looked.occurring.items()
        }
    )


def _result_row(
    rule: TableRule, outcome: ExpectationValidationResult, tables: Tables, counts: Mapping[str, int]
) -> dict[str, Any]:
    """Return the outcome as a row of `expectation_results`; if it failed, add count and examples for the pages."""
    failed = counts.get(rule.id, 0)  # as many as may break it, if it holds
    allowed = rule.allowed(counts[rule.table])
    row = {
        "table": ", ".join((rule.table, *rule.reads)),
        "expectation": rule.name,
        "meaning": rule.meaning,
        "severity": rule.severity,
        "success": bool(outcome.success),
        "rows_checked": counts[rule.table],
        "rows_failed": failed,
        "example": None,
        "rows_allowed": allowed,
        "answer": None,
        "places": None,
    }
    if outcome.success:
        held = f"{failed} rows break it, and {allowed} may" if failed else "no row breaks it"
        outcome.result = {"observed_value": held, "unexpected_percent": 0.0}
        return row
    many, example, places = _breaches(rule, outcome, tables)
    where = f" ({'; '.join(map(in_words, places))})" if places else ""
    may = f", and {allowed} may" if allowed else ""
    told = example if many is None else f"{many} rows break it{may}{where}. {rule.answer}"
    outcome.result = {
        "observed_value": escaped(told),
        "partial_unexpected_list": [escaped(example)],
        "unexpected_count": many or 0,
        "element_count": counts[rule.table],
        "unexpected_percent": 100.0 * (many or 0) / max(1, counts[rule.table]),
    }
    return {**row, "rows_failed": many, "example": example, "answer": rule.answer, "places": places}


def _breaches(
    rule: TableRule, outcome: ExpectationValidationResult, tables: Tables
) -> tuple[int | None, str, list[dict[str, Any]]]:
    """Return how many rows break the rule, and of the first few a JSON list and the places.

    None and no places, if the rule is not about rows.
    """
    count, examples = tables.breaking(rule)
    if examples:
        places = places_of([json.loads(example) for example in examples])
        asked = lines_asked(places, tables.names[REPLICATION_EVENTS.name])
        events = [] if asked is None else tables.events(asked)
        return count, f"[{', '.join(examples)}]", with_lines(places, events)
    said = outcome.exception_info or {}
    return None, json.dumps([said.get("exception_message") or {"columns": tables.columns(rule.table)}]), []
