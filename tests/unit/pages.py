"""Pages for tests: of a small cluster in which every name is hostile, and of one that lost nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from pipelines.page.page_file import html_of
from pipelines.stages.cluster_parts import parts_of, quality_of
from pipelines.stages.incident_page import pictures
from pipelines.stages.page_contents import contents_of
from pipelines.stages.questions import asked_here
from schemas.incidents import DATA_LOSS_INCIDENTS
from schemas.tables import TABLES

START = datetime(2024, 5, 1, 3, 0, tzinfo=UTC)
LATER = START + timedelta(seconds=30)
END = START + timedelta(minutes=1)
HOSTILE = (
    "\"'><script>document.title='run'</script><img src=http://example.org/x onerror=alert(1)>{{7*7}}\u202e\x1b[31m"
)
QUOTE = f"[2024-05-01 03:00:30,000] </pre></section>{HOSTILE} (kafka.log.Log)"


class Tables:
    """Rows of tables in memory, asked as a warehouse is; a table that is not named is empty."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def arrow(self, question: str, *tables: str) -> pa.Table:
        made = {}
        for name in tables:
            schema = pa.schema([(field.name, field.type) for field in TABLES[name].arrow_schema])  # nothing required
            made[name] = pa.Table.from_pylist(self.rows.get(name, []), schema)
        return asked_here(question, made)

    def __call__(self, question: str, *tables: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.arrow(question, *tables).to_pylist()
        return rows


def incident(number: int = 0, topic: str = "orders", **some: Any) -> dict[str, Any]:
    """A row as the report has it."""
    empty: dict[str, Any] = dict.fromkeys(DATA_LOSS_INCIDENTS.arrow_schema.names)
    return {
        **empty,
        "recording_id": "small", "topic": topic, "incarnation": 0, "partition": number, "incident_id": f"{number:024x}",
        "mechanism": "unclean_election", "severity": "S1", "first_offset": 240, "last_offset": 249, "records": 10,
        "ranges": [{"leader_epoch": 0, "first_offset": 240, "last_offset": 249}], "acked_all": 7, "acked_one": 0,
        "acked_all_possible": 2, "acked_one_possible": 0, "acked_possible": 2, "acked_unconfirmed": 0, "aborted": 0,
        "unacked": 1, "failed_appended": 0, "committed": 9, "consumed": 3, "consumers": [topic], "producers": [topic],
        "old_leader_id": 1, "old_leader_epoch": 0, "new_leader_id": 2, "new_leader_epoch": 1, "losing_broker_id": 1,
        "lost_ts": LATER, "truncated_ts": LATER + timedelta(seconds=5), "first_ack_ts": START, "last_ack_ts": LATER,
        "chain": [{"seq": 1, "ts": LATER, "what": f"broker 2 elected leader of epoch 1 {topic}"}],
        "chain_sources": [f"logs/{topic}/server.log:17"], "prevention": ["unclean.leader.election.enable=false"],
        "prevention_reasons": ["the partition would have waited without a leader"],
        "explanation": f"{topic}-{number} lost 10 records.", "evidence": "bounded",
        **some,
    }  # fmt: skip


def findings(*incidents: dict[str, Any], name: str = "small") -> dict[str, Any]:
    """What a report says of these incidents."""
    sections = ("not_covered", "nearly_lost", "consumer_effects", "divergences", "attribution", "cannot_tell")
    lost = bool(incidents)
    return {
        **{section: [] for section in sections},
        "recording_id": name,
        "verdict": "lost" if lost else "nothing_lost",
        "headline": f"{7 * len(incidents)} acknowledged records lost" if lost else "Nothing acknowledged was lost",
        "acknowledged_lost": 7 * len(incidents),
        "acknowledged_possible": 2 * len(incidents),
        "incidents_with_unknown_acknowledgements": 0,
        "partitions_with_incidents": len(incidents),
        "incidents": list(incidents),
        "at_risk": [{"state": "isr_one", "spans": 1, "partitions": 1, "seconds": 30.0, "still_open": 0}],
        "conformance": [
            {"check": "leader_hw", "compared": 9, "matched": 8, "partitions_differing": 1, "ratio": 8 / 9,
             "first": {"topic": name, "partition": 0, "first_mismatch_seq": 4, "note": name}}
        ],
        "rejected_lines": {"lines": 0, "reasons": []},
        "expectations": {"checked": 2, "failed": [], "run_id": "r"},
        "coverage": [
            {"broker_id": 1, "sources": ["request log"], "first_ts": START, "last_ts": END, "facts": 9,
             "kafka_versions": ["4.1.0"], "metadata_versions": []}
        ],
        "look_at": {"warehouse": f"/lake/{name}", "queries": [{"question": "What?", "tool": "python", "text": name}]},
    }  # fmt: skip


def tables(topic: str = "orders") -> Tables:
    """A minute of one partition, beside which nothing happened."""
    place = {"recording_id": "small", "topic": topic, "incarnation": 0, "partition": 0}
    sure = {**place, "evidence": "observed"}
    logged = {"recording_id": "small", "broker_id": 1, "source": "request_log", "lines": 9, "evidence": "observed"}
    return Tables(
        isr_flaps=[{**sure, "seq": 1, "broker_id": 2, "left_ts": START, "back_ts": LATER, "out_ms": 30_000}],
        partition_risk=[
            {**sure, "seq": 1, "state": "isr_one", "start_ts": START, "end_ts": LATER, "seconds": 30.0}
        ],
        commit_latency=[
            {**sure, "seq": 1, "commit_ms": 3.5, "committed_by": "fetch", "last_replica_id": 2},
            {**sure, "seq": 2, "commit_ms": None, "committed_by": None, "last_replica_id": None},
        ],
        coverage=[
            {**logged, "start_ts": START, "end_ts": LATER, "state": "logged"},
            {**logged, "start_ts": LATER, "end_ts": END, "state": "missing", "reason": topic},
        ],
        expectation_results=[
            {"recording_id": "small", "run_id": "r", "table": "facts", "severity": "error", "success": True},
            {"recording_id": "small", "run_id": "r", "table": "facts", "severity": "warning", "success": False},
        ],
        leo_timeline=[
            {**sure, "seq": seq, "ts": START + timedelta(seconds=seq), "broker_id": 1, "observer": "local",
             "leo_before": 239 + seq, "leo": 240 + seq, "step": "append"}
            for seq in range(10)
        ],
        leadership_timeline=[
            {**sure, "leader_epoch": 0, "leader_id": 1, "start_ts": START, "election": "initial", "trigger": topic},
            {**sure, "leader_epoch": 1, "leader_id": 2, "start_ts": LATER, "election": "unclean", "trigger": topic},
        ],
        isr_timeline=[
            {**sure, "seq": 3, "ts": START + timedelta(seconds=3), "leader_id": 1, "leader_epoch": 0, "isr": [1],
             "isr_before": [1, 2], "state": "committed", "change": "fenced"}
        ],
        log_truncations=[
            {**sure, "seq": 12, "ts": LATER + timedelta(seconds=5), "broker_id": 1, "leo_before": 250,
             "leo_after": 240, "cause": "leader_epoch"}
        ],
    )  # fmt: skip


def page_of(
    told: dict[str, Any], asked: Tables, quotes: dict[tuple[str, int], str] | None = None, *, is_drawn: bool = True
) -> str:
    """The page as the report stage makes it; pictures can be left out, since they take most of the time."""
    parts = [*parts_of(told, asked), quality_of(told, asked, "r")]
    drawn = parts if is_drawn else [replace(part, pictures=()) for part in parts]
    docs = "../_data_docs/small/index.html"
    return html_of(contents_of(told, drawn, lambda one: pictures(one, asked) if is_drawn else (), quotes, docs))
