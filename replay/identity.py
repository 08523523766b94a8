"""Names of events and incidents: hashes of what they are, the same in every run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.drafts import Draft
    from replay.partition_facts import PartitionFacts

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


def event_ids(facts: PartitionFacts, drafts: Sequence[Draft]) -> pa.Array:
    """Hash of each event's fact, kind and partition; an inserted event is named by what it does.

    Several of one name are numbered in their order.
    """
    heads: dict[str, str] = {}
    seen: dict[str, int] = {}
    found: list[str] = []
    for draft in drafts:
        row, fields = draft.row, draft.fields
        head = heads.get(draft.kind)
        if head is None:
            where = (facts.topic, facts.incarnation, facts.partition, draft.kind)
            head = heads[draft.kind] = BETWEEN.join(("", *map(text_of, where), ""))
        named = INSERTED if row is None else ACTORS
        tail = BETWEEN.join(map(text_of, map(fields.get, named)))
        name = hashed(f"{'inserted' if row is None else row['fact_id']}{head}{tail}")
        seen[name] = count = seen.get(name, -1) + 1
        found.append(name if not count else f"{name}.{count}")
    return pa.array(found, pa.string())
