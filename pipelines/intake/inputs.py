"""The entries of `runs.inputs`: what was in each file. Tasks report it as JSON, and it is combined per file."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.intake.clocks import clocks_off, together
from pipelines.lines.rows import GAP
from replay.evidence.versions import METADATA_VERSION
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipelines.intake.clocks import Turns
    from pipelines.lines.rows import FileCounts
    from pipelines.parse.files.file_parser import Range
    from pipelines.recording.recording import Source

Notes = dict[tuple[str, str], tuple[int | None, int | None]]  # (name, value) -> first and last time it was stated

_NOTED = pa.array(["version", "cluster_id", METADATA_VERSION])
_SUMS = ("bytes", "lines", "facts", "rejected", "repeated")
_MOST_SILENCES = 1000
WITNESSES = ("named", "directories", "fetched")  # fields that tell who wrote a file


def notes_of(facts: pa.RecordBatch) -> Notes:
    """Return stated versions and cluster ids, by brokers or the metadata log, each with its first and last time."""
    some = facts.select(["name", "value", "ts"]).filter(pc.is_in(facts.column("name"), _NOTED))
    found: Notes = {}
    stamps = some.column("ts").cast(pa.int64()).to_pylist()
    for name, value, ts in zip(some.column("name").to_pylist(), some.column("value").to_pylist(), stamps, strict=True):
        if value is not None:
            found = widened(found, {(name, value): (ts, ts)})
    return found


def widened(one: Notes, other: Notes) -> Notes:
    """Merge both, each note from its first time to its last."""
    found = dict(one)
    for note, (first, last) in other.items():
        known = [ts for ts in (first, last, *found.get(note, ())) if ts is not None]
        found[note] = (min(known), max(known)) if known else (None, None)
    return found


def told(source: Source, part: Range | None, counts: FileCounts, notes: Notes, turns: Turns) -> str:
    """Return the counts of a file, or of a range of it, as JSON."""
    return json.dumps(
        {
            "path": source.name,
            "broker_id": source.broker_id,
            "content": counts.content,
            "layout": counts.layout,
            "first_line": part.first_line if part else 1,
            **{name: getattr(counts, name) for name in _SUMS},
            "first_ts": counts.first_ts,
            "last_ts": counts.last_ts,
            "silences": counts.silences[:_MOST_SILENCES],
            "no_interest": _nested(counts.no_interest),
            "kinds": _nested(counts.kinds),
            "notes": _listed(notes),
            "turns": together(turns),
            "named": {str(broker): lines for broker, lines in sorted(counts.named.items())},
            "directories": sorted(counts.directories),
            "fetched": sorted(counts.fetched),
            "labelled": source.labelled if source.is_attributed else source.broker_id,
            "is_shared": source.shared is not None,
            "set_aside": source.set_aside,
            "dump_state": counts.dump_state,
        },
        sort_keys=True,
    )


def inputs_of(counts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Combine the parts of each file; return one entry per file, by name, with how far its broker's clock is off."""
    files: dict[tuple[str, int | None], dict[str, Any]] = {}
    for part in sorted(counts, key=lambda part: (part["path"], _number(part["broker_id"]), part["first_line"])):
        key = (part["path"], part["broker_id"])
        files[key] = with_part(files[key], part) if key in files else {**part}
    off = clocks_off([(whole["broker_id"], whole.pop("turns", {})) for whole in files.values()])
    for whole in files.values():
        for name in ("first_line", "dump_state", *WITNESSES):
            whole.pop(name, None)
        whole["clock_off_us"] = off.get(whole["broker_id"])
    return list(files.values())


def _listed(notes: Notes) -> list[list[Any]]:
    return [[*note, *times] for note, times in sorted(notes.items())]


def _by_note(listed: Iterable[Sequence[Any]]) -> Notes:
    return {(name, value): (first, last) for name, value, first, last in listed}


def _number(broker: int | None) -> int:
    return -1 if broker is None else broker


def refuse_unreadable(inputs: Iterable[dict[str, Any]], root: str) -> None:
    """Raise InputError if no byte of any file could be read, although reading some was tried."""
    found = list(inputs)
    closed = [entry for entry in found if not entry["bytes"] and entry["rejected"]]
    if closed and not any(entry["bytes"] for entry in found):
        message = f"none of its files can be read, the first is {closed[0]['path']}: may you read them?"
        raise InputError(message, source=root or None)


def _nested(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (outer, inner), number in sorted(counts.items()):
        nested.setdefault(outer, {})[inner] = number
    return nested


def with_part(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of a file and of the part of it that follows."""
    joined = {**whole, **{name: whole[name] + part[name] for name in _SUMS}}
    silences = whole["silences"] + part["silences"]
    is_log = whole["layout"] is not None  # of a dump, silences are not told
    if (
        is_log
        and whole["last_ts"] is not None
        and part["first_ts"] is not None
        and part["first_ts"] - whole["last_ts"] > GAP
    ):
        silences.append((whole["last_ts"], part["first_ts"]))
    joined["silences"] = sorted(map(tuple, silences))
    joined["first_ts"] = min((ts for ts in (whole["first_ts"], part["first_ts"]) if ts is not None), default=None)
    joined["last_ts"] = max((ts for ts in (whole["last_ts"], part["last_ts"]) if ts is not None), default=None)
    for name in ("no_interest", "kinds"):
        joined[name] = {
            outer: dict(sorted((Counter(whole[name].get(outer, {})) + Counter(part[name].get(outer, {}))).items()))
            for outer in sorted({*whole[name], *part[name]})
        }
    joined["turns"] = together(whole.get("turns", {}), part.get("turns", {}))
    joined["notes"] = _listed(widened(_by_note(whole["notes"]), _by_note(part["notes"])))
    return joined
