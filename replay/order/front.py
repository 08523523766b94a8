"""What the merge orders: the operations of a tenure, chain by chain, how far it has come, and what it takes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.arrays.bundle import bundle
from replay.arrays.records import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records


class OperationRecord:
    """One operation as the merge sees it."""

    type: int  # OP_*
    chain: int
    lo: int  # earliest time at which it can have happened
    est: int  # best estimate
    hi: int  # latest
    first: int  # its events are the records [first, first + count)
    count: int
    offset: int  # the LEO that it needs: the fetch offset, or the end offset of an append
    seen: int  # LEO that the read saw; -1: unknown
    hw: int  # HW that the read saw, or that an acknowledgement needs; -1: unknown
    exact: int  # 1: the leader's LEO was exactly `seen` (reads) or `offset` (parked fetches), not more
    updates: int  # FETCH: so many of its events, the first ones, are its update; the read comes behind them
    handled: int  # FETCH: when its handler was done with it


OP_APPEND, OP_UPDATE, OP_FETCH, OP_READ, OP_ACK, OP_CONTROL, OP_WITNESS, OP_REFUSED, OP_NOTED = range(9)
# UPDATE: a fetch that is parked in purgatory. READ: its answer from there, or a consumer's read. FETCH: both at once,
# the read before the update. What another thread did in between shows in what others read: then the two halves of a
# FETCH have a place each. If the first read was empty, the handler parks the fetch itself, tries to complete it at
# once, and then reads again, so the half that comes first may be the update (`parks`).
# WITNESS: a log line of the broker that says its HW is now `hw`. REFUSED: a produce, or a request to delete records,
# that it did not take. NOTED: a line that moves nothing; it stands where its time says.


class PieceRecord:
    """What the merge takes at once: an operation, or a part of a fetch."""

    chain: int
    hi: int  # the latest time at which it can have happened
    first: int  # its events are the records [first, first + count)
    count: int
    turned: int  # so many of the first ones come behind the next one: a fetch's update behind its read
    whole: int  # 1: with it nothing of the operation is left


class Front(NamedTuple):
    """The operations of a tenure, sorted by chain, and how far the merge has come."""

    ops: Records[OperationRecord]
    head: Records[OperationRecord]  # of each chain the next operation, or what is left of it
    place: Ints  # of each chain: where that is in `ops`; NONE: nothing is left
    end: Ints  # of each chain


bundle(Front, {"ops": OperationRecord, "head": OperationRecord, "place": 1, "end": 1})


def front_of(chains: Sequence[Records[OperationRecord]]) -> Front:
    """Return the front before the first operation of each of these chains, none of which is empty."""
    ops = together(chains)
    end = np.cumsum([len(chain) for chain in chains])
    place = np.concatenate([np.zeros(1, np.int64), end[:-1]])
    return Front(ops, ops[place], place, end)
