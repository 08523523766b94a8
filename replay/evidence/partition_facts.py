"""The facts of one partition, indexed once for all that need them: decisions, tenures, roles, fetches, epoch starts.

A `PartitionFacts` is built from the partition's own facts, with its fetches completed by `sessions`, and from facts
about the whole cluster: broker registrations, configuration, versions. It makes no events; `order` does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field, fields
from itertools import pairwise, takewhile, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine.codes import CONSUMER, LOG_CREATED
from replay.evidence.client_quotas import ClientQuotas
from replay.evidence.controller_view import MIN_ISR_SETTING, metadata_votes
from replay.evidence.decision_causes import explain
from replay.evidence.epochs import Leads, Place, Starts, leads_of, least_starts, stated_starts
from replay.evidence.fetch_index import FetchIndex, ends_connection, follow_each_other, in_own_order
from replay.evidence.fetcher_steps import Steps, fetcher_steps
from replay.evidence.future_logs import by_tenure, parted
from replay.evidence.incarnations import deletion_told
from replay.evidence.leader_lines import LineTimes, recorded_lines
from replay.evidence.markers import TransactionOutcome, outcomes_of, producers_of
from replay.evidence.metadata_log import Parts
from replay.evidence.metadata_states import states_of
from replay.evidence.min_isr import ROLE_TAKES_US, min_isr_of
from replay.evidence.missing_lines import MissingLines
from replay.evidence.replication_quotas import QuotaChange, quota_changes, quota_settings, sides_of
from replay.evidence.request_columns import RequestColumns
from replay.evidence.request_times import decision_window, phases
from replay.evidence.retries import Retries
from replay.evidence.roles import KINDS, SIGN_KINDS, moment, restarts_at, roles_of
from replay.evidence.rows import Row, is_by_replica, stretches_by_kind
from replay.evidence.served_epochs import epoch_of_answer, give_epochs, is_checked
from replay.evidence.session_lines import LEFT_OUT
from replay.evidence.tenure_index import Turns
from replay.evidence.tenures import Decision, Tenure, micros, tenures_of
from replay.evidence.versions import Spoken, Versions, spoken_in_tenures, versions_of
from replay.evidence.views import Fetch
from replay.evidence.zookeeper_view import zookeeper_votes
from replay.protocol.profile import LATEST, Profile, default_lag_ms, parse_version, profile_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replay.arrays.ints import Flags
    from replay.evidence.broker_pauses import Standstills
    from replay.evidence.expiry_runs import Marks

LAG_SETTING = "replica.lag.time.max.ms"
REMOTE_STORAGE_SETTING = "remote.storage.enable"
FREQUENT = ("fetch", "produce", "hw_update", LEFT_OUT)  # kinds of which a partition may have a row for each request


@dataclass(slots=True)
class PartitionFacts:
    """The facts of one incarnation of one partition, with their indexes."""

    topic: str
    topic_id: str | None
    incarnation: int
    partition: int
    rows: list[Row]
    cluster: list[Row]
    standstills: Standstills = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)  # broker -> time of its first line, microseconds
    expiry: Marks = field(default_factory=dict)  # broker -> runs of its isr-expiration task
    client_quotas: ClientQuotas = field(default_factory=lambda: ClientQuotas({}, {}))
    missing: MissingLines = field(default_factory=MissingLines)
    connection_ends: dict[tuple[int, str], int] = field(default_factory=dict)  # last stamp on (broker, connection)
    own_logs: frozenset[int] | None = None  # brokers whose own log is available; None: all of them
    settings: dict[str, int | None] = field(default_factory=dict)  # of brokers, as the recording's manifest states them
    kafka_version: str | None = None
    inter_broker_protocol: str | None = None
    versions: Versions = field(default_factory=Versions)
    spoken: dict[int, dict[int, Spoken]] = field(default_factory=dict)  # by leader epoch and broker, where they differ
    lag_us: int = default_lag_ms(None) * 1000
    min_insync_replicas: int | None = None  # None: no source states it
    min_isr_changes: list[tuple[Row, int]] = field(default_factory=list)
    quota_settings: list[Row] = field(default_factory=list)
    quota_changes: list[QuotaChange] = field(default_factory=list)
    remote_storage: bool = False
    throttled: set[str] = field(default_factory=set)  # 'leader', 'follower': whose replication quota lists it
    decisions: list[Decision] = field(default_factory=list)
    set_aside: list[Row] = field(default_factory=list)  # records of the metadata log that do not count
    tenures: list[Tenure] = field(default_factory=list)
    by_kind: dict[str, list[Row]] = field(default_factory=dict)
    rare: list[Row] = field(default_factory=list)  # of all kinds but those of `FREQUENT`
    role_lines: dict[tuple[int, int], Row] = field(default_factory=dict)
    loads: dict[tuple[int, int], Row] = field(default_factory=dict)
    cuts: dict[tuple[int, int], list[Row]] = field(default_factory=lambda: defaultdict(list))
    log_starts: dict[tuple[int, int], list[Row]] = field(default_factory=dict)
    fetcher_lines: dict[tuple[int, int], list[Row]] = field(default_factory=dict)  # followers' lines of their fetchers
    steps: dict[tuple[int, int], dict[int, Steps]] = field(default_factory=dict)  # `fetcher_steps`
    storage_failures: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))  # by leader epoch
    rejoins: dict[tuple[int, int], list[tuple[Row, Row]]] = field(default_factory=lambda: defaultdict(list))
    leads: Leads = field(default_factory=Leads)
    starts: Starts = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)  # of the produces, in their order
    open_bases: list[int] = field(default_factory=list)  # ascending, of produces whose epoch is uncertain
    opened: list[tuple[int, int]] = field(default_factory=list)  # these: when each was taken up, and its base offset
    follower_fetches: dict[tuple[int, int], list[Row]] = field(default_factory=dict)  # by leader and epoch
    fetchers: dict[tuple[int, int], set[int]] = field(default_factory=dict)  # whose they are
    replica_fetches: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))  # the same by replica
    consumer_fetches: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))
    consumer_questions: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))
    left_out: dict[tuple[int, int], list[Row]] = field(default_factory=lambda: defaultdict(list))
    hw_lines: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))
    edges: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # per epoch: where batches end
    segments: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))  # per epoch: base -> end
    append_lines: dict[tuple[int, int], list[Row]] = field(default_factory=lambda: defaultdict(list))  # broker, base
    future_lines: dict[int, list[Row]] = field(default_factory=dict)  # about future logs, by leader epoch
    outcomes: dict[str, list[TransactionOutcome]] = field(default_factory=dict)  # by transactional id
    producers: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # likewise
    sequences: dict[int, list[Fetch]] = field(default_factory=dict)
    fetched: dict[tuple[int, int, int], list[Fetch]] = field(default_factory=dict)  # see `fetches_of`
    recordings: dict[int, dict[int, LineTimes]] = field(default_factory=dict)  # by leader, see `recorded`
    retries: Retries | None = None
    promised: dict[tuple[int | None, int], list[tuple[int, int]]] | None = None  # by epoch and leader: `promised_to`
    turns: Turns = field(init=False)
    changes: list[Row] | None = None  # see `broker_changes`

    def __post_init__(self) -> None:
        """Index the rows, read the configuration and find the tenures."""
        self.turns = Turns(self)
        self.by_kind = defaultdict(list)
        for kind, rows in stretches_by_kind(self.rows):
            self.by_kind[kind] += rows
            self.rare += rows if kind not in FREQUENT else []
        moves = parted(self.by_kind)
        parts = Parts(self.cluster)
        self.decisions, self.set_aside = states_of(self.rare, parts, self.by_kind["fetch"])
        self.read_configuration()
        version = parse_version(self.kafka_version) or LATEST
        if any(d.row["metadata_offset"] is not None for d in self.decisions):
            metadata_votes(self.decisions, self.cluster, version, self.versions, parts)
        else:
            zookeeper_votes(self.decisions, self.cluster, self.rare, version)
        explain(self.decisions, self.broker_changes(), self.by_kind["state_change"])
        self.tenures = tenures_of(self.decisions, self.by_kind["fetch"], self.by_kind["role_change"])
        roles = roles_of(self.of_kinds(*KINDS, "leader_and_isr"), {kind: self.by_kind[kind] for kind in SIGN_KINDS})
        self.role_lines, self.loads, self.rejoins = roles.lines, roles.loads, roles.rejoins
        self.fetcher_lines = roles.fetchers
        self.steps = fetcher_steps(self.of_kinds("fetcher", "log_load"), roles)
        self.cuts, self.storage_failures, self.log_starts = roles.cuts, roles.storage_failures, roles.log_starts
        self.future_lines = by_tenure(moves, self.tenures)
        keeps = bool(profile_named(self.kafka_version, self.inter_broker_protocol).session_keeps_epoch)
        fetches = self.by_kind["fetch"]
        checked = fetches if keeps else [row for row in fetches if is_checked(row, session_keeps_epoch=keeps)]
        self.leads = leads_of(self.tenures, checked, self.role_lines)
        self.outcomes, self.producers = outcomes_of(self), producers_of(self)
        give_epochs(fetches, self.role_lines, self.epoch_at, session_keeps_epoch=keeps)
        self.index_tenures()
        self.find_starts()
        self.spoken = spoken_in_tenures(self.versions, self.tenures, self.leads.spans, {b for b, _ in self.role_lines})

    def of_kinds(self, *kinds: str) -> list[Row]:
        """Return the rows of some kinds: by kind, then in the order of `rows`."""
        return [row for kind in sorted(kinds) for row in self.by_kind[kind]]

    @property
    def key(self) -> dict[str, Any]:
        """The partition's key columns."""
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "incarnation": self.incarnation,
            "partition": self.partition,
        }

    def read_configuration(self) -> None:
        """Read min.insync.replicas (the topic's, else the cluster's, else the brokers'), the lag time, the versions."""
        rows = [*self.cluster, *self.by_kind["config_change"]]
        self.versions = versions_of(rows, self.by_kind["fetch"], Spoken(self.kafka_version, self.inter_broker_protocol))
        opening = self.decisions[0] if self.decisions else None
        self.kafka_version, self.inter_broker_protocol = self.versions.at(
            opening.leader if opening else -1, opening.us if opening else 0
        )
        stated = {name: value for name, value in self.settings.items() if value is not None}
        for row in rows:
            if row["kind"] != "config_change" or not (row["value"] or "").isdigit():
                continue
            if row["name"] == LAG_SETTING:
                stated.setdefault(LAG_SETTING, int(row["value"]))
            elif row["name"] == MIN_ISR_SETTING and row["topic"] is None and row["metadata_offset"] is None:
                stated.setdefault(MIN_ISR_SETTING, int(row["value"]))
        self.remote_storage = any(
            row["name"] == REMOTE_STORAGE_SETTING and row["value"] == "true" and row["topic"] is not None
            for row in rows
        )
        decided = any(d.row["metadata_offset"] is not None for d in self.decisions)
        self.quota_settings = quota_settings(rows, is_in_metadata=decided)
        self.throttled = sides_of(self.quota_settings, self.partition)
        self.lag_us = stated.get(LAG_SETTING, default_lag_ms(self.kafka_version)) * 1000
        found = min_isr_of(rows, self.decisions, stated.get(MIN_ISR_SETTING), is_whole=self.was_seen_made())
        self.min_insync_replicas, self.min_isr_changes = found
        replicas = {b for decision in self.decisions for b in decision.replicas}
        settings = self.quota_settings if self.throttled else []
        self.quota_changes = quota_changes(settings, self.partition, replicas, self.versions.at)

    def release(self) -> None:
        """Let go of everything, whoever holds this object: the indexes refer to each other. It is not used again."""
        for one in fields(self):
            delattr(self, one.name)

    def was_seen_made(self) -> bool:
        """Whether the topic's configuration is known from its start: by its own record, or by a newly created log."""
        told = bool(self.decisions) and self.decisions[0].row["record_type"] == "PARTITION_RECORD"
        return told or any(row["name"] == LOG_CREATED for row in self.by_kind["log_load"])

    def throttled_at(self, us: int) -> frozenset[int]:
        """Return the followers that the topic's configuration lists as throttled in this partition at `us`."""
        times, listed = self.turns.throttled
        place = bisect_right(times, us)
        return listed[place - 1] if place else frozenset()

    def index_tenures(self) -> None:
        """Collect what each tenure's chains are made of, in one pass over the rows."""
        leaders = {tenure.epoch: tenure.leader for tenure in self.tenures}
        fetches = FetchIndex(self.by_kind["fetch"])
        for of, rows, of_each in fetches.by_tenure():
            self.follower_fetches[of] = rows
            self.fetchers[of] = {*of_each}
            for replica, own in of_each.items():
                self.replica_fetches[replica] += own
        for epoch, offsets in fetches.edges():
            self.edges[epoch].update(offsets)
        reads = [fetches.rows[k] for k in fetches.by_consumers.tolist()]
        for row, served in zip(reads, self.epochs_of_reads(reads, leaders), strict=True):
            if served is not None:
                self.consumer_fetches[served].append(row)
        for row in self.by_kind["epoch_end_offset"]:
            served = self.epoch_at(row["broker_id"], phases(row).taken)
            if row["replica_id"] == CONSUMER and served is not None:
                self.consumer_questions[served].append(row)
        for row in self.by_kind[LEFT_OUT]:
            if is_by_replica(row):
                self.left_out[row["broker_id"], row["current_leader_epoch"]].append(row)
        for row in self.by_kind["hw_update"]:
            served = self.epoch_at(row["broker_id"], micros(row["ts"])) if row["name"] == "leader" else None
            if served is not None:
                self.hw_lines[served].append(row)
        for row in self.by_kind["log_append"]:
            if row["base_offset"] is not None and row["ts"] is not None:
                self.append_lines[row["broker_id"], row["base_offset"]].append(row)
        for row in self.by_kind["segment_batch"]:
            if row["leader_epoch"] is not None:
                self.segments[row["leader_epoch"]][row["base_offset"]] = row["last_offset"] + 1

    def led(self, tenure: Tenure) -> tuple[int, int]:
        """Return from when to when the leader led, by role lines and its own clock; NEVER twice without such lines."""
        line = self.role_lines.get((tenure.leader, tenure.epoch))
        if line is None or line["name"] != "leader":
            return NEVER, NEVER
        return moment(line), self.turns.left_us(tenure.leader, tenure.epoch)

    def profile_in(self, epoch: int, broker: int) -> Profile:
        """Return the rules that a broker followed in a leader epoch."""
        return profile_named(*self.spoken.get(epoch, {}).get(broker, (self.kafka_version, self.inter_broker_protocol)))

    def recorded(self, leader: int) -> dict[int, LineTimes]:
        """Return by replica what the leader's own lines say about when its fetches were handled."""
        if leader not in self.recordings:
            self.recordings[leader] = recorded_lines(self, leader)
        return self.recordings[leader]

    def followers(self, tenure: Tenure) -> set[int]:
        """Return the replicas whose fetches name this tenure's leader and epoch."""
        return self.fetchers.get((tenure.leader, tenure.epoch), set())

    def epoch_at(self, broker: int, us: int) -> int | None:
        """Return the leader epoch in which `broker` served a request at `us` of its clock; None: in no known one."""
        return self.leads.epoch_at(broker, us)

    def sent_again(self, tenure: Tenure, rows: list[Row]) -> Flags:
        """Return which of a tenure's produces, unanswered, may have been sent again to the next leader (`retries`)."""
        self.retries = self.retries or Retries(self)
        return self.retries.of(tenure, rows)

    def has_own_log(self, broker: int) -> bool:
        """Whether the broker's own log is available: only this log distinguishes its standstills from slow clients."""
        return self.own_logs is None or broker in self.own_logs

    def epochs_of_reads(self, rows: list[Row], leaders: dict[int, int]) -> Iterator[int | None]:
        """Yield the leader epochs under which consumers were served; a follower serves under the one it names."""
        told = RequestColumns(rows)
        stated = (told.now("current_leader_epoch"), told.stated("broker_id"), told.stated("error_code", 0))
        asked = (column.tolist() for column in (*stated, told.at.taken))
        for row, named, broker, error, us in zip(rows, *asked, strict=True):
            by_follower = not error and leaders.get(named, -1) not in (-1, broker)
            yield named if by_follower else epoch_of_answer(row, self.epoch_at(broker, us), self.role_lines)

    def find_starts(self) -> None:
        """Find where leader epochs start, and the epoch of each produce; each of the two helps to find the other."""
        leads, produces, fetches = self.leads, self.by_kind["produce"], self.by_kind["fetch"]
        self.starts = stated_starts(
            self.tenures, self.role_lines, self.by_kind["checkpoint"], self.by_kind["segment_batch"]
        )
        leads.low, idle = least_starts(self.tenures, fetches, waits=not self.throttled)
        leads.starts = self.starts = idle | self.starts
        self.places = [leads.place_of(row["broker_id"], phases(row), row["base_offset"]) for row in produces]
        doubtful = [row for row, place in zip(produces, self.places, strict=True) if not place.sure]
        stated = [row for row in doubtful if row["base_offset"] is not None and row["base_offset"] >= 0]
        self.open_bases = sorted({row["base_offset"] for row in stated})
        self.opened = [(phases(row).taken, row["base_offset"]) for row in stated]
        for epoch, base in self.first_bases().items():
            self.starts.setdefault(epoch, (base, "derived"))

    def first_bases(self) -> dict[int, int]:
        """Return the first base offset answered in each epoch; one below the least start was an answer to a retry."""
        bases: dict[int, int] = {}
        for row, (epoch, sure) in zip(self.by_kind["produce"], self.places, strict=True):
            base = row["base_offset"]
            if row["error_code"] != 0 or base is None or base < 0 or epoch is None or not sure:
                continue
            if base >= self.leads.low.get(epoch, 0):
                bases[epoch] = min(bases.get(epoch, base), base)
        return bases

    def sequence_of(self, replica: int) -> list[Fetch]:
        """Return the replica's fetches in the order it sent them."""
        if replica not in self.sequences:
            rows = in_own_order(self.replica_fetches.get(replica, []))
            preceding: list[Row | None] = [None, *rows][: len(rows)]
            whole = [self.missing.is_empty or not self.missing.any_between(*pair) for pair in pairwise(rows)]
            self.sequences[replica] = [
                Fetch(row, before, *after, follows, goes_on)
                for row, before, after, follows, goes_on in zip(
                    rows,
                    preceding,
                    self.all_next_known(replica, rows),
                    [True, *whole][: len(rows)],
                    [*whole, True][: len(rows)],
                    strict=True,
                )
            ]
        return self.sequences[replica]

    def all_next_known(self, replica: int, rows: list[Row]) -> Iterator[tuple[int | None, bool]]:
        """Yield the LEO stated next after each of a replica's fetches in order, and whether in the same tenure.

        Mostly it is the next one's offset. None: it is unknown.
        """
        told = RequestColumns(rows)
        goes_on, offsets = follow_each_other(told), told.stated("fetch_offset")[1:].tolist()
        changes, loads = goes_on & ends_connection(told), defaultdict[int, list[Any]](list)
        for (broker, epoch), rejoins in self.rejoins.items():
            if broker == replica:
                changed = np.flatnonzero(changes & (told.now("current_leader_epoch") == epoch)).tolist()
                for load, places in restarts_at(rejoins, rows, changed):
                    for k in places:
                        loads[k].append(load["offset"])
        for k, (row, after, offset, is_same) in enumerate(zip_longest(rows, rows[1:], offsets, goes_on.tolist())):
            if not is_same:
                yield self.next_known(replica, row, after), False
            elif k in loads and offset not in loads[k]:
                yield None, False  # it restarted in between, and its first fetch after that is missing
            else:
                yield offset, True

    def fetches_of(self, replica: int, tenure: Tenure) -> list[Fetch]:
        """Return the replica's fetches from this tenure's leader, in the order it sent them."""
        key = replica, tenure.leader, tenure.epoch
        if key not in self.fetched:
            sequence = self.sequence_of(replica)
            first = bisect_left(sequence, tenure.epoch, key=lambda fetch: fetch.row["current_leader_epoch"])
            last = bisect_right(sequence, tenure.epoch, key=lambda fetch: fetch.row["current_leader_epoch"])
            self.fetched[key] = [fetch for fetch in sequence[first:last] if fetch.row["broker_id"] == tenure.leader]
        return self.fetched[key]

    def next_known(self, replica: int, row: Row, after: Row | None) -> int | None:
        """Return the replica's LEO as next stated after `row`, its last fetch of a tenure; None: it is unknown."""
        stated = self.next_stated(replica, row, after)
        promised = self.promised_to(replica, row["current_leader_epoch"]) if row["bytes"] else 0
        return promised if promised > (stated or 0) and promised > row["fetch_offset"] else stated

    def next_stated(self, replica: int, row: Row, after: Row | None) -> int | None:
        """Return the same as far as it does not follow from what was acknowledged."""
        epoch = row["current_leader_epoch"]
        until = after["current_leader_epoch"] if after is not None else None
        following = self.turns.leo_after(replica, epoch)
        if following is not None and (until is None or following[0] <= until):
            return following[1]  # None if it led in between and nothing says from which offset
        return after["fetch_offset"] if after is not None else self.turns.ends.get(replica)

    def promised_to(self, replica: int, epoch: int) -> int:
        """Return the LEO that the replica certainly had before the epoch ended, 0 if nothing tells.

        A replica that stayed in the ISR has fetched what was since received and acknowledged with acks=all. Of the last
        such batch only the first record is certain.
        """
        tenure = self.turns.tenures.get(epoch)
        if tenure is None or not tenure.decisions:
            return 0
        stays = list(takewhile(lambda one: replica in one.isr, reversed(tenure.decisions)))
        if not stays:
            return 0
        is_throughout = len(stays) == len(tenure.decisions)
        since = -NEVER if is_throughout else decision_window(stays[-1].us).hi
        if self.promised is None:
            self.promised = defaultdict(list)
            for row, (of, sure) in zip(self.by_kind["produce"], self.places, strict=True):
                if row["acks"] != -1 or row["error_code"] != 0 or row["base_offset"] is None or not sure:
                    continue
                broker, until = row["broker_id"], phases(row).stamp + ROLE_TAKES_US
                if self.epoch_at(broker, until) == of:  # otherwise a smaller ISR may have acknowledged it
                    self.promised[of, broker].append((phases(row).taken, row["base_offset"] + 1))
        return max((end for taken, end in self.promised[epoch, tenure.leader] if taken >= since), default=0)

    def broker_changes(self) -> list[Row]:
        """Return registrations and fencing of all brokers that this partition ever had, in metadata order."""
        if self.changes is not None:
            return self.changes
        mine = {b for d in self.decisions for b in (*d.replicas, *d.isr)}
        removal = self.removal()
        end = removal["metadata_offset"] if removal is not None else NEVER
        changes = [
            r
            for r in self.cluster
            if r["kind"] == "broker_change"
            and r["metadata_offset"] is not None
            and r["metadata_offset"] < end
            and r["subject_broker_id"] in mine
            and (r["fenced"] is not None or r["in_controlled_shutdown"] is not None)
        ]
        self.changes = sorted(changes, key=lambda r: r["metadata_offset"])
        return self.changes

    def removal(self) -> Row | None:
        """Return the record that removes the topic, if there is one."""
        removals = (r for r in self.cluster if r["kind"] == "topic_change" and self.topic_id is not None)
        return next((r for r in removals if r["topic_id"] == self.topic_id), None)

    def deletion(self) -> Row | None:
        """Return the record or log line by which the topic was deleted, if there is one."""
        return self.removal() or deletion_told(self.by_kind, self.decisions)
