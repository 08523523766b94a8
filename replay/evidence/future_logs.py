"""Future logs: replicas that a broker fills next to the partition's log in order to move it to another directory.

AlterReplicaLogDirs creates a log in a folder `...-future` of the other directory
(`Partition.maybeCreateFutureReplica`); `ReplicaAlterLogDirsThread` copies the partition's log into it, and once it has
caught up the two are swapped (`LogManager.replaceCurrentWithFutureLog`). A future log is in no ISR and moves no HW, but
its log start holds back the leader's low watermark (`Partition.lowWatermarkIfLeader`), for which DeleteRecords waits.
Its lines look like those of the partition's own log except for the directory, and some name no directory: those that
follow its creation or loading. The model leaves out how far the copy has come between the lines that report it. This
module tells the lines apart; `future_events` turns them into events, `future_replicas` into states.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from replay.evidence.segments import CHANGES
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

# lines that either log may have written
OF_LOGS = ("log_load", "truncation", "log_append", "log_start_change", "log_change", "segment_change", "hw_update")
CREATED, LOADED, REPLACING, REPLACED = "future_created", "future_loaded", "future_replacing", "future_replaced"
FAILED, DELETED = "future_failed", "future_deleted"
LOG_START = "future_log_start"
RENAMED = "renamed_for_deletion"
FUTURE_LOG = "future_log"  # cause of observations about a future log
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
    """Take the lines about future logs out of the partition's; return those that report a move, in order."""
    told = [row for kind in ("log_change", "fetcher") for row in by_kind[kind] if row["name"] in (*STEPS, REPLACING)]
    brokers = {row["broker_id"] for row in told if row["ts"] is not None}
    if not brokers:
        return []
    lines = [row for kind in OF_LOGS for row in by_kind[kind] if row["broker_id"] in brokers and row["ts"] is not None]
    lines.sort(key=in_file_order)
    theirs: set[tuple[str, int]] = set()
    others: list[Row] = []
    for _, own in groupby(lines, key=lambda row: row["broker_id"]):
        walk = FutureLogWalk(list(own))
        theirs |= walk.theirs
        others += walk.told
    for kind in OF_LOGS:
        by_kind[kind] = [row for row in by_kind[kind] if (row["kind"], row.place) not in theirs]
    events = [row for row in told if row["name"] in STEPS and row["ts"] is not None]
    return sorted([*events, *others], key=in_file_order)


def in_file_order(row: Row) -> tuple[int, int, str, int]:
    """Sort key: by broker, in the order in which it wrote its lines."""
    return row["broker_id"], micros(row["ts"]), row["source_file"] or "", row["source_line"] or 0


class FutureLogWalk:
    """One broker's lines about a partition's logs: which of them are about its future log."""

    def __init__(self, rows: list[Row]) -> None:
        """`rows`: the lines in order."""
        self.theirs: set[tuple[str, int]] = set()  # kind and place of each line about the future log
        self.told: list[Row] = []  # further lines that report on it: deleted, its log start moved
        self.swaps = [(row.place, row["log_dir"]) for row in rows if row["name"] == REPLACING]
        self.directory: str | None = None  # of the future log
        self.is_due = False  # whether the partition has yet to load the future log
        self.is_own_due = False  # the same for its own log
        for row in rows:
            if self.is_future(row):
                self.theirs.add((row["kind"], row.place))
                if row["kind"] == "log_start_change":
                    self.told.append(row.but(name=LOG_START))
                elif (
                    row["kind"] == "truncation" and row["name"] == "full"
                ):  # it starts again where its broker's log does
                    start = row["offset"] if row["log_start_offset"] is None else row["log_start_offset"]
                    self.told.append(row.but(name=LOG_START, log_start_offset=start))

    def is_future(self, row: Row) -> bool:
        """Whether the line is about the future log."""
        name, directory = row["name"], row["log_dir"]
        if row["kind"] == "log_change" and name not in CHANGES:
            self.take(row)
            return False
        if row["kind"] == "log_load" and directory is None and name in ("no_checkpoint", "loaded"):
            return self.takes_up(name)
        if directory is not None and (directory == (self.directory or self.next_swap) or directory.endswith("-future")):
            return True
        if row["kind"] == "log_load" and name in ("created", "completed"):
            self.is_own_due = True
        return False

    @property
    def next_swap(self) -> str | None:
        """Directory of the next future log to be swapped in; until then the partition's own log is in another one."""
        return self.swaps[0][1] if self.swaps else None

    def take(self, row: Row) -> None:
        """Apply a line that says what becomes of a future log."""
        name = row["name"]
        if name in (CREATED, LOADED):
            self.directory, self.is_due = row["log_dir"], True
            self.is_own_due = self.is_own_due or name == LOADED  # the broker starts: it loads its own log first
        elif name == REPLACING and self.swaps:
            self.swaps.pop(0)
            self.directory = row["log_dir"]
        elif name == REPLACED:
            self.directory, self.is_due = None, False
        elif name == RENAMED and self.directory is not None and parent(row["value"] or "") == self.directory:
            self.directory, self.is_due = None, False
            self.told.append(row.but(name=DELETED))

    def takes_up(self, name: str) -> bool:
        """Whether a line without a directory, about a log being loaded, is about the future log."""
        future = self.is_due and not self.is_own_due
        if name == "loaded":
            self.is_due, self.is_own_due = self.is_due and not future, False
        return future


def parent(path: str) -> str:
    """The directory that contains a folder."""
    return path[: max(path.rfind("/"), path.rfind("\\"), 0)]


def by_tenure(rows: Iterable[Row], tenures: list[Tenure]) -> dict[int, list[Row]]:
    """Lines of any broker, by the latest leader epoch that had begun when they were written."""
    led = [tenure for tenure in tenures if tenure.leader >= 0]
    begun = list(accumulate((tenure.decisions[0].us if tenure.decisions else 0 for tenure in led), max))
    out: dict[int, list[Row]] = {}
    for row in rows if led else ():
        k = max(bisect_right(begun, micros(row["ts"])) - 1, 0)
        out.setdefault(led[k].epoch, []).append(row)
    return out
