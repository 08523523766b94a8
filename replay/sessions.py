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
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from replay.rows import Row, is_by_replica, rows_of_facts
from replay.windows import phases, timed_out
from schemas.facts import FACTS
from schemas.model import BOOL, INT64, TIMESTAMP

RUN_COLUMNS = (
    pa.field("hw_implied", BOOL),
    pa.field("run_count", INT64),
    pa.field("run_until", TIMESTAMP),
    pa.field("run_gap_us", INT64),
    pa.field("run_timeouts", INT64),
    pa.field("request_bytes", INT64),
    pa.field("request_forced", BOOL),
)
LEFT_OUT = "left_out"  # kind of a row for requests of a session that leave a partition of it out
SESSION_SCHEMA = pa.schema([*(f.with_nullable(nullable=True) for f in FACTS.arrow_schema), *RUN_COLUMNS])
CACHED = ("fetch_offset", "current_leader_epoch", "last_fetched_epoch", "follower_log_start_offset")

LINE_FIELDS = (
    "ts",
    "ts_error_us",
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
    "request_bytes",
    "request_forced",
)  # what a run takes from its first line


@dataclass(slots=True)
class Cached:
    """What a session remembers of a partition: the request's fields, the HW last sent, and where it was last listed."""

    row: Row
    hw: int | None
    listed_at: int


class Session(NamedTuple):
    """One session's lines, and sums over those before each."""

    lines: list[list[Row]]
    arrivals: np.ndarray  # when a handler took each up, in microseconds
    remote: np.ndarray  # time in purgatory of all lines before
    timeouts: np.ndarray  # how many lines before waited until their time was up


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
        for rows in lines.values():
            note_request(rows)
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


def note_request(rows: list[Row]) -> None:
    """What the whole answer says, in each of its rows: a fetch is completed by any of its partitions."""
    handed = sum(row["bytes"] or 0 for row in rows)
    forced = any(forces(row) for row in rows)
    for row in rows:
        row.update(request_bytes=handed, request_forced=forced)


def forces(row: Row) -> bool:
    """Whether this partition of an answer completes the fetch whatever the bytes (DelayedFetch.tryComplete)."""
    if row["error_code"] or row["diverging_epoch"] is not None or (row["preferred_read_replica"] or -1) >= 0:
        return True
    beyond = row["fetch_offset"] is not None and row["hw"] is not None and row["fetch_offset"] > row["hw"]
    return beyond and not is_by_replica(row)


def complete(row: Row, hw: int | None, *, implied: bool) -> Row:
    """A listed row as it leaves: no run."""
    return Row({**row, "hw": hw, "hw_implied": implied, "run_count": None, "run_until": None, "run_gap_us": None})


def rebuild_session(lines: list[list[Row]]) -> list[Row]:
    """One session's lines in epoch order -> completed rows and runs."""
    session = Session(
        lines,
        np.array([phases(rows[0]).taken for rows in lines], np.int64),
        np.cumsum([0, *(rows[0]["remote_us"] or 0 for rows in lines)]),
        np.cumsum([0, *(is_timeout(rows[0]) for rows in lines)]),
    )
    cache: dict[tuple[str, int], Cached] = {}
    left: dict[tuple[str, int], Cached] = {}
    out: list[Row] = []
    epoch_before = None
    for index, rows in enumerate(lines):
        epoch = rows[0]["session_epoch"]
        if epoch_before is not None and epoch not in (epoch_before + 1, 0):
            left.clear()
            cache.clear()  # a line is missing: nothing that is not listed again is known
        epoch_before = epoch
        for row in rows:
            if row["partition"] is None:
                continue
            key = partition_key(row)
            held = cache.get(key)
            if held is not None:
                out.extend(run_between(held, index, session))
            if key in left:
                out.extend(run_between(left.pop(key), index, session, kind=LEFT_OUT))
            if row["forgotten"]:
                cache.pop(key, None)
                out.append(complete(row, None, implied=False))
                if held is not None and held.row["diverging_epoch"] is None:
                    left[key] = Cached(held.row, held.hw, index - 1)
                continue
            out.extend(listed(row, key, index, cache))
    for held in cache.values():
        out.extend(run_between(held, len(lines), session))
    for held in left.values():
        out.extend(run_between(held, len(lines), session, kind=LEFT_OUT))
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


def is_timeout(row: Row) -> bool:
    """Whether the request waited until its time was up, and brought nothing."""
    waited = timed_out(row["local_us"] or 0, row["remote_us"] or 0, (row["max_wait_ms"] or 0) * 1000)
    return waited and not row["request_bytes"]


def run_between(held: Cached, index: int, session: Session, kind: str = "fetch") -> list[Row]:
    """The fetches after the last listing and before line `index`, as one row; none where there are none."""
    first, last = held.listed_at + 1, index - 1
    if last < first or held.row["error_code"]:
        return []
    line = session.lines[first][0]
    count = last - first + 1
    gaps = np.diff(session.arrivals[first : last + 1])
    return [
        Row(
            {
                **held.row,
                **{name: line[name] for name in LINE_FIELDS},
                "kind": kind,
                "in_request": False,
                "in_response": False,
                "bytes": 0,
                "diverging_epoch": None,
                "diverging_end_offset": None,
                "hw": held.hw,
                "hw_implied": True,
                "run_count": count,
                "run_until": int(session.arrivals[last]),
                "run_gap_us": int(gaps.max()) if len(gaps) else 0,
                "run_timeouts": int(session.timeouts[last + 1] - session.timeouts[first]),
                "remote_us": int(session.remote[last + 1] - session.remote[first]) // count,
            }
        )
    ]
