"""Facts of a made recording, whose producer writes in transactions: their markers stand among the batches."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from replay.evidence.batch_ends import MARKER_BYTES

if TYPE_CHECKING:
    from random import Random

RECORD_BYTES = 100  # of the made recording
OFFSETS = ("base_offset", "fetch_offset", "hw", "last_stable_offset", "offset")
Row = dict[str, Any]


def with_transactions(facts: pa.Table, chosen: Random, producers: int = 3, length: int = 6) -> pa.Table:
    """Return the facts with transactions of some producers, each of `length` batches on average, and their markers.

    A marker follows upon a batch at once, so whoever fetches that has it as well. None stands among batches that only
    a leader had that died: their offsets are those of others later.
    """
    rows = facts.to_pylist()
    more: list[Row] = []
    for number in sorted({row["partition"] for row in rows if row["kind"] == "produce"}):
        mine = [row for row in rows if row["partition"] == number]
        more += of_partition(mine, chosen, producers, length)
    for kind in ("added", "markers"):
        counts: dict[str, int] = defaultdict(int)
        for row in sorted((row for row in more if row["client_id"] == kind), key=lambda row: row["ts"]):
            row["correlation_id"] = counts[row["connection"]]
            counts[row["connection"]] += 1
    return pa.Table.from_pylist([*rows, *more], schema=facts.schema)


def of_partition(rows: list[Row], chosen: Random, producers: int, length: int) -> list[Row]:
    """Let a partition's batches be of transactions, and move its offsets; return what is said of the transactions."""
    produces = [row for row in rows if row["kind"] == "produce" and row["base_offset"] is not None]
    batches = sorted((row for row in produces if row["acks"] == -1), key=lambda row: row["base_offset"])
    lost = [row for row in produces if row["acks"] != -1]
    never = [(row["base_offset"], row["base_offset"] + row["bytes"] // RECORD_BYTES) for row in lost]
    are_open: set[int] = set()  # producers
    marked: list[int] = []  # before which offsets, of before, the markers stand
    more: list[Row] = []
    for row in batches:
        producer = chosen.randrange(producers)
        row["transactional_id"] = f"tx-{producer}"
        if producer not in are_open:
            are_open.add(producer)
            more.append(said(row, "added", producer, -2_000, broker_id=row["broker_id"]))
        end = row["base_offset"] + row["bytes"] // RECORD_BYTES
        whose = chosen.choice(sorted(are_open))
        if chosen.random() * length < producers and not any(first <= end <= last for first, last in never):
            are_open.remove(whose)
            marked.append(end)
            name = "marker_abort" if chosen.random() < 0.2 else "marker_commit"
            more.append(said(row, name, whose, chosen.randrange(100, 2_000)))
    named: dict[str, int] = {}  # a session's requests name a partition only if its offset has changed
    for row in sorted((row for row in rows if row["kind"] == "fetch"), key=lambda row: row["correlation_id"]):
        if row["fetch_offset"] is not None:
            named[row["connection"]] = row["fetch_offset"]
        if row["bytes"]:
            first = named[row["connection"]]
            last = first + row["bytes"] // RECORD_BYTES
            row["bytes"] += MARKER_BYTES * (bisect_right(marked, last) - bisect_right(marked, first))
    for row in rows:
        for name in OFFSETS:
            if row[name] is not None and row[name] > 0:
                row[name] += bisect_right(marked, row[name])
    return more


def said(batch: Row, name: str, producer: int, after_us: int, **fields: Any) -> Row:
    """A request about a producer's transaction, which reached its broker so long after a batch, or before it."""
    kind = "added" if name == "added" else "markers"
    arrived = batch["ts"] - timedelta(microseconds=batch["total_us"] - after_us)
    total = 1_500 if name == "added" else 6_000
    whole = dict.fromkeys(batch) | {
        field: batch[field]
        for field in ("recording_id", "broker_id", "source_file", "topic", "topic_id", "partition", "ts_error_us")
    }
    return whole | {
        "kind": "transaction", "name": name, "producer_id": 100 + producer, "producer_epoch": 0, "error_code": 0,
        "transactional_id": f"tx-{producer}" if name == "added" else None, "client_id": kind,
        "fact_id": f"{batch['fact_id']}-{name}", "source_line": batch["source_line"],
        "connection": f"10.0.0.{batch['broker_id']}:9092-10.0.3.1:{50000 + len(kind)}-0-{batch['broker_id']}",
        "ts": arrived + timedelta(microseconds=total), "total_us": total, "queue_us": 50, "local_us": 300,
        "remote_us": total - 500, "throttle_us": 0, "response_queue_us": 50, "send_us": 50,
    } | fields  # fmt: skip
