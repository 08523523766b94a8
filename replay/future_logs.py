"""Future logs: replicas of their own that a broker fills beside the partition's log, to move it to another directory.

AlterReplicaLogDirs makes a log in a folder `...-future` of the other directory (`Partition.maybeCreateFutureReplica`);
`ReplicaAlterLogDirsThread` copies the partition's log into it, and once it has caught up the two are swapped
(`LogManager.replaceCurrentWithFutureLog`). A future log is in no ISR and moves no HW; where it begins holds back the
leader's low watermark (`Partition.lowWatermarkIfLeader`), on which DeleteRecords waits. Its lines look like those of
the partition's own log but for the directory, and some name none: those that follow the log's making or loading. What
the model leaves out: where the copy is between the lines that tell it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any

from replay.drafts import Draft, Operation
from replay.merge import OP_CONTROL
from replay.spine import micros
from replay.windows import line_window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.partition_facts import PartitionFacts
    from replay.rows import Row
    from replay.spine import Tenure

OF_LOGS = ("log_load", "truncation", "log_append", "log_start_change", "log_change", "hw_update")  # of either log
CREATED, LOADED, REPLACING, REPLACED = "future_created", "future_loaded", "future_replacing", "future_replaced"
FAILED, DELETED = "future_failed", "future_deleted"
LOG_START = "future_log_start"
RENAMED = "renamed_for_deletion"
FUTURE_LOG = "future_log"  # cause of the observations about a future log
STEPS = {  # fact -> what the observation calls it
    CREATED: "created",
    LOADED: "loaded",
    "future_added": "fetching",
    "future_copy": "fetching",
    "future_truncating": "cut",
    "future_queued": "caught_up",
    "future_accepted": "caught_up",
    REPLACED: "replaced",
    FAILED: "failed",
    DELETED: "deleted",
    LOG_START: "log_start",
}
REPLICA_MOVES = {  # what is told -> state of the future replica, and why
    "created": ("New", "future_created"),
    "loaded": ("New", "future_loaded"),
    "fetching": ("New", "future_created"),
    "cut": ("New", "future_created"),
    "caught_up": ("Online", "future_caught_up"),
    "replaced": ("NonExistent", "future_replaced"),
    "failed": ("Offline", "log_directory"),
    "deleted": ("NonExistent", "future_deleted"),
}
FETCH_MOVES = {  # the same of its fetcher
    "fetching": ("fetching", "future_added"),
    "cut": ("fetching", "cut"),
    "failed": ("failed", "storage_error"),
    "replaced": (None, "future_replaced"),
    "deleted": (None, "future_deleted"),
    "loaded": (None, "started"),
}


def parted(by_kind: dict[str, list[Row]]) -> list[Row]:
    """Take the lines about future logs out of the partition's; returns those that tell of a move, in their order."""
    told = [row for kind in ("log_change", "fetcher") for row in by_kind[kind] if row["name"] in (*STEPS, REPLACING)]
    brokers = {row["broker_id"] for row in told if row["ts"] is not None}
    if not brokers:
        return []
    lines = [row for kind in OF_LOGS for row in by_kind[kind] if row["broker_id"] in brokers and row["ts"] is not None]
    lines.sort(key=in_file_order)
    theirs: set[tuple[str, int]] = set()
    others: list[Row] = []
    for _, own in groupby(lines, key=lambda row: row["broker_id"]):
        walk = Walk(list(own))
        theirs |= walk.theirs
        others += walk.told
    for kind in OF_LOGS:
        if kind != "log_change":
            by_kind[kind] = [row for row in by_kind[kind] if (row["kind"], row.place) not in theirs]
    events = [row for row in told if row["name"] in STEPS and row["ts"] is not None]
    return sorted([*events, *others], key=in_file_order)


def in_file_order(row: Row) -> tuple[int, int, str, int]:
    """Lines of each broker, in the order in which it wrote them."""
    return row["broker_id"], micros(row["ts"]), row["source_file"] or "", row["source_line"] or 0


class Walk:
    """One broker's lines about a partition's logs: which of them are of its future log."""

    def __init__(self, rows: list[Row]) -> None:
        """`rows`: in their order."""
        self.theirs: set[tuple[str, int]] = set()  # kind and place of each
        self.told: list[Row] = []  # what else tells of it: deleted, its log start moved
        self.swaps = [(row.place, row["log_dir"]) for row in rows if row["name"] == REPLACING]
        self.directory: str | None = None  # of the future log
        self.is_due = False  # whether the partition has yet to take the future log up
        self.is_own_due = False  # the same of its own log
        for row in rows:
            if self.is_future(row):
                self.theirs.add((row["kind"], row.place))
                if row["kind"] == "log_start_change":
                    self.told.append(row.but(name=LOG_START))

    def is_future(self, row: Row) -> bool:
        """Whether the line is of the future log."""
        name, directory = row["name"], row["log_dir"]
        if row["kind"] == "log_change":
            self.take(row)
            return False
        if row["kind"] == "log_load" and directory is None and name in ("no_checkpoint", "loaded"):
            return self.takes_up(name)
        if directory is not None and directory == (self.directory or self.next_swap):
            return True
        if row["kind"] == "log_load" and name in ("created", "completed"):
            self.is_own_due = True
        return False

    @property
    def next_swap(self) -> str | None:
        """Directory of the next future log that is swapped in: until then the partition's own is in another."""
        return self.swaps[0][1] if self.swaps else None

    def take(self, row: Row) -> None:
        """A line that says what becomes of a future log."""
        name = row["name"]
        if name in (CREATED, LOADED):
            self.directory, self.is_due = row["log_dir"], True
            self.is_own_due = self.is_own_due or name == LOADED  # the broker starts: it takes up its own log first
        elif name == REPLACING and self.swaps:
            self.swaps.pop(0)
            self.directory = row["log_dir"]
        elif name == REPLACED:
            self.directory, self.is_due = None, False
        elif name == RENAMED and self.directory is not None and parent(row["value"] or "") == self.directory:
            self.directory, self.is_due = None, False
            self.told.append(row.but(name=DELETED))

    def takes_up(self, name: str) -> bool:
        """The partition takes up a log, with a line that names no directory: whether it is the future one."""
        future = self.is_due and not self.is_own_due
        if name == "loaded":
            self.is_due, self.is_own_due = self.is_due and not future, False
        return future


def parent(path: str) -> str:
    """The directory that a folder lies in."""
    return path[: max(path.rfind("/"), path.rfind("\\\\"), 0)]


def future_chain(facts: PartitionFacts, tenure: Tenure) -> list[Operation]:
    """What brokers tell of future logs during a tenure. It moves nothing of the partition's."""
    out = []
    for row in facts.future_lines.get(tenure.epoch, ()):
        window = line_window(micros(row["ts"]))
        fields = {
            "broker_id": row["broker_id"],
            "leader_epoch": tenure.epoch,
            "cause": FUTURE_LOG,
            "state": STEPS[row["name"]],
            "log_start_offset": row["log_start_offset"],
            "evidence": "observed",
        }
        out.append(Operation(OP_CONTROL, window, [Draft("observation", row, window, fields)]))
    return sorted(out, key=lambda op: op.window.est)


def by_tenure(rows: Iterable[Row], tenures: list[Tenure]) -> dict[int, list[Row]]:
    """Lines of any broker by the leader epoch that had begun when they were written."""
    led = [tenure for tenure in tenures if tenure.leader >= 0]
    begun = list(accumulate((tenure.decisions[0].us if tenure.decisions else 0 for tenure in led), max))
    out: dict[int, list[Row]] = {}
    for row in rows if led else ():
        k = max(bisect_right(begun, micros(row["ts"])) - 1, 0)
        out.setdefault(led[k].epoch, []).append(row)
    return out


@dataclass(slots=True)
class FutureReplicas:
    """The future replicas of one partition, as its events tell of them."""

    replicas: dict[int, str] = field(default_factory=dict)  # by broker
    fetchers: dict[int, str] = field(default_factory=dict)
    transitions: list[dict[str, Any]] = field(default_factory=list)  # rows of state_transitions
    states: list[dict[str, Any]] = field(default_factory=list)  # rows of follower_states

    def take_all(self, observations: Iterable[dict[str, Any]]) -> None:
        """Observations in their order; those of other things are passed over."""
        for event in observations:
            if event["cause"] == FUTURE_LOG:
                self.take(event)

    def take(self, event: dict[str, Any]) -> None:
        """One line about a future log; one that only moves its log start changes no state."""
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
        if now == was:
            return
        if now is None:
            del self.fetchers[broker]
        else:
            self.fetchers[broker] = now
        self.states.append(common | {"state_before": was, "state": now, "cause": cause, "error_code": None})
