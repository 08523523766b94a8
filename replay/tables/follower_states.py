"""A follower's fetch state: whether its fetcher truncates, fetches, waits after an error, or has given up.

A fetcher thread (`AbstractFetcherThread`) holds each of its partitions in a state. Truncating: until it has asked where
its log and the leader's diverge, and truncated there. Fetching: after that. Three answers to a fetch make it mend its
log on the spot, after which it is still fetching: a diverging epoch, an offset out of the leader's range, and an offset
that the leader has in the remote tier alone. For the last two it asks the leader or the tier first; if it cannot, it is
delayed, which shows once it fetches from the same offset again. Delayed: for one backoff after any other error; after a
request that failed as a whole, all partitions of the thread are, up to 3.0 for two backoffs, since the thread waits
first. Failed: removed from the thread, after a storage error, an error that nobody expected, or if the leader knows a
newer leader epoch (2.3+; up to 2.2 an unexpected error ends the thread, and nobody fetches its partitions any more).
Throttled: only for the requests from which a quota excludes the partition, which shows once the fetcher continues as if
nothing had happened. The leader's answers and the follower's own events tell which; an answered fetch ends whatever
state was before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replay.engine.codes import (
    FENCED_LEADER_EPOCH,
    FETCH_FAILED,
    FETCH_UPDATE,
    KIND,
    LEADER_NOT_ALIVE,
    LEADER_UNAVAILABLE,
    OFFSET_MOVED_TO_TIERED_STORAGE,
    RECORDS_CORRUPT,
    SHUTTING_DOWN,
    STORAGE_FAILED,
    THREAD_ENDED,
    TRUNCATION_FAILED,
    TRUNCATION_FORBIDDEN,
    UNEXPECTED_ERROR,
)
from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.tenures import micros
from replay.protocol.deletion import OFFSET_OUT_OF_RANGE
from replay.protocol.state import NONE, UNSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from replay.arrays.ints import Flags
    from replay.engine.events import Event, EventBatch, Events
    from replay.protocol.profile import Profile

TRUNCATING, FETCHING, DELAYED, FAILED, THROTTLED = "truncating", "fetching", "delayed", "failed", "throttled"
STATE_KINDS = (
    "role_change", "log_load", "fetch_update", "fetch_left_out", "epoch_end_offset", "truncation", "observation",
    "config_change", "broker_change", "partition_change",
)  # fmt: skip
ANSWER_KINDS = ("fetch_update", "fetch_left_out", "epoch_end_offset")  # about a follower: replica_id
COLUMNS = (
    "kind", "seq", "ts", "broker_id", "replica_id", "leader_id", "leader_epoch", "role", "error_code",
    "diverging_epoch", "fetch_offset", "cause", "evidence", "isr", "in_controlled_shutdown",
)  # fmt: skip
BACKOFF_MS = 1000  # replica.fetch.backoff.ms by default
BACKOFF_COLUMN = "fetch_backoff_ms"
EARLY_US = 3_000  # by how much two lines may stand nearer to each other than the thread waited between them
REPEATED = ("diverging_fetch", FETCH_FAILED)  # each of them is a row, whatever the state was
CHECK = "fetch_backoff"
STATE_CODES, ANSWER_CODES = [KIND[name] for name in STATE_KINDS], [KIND[name] for name in ANSWER_KINDS]


def may_move(batch: EventBatch) -> Flags:
    """Which events may change a state: all but a successful fetch right after another one by the same follower."""
    events = batch.events
    mine = np.flatnonzero(np.isin(events.kinds, STATE_CODES))
    kinds, replica, broker, error, diverging = (
        column[mine]
        for column in (
            events.kinds,
            events.numbers("replica_id", NONE),
            events.numbers("broker_id", NONE),
            events.numbers("error_code"),
            events.numbers("diverging_epoch", UNSET),
        )
    )
    well = (kinds == FETCH_UPDATE) & (error == 0) & (diverging == UNSET)
    who = np.where(np.isin(kinds, ANSWER_CODES), replica, broker) + (batch.partition_numbers()[mine] << 32)
    order = np.argsort(who, kind="stable")
    again = (who[order][1:] == who[order][:-1]) & well[order][1:] & well[order][:-1]
    out = np.zeros(len(events), bool)
    out[mine] = True
    out[mine[order[1:][again]]] = False
    return out


class FollowerStates:
    """The fetch states of one partition's followers, updated by the partition's events in order."""

    def __init__(self) -> None:
        """Start with no follower fetching."""
        self.states: dict[int, str] = {}  # by broker; absent: its fetcher does not hold the partition
        self.epochs: dict[int, int] = {}  # leader epoch of the last role that each broker took
        self.left_out: dict[int, Event] = {}  # first request without the partition since its last fetch
        self.moves: list[dict[str, Any]] = []  # rows of follower_states
        # broker -> (place in `moves`, offset) of an answer after which it has asked how to go on, to no known end
        self.asked: dict[int, tuple[int, int]] = {}
        self.backoff_ms = BACKOFF_MS
        self.without: dict[int, tuple[Event, dict[str, Any]]] = {}  # whose last row is that its leader is not alive
        self.stopping: set[int] = set()  # brokers in a controlled shutdown
        self.dead: dict[int, int | None] = {}  # broker -> the leader for which its thread of this partition has ended
        self.isr: frozenset[int] = frozenset()  # as last decided
        self.failed_at: dict[int, tuple[int, int | None]] = {}  # broker -> when its last request failed, and to whom
        self.waits = {"compared": 0, "matched": 0}  # how long after a failed request the next one failed
        self.first_short: tuple[int, str] | None = None  # the first wait that was too short: its seq, and in words

    def take_all(self, events: Events, profile_at: Callable[[int | None, int], Profile]) -> None:
        """Take events of any kind; only those of `STATE_KINDS` are used.

        `profile_at`: the rules that a broker follows, by broker and seq.
        """
        named = (*COLUMNS, BACKOFF_COLUMN) if events.has(BACKOFF_COLUMN) else COLUMNS  # older tables have none
        for event in events.among(may_move, named).rows:
            answers = event["kind"] in ANSWER_KINDS
            self.take(event, profile_at(event["replica_id"] if answers else event["broker_id"], event["seq"]))

    def take(self, event: Event, profile: Profile) -> None:
        """Take one event. `profile`: the rules that the follower goes by."""
        kind = event["kind"]
        if kind in ANSWER_KINDS:
            if event["replica_id"] is not None and event["replica_id"] >= 0:
                self.take_answer(event, profile)
        elif kind in ("role_change", "log_load"):
            self.take_role(event, profile)
        elif kind == "truncation":
            if event["broker_id"] in self.states:
                self.settle(event["broker_id"], went_on=True)
                self.move(event["broker_id"], FETCHING, "cut", event)
        elif kind == "config_change":
            self.backoff_ms = event.get(BACKOFF_COLUMN) or self.backoff_ms
        elif kind == "partition_change":
            self.isr = self.isr if event["isr"] is None else frozenset(event["isr"])
        elif kind == "broker_change":
            if event["in_controlled_shutdown"] is not None:
                (self.stopping.add if event["in_controlled_shutdown"] else self.stopping.discard)(event["broker_id"])
        elif event["broker_id"] in self.states:
            self.take_line(event, profile)

    def take_line(self, event: Event, profile: Profile) -> None:
        """Take what a follower's own line says of its fetcher (AbstractFetcherThread.processFetchRequest)."""
        broker, cause = event["broker_id"], event["cause"]
        alone = FAILED if profile.partition_fails_alone else None  # up to 2.2 the thread ends
        if cause == FETCH_FAILED:
            self.fail(broker, event, profile)
        elif cause == STORAGE_FAILED:
            self.move(broker, alone or DELAYED, "storage_error", event)
        elif cause == RECORDS_CORRUPT:
            self.move(broker, DELAYED, cause, event)
        elif cause in (UNEXPECTED_ERROR, TRUNCATION_FAILED):
            self.move(broker, alone, cause, event)
        elif cause in (THREAD_ENDED, SHUTTING_DOWN, TRUNCATION_FORBIDDEN):
            if cause == THREAD_ENDED and event["evidence"] != "bounded":
                self.dead[broker] = event["leader_id"]
            self.move(broker, None, cause, event)
        elif cause in (LEADER_NOT_ALIVE, LEADER_UNAVAILABLE):
            self.without_leader(broker, event, profile)

    def without_leader(self, broker: int, event: Event, profile: Profile) -> None:
        """A broker is told to follow a leader that is not alive (ReplicaManager.makeFollowers).

        It takes up the role without a fetcher (KRaft 3.3+), or keeps the role and the fetcher that it had.
        """
        if broker not in self.states:
            return
        follows_nobody = bool(profile.follows_nobody) and event["cause"] != LEADER_UNAVAILABLE
        if follows_nobody:
            self.epochs[broker] = event["leader_epoch"]
        if self.is_told_twice(broker, event):
            return
        self.move(broker, None if follows_nobody else self.states[broker], LEADER_NOT_ALIVE, event, always=True)
        self.without[broker] = event, self.moves[-1]

    def is_told_twice(self, broker: int, event: Event) -> bool:
        """Whether the last row of the broker says this already: its role and its line tell of the same request.

        The line names no leader epoch and may stand before the role, so the row takes the role's.
        """
        if broker not in self.without:
            return False
        before, row = self.without.pop(broker)
        near = abs(micros(event["ts"]) - micros(before["ts"])) <= CLOCK_SLACK_US
        if not near or before["kind"] == event["kind"] or before["leader_id"] != event["leader_id"]:
            return False
        row["leader_epoch"] = max(row["leader_epoch"], event["leader_epoch"])
        return True

    def fail(self, broker: int, event: Event, profile: Profile) -> None:
        """A request failed as a whole: no answer came. Compare how long the thread waited since the one before."""
        wait_ms = self.backoff_ms * (1 + profile.thread_waits_too)
        at, before = micros(event["ts"]), self.failed_at.get(broker)
        if before is not None and before[1] == event["leader_id"] and self.states[broker] == DELAYED:
            waited = at - before[0] >= wait_ms * 1000 - EARLY_US
            self.waits["compared"] += 1
            self.waits["matched"] += waited
            if not waited and self.first_short is None:
                told = f"broker {broker}: computed {wait_ms} ms, stated {(at - before[0]) // 1000} ms"
                self.first_short = event["seq"], told
        self.move(broker, DELAYED, FETCH_FAILED, event, wait_ms=wait_ms)
        self.failed_at[broker] = at, event["leader_id"]

    def checks(self) -> list[dict[str, Any]]:
        """The check of how long threads waited; none if nothing was compared."""
        seq, note = self.first_short or (None, None)
        row = {"check": CHECK, **self.waits, "first_mismatch_seq": seq, "note": note}
        return [row] if self.waits["compared"] else []

    def take_role(self, event: Event, profile: Profile) -> None:
        """Take a role, or the load of a log before any (AbstractFetcherThread.partitionFetchState).

        A thread that holds the partition in the same leader epoch keeps its state. One that has ended is given its
        partitions again if they follow the same leader, and fetches none (AbstractFetcherManager). From 2.8 on a new
        follower fetches at once; one whose log is empty first cuts it to its HW, for which it asks nobody, so it is not
        told apart.
        """
        broker = event["broker_id"]
        if event["kind"] == "log_load" or event["role"] != "follower":
            self.asked.pop(broker, None)
            self.dead.pop(broker, None)
            self.move(broker, None, "started" if event["kind"] == "log_load" else "became_leader", event)
            return
        if broker in self.states and self.epochs.get(broker) == event["leader_epoch"]:
            return
        self.asked.pop(broker, None)
        if event["leader_id"] is not None and event["leader_id"] < 0:
            self.without_leader(broker, event, profile)
            return
        self.epochs[broker] = event["leader_epoch"]
        if broker in self.stopping and profile.follows_nobody and broker not in self.isr:
            self.move(broker, None, SHUTTING_DOWN, event)  # its replica is stopped
            return
        if broker in self.dead and self.dead[broker] == event["leader_id"]:
            self.move(broker, None, THREAD_ENDED, {**event, "evidence": "derived"}, always=True)
            return
        self.dead.pop(broker, None)
        self.move(broker, FETCHING if profile.truncate_on_fetch else TRUNCATING, "became_follower", event)

    def take_answer(self, event: Event, profile: Profile) -> None:
        """Take the leader's answer to a follower's fetch or request for the end of an epoch."""
        follower, error = event["replica_id"], event["error_code"] or 0
        fetched = event["kind"] == "fetch_update"
        if event["kind"] == "fetch_left_out":
            if self.states.get(follower) == FETCHING:
                self.left_out.setdefault(follower, event)
            return
        if fetched:
            self.dead.pop(follower, None)
        if follower in self.asked:
            if not fetched:  # part of building the tier's state
                return
            self.settle(follower, went_on=event["fetch_offset"] != self.asked[follower][1])
        if error == FENCED_LEADER_EPOCH:
            self.fence(follower, event, profile)
        elif error == OFFSET_OUT_OF_RANGE and fetched:
            self.ask(follower, "out_of_range", event)
        elif error == OFFSET_MOVED_TO_TIERED_STORAGE and fetched and profile.builds_tier_state:
            self.ask(follower, "moved_to_tiered_storage", event)
        elif error:
            self.move(follower, DELAYED, "error", event)
        elif not fetched:
            self.move(follower, TRUNCATING, "epoch_asked", event)
        elif event["diverging_epoch"] is not None:
            self.move(follower, FETCHING, "diverging_fetch", event)
        else:
            if follower in self.left_out:
                self.move(follower, THROTTLED, "quota", self.left_out[follower])
            self.move(follower, FETCHING, "fetched", event)

    def fence(self, follower: int, event: Event, profile: Profile) -> None:
        """The leader knows a newer epoch than the follower named (AbstractFetcherThread.onPartitionFenced).

        If the follower has taken up the newer epoch by then, its thread takes no answer to what it asked before, unless
        it fetches on from the same offset (2.8+): then it tries again after a backoff. Whether it has is not certain.
        """
        told = {**event, "evidence": "bounded"}
        if (event["leader_epoch"] or 0) >= self.epochs.get(follower, -1):
            state = FAILED if profile.partition_fails_alone else None
            self.move(follower, state, "fenced_leader_epoch", told)
        elif profile.truncate_on_fetch and profile.fenced_by_same_epoch:
            self.move(follower, DELAYED, "fenced_leader_epoch", told)

    def ask(self, follower: int, cause: str, event: Event) -> None:
        """A fetch that cannot be served: the follower asks where to go on, and goes on there, or else waits a backoff.

        Its next fetch shows which (`settle`).
        """
        self.move(follower, FETCHING, cause, {**event, "evidence": "bounded"})
        if event["fetch_offset"] is not None:
            self.asked[follower] = len(self.moves) - 1, event["fetch_offset"]

    def settle(self, follower: int, *, went_on: bool) -> None:
        """Say what came of the follower's question (`ask`), now that it is heard of again.

        An offset out of range may also be kept, so there the same offset again shows nothing.
        """
        if follower not in self.asked:
            return
        place, _ = self.asked.pop(follower)
        row = self.moves[place]
        if went_on:
            row["evidence"] = "derived"
        elif row["cause"] == "moved_to_tiered_storage":
            row["state"], row["evidence"], row["wait_ms"] = DELAYED, "derived", self.backoff_ms
            self.states[follower] = DELAYED

    def move(
        self,
        broker: int,
        state: str | None,
        cause: str,
        event: Event,
        *,
        wait_ms: int | None = None,
        always: bool = False,
    ) -> None:
        """Set the state; add a row if it changes, after an error (which begins another wait), and after a mend.

        `wait_ms`: how long a delayed follower waits; None: a backoff.
        """
        before = self.states.get(broker)
        self.left_out.pop(broker, None)
        self.without.pop(broker, None)
        if state != DELAYED:
            self.failed_at.pop(broker, None)
        if state == before and not event["error_code"] and cause not in REPEATED and not always:
            return
        if state is None:
            self.states.pop(broker, None)
        else:
            self.states[broker] = state
        self.moves.append(
            {
                "seq": event["seq"],
                "ts": event["ts"],
                "broker_id": broker,
                "is_future": False,
                "leader_epoch": event["leader_epoch"],
                "state_before": before,
                "state": state,
                "cause": cause,
                "error_code": event["error_code"] or None,
                "wait_ms": (wait_ms or self.backoff_ms) if state == DELAYED else None,
                "evidence": event["evidence"],
            }
        )
