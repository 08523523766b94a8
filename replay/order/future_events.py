"""What brokers report of future logs, as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.evidence.future_logs import FUTURE_LOG, STEPS
from replay.evidence.request_times import line_window
from replay.evidence.tenures import micros
from replay.order.front import OP_CONTROL
from replay.order.operations import Draft, Operation

if TYPE_CHECKING:
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.tenures import Tenure


def future_chain(facts: PartitionFacts, tenure: Tenure) -> list[Operation]:
    """Events for a tenure's lines about future logs; they affect the partition only through the low watermark."""
    out = []
    for row in facts.future_lines.get(tenure.epoch, ()):
        window = line_window(micros(row["ts"]))
        fields = {
            "broker_id": row["broker_id"],
            "leader_epoch": tenure.epoch,
            "cause": FUTURE_LOG,
            "state": STEPS[row["name"]],
            "log_start_offset": row["log_start_offset"],
            "evidence": "observed",
        }
        out.append(Operation(OP_CONTROL, window, [Draft("observation", row, window, fields)]))
    return sorted(out, key=lambda op: op.window.est)
