"""A follower's fetch state: whether its fetcher truncates, fetches, waits after an error, or has given up.

A fetcher thread (`AbstractFetcherThread`) holds each of its partitions in a state. Truncating: until it has asked where
its log and the leader's diverge, and truncated there. Fetching: after that. Delayed: for one backoff after any error.
Failed: removed from the thread, after a storage error or if the leader knows a newer leader epoch. Throttled: only for
the requests from which a quota excludes the partition, which shows once the fetcher continues as if nothing had
happened. The leader's answers and the follower's own events tell which; an answered fetch ends whatever state was
before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replay.engine.codes import FENCED_LEADER_EPOCH, FETCH_UPDATE, KIND, OFFSET_OUT_OF_RANGE, STORAGE_FAILED
from replay.protocol.state import NONE, UNSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from replay.arrays.ints import Flags
    from replay.engine.events import Event, EventBatch, Events

TRUNCATING, FETCHING, DELAYED, FAILED, THROTTLED = "truncating", "fetching", "delayed", "failed", "throttled"
STATE_KINDS = (
    "role_change", "log_load", "fetch_update", "fetch_left_out", "epoch_end_offset", "truncation", "observation",
)  # fmt: skip
ANSWER_KINDS = ("fetch_update", "fetch_left_out", "epoch_end_offset")  # about a follower: replica_id
COLUMNS = (
    "kind", "seq", "ts", "broker_id", "replica_id", "leader_epoch", "role", "error_code", "diverging_epoch", "cause",
    "evidence",
)  # fmt: skip
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

    def take_all(self, events: Events, truncate_on_fetch: Callable[[int, int], bool]) -> None:
        """Take events of any kind; only those of `STATE_KINDS` are used.

        `truncate_on_fetch`: whether fetches find out where logs diverge (2.8+, KIP-595), by broker and seq.
        """
        for event in events.among(may_move, COLUMNS).rows:
            became = event["kind"] == "role_change" and event["role"] == "follower"
            told = became and truncate_on_fetch(event["broker_id"], event["seq"])
            self.take(event, truncate_on_fetch=told)

    def take(self, event: Event, *, truncate_on_fetch: bool) -> None:
        """Take one event. `truncate_on_fetch`: fetches find out where logs diverge (2.8+, KIP-595)."""
        kind = event["kind"]
        if kind in ANSWER_KINDS:
            if event["replica_id"] is not None and event["replica_id"] >= 0:
                self.take_answer(event)
        elif kind == "role_change" and event["role"] == "follower":
            self.epochs[event["broker_id"]] = event["leader_epoch"]
            self.move(event["broker_id"], FETCHING if truncate_on_fetch else TRUNCATING, "became_follower", event)
        elif kind in ("role_change", "log_load"):
            self.move(event["broker_id"], None, "became_leader" if kind == "role_change" else "started", event)
        elif kind == "truncation":
            if event["broker_id"] in self.states:
                self.move(event["broker_id"], FETCHING, "cut", event)
        elif event["cause"] == STORAGE_FAILED and event["broker_id"] in self.states:
            self.move(event["broker_id"], FAILED, "storage_error", event)

    def take_answer(self, event: Event) -> None:
        """Take the leader's answer to a follower's fetch or request for the end of an epoch."""
        follower, error = event["replica_id"], event["error_code"] or 0
        if event["kind"] == "fetch_left_out":
            if self.states.get(follower) == FETCHING:
                self.left_out.setdefault(follower, event)
        elif error == FENCED_LEADER_EPOCH:
            if (event["leader_epoch"] or 0) >= self.epochs.get(follower, -1):  # an answer to its older role is void
                # if it has meanwhile heard of the new epoch it asks again (2.5+), which no event shows for certain
                self.move(follower, FAILED, "fenced_leader_epoch", {**event, "evidence": "bounded"})
        elif error == OFFSET_OUT_OF_RANGE and event["kind"] == "fetch_update":
            self.move(follower, TRUNCATING, "out_of_range", event)
        elif error:
            self.move(follower, DELAYED, "error", event)
        elif event["kind"] == "epoch_end_offset":
            self.move(follower, TRUNCATING, "epoch_asked", event)
        elif event["diverging_epoch"] is not None:
            self.move(follower, TRUNCATING, "diverging_fetch", event)
        else:
            if follower in self.left_out:
                self.move(follower, THROTTLED, "quota", self.left_out[follower])
            self.move(follower, FETCHING, "fetched", event)

    def move(self, broker: int, state: str | None, cause: str, event: Event) -> None:
        """Set the state; add a row if it changes, or if an error renews the wait."""
        before = self.states.get(broker)
        self.left_out.pop(broker, None)
        if state == before and not event["error_code"]:
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
                "evidence": event["evidence"],
            }
        )
