"""Checks whether brokers' clocks agree, by the leader epochs that several of them log, each by its own clock.

A leader epoch begins once, and its leader and followers log it within seconds. A restarted broker logs old epochs
again, so an offset counts only if leader epochs at different times show the same one. The result changes no times:
only the user can say what a broker's time zone is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KINDS = pa.array(["partition_change", "role_change", "leader_and_isr"])
_MENTIONED = ["topic", "topic_id", "partition", "leader_epoch", "ts"]
_MOST = 500
_SECOND = 1_000_000
ALIKE = 10 * _SECOND  # offsets nearer than this are equal: a broker takes a second or two to learn of a new leader
APART = 30 * _SECOND  # leader epochs must span at least this much time to count
OFF = 60 * _SECOND  # less is clock skew, which order and verdicts allow for
_ENOUGH = 0.6  # share of the leader epochs that must show the same offset

Turns = dict[str, int]  # "topic-partition@epoch" -> when it is first mentioned, microseconds


def turns_of(facts: pa.RecordBatch) -> Turns:
    """Return the leader epochs that the facts mention."""
    some = facts.select(_MENTIONED).filter(pc.is_in(facts.column("kind"), _KINDS))
    found: Turns = {}
    if not len(some):
        return found
    times = some.column("ts").cast(pa.int64())
    for row in some.set_column(some.schema.get_field_index("ts"), "ts", times).to_pylist():
        if row["leader_epoch"] is None or row["ts"] is None:
            continue
        for name in (row["topic"], row["topic_id"]):
            if name is not None:
                key = f"{name}-{row['partition']}@{row['leader_epoch']}"
                found[key] = min(row["ts"], found.get(key, row["ts"]))
    return found


def together(*several: Mapping[str, int]) -> Turns:
    """Merge what several files mention, with the first time of each; of very many, keep the same ones for any file."""
    found: Turns = {}
    for turns in several:
        for key, ts in turns.items():
            found[key] = min(ts, found.get(key, ts))
    return {key: found[key] for key in sorted(found, key=lambda key: crc32(key.encode()))[:_MOST]}


def offset_between(one: Mapping[str, int], other: Mapping[str, int]) -> int | None:
    """Return how far the clock of `one` is ahead of that of `other`, in microseconds; None if that is not clear."""
    offsets = {key: ts - other[key] for key, ts in one.items() if key in other}
    if not offsets:
        return None
    middle = round(median(offsets.values()))
    alike = [other[key] for key, offset in offsets.items() if abs(offset - middle) <= ALIKE]
    if len(alike) < _ENOUGH * len(offsets) or max(alike, default=0) - min(alike, default=0) < APART:
        return None
    return middle


def clocks_off(told: Iterable[tuple[int | None, Mapping[str, int]]]) -> dict[int, int]:
    """Return the brokers whose clock is a minute or more off, and by how much (microseconds, ahead is positive).

    `told`: broker (None: the metadata log) and its leader epochs. The standard is the clock with which most others
    agree; if there are only two and they differ, nobody can say which of them is off.
    """
    gathered: dict[int | None, list[Mapping[str, int]]] = defaultdict(list)
    for broker, turns in told:
        gathered[broker].append(turns)
    clocks = {broker: together(*several) for broker, several in gathered.items()}
    offsets = {(a, b): offset_between(clocks[a], clocks[b]) for a in clocks for b in clocks if a != b}
    agreeing = Counter(of for (_, of), offset in offsets.items() if offset is not None and abs(offset) < OFF)
    standard = max(agreeing, key=lambda broker: (agreeing[broker], str(broker)), default=None)
    measured = {a: offset for (a, b), offset in offsets.items() if agreeing and b == standard and a is not None}
    return {broker: offset for broker, offset in sorted(measured.items()) if offset is not None and abs(offset) >= OFF}


def sentences(inputs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Describe each broker whose clock is off, and what to do about it, in one sentence each."""
    off = {entry["broker_id"]: entry["clock_off_us"] for entry in inputs if entry.get("clock_off_us")}
    told = []
    for broker, offset in sorted(off.items()):
        minutes = round(abs(offset) / (60 * _SECOND))
        side = "ahead of" if offset > 0 else "behind"
        told.append(
            f"Broker {broker}'s clock is {minutes // 60} h {minutes % 60:02} min {side} the others': if that is its "
            f"time zone, say so with --time-zone {broker}=ZONE."
        )
    return told
