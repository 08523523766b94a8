"""A leader that stood still and woke: its last answers may have reached nobody.

A broker that was stopped for seconds (SIGSTOP, a long pause, a frozen host) goes on where it was, still believing to
lead, and answers what lies in its sockets. Clients had timed out and gone elsewhere. What tells: the broker wrote no
line at all for `STANDSTILL_US`, though lines were due; the request came before it or lay in a socket as it ended
(`AWAKE_US` after the first line at the latest), was not done before it, and nothing came on that connection later. An
acks=all request that was answered later than right after it had waited for followers: then the broker was no longer
alone, and the answer counts. One that waits for nobody may be late for many reasons, none of which brings its client
back. Lines are due where the broker had been answering requests until then: one that logs at INFO only, or is asked now
and then, is silent for hours and stands still at no time. A leader that is cut off from other brokers but not from its
clients never stands still. Where the broker's own log is not at hand, only the request log was silent, which a slow
client does too: then the answer may have arrived, or not. Nor does anybody know how long a broker had stood still as
its lines begin: of what had come before them, the same holds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from replay.engine.stamps import STAMP_LATE_US

STANDSTILL_US = 2_000_000
AWAKE_US = 20_000
PARTS = (
    4  # of a stretch as long as a standstill: a follower's fetch is answered in each, if only by running out of time
)
DUE_PARTS = (
    2  # a line was due where requests were answered in so many, of the stretch of the last line and the one before
)

Standstills = Mapping[int, Sequence[tuple[int, int]]]  # broker -> (last line before, first line after), microseconds


class Interval(NamedTuple):
    """When a request arrived, was taken up by a handler, was done, and was stamped, microseconds."""

    arrival: int
    taken: int
    completed: int
    stamp: int


def between(standstills: Sequence[tuple[int, int]], since: int, until: int) -> Sequence[tuple[int, int]]:
    """Those, of disjoint and rising ones, that had not ended before `since` and had begun by `until`."""
    first = bisect_left(standstills, since, key=lambda one: one[1])
    return standstills[first : bisect_right(standstills, until, lo=first, key=lambda one: one[0])]


def is_unconfirmed(
    request: Interval, connection_last: int, standstills: Sequence[tuple[int, int]], *, waits: bool
) -> bool:
    """Whether a request was held up by a standstill of its broker, and its connection ended with the answer.

    `connection_last`: last stamp on its connection. `waits`: for followers (acks=all). Where stamps are whole seconds,
    `taken` and `completed` are the earliest, and a standstill ends as late as its first line may have been written.
    """
    return any(
        connection_last <= max(request.stamp, after + AWAKE_US)
        and (
            before <= request.arrival
            and request.taken <= after + AWAKE_US
            and request.completed <= after + AWAKE_US + STAMP_LATE_US
            if waits
            else request.arrival <= after + AWAKE_US and before < request.completed
        )
        for before, after in standstills
    )
