"""Digests of what a partition is told about the whole cluster: they show whether a later run tells it more.

Some of it grows with every run: the part of the metadata log that was dumped, the time for which a broker's request log
is missing. To a partition such a range makes no difference behind its own last line and its own last record, so there
its end is not told.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from replay.evidence.metadata_log import PART, Parts
from replay.evidence.missing_digests import MissingUntil
from replay.evidence.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.cluster import Cluster

DIGEST_BYTES: Final = 16
# Told topic by topic, or with an end of its own to each partition, or not at all.
APART: Final = ("about", "created", "expiry", "facts", "missing", "recording_id", "rows", "topics")
# No rule looks further ahead of a line than this: lag times, request timeouts and sessions take minutes.
AHEAD_US: Final = 3_600_000_000


class ToldOfCluster:
    """What each partition is told, as digests; what all of them are told is read once, when it is first asked for."""

    def __init__(self, cluster: Cluster) -> None:
        """Read nothing yet: this goes to every task."""
        self.cluster = cluster
        self.topics: dict[str, str] = {}

    @cached_property
    def parts(self) -> Parts:
        """Which parts of the metadata log are there."""
        return Parts(self.cluster.rows)

    @cached_property
    def by_topic(self) -> dict[str | None, list[Row]]:
        """The rows of each topic; None: of the cluster."""
        found: dict[str | None, list[Row]] = {}
        for row in self.cluster.rows:
            if row["kind"] != PART:
                found.setdefault(row["topic"], []).append(row)
        return found

    @cached_property
    def last_record(self) -> int:
        """The last offset in the metadata log of any of them."""
        offsets = (row["metadata_offset"] for rows in self.by_topic.values() for row in rows)
        return max((offset for offset in offsets if offset is not None), default=-1)

    def partition(self, topic: str, latest_us: int, last_record: int) -> str:
        """The digest of what a partition is told. `latest_us`: its last line; `last_record`: of the metadata log."""
        parts, until = self.parts, latest_us + AHEAD_US
        end = max(last_record, self.last_record) + 1
        log = (
            parts.told, parts.snapshots, parts.epochs, parts.begin,
            [(first, min(last, end)) for first, last in parts.known if first <= end],
            [(first, min(last, end)) for first, last in parts.extents if first <= end],
            None if parts.last_us is None else min(parts.last_us, until),
        )  # fmt: skip
        lines = (self.missing.before(until), self.missing.later(until))
        return digest_of([self.topic(topic), log, lines, self.expiry(latest_us)])

    @cached_property
    def missing(self) -> MissingUntil:
        """The lines that are missing, of all brokers and on all connections."""
        missing = self.cluster.missing
        return MissingUntil(missing, {broker for of in missing.stretches for broker in of}, missing.cuts)

    @cached_property
    def marks(self) -> tuple[list[int], list[str]]:
        """The times of all that is known of expiry tasks, rising, and the digests of what is known until each."""
        marks = sorted((mark.us, broker, mark.is_run) for broker, mine in self.cluster.expiry.items() for mark in mine)
        digests = accumulate(marks, lambda before, mark: digest_of([before, mark]), initial="")
        return [us for us, *_ in marks], list(digests)

    def expiry(self, until: int) -> str:
        """The digest of what is known of expiry tasks until a time: no shrink is compared with later runs."""
        times, digests = self.marks
        return digests[bisect_right(times, until)]

    @cached_property
    def everyone(self) -> str:
        """The digest of what every partition is told."""
        cluster = self.cluster
        told = [(one.name, getattr(cluster, one.name)) for one in fields(cluster) if one.name not in APART]
        return digest_of([*told, *self.by_topic.get(None, ())])

    def topic(self, name: str) -> str:
        """The digest of what the partitions of a topic are told."""
        if name not in self.topics:
            cluster = self.cluster
            created = cluster.created.get(name, [])
            topics = [(one, cluster.topics.get(one)) for _, one in created]
            self.topics[name] = digest_of([self.everyone, created, topics, *self.by_topic.get(name, ())])
        return self.topics[name]


def digest_of(values: Iterable[Any]) -> str:
    """A digest of values that does not depend on the order of sets and of keys."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for value in values:
        digest.update(canonical(value).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def canonical(value: object) -> str:
    """A value as text: equal for equal values."""
    if isinstance(value, Row):
        names = {*value.columns, *value.columns.table.column_names}
        return canonical({name: value[name] for name in names if value[name] is not None})
    if is_dataclass(value) and not isinstance(value, type):
        return canonical({one.name: getattr(value, one.name) for one in fields(value)})
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{canonical(key)}:{canonical(one)}" for key, one in value.items())) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted(map(canonical, value))) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(canonical, value)) + "]"
    return repr(value)
