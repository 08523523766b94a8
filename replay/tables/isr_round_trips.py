"""Requests to change the ISR as round trips: what the controller must have answered, compared with what came of it.

A leader asks under the epochs that it knows, the controller decides by the epochs and registrations that it has when
the request arrives, and the leader takes the answer. The controller's decisions and registrations are looked up in its
own order: a leader that is being replaced asks under an epoch that is over already. A leader has one request on its
way: its own queue refuses another one with OPERATION_NOT_ATTEMPTED (AlterPartitionManager.submit), which happens if the
metadata ends what was pending before the answer does. When such a late answer arrives stands in no line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replay.engine.codes import ANSWERED
from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.tenures import micros
from replay.protocol.alter_partition import (
    NOT_CONTROLLER,
    OPERATION_NOT_ATTEMPTED,
    IsrRequest,
    PartitionNow,
    Registrations,
    alter_rules_of,
    controller_answer,
    granted_isr,
)
from replay.protocol.produce import NO_ERROR, REQUEST_TIMED_OUT
from replay.protocol.profile import LATEST, parse_version, profile_named
from replay.tables.isr_propagation import IsrPropagation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.protocol.alter_partition import AlterRules

ROUND_TRIP_KINDS: Final = (
    "partition_change",
    "broker_change",
    "isr_request",
    "config_change",
    "observation",
    "log_load",
)
ANSWER_LATE_US: Final = 2_000_000  # so long after a decision its answer may still be on the way
FAILED: Final = (-1, REQUEST_TIMED_OUT)  # UNKNOWN_SERVER_ERROR: of the whole request
PENDING: Final = ("pending_expand", "pending_shrink")
REFUSED: Final = ("reset", "refused")  # retried: that says which node is the controller, and nothing of the partition

Event = dict[str, Any]
Under = tuple[int, int, int]  # leader, leader epoch, partition epoch


def under(one: PartitionNow | IsrRequest) -> Under:
    """The epochs of a decision, or those under which a leader asks for another."""
    return one.leader, one.leader_epoch, one.partition_epoch


class Decision(NamedTuple):
    """A decision of the controller; the registrations before it."""

    us: int
    brokers: Registrations
    made: PartitionNow


@dataclass(slots=True)
class Asked:
    """A request, and its rejection if there was one."""

    seq: int
    us: int
    request: IsrRequest
    error: int = NO_ERROR
    until: int = 0  # when the leader took the rejection
    is_answered: bool = False  # whether a controller answers it, by epochs that are known


@dataclass
class RoundTrips:
    """The requests of one partition's leaders, and the controller's decisions."""

    rules: AlterRules = field(default_factory=lambda: alter_rules_of(LATEST, zookeeper=False))
    decisions: list[Decision] = field(default_factory=list)
    registered: list[tuple[int, Registrations]] = field(default_factory=lambda: [(0, Registrations(frozenset()))])
    known: dict[int, tuple[int, int]] = field(default_factory=dict)  # leader -> leader and partition epoch it goes by
    open: dict[int, Asked] = field(default_factory=dict)  # leader -> its newest request that was not rejected
    asked: list[Asked] = field(default_factory=list)
    asks: bool = True  # whether leaders ask the controller, and do not write to ZooKeeper themselves
    answers: list[tuple[int, int, int, int]] = field(default_factory=list)  # seq, node, active controller, error
    propagation: IsrPropagation = field(default_factory=IsrPropagation)

    def take_all(self, events: Iterable[Event]) -> None:
        """Take the events of `ROUND_TRIP_KINDS` in replay order."""
        for event in events:
            self.propagation.take(event, asks=self.asks)
            if event["kind"] == "partition_change":
                self.decide(event)
            elif event["kind"] == "broker_change":
                self.register(event)
            elif event["kind"] == "isr_request":
                self.ask(event)
            elif event["cause"] == ANSWERED:
                self.note_answer(event)
            elif event["kafka_version"] is not None and event["broker_id"] is None:
                version = parse_version(event["kafka_version"]) or LATEST
                self.rules = alter_rules_of(version, zookeeper=self.rules.zookeeper)
                profile = profile_named(event["kafka_version"], event["inter_broker_protocol"])
                self.asks = bool(profile.asks_controller)

    def note_answer(self, event: Event) -> None:
        """A node answers. One that fails, as a controller does that has not heard of its successor, tells nothing."""
        active, error = event["active_controller_id"], event["error_code"]
        if active is not None and error is not None and error not in FAILED:
            self.answers.append((event["seq"], event["controller_id"], active, error))

    def register(self, event: Event) -> None:
        """A broker is fenced, unfenced, or begins to shut down: that decides who may be in an ISR."""
        broker = event["broker_id"]
        _, (unfit, epochs) = self.registered[-1]
        if event["fenced"] or event["in_controlled_shutdown"]:
            unfit |= {broker}
        elif event["fenced"] is not None:
            unfit -= {broker}
        if event["broker_epoch"] is not None:
            epochs = frozenset({**dict(epochs), broker: event["broker_epoch"]}.items())
        self.registered.append((micros(event["ts"]), Registrations(unfit, epochs)))

    def decide(self, event: Event) -> None:
        """The controller decides. ZooKeeper's numbers the versions of the partition's node."""
        if event["partition_epoch"] is None or event["isr"] is None:
            return
        had = self.decisions[-1].made if self.decisions else None
        self.rules = self.rules._replace(zookeeper=event["metadata_offset"] is None)
        leader = event["leader_id"] if event["leader_id"] is not None else had.leader if had else -1
        replicas = event["replicas"] or (had.replicas if had else event["isr"])
        sets = (frozenset(event[name] or ()) for name in ("isr", "adding_replicas", "removing_replicas"))
        isr, adding, removing = sets
        epochs = (event["leader_epoch"], event["partition_epoch"])
        now = PartitionNow(leader, *epochs, isr, frozenset(replicas), adding, removing)
        self.decisions.append(Decision(micros(event["ts"]), self.registered[-1][1], now))
        if had is None or had.leader_epoch != now.leader_epoch or had.leader != now.leader:
            self.known[leader] = epochs

    def ask(self, event: Event) -> None:
        """A leader asks, takes up what was committed, or is refused."""
        leader, cause, epoch = event["broker_id"], event["cause"], event["leader_epoch"]
        if cause in PENDING:
            _, version = self.known.get(leader, (epoch, -1))
            epochs = zip(event["isr"], event.get("isr_broker_epochs") or (), strict=False)
            members = frozenset((broker, one) for broker, one in epochs if one >= 0)
            request = IsrRequest(leader, epoch, version, frozenset(event["isr"]), members)
            self.open[leader] = Asked(event["seq"], micros(event["ts"]), request)
            self.asked.append(self.open[leader])
            self.open[leader].is_answered = self.asks and leader in self.known
        elif cause == "committed" and event["partition_epoch"] is not None:
            self.known[leader] = epoch, max(self.known.get(leader, (epoch, -1))[1], event["partition_epoch"])
        elif cause in REFUSED and leader in self.open:
            asked = self.open.pop(leader)
            asked.error, asked.until = event["error_code"], micros(event["ts"])

    def decisions_after(self) -> dict[Under, list[int]]:
        """The decisions that were made under some epochs, in order."""
        after: dict[Under, list[int]] = defaultdict(list)
        for k, decision in enumerate(self.decisions[:-1], start=1):
            after[under(decision.made)].append(k)
        return after

    def outcomes(self) -> Iterable[tuple[Asked, set[int]]]:
        """Each request of which the outcome is known, with the errors that it may have been answered."""
        times, after = [decision.us for decision in self.decisions], self.decisions_after()
        for asked in self.asked:
            if asked.error == NO_ERROR:
                granted = next((k for k in after.get(under(asked.request), ()) if self.is_granted(asked, k)), None)
                if granted is not None:
                    yield asked, {self.answer(asked, granted - 1, self.decisions[granted].brokers)}
                continue
            first = max(bisect_right(times, asked.us - CLOCK_SLACK_US) - 1, 0)
            last = max(bisect_right(times, asked.until + CLOCK_SLACK_US), first + 1)
            seen = range(first, min(last, len(times)))
            brokers = self.registered_within(asked.us - CLOCK_SLACK_US, asked.until + CLOCK_SLACK_US)
            found = {self.answer(asked, k, one) for k in seen for one in brokers}
            recent = bisect_right(times, asked.until + CLOCK_SLACK_US) - 1
            if recent >= 0 and asked.until - times[recent] <= ANSWER_LATE_US:
                found.add(OPERATION_NOT_ATTEMPTED)
            yield asked, found

    def is_granted(self, asked: Asked, k: int) -> bool:
        """Whether the decision number `k`, the next under the epochs of a request, is the one that was asked for."""
        had, made, request = self.decisions[k - 1].made, self.decisions[k].made, asked.request
        return made.leader == request.leader and made.isr == granted_isr(request, had)

    def registered_within(self, since: int, until: int) -> list[Registrations]:
        """The registrations as they were at `since`, and after each change up to `until`."""
        first = max(bisect_right(self.registered, since, key=itemgetter(0)) - 1, 0)
        last = bisect_right(self.registered, until, key=itemgetter(0))
        return [brokers for _, brokers in self.registered[first : max(last, first + 1)]]

    def answer(self, asked: Asked, k: int, brokers: Registrations) -> int:
        """What the controller answers after its decision number `k`."""
        return controller_answer(asked.request, self.decisions[k].made, brokers, self.rules)

    def beside(self, rows: list[Event]) -> list[Event]:
        """Write beside rows of the ISR how the controller answers the requests that they are about (`asked_seq`)."""
        asked = {one.seq: one for one in self.asked if one.is_answered and self.decisions}
        times, after = [decision.us for decision in self.decisions], self.decisions_after()
        for row in rows:
            one = asked.get(row.get("asked_seq") or -1)
            if one is None:
                continue
            granted = next((k for k in after.get(under(one.request), ()) if self.is_granted(one, k)), None)
            if granted is not None and one.error == NO_ERROR:
                row["derived_error_code"] = self.answer(one, granted - 1, self.decisions[granted].brokers)
            else:
                last, brokers = max(bisect_right(times, one.us) - 1, 0), self.registered_within(one.us, one.us)[-1]
                row["derived_error_code"] = self.answer(one, last, brokers)
        return rows

    def checks(self) -> list[dict[str, Any]]:
        """Return the row of `conformance`; none if nothing was compared."""
        compared = len(self.answers)
        wrong = [
            (seq, f"node {node}: active controller {active}, stated {error}")
            for seq, node, active, error in self.answers
            if (error == NOT_CONTROLLER) != (node != active)
        ]
        for asked, possible in self.outcomes():
            compared += 1
            if asked.error not in possible:
                computed = " or ".join(str(one) for one in sorted(possible)) or "nothing"
                wrong.append((asked.seq, f"broker {asked.request.leader}: computed {computed}, stated {asked.error}"))
        if not compared:
            return self.propagation.checks()
        seq, note = min(wrong) if wrong else (None, None)
        row = {"check": "alter_partition", "compared": compared, "matched": compared - len(wrong)}
        return [{**row, "first_mismatch_seq": seq, "note": note}, *self.propagation.checks()]
