"""Segment dumps as events: what each replica's log held at the end, and where the logs of two replicas differ.

A log is reported in runs of one leader epoch, so that a million batches become a few events. Two logs are compared
batch by batch where both have one: retention, an early dump or a lagging replica leaves no common range, which is no
difference. Followers append their leader's batches byte by byte, so within one epoch extent and crc must be equal. The
exception is the log cleaner, which rewrites batches on each replica separately (LogCleaner): there only epochs are
compared. The model leaves out formats before 0.11, whose dumps have no batches.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple

from replay.engine.codes import DUMP_DIFFERS, DUMP_HOLDS
from replay.evidence.request_times import Window
from replay.order.operations import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row

CLEANUP_SETTINGS = ("cleanup.policy", "log.cleanup.policy")
LEFT_OVER = re.compile(r"[0-9a-f]{32}-(?:delete|stray|future)|-(?:delete|stray|future)[/\\]")
INTERNAL = "__"  # Kafka's own topics, most of them compacted


class OffsetRun(NamedTuple):
    """Offsets [first, end) of one leader epoch in one log; `whole`: without a hole."""

    row: Row  # its first batch
    first: int
    end: int
    whole: bool


class Difference(NamedTuple):
    """Offsets [first, end) at which two logs hold different batches, with the first batch of each."""

    mine: Row
    other: Row
    first: int
    end: int


def dumps_of(facts: PartitionFacts) -> dict[int, list[Row]]:
    """Each broker's batches by offset. A dump with overlapping batches is of several logs, and left out."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in facts.by_kind["segment_batch"]:
        if row["broker_id"] is not None and not LEFT_OVER.search(row["source_file"]):
            found[row["broker_id"]].append(row)
    for rows in found.values():
        rows.sort(key=lambda row: row["base_offset"])
    return {
        broker: rows
        for broker, rows in sorted(found.items())
        if all(before["last_offset"] < after["base_offset"] for before, after in pairwise(rows))
    }


def has_holes(rows: list[Row]) -> bool:
    """Whether offsets are missing between batches or within one."""
    inside = any(r["count"] is not None and r["count"] <= r["last_offset"] - r["base_offset"] for r in rows)
    return inside or any(before["last_offset"] + 1 < after["base_offset"] for before, after in pairwise(rows))


def may_be_cleaned(facts: PartitionFacts, dumps: dict[int, list[Row]]) -> bool:
    """Whether the log cleaner may have rewritten batches, by the topic's settings or by the holes that it leaves."""
    settings = [
        r["value"] or "" for r in (*facts.cluster, *facts.by_kind["config_change"]) if r["name"] in CLEANUP_SETTINGS
    ]
    told = facts.topic.startswith(INTERNAL) or any("compact" in value for value in settings)
    return told or any(has_holes(rows) for rows in dumps.values())


def runs_of(rows: list[Row]) -> Iterator[OffsetRun]:
    """One log's batches as runs of one leader epoch."""
    run: OffsetRun | None = None
    for row in rows:
        whole = row["count"] is None or row["count"] > row["last_offset"] - row["base_offset"]
        end = row["last_offset"] + 1
        if run is not None and run.row["leader_epoch"] == row["leader_epoch"]:
            run = run._replace(end=end, whole=run.whole and whole and run.end == row["base_offset"])
            continue
        if run is not None:
            yield run
        run = OffsetRun(row, row["base_offset"], end, whole)
    if run is not None:
        yield run


def differ(mine: Row, other: Row, *, cleaned: bool) -> bool:
    """Whether two batches at one offset are different batches."""
    if mine["leader_epoch"] != other["leader_epoch"]:
        return True
    return not cleaned and any(mine[name] != other[name] for name in ("base_offset", "last_offset", "crc"))


def differences(mine: list[Row], other: list[Row], *, cleaned: bool) -> Iterator[Difference]:
    """Where two logs hold different batches, by offset, in runs as long as the epochs allow."""
    open_: Difference | None = None
    i = k = 0
    while i < len(mine) and k < len(other):
        a, b = mine[i], other[k]
        first, end = max(a["base_offset"], b["base_offset"]), min(a["last_offset"], b["last_offset"]) + 1
        if first < end and differ(a, b, cleaned=cleaned):
            goes_on = open_ is not None and open_.end == first and epochs(open_.mine, open_.other) == epochs(a, b)
            if open_ is not None and goes_on:
                open_ = open_._replace(end=end)
            else:
                if open_ is not None:
                    yield open_
                open_ = Difference(a, b, first, end)
        i, k = i + (a["last_offset"] <= b["last_offset"]), k + (b["last_offset"] <= a["last_offset"])
    if open_ is not None:
        yield open_


def epochs(mine: Row, other: Row) -> tuple[int, int]:
    """Leader epochs of two batches."""
    return mine["leader_epoch"], other["leader_epoch"]


def dump_drafts(facts: PartitionFacts, at: int) -> list[Draft]:
    """The dumps as the partition's last events, at `at` (microseconds), because no line says when they were made."""
    dumps = dumps_of(facts)
    stated: dict[int, int] = {}
    for r in facts.by_kind["checkpoint"]:
        if r["hw"] is not None:  # of several checkpoints without times, the lowest HW is the safe one
            stated[r["broker_id"]] = min(r["hw"], stated.get(r["broker_id"], r["hw"]))
    out = []
    for broker, rows in dumps.items():
        for run in runs_of(rows):
            fields = {
                "broker_id": broker,
                "leader_epoch": run.row["leader_epoch"],
                "base_offset": run.first,
                "next_offset": run.end,
                "hw": stated.get(broker),
                "cause": DUMP_HOLDS,
                "evidence": "observed" if run.whole else "bounded",
            }
            out.append(Draft("log_dump", run.row, Window(at, at, at), fields))
    cleaned = may_be_cleaned(facts, dumps)
    for (broker, mine), (replica, others) in combinations(dumps.items(), 2):
        for found in differences(mine, others, cleaned=cleaned):
            fields = {
                "broker_id": broker,
                "replica_id": replica,
                "leader_epoch": found.mine["leader_epoch"],
                "base_offset": found.first,
                "next_offset": found.end,
                "crc": found.mine["crc"],
                "other_leader_epoch": found.other["leader_epoch"],
                "other_crc": found.other["crc"],
                "cause": DUMP_DIFFERS,
                "evidence": "observed",
            }
            out.append(Draft("log_dump", found.mine, Window(at, at, at), fields))
    return out
