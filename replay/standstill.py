"""A leader that stood still and woke: its last answers may have reached nobody.

A broker that was stopped for seconds (SIGSTOP, a long pause, a frozen host) goes on where it was, still believing to
lead, and answers what lies in its sockets. Clients had timed out and gone elsewhere. What tells: the broker wrote no
line at all for `STANDSTILL_US`, a handler took the request up within `AWAKE_US` of the first line after it, and nothing
came on that connection later. A leader that is cut off from other brokers but not from its clients never stands still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

STANDSTILL_US = 2_000_000
AWAKE_US = 20_000

Standstills = Mapping[int, Sequence[tuple[int, int]]]  # broker -> (last line before, first line after), microseconds


def is_unconfirmed(request: tuple[int, int, int], connection_last: int, standstills: Sequence[tuple[int, int]]) -> bool:
    """Whether a request came and was taken up right after a standstill of its broker, and its connection ended there.

    `request`: when it arrived, was taken up at the earliest, and was stamped; `connection_last`: last stamp on its
    connection. Where stamps are whole seconds, a standstill ends as late as its first line may have been written.
    """
    arrival, taken, stamp = request
    return any(
        before <= arrival and taken <= after + AWAKE_US and connection_last <= max(stamp, after + AWAKE_US)
        for before, after in standstills
    )
