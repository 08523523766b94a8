"""Leaders that stood still and resumed: their last answers may have reached nobody.

A broker that stands still for seconds (SIGSTOP, a long pause, a frozen host) resumes where it was, still believes that
it leads, and answers what lies in its sockets. By then its clients have timed out and gone elsewhere. It shows as
follows: the broker wrote no line at all for `STANDSTILL_US` although lines were due; the request arrived before the
standstill, or lay in a socket when it ended (taken up at most `AWAKE_US` after the first line), and was not done before
it; and nothing came on that connection later.

An acks=all request that was answered later than right after its wait for followers counts as answered: by then the
broker was no longer alone. A request that waits for nobody may be late for many reasons, none of which brings its
client back. Lines are due if the broker was answering requests until then: one that logs at INFO only, or is asked
rarely, may be silent for hours without standing still. A leader that is cut off from other brokers but not from its
clients never stands still.

If the broker's own log is not available, only its request log was silent, which a slow client causes too; then the
answer may or may not have arrived. The same holds for what came before a broker's first line, as nobody knows how long
it had stood still by then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from replay.engine.stamps import STAMP_LATE_US

STANDSTILL_US = 2_000_000
AWAKE_US = 20_000
# A stretch of STANDSTILL_US has so many parts; a follower's fetch is answered in each, if only because it times out.
PARTS = 4
# A line is due if requests were answered in so many parts of the stretch of the last line and the stretch before it.
DUE_PARTS = 2

Standstills = Mapping[int, Sequence[tuple[int, int]]]  # broker -> (last line before, first line after), microseconds


class Interval(NamedTuple):
    """When a request arrived, was taken up by a handler, was completed, and was stamped; microseconds."""

    arrival: int
    taken: int
    completed: int
    stamp: int


def between(standstills: Sequence[tuple[int, int]], since: int, until: int) -> Sequence[tuple[int, int]]:
    """Standstills that end at `since` or later and begin at `until` or earlier; the input is disjoint and rising."""
    first = bisect_left(standstills, since, key=lambda one: one[1])
    return standstills[first : bisect_right(standstills, until, lo=first, key=lambda one: one[0])]


def is_unconfirmed(
    request: Interval, connection_last: int, standstills: Sequence[tuple[int, int]], *, waits: bool
) -> bool:
    """Whether a standstill of the broker held up a request whose answer was the last thing on its connection.

    `connection_last`: last stamp on its connection. `waits`: whether it waits for followers (acks=all). If stamps are
    whole seconds, `taken` and `completed` are the earliest possible times, and a standstill ends at the latest time at
    which its first line may have been written.
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
