"""What leaders' answers show of their logs: under which epoch the records below an offset were written.

From 2.7 on a leader compares the epoch of a follower's last record with its own log before it answers (KIP-595). If it
accepts a fetch at offset X after a record of epoch e, its log holds epoch e up to X; if it answers with a diverging
epoch, it shows where that epoch ends in its log. Records shown in this way to be in a later leader's log were not lost,
whatever the remaining lines suggest about the leaders in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from replay.engine.codes import FETCH_UPDATE
from replay.losses.slots import Slots
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from replay.engine.events import Events
    from replay.losses.findings import Finding


@dataclass(slots=True)
class ShownEpochs:
    """How far leaders' logs certainly held each leader epoch."""

    ends: dict[int, dict[int, int]] = field(default_factory=dict)  # epoch in a log -> leader's epoch -> end offset

    def take(self, events: Events) -> None:
        """Take in followers' fetches."""
        fetches = events.kinds == FETCH_UPDATE
        if not fetches.any():
            return
        leads, last, offset, diverging, end = (
            events.numbers(name, NONE)[fetches]
            for name in (
                "leader_epoch",
                "last_fetched_epoch",
                "fetch_offset",
                "diverging_epoch",
                "diverging_end_offset",
            )
        )
        diverged = diverging != NONE
        epoch, reached = np.where(diverged, diverging, last), np.where(diverged, end, offset)
        known = (
            (events.numbers("error_code")[fetches] == 0) & (leads >= 0) & (epoch >= 0) & (epoch < leads) & (reached > 0)
        )
        if not known.any():
            return
        told = np.stack([leads[known], epoch[known], reached[known]], axis=1)
        told = told[np.lexsort(told.T[::-1])]
        last_of_each = np.append(np.any(np.diff(told[:, :2], axis=0) != 0, axis=1), True)
        for leader_epoch, one, until in told[last_of_each].tolist():
            ends = self.ends.setdefault(one, {})
            ends[leader_epoch] = max(until, ends.get(leader_epoch, 0))

    def give_back(self, found: Finding) -> None:
        """Take out of a loss what the new leader, or a later one, is shown to have."""
        since = found.decision["leader_epoch"]
        if since is not None:
            epochs = {slots.epoch for slots in found.lost}
            told = ((epoch, leads, end) for epoch in epochs for leads, end in self.ends.get(epoch, {}).items())
            found.give_back([Slots(epoch, 0, end) for epoch, leads, end in told if leads >= since])
