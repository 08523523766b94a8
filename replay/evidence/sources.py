"""Which log or dump a fact comes from, judged by its columns: the first source that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from replay.evidence.choices import Choice
from replay.evidence.coverage import METADATA, REQUEST_LOG, SERVER_LOG
from schemas.model import INT32

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKER_SCHEMA: Final = pa.schema([pa.field("broker_id", INT32)])
ANSWERED_KINDS: Final = ("topic_change", "broker_lifecycle")  # also stated by metadata answers
SOURCES: Final[Mapping[str, Choice]] = {
    METADATA: Choice(filled=("metadata_offset",)),
    REQUEST_LOG: Choice(filled=("connection",)),
    "segments": Choice(kinds=("segment_batch",)),
    "checkpoints": Choice(kinds=("checkpoint",)),
    SERVER_LOG: Choice(others=ANSWERED_KINDS),
}


def sources_of(facts: pa.Table) -> pa.ChunkedArray:
    """The source of each fact; null if two sources might state it."""
    fitting = (
        pc.if_else(choice.mask(facts), pa.scalar(name), pa.scalar(None, pa.string()))
        for name, choice in SOURCES.items()
    )
    return pc.coalesce(*fitting)


def own_logs(facts: pa.Table) -> pa.Table:
    """Brokers with any fact from their own log, one row each."""
    told = facts.select(["broker_id"]).filter(pc.equal(sources_of(facts), SERVER_LOG))
    return brokers_together(told.filter(pc.is_valid(told["broker_id"])).cast(BROKER_SCHEMA))


def brokers_together(rows: pa.Table) -> pa.Table:
    """Each of these brokers once."""
    return pa.table([pc.unique(rows["broker_id"])], schema=BROKER_SCHEMA)
