"""Who was alive, and what the rule says, where the controller keeps its state in ZooKeeper.

The active controller logs whom it considers alive, and who asked to shut down, before it elects; its decisions are
known from the requests that it then sent to the brokers. Lines of different brokers are compared by their stamps. A
leader that no line shows alive was not chosen with that view: then the view is not that of the decision, and nothing is
compared.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from replay.evidence.controller_view import UNCLEAN_SETTING, settings_of, stated_settings
from replay.evidence.request_times import phases
from replay.evidence.rows import place_in_log
from replay.evidence.tenures import Vote, micros
from replay.protocol.election_rules import (
    NO_CANDIDATE,
    NO_LEADER,
    NOT_KNOWN,
    Ballot,
    ElectionChoice,
    choose,
    election_rules_of,
)
from replay.protocol.state_machines import PARTITION

if TYPE_CHECKING:
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Decision
    from replay.protocol.profile import Version

LIVE_BROKERS, CONTROLLER_STARTS, STOPPING_BROKER = "live_brokers", "controller_starts", "stopping_broker"
DECISION_LINES = (PARTITION, "replica_removed", "leader_and_isr_sent")
VIEW_LINES = (LIVE_BROKERS, CONTROLLER_STARTS, STOPPING_BROKER)


def view_lines(cluster: list[Row]) -> list[Row]:
    """The controllers' lines about who is alive, by time."""
    found = [r for r in cluster if r["kind"] == "broker_lifecycle" and r["name"] in VIEW_LINES]
    return sorted(found, key=place_in_log)


class View:
    """Whom the controller counts as alive and as shutting down, updated line by line."""

    def __init__(self) -> None:
        """Start without any line."""
        self.alive: frozenset[int] | None = None
        self.stopping: frozenset[int] = frozenset()

    def take(self, row: Row) -> None:
        """Apply the next line; a new controller knows of no broker that is shutting down."""
        if row["name"] == STOPPING_BROKER:
            self.stopping |= {row["subject_broker_id"]}
            return
        self.alive = frozenset(row["replicas"] or ())
        self.stopping = frozenset() if row["name"] == CONTROLLER_STARTS else self.stopping & self.alive


def controllers_stamps(rows: list[Row]) -> dict[int, int]:
    """Leader epoch -> when the controller first wrote of it, microseconds: transitions, or requests to brokers."""
    out: dict[int, int] = {}
    for row in rows:
        if row["kind"] == "state_change" and row["name"] in DECISION_LINES and row["leader_epoch"] is not None:
            out[row["leader_epoch"]] = min(micros(row["ts"]), out.get(row["leader_epoch"], micros(row["ts"])))
    return out


def decided_us(decision: Decision, wrote: dict[int, int]) -> int:
    """When it was decided, microseconds, if the controller wrote of it; else when a broker heard of it.

    A controller handles one event after the other: what it logs about brokers before a decision went into that
    decision, and what a second broker asked for in the meantime did not.
    """
    if decision.elects and decision.leader_epoch in wrote:
        return wrote[decision.leader_epoch]
    return phases(decision.row).taken if decision.row["correlation_id"] is not None else micros(decision.row["ts"])


def zookeeper_votes(decisions: list[Decision], cluster: list[Row], own: list[Row], version: Version) -> None:
    """Set `vote` of every decision whose view of the brokers is known; `own` are the partition's facts."""
    lines = view_lines(cluster)
    settings = stated_settings(cluster)
    told = [r for r in (*own, *cluster) if r["kind"] == "config_change" and r["topic"] is not None]
    topic = sorted((r for r in told if r["name"] == UNCLEAN_SETTING), key=by_time)
    rules = election_rules_of(version, zookeeper=True, eligible_replicas=False)
    wrote = controllers_stamps(own)
    view = View()
    place = 0
    before: Decision | None = None
    for decision in decisions:
        at = decided_us(decision, wrote)
        while place < len(lines) and micros(lines[place]["ts"]) <= at:
            view.take(lines[place])
            place += 1
        said = bisect_right(topic, at, key=lambda row: micros(row["ts"]))
        in_force = settings_of(settings, lines[place - 1]["broker_id"] if place else None)
        unclean = (topic[said - 1]["value"] if said else in_force.get(UNCLEAN_SETTING)) == "true"
        if view.alive is not None:
            ballot = ballot_of(decision, before, view, unclean=unclean)
            vote = Vote(ballot, choose(ballot, rules))
            if vote.choice.rule == NO_CANDIDATE and decision.leader in ballot.live and ballot.kind == "offline":
                ballot = ballot._replace(unclean=True)  # ElectLeaders with UNCLEAN (2.4+)
                vote = Vote(ballot, choose(ballot, rules), asked=True)
            decision.vote = doubted(vote, decision, before)
        before = decision


def by_time(row: Row) -> tuple[int, int]:
    """Sort key: stamp, then line."""
    return micros(row["ts"]), row["source_line"]


def ballot_of(decision: Decision, before: Decision | None, view: View, *, unclean: bool) -> Ballot:
    """What the controller knew, as far as its lines and the previous state tell."""
    alive = view.alive or frozenset()
    live = alive - view.stopping
    replicas = decision.replicas
    concerned = frozenset((*replicas, *(before.replicas if before else ())))
    if before is None:
        return Ballot("initial", replicas, (), live & concerned)
    kind = kind_of(decision, before, view)
    if kind == "controlled_shutdown":
        in_sync = tuple(b for b in before.isr if b not in view.stopping)
    elif kind == "offline" or (kind == "isr_change" and decision.elects):
        in_sync = tuple(b for b in before.isr if b in live)
    else:
        in_sync = decision.isr
    return Ballot(
        kind,
        replicas,
        in_sync,
        (live | ({before.leader} & alive if kind == "isr_change" else set())) & concerned,
        leader=before.leader,
        isr_before=before.isr,
        unclean=unclean,
    )


def kind_of(decision: Decision, before: Decision, view: View) -> str:
    """Which election the controller ran, by who led before and what had become of that leader.

    A failed election writes nothing: a partition only loses its leader because its replica goes offline.
    """
    if decision.leader in (before.leader, NO_LEADER):
        return "isr_change"
    if before.leader in view.stopping:
        return "controlled_shutdown"
    if before.leader not in (view.alive or ()):
        return "offline"
    if decision.replicas != before.replicas or before.adding or before.removing:
        return "reassignment"
    return "preferred"


def doubted(vote: Vote, decision: Decision, before: Decision | None) -> Vote:
    """The vote, without its answer if the view cannot be that of the decision.

    That is the case if the leader is not alive in the view. It is also the case if the answer differs and either
    versions of the partition's state are missing in between, so that the ISR is not known, or the assignment's order is
    not known and there are several candidates to choose from.
    """
    alive = decision.leader == NO_LEADER or decision.leader in vote.ballot.live
    differs = vote.choice.leader != decision.leader or vote.choice.isr not in (None, decision.isr)
    among = not decision.in_order and decision.leader in vote.choice.candidates
    if alive and not (differs and (among or (before is not None and missed_versions(before, decision)))):
        return vote
    return vote._replace(choice=ElectionChoice(NOT_KNOWN, None, None, vote.choice.candidates))


def missed_versions(before: Decision, decision: Decision) -> bool:
    """Whether the partition's state changed in between without a line about it."""
    if before.partition_epoch is None or decision.partition_epoch is None:
        return False
    return decision.partition_epoch > before.partition_epoch + 1
