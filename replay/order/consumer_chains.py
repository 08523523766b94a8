"""What consumers did in one tenure, in their own order: reads, from the leader or a follower, and epoch requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replay.engine.codes import CONSUMER
from replay.evidence.fetch_index import by_connection
from replay.evidence.racks import racks_of
from replay.evidence.request_times import Window, done_window, local_window, phases, phases_at
from replay.evidence.rows import places_of
from replay.order.fetch_chains import ASKED, Fetches
from replay.order.front import OP_READ
from replay.order.operation_blocks import Block, chosen, operations_of
from replay.order.operations import Draft, Operation
from schemas.model import INT_LIST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.arrays.ints import Flags
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.racks import Racks
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure
    from replay.order.stored import Stored


def consumer_chains(facts: PartitionFacts, tenure: Tenure, stored: Stored) -> Iterator[Iterable[Operation | Block]]:
    """Consumers' reads, a chain per connection. They change nothing but show the HW. `stored`: what the log holds."""
    racks: Racks | None = None  # read once a consumer names its own
    for rows in by_connection(facts.consumer_fetches.get(tenure.epoch, ())):
        racks = racks or (racks_of(facts.cluster) if any(row["rack"] for row in rows) else None)
        yield consumer_reads(tenure, stored, rows, racks)
    questions = sorted(facts.consumer_questions.get(tenure.epoch, ()), key=lambda r: (phases(r).taken, r["fact_id"]))
    yield (consumer_question(tenure, row) for row in questions)


def consumer_reads(tenure: Tenure, stored: Stored, rows: list[Row], racks: Racks | None) -> Iterator[Block]:
    """The fetches of one connection in order; a read reached at most to where the next fetch begins."""
    count = len(rows)
    columns, places = rows[0].columns, places_of(rows)
    offset = columns.numbers("fetch_offset", places)
    known = np.arange(count) < count - 1
    every = Fetches(np.arange(count), columns, places, np.append(offset[1:], -1), known, known)
    runs = every.numbers("run_count") > 0
    if np.any(runs):
        yield runs_of_reads(tenure, every.only(runs))
    if not np.all(runs):
        yield answered_reads(tenure, stored, every.only(~runs), racks)


def consumer_question(tenure: Tenure, row: Row) -> Operation:
    """A consumer asks where the epoch of its position ends (KIP-320); an end before the position means truncation."""
    window = local_window(phases(row))
    fields = {
        "broker_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "replica_id": CONSUMER,
        "client_id": row["client_id"],
        "last_fetched_epoch": row["last_fetched_epoch"],
        "diverging_epoch": row["leader_epoch"],
        "diverging_end_offset": row["offset"],
        "error_code": row["error_code"],
        "evidence": "observed",
    }
    return Operation(OP_READ, window, [Draft("epoch_end_offset", row, window, fields)])


def runs_of_reads(tenure: Tenure, runs: Fetches) -> Block:
    """Runs of unlisted fetches."""
    return reads(tenure, runs, *runs.as_runs())


def answered_reads(tenure: Tenure, stored: Stored, fetches: Fetches, racks: Racks | None) -> Block:
    """Answered fetches: each returned what its bytes show, and no more than up to the consumer's next fetch."""
    at = phases_at(fetches.columns, fetches.rows)
    delayed = fetches.numbers("remote_us") != 0
    handed, after = fetches.numbers("bytes"), fetches.after
    told = (fetches.numbers("error_code") == 0) & fetches.columns.known("hw", fetches.rows)
    hw = fetches.numbers("hw")
    offset = fetches.numbers("fetch_offset")
    moved = fetches.known & (handed != 0) & (after > offset)
    asked = zip(offset[moved].tolist(), handed[moved].tolist(), after[moved].tolist(), strict=True)
    after[moved] = [stored.handed_until(*one) for one in asked]
    read = {
        "next_offset": pa.array(after, mask=~moved),
        "next_offset_evidence": chosen(moved, "derived", "derived", ~moved),
        "bytes": handed,
        "delayed": delayed,
        "response_hw": pa.array(hw, mask=~told),
        "evidence": "observed",
    }
    if racks is not None:
        replicas = {replica for decision in tenure.decisions for replica in decision.replicas}
        wanted = fetches.columns.chosen("rack", fetches.rows).to_pylist()
        wanted = [rack if answered else None for rack, answered in zip(wanted, told, strict=True)]
        read["replicas"] = pa.array(racks.among(tenure.leader, replicas, wanted), INT_LIST)
    block = reads(tenure, fetches, done_window(delayed, at), read)
    block.records["hw"] = np.where(told & ~by_follower(tenure, fetches), hw, -1)
    return block


def by_follower(tenure: Tenure, fetches: Fetches) -> Flags:
    """Which fetches a broker other than the leader answered (KIP-392)."""
    found: Flags = fetches.numbers("broker_id") != tenure.leader
    return found


def reads(tenure: Tenure, fetches: Fetches, window: Window, told: dict[str, Any]) -> Block:
    """A block of reads or of runs of reads, with the fields that both have."""
    count = len(fetches.place)
    leader = pa.array(np.full(count, tenure.leader), mask=~by_follower(tenure, fetches))
    fields = {
        "broker_id": fetches.repeated("broker_id", "broker_id"),
        "leader_id": leader,
        "leader_epoch": tenure.epoch,
        "replica_id": CONSUMER,
        "fetch_offset": fetches.repeated("fetch_offset", "fetch_offset"),
        **told,
    }
    numbers = np.arange(count)
    return Block(
        fetches.place,
        operations_of(window, type=OP_READ, first=numbers, count=1),
        [fetches.drafts("consumer_read", window, fields, ASKED, numbers)],
    )
