"""Requests to change the ISR as round trips: what the controller must have answered, compared with what came of it.

A leader asks under the epochs that it knows, the controller decides by the epochs and registrations that it has when
the request arrives, and the leader takes the answer. The controller's decisions and registrations are looked up in its
own order: a leader that is being replaced asks under an epoch that is over already. A leader has one request on its
way: its own queue refuses another one with OPERATION_NOT_ATTEMPTED (AlterPartitionManager.submit), which happens if the
metadata ends what was pending before the answer does. When such a late answer arrives stands in no line.

A leader that asks nobody (ZooKeeper without AlterIsr) updates the partition's node itself: such a request is held
against the versions alone, the one that the leader knows and the node's, and nothing of the above applies to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replay.engine.codes import ANSWERED, BROKER_EPOCH
from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.tenures import micros
from replay.protocol.alter_partition import (
    NOT_CONTROLLER,
    OPERATION_NOT_ATTEMPTED,
    STALE_BROKER_EPOCH,
    UNKNOWN_TOPIC,
    IsrRequest,
    PartitionNow,
    Registrations,
    alter_rules_of,
    controller_answer,
    granted_isr,
    is_of_unknown_life,
    knows_life,
    write_answer,
)
from replay.protocol.produce import NO_ERROR, REQUEST_TIMED_OUT
from replay.protocol.profile import LATEST, parse_version, profile_named
from replay.tables.isr_propagation import IsrPropagation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replay.protocol.alter_partition import AlterRules

ROUND_TRIP_KINDS: Final = (
    "partition_change",
    "broker_change",
    "isr_request",
    "config_change",
    "observation",
    "log_load",
    "topic_change",
)
WRITTEN_BEFORE_US: Final = 2_000_000  # so long before the first line about it ZooKeeper may have had a decision
HEARD_LATE_US: Final = 60_000_000  # so long a broker may be cut off from its controller, and not from ZooKeeper
UNKNOWN_VERSION: Final = -1
ANSWER_LATE_US: Final = 2_000_000  # so long after a decision its answer may still be on the way
# UNKNOWN_SERVER_ERROR, CLUSTER_AUTHORIZATION_FAILED, and a time-out: of the whole request
FAILED: Final = (-1, 31, REQUEST_TIMED_OUT)
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


class Answer(NamedTuple):
    """What a node answered a leader's request, in its own log."""

    seq: int
    us: int
    node: int
    active: int  # the active controller then
    request: IsrRequest
    error: int


@dataclass(slots=True)
class Asked:
    """A request, and its rejection if there was one."""

    seq: int
    us: int
    request: IsrRequest
    writes: AlterRules | None = None  # the rules of a leader that writes to ZooKeeper itself; None: it asks
    error: int = NO_ERROR
    until: int = 0  # when the leader took the rejection
    stated: int | None = None  # the version that the leader knew, if the line about the rejection states it
    is_answered: bool = False  # whether a controller answers it, by epochs that are known


@dataclass
class RoundTrips:
    """The requests of one partition's leaders, and the controller's decisions."""

    rules: AlterRules = field(default_factory=lambda: alter_rules_of(LATEST, zookeeper=False))
    decisions: list[Decision] = field(default_factory=list)
    registered: list[tuple[int, Registrations]] = field(default_factory=lambda: [(0, Registrations(frozenset()))])
    known: dict[tuple[int, int], int] = field(default_factory=dict)  # leader and its epoch -> partition epoch
    open: dict[int, Asked] = field(default_factory=dict)  # leader -> its newest request that was not rejected
    asked: list[Asked] = field(default_factory=list)
    asks: bool = True  # whether leaders ask the controller, and do not write to ZooKeeper themselves
    answers: list[Answer] = field(default_factory=list)
    deleted: int | None = None  # when the topic was deleted; None: no source tells it
    propagation: IsrPropagation = field(default_factory=IsrPropagation)

    def take_all(self, events: Iterable[Event]) -> None:
        """Take the events of `ROUND_TRIP_KINDS` in replay order."""
        for event in events:
            self.propagation.take(event, asks=self.asks)
            if event["kind"] == "partition_change":
                self.decide(event)
            elif event["kind"] == "broker_change" or event["cause"] == BROKER_EPOCH:
                self.register(event)
            elif event["kind"] == "isr_request":
                self.ask(event)
            elif event["kind"] == "topic_change":
                self.deleted = micros(event["ts"])
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
            epoch = UNKNOWN_VERSION if event["broker_epoch"] is None else event["broker_epoch"]
            asked = (event["broker_id"], event["leader_epoch"], UNKNOWN_VERSION, frozenset[int]())
            request = IsrRequest(*asked, broker_epoch=epoch)
            told = (event["seq"], micros(event["ts"]), event["controller_id"], active, request, error)
            self.answers.append(Answer(*told))

    def register(self, event: Event) -> None:
        """A broker is fenced, unfenced, or begins to shut down: that decides who may be in an ISR."""
        broker = event["broker_id"]
        _, (unfit, epochs, away) = self.registered[-1]
        if event["fenced"] or event["in_controlled_shutdown"]:
            unfit |= {broker}
        elif event["fenced"] is not None:
            unfit -= {broker}
        if event["fenced"] is not None:
            away = away | {broker} if event["fenced"] else away - {broker}
        if event["broker_epoch"] is not None:
            epochs = frozenset({**dict(epochs), broker: event["broker_epoch"]}.items())
        self.registered.append((micros(event["ts"]), Registrations(unfit, epochs, away)))

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
            self.known[leader, now.leader_epoch] = now.partition_epoch

    def ask(self, event: Event) -> None:
        """A leader asks, takes up what was committed, or is refused."""
        leader, cause, epoch = event["broker_id"], event["cause"], event["leader_epoch"]
        if cause in PENDING:
            version = self.known.get((leader, epoch), UNKNOWN_VERSION)
            epochs = zip(event["isr"], event.get("isr_broker_epochs") or (), strict=False)
            members = frozenset((broker, one) for broker, one in epochs if one >= 0)
            request = IsrRequest(leader, epoch, version, frozenset(event["isr"]), members)
            writes = None if self.asks else self.rules
            is_answered = self.asks and (leader, epoch) in self.known
            asked = Asked(event["seq"], micros(event["ts"]), request, writes, is_answered=is_answered)
            self.open[leader] = asked
            self.asked.append(asked)
        elif cause == "committed" and event["partition_epoch"] is not None:
            version = self.known.get((leader, epoch), UNKNOWN_VERSION)
            self.known[leader, epoch] = max(version, event["partition_epoch"])
        elif cause in REFUSED and leader in self.open:
            asked = self.open.pop(leader)
            asked.error, asked.until = event["error_code"], micros(event["ts"])
            asked.stated = event["partition_epoch"]

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
                granted = self.granting(asked, after)
                if granted is not None:
                    yield asked, {self.answer(asked, granted - 1, self.decisions[granted].brokers)}
                continue
            if asked.writes and asked.request.partition_epoch == UNKNOWN_VERSION:
                continue
            if asked.error in UNKNOWN_TOPIC and self.deleted is None:
                continue
            first = max(bisect_right(times, asked.us - CLOCK_SLACK_US) - 1, 0)
            last = max(bisect_right(times, asked.until + CLOCK_SLACK_US), first + 1)
            seen = range(first, min(self.had_by_zookeeper(asked, times, last) if asked.writes else last, len(times)))
            brokers = self.registered_within(asked.us - CLOCK_SLACK_US, asked.until + CLOCK_SLACK_US)
            found = {self.answer(asked, k, one) for k in seen for one in brokers}
            if self.deleted is not None and asked.until + ANSWER_LATE_US >= self.deleted:
                found.update((asked.writes.lost_write,) if asked.writes else UNKNOWN_TOPIC)
            recent = bisect_right(times, asked.until + CLOCK_SLACK_US) - 1
            if not asked.writes and recent >= 0 and asked.until - times[recent] <= ANSWER_LATE_US:
                found.add(OPERATION_NOT_ATTEMPTED)
            yield asked, found

    def granting(self, asked: Asked, after: Mapping[Under, list[int]]) -> int | None:
        """The number of the decision that granted a request; None: none did. `after`: `decisions_after`."""
        return next((k for k in after.get(under(asked.request), ()) if self.is_granted(asked, k)), None)

    def is_granted(self, asked: Asked, k: int) -> bool:
        """Whether the decision number `k`, the next under the epochs of a request, is the one that was asked for."""
        had, made, request = self.decisions[k - 1].made, self.decisions[k].made, asked.request
        isr = request.isr if asked.writes else granted_isr(request, had)
        return made.leader == request.leader and made.isr == isr

    def had_by_zookeeper(self, asked: Asked, times: list[int], last: int) -> int:
        """The number of decisions that ZooKeeper may have had: `last` are told by then, others may be told later.

        The controller writes before it tells any broker. If the leader leads on under a new epoch, the first line about
        that may be its own, and it may have heard of it late, for the controller sends again until it comes through.
        """
        last = max(bisect_right(times, asked.until + CLOCK_SLACK_US + WRITTEN_BEFORE_US), last)
        most = bisect_right(times, asked.until + HEARD_LATE_US)
        while last < most:
            made = self.decisions[last].made
            if made.leader != asked.request.leader or made.leader_epoch == asked.request.leader_epoch:
                break
            last += 1
        return last

    def registered_within(self, since: int, until: int) -> list[Registrations]:
        """The registrations as they were at `since`, and after each change up to `until`."""
        first = max(bisect_right(self.registered, since, key=itemgetter(0)) - 1, 0)
        last = bisect_right(self.registered, until, key=itemgetter(0))
        return [brokers for _, brokers in self.registered[first : max(last, first + 1)]]

    def answer(self, asked: Asked, k: int, brokers: Registrations) -> int:
        """What the controller answers after its decision number `k`, or what ZooKeeper answers the leader itself."""
        if asked.writes:
            return write_answer(asked.request, self.decisions[k].made, asked.writes)
        return controller_answer(asked.request, self.decisions[k].made, brokers, self.rules)

    def difference(self, answer: Answer) -> str | None:
        """How an answer differs from what the node must have said of the whole request; None: it need not.

        It first says whether it is active, then whether the broker that asks is the one that it has registered, then
        whether it has the topic.
        """
        stated = f"stated {answer.error}"
        if (answer.error == NOT_CONTROLLER) != (answer.node != answer.active):
            return f"node {answer.node}: active controller {answer.active}, {stated}"
        if answer.error == NOT_CONTROLLER:
            return None
        stale = self.is_stale(answer)
        if stale is not None and stale != (answer.error == STALE_BROKER_EPOCH):
            asks = f"broker {answer.request.leader} asks under broker epoch {answer.request.broker_epoch}"
            return f"{asks}: computed {STALE_BROKER_EPOCH if stale else 'no ' + str(STALE_BROKER_EPOCH)}, {stated}"
        late = None if self.deleted is None else answer.us - self.deleted
        if late is None or abs(late) <= ANSWER_LATE_US or answer.error == STALE_BROKER_EPOCH:
            return None
        gone, said = late > 0, answer.error in UNKNOWN_TOPIC
        return None if gone == said else f"topic {'deleted' if gone else 'not deleted yet'}: {stated}"

    def is_stale(self, answer: Answer) -> bool | None:
        """Whether the broker that asks is registered under another epoch than it names; None: not known."""
        brokers = self.registered_within(answer.us - ANSWER_LATE_US, answer.us + CLOCK_SLACK_US)
        if not all(knows_life(answer.request, one, self.rules) for one in brokers):
            return None
        refused = {is_of_unknown_life(answer.request, one, self.rules) for one in brokers}
        return refused.pop() if len(refused) == 1 else None

    def beside(self, rows: list[Event]) -> list[Event]:
        """Write beside rows of the ISR how the controller answers the requests that they are about (`asked_seq`)."""
        asked = {one.seq: one for one in self.asked if one.is_answered and self.decisions}
        times, after = [decision.us for decision in self.decisions], self.decisions_after()
        for row in rows:
            one = asked.get(row.get("asked_seq") or -1)
            if one is None:
                continue
            granted = self.granting(one, after) if one.error == NO_ERROR else None
            if granted is not None:
                row["derived_error_code"] = self.answer(one, granted - 1, self.decisions[granted].brokers)
            else:
                last, brokers = max(bisect_right(times, one.us) - 1, 0), self.registered_within(one.us, one.us)[-1]
                row["derived_error_code"] = self.answer(one, last, brokers)
        return rows

    def checks(self) -> list[dict[str, Any]]:
        """Return the row of `conformance`; none if nothing was compared."""
        compared = len(self.answers)
        wrong = [(answer.seq, differs) for answer in self.answers if (differs := self.difference(answer)) is not None]
        for asked, possible in self.outcomes():
            compared += 1
            broker, known = f"broker {asked.request.leader}", asked.request.partition_epoch
            if asked.error not in possible:
                computed = " or ".join(str(one) for one in sorted(possible)) or "nothing"
                wrong.append((asked.seq, f"{broker}: computed {computed}, stated {asked.error}"))
            elif asked.stated not in (None, known):
                wrong.append((asked.seq, f"{broker}: computed version {known}, stated {asked.stated}"))
        if not compared:
            return self.propagation.checks()
        seq, note = min(wrong) if wrong else (None, None)
        row = {"check": "alter_partition", "compared": compared, "matched": compared - len(wrong)}
        return [{**row, "first_mismatch_seq": seq, "note": note}, *self.propagation.checks()]
