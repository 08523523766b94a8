"""What brokers' lines say of segments, as events. They move no offset of the protocol, so they order nothing else."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from replay.evidence.future_logs import by_tenure
from replay.evidence.request_times import line_window
from replay.evidence.segments import LOCAL_START, segment_changes
from replay.evidence.tenures import micros
from replay.order.front import OP_NOTED
from replay.order.operations import Draft, Operation

if TYPE_CHECKING:
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.segments import SegmentChange
    from replay.evidence.tenures import Tenure


def segments_by_tenure(facts: PartitionFacts) -> dict[int, list[SegmentChange]]:
    """Return what lines say of segments, by the newest leader epoch that had begun when they were written."""
    changes = segment_changes(facts.of_kinds("log_change", "segment_change"))
    epochs = {
        id(row): epoch for epoch, rows in by_tenure([c.row for c in changes], facts.tenures).items() for row in rows
    }
    out: dict[int, list[SegmentChange]] = defaultdict(list)
    for change in changes if epochs else ():
        out[epochs[id(change.row)]].append(change)
    return out


def segment_chains(tenure: Tenure, changes: list[SegmentChange]) -> list[list[Operation]]:
    """Return each broker's lines in order, as operations."""
    chains: dict[int, list[Operation]] = defaultdict(list)
    for change in changes:
        row = change.row
        window = line_window(micros(row["ts"]))
        fields = {
            "broker_id": row["broker_id"],
            "leader_epoch": tenure.epoch,
            "cause": change.what,
            "state": change.reason,
            "base_offset": change.base,
            "next_offset": change.end,
            "log_start_offset": row["offset"] if row["name"] == LOCAL_START else None,
            "bytes": change.stated.size,
            "segment_bytes": change.stated.limit,
            "evidence": "observed",
        }
        drafts = [Draft("segment_change", row, window, fields)]
        chains[row["broker_id"]].append(Operation(OP_NOTED, window, drafts))
    return [chains[broker] for broker in sorted(chains)]
