"""Facts of a made recording, whose followers take partitions out of their fetch sessions, which go on without them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from datetime import datetime
    from random import Random

NOTHING = {"fetch_offset": None, "bytes": 0, "hw": None, "in_request": False, "in_response": False}
OF_NONE = NOTHING | dict.fromkeys(("topic", "topic_id", "partition", "log_start_offset", "last_stable_offset"))
Row = dict[str, Any]


def with_partitions_left_out(facts: pa.Table, chosen: Random, times: int = 2) -> pa.Table:
    """Return the facts with sessions of which a partition is forgotten at some moments, as when its leader moves.

    Most of the times it is asked for again within a second. There must be other partitions in its sessions.
    """
    rows = facts.to_pylist()
    followers = [row for row in rows if row["kind"] == "fetch" and row["replica_id"] >= 0]
    lists = Counter((row["connection"], row["session_epoch"]) for row in followers)
    listed = [row for row in followers if row["partition"] is not None]
    sessions = sorted({(row["connection"], row["partition"]) for row in listed})
    stamps = sorted(row["ts"] for row in listed)
    gone: set[str] = set()
    for _ in range(times):
        of = chosen.choice(sessions)
        mine = [row for row in listed if (row["connection"], row["partition"]) == of and row["fact_id"] not in gone]
        mine.sort(key=lambda row: row["session_epoch"])
        since = chosen.choice(stamps)
        until = since + timedelta(seconds=chosen.choice([0.1, 0.3, 1.0, 1_000.0]))
        for row in left_out(mine, since, until):
            line = row["connection"], row["session_epoch"]
            if lists[line] > 1:
                lists[line] -= 1
                gone.add(row["fact_id"])
            else:  # the request is still there
                row.update(OF_NONE)
    kept = [row for row in rows if row["fact_id"] not in gone]
    return pa.Table.from_pylist(kept, schema=facts.schema)


def left_out(mine: list[Row], since: datetime, until: datetime) -> list[Row]:
    """Let a session forget a partition for some time; return the rows in which it would be. `mine`: all, in order."""
    inside = [row for row in mine if since <= row["ts"] < until and row["session_epoch"]]
    if len(inside) < 2 or inside[0]["forgotten"]:
        return []
    offset = next(
        row["fetch_offset"] for row in reversed(mine) if row["fetch_offset"] is not None and row["ts"] < until
    )
    inside[0].update(NOTHING, forgotten=True)
    back = next((row for row in mine if row["ts"] >= until), None)
    if back is not None and back["fetch_offset"] is None:
        back.update(in_request=True, fetch_offset=offset)
    return inside[1:]
