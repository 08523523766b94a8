"""Replays one partition: takes its events in replay order and produces the rows of every replay table.

Events come in batches. Each batch is folded by compiled rules and the state is carried over to the next; what compiled
rules cannot do (text, sets, accounting of losses) is done here on the few rows that the fold returns. A leader epoch
begins at the first event that names it: there the previous leader's log is recorded, and it is compared with the new
leader's once that one has taken up its role.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from replay.arrays.records import blank, records, together
from replay.engine import codes as c
from replay.engine.emit import N_LEO, LeoRow, Rows, new_rows, rows_of
from replay.engine.encode import brokers_of, encode
from replay.engine.kernel import fold
from replay.engine.moves import new_moves
from replay.engine.purgatory import N_COMMIT, N_OPEN, N_ROUND, new_purgatory, release_all, with_room
from replay.evidence.rows import INTERNAL_TOPICS
from replay.losses.doubts import Doubts
from replay.losses.findings import Finding, Heir
from replay.losses.incident_rows import incident
from replay.losses.loss_ledger import Ledger, Log, floor_of, log_of, written_and_read
from replay.losses.shown_epochs import ShownEpochs
from replay.losses.slots import Slots, doubtful, is_doubtful, known_from, lost_slots, spans_of, without
from replay.losses.story import KINDS as STORY_KINDS
from replay.losses.story import Story
from replay.protocol.state import BOUNDED, MIN_ISR_UNKNOWN, NONE, OBSERVED, ROLE_LEADER, ROLE_NONE, grown, new_state
from replay.protocol.state_machines import MOVING_KINDS, STATED, Machines
from replay.protocol.stated_logs import note_found_again, note_lost
from replay.tables.client_quotas import ClientQuotas
from replay.tables.conformance import Conformance
from replay.tables.consumer_effects import ConsumerEffects
from replay.tables.delete_requests import DeleteRequests
from replay.tables.election_rows import election_checks, leadership_row, risk_columns
from replay.tables.fetcher_steps import FetcherSteps
from replay.tables.final_logs import FinalLogs, elections
from replay.tables.follower_reads import FollowerReads
from replay.tables.follower_segments import LogSegments
from replay.tables.follower_states import FollowerStates
from replay.tables.future_replicas import FutureReplicas
from replay.tables.isr_expiry import IsrExpiry
from replay.tables.isr_round_trips import ROUND_TRIP_KINDS, RoundTrips
from replay.tables.isr_rows import TOLD_KINDS, IsrRows, members_of, movers_of, rows_told
from replay.tables.log_start_rows import causes_of
from replay.tables.meters import METERED_KINDS, Meters
from replay.tables.produce_outcomes import Outages, derived_errors, outcome_checks, timeout_checks
from replay.tables.quota_rates import QuotaRates
from replay.tables.rare_events import boundaries, in_turn, is_rare, rare_events
from replay.tables.risk_spans import RiskSpans
from replay.tables.rolls import Rolls
from replay.tables.rounds import (
    BatchAnswer,
    Topic,
    answers_in,
    answers_to,
    commit_checks,
    fetches_in,
    round_checks,
    rounds_of,
)
from replay.tables.segment_rows import segment_row
from replay.tables.stable_offsets import StableOffsets
from replay.tables.stated_moves import stated_checks

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.emit import CutRow
    from replay.engine.event_record import EventRecord
    from replay.engine.events import Events
    from replay.protocol.profile import Profile
    from replay.tables.output import Output
    from replay.tables.rare_events import Rare

DEFAULT_LAG_US = 30_000_000
WITH_STATE = ("config_change", "topic_change", "segment_change")  # like decisions: told with the state before
R = TypeVar("R")
NOT_STATE = ("key", "here", "out", "moves")  # what a replay that goes on has of its own
FINAL_KINDS = ("broker_change", "role_change", "log_dump")


class PartitionReplay:
    """The replay of one partition, one batch after the other."""

    def __init__(self, key: dict[str, Any], out: Output) -> None:
        """`key` holds the partition's key columns; its rows go to `out`."""
        self.key, self.out = key, out
        self.here: dict[str, Any] = {**key, "window": None}  # of rows that leave now
        self.brokers: list[int] = []
        self.state = new_state(0, min_isr=MIN_ISR_UNKNOWN, lag_us=DEFAULT_LAG_US)
        self.leads = NONE  # id of the broker that leads now
        self.topic, self.rolls, self.sizes = Topic(), Rolls(), LogSegments()
        self.purgatory = new_purgatory(0)
        self.moves = new_moves()
        self.outages, self.round_trips, self.expiry = Outages(), RoundTrips(), IsrExpiry()
        self.answers = blank(0, BatchAnswer)  # answers to acks=all batches that are not committed yet
        self.ledger = Ledger(internal=key["topic"] in INTERNAL_TOPICS)
        self.isr, self.isr_mask = IsrRows(), 0
        self.epoch = -1
        self.led = -1  # index of the last leader that had a log
        self.log: Log | None = None  # that leader's log at the end of its epoch
        self.election: dict[str, Any] | None = None
        self.conformance = Conformance()
        self.leaderships: list[dict[str, Any]] = []
        self.findings: list[Finding] = []
        # leader epoch -> indices of the findings that lost records of it
        self.lost_in: dict[int, list[int]] = defaultdict(list)
        self.changes: dict[int, str] = {}
        self.machines, self.future = Machines(), FutureReplicas()
        self.stated: list[dict[str, Any]] = []  # state transitions that a controller logged
        self.followers, self.steps = FollowerStates(), FetcherSteps()
        self.story = Story()
        self.stated_start = False  # whether a source states the offset at which the last leader began to lead
        self.final, self.risk, self.consumers = FinalLogs(), RiskSpans(), ConsumerEffects()
        self.doubts, self.shown = Doubts(), ShownEpochs()
        self.meters, self.quotas, self.limited, self.reads = Meters(), QuotaRates(), ClientQuotas(), FollowerReads()
        self.stable = StableOffsets(internal=key["topic"] in INTERNAL_TOPICS)
        self.deletions = DeleteRequests(internal=self.ledger.internal)
        self.last_seq = -1

    @property
    def state_of_replay(self) -> dict[str, Any]:
        """Everything that what follows depends on, by name; it shares its values with this replay."""
        found = {name: value for name, value in vars(self).items() if name not in NOT_STATE}
        return found | {"clients": self.out.clients.chosen(self.answers["client"])}

    @classmethod
    def resumed(cls, key: dict[str, Any], out: Output, state: dict[str, Any]) -> PartitionReplay:
        """Go on from `state_of_replay` of another replay of the partition, whose values are taken over."""
        replay = cls(key, out)
        vars(replay).update({name: value for name, value in state.items() if name != "clients"})
        replay.answers["client"] = out.clients.codes_of(state["clients"])
        return replay

    def enter(self, window: int | None) -> None:
        """Begin a window (its start, microseconds; None: unknown): rows that leave from now on stand in it."""
        self.stable.transactions.forget()
        self.here = {**self.key, "window": window}

    def feed(self, events: Events) -> None:
        """Fold the next batch of events; batches must come in replay order."""
        self.admit(brokers_of(events))
        encoded = encode(events, self.brokers)
        rare = rare_events(events)
        self.set_topic(rare["config_change"])
        self.quotas.take(rare["config_change"])
        rows = new_rows(len(encoded), len(rare["partition_change"]) + len(rare["isr_request"]), len(self.brokers))
        self.purgatory = with_room(self.purgatory, len(self.brokers), len(encoded))
        decisions = {row["seq"]: row for row in rare["partition_change"]}
        deciding = decisions | {row["seq"]: row for kind in WITH_STATE for row in rare[kind]}
        self.changes = {seq: row["change"] for seq, row in decisions.items()}
        self.story.take_all(in_turn(rare, STORY_KINDS))
        self.machines.take_all(in_turn(rare, MOVING_KINDS))
        self.followers.take_all(events, self.story.profile_at)
        self.steps.take_all(rare, self.story.profile_at)
        self.future.take_all(rare["observation"])
        self.stated += [row for row in rare["observation"] if row["cause"] == STATED]
        self.doubts.take(rare["observation"])
        self.outages.take(rare)
        self.rolls.take(rare)
        self.expiry.begin(rare["isr_request"])
        self.round_trips.take_all(in_turn(rare, ROUND_TRIP_KINDS))
        self.shown.take(events)
        self.limited.take_all(events, rare, self.story.profile_at)
        for row in (row for kind in FINAL_KINDS for row in rare[kind]):
            self.final.take(row)
        self.last_seq = int(encoded[-1].seq) if len(encoded) else self.last_seq
        start, differ = 0, len(self.story.spoken) > 1
        for stop in [*boundaries(encoded, events.places_of(is_rare), self.epoch, differ=differ), len(encoded)]:
            if start < stop:
                here = encoded[start:stop]
                moved = rows.filled[N_LEO]
                profile = self.profile_of(here)
                isr = fold(self.state, profile, here, self.isr_mask, self.moves, rows, self.purgatory)
                self.isr_mask = int(isr)
                self.risk.pass_time(here["ts"])
                self.risk.advance(records(rows.leo[moved : rows.filled[N_LEO]], LeoRow), self.state, self.brokers)
                self.after(here)
                self.note(events.part(start, stop))
            if stop < len(encoded):
                self.at_stop(encoded[stop], decisions, deciding)
            start = stop
        self.ledger.prune(floor_of(self.state, int(self.state.partition[0].assigned)))
        metered = self.meters.take_all(in_turn(rare, METERED_KINDS), self.machines.moves, self.story.spoken_at)
        lags = self.meters.take_lags(events, encoded, self.brokers)
        self.out.add_rows("partition_meters", self.here, [*metered, *lags])
        self.tell(events, encoded, rare, rows)
        self.tell_waits(events)
        self.out.add_rows("segment_timeline", self.here, self.sizes.take(events, rare))

    def admit(self, found: list[int]) -> None:
        """Give an index to brokers that are seen for the first time."""
        new = [b for b in found if b not in self.brokers]
        if new:
            self.brokers = [*self.brokers, *new]
            self.state = grown(self.state, len(self.brokers))

    def set_topic(self, settings: list[dict[str, Any]]) -> None:
        """Take from the topic's configuration what decides how fetches wait."""
        for row in settings:
            if row["remote_storage"] is not None:
                self.topic = Topic(row["remote_storage"], bool(row["leader_throttled"]))

    def profile_of(self, events: Records[EventRecord]) -> Profile:
        """Return the rules for consecutive events: the leader's, or for a single event those of its broker."""
        first = events[0]
        alone = len(events) == 1 and first.broker >= 0
        return self.story.profile_at(self.brokers[first.broker] if alone else self.leads, int(first.seq))

    def note(self, events: Events) -> None:
        """Keep what is needed to account for a loss: appends, answers and reads."""
        written, read = written_and_read(events)
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
        """Return the slots that the last leader, if it is `broker`, certainly held when it began to lead."""
        if not self.stated_start or self.led < 0 or self.brokers[self.led] != broker:
            return []
        return [one for one in spans_of(self.state, self.led) if one.epoch < int(self.state.epoch[self.led])]

    def at_stop(
        self, event: EventRecord, decisions: dict[int, dict[str, Any]], deciding: dict[int, dict[str, Any]]
    ) -> None:
        """Tell what begins or is decided at this event, and what a line says of a segment, by the state before it."""
        self.at_boundary(event, decisions)
        row = deciding.get(int(event.seq))
        if row is None:
            return
        if row["kind"] == "segment_change":
            told = segment_row(row, self.state, self.brokers)
            self.out.add_rows("segment_timeline", self.here, self.sizes.unless_held(told))
        else:
            self.risk.decide(row, self.state, self.brokers)

    def at_boundary(self, event: EventRecord, decisions: dict[int, dict[str, Any]]) -> None:
        """If a new leader epoch begins at this event, record the previous leader's log and open a leadership row."""
        if event.leader_epoch <= self.epoch or event.kind not in (c.PARTITION_CHANGE, c.ROLE_CHANGE):
            return
        if self.led >= 0 and self.log is None:
            self.log = log_of(self.state, self.led, self.brokers, int(event.seq))
        self.epoch = int(event.leader_epoch)
        decision = decisions.get(int(event.seq))
        leader = int(event.leader)
        self.election = decision or {
            "seq": -1,
            "ts": None,
            "election": "clean",
            "trigger": None,
            "leader_id": self.brokers[leader] if leader >= 0 else None,
            "leader_epoch": self.epoch,
        }
        if self.leaderships:
            self.leaderships[-1]["end_ts"] = self.election["ts"]
        self.leaderships.append(leadership_row(self.election, self.epoch, self.log))

    def after(self, events: Records[EventRecord]) -> None:
        """If the last folded event made a broker leader, compare its log with the previous leader's and find losses."""
        last = events[-1]
        if last.kind != c.ROLE_CHANGE or last.role != ROLE_LEADER:
            return
        b = int(last.broker)
        self.leads = self.brokers[b]
        s = self.state
        row = self.leaderships[-1]
        if row["leader_epoch"] == int(last.leader_epoch):
            row["start_offset"], row["hw_at_start"] = int(s.epoch_start[b]), int(s.hw[b])
            if last.evidence < BOUNDED or last.leo >= 0:
                row.update(risk_columns(row))
        self.stated_start = bool(last.evidence == OBSERVED and last.leo >= 0)
        if last.evidence >= BOUNDED and last.leo < 0:
            return  # nothing says from where it led, nothing was appended: keep comparing with the log before
        held = spans_of(s, b)
        if self.log is not None and self.election is not None and self.election["ts"] is not None:
            lost = [] if self.led_on(last) else lost_slots(self.log.spans, held, known_from(s, b))
            told = [slots for finding in self.found_in(lost) for slots in finding.lost]
            lost = without(lost, [*told, *doubtful(s, b, lost)])
            if lost:
                note_lost(s, min(slots.first for slots in lost))
                stated = bool(last.evidence < BOUNDED and self.log.evidence < BOUNDED)
                heir = Heir(held, int(s.epoch_start[b]), int(last.seq))
                self.find(Finding(self.log, self.election, heir, lost, self.ledger.about(lost), stated=stated))
                self.ledger.forget(lost)
        for finding in self.found_in(held):
            back = finding.give_back(held)
            if back:
                self.ledger.take_back(finding.ledger, back)
                note_found_again(s, min(max(slots.end for slots in back), finding.old.committed))
        for finding in self.findings if is_doubtful(s, b) else ():
            finding.give_back(doubtful(s, b, finding.lost))
        self.led, self.log = b, None

    def find(self, finding: Finding) -> None:
        """Add an event that lost records."""
        for epoch in {slots.epoch for slots in finding.lost}:
            self.lost_in[epoch].append(len(self.findings))
        self.findings.append(finding)

    def found_in(self, slots: list[Slots]) -> list[Finding]:
        """Return the findings that lost records of the same leader epochs, oldest first."""
        places = {k for one in slots for k in self.lost_in.get(one.epoch, ())} if self.lost_in else ()
        return [self.findings[k] for k in sorted(places)]

    def led_on(self, role: EventRecord) -> bool:
        """Whether the previous leader leads the next epoch too and did not restart in between: it still has its log."""
        log = self.log
        if log is None or log.leader != self.brokers[int(role.broker)] or role.leader_epoch != log.epoch + 1:
            return False
        return not self.story.within("log_load", log.leader, log.seq + 1, int(role.seq))

    def tell(self, events: Events, encoded: Records[EventRecord], rare: Rare, rows: Rows) -> None:
        """Output the rows of the fold. `encoded`: the events as the fold read them."""
        told = rows_of(rows)
        self.tell_cuts(told.cut)
        movers, lag_us = movers_of(told.mover, self.brokers), int(self.state.partition[0].lag_us)
        profile = self.story.profile_at(self.leads, self.last_seq)
        checks = self.expiry.told(told.check, lag_us // 2 if profile.expiry_twice_per_lag else lag_us)
        isr_rows = self.expiry.beside(rows_told(told.isr, self.brokers, self.changes))
        self.isr.add(events, in_turn(rare, TOLD_KINDS), isr_rows, movers, lag_us)
        self.out.add("leo_timeline", self.here, self.named(told.leo, "broker"))
        # An HW move of a broker without a role is output once the broker has a role.
        known = told.hw["role"] != ROLE_NONE
        stable = self.stable.take(events, encoded, told.hw)[known]
        self.reads.take(events, encoded, told.hw, self.brokers)
        self.out.add("hw_timeline", self.here, self.named(told.hw[known], "broker", "cause"), stable)
        if len(told.start):  # the cause of a log start change stands in the broker's own line
            causes = causes_of(told.start, {row["seq"]: row["cause"] for row in rare["log_start_change"]})
            self.out.add("log_start_timeline", self.here, self.named(told.start, "broker"), causes)
        self.out.add_rows("transactions", self.here, self.stable.rows())
        checks = self.outages.refusing(checks, encoded, self.brokers)
        checks = self.deletions.taken(rare["delete_records"], told.start, checks, self.brokers)
        self.conformance.add(self.conformance.passed_through(checks, told.hw, encoded), self.brokers)

    def tell_cuts(self, rows: Records[CutRow]) -> None:
        """Output rows of `log_truncations`, and keep them for the explanation of losses."""
        if len(rows):
            piece = self.named(rows, "broker")
            self.out.add("log_truncations", self.here, piece)
            self.story.take_cuts(self.out.table_of("log_truncations", [(self.here, (piece,))]).to_pylist())

    def tell_waits(self, events: Events) -> None:
        """Output what has left the purgatories."""
        g = self.purgatory
        saw = g.rounds[: g.filled[N_ROUND]]
        fetches = fetches_in(events, saw)
        profile = self.story.profile_at(self.leads, self.last_seq)
        found = rounds_of(fetches, saw, profile, self.topic, self.rolls)
        rates = self.quotas.rates(fetches, saw, self.story.profile_at, self.brokers)
        found["quota_rate"], found["quota_limit"], checks = rates
        self.out.add_rows("partition_meters", self.here, self.quotas.rows())
        self.conformance.add(checks, self.brokers)
        self.out.add("fetch_rounds", self.here, fetches, saw, found)
        self.conformance.add(round_checks(fetches, saw, found, self.brokers), self.brokers)
        self.consumers.take_all(events, fetches, saw["leo"])
        self.consumers.prune(self.epoch, floor_of(self.state, int(self.state.partition[0].assigned)))
        self.answers = together([self.answers, answers_in(events, self.out.clients)])
        self.tell_commits()
        self.answers = self.answers[np.isin(self.answers["seq"], g.open[: g.filled[N_OPEN]]["ack_seq"])]

    def tell_commits(self) -> None:
        """Output rows of `commit_latency`."""
        rows = self.purgatory.commits[: self.purgatory.filled[N_COMMIT]]
        if len(rows):
            answers = answers_to(rows["ack_seq"], self.answers)
            derived = derived_errors(rows, answers, self.outages, self.brokers)
            checks = [outcome_checks(rows, answers, derived), timeout_checks(rows, answers)]
            self.conformance.add(together([commit_checks(rows, answers), *checks]), self.brokers)
            self.steps.take_ends(rows, answers, self.brokers)
            named = self.named(rows, "broker", "replica")
            named["isr"] = self.sets(rows["isr"])
            self.out.add("commit_latency", self.here, named, answers, derived)

    def finish(self) -> None:
        """Output everything that is known only at the end. Call once, after the last batch."""
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
        self.out.add_rows("segment_timeline", self.here, self.sizes.finish())
        self.out.add_rows("isr_timeline", self.key, self.round_trips.beside(self.isr.rows))
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
        self.out.add_rows("partition_meters", self.here, [*self.meters.finish(), *self.quotas.finish()])
        checks = [*election_checks(self.story.decisions), *stated_checks(self.machines.moves, self.stated)]
        of_brokers = (self.machines, self.steps, self.doubts, self.round_trips, self.followers)
        of_logs = (self.stable, self.deletions, self.sizes, self.limited)
        checks += [row for one in (*of_brokers, *of_logs) for row in one.checks()] + self.reads.checks(self.brokers)
        self.out.add_rows("transactions", self.here, self.stable.finish())
        self.conformance.add(self.conformance.rest(), self.brokers)
        self.conformance.put(checks)
        self.out.add_rows("conformance", self.key, self.conformance.rows())

    def settle(self) -> None:
        """Let the last leader's log, as dumped at the end, decide what survived: the replay only follows the logs."""
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

    def named(self, rows: Records[R], *brokers: str) -> Records[R]:
        """Return the fold's rows with broker ids for indices in the fields `brokers`; NONE where there is none."""
        out = self.doubts.graded(rows)
        lookup = np.array([*self.brokers, NONE, NONE], np.int64)  # NONE and UNSET index the last places
        for name in brokers:
            out[name] = lookup[rows[name]]
        return out

    def sets(self, masks: Ints) -> Ints:
        """Turn bit masks into codes of the output's sets of broker ids; UNSET becomes NONE."""
        each, place = np.unique(masks, return_inverse=True)
        members = [members_of(mask, self.brokers) for mask in each.tolist()]
        codes = [NONE if ids is None else self.out.sets.code_of(tuple(ids)) for ids in members]
        return np.array(codes, np.int64)[place]
