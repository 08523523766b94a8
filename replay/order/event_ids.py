"""Names of events and incidents: hashes of what they are, the same in every run."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.alike import alike
from replay.arrays.columns import numbers

if TYPE_CHECKING:
    import numpy.typing as npt

    from replay.evidence.partition_facts import PartitionFacts
    from replay.order.operation_blocks import Drafts

FACT = "fact_id"
BETWEEN = "\x1f"
NULL: Final = np.iinfo(np.int64).min  # stands for null among numbers
ACTORS = ("broker_id", "replica_id")  # what identifies an event beside its fact
INSERTED = (
    "broker_id",
    "replica_id",
    "leader_epoch",
    "base_offset",
    "next_offset",
    "fetch_offset",
    "partition_epoch",
)  # what identifies an event without a fact


def text_of(part: object) -> str:
    """A part of the hashed text."""
    return "" if part is None else str(part)


def hashed(text: bytes) -> str:
    """A short stable hash."""
    return blake2b(text, digest_size=12).hexdigest()


def digest(*parts: object) -> str:
    """A short stable hash of the parts."""
    return hashed(BETWEEN.join(map(text_of, parts)).encode())


class Namer:
    """Names partitions' events by hashes: of fact, kind and partition, or of an inserted event's content."""

    def __init__(self) -> None:
        """No partition has been named yet."""
        self.begins: list[int] = []  # the number of each partition's first draft
        self.where: list[str] = []  # topic, incarnation and partition

    def begin(self, facts: PartitionFacts, count: int) -> None:
        """Take the drafts from number `count` on as those of another partition."""
        self.begins.append(count)
        self.where.append(BETWEEN.join(map(text_of, ("", facts.topic, facts.incarnation, facts.partition))))

    def ids(self, drafts: Drafts) -> pa.Array:
        """The names of events of one shape."""
        named = INSERTED if drafts.columns is None else ACTORS
        facts = [b"inserted"] * len(drafts.numbers)
        if drafts.columns is not None:
            facts = drafts.columns.take(FACT, drafts.places, pa.binary()).to_pylist()
        nothing = np.full(len(facts), NULL)
        told = (numbers(drafts.fields[name], NULL) if name in drafts.fields else nothing for name in named)
        partition = np.searchsorted(self.begins, drafts.numbers, side="right") - 1
        keys, which = alike(np.stack([partition, *told]))
        tails = [self.tail(drafts.kind, *key) for key in keys.T.tolist()]
        return pa.array([hashed(fact + tails[k]) for fact, k in zip(facts, which.tolist(), strict=True)], pa.string())

    def tail(self, kind: str, partition: int, *actors: int) -> bytes:
        """What is hashed of an event behind its fact."""
        told = (None if one == NULL else one for one in actors)
        return BETWEEN.join((self.where[partition], kind, *map(text_of, told))).encode()


def numbered(names: pa.ChunkedArray, order: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Number events that share a name, in their `order`. `names`: hashes, in chunks as they were made."""
    shorts = np.concatenate([short(chunk) for chunk in names.chunks])
    _, codes, counts = np.unique(shorts, return_inverse=True, return_counts=True)
    again = np.flatnonzero(counts[codes] > 1)
    if not len(again):
        return names
    texts = names.take(pa.array(again)).to_pylist()
    seen: dict[str, int] = {}
    for place in np.argsort(order[again]).tolist():
        name = texts[place]
        seen[name] = count = seen.get(name, -1) + 1
        texts[place] += f".{count}" if count else ""
    mask = np.zeros(len(names), np.bool_)
    mask[again] = True
    return pa.chunked_array(
        [pc.replace_with_mask(names.combine_chunks(), pa.array(mask), pa.array(texts, pa.string()))]
    )


def short(names: pa.Array) -> npt.NDArray[np.uint64]:
    """Hashes as numbers: equal for equal hashes, and hardly ever otherwise."""
    eights = np.frombuffer(names.buffers()[2], np.uint64, 3 * len(names))
    found: npt.NDArray[np.uint64] = eights.reshape(-1, 3).sum(axis=1, dtype=np.uint64)
    return found
