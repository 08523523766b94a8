"""Names of events and incidents: hashes of what they are, the same in every run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.drafts import Draft
    from replay.partition_facts import PartitionFacts


def digest(*parts: object) -> str:
    """A short stable hash of the parts."""
    text = "\x1f".join("" if part is None else str(part) for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def event_id(facts: PartitionFacts, draft: Draft) -> str:
    """Hash of the fact's key, kind and partition; an inserted event is named by what it does."""
    where = (facts.topic, facts.incarnation, facts.partition, draft.kind)
    if draft.row is not None:
        return digest(draft.row["fact_id"], *where, draft.fields.get("broker_id"), draft.fields.get("replica_id"))
    inserted = (
        "broker_id",
        "replica_id",
        "leader_epoch",
        "base_offset",
        "next_offset",
        "fetch_offset",
        "partition_epoch",
    )
    return digest("inserted", *where, *(draft.fields.get(name) for name in inserted))
