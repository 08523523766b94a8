"""Takes a recording in as it arrives, run after run, in one process: what the parse stage does, on whole tables."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.intake.attribution import by_their_writers
from pipelines.intake.collect import distinct
from pipelines.intake.ledger import Plan, after, counts_of, decided, heads_of, listed, to_look_at
from pipelines.intake.pieces import COUNTS, FACT, REJECTED, Work, said_of, seen
from pipelines.lines.rows import FACT_SCHEMA, REJECTED_SCHEMA
from pipelines.parse.files.file_parser import survey_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.intake.ledger import Change, Entry
    from pipelines.recording.recording import Recording

VERSION = "parsers"
PLACE = ["fact_id", "source_file", "source_line"]


@dataclass
class Taken:
    """What the tables of a recording hold, and how many bytes were parsed for it in the last step."""

    facts: pa.Table = field(default_factory=FACT_SCHEMA.empty_table)
    rejected: pa.Table = field(default_factory=REJECTED_SCHEMA.empty_table)
    entries: list[Entry] = field(default_factory=list)
    lines: int = 0
    plan: Plan | None = None

    def take(self, recording: Recording, *, full: bool = False) -> None:
        """Take in what is new in the recording."""
        known = {entry.path: entry for entry in self.entries}
        heads = heads_of(self.entries)
        looks = [
            seen(recording, source, known[source.name].begun if source.name in known else None, heads)
            for source in to_look_at(recording, self.entries)
        ]
        plan = decided(recording, self.entries, looks, VERSION, full=full)
        said, entries = self._read(recording, plan)
        written = by_their_writers(
            recording,
            counts_of(listed(entries, recording)),
            lambda some: [survey_file(recording, source) for source in some],
        )
        if written is not recording:
            plan = decided(recording, self.entries, looks, VERSION, full=True)
            said, entries = self._read(written, plan)
        self.plan = plan
        self.lines = sum(part["lines"] for part in said[COUNTS] if "print" not in part)
        parsed = distinct(pa.concat_tables([FACT_SCHEMA.empty_table(), *said[FACT]]))
        self.facts = merged(self.facts, parsed, plan.changes)
        copies = {entry.path for entry in entries if entry.same_as is not None}
        told = pa.concat_tables([REJECTED_SCHEMA.empty_table(), *said[REJECTED]])
        told = told.filter(pc.invert(pc.is_in(told["source_file"], pa.array(copies, pa.string()))))
        self.rejected = pa.concat_tables([standing(self.rejected, plan.changes)[0], told])
        self.entries = entries

    def _read(self, recording: Recording, plan: Plan) -> tuple[dict[str, list[Any]], list[Entry]]:
        said: dict[str, list[Any]] = defaultdict(list)
        for read in plan.reads:
            for source in (one for one in recording.sources if one.name == read.source.name):
                begun = read.entry.begun if read.entry is not None and read.goes_on else None
                named = () if read.entry is None or begun is None else named_before(self.facts, read.entry)
                for output, rows in said_of(replace(recording, sources=()), Work(source, begun=begun, named=named)):
                    said[output] += (
                        [json.loads(one) for one in rows["counts"].to_pylist()] if output == COUNTS else [rows]
                    )
        return said, after(plan, said[COUNTS], recording.manifest, VERSION, "run", recording.listed_us)


def named_before(facts: pa.Table, entry: Entry) -> tuple[tuple[str, ...], ...]:
    """What the request lines of a file have named before the place where reading goes on."""
    of_file = pc.and_(pc.equal(facts["source_file"], entry.path), pc.less(facts["source_line"], entry.settled_line))
    some = facts.filter(pc.and_(of_file, pc.fill_null(pc.equal(facts["name"], "metadata_response"), False)))  # noqa: FBT003
    topics = zip(some["topic"].to_pylist(), some["topic_id"].to_pylist(), strict=True)
    return (*entry.named_clusters, *topics)


def standing(rows: pa.Table, changes: Iterable[Change]) -> tuple[pa.Table, pa.Table]:
    """The rows that stay, under the names that they get, and those that go; rows under other names stay as they are."""
    files, lines = rows["source_file"], rows["source_line"]
    names, gone = (
        files,
        pa.chunked_array([pc.is_null(files)]) if len(rows) else pa.chunked_array([pa.array([], pa.bool_())]),
    )
    for change in changes:
        mine = pc.equal(files, change.path)
        if change.since is not None:
            goes = pc.and_(mine, pc.greater_equal(lines, change.since))
            gone = pc.or_(gone, goes)
        names = pc.if_else(mine, change.to, names)
    moved = rows.set_column(rows.schema.get_field_index("source_file"), rows.schema.field("source_file"), names)
    return moved.filter(pc.invert(gone)), rows.filter(gone)


def place_of(row: dict[str, Any]) -> tuple[str, int]:
    """The file and line that state a fact."""
    return row["source_file"], row["source_line"]


def merged(facts: pa.Table, parsed: pa.Table, changes: Iterable[Change]) -> pa.Table:
    """The facts that stay and those that are new; what is stated anew by a file that was read again takes its place."""
    changes = list(changes)
    kept, _ = standing(facts, changes)
    stated = {row["fact_id"]: place_of(row) for row in parsed.select(PLACE).to_pylist()}
    places = [(row["fact_id"], place_of(row)) for row in kept.select(PLACE).to_pylist()]
    kept = kept.filter(pa.array([place <= stated.get(fact, place) for fact, place in places], pa.bool_()))
    new = parsed.filter(pc.invert(pc.is_in(parsed["fact_id"], kept["fact_id"].combine_chunks())))
    return pa.concat_tables([kept, new.cast(kept.schema)])
