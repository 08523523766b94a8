"""Digests of the lines that are known to be missing up to a time. They cost the same however many these are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.digests import row_hashes, running_sums

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from replay.arrays.digests import Hashes
    from replay.arrays.ints import Ints
    from replay.evidence.missing_lines import Cuts, Gap, MissingLines


class Sums(NamedTuple):
    """Rows by time, with the sums of their digests up to each."""

    us: Ints  # rising
    sums: tuple[Hashes, Hashes]

    @classmethod
    def of(cls, us: Ints, rows: pa.Table) -> Sums:
        """Return the sums over rows; `us`: the time of each."""
        order = np.argsort(us, kind="stable")
        return cls(us[order], running_sums(row_hashes(rows)[order]))

    def before(self, us: int) -> int:
        """Return how many rows are from before a time."""
        return int(np.searchsorted(self.us, us, "left"))

    def first(self, count: int) -> list[int]:
        """Return the digest of the first rows."""
        return [count, *(int(words[count - 1]) for words in self.sums if count)]


class Stretches(NamedTuple):
    """Stretches of a broker's clock, disjoint and rising."""

    gaps: Sequence[Gap]
    sums: Sums

    @classmethod
    def of(cls, gaps: Sequence[Gap]) -> Stretches:
        """Return some stretches; there is at least one."""
        since, until = np.array(gaps, np.int64).T
        return cls(gaps, Sums.of(since, pa.table({"since": since, "until": until})))

    def before(self, us: int) -> list[int]:
        """Return the digest of those that begin before a time, as far as they reach up to it; none: there are none."""
        count = self.sums.before(us)
        last = self.gaps[max(count - 1, 0)]
        return [*self.sums.first(count - 1), last.since, min(last.until, us)] if count else []


class MissingUntil:
    """What is known to be missing of some brokers' logs and on some connections."""

    def __init__(
        self, missing: MissingLines, brokers: Collection[int], connections: Collection[tuple[int, str]]
    ) -> None:
        """Sum it up by time; `connections`: those of which the cuts count."""
        self.stretches = [
            (kind, broker, Stretches.of(of[broker]))
            for kind, of in enumerate(missing.stretches)
            for broker in sorted(brokers)
            if of.get(broker)
        ]
        self.cuts = sums_of_cuts({place: missing.cuts[place] for place in sorted(missing.cuts.keys() & {*connections})})

    def before(self, us: int) -> list[Any]:
        """Return the digest of what is missing before a time. That a stretch goes on behind it is not told."""
        told = ((kind, broker, one.before(us)) for kind, broker, one in self.stretches)
        return [self.cuts.first(self.cuts.before(us)), *(one for one in told if one[-1])]

    def later(self, us: int) -> list[tuple[int, int]]:
        """Return of which stretches any begins later, by kind and broker."""
        return [(kind, broker) for kind, broker, one in self.stretches if one.gaps[-1].since >= us]


def sums_of_cuts(cuts: Mapping[tuple[int, str], Cuts]) -> Sums:
    """Return the sums over cuts of connections."""
    none = np.zeros(0, np.int64)
    each = np.repeat(np.arange(len(cuts)), [len(mine.since) for mine in cuts.values()])
    told = {
        "broker_id": np.array([broker for broker, _ in cuts], np.int64)[each],
        "connection": pa.array([name for _, name in cuts], pa.string()).take(pa.array(each)),
        "number": np.concatenate([none, *(mine.number for mine in cuts.values())]),
    }
    return Sums.of(np.concatenate([none, *(mine.since for mine in cuts.values())]), pa.table(told))
