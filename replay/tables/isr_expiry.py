"""The expiry task of each leader as an actor: when it runs, and so when it must have asked for each shrink.

The task runs at a fixed rate from the broker's start on (ReplicaManager.startup, isr-expiration), one for all its
partitions, so its start or any shrink tells when its other runs are (`replay.evidence.expiry_runs`). A member leaves at
the first run at which it is out of sync; if it fell out of sync just as the task ran, that may be this run or the next.
The line of the start may come half a second after the first run, and so all runs may be that much earlier than told.
Where no other run is known the two extremes bound it: a run right when the member fell out of sync, and one a whole
period later. A run that a standstill held up comes as it ends, when more may be out of sync than when it was due.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replay.engine import codes as c
from replay.engine.stamps import CLOCK_SLACK_US

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.arrays.records import Records
    from replay.engine.emit import CheckRow

RUN_LATE_US: Final = 250_000  # a run takes all partitions of the broker in turn, and its thread may have to wait
START_LATE_US: Final = 500_000  # how much earlier than its line the first run may be: a broker that starts may pause


class Timing(NamedTuple):
    """What decides when the task asked for a shrink, besides since when a member was out of sync."""

    still_us: int = 0  # how long its broker had stood still
    since_run_us: int | None = None  # how long before the request another of its runs was; None: none is known


class Expected(NamedTuple):
    """The runs at which a shrink can have been asked for: one of two, or any time between them."""

    first: int
    last: int
    is_any_between: bool
    early_us: int  # how much earlier than told they may be

    def agreed(self, asked: int, still_us: int) -> int:
        """Return `asked` if it agrees with a run, else the one next to it at which the rule has the member leave."""
        spans = [(self.first, self.last)] if self.is_any_between else [(run, run) for run in (self.first, self.last)]
        late = still_us + RUN_LATE_US
        if any(since - self.early_us - CLOCK_SLACK_US <= asked <= until + late for since, until in spans):
            return asked
        return min((until for _, until in spans), key=lambda run: abs(asked - run))


def next_run(since: int, run: int, period: int) -> int:
    """The first run at `since` or later, if the task ran at `run`, as it does every `period`."""
    return since + (run - since) % period


def expected_of(since: int, asked: int, timing: Timing, period: int) -> Expected:
    """The runs at which a member may have left that was out of sync since `since`, in a shrink requested at `asked`."""
    if timing.since_run_us is None:
        return Expected(since, since + period, is_any_between=True, early_us=0)
    run = asked - timing.since_run_us
    first, last = (next_run(since + off, run, period) for off in (-CLOCK_SLACK_US, START_LATE_US + CLOCK_SLACK_US))
    if timing.still_us:
        return Expected(since, last, is_any_between=True, early_us=0)
    return Expected(first, last, is_any_between=False, early_us=START_LATE_US)


@dataclass
class IsrExpiry:
    """The shrinks of one partition, and the runs of its leaders' tasks that must have asked for them."""

    timings: dict[int, Timing] = field(default_factory=dict)  # seq of a requested shrink -> what is known of its run
    expected: dict[int, tuple[int, int]] = field(default_factory=dict)  # its seq -> earliest and latest run

    def begin(self, requests: Iterable[dict[str, Any]]) -> None:
        """Take a batch's requests for another ISR; events of older tables do not tell of other runs."""
        self.timings = {
            event["seq"]: Timing(event["stood_still_us"] or 0, event.get("since_expiry_run_us")) for event in requests
        }
        self.expected = {}

    def told(self, rows: Records[CheckRow], period: int) -> Records[CheckRow]:
        """Return the fold's checks, in which a shrink is compared with the run that must have asked for it."""
        out = rows.copy()
        for k in np.flatnonzero(rows["check"] == c.CHECK_EXPIRY).tolist():
            seq, asked = int(out[k].seq), int(out[k].stated)
            timing = self.timings.get(seq, Timing())
            since = int(out[k].computed)
            expected = expected_of(since, asked, timing, period)
            out["computed"][k] = expected.agreed(asked, timing.still_us)
            self.expected[seq] = max(since, expected.first - expected.early_us), expected.last + timing.still_us
        return out

    def beside(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write the runs beside the rows of the ISR that are about requested shrinks."""
        for row in rows:
            if row["state"] == "pending_shrink" and row["seq"] in self.expected:
                row["earliest_expiry_ts"], row["latest_expiry_ts"] = self.expected[row["seq"]]
        return rows
