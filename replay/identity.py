"""Names of events and incidents: hashes of what they are, the same in every run."""

from __future__ import annotations

from hashlib import blake2b
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    from replay.blocks import Drafts
    from replay.partition_facts import PartitionFacts

FACT = "fact_id"
BETWEEN = "\x1f"
ACTORS = ("broker_id", "replica_id")  # what names an event beside its fact
INSERTED = (
    "broker_id",
    "replica_id",
    "leader_epoch",
    "base_offset",
    "next_offset",
    "fetch_offset",
    "partition_epoch",
)  # what names an event that no fact tells


def text_of(part: object) -> str:
    """A part of what is hashed."""
    return "" if part is None else str(part)


def hashed(text: bytes) -> str:
    """A short stable hash."""
    return blake2b(text, digest_size=12).hexdigest()


def digest(*parts: object) -> str:
    """A short stable hash of the parts."""
    return hashed(BETWEEN.join(map(text_of, parts)).encode())


class Namer:
    """Names one partition's events by hashes: of fact, kind and partition; of an inserted one what it does."""

    def __init__(self, facts: PartitionFacts) -> None:
        """`facts`: of the partition."""
        self.where = (facts.topic, facts.incarnation, facts.partition)

    def ids(self, drafts: Drafts) -> pa.Array:
        """The names of events of one shape."""
        where = BETWEEN.join(("", *map(text_of, (*self.where, drafts.kind)), ""))
        named = INSERTED if drafts.columns is None else ACTORS
        facts = [b"inserted"] * len(drafts.numbers)
        if drafts.columns is not None:
            facts = drafts.columns.take(FACT, pa.array(drafts.places), pa.binary()).to_pylist()
        told = [drafts.fields[name].to_pylist() if name in drafts.fields else repeat(None) for name in named]
        tails: dict[tuple[Any, ...], bytes] = {}
        found = []
        for fact, *key in zip(facts, *told, strict=False):
            actors = tuple(key)
            if actors not in tails:
                tails[actors] = (where + BETWEEN.join(map(text_of, actors))).encode()
            found.append(hashed(fact + tails[actors]))
        return pa.array(found, pa.string())


def numbered(names: pa.ChunkedArray, order: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Several events of one name numbered in their `order`."""
    encoded = names.combine_chunks().dictionary_encode()
    if len(encoded.dictionary) == len(names):
        return names
    codes = encoded.indices.to_numpy()
    again = np.flatnonzero(np.bincount(codes)[codes] > 1)
    texts = names.to_pylist()
    seen: dict[int, int] = {}
    for place in again[np.argsort(order[again])].tolist():
        code = int(codes[place])
        seen[code] = count = seen.get(code, -1) + 1
        texts[place] += f".{count}" if count else ""
    return pa.chunked_array([pa.array(texts, pa.string())])
