"""A partition's part in what Kafka's own metrics show: rows of `partition_meters`, one wherever it changes.

A broker counts a partition among those that it leads, or that are under-replicated, from what it believes itself: from
the role that it took up to the next one, by the ISR that it last committed or was told. So a leader that was deposed
without learning of it still counts. What it marks (shrinks, expansions, failed updates) are changes of its own that the
controller answered; what the controller decides by itself, or what reaches the leader by the metadata before the
answer, is marked by nobody (`Partition.submitAlterPartition`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.engine import codes as c
from replay.evidence.tenures import micros
from replay.protocol.profile import is_original_size, profile_named
from replay.protocol.state import UNSET
from replay.protocol.state_machines import OFFLINE, PARTITION
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.engine.events import Events

    Row = dict[str, Any]
    Spoken = Callable[[int, int], tuple[str | None, str | None]]  # version and protocol of a broker at a seq

MINUTE_US: Final = 60_000_000
LEADER_COUNT, UNDER_REPLICATED = "LeaderCount", "UnderReplicatedPartitions"
UNDER_MIN_ISR, AT_MIN_ISR = "UnderMinIsrPartitionCount", "AtMinIsrPartitionCount"
OF_LEADERS: Final = (LEADER_COUNT, UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR)
SHRINKS, EXPANDS, FAILED = "IsrShrinksPerSec", "IsrExpandsPerSec", "FailedIsrUpdatesPerSec"
OFFLINE_COUNT, UNCLEAN = "OfflinePartitionsCount", "UncleanLeaderElectionsPerSec"
MAX_LAG: Final = "MaxLag"
METERED_KINDS: Final = (
    "partition_change", "role_change", "isr_request", "config_change", "topic_change", "log_load", "broker_change",
)  # fmt: skip
ANSWERED: Final = "updated"  # how a leader came to a committed ISR: by the answer, or by its own write to ZooKeeper
ASKS: Final = {"pending_shrink": SHRINKS, "pending_expand": EXPANDS}
REJECTED: Final = frozenset({"reset", "refused", "retried"})
ASKED_AGAIN: Final = REJECTED - {"refused"}  # a leader asks again at once; refused: it waits for metadata
POSSIBLE: Final = 1  # of an event that may have been marked and may not


@dataclass(slots=True)
class Lag:
    """A follower's lag (leader's HW minus its own LEO), as `FetcherLagStats` has it after each answer."""

    now: int = 0
    highest: int = 0  # in the minute of the last change
    seq: int = -1
    us: int = 0
    is_told: bool = True  # whether a row tells of the last change


@dataclass(slots=True)
class Meters:
    """What the brokers' and the controller's metrics count of one partition, as its events come."""

    replicas: list[int] = field(default_factory=list)
    adding: list[int] = field(default_factory=list)
    min_isr: int | None = None
    isr: dict[int, list[int]] = field(default_factory=dict)  # by broker that believes to lead: the ISR it knows
    surely: dict[int, str] = field(default_factory=dict)  # how it is known that it leads
    decided: list[int] = field(default_factory=list)  # the ISR of the last decision
    asked: dict[int, tuple[str, list[int]]] = field(default_factory=dict)  # what each leader asked for last
    fenced: set[int] = field(default_factory=set)
    shown: dict[tuple[int, str], tuple[int | None, str]] = field(default_factory=dict)  # gauges as last told
    is_offline: bool = False
    machine_moves: int = 0  # how many were looked at
    lags: dict[int, Lag] = field(default_factory=dict)

    def take_all(self, events: Iterable[Row], moves: Sequence[Row], spoken: Spoken) -> list[Row]:
        """Take events of `METERED_KINDS` in order, and the partition's state moves; return the rows they make."""
        out: list[Row] = []
        for event in events:
            self.take(event, spoken, out)
        # Of several moves in one event, which take no time, only the last counts.
        lasting = {move["seq"]: move for move in moves[self.machine_moves :] if move["machine"] == PARTITION}
        for move in lasting.values():
            if (move["state"] == OFFLINE) != self.is_offline:
                self.is_offline = not self.is_offline
                out.append(row_of(move, None, OFFLINE_COUNT, int(self.is_offline), move["evidence"]))
        self.machine_moves = len(moves)
        return sorted(out, key=lambda row: row["seq"])

    def take(self, event: Row, spoken: Spoken, out: list[Row]) -> None:
        """Take one event."""
        kind, broker = event["kind"], event["broker_id"]
        if kind == "partition_change":
            self.decide(event, out)
        elif kind == "role_change":
            self.asked.pop(broker, None)
            self.isr.pop(broker, None)
            if event["role"] == "leader":
                self.isr[broker] = sorted(self.decided if event["isr"] is None else event["isr"])
                self.surely[broker] = event["evidence"]
        elif kind == "log_load":
            self.asked.pop(broker, None)
            self.isr.pop(broker, None)
        elif kind == "isr_request":
            self.take_request(event, out)
        elif kind == "config_change":
            if event["min_insync_replicas"] is not None:
                self.min_isr = event["min_insync_replicas"] or None
        elif kind == "topic_change":
            if event["cause"] == "remove":
                self.isr.clear()
        elif event["fenced"] is not None:
            (self.fenced.add if event["fenced"] else self.fenced.discard)(broker)
        for one in sorted({*self.isr, *(broker for broker, _ in self.shown)}):
            self.show(event, one, spoken, out)

    def decide(self, event: Row, out: list[Row]) -> None:
        """Take a decision of the controller: the assignment, and whether the election was unclean."""
        self.replicas = list(event["replicas"] or self.replicas)
        self.adding = list(event["adding_replicas"] or ())
        self.decided = list(self.decided if event["isr"] is None else event["isr"])
        for gone in [broker for broker in self.isr if broker not in self.replicas]:
            del self.isr[gone]
        if event["election"] == "unclean" and (event["leader_id"] or 0) >= 0:
            out.append(row_of(event, None, UNCLEAN, 1, event["evidence"], highest=1))

    def take_request(self, event: Row, out: list[Row]) -> None:
        """Take what a leader asks of the ISR, what came of it, or an ISR that it was told."""
        broker, cause = event["broker_id"], event["cause"]
        if cause in ASKS:
            self.asked[broker] = (ASKS[cause], sorted(event["isr"] or ()))
            return
        if cause in REJECTED:
            out.append(failed_row(event))
            return
        before, now = self.isr.get(broker), sorted(event["isr"] or ())
        metric, wanted = self.asked.pop(broker, (None, None))
        if event["state"] == ANSWERED:
            metric = metric or (SHRINKS if before is not None and len(now) < len(before) else EXPANDS)
            out.append(row_of(event, broker, metric, 1, event["evidence"], highest=1))
        elif event["state"] is None and metric is not None and wanted == now:
            out.append(row_of(event, broker, metric, 0, "bounded", highest=POSSIBLE))
        if broker in self.isr and event["isr"] is not None:
            self.isr[broker] = now

    def show(self, event: Row, broker: int, spoken: Spoken, out: list[Row]) -> None:
        """Make rows of the gauges of a broker that differ from what was told before."""
        evidence = max(self.surely.get(broker, EVIDENCE[1]), EVIDENCE[1], key=EVIDENCE.index)
        if broker in self.fenced:  # a broker that the controller does not see may be dead
            evidence = max(evidence, "bounded", key=EVIDENCE.index)
        for metric, value in zip(OF_LEADERS, self.gauges(event["seq"], broker, spoken), strict=True):
            before = self.shown.get((broker, metric), (0, EVIDENCE[1]))
            if value == before[0] and (value == 0 or evidence == before[1]):
                continue
            self.shown[broker, metric] = (value, evidence)
            out.append(row_of(event, broker, metric, value, "unknown" if value is None else evidence))

    def gauges(self, seq: int, broker: int, spoken: Spoken) -> tuple[int | None, ...]:
        """A broker's part in `OF_LEADERS`; None: not known."""
        isr = self.isr.get(broker)
        if isr is None:
            return (0,) * len(OF_LEADERS)
        version, protocol = spoken(broker, seq)
        whole = len(self.replicas)
        original = len([one for one in self.replicas if one not in self.adding]) if is_original_size(version) else whole
        under_min = at_min = None
        if self.min_isr is not None:
            capped = profile_named(version, protocol).min_isr_within_replicas
            needed = min(self.min_isr, whole) if capped else self.min_isr
            under_min, at_min = int(len(isr) < needed), int(len(isr) == needed)
        return 1, int(len(isr) < original), under_min, at_min

    def take_lags(self, events: Events, encoded: Records[EventRecord], brokers: Sequence[int]) -> list[Row]:
        """Take the answers that followers used; return rows of the lags that changed, one for each minute."""
        applied = np.flatnonzero(encoded["kind"] == c.FETCH_APPLY)
        here = encoded[applied]
        own = np.where(here["next_offset"] == UNSET, here["fetch_offset"], here["next_offset"])
        behind = np.where(here["hw"] >= 0, np.maximum(here["hw"] - own, 0), 0)
        if not behind.any() and not any(lag.now or not lag.is_told for lag in self.lags.values()):
            return []
        is_known = (here["next_offset"] != UNSET) | (events.numbers("bytes")[applied] <= 0)
        told = [
            (seq, brokers[replica], lag, us)
            for seq, replica, lag, us in zip(
                here["seq"][is_known].tolist(),
                here["replica"][is_known].tolist(),
                behind[is_known].tolist(),
                here["ts"][is_known].tolist(),
                strict=True,
            )
        ]
        ends = np.isin(encoded["kind"], (c.ROLE_CHANGE, c.LOG_LOAD))  # its fetcher is removed, or begins anew
        anew = (encoded[name][ends].tolist() for name in ("seq", "broker", "ts"))
        told += [(seq, brokers[broker], 0, us) for seq, broker, us in zip(*anew, strict=True)]
        out: list[Row] = []
        for seq, follower, lag, us in sorted(told):
            self.note_lag(self.lags.setdefault(follower, Lag()), follower, (seq, lag, us), out)
        return out

    def note_lag(self, known: Lag, follower: int, told: tuple[int, int, int], out: list[Row]) -> None:
        """Note a follower's lag (seq, lag, time); make the row of the minute before if another has begun."""
        seq, lag, us = told
        us = max(us, known.us)
        if not known.is_told and us // MINUTE_US > known.us // MINUTE_US:
            out.append(lag_row(known, follower))
            known.is_told, known.highest = True, known.now
        if lag == known.now:
            return
        known.highest = lag if known.is_told else max(known.highest, lag)
        known.now, known.seq, known.us, known.is_told = lag, seq, us, False

    def finish(self) -> list[Row]:
        """Return the rows of lags that no row tells of yet. Call once, after the last event."""
        return [lag_row(lag, follower) for follower, lag in sorted(self.lags.items()) if not lag.is_told]


def row_of(
    event: Row, broker: int | None, metric: str, value: int | None, evidence: str, highest: int | None = None
) -> Row:
    """A row of `partition_meters`."""
    told = {"seq": event["seq"], "ts": micros(event["ts"]), "broker_id": broker, "metric": metric, "value": value}
    return {**told, "highest": highest, "evidence": evidence}


def failed_row(event: Row) -> Row:
    """A row about a rejected change, as the controller's request log or the leader's own line tells it.

    A leader that has taken up another state meanwhile ignores the answer to a request. A line tells of one for sure.
    But a leader whose change was reset asks again with its follower's next fetch, and lines with the same words in the
    same millisecond are one fact, so that no number of them is too high.
    """
    broker = event["broker_id"]
    if event["request_id"] is not None:
        return row_of(event, broker, FAILED, 0, "bounded", highest=POSSIBLE)
    if event["cause"] in ASKED_AGAIN:
        return row_of(event, broker, FAILED, 1, "bounded")
    return row_of(event, broker, FAILED, 1, event["evidence"], highest=1)


def lag_row(lag: Lag, follower: int) -> Row:
    """A row about a follower's lag in a minute."""
    told = {"seq": lag.seq, "ts": lag.us, "broker_id": follower, "metric": MAX_LAG, "value": lag.now}
    return {**told, "highest": lag.highest, "evidence": "derived"}
