"""What consumers did in one tenure, in their own order: reads, of the leader or a follower, and questions."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from replay.drafts import Draft, Operation
from replay.encoding import CONSUMER
from replay.fetch_chains import ASKED, run_fields, run_window
from replay.merge import OP_READ
from replay.windows import completion_window, local_window, phases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.partition_facts import PartitionFacts
    from replay.rows import Row
    from replay.spine import Tenure


def consumer_chains(facts: PartitionFacts, tenure: Tenure) -> Iterator[Iterator[Operation]]:
    """Consumers' reads, a chain per connection. They change nothing, and show the HW."""
    chains: dict[str, list[Row]] = defaultdict(list)
    for row in facts.consumer_fetches.get(tenure.epoch, ()):
        chains[row["connection"] or ""].append(row)
    for connection in sorted(chains):
        rows = sorted(chains[connection], key=lambda r: r["correlation_id"] or 0)
        following = [r["fetch_offset"] for r in rows[1:]] + [None]
        yield (consumer_read(tenure, row, after) for row, after in zip(rows, following, strict=True))
    questions = sorted(facts.consumer_questions.get(tenure.epoch, ()), key=lambda r: (phases(r).taken, r["fact_id"]))
    yield (consumer_question(tenure, row) for row in questions)


def consumer_question(tenure: Tenure, row: Row) -> Operation:
    """A consumer asks where the epoch of its position ends (KIP-320): if before the position, that was cut away."""
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


def consumer_read(tenure: Tenure, row: Row, after: int | None) -> Operation:
    """One consumer fetch, or a run of unlisted ones; `after` is where the connection fetched next."""
    at = phases(row)
    by_follower = row["broker_id"] != tenure.leader  # KIP-392
    fields = {
        "broker_id": row["broker_id"],
        "leader_id": tenure.leader if by_follower else None,
        "leader_epoch": tenure.epoch,
        "replica_id": CONSUMER,
        "fetch_offset": row["fetch_offset"],
    }
    if row["run_count"] is not None:
        window = run_window(row, at)
        return Operation(OP_READ, window, [Draft("consumer_read", row, window, {**fields, **run_fields(row)}, ASKED)])
    delayed = bool(row["remote_us"])
    window = completion_window(at) if delayed else local_window(at)
    handed = row["bytes"] or 0
    hw = None if row["error_code"] else row["hw"]
    end = after if after is not None and handed and after > row["fetch_offset"] else None
    read = {
        "next_offset": end,
        "next_offset_evidence": None if end is None else "derived",
        "bytes": handed,
        "delayed": delayed,
        "response_hw": hw,
        "evidence": "observed",
    }
    draft = Draft("consumer_read", row, window, {**fields, **read}, ASKED)
    return Operation(OP_READ, window, [draft], hw=-1 if hw is None or by_follower else hw)
