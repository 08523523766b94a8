"""What was in each file, as `runs.inputs` keeps it: told by the tasks as JSON, put together per file."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from pipelines.clocks import clocks_off, together
from pipelines.parse.rows import GAP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.clocks import Turns
    from pipelines.parse.files import Range
    from pipelines.parse.rows import FileCounts
    from pipelines.recording import Source

_SUMS = ("bytes", "lines", "facts", "rejected", "repeated")
_MOST_SILENCES = 1000
WITNESSES = ("named", "directories", "fetched")  # what tells who wrote a file


def told(source: Source, part: Range | None, counts: FileCounts, notes: Iterable[tuple[str, str]], turns: Turns) -> str:
    """One file's counts, or one range's, as JSON."""
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
            "notes": sorted(notes),
            "turns": together(turns),
            "named": {str(broker): lines for broker, lines in sorted(counts.named.items())},
            "directories": sorted(counts.directories),
            "fetched": sorted(counts.fetched),
            "labelled": source.labelled if source.is_attributed else source.broker_id,
            "is_shared": source.shared is not None,
            "set_aside": source.set_aside,
        },
        sort_keys=True,
    )


def inputs_of(counts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry per file, by name; the ranges of a file are put together. Whose clock is off stands with each."""
    files: dict[tuple[str, int | None], dict[str, Any]] = {}
    for part in sorted(counts, key=lambda part: (part["path"], _number(part["broker_id"]), part["first_line"])):
        key = (part["path"], part["broker_id"])
        files[key] = _joined(files[key], part) if key in files else {**part}
    off = clocks_off([(whole["broker_id"], whole.pop("turns", {})) for whole in files.values()])
    for whole in files.values():
        for name in ("first_line", *WITNESSES):
            whole.pop(name, None)
        whole["clock_off_us"] = off.get(whole["broker_id"])
    return list(files.values())


def _number(broker: int | None) -> int:
    return -1 if broker is None else broker


def _nested(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (outer, inner), number in sorted(counts.items()):
        nested.setdefault(outer, {})[inner] = number
    return nested


def _joined(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    joined = {**whole, **{name: whole[name] + part[name] for name in _SUMS}}
    silences = whole["silences"] + part["silences"]
    if whole["last_ts"] is not None and part["first_ts"] is not None and part["first_ts"] - whole["last_ts"] > GAP:
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
    joined["notes"] = sorted({*map(tuple, whole["notes"]), *map(tuple, part["notes"])})
    return joined
