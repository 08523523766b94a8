"""One partition replayed: its ordered events in, the rows of every replay table out.

The driver around the kernel. Events come in batches, already in order; the kernel folds them, the state is carried
over, and what the kernel cannot do (text, sets, accounting of losses) is done here on its few rows. A leader epoch
begins at the first event that names it: there the log of the leader before is looked at, and again once the new leader
has taken up its role.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay import encoding as c
from replay.columns import offsets, places, stamps, words
from replay.consumer_effects import ConsumerEffects
from replay.election_rows import ballot_columns, election_checks, risk_columns
from replay.emit import N_CHECK, N_CUT, N_HW, N_ISR, N_LEO, N_MOVE, N_START, Rows, new_rows
from replay.encode import brokers_of, encode
from replay.final_logs import FinalLogs, elections
from replay.findings import Finding, Heir
from replay.follower_states import FollowerStates
from replay.incidents import COLUMNS, Ledger, Log, floor_of, log_of
from replay.isr_rows import TOLD_KINDS, IsrRows, moves_of
from replay.kernel import fold
from replay.log_starts import start_columns
from replay.losses import incident
from replay.profile import Profile, profile_named
from replay.purgatory import (
    COMMIT_ROW,
    N_COMMIT,
    N_OPEN,
    N_ROUND,
    O_ACK_SEQ,
    ROUND_ROW,
    new_purgatory,
    release_all,
    with_room,
)
from replay.risk_spans import RiskSpans
from replay.rounds import (
    Topic,
    answers_in,
    commit_checks,
    commit_columns,
    fetches_in,
    round_checks,
    round_columns,
    rounds_of,
)
from replay.slots import Slots, doubtful, known_from, lost_slots, spans_of, without
from replay.state import (
    ASSIGNED,
    BOUNDED,
    LAG_US,
    NONE,
    OBSERVED,
    ROLE_LEADER,
    ROLE_NONE,
    TRUE_HW,
    UNSET,
    Ints,
    grown,
    new_state,
)
from replay.state_machines import MOVING_KINDS, Machines
from replay.stated_moves import STATED, stated_checks
from replay.story import KINDS as STORY_KINDS
from replay.story import Story
from schemas.events import EVENT_KINDS
from schemas.model import EVIDENCE
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ISR_NUMBERS = ("seq", "ts", "epoch", "partition_epoch", "state", "under_min", "evidence")
DEFAULT_LAG_US = 30_000_000
HW_MOVES_KEPT = 1000  # how many moves of its HW a broker may be behind with its line about one
FREQUENT_KINDS = (
    c.APPEND, c.ACK, c.FETCH_UPDATE, c.FETCH_READ, c.FETCH_APPLY, c.CONSUMER_READ, c.FETCH_LEFT_OUT, c.OBSERVATION
)  # fmt: skip
LEDGER_KINDS = ("append", "ack", "consumer_read")
DECIDING = (c.PARTITION_CHANGE, c.CONFIG_CHANGE, c.TOPIC_CHANGE)
FINAL_KINDS = ("broker_change", "role_change", "log_dump")
Rare = dict[str, list[dict[str, Any]]]  # by kind


class PartitionReplay:
    """The replay of one partition, batch by batch."""

    def __init__(self, key: dict[str, Any]) -> None:
        """`key` holds the partition's key columns."""
        self.key = key
        self.brokers: list[int] = []
        self.state = new_state(0, min_isr=1, lag_us=DEFAULT_LAG_US)
        self.profile: Profile = profile_named(None, None)
        self.topic = Topic()
        self.purgatory = new_purgatory(0)
        self.answers: pa.Table | None = None  # those to acks=all batches that are still open
        self.ledger = Ledger()
        self.isr = IsrRows()
        self.isr_mask = 0
        self.epoch = -1
        self.led = -1  # the last leader that had a log, as an index
        self.log: Log | None = None  # its log at the end of its epoch
        self.election: dict[str, Any] | None = None
        self.checks: dict[str, dict[str, Any]] = {}
        self.leaderships: list[dict[str, Any]] = []
        self.findings: list[Finding] = []
        self.changes: dict[int, str] = {}
        self.taken = np.zeros((0, 3), np.int64)  # the last HWs that leaders took: broker, seq, HW
        self.machines = Machines()
        self.stated: list[dict[str, Any]] = []  # moves that a controller wrote down
        self.followers = FollowerStates()
        self.story = Story()
        self.stated_start = False  # whether a source states from where the last leader led
        self.final = FinalLogs()
        self.risk = RiskSpans()
        self.consumers = ConsumerEffects()
        self.last_seq = -1

    def feed(self, batch: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Fold one batch of events; yields (table, rows)."""
        self.admit(brokers_of(batch))
        events = encode(batch, self.brokers)
        rare = rare_events(batch, events)
        self.set_profile(rare["config_change"])
        about_isr = int(np.isin(events[:, c.E_KIND], (c.PARTITION_CHANGE, c.ISR_REQUEST)).sum())
        rows = new_rows(len(events), about_isr, len(self.brokers))
        self.purgatory = with_room(self.purgatory, len(self.brokers), len(events))
        decisions = {row["seq"]: row for row in rare["partition_change"]}
        deciding = decisions | {row["seq"]: row for kind in ("config_change", "topic_change") for row in rare[kind]}
        self.changes = {seq: row["change"] for seq, row in decisions.items()}
        self.story.take_all(in_turn(rare, STORY_KINDS))
        self.machines.take_all(in_turn(rare, MOVING_KINDS))
        self.followers.take_all(batch, truncate_on_fetch=bool(self.profile.truncate_on_fetch))
        self.stated += [row for row in rare["observation"] if row["cause"] == STATED]
        for kind in FINAL_KINDS:
            for row in rare[kind]:
                self.final.take(row)
        facts = batch.select(COLUMNS).filter(pc.is_in(batch.column("kind"), pa.array(LEDGER_KINDS)))
        places = facts.column("seq").to_numpy()
        self.last_seq = int(events[-1, c.E_SEQ]) if len(events) else self.last_seq
        start = 0
        for stop in [*self.boundaries(events), len(events)]:
            if start < stop:
                here = events[start:stop]
                moved = rows.filled[N_LEO]
                self.isr_mask = int(fold(self.state, self.profile, here, self.isr_mask, rows, self.purgatory))
                self.risk.advance(rows.leo[moved : rows.filled[N_LEO]], self.state, self.brokers)
                self.after(here)
                first, last = np.searchsorted(places, (events[start, c.E_SEQ], events[stop - 1, c.E_SEQ] + 1))
                self.note(facts.slice(first, last - first))
            if stop < len(events):
                self.at_boundary(events[stop], decisions)
                decided = deciding.get(int(events[stop, c.E_SEQ]))
                if decided is not None:
                    self.risk.decide(decided, self.state, self.brokers)
            start = stop
        self.ledger.prune(floor_of(self.state, int(self.state.cluster[ASSIGNED])))
        yield from self.tables(batch, rare, rows)
        yield from self.waits(batch)

    def admit(self, found: list[int]) -> None:
        """Give new brokers an index."""
        new = [b for b in found if b not in self.brokers]
        if new:
            self.brokers = sorted([*self.brokers, *new]) if not self.brokers else [*self.brokers, *new]
            self.state = grown(self.state, len(self.brokers))

    def set_profile(self, settings: list[dict[str, Any]]) -> None:
        """The first configuration that names a version decides the rules."""
        for row in settings:
            if row["remote_storage"] is not None:
                self.topic = Topic(row["remote_storage"], bool(row["leader_throttled"]))
            if row["kafka_version"]:
                self.profile = profile_named(row["kafka_version"], row["inter_broker_protocol"])

    def boundaries(self, events: Ints) -> list[int]:
        """Where a leader epoch begins, right after its leader has taken up its role, and where anything is decided."""
        kinds, epochs = events[:, c.E_KIND], events[:, c.E_EPOCH]
        elects = (kinds == c.PARTITION_CHANGE) | (kinds == c.ROLE_CHANGE)
        out = set(np.flatnonzero(np.isin(kinds, DECIDING)).tolist())
        newest = self.epoch
        for k in np.flatnonzero(elects):
            if epochs[k] > newest:
                newest = int(epochs[k])
                out.add(int(k))
            if kinds[k] == c.ROLE_CHANGE and events[k, c.E_VALUE] == ROLE_LEADER:
                out.add(int(k) + 1)
        return sorted(k for k in out if k < len(events))

    def note(self, rows: pa.Table) -> None:
        """Keep what a loss would be accounted from: appends, answers and reads since the last decision."""
        if not len(rows):
            return
        answers = rows.filter(pc.equal(rows.column("kind"), "ack"))
        retried = pc.unique(answers.filter(pc.fill_null(answers.column("duplicate"), False)).column("broker_id"))
        self.ledger.take(rows, {broker: self.held_by(broker) for broker in retried.to_pylist()})
        self.risk.appended = self.risk.appended or bool(pc.any(pc.equal(rows.column("kind"), "append")).as_py())
        if self.risk.open:
            for row in answers.to_pylist():
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
        s = self.state
        row = self.leaderships[-1]
        if row["leader_epoch"] == int(last[c.E_EPOCH]):
            row["start_offset"], row["hw_at_start"] = int(s.epoch_start[b]), int(s.hw[b])
            if last[c.E_EVIDENCE] < BOUNDED or last[c.E_LEO] >= 0:
                row.update(risk_columns(row))
        self.stated_start = bool(last[c.E_EVIDENCE] == OBSERVED and last[c.E_LEO] >= 0)
        if last[c.E_EVIDENCE] >= BOUNDED and last[c.E_LEO] < 0:
            return  # nothing says from where it led, nothing was appended: the log before stays the measure
        if self.log is not None and self.election is not None and self.election["ts"] is not None:
            told = [slots for finding in self.findings for slots in finding.lost]
            lost = lost_slots(self.log.spans, spans_of(s, b), known_from(s, b))
            lost = without(lost, [*told, *doubtful(s, b, lost)])
            if lost:  # what was committed beyond is committed no more
                s.cluster[TRUE_HW] = min(int(s.cluster[TRUE_HW]), *(slots.first for slots in lost))
                stated = bool(last[c.E_EVIDENCE] < BOUNDED and self.log.evidence < BOUNDED)
                heir = Heir(spans_of(s, b), int(s.epoch_start[b]), int(last[c.E_SEQ]))
                self.findings.append(
                    Finding(self.log, self.election, heir, lost, self.ledger.about(lost), stated=stated)
                )
                self.ledger.forget(lost)
        for finding in self.findings:
            back = finding.give_back(spans_of(s, b))
            if back:  # and what was committed of it is so again
                self.ledger.take_back(finding.ledger, back)
                end = min(max(slots.end for slots in back), finding.old.committed)
                s.cluster[TRUE_HW] = max(int(s.cluster[TRUE_HW]), end)
            finding.give_back(doubtful(s, b, finding.lost))
        self.led, self.log = b, None

    def tables(self, batch: pa.Table, rare: Rare, rows: Rows) -> Iterator[tuple[str, pa.Table]]:
        """The kernel's rows as tables."""
        count = rows.filled
        cuts = self.cut_rows(rows.cut[: count[N_CUT]])
        self.story.cuts += cuts.to_pylist()
        self.add_isr_rows(batch, in_turn(rare, TOLD_KINDS), rows.isr[: count[N_ISR]], rows.move[: count[N_MOVE]])
        yield "leo_timeline", self.leo_rows(rows.leo[: count[N_LEO]])
        yield "hw_timeline", self.hw_rows(rows.hw[: count[N_HW]])
        yield "log_truncations", cuts
        yield "log_start_timeline", self.start_rows(rare["log_start_change"], rows.start[: count[N_START]])
        self.add_checks(self.passed_through(rows.check[: count[N_CHECK]], rows.hw[: count[N_HW]]))

    def waits(self, batch: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """What left the purgatories, as tables; what is told of the events themselves is taken from `batch`."""
        g = self.purgatory
        saw = g.rounds[: g.filled[N_ROUND]]
        fetches = fetches_in(batch, saw)
        found = rounds_of(fetches, saw, self.profile, self.topic)
        yield "fetch_rounds", self.rows_table("fetch_rounds", saw, round_columns(fetches, saw, found))
        self.add_checks(round_checks(fetches, saw, found, self.brokers))
        floor = floor_of(self.state, int(self.state.cluster[ASSIGNED]))
        self.consumers.take_all(batch, fetches, saw[:, ROUND_ROW.index("leo")])
        self.consumers.prune(self.epoch, floor)
        self.answers = answers_in(batch, self.answers)
        yield "commit_latency", self.commit_rows()
        still = g.open[: g.filled[N_OPEN], O_ACK_SEQ]
        self.answers = self.answers.filter(pc.is_in(self.answers.column("seq"), pa.array(still)))

    def commit_rows(self) -> pa.Table:
        """`commit_latency`."""
        rows = self.purgatory.commits[: self.purgatory.filled[N_COMMIT]]
        if not len(rows):
            return empty("commit_latency")
        at = places(rows, COMMIT_ROW)
        columns = commit_columns(at, self.answers)
        self.add_checks(commit_checks(at, self.answers))
        isr = self.lists(at["isr"])
        columns |= {
            "broker_id": self.ids(at["broker"]),
            "last_replica_id": self.ids(at["replica"]),
            "isr": isr,
            "isr_size": pc.list_value_length(isr),
        }
        return self.rows_table("commit_latency", rows, columns)

    def finish(self) -> Iterator[tuple[str, pa.Table]]:
        """What is known only at the end."""
        if self.answers is not None:
            self.purgatory = with_room(self.purgatory, len(self.brokers), 0)
            release_all(self.purgatory, NONE)
            yield "commit_latency", self.commit_rows()
        self.settle()
        self.story.isr, self.story.profile = self.isr.rows, self.profile
        lost = [(found, incident(self.key, found, self.story)) for found in self.findings if found.matters]
        incidents = [row for _, row in lost]
        yield "isr_timeline", self.table("isr_timeline", self.isr.rows)
        yield "isr_flaps", self.table("isr_flaps", self.isr.flaps)
        yield "leadership_timeline", self.table("leadership_timeline", self.leaderships)
        yield "data_loss_incidents", self.table("data_loss_incidents", incidents)
        divergences = self.final.divergences(self.state, self.brokers, self.led, elections(self.leaderships))
        yield "replica_divergences", self.table("replica_divergences", list(divergences))
        now = spans_of(self.state, self.led) if self.led >= 0 else []
        effects = self.consumers.finish([(found, row["incident_id"]) for found, row in lost], now)
        yield "consumer_effects", self.table("consumer_effects", effects)
        risks = self.risk.finish(incidents, produced=self.ledger.produced)
        yield "partition_risk", self.table("partition_risk", risks)
        yield "state_transitions", self.table("state_transitions", self.machines.moves)
        yield "follower_states", self.table("follower_states", self.followers.moves)
        checks = [*election_checks(self.story.decisions), *self.machines.checks()]
        checks += stated_checks(self.machines.moves, self.stated)
        self.checks.update({row["check"]: row for row in checks})
        yield "conformance", self.table("conformance", [self.checks[name] for name in sorted(self.checks)])

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
            self.findings.append(Finding(log, untold, heir, lost, self.ledger.about(lost), stated=True))

    def ids(self, indices: Ints) -> pa.Array:
        """Dense indices back to broker ids, NONE as null."""
        lookup = np.array([*self.brokers, -1], np.int32)
        return pa.array(lookup[indices], pa.int32(), mask=indices < 0)

    def lists(self, masks: Ints) -> pa.Array:
        """Bit masks as sorted lists of broker ids, UNSET as null."""
        each, place = np.unique(masks, return_inverse=True)
        found = [
            None if mask == UNSET else sorted(b for k, b in enumerate(self.brokers) if int(mask) & (1 << k))
            for mask in each.tolist()
        ]
        return pa.array(found, pa.list_(pa.int32())).take(pa.array(place))

    def rows_table(self, name: str, rows: Ints, columns: dict[str, pa.Array]) -> pa.Table:
        """Columns as a table of the schema, the key filled in."""
        schema = schema_of(name)
        if not len(rows):
            return empty(name)
        arrays = []
        for field in schema:
            if field.name in columns:
                arrays.append(columns[field.name].cast(field.type))
            else:
                arrays.append(pa.repeat(pa.scalar(self.key[field.name], field.type), len(rows)))
        return pa.Table.from_arrays(arrays, schema=schema)

    def table(self, name: str, rows: list[dict[str, Any]]) -> pa.Table:
        """Rows as a table of the schema, the key filled in."""
        if not rows:
            return empty(name)
        return pa.Table.from_pylist([{**self.key, **row} for row in rows], schema=schema_of(name))

    def leo_rows(self, rows: Ints) -> pa.Table:
        """`leo_timeline`."""
        at = places(rows, c.LEO_ROW)
        return self.rows_table("leo_timeline", rows, {
            "seq": pa.array(at["seq"]),
            "ts": stamps(at["ts"]),
            "broker_id": self.ids(at["broker"]),
            "observer": words(at["observer"], ("local", "leader")),
            "leader_epoch": offsets(at["epoch"]),
            "leo_before": pa.array(at["before"], mask=at["before"] == UNSET),
            "leo": pa.array(at["leo"]),
            "step": words(at["step"], c.STEPS),
            "cause": words(at["kind"], EVENT_KINDS),
            "evidence": words(at["evidence"], EVIDENCE),
        })  # fmt: skip

    def hw_rows(self, rows: Ints) -> pa.Table:
        """`hw_timeline`; a move of a broker without a role is told of once it has one."""
        at = places(rows[rows[:, c.HW_ROW.index("role")] != ROLE_NONE], c.HW_ROW)
        return self.rows_table("hw_timeline", at["seq"], {
            "seq": pa.array(at["seq"]),
            "ts": stamps(at["ts"]),
            "broker_id": self.ids(at["broker"]),
            "role": words(at["role"], ("none", "follower", "leader")),
            "leader_epoch": offsets(at["epoch"]),
            "hw_before": pa.array(at["before"]),
            "hw": pa.array(at["hw"]),
            "step": words(at["step"], c.STEPS),
            "cause": words(at["kind"], EVENT_KINDS),
            "cause_broker_id": self.ids(at["cause"]),
            "evidence": words(at["evidence"], EVIDENCE),
        })  # fmt: skip

    def add_isr_rows(self, batch: pa.Table, told: list[dict[str, Any]], rows: Ints, moves: Ints) -> None:
        """Rows of `isr_timeline`: kept to the end, for what becomes of a request is known later."""
        at = places(rows, c.ISR_ROW)
        ids, isr, before = (self.ids(at["leader"]), self.lists(at["isr"]), self.lists(at["isr_before"]))
        leaders, isrs, befores = ids.to_pylist(), isr.to_pylist(), before.to_pylist()
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
                    "under_min_isr": bool(under),
                    "evidence": EVIDENCE[evidence],
                }
            )
        self.isr.add(batch, told, found, moves_of(moves, self.brokers), int(self.state.cluster[LAG_US]))

    def cut_rows(self, rows: Ints) -> pa.Table:
        """`log_truncations`."""
        if not len(rows):
            return empty("log_truncations")
        at = places(rows, c.CUT_ROW)
        return self.rows_table("log_truncations", rows, {
            "seq": pa.array(at["seq"]),
            "ts": stamps(at["ts"]),
            "broker_id": self.ids(at["broker"]),
            "leader_epoch": offsets(at["epoch"]),
            "leo_before": pa.array(at["before"]),
            "leo_after": pa.array(at["after"]),
            "hw_before": pa.array(at["hw_before"]),
            "records_removed": pa.array(at["before"] - at["after"]),
            "cause": words(at["cause"], c.CAUSES),
            "evidence": words(at["evidence"], EVIDENCE),
        })  # fmt: skip

    def start_rows(self, changes: list[dict[str, Any]], rows: Ints) -> pa.Table:
        """`log_start_timeline`; why a log was shortened stands in the broker's own line."""
        if not len(rows):
            return empty("log_start_timeline")
        reasons = {row["seq"]: row["cause"] for row in changes}
        columns = start_columns(rows, reasons) | {"broker_id": self.ids(places(rows, c.START_ROW)["broker"])}
        return self.rows_table("log_start_timeline", rows, columns)

    def passed_through(self, rows: Ints, moves: Ints) -> Ints:
        """Checks, those of HW lines equal where the engine's HW took that value by itself, then or a little before.

        A handler thread writes its line while others go on, so the engine may be further by the time of the line.
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
                place = int(at["broker"][first])
                broker = self.brokers[place] if place >= 0 else "unknown"
                computed, stated = int(at["computed"][first]), int(at["stated"][first])
                entry["first_mismatch_seq"] = int(at["seq"][first])
                entry["note"] = f"broker {broker}: computed {computed}, stated {stated}"


@cache
def schema_of(name: str) -> pa.Schema:
    """A replay table's Arrow schema; null where the key is not yet known is left to the writer."""
    return TABLES[name].arrow_schema


@cache
def empty(name: str) -> pa.Table:
    """No rows of a table."""
    return schema_of(name).empty_table()


def rare_events(batch: pa.Table, events: Ints) -> Rare:
    """All but requests and what brokers state of their offsets, by kind: few, whatever the batch."""
    kind = events[:, c.E_KIND]
    told = ~np.isin(kind, FREQUENT_KINDS)
    stated = np.flatnonzero(kind == c.OBSERVATION)
    if len(stated):
        telling = pc.is_in(batch.column("cause").take(stated), pa.array([STATED, c.STORAGE_FAILED]))
        told[stated] = telling.to_numpy()
    out: Rare = defaultdict(list)
    for row in batch.take(np.flatnonzero(told)).to_pylist():
        out[row["kind"]].append(row)
    return out


def in_turn(rare: Rare, kinds: Iterable[str]) -> list[dict[str, Any]]:
    """The rare events of some kinds, in replay order."""
    return sorted((row for kind in kinds for row in rare[kind]), key=lambda row: row["seq"])


def replay_partition(key: dict[str, Any], batches: Iterable[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """Replay one partition's events, given in seq order, batch by batch -> (table name, rows)."""
    replay = PartitionReplay(key)
    for batch in batches:
        yield from replay.feed(batch)
    yield from replay.finish()
