"""The state of a partition at a place in its order, from the rows of its timelines, and in words.

The words are those of `replay.engine.state_words`, one line per broker, which a test compares; a `?` stands for what
the tables do not know, and what is only bounded says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pipelines.lookup.reading import Row, newest, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.lookup.places import Place
    from pipelines.lookup.reading import Tables

# Events that are rare in a partition, and from which everything but offsets follows.
RARE = (
    "partition_change", "isr_request", "broker_change", "config_change", "topic_change", "role_change", "log_load",
    "truncation", "log_start_change",
)  # fmt: skip
SURE = ("observed", "derived")
LEO = ("seq", "broker_id", "observer", "leader_epoch", "leo", "evidence")
HW = ("seq", "broker_id", "leader_epoch", "hw", "step", "evidence")


@dataclass(slots=True)
class Replica:
    """What one broker has of the partition."""

    broker_id: int
    role: str | None = None  # leader, follower; None: none since it started
    leader_epoch: int | None = None
    leo: int | None = None
    leo_evidence: str = "unknown"
    hw: int | None = None
    hw_evidence: str = "unknown"
    log_start: int = 0
    fenced: bool | None = None  # by the controller; None: no source tells
    stopping: bool = False
    remote_leo: dict[int, int | None] = field(default_factory=dict)  # a leader's record of its followers

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines."""
        names = ("broker_id", "role", "leader_epoch", "leo", "leo_evidence", "hw", "hw_evidence", "log_start")
        known = {name: getattr(self, name) for name in (*names, "fenced", "stopping")}
        remote = {str(broker): leo for broker, leo in sorted(self.remote_leo.items())}
        return {**known, "remote_leo": remote if self.role == "leader" else None}


@dataclass(slots=True)
class PartitionState:
    """What all brokers have of the partition, and what the controller has decided."""

    replicas: dict[int, Replica] = field(default_factory=dict)
    assigned: list[int] = field(default_factory=list)
    leader_id: int | None = None  # by the controller's last decision; None: none, or no decision is known
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    isr: list[int] | None = None
    pending: list[int] | None = None  # the ISR that the leader has asked for and not been answered yet
    min_isr: int | None = None

    def replica(self, broker: int) -> Replica:
        """Return what a broker has, from now on if it was not known."""
        return self.replicas.setdefault(broker, Replica(broker))

    def take_event(self, event: Row) -> None:
        """Let a rare event change roles, the assignment, and what is in force."""
        kind, broker = event["kind"], event["broker_id"]
        if kind == "partition_change":
            self._take_decision(event)
        elif kind == "broker_change" and broker is not None:
            replica = self.replica(broker)
            replica.fenced = replica.fenced if event["fenced"] is None else event["fenced"]
            replica.stopping = bool(event["in_controlled_shutdown"])
        elif kind == "config_change" and event["min_insync_replicas"] is not None:
            self.min_isr = event["min_insync_replicas"] or None
        elif kind == "role_change" and broker is not None:
            replica = self.replica(broker)
            replica.role, replica.leader_epoch, replica.remote_leo = event["role"], event["leader_epoch"], {}
            self._take_stated(replica, event)
        elif kind == "log_load" and broker is not None:
            replica = self.replica(broker)
            replica.role, replica.leader_epoch, replica.remote_leo = None, None, {}
            self._take_stated(replica, event)
        elif kind == "log_start_change" and broker is not None and event["log_start_offset"] is not None:
            replica = self.replica(broker)
            replica.log_start = max(replica.log_start, event["log_start_offset"])

    def take_offsets(self, leo: Sequence[Row], hw: Sequence[Row], isr: Sequence[Row] = ()) -> None:
        """Let rows of the timelines move LEOs, HWs and the ISR."""
        for row in leo:
            if row["observer"] == "local":
                replica = self.replica(row["broker_id"])
                replica.leo, replica.leo_evidence = row["leo"], row["evidence"]
            else:
                leader = self.leading(row["leader_epoch"])
                if leader is not None:
                    leader.remote_leo[row["broker_id"]] = row["leo"] if row["leo"] >= 0 else None
        for row in hw:
            replica = self.replica(row["broker_id"])
            replica.hw, replica.hw_evidence = row["hw"], row["evidence"]
        for row in isr:
            self.take_isr(row)

    def take_isr(self, row: Row) -> None:
        """Let a row of the ISR's timeline count."""
        if row["state"] == "committed":
            self.isr, self.pending = row["isr"], None
            self.partition_epoch = row["partition_epoch"]
        elif row["outcome"] != "rejected":
            self.pending = row["isr"]

    def leading(self, epoch: int | None) -> Replica | None:
        """Return the replica that leads in an epoch."""
        return next((one for one in self.replicas.values() if one.role == "leader" and one.leader_epoch == epoch), None)

    def _take_decision(self, event: Row) -> None:
        self.assigned = event["replicas"] or self.assigned
        for broker in self.assigned:
            self.replica(broker)
        if event["leader_id"] is not None:
            self.leader_id = event["leader_id"] if event["leader_id"] >= 0 else None
        if event["leader_epoch"] is not None:
            self.leader_epoch = event["leader_epoch"]

    @staticmethod
    def _take_stated(replica: Replica, event: Row) -> None:
        if event["leo"] is not None:
            replica.leo, replica.leo_evidence = event["leo"], event["evidence"]
        if event["hw"] is not None:
            replica.hw, replica.hw_evidence = event["hw"], event["evidence"]

    def shown(self) -> list[Replica]:
        """Return the assigned replicas, in the order of their ids; all that are known where no assignment is."""
        wanted = set(self.assigned) or set(self.replicas)
        return [self.replicas[broker] for broker in sorted(wanted & set(self.replicas))]

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines, with each replica in words."""
        replicas = [{**one.as_dict(), "words": self.words(one)} for one in self.shown()]
        names = ("leader_id", "leader_epoch", "partition_epoch", "isr", "pending", "assigned", "min_isr")
        return {**{name: getattr(self, name) for name in names}, "replicas": replicas}

    def words(self, one: Replica) -> str:
        """Return a broker's state: `1 leads 4: leo 3 hw 2 isr 1,2 [2 3 3 ?]`."""
        role = {"leader": "leads", "follower": "follows", None: "has no role"}[one.role]
        named = f"{one.broker_id} {role}" + ("" if one.role is None else f" {_or_unknown(one.leader_epoch)}")
        parts = [f"{named}: leo {_value(one.leo, one.leo_evidence)} hw {_value(one.hw, one.hw_evidence)}"]
        if one.log_start:
            parts.append(f"start {one.log_start}")
        if one.role == "leader":
            if one.leader_epoch == self.leader_epoch:
                asked = sorted(set(self.pending or ()) - set(self.isr or ()))
                pending = f"+{_listed(asked)}" if asked else " pending" if self.pending is not None else ""
                parts.append(f"isr {'?' if self.isr is None else _listed(self.isr)}{pending}")
            others = [broker for broker in sorted(self.assigned or self.replicas) if broker != one.broker_id]
            if others:
                known = (f"{broker} {_or_unknown(one.remote_leo.get(broker))}" for broker in others)
                parts.append(f"[{' '.join(known)}]")
        marks = [word for word, is_so in (("fenced", one.fenced), ("stopping", one.stopping)) if is_so]
        return " ".join([*parts, *(f"({mark})" for mark in marks)])


def state_at(tables: Tables, place: Place, seq: int, rare: Sequence[Row]) -> PartitionState:
    """Return the state after the event at `seq`; `rare`: the partition's rare events (`rare_events`), in order."""
    state = PartitionState()
    past = [event for event in rare if event["seq"] <= seq]
    for event in past:
        state.take_event(event)
    upto = place.condition & (pc.field("seq") <= seq)
    _take_newest(state, tables, place, seq, past)
    for leader in [one for one in state.replicas.values() if one.role == "leader"]:
        since = max(event["seq"] for event in past if _began(event, leader))
        told = (pc.field("observer") == "leader") & (pc.field("leader_epoch") == leader.leader_epoch)
        state.take_offsets(rows(tables, "leo_timeline", upto & (pc.field("seq") >= since) & told, LEO), [])
    for row in rows(tables, "isr_timeline", upto):
        state.take_isr(row)
    for row in rows(tables, "log_start_timeline", upto):
        replica = state.replica(row["broker_id"])
        replica.log_start = max(replica.log_start, row["log_start_offset"])
    return state


def _take_newest(state: PartitionState, tables: Tables, place: Place, seq: int, past: Sequence[Row]) -> None:
    """Let the last row of each broker's LEO and HW count, unless a role or a loaded log stated another one later."""
    brokers: set[Any] = set(state.replicas)
    at = _last_stated(past)

    def local(where: pc.Expression) -> list[Row]:
        return rows(tables, "leo_timeline", place.condition & where & (pc.field("observer") == "local"), LEO)

    def marks(where: pc.Expression) -> list[Row]:
        return hw_rows(tables, place.condition & where, HW)

    for row in newest(local, lambda row: row["broker_id"], brokers, seq).values():
        if row["seq"] >= at.get((row["broker_id"], "leo"), -1):
            state.take_offsets([row], [])
    for row in newest(marks, lambda row: row["broker_id"], brokers, seq).values():
        if row["seq"] >= at.get((row["broker_id"], "hw"), -1):
            state.take_offsets([], [row])


def hw_rows(tables: Tables, where: pc.Expression, columns: Sequence[str] = ()) -> list[Row]:
    """Return rows of the HWs in order: where a role is taken up, its own row comes before what it came to."""
    return sorted(rows(tables, "hw_timeline", where, columns), key=lambda row: (row["seq"], row["step"] != "role"))


def rare_events(tables: Tables, place: Place) -> list[Row]:
    """Return the partition's events that say who leads, who is there, and what is in force; in order."""
    return rows(tables, "replication_events", place.condition & pc.field("kind").isin(RARE))


def _began(event: Row, leader: Replica) -> bool:
    return (
        event["kind"] == "role_change"
        and event["role"] == "leader"
        and (event["broker_id"], event["leader_epoch"]) == (leader.broker_id, leader.leader_epoch)
    )


def _last_stated(past: Sequence[Row]) -> dict[tuple[int, str], int]:
    """Return where a role or a loaded log last stated a broker's LEO and HW, which older rows do not overrule."""
    found: dict[tuple[int, str], int] = {}
    for event in past:
        if event["kind"] in {"role_change", "log_load"}:
            found |= {(event["broker_id"], name): event["seq"] for name in ("leo", "hw") if event[name] is not None}
    return found


def _value(value: int | None, evidence: str) -> str:
    return "?" if value is None else str(value) if evidence in SURE else f"{value} ({evidence})"


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


def _listed(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
