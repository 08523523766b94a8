"""Facts of a made recording, whose followers take partitions out of their fetch sessions, which go on without them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from replay.evidence.replication_quotas import LIST_SETTINGS

if TYPE_CHECKING:
    from datetime import datetime
    from random import Random

NOTHING = {"fetch_offset": None, "bytes": 0, "hw": None, "in_request": False, "in_response": False}
OF_NONE = NOTHING | dict.fromkeys(("topic", "topic_id", "partition", "log_start_offset", "last_stable_offset"))
Row = dict[str, Any]


def with_partitions_left_out(
    facts: pa.Table, chosen: Random, times: int = 2, *, are_consumers: bool = False
) -> pa.Table:
    """Return the facts with sessions of which a partition is forgotten at some moments, as when its leader moves.

    Most of the times it is asked for again within a second. There must be other partitions in its sessions. Consumers
    do so whenever they still have records of a partition.
    """
    rows = facts.to_pylist()
    fetches = [row for row in rows if row["kind"] == "fetch" and (row["replica_id"] >= 0) != are_consumers]
    lists = Counter((row["connection"], row["session_epoch"]) for row in fetches)
    listed = [row for row in fetches if row["partition"] is not None]
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


def with_a_quota(facts: pa.Table) -> pa.Table:
    """Return the facts with a replication quota for all partitions from the beginning on (KIP-73)."""
    offset = pc.max(facts["metadata_offset"]).as_py() + 1
    record = {
        "recording_id": facts["recording_id"][0].as_py(), "kind": "config_change", "source_file": "quotas",
        "ts": pc.min(facts["ts"]).as_py(), "record_type": "CONFIG_RECORD", "in_snapshot": False, "controller_epoch": 1,
    }  # fmt: skip
    told = [{"topic": "made", "name": name, "value": "*"} for name in LIST_SETTINGS]
    rate = {"name": "follower.replication.throttled.rate", "value": "100"}
    told += [rate | {"subject_broker_id": broker} for broker in (1, 2, 3)]
    rows = [
        record | one | {"fact_id": f"quota-{k}", "source_line": k, "metadata_offset": offset + k}
        for k, one in enumerate(told)
    ]
    return pa.concat_tables([facts, pa.Table.from_pylist(rows, schema=facts.schema)])


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
