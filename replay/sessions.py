"""Fetch sessions rebuilt (KIP-227): what an incremental fetch does not say.

An incremental request lists only the partitions that changed since the last one, and the answer only those with
records, a new HW or log start, or an error. A fetch is one of *every* partition cached in its session, so each listed
row is completed from the session's cache, and the fetches that list a partition on neither side are folded, run-length,
into one row between two listings. Input: the fetch facts of one broker. Rows keep their facts' columns; added are
`hw_implied` (the HW is the one last sent: the partition is in the request and not in the answer) and the run columns.
A session with a gap in its epochs is dirty: what its cache holds is not used until the partition is listed again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from replay.rows import Row, rows_of_facts
from replay.windows import phases
from schemas.facts import FACTS
from schemas.model import BOOL, INT64, TIMESTAMP

RUN_COLUMNS = (
    pa.field("hw_implied", BOOL),
    pa.field("run_count", INT64),
    pa.field("run_until", TIMESTAMP),
    pa.field("run_gap_us", INT64),
)
SESSION_SCHEMA = pa.schema([*(f.with_nullable(nullable=True) for f in FACTS.arrow_schema), *RUN_COLUMNS])
CACHED = ("fetch_offset", "current_leader_epoch", "last_fetched_epoch", "follower_log_start_offset")

LINE_FIELDS = (
    "ts",
    "connection",
    "correlation_id",
    "source_line",
    "source_file",
    "fact_id",
    "total_us",
    "queue_us",
    "local_us",
    "remote_us",
    "throttle_us",
    "response_queue_us",
    "send_us",
)  # what a run takes from its first line


@dataclass(slots=True)
class Cached:
    """What a session remembers of a partition: the request's fields, the HW last sent, and where it was last listed."""

    row: Row
    hw: int | None
    listed_at: int


def session_key(row: Row) -> int:
    """The session that a fetch belongs to: the one it names; of a full fetch the one that its answer opens; 0: none."""
    if (row["session_epoch"] or 0) > 0:
        return int(row["session_id"] or 0)
    return int(row["response_session_id"] or 0) if row["session_epoch"] == 0 else 0


def partition_key(row: Row) -> tuple[str, int]:
    """How requests name a partition: by topic id from Fetch v13 on, by name before."""
    return row["topic_id"] or row["topic"], row["partition"]


def rebuild_sessions(facts: pa.Table) -> pa.Table:
    """Fetch facts of one broker -> the same, completed, and run-length rows of the unlisted fetches."""
    sessions: dict[int, dict[tuple[int, str, int], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of_facts(facts):
        line = (row["session_epoch"] or 0, row["connection"] or "", row["correlation_id"] or 0)
        sessions[session_key(row)][line].append(row)
    out: list[Row] = []
    for key in sorted(sessions):
        lines = sessions[key]
        order = sorted(lines, key=lambda line: (lines[line][0]["ts"], line))
        if key == 0:
            for line in order:
                out.extend(
                    complete(row, row["hw"], implied=False) for row in lines[line] if row["partition"] is not None
                )
            continue
        order.sort(key=lambda line: line[0])
        out.extend(rebuild_session([lines[line] for line in order]))
    return pa.Table.from_pylist(out, schema=SESSION_SCHEMA)


def complete(row: Row, hw: int | None, *, implied: bool) -> Row:
    """A listed row as it leaves: no run."""
    return Row({**row, "hw": hw, "hw_implied": implied, "run_count": None, "run_until": None, "run_gap_us": None})


def rebuild_session(lines: list[list[Row]]) -> list[Row]:
    """One session's lines in epoch order -> completed rows and runs."""
    arrivals = np.array([arrival_us(rows[0]) for rows in lines], np.int64)
    cache: dict[tuple[str, int], Cached] = {}
    out: list[Row] = []
    epoch_before = None
    for index, rows in enumerate(lines):
        epoch = rows[0]["session_epoch"]
        if epoch_before is not None and epoch not in (epoch_before + 1, 0):
            cache.clear()  # a line is missing: nothing that is not listed again is known
        epoch_before = epoch
        for row in rows:
            if row["partition"] is None:
                continue
            key = partition_key(row)
            held = cache.get(key)
            if held is not None:
                out.extend(run_between(held, index, lines, arrivals))
            if row["forgotten"]:
                cache.pop(key, None)
                out.append(complete(row, None, implied=False))
                continue
            out.extend(listed(row, key, index, cache))
    for held in cache.values():
        out.extend(run_between(held, len(lines), lines, arrivals))
    return out


def listed(row: Row, key: tuple[str, int], index: int, cache: dict[tuple[str, int], Cached]) -> list[Row]:
    """Complete a listed row from the cache, and note it there; nothing where the cache does not know the offset."""
    held = cache.get(key)
    if not row["in_request"]:
        if held is None:
            return []
        row = Row({**row, **{name: held.row[name] for name in CACHED}})
    failed = bool(row["error_code"])
    implied = bool(row["in_request"]) and not row["in_response"]
    hw = (held.hw if held else None) if implied else row["hw"]
    cache[key] = Cached(row, None if failed else hw, index)
    return [complete(row, None if failed else hw, implied=implied)]


def run_between(held: Cached, index: int, lines: list[list[Row]], arrivals: np.ndarray) -> list[Row]:
    """The fetches after the last listing and before line `index`, as one row; none where there are none."""
    first, last = held.listed_at + 1, index - 1
    if last < first or held.row["error_code"]:
        return []
    line = lines[first][0]
    gaps = np.diff(arrivals[first : last + 1])
    return [
        Row(
            {
                **held.row,
                **{name: line[name] for name in LINE_FIELDS},
                "in_request": False,
                "in_response": False,
                "bytes": 0,
                "diverging_epoch": None,
                "diverging_end_offset": None,
                "hw": held.hw,
                "hw_implied": True,
                "run_count": last - first + 1,
                "run_until": int(arrivals[last]),
                "run_gap_us": int(gaps.max()) if len(gaps) else 0,
            }
        )
    ]


def arrival_us(row: Row) -> int:
    """When a handler took the request up, in microseconds: the stamp less what came after it."""
    return phases(row).taken
