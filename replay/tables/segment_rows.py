"""Rows of `segment_timeline`: what became of segments, and what the log was then that they are of.

The leader epochs of a remote segment, and the checkpoint of epochs that goes into the tier with it, are those of the
copying broker's log up to the segment's end (RemoteLogManager.RLMCopyTask.copyLogSegment). They are known if the log is
known that far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replay.protocol.high_watermark import may_rise_in_position
from replay.protocol.state import BOUNDED, ROLE_LEADER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.engine.events import Event
    from replay.protocol.state import State


def segment_row(event: Event, s: State, brokers: Sequence[int]) -> dict[str, Any]:
    """Return the row of an event `segment_change`; `s`: the state as it was then."""
    b = brokers.index(event["broker_id"])
    what, base, end = event["cause"], event["base_offset"], event["next_offset"]
    row = {
        **{name: event[name] for name in ("seq", "ts", "broker_id", "leader_epoch", "base_offset", "evidence")},
        "what": what,
        "next_offset": end,
        "reason": event["state"],
        "local_log_start_offset": event["log_start_offset"],
    }
    if what == "rolled":
        row |= {"logged_bytes": event["bytes"], "logged_limit": event.get("segment_bytes")}
        if base is None:
            return row
    if what == "rolled" and s.role[b] == ROLE_LEADER and s.leo_evidence[b] < BOUNDED and s.hw_evidence[b] < BOUNDED:
        row["hw_position_may_rise"] = bool(may_rise_in_position(s, b, base))
    elif what == "copied" and end is not None and s.leo_evidence[b] < BOUNDED and s.leo[b] >= end:
        row |= epochs_of(s, b, base, end)
    return row


def epochs_of(s: State, b: int, base: int, end: int) -> dict[str, Any]:
    """Return the leader epochs of the records [base, end) in b's log, and its checkpoint up to there."""
    count = int(s.cache_len[b])
    entries = [(int(s.cache_epoch[b, k]), int(s.cache_start[b, k])) for k in range(count)]
    entries = [(epoch, start) for epoch, start in entries if start < end]
    if not entries or entries[0][1] > base:
        return {}  # the log is not known from there on
    later = [start for _, start in entries[1:]] + [end]
    held = [epoch for (epoch, _), until in zip(entries, later, strict=True) if until > base]
    return {
        "leader_epochs": held,
        "epoch_checkpoint": " ".join(f"{epoch}:{start}" for epoch, start in entries),
    }
