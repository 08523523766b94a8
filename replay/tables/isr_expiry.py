"""The expiry task of each leader as an actor: when it runs, and so when it must have asked for each shrink.

The task runs at a fixed rate from the broker's start on (ReplicaManager.startup, isr-expiration), so a shrink tells
when all other runs of that broker were, until it starts again. A member leaves at the first run at which it is out of
sync. As long as no shrink of the broker has told when its runs are, the two extremes bound it: a run right when the
member fell out of sync, and one a whole period later. A run that a standstill held up comes
as it ends, and tells nothing of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine import codes as c
from replay.engine.stamps import CLOCK_SLACK_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.arrays.records import Records
    from replay.engine.emit import CheckRow

RUN_LATE_US: Final = 250_000  # a run takes all partitions of the broker in turn, and its thread may have to wait


def next_run(since: int, run: int, period: int) -> int:
    """The first run at `since` or later, if the task ran at `run`, as it does every `period`."""
    return since + (run - since) % period


@dataclass
class IsrExpiry:
    """The runs of each broker's task, as its shrinks of one partition tell them."""

    runs: dict[int, int] = field(default_factory=dict)  # broker id -> when one of its runs was, since it started
    starts: list[tuple[int, int]] = field(default_factory=list)  # seq and broker of starts that were not looked at yet
    still: dict[int, int] = field(default_factory=dict)  # seq of a requested shrink -> how long its leader stood still

    def begin(self, requests: Iterable[dict[str, Any]], loads: Iterable[dict[str, Any]]) -> None:
        """Take a batch's requests for another ISR, and the logs that were loaded in it."""
        self.still = {event["seq"]: event["stood_still_us"] or 0 for event in requests}
        self.starts = [(event["seq"], event["broker_id"]) for event in loads]

    def forget(self, seq: int) -> None:
        """Forget the runs of brokers that started again before `seq`."""
        for _, broker in [one for one in self.starts if one[0] < seq]:
            self.runs.pop(broker, None)
        self.starts = [one for one in self.starts if one[0] >= seq]

    def run_of(self, broker: int, since: int, asked: int, timing: tuple[int, int]) -> int:
        """When the task must have run that asked for a shrink at `asked`, of a member out of sync since `since`.

        `timing`: the period, and how long the leader had stood still. Returns `asked` if it agrees with a run, else the
        run at which the rule has the member leave.
        """
        period, still = timing
        run = self.runs.get(broker)
        if run is None:
            first, last = since, since + period
        else:  # it may have fallen out of sync just as the task ran: then either run may have seen it
            first, last = (next_run(since + off, run, period) for off in (-CLOCK_SLACK_US, CLOCK_SLACK_US))
            first = last = first if abs(asked - first) <= abs(asked - last) else last
        if first - CLOCK_SLACK_US <= asked <= last + still + RUN_LATE_US:
            if not still:
                self.runs[broker] = asked
            return asked
        return last

    def told(self, rows: Records[CheckRow], brokers: Sequence[int], period: int) -> Records[CheckRow]:
        """Return the fold's checks, in which a shrink is compared with the run that must have asked for it."""
        out = rows.copy()
        mine = np.flatnonzero(rows["check"] == c.CHECK_EXPIRY)
        for k in mine.tolist():
            row = out[k]
            self.forget(int(row.seq))
            timing = (period, self.still.get(int(row.seq), 0))
            out["computed"][k] = self.run_of(brokers[row.broker], int(row.computed), int(row.stated), timing)
        self.forget(NEVER)
        return out
