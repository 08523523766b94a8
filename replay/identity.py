"""Names of events and incidents: hashes of what they are, the same in every run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replay.drafts import Draft
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


def hashed(text: str) -> str:
    """A short stable hash."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def digest(*parts: object) -> str:
    """A short stable hash of the parts."""
    return hashed(BETWEEN.join(map(text_of, parts)))


class Namer:
    """Names one partition's events by hashes: of fact, kind and partition; of an inserted one what it does."""

    def __init__(self, facts: PartitionFacts) -> None:
        """`facts`: of the partition."""
        self.where = (facts.topic, facts.incarnation, facts.partition)

    def ids(self, drafts: Sequence[Draft]) -> pa.Array:
        """The names of events of one kind, all of facts or all inserted."""
        where = BETWEEN.join(("", *map(text_of, (*self.where, drafts[0].kind)), ""))
        inserted = drafts[0].row is None
        named = INSERTED if inserted else ACTORS
        tails: dict[tuple[Any, ...], str] = {}
        found = []
        for draft in drafts:
            key = tuple(map(draft.fields.get, named))
            if key not in tails:
                tails[key] = where + BETWEEN.join(map(text_of, key))
            found.append(hashed(("inserted" if draft.row is None else draft.row[FACT]) + tails[key]))
        return pa.array(found, pa.string())


def numbered(names: pa.Array, order: npt.NDArray[np.int64]) -> pa.Array:
    """Several events of one name numbered in their `order`."""
    encoded = names.dictionary_encode()
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
    return pa.array(texts, pa.string())
