"""What ZooKeeper controllers wrote about brokers and about their state machines, as events."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from replay.engine.codes import BROKER_EPOCH
from replay.evidence.request_times import decision_window, line_window
from replay.evidence.rows import place_in_log
from replay.evidence.tenures import micros
from replay.evidence.zookeeper_view import View, controllers_stamps, decided_us, view_lines
from replay.order.front import OP_CONTROL
from replay.order.operations import Draft, Operation
from replay.protocol.state_machines import (
    CACHED,
    FOUND,
    NOTICE_MADE,
    NOTICE_READ,
    PARTITION,
    REPLICA,
    STATED,
)

if TYPE_CHECKING:
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row


NOTICES = {"propagated": NOTICE_MADE, "notified": NOTICE_READ}  # name of a fact `isr_update` -> cause of the event
FOUND_LINES = ("partition_found", "replica_found")


def broker_changes(lines: list[Row]) -> list[tuple[int, Draft]]:
    """Each broker that comes, goes or shuts down as an event, with its time in microseconds.

    A broker that goes counts as fenced, as ZooKeeper's controller has no such state.
    """
    out: list[tuple[int, Draft]] = []
    view = View()
    for row in lines:
        before, stopping = view.alive or frozenset(), view.stopping
        view.take(row)
        alive = view.alive or frozenset()
        at = micros(row["ts"])
        # a new controller knows of no broker that is shutting down
        back = (alive - before) | ((stopping - view.stopping) & alive)
        changes = [
            *((broker, {"fenced": True}) for broker in sorted(before - alive)),
            *((broker, {"fenced": False, "in_controlled_shutdown": False}) for broker in sorted(back)),
            *((broker, {"in_controlled_shutdown": True}) for broker in sorted(view.stopping - stopping)),
        ]
        for broker, fields in changes:
            told = {"broker_id": broker, "evidence": "observed", **fields}
            out.append((at, Draft("broker_change", row, line_window(at), told)))
    return out


def broker_epochs(lines: list[Row]) -> list[tuple[int, Draft]]:
    """Under which epoch a controller has each broker, where that is news: it prints all of them at each change."""
    out: list[tuple[int, Draft]] = []
    known: dict[int, int] = {}
    for row in sorted((row for row in lines if row["name"] == BROKER_EPOCH), key=place_in_log):
        broker, epoch, at = row["subject_broker_id"], row["broker_epoch"], micros(row["ts"])
        if known.get(broker) == epoch:
            continue
        known[broker] = epoch
        told = {"broker_id": broker, "broker_epoch": epoch, "controller_id": row["broker_id"], "cause": BROKER_EPOCH}
        out.append((at, Draft("observation", row, line_window(at), {**told, "evidence": "observed"})))
    return out


def stated_states(rows: list[Row]) -> list[tuple[int, Draft]]:
    """The controllers' lines about transitions of their state machines, for comparison, and about initial states."""
    out = []
    for row in rows:
        if row["kind"] == "state_change" and row["name"] in (PARTITION, REPLICA, *FOUND_LINES) and row["state_after"]:
            told = {
                "broker_id": row["broker_id"],
                "replica_id": row["replica_id"],
                "state_before": row["state_before"],
                "state": row["state_after"],
                "cause": FOUND if row["name"] in FOUND_LINES else STATED,
                "evidence": "observed",
            }
            out.append((micros(row["ts"]), Draft("observation", row, line_window(micros(row["ts"])), told)))
    return sorted(out, key=lambda one: (one[0], one[1].line))


def cached_states(rows: list[Row]) -> list[tuple[int, Draft]]:
    """The first line of a broker's metadata cache about each version of the partition that a controller sent."""
    lines = [row for row in rows if row["kind"] == "state_change" and row["name"] == CACHED]
    out: dict[tuple[int, ...], tuple[int, Draft]] = {}
    for row in sorted(lines, key=lambda row: (row["ts"], row["fact_id"])):
        place = (row["subject_broker_id"], row["controller_epoch"], row["leader_epoch"], row["partition_epoch"])
        told = {
            **{name: row[name] for name in ("broker_id", "leader_epoch", "partition_epoch")},
            "controller_id": row["subject_broker_id"],
            "cause": CACHED,
            "evidence": "observed",
        }
        at = micros(row["ts"])
        out.setdefault(place, (at, Draft("observation", row, line_window(at), told)))
    return list(out.values())


def notices(rows: list[Row]) -> list[tuple[int, Draft]]:
    """Lines about ZooKeeper's notifications of ISR changes that name the partition: a leader's, a controller's."""
    out = []
    for row in rows:
        if row["kind"] == "isr_update" and row["name"] in NOTICES and row["ts"] is not None:
            cause, broker, at = NOTICES[row["name"]], row["broker_id"], micros(row["ts"])
            told = {"broker_id": broker, "cause": cause, "evidence": "observed"}
            told |= {"controller_id": broker} if cause == NOTICE_READ else {}
            out.append((at, Draft("observation", row, line_window(at), told)))
    return sorted(out, key=lambda one: (one[0], one[1].line))


def asks(facts: PartitionFacts) -> bool:
    """Whether any leader asks the controller for an ISR: no other request is held against a broker's epoch."""
    return any(facts.profile_in(tenure.epoch, tenure.leader).asks_controller for tenure in facts.tenures)


def controller_drafts(facts: PartitionFacts) -> list[list[Draft]]:
    """What controllers wrote about brokers and state machines: before the first decision, then tenure by tenure.

    Empty if metadata decides (KRaft). Lines about brokers after the topic's deletion are left out.
    """
    mine = {b for d in facts.decisions for b in (*d.replicas, *d.isr)}
    wrote = controllers_stamps(facts.rare)
    starts = [decided_us(t.decisions[0], wrote) if t.decisions else None for t in facts.tenures]
    out: list[list[Draft]] = [[] for _ in range(len(starts) + 1)]
    if any(d.row["metadata_offset"] is not None for d in facts.decisions) or not facts.decisions:
        return out
    deleted = facts.deletion()
    lines = [r for r in view_lines(facts.cluster) if deleted is None or r["ts"] <= deleted["ts"]]
    epochs = broker_epochs([row for row in facts.cluster if row["kind"] == "broker_lifecycle"]) if asks(facts) else []
    told_of = [*broker_changes(lines), *(one for one in epochs if deleted is None or one[0] <= micros(deleted["ts"]))]
    changes = [one for one in told_of if one[1].fields["broker_id"] in mine]
    told = sorted(start for start in starts if start is not None)
    said = [*changes, *stated_states(facts.rare), *cached_states(facts.rare), *notices(facts.rare)]
    for at, draft in sorted(said, key=lambda one: one[0]):
        out[bisect_right(told, at)].append(draft)
    return out


def controller_chain(drafts: list[Draft]) -> list[Operation]:
    """What the controllers wrote in one tenure, in order."""
    return [Operation(OP_CONTROL, decision_window(d.window.est), [d]) for d in drafts]
