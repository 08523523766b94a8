"""What the logs do not cover: missing lines, and brokers and times without any.

It follows from a summary of the facts: each client's requests, for the gaps in its correlation ids; and how many lines
each broker wrote per second, with what other sources say about it meanwhile. Both result in a few rows per broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from replay.evidence.client_gaps import gaps_in
from replay.evidence.client_requests import shared_connections
from replay.evidence.coverage import windows_of, with_windows
from replay.evidence.heard import heard_by_broker, is_by_zookeeper, span_of
from replay.evidence.missing_lines import MissingLines, missing_lines
from replay.evidence.sources import SOURCES
from replay.evidence.summary import summary_of
from schemas.runs import COVERAGE

if TYPE_CHECKING:
    from replay.evidence.summary import Summary

HOLES: Final = ("missing", "lossy")  # states that mean that something happened and is not in the logs
# The source (of `SOURCES`) that a fact comes from; null if two might state it.
_WHEN = (f"WHEN {choice.sql} THEN '{name}'" for name, choice in SOURCES.items())
SOURCE_SQL: Final = f"CASE {' '.join(_WHEN)} END"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the logs cover, and what is missing."""

    rows: list[dict[str, Any]]  # rows of the table `coverage`, without recording_id
    missing: MissingLines

    def table(self, recording_id: str) -> pa.Table:
        """Return the rows of the table."""
        named = [{**row, "recording_id": recording_id} for row in self.rows]
        return pa.Table.from_pylist(named, schema=COVERAGE.arrow_schema)


def coverage_of(facts: pa.Table) -> Coverage:
    """Return what the facts of one recording cover, from those of their columns that are `SUMMED`."""
    return coverage_told(summary_of(facts))


def coverage_told(told: Summary, gaps: pa.Table | None = None) -> Coverage:
    """Return the same of facts that are summed up. `gaps`: of all clients, if they are known (`gaps_in`)."""
    found = gaps_in(told.requests, shared_connections(told.users)) if gaps is None else gaps
    missing, span = missing_lines(found), span_of(told.spans)
    if span is None:
        return Coverage([], missing)
    by_broker = heard_by_broker(told.heard).items()
    rows = [row for broker, spoke in by_broker for row in windows_of(broker, spoke, missing, span)]
    if not is_by_zookeeper(told.spans) and all(row["broker_id"] is not None for row in rows):
        rows += windows_of(None, {}, missing, span)
    rows.sort(key=lambda row: (row["broker_id"] is None, row["broker_id"] or 0, row["source"], row["start_ts"]))
    return Coverage(rows, with_windows(missing, rows))


def not_covered(rows: list[dict[str, Any]]) -> list[str]:
    """Describe what is not covered, one line of text each; `rows` are of `coverage` with times in microseconds."""
    return [in_words(row) for row in rows if row["state"] in HOLES]


def in_words(row: dict[str, Any]) -> str:
    """Describe one stretch of one log."""
    who = "the cluster" if row["broker_id"] is None else f"broker {row['broker_id']}"
    begin, end = (
        f"{datetime.fromtimestamp(row[name] // 1000 / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
        for name in ("start_ts", "end_ts")
    )
    many = f" (at least {row['lines_missing']:,})" if row["lines_missing"] else ""
    return f"{who}, {row['source'].replace('_', ' ')}, {begin} to {end}: {row['reason']}{many}"
