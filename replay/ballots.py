"""What the controller knew at each of its decisions, read from the metadata log up to there, and what its rule says.

KRaft writes a decision beside the registration change that brought it: a broker that is fenced, unregistered,
registered anew or loses a directory has its change after the decision, in the same batch; one that is unfenced or
begins to shut down has it before (`ReplicationControlManager`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replay.election_rules import NO_CANDIDATE, Ballot, Choice, choose, election_rules_of
from replay.spine import kept

if TYPE_CHECKING:
    from replay.election_rules import ElectionRules
    from replay.profile import Version
    from replay.rows import Row
    from replay.spine import Decision

UNCLEAN_SETTING = "unclean.leader.election.enable"
MIN_ISR_SETTING = "min.insync.replicas"
ELIGIBLE_FEATURE = "eligible.leader.replicas.version"
CLEAR_ELIGIBLE = "clear_elr"
REGISTER = "REGISTER_BROKER_RECORD"
TOPIC, BROKER = 2, 4  # resource types of a configuration record


class Vote(NamedTuple):
    """A decision's ballot and what the rule says of it."""

    ballot: Ballot
    choice: Choice
    asked: bool = False  # whether only an operator's request explains an unclean election
    lost_directory: int | None = None  # whose log directory failed: that brought the decision


class Controller:
    """The controller's knowledge, record by record."""

    def __init__(self, settings: dict[str, str]) -> None:
        """`settings`: what the brokers' files say, as text."""
        self.settings = settings
        self.overrides: dict[tuple[int, str], str] = {}  # (resource type, name) -> value
        self.fenced: dict[int, bool] = {}
        self.stopping: set[int] = set()
        self.without_directory: set[int] = set()
        self.eligible_replicas = False
        self.eligible: tuple[int, ...] = ()
        self.last_known: tuple[int, ...] = ()

    def take(self, row: Row) -> None:
        """One record of the metadata log that is not about a partition."""
        if row["kind"] == "broker_change":
            self.take_registration(row)
        elif row["kind"] == "config_change" and row["name"] in (UNCLEAN_SETTING, MIN_ISR_SETTING):
            if row["resource_type"] == TOPIC or row["subject_broker_id"] is None:
                key = (row["resource_type"], row["name"])
                self.overrides.pop(key, None)
                if row["value"]:
                    self.overrides[key] = row["value"]
        elif row["name"] == ELIGIBLE_FEATURE:
            self.eligible_replicas = int(row["value"] or 0) > 0
        elif row["name"] == CLEAR_ELIGIBLE:
            self.eligible, self.last_known = (), ()

    def take_registration(self, row: Row) -> None:
        """A registration and each change of it."""
        broker = row["subject_broker_id"]
        if row["record_type"] == REGISTER:
            self.stopping.discard(broker)
            self.without_directory.discard(broker)
        if row["fenced"] is not None:
            self.fenced[broker] = row["fenced"]
        if row["in_controlled_shutdown"]:
            self.stopping.add(broker)

    def setting(self, name: str) -> str | None:
        """The value in force: the topic's, the cluster's default, the brokers' own; None: nobody states it."""
        return self.overrides.get((TOPIC, name)) or self.overrides.get((BROKER, name)) or self.settings.get(name)

    def min_isr(self, replicas: int) -> int:
        """min.insync.replicas in force, at most the number of replicas."""
        return min(int(self.setting(MIN_ISR_SETTING) or 1), replicas)

    def live(self, brokers: tuple[int, ...]) -> frozenset[int]:
        """Those of them that may lead."""
        away = self.stopping | self.without_directory
        return frozenset(b for b in brokers if self.fenced.get(b) is False and b not in away)

    def unknown(self, brokers: tuple[int, ...]) -> frozenset[int]:
        """Those of them that no record told of."""
        return frozenset(b for b in brokers if b not in self.fenced)


def closes(row: Row, decision: Decision, before: Decision | None, eligible: tuple[int, ...]) -> bool:
    """Whether this registration change brought the decision that stands before it."""
    if before is None or row["kind"] != "broker_change" or row["ts"] != decision.row["ts"]:
        return False
    return row["subject_broker_id"] in (*before.isr, *eligible) and (bool(row["fenced"]) or loses_directory(row))


def loses_directory(row: Row) -> bool:
    """A change that says nothing of fencing or shutdown lists the directories that are left (KIP-858)."""
    return row["fenced"] is None and row["in_controlled_shutdown"] is None


def stated_settings(rows: list[Row]) -> dict[str, str]:
    """What the nodes' own configuration says, as their logs print it at the start; the lowest node id first."""
    out: dict[str, str] = {}
    for row in sorted((r for r in rows if r["broker_id"] is not None), key=lambda r: r["broker_id"]):
        if row["kind"] == "config_change" and row["topic"] is None and row["value"]:
            out.setdefault(row["name"], row["value"])
    return out


def metadata_votes(decisions: list[Decision], rows: list[Row], version: Version) -> None:
    """Set `vote` of every decision of the metadata log; `rows` are all cluster-wide facts."""
    records = sorted((r for r in rows if r["metadata_offset"] is not None), key=lambda r: r["metadata_offset"])
    controller = Controller(stated_settings(rows))
    place = 0
    before: Decision | None = None
    for decision in decisions:
        while place < len(records) and records[place]["metadata_offset"] < decision.row["metadata_offset"]:
            controller.take(records[place])
            place += 1
        closing = records[place] if place < len(records) else None
        if closing is not None and not closes(closing, decision, before, controller.eligible):
            closing = None
        if closing is not None:
            controller.take(closing)
            if loses_directory(closing):
                controller.without_directory.add(closing["subject_broker_id"])
        rules = election_rules_of(version, zookeeper=False, eligible_replicas=controller.eligible_replicas)
        decision.vote = vote_of(controller, decision, before, closing, rules)
        if closing is not None and loses_directory(closing):
            decision.vote = decision.vote._replace(lost_directory=closing["subject_broker_id"])
        controller.eligible = kept(decision.row["elr"], controller.eligible)
        controller.last_known = kept(decision.row["last_known_elr"], controller.last_known)
        before = decision


def vote_of(
    controller: Controller, decision: Decision, before: Decision | None, closing: Row | None, rules: ElectionRules
) -> Vote:
    """The ballot of one decision, and the rule's choice."""
    concerned = (*decision.replicas, *(before.replicas if before else ()))
    live, unknown = controller.live(concerned), controller.unknown(concerned)
    if before is None:
        ballot = Ballot("initial", decision.replicas, (), live, unknown)
        return Vote(ballot, choose(ballot, rules))
    stays = before.leader in live or before.leader in unknown
    in_sync = decision.isr if stays else tuple(b for b in before.isr if b in live or b in unknown)
    moved = stays and before.leader in in_sync and decision.leader not in (before.leader, -1)
    ballot = Ballot(
        "preferred" if moved else "any",
        decision.replicas,
        in_sync,
        live,
        unknown,
        leader=before.leader,
        isr_before=before.isr,
        eligible=eligible_after(controller, decision, before, in_sync, closing),
        last_known=controller.last_known,
        unclean=bool(rules.unclean_by_setting) and controller.setting(UNCLEAN_SETTING) == "true",
    )
    choice = choose(ballot, rules)
    if choice.rule == NO_CANDIDATE and decision.elects and decision.leader >= 0 and not ballot.unclean:
        ballot = ballot._replace(unclean=True)  # ElectLeaders with UNCLEAN: nothing else makes such a leader
        return Vote(ballot, choose(ballot, rules), asked=True)
    return Vote(ballot, choice)


def eligible_after(
    controller: Controller, decision: Decision, before: Decision, in_sync: tuple[int, ...], closing: Row | None
) -> tuple[int, ...]:
    """The eligible leader replicas that the decision leaves (`PartitionChangeBuilder.maybePopulateTargetElr`).

    Below min.insync.replicas, whoever leaves the ISR stays eligible, except after a shutdown that was not clean: then
    the new registration drops it.
    """
    if not controller.eligible_replicas or len(in_sync) >= controller.min_isr(len(decision.replicas)):
        return ()
    dropped: set[int] = set()
    if closing is not None and closing["record_type"] == REGISTER:
        listed = kept(decision.row["elr"], controller.eligible)
        dropped = {closing["subject_broker_id"]} - set(listed)
    return tuple(sorted((set(controller.eligible) | set(before.isr)) - set(in_sync) - dropped))
