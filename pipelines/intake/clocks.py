"""Whether brokers' clocks agree: by the turns of leadership that several of them tell of, each on its own clock.

A leader epoch begins once, and its leader and followers log it within seconds.
A restarted broker logs old epochs again, so only turns that lie apart and are all off alike count. Nothing is moved by
what is found: a zone is the user's to say.
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
_MOST = 500
_SECOND = 1_000_000
ALIKE = 10 * _SECOND  # how far turns may be apart that are off alike: a broker takes a second or two to learn of one
APART = 30 * _SECOND  # turns that are nearer than that are one
OFF = 60 * _SECOND  # less is skew, with which order and verdicts reckon
_ENOUGH = 0.6  # of the turns

Turns = dict[str, int]  # "topic-partition@epoch" -> when it is first told of, microseconds


def turns_of(facts: pa.RecordBatch) -> Turns:
    """The leader epochs that the facts tell of."""
    some = facts.filter(pc.is_in(facts.column("kind"), _KINDS))
    columns = {name: some.column(name) for name in ("topic", "topic_id", "partition", "leader_epoch")}
    found: Turns = {}
    for row in pa.table({**columns, "ts": some.column("ts").cast(pa.int64())}).to_pylist():
        if row["leader_epoch"] is None or row["ts"] is None:
            continue
        for name in (row["topic"], row["topic_id"]):
            if name is not None:
                key = f"{name}-{row['partition']}@{row['leader_epoch']}"
                found[key] = min(row["ts"], found.get(key, row["ts"]))
    return found


def together(*several: Mapping[str, int]) -> Turns:
    """What several files tell of, the first time of each; of very many the same ones in every file."""
    found: Turns = {}
    for turns in several:
        for key, ts in turns.items():
            found[key] = min(ts, found.get(key, ts))
    return {key: found[key] for key in sorted(found, key=lambda key: crc32(key.encode()))[:_MOST]}


def offset_between(one: Mapping[str, int], other: Mapping[str, int]) -> int | None:
    """How far the clock of `one` is ahead of that of `other`, microseconds; None where the turns do not tell."""
    offsets = {key: ts - other[key] for key, ts in one.items() if key in other}
    if not offsets:
        return None
    middle = round(median(offsets.values()))
    alike = [other[key] for key, offset in offsets.items() if abs(offset - middle) <= ALIKE]
    if len(alike) < _ENOUGH * len(offsets) or max(alike, default=0) - min(alike, default=0) < APART:
        return None
    return middle


def clocks_off(told: Iterable[tuple[int | None, Mapping[str, int]]]) -> dict[int, int]:
    """Brokers whose clock is minutes or more off, and by how much (microseconds, ahead positive).

    `told`: broker (None: the metadata log) and its turns. Measured against the clock with which most agree; with two
    that differ nobody can say which is off.
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
    """One sentence for each broker whose clock is off, with what to do about it."""
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
