"""Facts as rows: dicts in which a column that the fact does not have reads as null.

A fact fills a fifth of its columns, so rows are made kind by kind, of the columns that the kind uses at all.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

METADATA_LOG = "__cluster_metadata"
METADATA_TOPIC = (METADATA_LOG, "AAAAAAAAAAAAAAAAAAAAAQ")  # name and id: Raft replicates it, by other rules than these


class Row(dict[str, Any]):
    """One fact; a missing column is null."""

    def __missing__(self, key: str) -> None:
        """Columns that no fact of this kind fills are not stored."""
        return


def rows_of_facts(facts: pa.Table) -> list[Row]:
    """A table of facts as rows, by kind and within it by fact: in the same order whatever the table's is."""
    facts = facts.sort_by("fact_id")
    out: list[Row] = []
    for kind in sorted(k for k in pc.unique(facts.column("kind")).to_pylist() if k is not None):
        same = facts.filter(pc.equal(facts.column("kind"), kind))
        used = [name for name in same.column_names if same.column(name).null_count < len(same)]
        out.extend(map(Row, same.select(used).to_pylist()))
    return out


def is_by_replica(fetch: Row) -> bool:
    """Whether a fetch is a follower's: consumers have no broker id."""
    return fetch["replica_id"] is not None and fetch["replica_id"] >= 0
