"""Decisions and tenures: a state of the partition that the controller chose, and a leader epoch with its decisions.

In KRaft the offsets of the metadata log are the order (`metadata_states`): a change record that names a leader
increments the leader epoch, and every record increments the partition epoch (PartitionRegistration.merge). Without
metadata other lines stand in, the best first: LeaderAndIsr requests, the leaders' own role lines, and `ISR updated`
lines for the states in between.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from replay.evidence.request_columns import RequestColumns, places_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.evidence.rows import Row
    from replay.protocol.election_rules import Ballot, ElectionChoice


Key = tuple[int, int]  # leader epoch and partition epoch of a state; -1: not stated
ISR_TAKEN_OVER = ("updated", "applied")  # leaders' lines about a committed ISR: by the answer, by the metadata


class Stamp(Protocol):
    """What is needed of a time: `replay` imports no clock."""

    @property
    def microsecond(self) -> int:
        """Microseconds within the second."""
        ...

    def timestamp(self) -> float:
        """Seconds since 1970."""
        ...


class Vote(NamedTuple):
    """A decision's ballot, and what the rule says of it."""

    ballot: Ballot
    choice: ElectionChoice
    asked: bool = False  # whether only an operator's request explains an unclean election
    lost_directory: int | None = None  # broker whose failed log directory caused the decision


@dataclass(slots=True)
class Decision:
    """The partition's state after one decision of the controller."""

    row: Row  # the fact that states it
    leader: int  # -1: none
    leader_epoch: int
    partition_epoch: int | None
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    elr: tuple[int, ...] | None
    recovering: bool
    elects: bool  # whether it begins a leader epoch
    evidence: str = "observed"
    change: str = "other"  # what it did to the ISR (`decision_causes`)
    election: str | None = None  # how its leader was elected, if it elects
    trigger: str | None = None
    asked_for: bool | None = None  # of a preferred election: whether somebody asked for it; None: not known
    vote: Vote | None = None  # what the controller knew, and what its rule says (`controller_view`)
    in_order: bool = True  # whether `replicas` are in the assignment's order; otherwise they are only sorted
    place: int = -1  # its metadata offset; if a broker's line states it, that of the decision before it

    @property
    def us(self) -> int:
        """When the controller wrote it, microseconds."""
        return micros(self.row["ts"])


@dataclass(slots=True)
class Tenure:
    """A leader epoch: who leads, and the decisions made in it (the first one elects)."""

    epoch: int
    leader: int
    decisions: list[Decision] = field(default_factory=list)


def micros(stamp: Stamp | int) -> int:
    """A UTC time in microseconds since 1970; rows already have it in that form."""
    return stamp if isinstance(stamp, int) else int(stamp.timestamp()) * 1_000_000 + stamp.microsecond


def ints(values: list[int] | None) -> tuple[int, ...]:
    """A list column's value as a tuple; null as empty."""
    return tuple(values or ())


def kept(values: list[int] | None, before: tuple[int, ...]) -> tuple[int, ...]:
    """What a record lists, else what held before it."""
    return tuple(values) if values is not None else before


def opening_of(row: Row, *, evidence: str = "observed") -> Decision:
    """The state that a full record states: the partition's first one, or a snapshot's."""
    out = decision_of(
        row,
        None,
        leader=row["leader_id"],
        epoch=row["leader_epoch"],
        version=row["partition_epoch"],
        isr=ints(row["isr"]),
        replicas=ints(row["replicas"]),
    )
    out.elects, out.evidence = True, evidence
    return out


def decision_of(  # noqa: PLR0913 - what a state is made of
    row: Row,
    before: Decision | None,
    *,
    leader: int,
    epoch: int,
    version: int | None,
    isr: Iterable[int],
    replicas: tuple[int, ...],
) -> Decision:
    """The state after a record of the metadata log; fields that it leaves out are as in `before`."""
    state = row["leader_recovery_state"]
    return Decision(
        row=row,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=version,
        isr=tuple(sorted(isr)),
        replicas=replicas,
        adding=kept(row["adding_replicas"], before.adding if before else ()),
        removing=kept(row["removing_replicas"], before.removing if before else ()),
        elr=ints(row["elr"]) if row["elr"] is not None else before.elr if before else None,
        recovering=state == 1 if state in (0, 1) else bool(before and before.recovering),
        elects=row["leader_id"] is not None,
        place=row["metadata_offset"],
    )


def is_creation(decision: Decision) -> bool:
    """Whether a first known decision created the partition; otherwise the partition is older than the evidence."""
    return not decision.leader_epoch and not decision.partition_epoch and not decision.row["in_snapshot"]


def line_decisions(facts: list[Row]) -> list[Decision]:
    """Decisions without metadata (ZooKeeper, or no dump): what the controller sent, and what brokers' lines repeat.

    The best source first: LeaderAndIsr requests, which state everything; leaders' role lines; between them, ISR changes
    from the leaders' own `ISR updated` lines and from the controller's successful answers to their AlterPartition
    requests.
    """
    told = [r for r in facts if r["kind"] == "leader_and_isr" and r["leader_epoch"] is not None]
    leads = [r for r in facts if r["kind"] == "role_change" and r["name"] == "leader" and r["leader_epoch"] is not None]
    states: dict[Key, Decision] = {}
    for row in sorted(told, key=lambda r: (r["leader_epoch"], version_of(r), r["ts"], r["broker_id"] or -1)):
        leader = row["leader_id"] if row["leader_id"] is not None else -1
        decision = from_line(row, leader, row["leader_epoch"], row["partition_epoch"], ints(row["replicas"]))
        states.setdefault((row["leader_epoch"], version_of(row)), decision)
    roles = {r["broker_id"] for r in facts if r["kind"] == "role_change"}
    everyone = sorted({b for r in (*told, *leads) for b in ints(r["isr"])} | roles)
    assigned = assignments(facts)
    known = {epoch for epoch, _ in states}
    for row in sorted(leads, key=lambda r: (r["leader_epoch"], version_of(r), r["ts"])):
        if row["leader_epoch"] not in known:
            members = {row["broker_id"], *ints(row["isr"])}
            earlier = reversed(assigned[: bisect_right(assigned, micros(row["ts"]), key=lambda one: one[0])])
            stated = next((replicas for _, replicas in earlier if members <= {*replicas}), None)
            replicas = ints(row["replicas"]) or stated or tuple(everyone)
            decision = from_line(row, row["broker_id"], row["leader_epoch"], row["partition_epoch"], replicas)
            decision.in_order = bool(stated or row["replicas"])
            states.setdefault((row["leader_epoch"], version_of(row)), decision)
    by_leader = States(states)
    for leader, partition_epoch, row in isr_changes(facts):
        key = by_leader.before(leader, partition_epoch, row)
        if key is not None:
            base = states[key]
            decision = from_line(row, leader, base.leader_epoch, partition_epoch, base.replicas)
            decision.in_order = base.in_order
            if states.setdefault((base.leader_epoch, partition_epoch), decision) is decision:
                by_leader.add(leader, (base.leader_epoch, partition_epoch))
    out = [states[key] for key in sorted(states)]
    for before, after in zip([None, *out], out, strict=False):
        after.elects = before is None or before.leader_epoch < after.leader_epoch
    return out


def assignments(facts: list[Row]) -> list[tuple[int, tuple[int, ...]]]:
    """The assignments that lines state in order, by time: the controller's when it creates the partition.

    A new partition's ISR shows it too: its first leader prints it as received, the live replicas in order.
    """
    made = [r for r in facts if r["kind"] == "state_change" and r["name"] == "partition" and r["replicas"]]
    first = [r for r in facts if r["kind"] == "role_change" and r["leader_epoch"] == 0 and r["isr"]]
    stated = [(micros(r["ts"]), ints(r["replicas"])) for r in made]
    return sorted(stated or [(micros(r["ts"]), ints(r["isr"])) for r in first])


def version_of(row: Row) -> int:
    """Partition epoch that a line states; -1 if it states none."""
    return row["partition_epoch"] if row["partition_epoch"] is not None else -1


def isr_changes(facts: list[Row]) -> list[tuple[int, int, Row]]:
    """Committed ISR changes as (leader, partition epoch after it, row): the leaders' lines first, then requests."""
    lines = [
        (r["broker_id"], r["partition_epoch"], r)
        for r in facts
        if r["kind"] == "isr_update" and r["name"] in ISR_TAKEN_OVER and r["partition_epoch"] is not None
    ]
    answered = [
        (r["replica_id"], r["partition_epoch"] + 1, r)
        for r in facts
        if r["kind"] == "isr_request" and r["error_code"] == 0 and r["partition_epoch"] is not None
    ]
    return [
        change
        for changes in (lines, answered)
        for change in sorted(changes, key=lambda change: (change[1], change[2]["ts"], change[0]))
        if change[2]["isr"] is not None
    ]


class Rising:
    """Keys of states by a number, to look up the last key among those below a number."""

    def __init__(self) -> None:
        """Start empty."""
        self.numbers: list[int] = []
        self.last: list[Key] = []  # for each number, the last key up to there

    def add(self, number: int, key: Key) -> None:
        """Add a key."""
        place = bisect_right(self.numbers, number)
        self.numbers.insert(place, number)
        self.last.insert(place, max(key, self.last[place - 1]) if place else key)
        for k in range(place + 1, len(self.last)):
            if self.last[k] >= key:
                break
            self.last[k] = key

    def below(self, number: int) -> list[Key]:
        """The last key below that number, if there is one."""
        place = bisect_left(self.numbers, number)
        return [self.last[place - 1]] if place else []


class States:
    """Keys of states by leader: an ISR change starts from the last state that its leader had."""

    def __init__(self, states: dict[Key, Decision]) -> None:
        """`states`: the first states; others are added later."""
        self.epochs: dict[tuple[int, int | None], Rising] = defaultdict(Rising)  # by leader and epoch, or all epochs
        self.times: dict[tuple[int, int | None], Rising] = defaultdict(Rising)  # of states without a version
        for key, state in sorted(states.items(), key=lambda one: one[0]):
            if key[1] >= 0:
                self.add(state.leader, key)
            else:
                for epoch in (None, key[0]):
                    self.times[state.leader, epoch].add(micros(state.row["ts"]), key)

    def add(self, leader: int, key: Key) -> None:
        """Add a state with a version."""
        for epoch in (None, key[0]):
            self.epochs[leader, epoch].add(key[1], key)

    def before(self, leader: int, partition_epoch: int, row: Row) -> Key | None:
        """Key of the state that an ISR change by its leader was made from, by version, else by time."""
        place = (leader, row["leader_epoch"])
        found = self.epochs[place].below(partition_epoch) if place in self.epochs else []
        if place in self.times:
            found += self.times[place].below(micros(row["ts"]) + 1)
        return max(found, default=None)


def from_line(row: Row, leader: int, epoch: int, partition_epoch: int | None, replicas: tuple[int, ...]) -> Decision:
    """A decision as a broker's line repeats it."""
    return Decision(
        row=row,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        isr=tuple(sorted(ints(row["isr"]) or ((leader,) if leader >= 0 else ()))),
        replicas=replicas,
        adding=ints(row["adding_replicas"]),
        removing=ints(row["removing_replicas"]),
        elr=None,
        recovering=False,
        elects=True,
    )


def followed_tenures(roles: list[Row], known: dict[int, Tenure]) -> list[Tenure]:
    """Epochs known only from followers' lines about their roles: each names its leader."""
    out: dict[int, Tenure] = {}
    for row in roles:
        epoch, leader = row["leader_epoch"], row["leader_id"]
        if (
            row["name"] == "follower"
            and epoch is not None
            and epoch not in known
            and leader is not None
            and leader >= 0
        ):
            out.setdefault(epoch, Tenure(epoch, leader))
    return list(out.values())


def fetched_tenures(fetches: Sequence[Row], known: dict[int, Tenure]) -> list[Tenure]:
    """Epochs known only from fetches: a broker that serves fetches of epoch e without error leads e."""
    told = RequestColumns(fetches)
    epoch, broker = told.stated("current_leader_epoch"), told.stated("broker_id")
    is_new = (epoch >= 0) & told.without_error & (told.stated("replica_id") >= 0) & ~np.isin(epoch, [*known])
    which = np.flatnonzero(is_new)
    return [Tenure(of, int(broker[which[places[0]]])) for (of,), places in places_by(epoch[which])]


def tenures_of(decisions: list[Decision], fetches: list[Row], roles: list[Row]) -> list[Tenure]:
    """Tenures in epoch order, from decisions, fetches and role lines."""
    tenures: dict[int, Tenure] = {}
    for decision in decisions:
        tenure = tenures.setdefault(decision.leader_epoch, Tenure(decision.leader_epoch, decision.leader))
        tenure.decisions.append(decision)
    for tenure in fetched_tenures(fetches, tenures):
        tenures[tenure.epoch] = tenure
    for tenure in followed_tenures(roles, tenures):
        tenures[tenure.epoch] = tenure
    return [tenures[epoch] for epoch in sorted(tenures)]
