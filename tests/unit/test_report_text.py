"""What the report says of near losses, consumers and replicas that differ."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import mistune
import pytest

from pipelines.stages.report_text import (
    EFFECT_WORDS,
    ENDS,
    STATE_WORDS,
    incident_text,
    markdown,
    markdown_text,
)
from pipelines.stages.summary_text import terminal
from schemas.consequences import CONSUMER_EFFECTS, PARTITION_RISK
from schemas.incidents import DATA_LOSS_INCIDENTS

START = datetime(2024, 5, 1, 3, 0, tzinfo=UTC)
PLACE = {"topic": "orders", "incarnation": 0, "partition": 0}
NEARLY = {
    **PLACE, "seconds": 6.55, "start_ts": START, "records_at_risk": 127, "leader_id": 2, "acked_all": 0,
    "acked_one": 92, "ended_by": "expanded",
}  # fmt: skip


def findings(**some: Any) -> dict[str, Any]:
    """Of a recording in which nothing was lost."""
    sections = ("incidents", "conformance", "coverage", "not_covered", "at_risk", "nearly_lost", "consumer_effects")
    empty: dict[str, Any] = dict.fromkeys((*sections, "divergences"), ())
    return {
        **empty,
        "recording_id": "small",
        "verdict": "nothing_lost",
        "headline": "Nothing acknowledged was lost",
        "incidents_with_unknown_acknowledgements": 0,
        "tables": {"facts": 1},
        "rejected_lines": {"lines": 0},
        "expectations": {"checked": None, "failed": []},
        "look_at": {"warehouse": "w", "queries": []},
        **some,
    }


def both(found: dict[str, Any]) -> list[str]:
    """The summary on a terminal, which is in test_summary_text.py, and the whole report."""
    return [terminal(found), markdown(found)]


def test_a_near_loss_says_what_one_broker_alone_had_and_how_it_ended() -> None:
    assert "nearly lost: orders-0" in terminal(findings(nearly_lost=[NEARLY]))
    text = markdown(findings(nearly_lost=[NEARLY]))
    assert "Nearly lost" in text
    assert "orders-0: for 6.5 s from 2024-05-01 03:00:00.000 UTC up to 127 records on broker 2 only" in text
    assert "(acknowledged meanwhile: acks=all 0, acks=1 92); then: another replica joined the ISR" in text


def test_a_span_that_never_ended_and_unknown_answers_are_said() -> None:
    row = {**NEARLY, "seconds": None, "ended_by": None, "acked_all": None, "acked_one": None}
    text = markdown(findings(nearly_lost=[row]))
    assert "to the end of the recording" in text
    assert "(acknowledged meanwhile: acks=all unknown, acks=1 unknown)" in text
    assert "then:" not in text


def test_time_at_risk_is_said_per_state() -> None:
    row = {"state": "leaderless", "spans": 2, "partitions": 1, "seconds": 9.0, "still_open": 1}
    text = markdown(findings(at_risk=[row]))
    assert "without a leader: 9.0 s in 1 partition, 2 spans, 1 still so at the end" in text
    assert "still at risk when the recording ends: without a leader 1 partition" in terminal(findings(at_risk=[row]))
    assert "at risk" not in terminal(findings(at_risk=[{**row, "still_open": 0}]))
    named = [{"state": "leaderless", "topic": "orders", "incarnation": 0, "partition": at} for at in range(3)]
    shown = terminal(findings(at_risk=[{**row, "partitions": 9, "still_open": 5}], still_at_risk=named))
    assert "without a leader orders-0, orders-1, orders-2 and 2 more" in " ".join(shown.split())


def test_time_at_risk_that_never_ended_is_no_number() -> None:
    row = {"state": "isr_one", "spans": 4, "partitions": 4, "seconds": None, "still_open": 4}
    text = markdown(findings(at_risk=[row]))
    assert "one of several replicas in the ISR: in 4 partitions, 4 spans, 4 still so at the end" in text


def test_what_consumers_saw_is_said_per_client() -> None:
    row = {"client_id": "billing", "effect": "read_then_lost", "records": 3, "partitions": 1, "first_ts": START}
    text = markdown(findings(consumer_effects=[row]))
    assert "billing: read records that were lost later: 3 records, 1 partition, first 2024-05-01" in text
    summary = terminal(findings(consumer_effects=[row]))
    assert "consumers that read records which were lost later: billing" in summary


@pytest.mark.parametrize(("differs", "words"), [("epoch", "leader epochs 0 and 2"), ("batch", "other batches")])
def test_replicas_that_differ_are_named(differs: str, words: str) -> None:
    row = {**PLACE, "first_offset": 2, "last_offset": 4, "broker_a": 1, "broker_b": 2, "differs": differs}
    row |= {"epoch_a": 0, "epoch_b": 2, "evidence": "observed"}
    assert "replicas that differ below their high watermarks: orders-0" in terminal(findings(divergences=[row]))
    text = markdown(findings(divergences=[row]))
    assert f"orders-0: offsets 2 to 4 on brokers 1 and 2: {words} (observed)" in text


SAID = {
    "status": "reported", "mechanism": "unclean_election", "severity": "S1", "first_offset": 7, "last_offset": None,
    "records": None, "acked_all": 2, "acked_one": None,
}  # fmt: skip


def test_what_became_of_incidents_that_were_reported_is_said() -> None:
    told = {**PLACE, "first_reported": START, "before": SAID}
    complete = {**SAID, "status": "revised", "last_offset": 9, "records": 3, "acked_one": 1, "severity": "S0"}
    gone = {**told, "topic": "bills", "now": None}
    again = {**told, "before": {**SAID, "status": "withdrawn"}, "now": complete}
    same = {**told, "now": {**SAID, "status": "revised"}}
    before = (
        "offsets 7 to the end (open), an unknown number of records (acknowledged: acks=all 2, acks=1 unknown), "
        "unclean_election, S1"
    )
    after = "offsets 7 to 9, 3 records (acknowledged: acks=all 2, acks=1 1), unclean_election, S0"
    found = findings(withdrawn=[gone], revised=[{**told, "now": complete}, again, same])
    plain = markdown(found).replace("\\", "")
    assert "Withdrawn or revised: what earlier runs had said, and what holds now" in plain
    first = "first reported 2024-05-01 03:00:00.000 UTC: before:"
    assert f"bills-0, {first} {before}; now: withdrawn" in plain
    assert f"orders-0, {first} {before}; now: {after}" in plain
    assert f"orders-0, {first} withdrawn; now: {after}" in plain
    assert f"{before}; now: the same, but other details of it have changed" in plain
    summary = terminal(found, width=1000)
    assert f"withdrawn or revised (4 in the report), first: bills-0, {first} {before}; now: withdrawn" in summary


def test_of_very_many_revised_incidents_some_are_shown() -> None:
    many = [{**PLACE, "first_reported": START, "before": SAID, "now": None}] * 12
    text = markdown(findings(withdrawn=many))
    assert text.count("first reported") == 10
    assert "and 2 more in" in text
    assert terminal(findings(withdrawn=many), width=1000).count("first reported") == 1


def test_nothing_is_said_where_nothing_was() -> None:
    for text in both(findings(withdrawn=[], revised=[])):
        assert "withdrawn" not in text.lower()
        assert "nearly lost" not in text.lower()
        assert "consumers" not in text
        assert "What consumers saw" not in text
        assert "differ below" not in text


def test_names_of_consumers_stay_text() -> None:
    row = {"client_id": "\x1b[2J<b>", "effect": "read_then_lost", "records": None, "partitions": 1, "first_ts": START}
    in_terminal, page = both(findings(consumer_effects=[row]))
    assert "\x1b" not in in_terminal
    assert "\\x1b[2J<b>" in in_terminal
    assert "<b>" not in page


def test_every_value_has_words() -> None:
    assert set(STATE_WORDS) == set(PARTITION_RISK.column("state").values)
    assert set(ENDS) == set(PARTITION_RISK.column("ended_by").values)
    assert set(EFFECT_WORDS) == set(CONSUMER_EFFECTS.column("effect").values)


def test_of_thousands_of_clients_that_lost_records_some_are_named() -> None:
    some = {field.name: None for field in DATA_LOSS_INCIDENTS.arrow_schema}
    counts = dict.fromkeys((n for n in some if n.startswith("acked_") or n.endswith("ed_appended")), 0)
    names = [f"shop-{k}" for k in range(5000)]
    told = {"mechanism": "other", "severity": "S2", "evidence": "bounded", "producers": names, "aborted": 0}
    incident = {**some, **counts, **PLACE, **told, "first_offset": 1, "last_offset": 2, "records": 2}
    for text in ("\n".join(incident_text(incident)), markdown(findings(incidents=[incident]))):
        assert "shop-0" in text
        assert len(text) < 5000
        assert "more" in next(line for line in text.splitlines() if "producers" in line)


@pytest.mark.parametrize(
    "text",
    ["https://evil.example/x", "FTP://evil.example", "www.evil.example", "mail@evil.example", "@everyone", "#17"],
)
def test_names_from_logs_link_nowhere_and_notify_nobody(text: str) -> None:
    told = markdown_text(f"a topic {text}")
    page = str(mistune.create_markdown(escape=False, plugins=["url"])(told))
    assert "<a " not in page
    assert not re.search(r"[@#]\w|://|www\.", page, re.IGNORECASE)
    assert re.sub("<!-- -->|</?p>", "", page).strip() == f"a topic {text}"
