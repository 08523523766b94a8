"""What the controller knew at each decision, read from the metadata log up to there, and what its rule says.

In KRaft a decision stands in the log next to the registration change that caused it. If a broker is fenced,
unregistered, registered anew or loses a directory, its change follows the decision in the same batch; if it is unfenced
or begins to shut down, its change comes before the decision (`ReplicationControlManager`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.evidence.metadata_log import PART
from replay.evidence.tenures import Vote, is_creation, kept, micros
from replay.protocol.election_rules import NO_CANDIDATE, Ballot, choose, election_rules_of
from replay.protocol.profile import parse_version

if TYPE_CHECKING:
    from replay.evidence.metadata_log import Parts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Decision
    from replay.evidence.versions import Versions
    from replay.protocol.election_rules import ElectionRules
    from replay.protocol.profile import Version

UNCLEAN_SETTING = "unclean.leader.election.enable"
MIN_ISR_SETTING = "min.insync.replicas"
ELIGIBLE_FEATURE = "eligible.leader.replicas.version"
CLEAR_ELIGIBLE = "clear_elr"
REGISTER = "REGISTER_BROKER_RECORD"
ACTIVE = "active_controller"
STARTS_US = 5_000_000  # the longest time between a node's first lines and the one that states its release
TOPIC, BROKER = 2, 4  # resource types of a configuration record


class Controller:
    """The controller's knowledge, updated record by record."""

    def __init__(self, settings: dict[str, str]) -> None:
        """`settings`: the brokers' configuration, as text."""
        self.settings = settings
        self.overrides: dict[tuple[int, str], str] = {}  # (resource type, name) -> value
        self.fenced: dict[int, bool] = {}
        self.stopping: set[int] = set()
        self.without_directory: set[int] = set()
        self.eligible_replicas = False
        self.eligible: tuple[int, ...] = ()
        self.last_known: tuple[int, ...] = ()
        self.whole = True  # whether every setting was read; otherwise a setting that was not read may be set
        self.from_snapshot = False  # whether every registration was read, because reading began at a snapshot
        self.source: tuple[bool, tuple[int, int]] | None = None  # source being read: whether a snapshot; its offsets

    def read_on(self, row: Row, parts: Parts) -> None:
        """Move on to the next record, and forget whatever records that are missing before it may have changed."""
        offset = row["metadata_offset"]
        source = (True, (offset, offset + 1)) if row["in_snapshot"] else (False, parts.extent_at(offset))
        if source == self.source:
            return
        begin, end = source[1]
        goes_on = self.from_snapshot and self.source is not None and begin - 1 <= self.source[1][0] < end
        if source[0] or not goes_on:
            self.overrides.clear()
            self.fenced.clear()
            self.stopping.clear()
            self.without_directory.clear()
            self.eligible_replicas = False
            self.from_snapshot = source[0] and offset in parts.snapshots
            self.whole = self.from_snapshot or begin == 0
        self.source = source

    def take(self, row: Row) -> None:
        """Apply one record of the metadata log that is not about a partition."""
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
        """Apply a registration or a change of one."""
        broker = row["subject_broker_id"]
        if row["record_type"] == REGISTER:
            self.stopping.discard(broker)
            self.without_directory.discard(broker)
        if row["fenced"] is not None:
            self.fenced[broker] = row["fenced"]
        if row["in_controlled_shutdown"]:
            self.stopping.add(broker)

    def setting(self, name: str) -> str | None:
        """The value in force: the topic's, else the cluster's default, else the brokers' own; None if not stated."""
        return self.overrides.get((TOPIC, name)) or self.overrides.get((BROKER, name)) or self.settings.get(name)

    def min_isr(self, replicas: int) -> int:
        """The min.insync.replicas in force, at most the number of replicas."""
        return min(int(self.setting(MIN_ISR_SETTING) or 1), replicas)

    def live(self, brokers: tuple[int, ...]) -> frozenset[int]:
        """Which of the brokers may lead."""
        away = self.stopping | self.without_directory
        return frozenset(b for b in brokers if self.fenced.get(b) is False and b not in away)

    def unknown(self, brokers: tuple[int, ...]) -> frozenset[int]:
        """Which of the brokers no record has mentioned."""
        return frozenset() if self.from_snapshot else frozenset(b for b in brokers if b not in self.fenced)


def closes(row: Row, decision: Decision, before: Decision | None, eligible: tuple[int, ...]) -> bool:
    """Whether this registration change caused the decision that stands before it."""
    if before is None or row["kind"] != "broker_change" or row["ts"] != decision.row["ts"] or row["in_snapshot"]:
        return False
    return row["subject_broker_id"] in (*before.isr, *eligible) and (bool(row["fenced"]) or loses_directory(row))


def loses_directory(row: Row) -> bool:
    """Whether directories were lost: such a change states neither fencing nor shutdown, only those left (KIP-858)."""
    return row["fenced"] is None and row["in_controlled_shutdown"] is None


Settings = dict[int, dict[str, str]]  # node -> what its own configuration says, by name


def stated_settings(rows: list[Row]) -> Settings:
    """The nodes' own configuration, as their logs print it at startup."""
    out: Settings = {}
    for row in rows:
        if row["kind"] == "config_change" and row["topic"] is None and row["broker_id"] is not None and row["value"]:
            out.setdefault(row["broker_id"], {}).setdefault(row["name"], row["value"])
    return out


def settings_of(stated: Settings, controller: int | None) -> dict[str, str]:
    """The settings of the active controller, completed by the other nodes', lowest id first.

    `controller`: its node id; None if unknown.
    """
    nodes = sorted(stated, key=lambda node: (node != controller, node), reverse=True)
    return {name: value for node in nodes for name, value in stated[node].items()}


class Quorum:
    """Which node was the active controller, with its release and settings."""

    def __init__(self, rows: list[Row], versions: Versions) -> None:
        """`rows`: cluster-wide facts; only the nodes' own lines are used."""
        self.versions = versions
        self.settings = stated_settings(rows)
        self.active = {
            row["controller_epoch"]: (row["broker_id"], micros(row["ts"]))
            for row in rows
            if row["name"] == ACTIVE and row["broker_id"] is not None and row["ts"] is not None
        }

    def settings_in(self, epoch: int | None) -> dict[str, str]:
        """The settings of the active controller of a controller epoch."""
        return settings_of(self.settings, self.active.get(epoch, (None, 0))[0])

    def version_in(self, epoch: int | None) -> Version | None:
        """Its release, which it may state shortly after it became active; None if unknown."""
        if epoch not in self.active:
            return None
        node, since = self.active[epoch]
        return parse_version(self.versions.at(node, since + STARTS_US).version)


def metadata_votes(
    decisions: list[Decision], rows: list[Row], version: Version, versions: Versions, parts: Parts
) -> None:
    """Set `vote` of every decision of the metadata log; `rows` are all cluster-wide facts.

    The active controller decides by its own release (`version` if that is unknown) and its own settings.

    No vote is set for a state known only from a broker's line or a snapshot, nor for a decision made from a state that
    is not known: there nothing says who was in sync.
    """
    records = [r for r in rows if r["metadata_offset"] is not None and r["kind"] != PART]
    records.sort(key=lambda r: (r["metadata_offset"], bool(r["in_snapshot"])))
    quorum = Quorum(rows, versions)
    controller = Controller(quorum.settings_in(None))
    has_eligible = any(d.row["elr"] is not None for d in decisions)
    place = 0
    before: Decision | None = None
    for decision in decisions:
        if decision.row["metadata_offset"] is None or decision.row["in_snapshot"]:
            controller.eligible = kept(decision.row["elr"], controller.eligible)
            controller.last_known = kept(decision.row["last_known_elr"], controller.last_known)
            before = decision
            continue
        while place < len(records) and records[place]["metadata_offset"] < decision.place:
            controller.read_on(records[place], parts)
            controller.take(records[place])
            place += 1
        controller.read_on(decision.row, parts)
        controller.eligible_replicas |= has_eligible and not controller.whole
        closing = records[place] if place < len(records) else None
        if closing is not None and not closes(closing, decision, before, controller.eligible):
            closing = None
        if closing is not None:
            controller.take(closing)
            if loses_directory(closing):
                controller.without_directory.add(closing["subject_broker_id"])
        epoch = decision.row["controller_epoch"]
        controller.settings = quorum.settings_in(epoch)
        release = quorum.version_in(epoch) or version
        rules = election_rules_of(release, zookeeper=False, eligible_replicas=controller.eligible_replicas)
        if is_creation(decision) if before is None else follows(decision, before):
            decision.vote = vote_of(controller, decision, before, closing, rules)
            if closing is not None and loses_directory(closing):
                decision.vote = decision.vote._replace(lost_directory=closing["subject_broker_id"])
        controller.eligible = kept(decision.row["elr"], controller.eligible)
        controller.last_known = kept(decision.row["last_known_elr"], controller.last_known)
        before = decision


def follows(decision: Decision, before: Decision) -> bool:
    """Whether nothing was decided between the two."""
    if decision.partition_epoch is None or before.partition_epoch is None:
        return before.row["metadata_offset"] is not None
    return decision.partition_epoch == before.partition_epoch + 1


def vote_of(
    controller: Controller, decision: Decision, before: Decision | None, closing: Row | None, rules: ElectionRules
) -> Vote:
    """The ballot of one decision, and the choice that the rule makes."""
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
        ballot = ballot._replace(unclean=True)  # ElectLeaders with UNCLEAN: nothing else elects such a leader
        return Vote(ballot, choose(ballot, rules), asked=controller.whole)
    return Vote(ballot, choice)


def eligible_after(
    controller: Controller, decision: Decision, before: Decision, in_sync: tuple[int, ...], closing: Row | None
) -> tuple[int, ...]:
    """The eligible leader replicas after the decision (`PartitionChangeBuilder.maybePopulateTargetElr`).

    Below min.insync.replicas, a replica that leaves the ISR stays eligible, except after an unclean shutdown: then the
    new registration drops it.
    """
    if not controller.eligible_replicas or len(in_sync) >= controller.min_isr(len(decision.replicas)):
        return ()
    dropped: set[int] = set()
    if closing is not None and closing["record_type"] == REGISTER:
        listed = kept(decision.row["elr"], controller.eligible)
        dropped = {closing["subject_broker_id"]} - set(listed)
    return tuple(sorted((set(controller.eligible) | set(before.isr)) - set(in_sync) - dropped))
