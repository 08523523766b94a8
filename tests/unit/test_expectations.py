"""Every rule catches its fault and is silent on good rows, counted by DuckDB; `test_validate` does it with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import planted_faults
import pytest
import recorded_tables as recorded
from checked_tables import counts_of, files_of
from planted_faults import FAULTS, put

from pipelines.expectations.answers import ANSWERS
from pipelines.expectations.completeness import COMPLETENESS
from pipelines.expectations.invariants import invariants
from pipelines.expectations.suites import EVERY, all_rules, house_rules
from schemas.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from planted_faults import Plant

    from pipelines.expectations.rules import TableRule

RULES = house_rules()


def broken(*plants: Plant, rules: list[TableRule] | None = None, folder: Path | None = None) -> dict[str, int]:
    """How many rows break each rule that does not hold, where every plant has a partition of its own.

    `folder`: where the rows are put into files; None: they stay in memory.
    """
    sets = [recorded.whole_rows(partition) for partition, _ in enumerate(plants)]
    for rows, plant in zip(sets, plants, strict=True):
        plant(rows)
    tables = recorded.arrow_of(recorded.together(sets))
    asked = [rule for rule in (RULES if rules is None else rules) if rule.name != "columns"]
    counts = counts_of(asked, tables if folder is None else files_of(tables, folder))
    return {rule.named: counts[rule.id] for rule in asked if counts[rule.id] > rule.allowed(counts[rule.table])}


def nothing(rows: dict[str, list[dict[str, Any]]]) -> None:
    del rows


def test_good_rows_break_nothing() -> None:
    assert broken(nothing, nothing, nothing) == {}


def test_no_rows_at_all_break_nothing() -> None:
    assert broken(lambda rows: [some.clear() for some in rows.values()]) == {}


def test_each_planted_fault_breaks_its_rule_once_and_no_other() -> None:
    assert broken(*FAULTS.values()) == dict.fromkeys(FAULTS, 1)


def test_a_fault_in_files_is_found_like_one_in_memory(tmp_path: Path) -> None:
    assert broken(*FAULTS.values(), folder=tmp_path) == dict.fromkeys(FAULTS, 1)


def test_each_rule_across_rows_and_tables_has_a_planted_fault() -> None:
    assert {rule.named for rule in (*invariants(), *COMPLETENESS)} <= set(FAULTS)
    assert len(FAULTS) >= 60


def test_each_null_that_must_not_be_and_each_unknown_word_is_caught() -> None:
    for table in EVERY:
        rules = [rule for rule in RULES if rule.table == table.name and rule.name.endswith(("_not_null", "_known"))]
        if not rules or not recorded.whole_rows()[table.name]:
            continue

        def spoil(rows: dict[str, list[dict[str, Any]]], table: Any = table) -> None:
            row = rows[table.name][0]
            nulls, words = dict(row), dict(row)
            nulls.update({column.name: None for column in table.columns if not column.nullable})
            words.update({column.name: "no such word" for column in table.columns if column.values})
            rows[table.name] = [nulls, words]

        assert broken(spoil, rules=rules).keys() == {rule.named for rule in rules}, table.name


def test_what_is_set_aside_is_not_missed_a_second_time() -> None:
    def set_aside(rows: dict[str, list[dict[str, Any]]]) -> None:
        rows["replication_events"].pop(3)
        rows["set_aside"].append({**recorded.set_aside("warning"), "table": "replication_events"})
        for table in ("hw_timeline", "conformance"):
            rows[table] = [row for row in rows[table] if 4 not in {row.get("seq"), row.get("first_mismatch_seq")}]

    assert broken(set_aside) == {"set_aside.rows_hold_checks": 1}


def test_a_warehouse_of_a_version_that_kept_no_reports_is_not_blamed() -> None:
    def before(rows: dict[str, list[dict[str, Any]]]) -> None:
        rows["incident_reports"].clear()
        rows["runs"][0].update(new_incidents=None)

    assert broken(before) == {}


def test_every_rule_says_what_it_means_for_the_answer() -> None:
    assert [rule.named for rule in RULES if not rule.answer.endswith(".")] == []
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert [table.name for table in EVERY if table.name not in ANSWERS] == []


# What an expectations file may say.


def said(text: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415

    return tomllib.loads(text)


LONG = """
[[expectation]]
name = "committed_soon"
table = "commit_latency"
rule = "commit_ts <= append_ts + INTERVAL 2 SECONDS"
meaning = "Batches are committed within two seconds."
severity = "warning"
"""


def test_severity_and_thresholds_are_as_the_file_says() -> None:
    rules = {
        rule.named: rule
        for rule in all_rules(
            said=said(
                """
                [rules.hw_timeline.hw_within_leo]
                severity = "warning"
                [rules.hw_timeline.role_known]
                max_rows = 2
                [rules.conformance.engine_conforms]
                severity = "off"
                [rules.coverage.columns]
                severity = "warning"
                [rules.isr_timeline.isr_sorted]
                max_share = 0.5
                """
            )
        )
    }
    assert rules["hw_timeline.hw_within_leo"].severity == "warning"
    assert rules["coverage.columns"].expectation().severity == "warning"
    assert rules["hw_timeline.role_known"].native is None  # Great Expectations knows no number of rows
    assert "conformance.engine_conforms" not in rules
    asked = list(rules.values())
    assert broken(put("hw_timeline", 1, role="x"), put("hw_timeline", 1, role="x"), rules=asked) == {}
    three = [put("hw_timeline", 1, role="x")] * 3
    assert broken(*three, rules=asked) == {"hw_timeline.role_known": 3}
    assert (
        broken(put("isr_timeline", 1, isr=[2, 1], leader_epoch=1), rules=asked).get("isr_timeline.isr_sorted") is None
    )


def test_an_expectation_of_ones_own_is_evaluated_like_the_others() -> None:
    asked = all_rules(said=said(LONG))
    assert broken(nothing, rules=asked) == {}
    late = put("commit_latency", 0, commit_ts=recorded.at(8), ack_ts=recorded.at(8))
    assert broken(late, rules=asked) == {"commit_latency.committed_soon": 1}
    (own,) = (rule for rule in asked if rule.name == "committed_soon")
    assert own.severity == "warning"
    assert own.answer  # that of its table


def test_what_is_null_or_too_large_breaks_no_expectation_of_ones_own() -> None:
    text = LONG.replace("commit_ts <= append_ts + INTERVAL 2 SECONDS", "last_offset + 9223372036854775807 > 0")
    assert broken(nothing, put("commit_latency", 0, commit_ts=None), rules=all_rules(said=said(text))) == {}


def test_braces_in_a_condition_are_text() -> None:
    text = LONG.replace("commit_ts <= append_ts + INTERVAL 2 SECONDS", "topic <> '{facts}'")
    assert broken(nothing, rules=all_rules(said=said(text))) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[rule.a.b]", "there is no setting 'rule'"),
        ("[rules.hw_timeline.hw_within]", "rules.hw_timeline.hw_within: there is no such rule: hw_timeline has "),
        ("[rules.hw.hw_within_leo]", "there is no table 'hw' with rules"),
        ("rules = 3", "write [rules.TABLE.RULE]"),
        ("[rules]\nhw_timeline = 'off'", "write [rules.TABLE.RULE]"),
        ("[rules.hw_timeline]\nhw_within_leo = 'off'", "rules.hw_timeline.hw_within_leo is 'off': write ["),
        (
            "[rules.hw_timeline.hw_within_leo]\nseverety = 'off'",
            "there is no 'severety': severity, max_rows, max_share",
        ),
        ("[rules.hw_timeline.hw_within_leo]\nseverity = 'fatal'", "should be one of error, warning, off"),
        ("[rules.hw_timeline.hw_within_leo]\nmax_rows = true", "max_rows is True, and should be a whole number"),
        ("[rules.hw_timeline.hw_within_leo]\nmax_share = 2", "max_share is 2, and should be a number from 0 to 1"),
        ("[rules.hw_timeline.columns]\nmax_rows = 2", "it is about columns"),
        ("[expectation]\nname = 'a'", "write each under [[expectation]]"),
        (LONG.replace("table =", "tabel ="), "expectation 1: there is no 'tabel'"),
        (LONG.replace('table = "commit_latency"', ""), "expectation 1: table is missing"),
        (LONG.replace("commit_latency", "commits"), "table is 'commits', and should be one of facts, "),
        (LONG.replace("committed_soon", "Soon!"), "name is 'Soon!': use small letters"),
        (LONG.replace("committed_soon", "key_unique"), "there is a rule commit_latency.key_unique already"),
        (LONG + LONG, "expectation 2: name: there is a rule commit_latency.committed_soon already"),
    ],
)
def test_what_the_file_says_wrongly_is_refused_with_file_and_key(text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        all_rules(said=said(text), source="my.toml")
    assert str(refused.value).startswith("my.toml: ")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "rule",
    [
        "1 = 1) UNION SELECT (1",
        "true) OR (SELECT 1",
        "true; DROP TABLE facts",
        "commit_ms <= (SELECT max(commit_ms) FROM commit_latency)",
        "topic IN (SELECT topic FROM facts)",
        "EXISTS (SELECT 1)",
        "java_method('java.lang.Runtime', 'getRuntime') IS NULL",
        "reflect('java.lang.System', 'exit', 1) IS NULL",
        "read_text('/etc/passwd') = ''",
        "getenv('HOME') = ''",
        "input_file_name() = ''",
        "rand() > 0.5",
        "current_timestamp() > append_ts",
        "count(*) > 1",
        "row_number() OVER (ORDER BY seq) > 1",
        "topic RLIKE '(a+)+$'",
        "repeat(topic, 1000000000) = ''",
        "commit_ms / 0 > 1",
        "CAST(topic AS INT) = 1",
        "broker_id = 'x'",
        "facts.topic = 'a'",
        "nowhere = 1",
        "commit_ms",
        "-broker_id < 0",
        "{facts} = 1",
        "commit_ms <= 5 -- " + "x" * 5000,
        "1 = 1 LIMIT 3) -- ",
        "",
        "((((",
    ],
)
def test_only_a_condition_over_the_tables_columns_is_let_through(rule: str) -> None:
    text = said(LONG)
    text["expectation"][0]["rule"] = rule
    with pytest.raises(InputError) as refused:
        all_rules(said=text, source="my.toml")
    assert str(refused.value).startswith("my.toml: expectation 1")


def test_faults_are_in_tables_that_are_looked_into() -> None:
    assert {name.split(".")[0] for name in planted_faults.FAULTS} <= {table.name for table in EVERY}
