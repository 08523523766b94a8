"""States of future replicas: rows of `state_transitions` and `follower_states`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from replay.evidence.future_logs import FUTURE_LOG

if TYPE_CHECKING:
    from collections.abc import Iterable

REPLICA_MOVES = {  # reported step -> state of the future replica, and why
    "created": ("New", "future_created"),
    "loaded": ("New", "future_loaded"),
    "fetching": ("New", "future_created"),
    "cut": ("New", "future_created"),
    "caught_up": ("Online", "future_caught_up"),
    "replaced": ("NonExistent", "future_replaced"),
    "failed": ("Offline", "log_directory"),
    "deleted": ("NonExistent", "future_deleted"),
}
FETCH_MOVES = {  # the same for its fetcher
    "fetching": ("fetching", "future_added"),
    "cut": ("fetching", "cut"),
    "failed": ("failed", "storage_error"),
    "replaced": (None, "future_replaced"),
    "deleted": (None, "future_deleted"),
    "loaded": (None, "started"),
}


@dataclass(slots=True)
class FutureReplicas:
    """The future replicas of one partition, as its events report them."""

    replicas: dict[int, str] = field(default_factory=dict)  # by broker
    fetchers: dict[int, str] = field(default_factory=dict)
    transitions: list[dict[str, Any]] = field(default_factory=list)  # rows of state_transitions
    states: list[dict[str, Any]] = field(default_factory=list)  # rows of follower_states

    def take_all(self, observations: Iterable[dict[str, Any]]) -> None:
        """Take in observations in order; those about other things are skipped."""
        for event in observations:
            if event["cause"] == FUTURE_LOG:
                self.take(event)

    def take(self, event: dict[str, Any]) -> None:
        """Take in one line about a future log; a mere change of its log start changes no state."""
        broker = event["broker_id"]
        common = {name: event[name] for name in ("seq", "ts", "leader_epoch", "evidence")}
        common |= {"broker_id": broker, "is_future": True}
        before = self.replicas.get(broker, "NonExistent")
        if event["state"] not in REPLICA_MOVES:
            return
        state, reason = REPLICA_MOVES[event["state"]]
        goes_on = event["state"] in ("fetching", "cut") and before == "Online"
        if state != before and not goes_on:
            self.replicas[broker] = state
            row = {"place": 0, "machine": "replica", "state_before": before, "state": state, "reason": reason}
            self.transitions.append(common | row)
        if event["state"] not in FETCH_MOVES:
            return
        was = self.fetchers.get(broker)
        now, cause = FETCH_MOVES[event["state"]]
        if now == was and event["state"] != "cut":  # each cut is a row, like those of the partition's own log
            return
        if now is None:
            del self.fetchers[broker]
        else:
            self.fetchers[broker] = now
        self.states.append(common | {"state_before": was, "state": now, "cause": cause, "error_code": None})
