"""One partition: the state of its replicas at a moment, and what happened around it, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lookup.event_words import CUT_BY, event_words, offsets_words, source_words
from pipelines.lookup.places import shown
from pipelines.lookup.reading import Row, rows
from pipelines.lookup.states import PartitionState, hw_rows, rare_events, state_at
from replay.losses.sentences import counted
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pipelines.lookup.places import Place
    from pipelines.lookup.reading import Tables

STEPS = 12  # that are told before and after a moment
MILESTONES = 40  # rare events that are told of the whole history
OFFSET_KINDS = ("seq", "broker_id", "observer", "leader_epoch", "leo_before", "leo", "evidence")


@dataclass(frozen=True, slots=True)
class Moment:
    """Which moment of a partition is asked for; neither: its end."""

    at: datetime | None = None
    around: int | None = None
    steps: int = STEPS


def partition(tables: Tables, place: Place, moment: Moment) -> dict[str, Any]:
    """Return the partition's state at a moment, and its story: around the moment, or its milestones up to its end."""
    first, last = _ends(tables, place)
    whole = moment.at is None and moment.around is None
    seq = _seq_of(tables, place, moment, first, last)
    rare = rare_events(tables, place)
    after = _event_at(tables, place, seq)
    state = state_at(tables, place, seq, rare)
    steps = _milestones(tables, place, rare) if whole else _steps(tables, place, rare, seq, moment.steps)
    return {
        **place.as_dict(),
        "seq": seq,
        "first_seq": first,
        "last_seq": last,
        "ts": after["ts"] if after else None,
        "asked_at": moment.at,
        "state": state.as_dict(),
        "incidents": _incidents(tables, place),
        "is_whole_history": whole,
        "left_out": max(0, len(_worth(rare)) - MILESTONES) if whole else 0,
        "steps": steps,
    }


def _ends(tables: Tables, place: Place) -> tuple[int, int]:
    """Return the first and the last place in the partition's order."""
    seqs = tables.dataset("replication_events").to_table(columns=["seq"], filter=place.condition)["seq"]
    if not len(seqs):
        message = f"nothing of {shown(place.name)} was replayed"
        raise InputError(message)
    ends = pc.min_max(seqs).as_py()
    return ends["min"], ends["max"]


def _seq_of(tables: Tables, place: Place, moment: Moment, first: int, last: int) -> int:
    """Return the place in the order that a moment means."""
    if moment.around is not None:
        if not first <= moment.around <= last:
            message = f"{shown(place.name)} has no seq {moment.around}: it has {first} to {last}"
            raise InputError(message)
        return moment.around
    if moment.at is None:
        return last
    at = pa.scalar(moment.at, pa.timestamp("us", "UTC"))
    where = place.condition & (pc.field("ts") <= at)
    seqs = tables.dataset("replication_events").to_table(columns=["seq"], filter=where)["seq"]
    if not len(seqs):
        begins = _event_at(tables, place, first)
        when = f"{begins['ts']:%Y-%m-%d %H:%M:%S} UTC" if begins else "unknown"
        message = f"nothing is known of {shown(place.name)} at that time: its first event is of {when}"
        raise InputError(message)
    return int(pc.max(seqs).as_py())


def _event_at(tables: Tables, place: Place, seq: int) -> Row | None:
    found = rows(tables, "replication_events", place.condition & (pc.field("seq") == seq), ("seq", "ts", "kind"))
    return found[0] if found else None


def _incidents(tables: Tables, place: Place) -> list[Row]:
    names = ("incident_id", "severity", "mechanism", "first_offset", "last_offset", "records", "lost_ts", "evidence")
    return rows(tables, "data_loss_incidents", place.condition, names, order=("lost_ts", "incident_id"))


def _worth(rare: Sequence[Row]) -> list[Row]:
    """Return the events that a history is told by: no registrations before anything was there, no pending changes."""
    kinds = {"config_change", "partition_change", "role_change", "log_load", "truncation", "topic_change"}
    return [
        event
        for event in rare
        if event["kind"] in kinds
        or (event["kind"] == "broker_change" and (event["fenced"] or event["in_controlled_shutdown"]))
        or event["kind"] == "log_start_change"
    ]


def _milestones(tables: Tables, place: Place, rare: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the last milestones of the partition's history, with what they cut."""
    cuts = {(row["seq"], row["broker_id"]): row for row in rows(tables, "log_truncations", place.condition)}
    told = []
    for event in _worth(rare)[-MILESTONES:]:
        cut = cuts.get((event["seq"], event["broker_id"]))
        told.append(_step(event, [] if cut is None else [_cut_words(cut)], []))
    return told


def _steps(tables: Tables, place: Place, rare: Sequence[Row], seq: int, count: int) -> list[dict[str, Any]]:
    """Return the events around a moment, what each came to, and the state of those whom it moved."""
    low, high = seq - count, seq + count
    span = place.condition & (pc.field("seq") >= low) & (pc.field("seq") <= high)
    events = rows(tables, "replication_events", span)
    if not events:
        return []
    leo = _by_seq(rows(tables, "leo_timeline", span, OFFSET_KINDS))
    hw = _by_seq(hw_rows(tables, span))
    isr = _by_seq(rows(tables, "isr_timeline", span))
    cuts = _by_seq(rows(tables, "log_truncations", span))
    span_of_commits = place.condition & (pc.field("commit_seq") >= low) & (pc.field("commit_seq") <= high)
    commits = _by_seq(rows(tables, "commit_latency", span_of_commits), "commit_seq")
    state = state_at(tables, place, events[0]["seq"] - 1, rare)
    told = []
    for event in events:
        at = event["seq"]
        before = {one.broker_id: state.words(one) for one in state.shown()}
        state.take_event(event)
        state.take_offsets(leo.get(at, ()), hw.get(at, ()), isr.get(at, ()))
        cut = {row["broker_id"] for row in cuts.get(at, ())}
        came = [
            *map(_cut_words, cuts.get(at, ())),
            *(_leo_words(row, state) for row in leo.get(at, ()) if _is_move(row, cut)),
            *(_hw_words(row) for row in hw.get(at, ()) if row["hw"] != row["hw_before"]),
            *map(_isr_words, isr.get(at, ())),
            *map(_commit_words, commits.get(at, ())),
        ]
        moved = [state.words(one) for one in state.shown() if state.words(one) != before.get(one.broker_id)]
        told.append(_step(event, came, moved))
    return told


def _is_move(row: Row, cut: set[int]) -> bool:
    """Whether a row of the LEOs says more than that a broker cut its log, which is said already."""
    return row["leo"] != row["leo_before"] and not (row["observer"] == "local" and row["broker_id"] in cut)


def _step(event: Row, came: list[str], states: list[str]) -> dict[str, Any]:
    names = ("seq", "ts", "kind", "evidence")
    what = {"what": event_words(event), "source": source_words(event)}
    return {**{name: event[name] for name in names}, **what, "came_of_it": came, "states": states}


def _by_seq(found: list[Row], name: str = "seq") -> dict[int, list[Row]]:
    by: dict[int, list[Row]] = {}
    for row in found:
        by.setdefault(row[name], []).append(row)
    return by


def _cut_words(row: Row) -> str:
    before = "unknown" if row["leo_before"] is None else row["leo_before"]
    removed = "" if row["records_removed"] is None else f", {counted(row['records_removed'])}"
    return f"broker {row['broker_id']} cut its log: {before} to {row['leo_after']}{removed} ({CUT_BY[row['cause']]})"


def _leo_words(row: Row, state: PartitionState) -> str:
    sure = "" if row["evidence"] in {"observed", "derived"} else f" ({row['evidence']})"
    before = "unknown" if row["leo_before"] in (None, -1) else row["leo_before"]
    moved = f"{before} to {row['leo'] if row['leo'] >= 0 else 'unknown'}{sure}"
    if row["observer"] == "local":
        return f"log end of broker {row['broker_id']}: {moved}"
    leader = state.leading(row["leader_epoch"])
    who = "the leader" if leader is None else f"broker {leader.broker_id}"
    return f"what {who} knows of broker {row['broker_id']}: {moved}"


def _hw_words(row: Row) -> str:
    sure = "" if row["evidence"] in {"observed", "derived"} else f" ({row['evidence']})"
    before = "unknown" if row["hw_before"] is None else row["hw_before"]
    by = "" if row["cause_broker_id"] in (None, row["broker_id"]) else f", by broker {row['cause_broker_id']}"
    return f"high watermark of broker {row['broker_id']}: {before} to {row['hw']}{sure}{by}"


def _isr_words(row: Row) -> str:
    before = "unknown" if row["isr_before"] is None else row["isr_before"]
    state = row["state"].replace("_", " ")
    low = ", below min.insync.replicas" if row["under_min_isr"] else ""
    return f"ISR {before} to {row['isr']}: {state} ({row['change']}){low}"


def _commit_words(row: Row) -> str:
    end = None if row["last_offset"] is None else row["last_offset"] + 1
    by = "" if row["last_replica_id"] is None else f", by the fetch of broker {row['last_replica_id']}"
    return f"committed: {offsets_words(row['base_offset'], end)} (acks=all){by}"
