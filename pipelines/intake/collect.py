"""Parses a whole recording in one process, without Spark: for tests, and to look at small recordings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.intake.attribution import by_their_writers, refuse_two_clusters
from pipelines.intake.inputs import notes_of, told, widened
from pipelines.lines.rows import FACT_SCHEMA, REJECTED_SCHEMA, FileCounts
from pipelines.parse.files.file_parser import parse_file, survey_file

if TYPE_CHECKING:
    from pipelines.intake.inputs import Notes
    from pipelines.recording.recording import Recording


class Collected(NamedTuple):
    """What a recording says: each fact once, rejected lines, and counts by file."""

    facts: pa.Table
    rejected: pa.Table
    counts: dict[str, FileCounts]


def collect(recording: Recording) -> Collected:
    """Parse all files of the recording, one after the other."""
    found, entries = _said(recording)
    written = by_their_writers(recording, entries, lambda some: [survey_file(recording, source) for source in some])
    if written is not recording:
        found, entries = _said(written)
    refuse_two_clusters(entries, recording.root or None)
    return found


def _said(recording: Recording) -> tuple[Collected, list[dict[str, Any]]]:
    """Return what the files say, and the counts of each file in the form in which Spark's tasks report them."""
    facts, rejected, counts, entries = [], [], {}, []
    for source in recording.sources:
        notes: Notes = {}
        for batch in parse_file(recording, source):
            if batch.facts is not None:
                notes = widened(notes, notes_of(batch.facts))
                facts.append(batch.facts)
            if batch.rejected is not None:
                rejected.append(batch.rejected)
            if batch.counts is not None:
                counts[source.name] = batch.counts
                entries.append(json.loads(told(source, None, batch.counts, notes, {})))
    every = pa.Table.from_batches(facts, FACT_SCHEMA)
    return Collected(distinct(every), pa.Table.from_batches(rejected, REJECTED_SCHEMA), counts), entries


def distinct(facts: pa.Table) -> pa.Table:
    """Return each fact once, from the first file and line that state it, in the order of files and lines."""
    keys = [("source_file", "ascending"), ("source_line", "ascending"), ("fact_id", "ascending")]
    order = pc.sort_indices(facts.select([name for name, _ in keys]), sort_keys=keys)
    ordered = facts.take(order)
    numbered = pa.table({"fact_id": ordered["fact_id"], "row": pa.array(range(ordered.num_rows), pa.int64())})
    first = numbered.group_by("fact_id").aggregate([("row", "min")])["row_min"]
    return ordered if len(first) == len(ordered) else ordered.take(first.take(pc.sort_indices(first)))
