"""A small valid set of all validated tables: one partition, one leader change, one loss of three records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from schemas.runs import SAID
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = dict[str, list[dict[str, Any]]]

RECORDING = "small"
START = datetime(2024, 5, 1, 3, 0, tzinfo=UTC)


def at(seconds: int) -> datetime:
    """A moment of the recording."""
    return START + timedelta(seconds=seconds)


def valid_rows(partition: int = 0) -> Rows:
    """Rows that meet every expectation; only the columns that are not null."""
    place = {"recording_id": RECORDING, "topic": "orders", "topic_id": None, "incarnation": 0, "partition": partition}
    return {
        "facts": [
            {
                "recording_id": RECORDING,
                "fact_id": f"f{partition}.{n}",
                "kind": kind,
                "broker_id": 1,
                "source_file": f"r{partition}.log",
                "source_line": n,
                "ts": at(n),
                "connection": "a-b-0" if kind in ("produce", "fetch") else None,
                "metadata_offset": n if kind == "partition_change" else None,
            }
            for n, kind in enumerate(("produce", "fetch", "partition_change", "truncation"), start=1)
        ],
        "replication_events": _events(place),
        "leo_timeline": [
            {
                **place,
                "seq": 2,
                "ts": at(2),
                "broker_id": 1,
                "observer": "local",
                "leader_epoch": 0,
                "leo_before": 0,
                "leo": 10,
                "step": "leader_append",
                "cause": "append",
                "evidence": "derived",
            },
            {
                **place,
                "seq": 3,
                "ts": at(3),
                "broker_id": 2,
                "observer": "leader",
                "leader_epoch": 0,
                "leo_before": -1,
                "leo": 7,
                "step": "leader_update_follower_leo",
                "cause": "fetch_update",
                "evidence": "derived",
            },
            {
                **place,
                "seq": 6,
                "ts": at(6),
                "broker_id": 1,
                "observer": "local",
                "leader_epoch": 1,
                "leo_before": 10,
                "leo": 7,
                "step": "truncate",
                "cause": "truncation",
                "evidence": "observed",
            },
        ],
        "hw_timeline": [
            {
                **place,
                "seq": 1,
                "ts": at(1),
                "broker_id": 1,
                "role": "leader",
                "leader_epoch": 0,
                "hw": 0,
                "step": "role",
                "evidence": "observed",
            },
            {
                **place,
                "seq": 3,
                "ts": at(3),
                "broker_id": 1,
                "role": "leader",
                "leader_epoch": 0,
                "hw_before": 0,
                "hw": 5,
                "step": "leader_maybe_increment_hw",
                "cause": "fetch_update",
                "evidence": "derived",
            },
            {
                **place,
                "seq": 4,
                "ts": at(4),
                "broker_id": 1,
                "role": "leader",
                "leader_epoch": 0,
                "hw_before": 5,
                "hw": 7,
                "step": "leader_maybe_increment_hw",
                "cause": "fetch_update",
                "evidence": "derived",
            },
        ],
        "isr_timeline": [
            {
                **place,
                "seq": 1,
                "ts": at(1),
                "leader_id": 1,
                "leader_epoch": 0,
                "partition_epoch": 0,
                "isr": [1, 2],
                "state": "committed",
                "change": "initial",
                "evidence": "observed",
            },
            {
                **place,
                "seq": 5,
                "ts": at(5),
                "leader_id": 2,
                "leader_epoch": 1,
                "partition_epoch": 1,
                "isr": [2],
                "isr_before": [1, 2],
                "state": "committed",
                "change": "election",
                "evidence": "observed",
            },
        ],
        "leadership_timeline": [
            {
                **place,
                "leader_epoch": 0,
                "leader_id": 1,
                "start_ts": at(1),
                "end_ts": at(5),
                "start_offset": 0,
                "election": "initial",
                "evidence": "observed",
            },
            {
                **place,
                "leader_epoch": 1,
                "leader_id": 2,
                "start_ts": at(5),
                "start_offset": 7,
                "election": "clean",
                "previous_leader_id": 1,
                "previous_leo": 10,
                "previous_hw": 7,
                "evidence": "observed",
            },
        ],
        "state_transitions": [
            {
                **place,
                "seq": 1,
                "place": step,
                "ts": at(1),
                "machine": machine,
                "broker_id": broker,
                "state_before": "NonExistent",
                "state": "New",
                "reason": "created",
                "leader_epoch": 0,
                "evidence": "derived",
            }
            for step, (machine, broker) in enumerate([("partition", None), ("replica", 1), ("replica", 2)])
        ],
        "transactions": [
            {
                **place,
                "seq": 2,
                "ts": at(2),
                "leader_epoch": 0,
                "client_id": "shop",
                "producer_id": 4000,
                "first_offset": 3,
                "outcome": "abort",
                "marker_offset": 6,
                "marker_ts": at(3),
                "stable_ts": at(4),
                "unstable_ms": 2000.0,
                "evidence": "derived",
            }
        ],
        "log_truncations": [
            {
                **place,
                "seq": 6,
                "ts": at(6),
                "broker_id": 1,
                "leader_epoch": 1,
                "leo_before": 10,
                "leo_after": 7,
                "hw_before": 7,
                "records_removed": 3,
                "cause": "diverging_fetch",
                "evidence": "observed",
            },
        ],
        "log_start_timeline": [
            {
                **place,
                "seq": 6,
                "ts": at(6),
                "broker_id": 2,
                "leader_epoch": 1,
                "log_start_before": 0,
                "log_start_offset": 2,
                "records_removed": 2,
                "cause": "segment_deletion",
                "evidence": "observed",
            },
        ],
        "segment_timeline": [
            {
                **place,
                "seq": 6,
                "ts": at(6),
                "broker_id": 2,
                "what": "deleted",
                "base_offset": 0,
                "next_offset": 2,
                "reason": "retention_time",
                "evidence": "observed",
            },
        ],
        "follower_states": [
            {
                **place,
                "seq": 1,
                "ts": at(1),
                "broker_id": 2,
                "leader_epoch": 0,
                "state": "fetching",
                "cause": "became_follower",
                "evidence": "derived",
            },
        ],
        "isr_flaps": [],
        "fetch_rounds": [
            {
                **place,
                "seq": 3,
                "ts": at(3),
                "broker_id": 1,
                "replica_id": 2,
                "leader_epoch": 0,
                "fetch_offset": 5,
                "bytes": 100,
                "delayed": True,
                "wait_ms": 12.5,
                "completed_by": "bytes",
                "evidence": "derived",
            },
        ],
        "commit_latency": [
            {
                **place,
                "seq": 2,
                "broker_id": 1,
                "leader_epoch": 0,
                "base_offset": 0,
                "last_offset": 4,
                "append_ts": at(2),
                "commit_ts": at(3),
                "ack_ts": at(3),
                "commit_seq": 3,
                "committed_by": "fetch",
                "last_replica_id": 2,
                "isr": [1, 2],
                "isr_size": 2,
                "error_code": 0,
                "evidence": "derived",
            },
        ],
        "data_loss_incidents": [_incident(place)],
        **_consequences(place),
        "conformance": [
            {
                **place,
                "check": f"leader_hw_{partition}",
                "compared": 200,
                "matched": 199,
                "first_mismatch_seq": 4,
                "note": "6 for 7",
            },
            {**place, "check": "follower_hw", "compared": 50, "matched": 50},
        ],
        "coverage": [
            {
                "recording_id": RECORDING,
                "broker_id": partition,
                "source": "request_log",
                "start_ts": at(first),
                "end_ts": at(last),
                "state": state,
                "reason": reason,
                "lines": 9,
                "lines_missing": lost,
                "evidence": "derived",
            }
            for first, last, state, reason, lost in (
                (1, 5, "logged", None, None),
                (5, 9, "lossy", "clients' correlation ids show it", 2),
            )
        ],
        "rejected_lines": [
            {
                "recording_id": RECORDING,
                "run_id": "run",
                "source_file": f"r{partition}.log",
                "source_line": 9,
                "reason": "cut off",
                "text": '{"requ',
            },
        ],
        "set_aside": [],
        **_metrics(place),
    }


def _metrics(place: dict[str, Any]) -> Rows:
    """A shrink that a broker marked; each partition's is another broker's."""
    known = {"broker_id": place["partition"], "metric": "IsrShrinksPerSec", "value": 1, "highest": 1}
    known |= {"evidence": "derived"}
    minute = {"recording_id": RECORDING, "minute": START, "mbean": "m", "kind": "meter", "lowest": 1, "per_second": 0.1}
    return {"partition_meters": [{**place, **known, "seq": 5, "ts": at(5)}], "cluster_metrics": [{**known, **minute}]}


def whole_rows(partition: int = 0) -> Rows:
    """The same, with Tidemark's own books: files, runs, what was reported, how many events there are."""
    rows = valid_rows(partition)
    place = {"recording_id": RECORDING, "topic": "orders", "topic_id": None, "incarnation": 0, "partition": partition}
    (incident,) = rows["data_loss_incidents"]
    run = f"run{partition}"
    return rows | {
        "files": [{"recording_id": RECORDING, "path": f"r{partition}.log", "lines": 9, "rejected": 1}],
        "event_windows": [{**place, "place": 0, "events": 6}],
        "incident_reports": [
            {
                **place, "incident_id": incident["incident_id"], "status": "reported", "first_reported": at(20),
                "first_run_id": run, "revision": 0, "digest": "d", **{name: incident.get(name) for name in SAID},
            }
        ],
        "runs": [
            {
                "recording_id": RECORDING, "run_id": run, "started": at(20), "finished": at(21), "status": "ok",
                "new_incidents": [incident["incident_id"]],
            }
        ],
    }  # fmt: skip


def together(sets: list[Rows]) -> Rows:
    """Several sets as one recording."""
    return {name: [row for rows in sets for row in rows[name]] for name in sets[0]}


def arrow_of(rows: Rows) -> dict[str, pa.Table]:
    """The rows with the tables' schemas, every column nullable, so that a fault can be planted anywhere."""
    schemas = {name: [field.with_nullable(nullable=True) for field in TABLES[name].arrow_schema] for name in rows}
    return {name: pa.Table.from_pylist(some, schema=pa.schema(schemas[name])) for name, some in rows.items()}


def set_aside(severity: str) -> dict[str, Any]:
    """A row that broke a check of its table."""
    named = {"table": "hw_timeline", "reason": "hw_not_negative: hw >= 0", "key": f'["{severity}"]', "row": '{"hw":-1}'}
    return {"recording_id": RECORDING, "run_id": "run", "severity": severity, **named}


def _events(place: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = ("partition_change", "append", "fetch_update", "fetch_update", "partition_change", "truncation")
    rows = []
    for seq, kind in enumerate(kinds, start=1):
        row = {**place, "seq": seq, "event_id": f"e{seq}", "kind": kind, "evidence": "observed", "ts": at(seq)}
        row |= {"ts_lo": at(seq), "ts_hi": at(seq)}
        if kind == "partition_change":
            row |= {"replicas": [1, 2], "isr": [1, 2] if seq == 1 else [2], "leader_id": 1 if seq == 1 else 2}
        rows.append(row)
    return rows


def _incident(place: dict[str, Any]) -> dict[str, Any]:
    return {
        **place, "incident_id": f"i{place['partition']}", "mechanism": "acks_one_leader_failure",
        "severity": "S2", "first_offset": 7, "last_offset": 9,
        "ranges": [{"leader_epoch": 0, "first_offset": 7, "last_offset": 9}], "records": 3,
        "acked_all": 0, "acked_one": 3, "unacked": 0, "committed": 0, "consumed": 0, "acked_all_possible": 0,
        "acked_one_possible": 0, "acked_possible": 0,
        "acked_unconfirmed": 0, "failed_appended": 0, "consumers": [], "old_leader_id": 1, "old_leader_epoch": 0,
        "new_leader_id": 2, "new_leader_epoch": 1, "losing_broker_id": 1, "lost_ts": at(5), "truncated_ts": at(6),
        "first_ack_ts": at(2), "last_ack_ts": at(3), "producers": ["shop"],
        "chain": [{"seq": 5, "ts": at(5), "what": "broker 2 elected"}], "chain_sources": ["controller.log:7"],
        "prevention": ["acks=all"], "prevention_reasons": ["3 of them acknowledged by broker 1 alone"],
        "explanation": "Broker 1 died before broker 2 had fetched offsets 7 to 9.", "evidence": "derived",
    }  # fmt: skip


def _consequences(place: dict[str, Any]) -> Rows:
    known = {**place, "leader_epoch": 0, "evidence": "observed"}
    span = {**known, "state": "isr_one", "leader_id": 1, "isr": [1], "min_isr": 1, "acked_all": 0, "acked_one": 3}
    ended = {"end_ts": at(3), "seconds": 1.0, "end_seq": 3, "ended_by": "expanded", "records_at_risk": 3}
    read = {"effect": "read_then_lost", "client_id": "billing", "broker_id": 1, "slot_epoch": 0, "fetches": 1}
    lost = {"first_offset": 7, "last_offset": 9, "records": 3, "incident_id": f"i{place['partition']}"}
    held = {"epoch_a": 0, "epoch_b": 0, "crc_a": 1, "crc_b": 2, "hw_a": 7, "hw_b": 7}
    return {
        "replica_divergences": [
            {
                **place, "broker_a": 1, "broker_b": 2, "first_offset": 3, "last_offset": 3, "records": 1,
                "differs": "batch", **held, "evidence": "observed",
            }
        ],
        "partition_risk": [
            {**span, "seq": 2, "start_ts": at(2), **ended},
            {**span, "seq": 5, "start_ts": at(5), "records_at_risk": 0},
        ],
        "consumer_effects": [{**known, "seq": 3, "first_ts": at(3), "last_ts": at(3), **read, **lost}],
    }  # fmt: skip


def frames_of(spark: SparkSession, rows: Rows) -> dict[str, DataFrame]:
    """The rows as frames of the tables' schemas, every column nullable, so that a fault can be planted anywhere."""
    return {name: spark.createDataFrame(table) for name, table in arrow_of(rows).items()}
