"""Run the engine in the order of the leaders' own lines, to compare: the rules without doubt about the order.

A broker that logs at TRACE writes every append, every `Recorded replica` and every `High watermark updated`, in the
order of its file. A handler thread that moves a remote LEO writes its line only after the HW attempt, and two threads
may race. A remote LEO is therefore applied at the first line that shows it: its own, or the HW line that requires it.
Two threads that raise the HW may write their lines in the other order: the HW never falls, so a line that names less
than it is by then agrees if the HW had that value before, and no other line named it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from replay.evidence.request_times import DECISION_USUAL_US
from replay.evidence.roles import moment
from replay.evidence.rows import place_in_log
from replay.evidence.tenures import Decision, micros
from replay.order.control_chain import metadata_span
from replay.order.settings_events import broker_draft
from replay.protocol.log import truncate_to
from replay.protocol.role_changes import make_leader
from replay.protocol.state import MIN_ISR_UNKNOWN, NONE, State, new_state
from replay.protocol.stated_logs import note_hw, note_leo
from replay.protocol.steps import leader_append, leader_commit_isr, leader_handle_fetch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

LINE_KINDS = ("log_append", "remote_leo_update", "hw_update")
AHEAD_US = 1_000_000  # how much later than the resulting HW line a replica's line may stand


class LeaderLines:
    """One broker's lines while it leads, and the engine run along them."""

    def __init__(self, facts: PartitionFacts, broker: int) -> None:
        """Collect the lines of `broker` in the order of its log."""
        self.facts, self.profile = facts, facts.profile_in(NONE, broker)
        members = {b for d in facts.decisions for b in (*d.replicas, *d.isr)} | {broker}
        rows = [
            r for kind in LINE_KINDS for r in facts.by_kind[kind] if r["broker_id"] == broker and r["ts"] is not None
        ]
        members |= {r["replica_id"] for r in rows if r["replica_id"] is not None and r["replica_id"] >= 0}
        self.brokers = sorted(members)
        self.leader = self.brokers.index(broker)
        self.lines = sorted(rows, key=place_in_log)
        self.times = [micros(r["ts"]) for r in self.lines]
        self.state = self.empty()
        self.computed: dict[str, int] = {}

    def empty(self) -> State:
        """A state in which nobody has a role and nobody is fenced."""
        self.noted = 0  # how many changes of brokers the state includes
        return new_state(
            len(self.brokers), min_isr=self.facts.min_insync_replicas or MIN_ISR_UNKNOWN, lag_us=self.facts.lag_us
        )

    def mask(self, members: Iterable[int]) -> int:
        """Broker ids as a bit mask."""
        return sum(1 << self.brokers.index(b) for b in members if b in self.brokers)

    def follow(self, tenure: Tenure, role: Row, until: int) -> None:
        """Run one tenure, from its role line up to `until` (microseconds)."""
        since, s, b = moment(role), self.state, self.leader
        self.profile = self.facts.profile_in(tenure.epoch, tenure.leader)
        first, last = bisect_left(self.times, since), bisect_left(self.times, until)
        if all(row["kind"] != "log_append" for row in self.lines[first:last]):
            return  # without TRACE the leader's own LEO is unknown
        if s.leo[b] > role["offset"]:
            truncate_to(s, self.profile, b, role["offset"])
        note_leo(s, b, role["offset"], 0)
        note_hw(s, b, role["hw"], 0)
        opening = tenure.decisions[0] if tenure.decisions else None
        s.partition[0].assigned = self.mask(opening.replicas if opening else self.brokers)
        begun, ended = metadata_span(self.facts, tenure)
        self.note_brokers(min(begun, ended))
        changes = self.facts.broker_changes()
        places = [bisect_left(changes, offset, key=lambda row: row["metadata_offset"]) for offset in (begun, ended)]
        told = self.facts.turns.isr_lines(tenure.leader)
        self.changes = deque(publications(tenure.decisions[1:], changes[slice(*places)], told))
        self.taken: set[int] = set()  # lines applied ahead of their place
        make_leader(s, self.profile, b, tenure.epoch, self.mask(opening.isr if opening else self.brokers), since)
        self.passed = {int(s.hw[b])}  # values that the HW took on its own
        for k in range(first, last):
            self.line(k)

    def line(self, k: int) -> None:
        """Apply one line in its place."""
        row, now = self.lines[k], self.times[k]
        while self.changes and self.changes[0][0] <= now:
            self.commit(now)
        if row["kind"] == "log_append":
            leader_append(self.state, self.profile, self.leader, row["offset"], 0, now)
            self.passed.add(int(self.state.hw[self.leader]))
        elif row["kind"] == "remote_leo_update":
            self.record(k)
        elif row["name"] == "leader":
            self.reach(k, row["hw"])
            self.compare(row)

    def compare(self, row: Row) -> None:
        """Note the HW at a line that names it, and go on from there; a value that the HW had before is named late."""
        hw = int(self.state.hw[self.leader])
        named_late = row["hw"] < hw and row["hw"] in self.passed
        self.computed[row["fact_id"]] = row["hw"] if named_late else hw
        self.passed.discard(row["hw"])
        if not named_late:
            note_hw(self.state, self.leader, row["hw"], 0)

    def record(self, k: int) -> None:
        """Apply a `Recorded replica` line, once."""
        row = self.lines[k]
        if k not in self.taken and row["offset"] >= 0:
            self.taken.add(k)
            replica = self.brokers.index(row["replica_id"])
            leader_handle_fetch(self.state, self.profile, self.leader, replica, row["offset"], self.times[k])
            self.passed.add(int(self.state.hw[self.leader]))

    def commit(self, now: int) -> None:
        """Apply the next of the controller's publications to the leader."""
        _, decision, brokers = self.changes.popleft()
        for row in brokers:
            self.note_broker(row)
        if decision is not None:
            self.state.partition[0].assigned = self.mask(decision.replicas)
            leader_commit_isr(self.state, self.profile, self.leader, self.mask(decision.isr), now)
            self.passed.add(int(self.state.hw[self.leader]))

    def note_brokers(self, until: int) -> None:
        """Note who is fenced or shutting down by a place in the metadata log; each change is noted once."""
        changes = self.facts.broker_changes()
        while self.noted < len(changes) and changes[self.noted]["metadata_offset"] < until:
            self.note_broker(changes[self.noted])
            self.noted += 1

    def note_broker(self, row: Row) -> None:
        """Note whether a broker is fenced or shutting down. No line says which broker epoch a fetch named."""
        place, fields = self.brokers.index(row["subject_broker_id"]), broker_draft(row).fields
        if fields["fenced"] is not None:
            self.state.fenced[place] = fields["fenced"]
        if fields["in_controlled_shutdown"] is not None:
            self.state.stopping[place] = fields["in_controlled_shutdown"]

    def reach(self, k: int, hw: int) -> None:
        """Apply what an HW line proves: fetches whose lines follow later, then ISR changes."""
        s, now, place = self.state, self.times[k], k
        while s.hw[self.leader] < hw and place + 1 < len(self.lines) and self.times[place + 1] <= now + AHEAD_US:
            place += 1
            row = self.lines[place]
            if row["kind"] == "log_append":
                continue
            if (
                row["kind"] == "remote_leo_update"
                and s.remote_leo[self.leader, self.brokers.index(row["replica_id"])] < hw
            ):
                self.record(place)
        while s.hw[self.leader] < hw and self.changes and self.changes[0][0] <= now + AHEAD_US:
            self.commit(now)


Publication = tuple[int, Decision | None, list["Row"]]


def publications(decisions: list[Decision], brokers: list[Row], told: dict[int, Row]) -> list[Publication]:
    """What the leader took over at once: decisions, with registration changes that the controller wrote with them.

    The time is that of the leader's own line about it, else shortly after the controller wrote it.
    """
    out: list[Publication] = []
    waiting = deque(brokers)
    for decision in decisions:
        line = told.get(decision.partition_epoch) if decision.partition_epoch is not None else None
        at = micros(line["ts"]) if line is not None else decision.us + DECISION_USUAL_US
        while waiting and micros(waiting[0]["ts"]) < decision.us:
            row = waiting.popleft()
            out.append((min(micros(row["ts"]) + DECISION_USUAL_US, at), None, [row]))
        together = []
        while waiting and waiting[0]["ts"] == decision.row["ts"]:
            together.append(waiting.popleft())
        out.append((at, decision, together))
    return out + [(micros(row["ts"]) + DECISION_USUAL_US, None, [row]) for row in waiting]


def latest_roles(facts: PartitionFacts, broker: int) -> dict[int, str | None]:
    """Leader epoch of a broker's role -> the role of lower epochs that it had reported last."""
    out: dict[int, str | None] = {}
    last: tuple[int, int, str | None] = (-1, -1, None)
    for epoch in facts.turns.roles.get(broker, ()):
        out[epoch] = last[2]
        row = facts.role_lines[broker, epoch]
        last = max(last, (moment(row), epoch, row["name"]), key=lambda one: one[:2])
    return out


def hw_by_lines(facts: PartitionFacts) -> dict[str, int]:
    """For each HW line of a leader, by fact id: the engine's HW there, in the order of the leader's lines."""
    if not facts.by_kind["log_append"]:
        return {}
    tenures: dict[int, list[Tenure]] = defaultdict(list)
    for tenure in facts.tenures:
        if tenure.leader >= 0:
            tenures[tenure.leader].append(tenure)
    out: dict[str, int] = {}
    for broker, led in sorted(tenures.items()):
        lines = LeaderLines(facts, broker)
        latest = latest_roles(facts, broker)
        for tenure in led:
            role = facts.role_lines.get((broker, tenure.epoch))
            if role is None or role["name"] != "leader" or role["offset"] is None or role["hw"] is None:
                continue
            if latest[tenure.epoch] != "leader" or (broker, tenure.epoch) in facts.loads:
                lines.state = lines.empty()
            lines.follow(tenure, role, facts.turns.left_us(broker, tenure.epoch))
        out |= lines.computed
    return out
