"""A write to a table replaces what was set aside of the rows that it replaces, and leaves the rest aside."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from pipelines.intake.ledger import Change
from pipelines.warehouse.aside import all_stay, as_rows, left_by, left_by_reading, none_stay
from pipelines.warehouse.changes import Changes, among
from replay.evidence.tenures import micros
from schemas.events import REPLICATION_EVENTS
from schemas.runs import SET_ASIDE

HOUR = "2026-11-21T03:00:00.000Z"
NEXT = "2026-11-21T04:00:00.000Z"


def aside(table: str, *rows: dict[str, Any]) -> pa.Table:
    told = {"recording_id": "r", "run_id": "run", "table": table, "reason": "why", "severity": "warning", "key": "{}"}
    return pa.Table.from_pylist([{**told, "row": json.dumps(row)} for row in rows], SET_ASIDE.arrow_schema)


def event(topic: str, seq: int, window: str | None) -> dict[str, Any]:
    return {"topic": topic, "incarnation": 0, "partition": 0, "seq": seq, "window": window}


def seqs(rows: pa.Table) -> list[int]:
    return [json.loads(text)["seq"] for text in rows["row"].to_pylist()]


EVENTS = aside("replication_events", event("a", 1, HOUR), event("a", 2, NEXT), event("b", 3, NEXT), event("a", 4, None))


def since(topic: str, time: str) -> Changes:
    begin = as_rows("replication_events", aside("replication_events", event(topic, 0, time)))["window"][0].as_py()
    return Changes({(topic, 0, 0): micros(begin)})


def test_rows_of_the_windows_that_are_replaced_go() -> None:
    assert seqs(left_by("replication_events", since("a", NEXT).within(REPLICATION_EVENTS))(EVENTS)) == [1, 3, 4]
    assert seqs(left_by("replication_events", since("a", HOUR).within(REPLICATION_EVENTS))(EVENTS)) == [3, 4]
    assert seqs(left_by("replication_events", among([("a", 0, 0)]))(EVENTS)) == [3]
    assert (seqs(none_stay(EVENTS)), seqs(all_stay(EVENTS))) == ([], [1, 2, 3, 4])


def test_facts_go_that_are_read_again_and_others_get_the_names_of_their_files() -> None:
    facts = aside("facts", *({"source_file": name, "source_line": n, "topic": "é"} for name in "abc" for n in (1, 9)))
    left = left_by_reading([Change("a", "a", 5, None), Change("b", "b.1", None, None)])(facts)
    rows = [json.loads(text) for text in left["row"].to_pylist()]
    places = [(row["source_file"], row["source_line"]) for row in rows]
    assert places == [("a", 1), ("b.1", 1), ("b.1", 9), ("c", 1), ("c", 9)]
    assert left["row"][1].as_py() == '{"source_file":"b.1","source_line":1,"topic":"é"}'  # as Spark writes it
