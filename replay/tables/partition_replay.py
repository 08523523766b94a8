"""One partition replayed: its ordered events in, the rows of every replay table out.

What surrounds the kernel: events come in batches, already in order; the kernel folds them, the state is carried
over, and what the kernel cannot do (text, sets, accounting of losses) is done here on its few rows. A leader epoch
begins at the first event that names it: there the log of the leader before is looked at, and again once the new leader
has taken up its role.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import places
from replay.engine import codes as c
from replay.engine.emit import N_CHECK, N_CUT, N_HW, N_ISR, N_LEO, N_MOVE, N_START, Rows, new_rows
from replay.engine.encode import brokers_of, encode
from replay.engine.events import Batch, Event, Events
from replay.engine.kernel import fold
from replay.engine.log_starts import causes_of
from replay.engine.purgatory import (
    COMMIT_ROW,
    N_COMMIT,
    N_OPEN,
    N_ROUND,
    O_ACK_SEQ,
    O_ISR,
    ROUND_ROW,
    new_purgatory,
    release_all,
    with_room,
)
from replay.evidence.future_logs import FUTURE_LOG
from replay.evidence.rows import INTERNAL_TOPICS
from replay.losses.doubts import Doubts
from replay.losses.findings import Finding, Heir
from replay.losses.incident_rows import incident
from replay.losses.loss_ledger import READ, WRITTEN, Ledger, Log, floor_of, is_read, is_written, log_of
from replay.losses.shown_epochs import ShownEpochs
from replay.losses.slots import Slots, doubtful, is_doubtful, known_from, lost_slots, spans_of, without
from replay.losses.story import KINDS as STORY_KINDS
from replay.losses.story import Story
from replay.protocol.state import (
    ASSIGNED,
    BOUNDED,
    EARLIER_HW,
    LAG_US,
    MIN_ISR_UNKNOWN,
    NONE,
    OBSERVED,
    ROLE_LEADER,
    ROLE_NONE,
    STATED_HW,
    TRUE_HW,
    UNSET,
    grown,
    new_state,
)
from replay.protocol.state_machines import FOUND, MOVING_KINDS, STATED, Machines
from replay.tables.check_notes import note_of
from replay.tables.consumer_effects import ConsumerEffects
from replay.tables.election_rows import ballot_columns, election_checks, risk_columns
from replay.tables.final_logs import FinalLogs, elections
from replay.tables.follower_states import FollowerStates
from replay.tables.future_replicas import FutureReplicas
from replay.tables.isr_rows import TOLD_KINDS, IsrRows, moves_of
from replay.tables.risk_spans import RiskSpans
from replay.tables.rounds import (
    ANSWER_ROW,
    Topic,
    answers_in,
    answers_to,
    commit_checks,
    fetches_in,
    round_checks,
    rounds_of,
)
from replay.tables.stated_moves import stated_checks
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.arrays.ints import Flags, Ints
    from replay.protocol.profile import Profile
    from replay.tables.output import Output

ISR_NUMBERS = ("seq", "ts", "epoch", "partition_epoch", "state", "under_min", "evidence")
DEFAULT_LAG_US = 30_000_000
EVENTS_NEAR = 200  # how many events around a line may have been dealt with at the same time
HW_MOVES_KEPT = 1000  # how many moves of its HW a broker may be behind with its line about one
FREQUENT_KINDS = (
    c.APPEND, c.ACK, c.FETCH_UPDATE, c.FETCH_READ, c.FETCH_APPLY, c.CONSUMER_READ, c.FETCH_LEFT_OUT, c.OBSERVATION
)  # fmt: skip
DECIDING = (c.PARTITION_CHANGE, c.CONFIG_CHANGE, c.TOPIC_CHANGE)
TELLING = (  # causes of rare observations
    STATED, FOUND, c.STORAGE_FAILED, c.CONTRADICTED, c.LEADER_UNKNOWN, FUTURE_LOG
)  # fmt: skip
FINAL_KINDS = ("broker_change", "role_change", "log_dump")
Rare = dict[str, list[Event]]  # by kind


class PartitionReplay:
    """The replay of one partition, batch by batch."""

    def __init__(self, key: dict[str, Any], out: Output) -> None:
        """`key` holds the partition's key columns; its rows go to `out`."""
        self.key, self.out = key, out
        self.brokers: list[int] = []
        self.state = new_state(0, min_isr=MIN_ISR_UNKNOWN, lag_us=DEFAULT_LAG_US)
        self.leads = NONE  # the broker that leads by now
        self.topic = Topic()
        self.purgatory = new_purgatory(0)
        self.answers = np.zeros((0, len(ANSWER_ROW)), np.int64)  # those to acks=all batches that are still open
        self.ledger = Ledger(internal=key["topic"] in INTERNAL_TOPICS)
        self.isr = IsrRows()
        self.isr_mask = 0
        self.epoch = -1
        self.led = -1  # the last leader that had a log, as an index
        self.log: Log | None = None  # its log at the end of its epoch
        self.election: dict[str, Any] | None = None
        self.checks: dict[str, dict[str, Any]] = {}
        self.leaderships: list[dict[str, Any]] = []
        self.findings: list[Finding] = []
        self.lost_in: dict[int, list[int]] = defaultdict(list)  # by leader epoch, places of those with records of it
        self.changes: dict[int, str] = {}
        self.taken = np.zeros((0, 3), np.int64)  # the last HWs that leaders took: broker, seq, HW
        self.machines = Machines()
        self.future = FutureReplicas()
        self.stated: list[dict[str, Any]] = []  # moves that a controller wrote down
        self.followers = FollowerStates()
        self.story = Story()
        self.stated_start = False  # whether a source states from where the last leader led
        self.final = FinalLogs()
        self.risk = RiskSpans()
        self.consumers = ConsumerEffects()
        self.doubts = Doubts()
        self.shown = ShownEpochs()
        self.last_seq = -1

    def feed(self, events: Events) -> None:
        """Fold some events, that follow those before."""
        self.admit(brokers_of(events))
        matrix = encode(events, self.brokers)
        rare = rare_events(events)
        self.set_topic(rare["config_change"])
        about_isr = len(rare["partition_change"]) + len(rare["isr_request"])
        rows = new_rows(len(matrix), about_isr, len(self.brokers))
        self.purgatory = with_room(self.purgatory, len(self.brokers), len(matrix))
        decisions = {row["seq"]: row for row in rare["partition_change"]}
        deciding = decisions | {row["seq"]: row for kind in ("config_change", "topic_change") for row in rare[kind]}
        self.changes = {seq: row["change"] for seq, row in decisions.items()}
        self.story.take_all(in_turn(rare, STORY_KINDS))
        self.machines.take_all(in_turn(rare, MOVING_KINDS))
        self.followers.take_all(events, self.story.truncates_on_fetch)
        self.future.take_all(rare["observation"])
        self.stated += [row for row in rare["observation"] if row["cause"] == STATED]
        self.doubts.take(rare["observation"])
        self.shown.take(events)
        for kind in FINAL_KINDS:
            for row in rare[kind]:
                self.final.take(row)
        self.last_seq = int(matrix[-1, c.E_SEQ]) if len(matrix) else self.last_seq
        start = 0
        for stop in [*self.boundaries(matrix, events.places_of(is_rare)), len(matrix)]:
            if start < stop:
                here = matrix[start:stop]
                moved = rows.filled[N_LEO]
                profile = self.profile_of(here)
                self.isr_mask = int(fold(self.state, profile, here, self.isr_mask, rows, self.purgatory))
                self.risk.pass_time(here[:, c.E_TS])
                self.risk.advance(rows.leo[moved : rows.filled[N_LEO]], self.state, self.brokers)
                self.after(here)
                self.note(events.part(start, stop))
            if stop < len(matrix):
                self.at_boundary(matrix[stop], decisions)
                decided = deciding.get(int(matrix[stop, c.E_SEQ]))
                if decided is not None:
                    self.risk.decide(decided, self.state, self.brokers)
            start = stop
        self.ledger.prune(floor_of(self.state, int(self.state.cluster[ASSIGNED])))
        self.tell(events, matrix, rare, rows)
        self.tell_waits(events)

    def admit(self, found: list[int]) -> None:
        """Give new brokers an index."""
        new = [b for b in found if b not in self.brokers]
        if new:
            self.brokers = [*self.brokers, *new]
            self.state = grown(self.state, len(self.brokers))

    def set_topic(self, settings: list[dict[str, Any]]) -> None:
        """What the topic's configuration says of how fetches wait."""
        for row in settings:
            if row["remote_storage"] is not None:
                self.topic = Topic(row["remote_storage"], bool(row["leader_throttled"]))

    def profile_of(self, events: Ints) -> Profile:
        """The rules for some events in a row: those of the broker that leads, or that the only one of them is about."""
        broker = events[0, c.E_BROKER]
        alone = len(events) == 1 and broker >= 0
        return self.story.profile_at(self.brokers[broker] if alone else self.leads, int(events[0, c.E_SEQ]))

    def boundaries(self, events: Ints, rare: Ints) -> list[int]:
        """Where a leader epoch begins, right after its leader has taken up its role, and where anything is decided.

        `rare`: the places of rare events, for no other decides anything. While brokers' versions differ each of them
        stands alone: it may be about a follower, and goes by its rules.
        """
        out = set()
        differ = len(self.story.spoken) > 1
        newest = self.epoch
        told = events[rare][:, (c.E_KIND, c.E_EPOCH, c.E_VALUE)]
        for k, (kind, epoch, value) in zip(rare.tolist(), told.tolist(), strict=True):
            if kind in DECIDING:
                out.add(k)
            if kind in (c.PARTITION_CHANGE, c.ROLE_CHANGE) and epoch > newest:
                newest = epoch
                out.add(k)
            if (kind == c.ROLE_CHANGE and value == ROLE_LEADER) or differ:
                out |= {k, k + 1} if differ else {k + 1}
        return sorted(k for k in out if k < len(events))

    def note(self, events: Events) -> None:
        """Keep what a loss would be accounted from: appends, answers and reads since the last decision."""
        written, read = events.among(is_written, WRITTEN), events.among(is_read, READ)
        if not len(written) and not len(read):
            return
        answered = written.kinds == c.ACK
        retried = written.numbers("broker_id", NONE)[answered & (written.numbers("duplicate") > 0)]
        self.ledger.take(written, read, {broker: self.held_by(broker) for broker in set(retried.tolist())})
        self.risk.appended = self.risk.appended or not answered.all()
        if self.risk.open:
            for row in written.at(answered).table().to_pylist():
                self.risk.ack(row)

    def held_by(self, broker: int) -> list[Slots]:
        """Slots that the last leader, if it is `broker`, surely held as it began to lead."""
        if not self.stated_start or self.led < 0 or self.brokers[self.led] != broker:
            return []
        return [one for one in spans_of(self.state, self.led) if one.epoch < int(self.state.epoch[self.led])]

    def at_boundary(self, event: Ints, decisions: dict[int, dict[str, Any]]) -> None:
        """A leader epoch is about to begin: look at the log of the leader before it."""
        if event[c.E_EPOCH] <= self.epoch or event[c.E_KIND] not in (c.PARTITION_CHANGE, c.ROLE_CHANGE):
            return
        if self.led >= 0 and self.log is None:
            s = self.state
            self.log = log_of(s, self.led, self.brokers, int(event[c.E_SEQ]))
        self.epoch = int(event[c.E_EPOCH])
        decision = decisions.get(int(event[c.E_SEQ]))
        leader = int(event[c.E_LEADER])
        self.election = decision or {
            "seq": -1,
            "ts": None,
            "election": "clean",
            "trigger": None,
            "leader_id": self.brokers[leader] if leader >= 0 else None,
            "leader_epoch": self.epoch,
        }
        self.add_leadership()

    def add_leadership(self) -> None:
        """A row for the epoch that begins; its start offset follows once the leader has taken up its role."""
        decision, old = self.election or {}, self.log
        if self.leaderships:
            self.leaderships[-1]["end_ts"] = decision["ts"]
        leader = decision["leader_id"]
        self.leaderships.append(
            {
                "leader_epoch": self.epoch,
                "leader_id": leader if leader is not None and leader >= 0 else None,
                "start_ts": decision["ts"],
                "end_ts": None,
                "start_offset": None,
                "hw_at_start": None,
                "election": decision["election"] or "clean",
                "trigger": decision["trigger"],
                "previous_leader_id": old.leader if old else None,
                "previous_leo": old.leo if old else None,
                "previous_hw": old.hw if old else None,
                "records_at_risk": None,
                "committed_at_risk": None,
                **ballot_columns(decision),
                "evidence": "observed" if decision.get("evidence") == "observed" else "derived",
            }
        )

    def after(self, events: Ints) -> None:
        """Events were folded: if the last one made a leader, compare its log with the one before."""
        last = events[-1]
        if last[c.E_KIND] != c.ROLE_CHANGE or last[c.E_VALUE] != ROLE_LEADER:
            return
        b = int(last[c.E_BROKER])
        self.leads = self.brokers[b]
        s = self.state
        row = self.leaderships[-1]
        if row["leader_epoch"] == int(last[c.E_EPOCH]):
            row["start_offset"], row["hw_at_start"] = int(s.epoch_start[b]), int(s.hw[b])
            if last[c.E_EVIDENCE] < BOUNDED or last[c.E_LEO] >= 0:
                row.update(risk_columns(row))
        self.stated_start = bool(last[c.E_EVIDENCE] == OBSERVED and last[c.E_LEO] >= 0)
        if last[c.E_EVIDENCE] >= BOUNDED and last[c.E_LEO] < 0:
            return  # nothing says from where it led, nothing was appended: the log before stays the measure
        held = spans_of(s, b)
        if self.log is not None and self.election is not None and self.election["ts"] is not None:
            lost = [] if self.led_on(last) else lost_slots(self.log.spans, held, known_from(s, b))
            told = [slots for finding in self.found_in(lost) for slots in finding.lost]
            lost = without(lost, [*told, *doubtful(s, b, lost)])
            if lost:  # what was committed beyond is committed no more
                for known in (TRUE_HW, STATED_HW, EARLIER_HW):
                    s.cluster[known] = min(int(s.cluster[known]), *(slots.first for slots in lost))
                stated = bool(last[c.E_EVIDENCE] < BOUNDED and self.log.evidence < BOUNDED)
                heir = Heir(held, int(s.epoch_start[b]), int(last[c.E_SEQ]))
                self.find(Finding(self.log, self.election, heir, lost, self.ledger.about(lost), stated=stated))
                self.ledger.forget(lost)
        for finding in self.found_in(held):
            back = finding.give_back(held)
            if back:  # and what was committed of it is so again
                self.ledger.take_back(finding.ledger, back)
                end = min(max(slots.end for slots in back), finding.old.committed)
                for known in (TRUE_HW, EARLIER_HW):
                    s.cluster[known] = max(int(s.cluster[known]), end)
        for finding in self.findings if is_doubtful(s, b) else ():
            finding.give_back(doubtful(s, b, finding.lost))
        self.led, self.log = b, None

    def find(self, finding: Finding) -> None:
        """A losing event."""
        for epoch in {slots.epoch for slots in finding.lost}:
            self.lost_in[epoch].append(len(self.findings))
        self.findings.append(finding)

    def found_in(self, slots: list[Slots]) -> list[Finding]:
        """Losing events that took records of the same leader epochs, in their order."""
        places = {k for one in slots for k in self.lost_in.get(one.epoch, ())} if self.lost_in else ()
        return [self.findings[k] for k in sorted(places)]

    def led_on(self, role: Ints) -> bool:
        """Whether the leader before took the next epoch up without having stopped: it has what it had."""
        log = self.log
        if log is None or log.leader != self.brokers[int(role[c.E_BROKER])] or role[c.E_EPOCH] != log.epoch + 1:
            return False
        return not self.story.within("log_load", log.leader, log.seq + 1, int(role[c.E_SEQ]))

    def tell(self, events: Events, matrix: Ints, rare: Rare, rows: Rows) -> None:
        """The kernel's rows. `matrix`: the events as it read them."""
        count = rows.filled
        self.tell_cuts(rows.cut[: count[N_CUT]])
        self.add_isr_rows(events, in_turn(rare, TOLD_KINDS), rows.isr[: count[N_ISR]], rows.move[: count[N_MOVE]])
        leo, hw, start = rows.leo[: count[N_LEO]], rows.hw[: count[N_HW]], rows.start[: count[N_START]]
        self.out.add("leo_timeline", self.key, self.named(leo, c.LEO_ROW, "broker"))
        # a move of a broker without a role is told of once it has one
        known = hw[hw[:, c.HW_ROW.index("role")] != ROLE_NONE]
        self.out.add("hw_timeline", self.key, self.named(known, c.HW_ROW, "broker", "cause"))
        if len(start):  # why a log was shortened stands in the broker's own line
            causes = causes_of(start, {row["seq"]: row["cause"] for row in rare["log_start_change"]})
            self.out.add("log_start_timeline", self.key, self.named(start, c.START_ROW, "broker"), causes)
        self.add_checks(self.passed_through(rows.check[: count[N_CHECK]], hw, matrix))

    def tell_cuts(self, rows: Ints) -> None:
        """Rows of `log_truncations`: losses are explained by them as well."""
        if len(rows):
            piece = self.named(rows, c.CUT_ROW, "broker")
            self.out.add("log_truncations", self.key, piece)
            self.story.take_cuts(self.out.table_of("log_truncations", [(self.key, (piece,))]).to_pylist())

    def tell_waits(self, events: Events) -> None:
        """What left the purgatories."""
        g = self.purgatory
        saw = g.rounds[: g.filled[N_ROUND]]
        fetches = fetches_in(events, saw)
        found = rounds_of(fetches, saw, self.story.profile_at(self.leads, self.last_seq), self.topic)
        self.out.add("fetch_rounds", self.key, fetches, saw, found)
        self.add_checks(round_checks(fetches, saw, found, self.brokers))
        floor = floor_of(self.state, int(self.state.cluster[ASSIGNED]))
        self.consumers.take_all(events, fetches, saw[:, ROUND_ROW.index("leo")])
        self.consumers.prune(self.epoch, floor)
        self.answers = np.concatenate([self.answers, answers_in(events, self.out.clients)])
        self.tell_commits()
        still = g.open[: g.filled[N_OPEN], O_ACK_SEQ]
        self.answers = self.answers[np.isin(self.answers[:, ANSWER_ROW.index("seq")], still)]

    def tell_commits(self) -> None:
        """Rows of `commit_latency`."""
        rows = self.purgatory.commits[: self.purgatory.filled[N_COMMIT]]
        if len(rows):
            answers = answers_to(rows[:, O_ACK_SEQ], self.answers)
            self.add_checks(commit_checks(rows, answers))
            named = self.named(rows, COMMIT_ROW, "broker", "replica")
            named[:, O_ISR] = self.sets(rows[:, O_ISR])
            self.out.add("commit_latency", self.key, named, answers)

    def finish(self) -> None:
        """What is known only at the end."""
        self.purgatory = with_room(self.purgatory, len(self.brokers), 0)
        release_all(self.purgatory, NONE)
        self.tell_commits()
        self.settle()
        self.story.close(self.isr.rows)
        for found in self.findings:
            self.shown.give_back(found)
            self.doubts.doubt(found)
        self.doubts.grade([*self.isr.rows, *self.leaderships])
        lost = [(found, incident(self.key, found, self.story)) for found in self.findings if found.matters]
        incidents = [row for _, row in lost]
        self.out.add_rows("isr_timeline", self.key, self.isr.rows)
        self.out.add_rows("isr_flaps", self.key, self.isr.flaps)
        self.out.add_rows("leadership_timeline", self.key, self.leaderships)
        self.out.add_rows("data_loss_incidents", self.key, incidents)
        divergences = self.final.divergences(self.state, self.brokers, self.led, elections(self.leaderships))
        self.out.add_rows("replica_divergences", self.key, list(divergences))
        now = spans_of(self.state, self.led) if self.led >= 0 else []
        effects = self.consumers.finish([(found, row["incident_id"]) for found, row in lost], now)
        self.out.add_rows("consumer_effects", self.key, effects)
        risks = self.risk.finish(incidents, produced=self.ledger.produced)
        self.out.add_rows("partition_risk", self.key, risks)
        self.out.add_rows("state_transitions", self.key, [*self.machines.moves, *self.future.transitions])
        self.out.add_rows("follower_states", self.key, [*self.followers.moves, *self.future.states])
        checks = [*election_checks(self.story.decisions), *self.machines.checks()]
        checks += [*stated_checks(self.machines.moves, self.stated), *self.doubts.checks()]
        self.checks.update({row["check"]: row for row in checks})
        self.out.add_rows("conformance", self.key, [self.checks[name] for name in sorted(self.checks)])

    def settle(self) -> None:
        """The last leader's log as dumped at the end decides what survived; the replay only follows what was told."""
        if self.led < 0:
            return
        leader = self.brokers[self.led]
        for finding in self.findings:
            finding.give_back(self.final.survivors(self.state, self.led, leader))
        lost = self.final.replaced(self.state, self.led, leader, self.ledger)
        if lost:
            log = log_of(self.state, self.led, self.brokers, self.last_seq)
            heir = Heir(spans_of(self.state, self.led), lost[0].first, self.last_seq)
            epoch = self.final.epoch_at(leader, lost[0].first)
            untold = {"seq": self.last_seq, "ts": None, "election": None, "leader_id": None, "leader_epoch": epoch}
            self.find(Finding(log, untold, heir, lost, self.ledger.about(lost), stated=True))

    def named(self, rows: Ints, names: tuple[str, ...], *brokers: str) -> Ints:
        """A kernel matrix of columns `names` with ids in the columns `brokers`, NONE where there is none."""
        out = self.doubts.graded(rows, names).copy()
        lookup = np.array([*self.brokers, NONE, NONE], np.int64)  # NONE and UNSET are the last places
        at = [names.index(name) for name in brokers]
        out[:, at] = lookup[rows[:, at]]
        return out

    def sets(self, masks: Ints) -> Ints:
        """Bit masks as codes of the output's sets of broker ids, UNSET as NONE."""
        each, place = np.unique(masks, return_inverse=True)
        members = [self.members(mask) for mask in each.tolist()]
        codes = [NONE if ids is None else self.out.sets.code_of(tuple(ids)) for ids in members]
        return np.array(codes, np.int64)[place]

    def members(self, mask: int) -> list[int] | None:
        """The broker ids of a bit mask, sorted; UNSET as null."""
        return None if mask == UNSET else sorted(b for k, b in enumerate(self.brokers) if mask & (1 << k))

    def add_isr_rows(self, events: Events, told: list[dict[str, Any]], rows: Ints, moves: Ints) -> None:
        """Rows of `isr_timeline`: kept to the end, for what becomes of a request is known later."""
        at = places(rows, c.ISR_ROW)
        leaders = [self.brokers[b] if b >= 0 else None for b in at["leader"].tolist()]
        isrs, befores = ([self.members(mask) for mask in at[name].tolist()] for name in ("isr", "isr_before"))
        found = []
        for k, (seq, ts, epoch, partition_epoch, state, under, evidence) in enumerate(
            zip(*(at[n].tolist() for n in ISR_NUMBERS), strict=True)
        ):
            moved = set(isrs[k] or ()) ^ set(befores[k] or isrs[k] or ())
            change = self.changes.get(seq) if state == c.ISR_COMMITTED else ("", "expand", "shrink")[state]
            found.append(
                {
                    "seq": seq,
                    "ts": ts,
                    "leader_id": leaders[k],
                    "leader_epoch": epoch,
                    "partition_epoch": partition_epoch if partition_epoch >= 0 else None,
                    "isr": isrs[k],
                    "isr_before": befores[k],
                    "state": c.ISR_STATES[state],
                    "state_code": state,
                    "change": change or "other",
                    "broker_id": min(moved) if len(moved) == 1 else None,
                    "under_min_isr": None if under < 0 else bool(under),
                    "evidence": EVIDENCE[evidence],
                }
            )
        self.isr.add(events, told, found, moves_of(moves, self.brokers), int(self.state.cluster[LAG_US]))

    def passed_through(self, rows: Ints, moves: Ints, events: Ints) -> Ints:
        """Checks, those of HW lines equal where the engine's HW took that value by itself, then or a little before.

        A handler thread writes its line while others go on, so the engine may be further by the time of the line; or
        not as far yet, where a request that gives the value was under way at the time of the line (`was_under_way`).
        """
        at, hw = places(rows, c.CHECK_ROW), places(moves, c.HW_ROW)
        own = (hw["role"] == ROLE_LEADER) & (hw["step"] != c.STEP_OBSERVATION)
        taken = np.stack([hw["broker"][own], hw["seq"][own], hw["hw"][own]], axis=1)
        out = rows.copy()
        for b in np.unique(np.concatenate([self.taken[:, 0], taken[:, 0]])).tolist():
            mine = np.concatenate([self.taken[self.taken[:, 0] == b], taken[taken[:, 0] == b]])
            lines = np.flatnonzero((at["check"] == c.CHECK_HW_LINE) & (at["broker"] == b))
            stated = at["stated"][lines]
            before = np.searchsorted(mine[:, 1], at["seq"][lines], side="right")
            order = np.lexsort((np.arange(len(mine)), mine[:, 2]))
            width = len(mine) + 1
            last = np.searchsorted(mine[order, 2] * width + order, stated * width + before) - 1
            found = order[np.maximum(last, 0)]
            passed = (last >= 0) & (mine[found, 2] == stated) & (before - found <= HW_MOVES_KEPT)
            for k in np.flatnonzero(~passed).tolist():
                passed[k] = was_under_way(events, int(at["seq"][lines[k]]), b, int(stated[k]))
            out[lines[passed], c.CHECK_ROW.index("computed")] = stated[passed]
            self.taken = np.concatenate([self.taken[self.taken[:, 0] != b], mine[-HW_MOVES_KEPT:]])
        return out

    def add_checks(self, rows: Ints) -> None:
        """Fold what was computed against what was stated into `conformance`."""
        at = places(rows, c.CHECK_ROW)
        for code in np.unique(at["check"]).tolist():
            name = c.CHECKS[code]
            here = at["check"] == code
            equal = here & (at["computed"] == at["stated"]) & (code != c.CHECK_RULE)
            entry = self.checks.setdefault(
                name, {"check": name, "compared": 0, "matched": 0, "first_mismatch_seq": None, "note": None}
            )
            entry["compared"] += int(here.sum())
            entry["matched"] += int(equal.sum())
            wrong = np.flatnonzero(here & ~equal)
            if len(wrong) and entry["first_mismatch_seq"] is None:
                first = wrong[0]
                values = int(at["computed"][first]), int(at["stated"][first])
                entry["first_mismatch_seq"] = int(at["seq"][first])
                entry["note"] = note_of(code, int(at["broker"][first]), values, self.brokers)


def was_under_way(events: Ints, seq: int, leader: int, hw: int) -> bool:
    """Whether the HW of a leader's line is one that the engine's would take were a request near it dealt with then.

    A fetch that stands after the line had begun by then, and brings the HW there; or an append that stands before it,
    the HW gone past where it begins, may as well have come after it. One of the two orders is as good as the other.
    """
    place = int(np.searchsorted(events[:, c.E_SEQ], seq))
    if place >= len(events) or events[place, c.E_SEQ] != seq:
        return False
    at = events[place, c.E_TS]
    later = events[place + 1 : place + EVENTS_NEAR]
    fetched = (later[:, c.E_KIND] == c.FETCH_UPDATE) & (later[:, c.E_FETCH] >= hw) & (later[:, c.E_LO] <= at)
    earlier = events[max(place - EVENTS_NEAR, 0) : place]
    appended = (earlier[:, c.E_KIND] == c.APPEND) & (earlier[:, c.E_EXTRA] == hw)
    appended &= (earlier[:, c.E_LO] <= at) & (at <= earlier[:, c.E_TS])
    mine = (later[:, c.E_BROKER] == leader) & fetched
    return bool(mine.any() or (appended & (earlier[:, c.E_BROKER] == leader)).any())


def is_rare(batch: Batch) -> Flags:
    """All but requests and what brokers state of their offsets: few, whatever the batch."""
    kinds = batch.events.kinds
    told = ~np.isin(kinds, FREQUENT_KINDS)
    stated = np.flatnonzero(kinds == c.OBSERVATION)
    if len(stated):
        telling = pc.is_in(batch.table.column("cause").take(stated), pa.array(TELLING))
        told[stated] = telling.to_numpy()
    return told


def rare_events(events: Events) -> Rare:
    """The rare events, by kind."""
    out: Rare = defaultdict(list)
    for row in events.among(is_rare).rows:
        out[row["kind"]].append(row)
    return out


def in_turn(rare: Rare, kinds: Iterable[str]) -> list[dict[str, Any]]:
    """The rare events of some kinds, in replay order."""
    return sorted((row for kind in kinds for row in rare[kind]), key=lambda row: row["seq"])
