"""What a run does with what has arrived: reads what is new, and leaves tables alone that would be made of the same.

Facts, rejected lines and the ledger are three writes. The ledger is the last of them: until it is written, the files
are read again, and what that states takes the place of what was stated before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.intake.attribution import clusters_of
from pipelines.intake.ledger import GONE, counts_of
from pipelines.spark.staging import as_frame
from pipelines.stages import ingest
from pipelines.stages.news import UNKNOWN, News, Times, news_since
from pipelines.stages.validation import Validation
from pipelines.warehouse.commit_point import complete_runs
from pipelines.warehouse.file_ledger import entries_of, write_entries
from pipelines.warehouse.narrowing import SETTINGS, Narrowing
from pipelines.warehouse.superseded import changed_facts, engine_version, rejected_after, restated_facts
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.recording.recording import Recording
    from pipelines.spark.staging import Rows
    from pipelines.stages.ingest import Parsed
    from pipelines.warehouse.delta_io import Warehouse

# Settings that decide what the tables contain.
_DECIDING: Final = ("kafka_version", "broker_config", "conformance_ties", "window_minutes")

_IDLE: Final = {"ingest", "report"}  # the stages of a run that found nothing new


@dataclass(frozen=True, slots=True)
class BroughtIn:
    """What a run has read."""

    read: list[dict[str, Any]]  # counts of the files that it read,
    every: list[dict[str, Any]]  # and of all that are in the folder
    is_nothing_new: bool
    are_files_as_before: bool = False  # also their names and places
    news: News = UNKNOWN  # without the facts that a grown file had before


@dataclass(frozen=True, slots=True)
class LastReplay:
    """The last run that made the tables out of all evidence, and what would be otherwise now."""

    run_id: str
    differs: tuple[str, ...]
    validation: Validation | None
    alike: tuple[str, ...]  # runs after which all tables, and so the report, are what they are now
    counts: dict[str, int]  # rows by table

    def sentence(self, files: int) -> str:
        """Say that nothing was computed, and what would be."""
        stand = f"nothing new to read: the tables stand as run {self.run_id} left them"
        if not self.differs:
            return stand
        return f"{stand}, with {' and '.join(self.differs)}; --full reads all {files:,} files again and computes anew"


def bring_in(
    warehouse: Warehouse, recording: Recording, run_id: str, staging: str, *, full: bool, few: int
) -> BroughtIn:
    """Read what is new in the recording, and write what it states.

    `full`: read everything again. `few`: up to how many facts the driver reads itself.
    """
    recording_id = recording.recording_id
    known = entries_of(warehouse, recording_id)
    stand = partial(warehouse.around, "facts", recording_id) if known else None
    parsed = ingest.parse(warehouse.spark, recording, staging, known, stand, run_id, full=full, few=few)
    complete = {row["run_id"] for row in complete_runs(warehouse, recording_id, "run_id")} if known else set()
    # What a killed run read was perhaps never ordered: this run does that, and so answers for it.
    entries = [one if one.run_id in complete else replace(one, run_id=run_id) for one in parsed.entries]
    if parsed.is_nothing_new:
        have_moved = write_entries(warehouse, recording_id, known, entries)
        is_ordered = all(one.run_id in complete for one in known)
        return BroughtIn([], parsed.every, is_ordered, are_files_as_before=not have_moved)
    _refuse_other_cluster(warehouse, recording, parsed)
    changes = parsed.plan.changes
    since_us: int | None = None
    rejected = _of_run(parsed.rejected, recording_id, run_id)
    if known:
        times = Times.of(parsed.facts)
        spans = [*times.spans, *(change.span for change in changes)]
        changed = changed_facts(warehouse, recording_id, changes)
        since_us = news_since(warehouse, recording_id, parsed, times, changed)
        warehouse.append_facts(parsed.facts, recording_id, changed, spans, parsed.files, changes)
        read = [one.source.name for one in parsed.plan.reads]
        rejected, lines = rejected_after(warehouse, recording_id, changes, rejected, read)
        warehouse.replace("rejected_lines", rejected, recording_id, within=lines)
    else:
        restated = restated_facts(warehouse, recording_id, parsed.facts, parsed.inputs)
        warehouse.append_facts(parsed.facts, recording_id, restated, files=parsed.files)
        if any(one["rejected"] for one in parsed.inputs) or not warehouse.is_empty("rejected_lines", recording_id):
            warehouse.replace("rejected_lines", rejected, recording_id)
    write_entries(warehouse, recording_id, known, entries)
    news = News(len(parsed.facts) if isinstance(parsed.facts, pa.Table) else None, since_us)
    return BroughtIn(parsed.inputs, parsed.every, is_nothing_new=False, news=news)


def _of_run(rejected: Rows, recording_id: str, run_id: str) -> Rows:
    """Return rejected lines as rows of their table."""
    told = {"recording_id": recording_id, "run_id": run_id}
    if not isinstance(rejected, pa.Table):
        return rejected.withColumns({name: F.lit(value) for name, value in told.items()})
    for name, value in told.items():
        column = pa.array([value] * len(rejected), pa.string())
        place = rejected.schema.get_field_index(name)
        rejected = rejected.append_column(name, column) if place < 0 else rejected.set_column(place, name, column)
    return rejected


def _refuse_other_cluster(warehouse: Warehouse, recording: Recording, parsed: Parsed) -> None:
    """Raise InputError if the recording in the warehouse is of another cluster, by its id or by its topics' ids."""
    source, recording_id = recording.root or None, recording.recording_id
    named = set(clusters_of(parsed.every))
    others = set(clusters_of(counts_of(parsed.known))) - named
    if named and others:
        message = (
            f"its logs are of the cluster {', '.join(sorted(named))}, and what stands in the recording "
            f"'{recording_id}' of this warehouse is of {', '.join(sorted(others)[:5])}: give it a name of its "
            "own with --recording-id"
        )
        raise InputError(message, source=source)
    if _has_known_files(parsed) or warehouse.is_empty("facts", recording_id):
        return
    known = warehouse.read("facts", recording_id).where("topic_id IS NOT NULL").select("topic_id").distinct()
    if not known.head(1):
        return
    ids = as_frame(warehouse.spark, parsed.facts).where("topic_id IS NOT NULL").select("topic_id").distinct()
    if ids.head(1) and not ids.join(known, on="topic_id", how="left_semi").head(1):
        message = (
            f"none of its topics stands in the recording '{recording_id}' of this warehouse: "
            "they are of different clusters; give it a name of its own with --recording-id"
        )
        raise InputError(message, source=source)


def _has_known_files(parsed: Parsed) -> bool:
    """Whether the folder has a file that was read before, so that it is what stands that goes on."""
    return any(read.entry for read in parsed.plan.reads) or any(entry.state != GONE for entry in parsed.plan.kept)


def last_replay(warehouse: Warehouse, recording_id: str, settings: Mapping[str, Any]) -> LastReplay | None:
    """Return the last run whose replay saw all evidence there is; None: none did, or of a part of it only."""
    columns = ("run_id", "stages", "versions", "configuration", "finished", "counts", "durations", "inputs")
    rows = complete_runs(warehouse, recording_id, *columns)
    every = sorted(rows, key=lambda row: row["finished"], reverse=True)
    for row in every:
        if "replay" in row["stages"]:
            return _last_replay(warehouse, recording_id, row, settings, every)
        if "ingest" in row["stages"] and _has_read(row):
            return None
    return None


def _has_read(run: Mapping[str, Any]) -> bool:
    """Whether a run read anything, or ordered what a killed one had read."""
    return run["inputs"] != "[]" or "order" in json.loads(run["durations"])


def _last_replay(
    warehouse: Warehouse,
    recording_id: str,
    run: Mapping[str, Any],
    settings: Mapping[str, Any],
    every: Sequence[Mapping[str, Any]],
) -> LastReplay | None:
    then, versions = json.loads(run["configuration"]), json.loads(run["versions"])
    if Narrowing.of({name: then.get(name) for name in SETTINGS}):
        return None
    differs = [] if versions.get("engine") == engine_version() else ["another version of the engine"]
    differs += [
        f"{name} {then.get(name)!r} in place of {settings.get(name)!r}"
        for name in _DECIDING
        if (then.get(name) or None) != (settings.get(name) or None)
    ]
    if (then.get("expectations") or {}) != (settings.get("expectations") or {}):
        differs.append("other expectations")
    idle = [*takewhile(lambda row: not _has_read(row) and {*row["stages"]} <= _IDLE, every)]
    return LastReplay(
        run["run_id"],
        tuple(differs),
        _validation(warehouse, recording_id, run),
        alike=tuple(row["run_id"] for row in every[: len(idle) + 1]),
        counts=json.loads(every[0]["counts"]),
    )


def _validation(warehouse: Warehouse, recording_id: str, run: Mapping[str, Any]) -> Validation | None:
    """Return how the validation of a run ended; None: it did not validate."""
    if "validate" not in run["stages"]:
        return None
    rows = warehouse.of_run("expectation_results", recording_id, run["run_id"], ("success", "severity")).to_pylist()
    severities = [row["severity"] for row in rows if not row["success"]]
    return Validation([], severities.count("error"), severities.count("warning"), "")
