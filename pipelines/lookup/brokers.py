"""One broker: when there are logs of it, when it came and went, what it led, and what was lost with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pipelines.lookup.event_words import event_words, source_words
from pipelines.lookup.reading import Row, rows
from schemas.errors import InputError

if TYPE_CHECKING:
    from pipelines.lookup.reading import Tables

PLACE = ("topic", "incarnation", "partition")
CUT = ("seq", "ts", "leader_epoch", "leo_before", "leo_after", "records_removed", "cause", "evidence")
MOST = 200  # rows of each kind
ONE_START_S = 5.0  # logs that are loaded no further apart belong to one start


def broker(tables: Tables, broker_id: int) -> dict[str, Any]:
    """Return what the tables tell of a broker; InputError if they know none of that id."""
    known = _known(tables)
    if broker_id not in known:
        there = f"there are {', '.join(map(str, sorted(known)))}" if known else "no broker is known"
        message = f"there is no broker {broker_id} in {tables.recording_id}: {there}"
        raise InputError(message)
    mine = pc.field("broker_id") == broker_id
    led = rows(tables, "leadership_timeline", pc.field("leader_id") == broker_id, order=("start_ts", *PLACE))
    cut = rows(tables, "log_truncations", mine, order=("ts", *PLACE))
    flaps = rows(tables, "isr_flaps", mine, order=("left_ts", *PLACE))
    return {
        "broker_id": broker_id,
        "coverage": rows(tables, "coverage", mine, order=("source", "start_ts")),
        "life": _life(tables, broker_id),
        "led": _some(led, ("leader_epoch", "start_ts", "end_ts", "start_offset", "election", "trigger", "evidence")),
        "led_left_out": max(0, len(led) - MOST),
        "partitions_led_at_the_end": sum(row["end_ts"] is None for row in led),
        "out_of_isr": _some(flaps, ("left_ts", "back_ts", "out_ms", "left_reason", "back_reason", "evidence")),
        "out_of_isr_left_out": max(0, len(flaps) - MOST),
        "out_at_the_end": _out_at_the_end(tables, broker_id),
        "cut": _some(cut, CUT),
        "cut_left_out": max(0, len(cut) - MOST),
        "incidents": _incidents(tables, broker_id),
    }


def _known(tables: Tables) -> set[int]:
    """Return the ids of all brokers that logs, decisions or replicas name."""
    found = {row["broker_id"] for row in rows(tables, "coverage", columns=("broker_id",))}
    for row in rows(tables, "leadership_timeline", columns=("leader_id", "candidates", "live")):
        found |= {row["leader_id"], *(row["candidates"] or ()), *(row["live"] or ())}
    for row in rows(tables, "isr_timeline", columns=("isr", "isr_before")):
        found |= {*(row["isr"] or ()), *(row["isr_before"] or ())}
    return {one for one in found if one is not None and one >= 0}


def _life(tables: Tables, broker_id: int) -> list[dict[str, Any]]:
    """Return registrations and starts, each once, though every partition has an event of it."""
    kinds = pc.field("kind").isin(["broker_change", "log_load"])
    names = (
        "seq", "ts", "kind", "broker_id", "broker_epoch", "fenced", "in_controlled_shutdown", "source_file",
        "source_line", "evidence", "leo", "hw", *PLACE,
    )  # fmt: skip
    found: dict[Any, dict[str, Any]] = {}
    loads, last = 0, None
    for row in rows(tables, "replication_events", kinds & (pc.field("broker_id") == broker_id), names, ("ts", "seq")):
        if row["kind"] == "broker_change":
            key: Any = (row["source_file"], row["source_line"], row["ts"])
            what = event_words(row)
        else:
            loads += last is None or (row["ts"] - last).total_seconds() > ONE_START_S
            key, last, what = loads, row["ts"], f"broker {broker_id} loads or makes logs"
        told = {"ts": row["ts"], "what": what, "source": source_words(row), "logs": 0, "evidence": row["evidence"]}
        found.setdefault(key, told)["logs"] += row["kind"] == "log_load"
    return sorted(found.values(), key=lambda one: (one["ts"], one["what"]))


def _out_at_the_end(tables: Tables, broker_id: int) -> list[dict[str, Any]]:
    """Return partitions whose last committed ISR lacks the broker, though it was in one before."""
    last: dict[tuple[Any, ...], Row] = {}
    been: set[tuple[Any, ...]] = set()
    names = (*PLACE, "seq", "ts", "isr", "state", "leader_id")
    for row in rows(tables, "isr_timeline", pc.field("state") == "committed", names):
        place = tuple(row[name] for name in PLACE)
        if broker_id in row["isr"]:
            been.add(place)
        if broker_id in row["isr"] or place not in last or broker_id in last[place]["isr"]:
            last[place] = row
    out = [row for place, row in sorted(last.items()) if place in been and broker_id not in row["isr"]]
    return [{**{name: row[name] for name in PLACE}, "left_ts": row["ts"]} for row in out]


def _incidents(tables: Tables, broker_id: int) -> list[dict[str, Any]]:
    """Return incidents in which the broker lost records, or led before or after."""
    roles = ("losing_broker_id", "old_leader_id", "new_leader_id")
    where = (pc.field(roles[0]) == broker_id) | (pc.field(roles[1]) == broker_id) | (pc.field(roles[2]) == broker_id)
    names = (
        *PLACE, "incident_id", "severity", "mechanism", "first_offset", "last_offset", "records", "acked_all",
        "acked_one", "acked_possible", "lost_ts", "evidence", *roles,
    )  # fmt: skip
    found = rows(tables, "data_loss_incidents", where, names, order=("severity", "lost_ts", "incident_id"))
    return [{**row, "part": _part(row, broker_id)} for row in found]


def _part(row: Row, broker_id: int) -> str:
    if row["losing_broker_id"] == broker_id:
        return "lost them"
    return "led without them" if row["new_leader_id"] == broker_id else "led before"


def _some(found: list[Row], names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in (*PLACE, *names)} for row in found[:MOST]]
