"""A leader that stood still and woke: its last answers may have reached nobody.

A broker that was stopped for seconds (SIGSTOP, a long pause, a frozen host) goes on where it was, still believing to
lead, and answers what lies in its sockets. Clients had timed out and gone elsewhere. What tells: the broker wrote no
line at all for `STANDSTILL_US`, a handler took the request up within `AWAKE_US` of the first line after it, and nothing
came on that connection later. A leader that is cut off from other brokers but not from its clients never stands still.
Where the broker's own log is not at hand, only the request log was silent, which a slow client does too: then the
answer may have arrived, or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from replay.windows import STAMP_LATE_US

STANDSTILL_US = 2_000_000
AWAKE_US = 20_000

Standstills = Mapping[int, Sequence[tuple[int, int]]]  # broker -> (last line before, first line after), microseconds


class Interval(NamedTuple):
    """When a request arrived, was taken up by a handler, was done, and was stamped, microseconds."""

    arrival: int
    taken: int
    completed: int
    stamp: int


def is_unconfirmed(request: Interval, connection_last: int, standstills: Sequence[tuple[int, int]]) -> bool:
    """Whether a request came and was handled right after a standstill of its broker, and its connection ended there.

    `connection_last`: last stamp on its connection. Answered later than right after, it had waited for followers: then
    the broker was no longer alone. Where stamps are whole seconds, `taken` and `completed` are the earliest, and a
    standstill ends as late as its first line may have been written.
    """
    return any(
        before <= request.arrival
        and request.taken <= after + AWAKE_US
        and request.completed <= after + AWAKE_US + STAMP_LATE_US
        and connection_last <= max(request.stamp, after + AWAKE_US)
        for before, after in standstills
    )
