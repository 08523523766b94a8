"""Future logs: replicas of their own that a broker fills beside the partition's log, to move it to another directory.

AlterReplicaLogDirs makes a log in a folder `...-future` of the other directory (`Partition.maybeCreateFutureReplica`);
`ReplicaAlterLogDirsThread` copies the partition's log into it, and once it has caught up the two are swapped
(`LogManager.replaceCurrentWithFutureLog`). A future log is in no ISR and moves no HW; where it begins holds back the
leader's low watermark (`Partition.lowWatermarkIfLeader`), on which DeleteRecords waits. Its lines look like those of
the partition's own log but for the directory, and some name none: those that follow the log's making or loading. What
the model leaves out: where the copy is between the lines that tell it. Here the lines are told apart; `future_events`
makes events of them, `future_replicas` states.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

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
    return path[: max(path.rfind("/"), path.rfind("\\"), 0)]


def by_tenure(rows: Iterable[Row], tenures: list[Tenure]) -> dict[int, list[Row]]:
    """Lines of any broker by the leader epoch that had begun when they were written."""
    led = [tenure for tenure in tenures if tenure.leader >= 0]
    begun = list(accumulate((tenure.decisions[0].us if tenure.decisions else 0 for tenure in led), max))
    out: dict[int, list[Row]] = {}
    for row in rows if led else ():
        k = max(bisect_right(begun, micros(row["ts"])) - 1, 0)
        out.setdefault(led[k].epoch, []).append(row)
    return out
