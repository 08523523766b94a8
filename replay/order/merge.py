"""Put the operations of one tenure in order by merging its chains.

A tenure is a leader epoch with its leader. Its operations come in chains, each in its true order: appends by base
offset; each follower's fetches; each consumer connection's reads; acknowledgements; the controller's decisions. Two
operations of different chains whose intervals do not overlap are ordered by these intervals. The others are ordered by
evidence: a read shows the LEO (its next fetch offset) and the HW that it saw, and the HW never falls within a tenure.
The merge applies the engine's own rules (`apply`) as it goes, so it knows the LEO and HW at each point, and among the
operations that may come next it takes the one that fits them. Where there is no evidence, the earliest estimate wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.arrays.jit import compiled
from replay.engine.apply import apply
from replay.engine.codes import DELETE_RECORDS
from replay.protocol.deletion import deletion_guard
from replay.protocol.high_watermark import hw_candidate
from replay.protocol.produce import NOT_ENOUGH_REPLICAS, may_be_unverified, produce_guard
from replay.protocol.state import UNSET
from replay.protocol.steps import answered_hw, leader_update_follower_leo

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.engine.moves import Moves
    from replay.protocol.profile import Profile
    from replay.protocol.state import State


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


OP_APPEND, OP_UPDATE, OP_FETCH, OP_READ, OP_ACK, OP_CONTROL, OP_WITNESS, OP_REFUSED, OP_NOTED = range(9)
# UPDATE: a fetch that is parked in purgatory. READ: its answer from there, or a consumer's read. FETCH: both at once.
# WITNESS: a log line of the broker that says its HW is now `hw`. REFUSED: a produce, or a request to delete records,
# that it did not take. NOTED: a line that moves nothing; it stands where its time says.

(
    RANK_FITS,
    RANK_DUE,
    RANK_SAFE,
    RANK_READ_AGAIN,  # read after its own update: completed by the HW it raised (2.4, 2.5), or always so (1.0, 1.1)
    RANK_APPEND,
    RANK_NEEDED,
    RANK_STRANDS,
    RANK_AFTER_OWN,  # as RANK_READ_AGAIN, but only a race explains it
    RANK_LATE,
) = range(9)


@compiled
def hw_after_update(s: State, p: Profile, b: int, r: int, offset: int, now: int) -> int:
    """Return the HW that leader b would have after follower r fetched at `offset` now; the state is left as it was."""
    known = s.remote[:, b, r].copy()
    leader_update_follower_leo(s, p, b, r, offset, now)
    candidate = max(hw_candidate(s, p, b, now), s.hw[b])
    s.remote[:, b, r] = known
    return candidate


@compiled
def leo_fits(op: OperationRecord, leo: int) -> bool:
    """Whether the leader's LEO agrees with what the operation saw."""
    if op.type == OP_UPDATE:
        return leo == op.offset if op.exact else leo >= op.offset
    if op.type == OP_READ and op.seen == op.offset and leo > op.seen:
        return True  # nothing was read although there is more: a quota. The LEO never falls, so only the HW tells
    if op.seen < 0:
        return leo >= op.offset
    return leo == op.seen if op.exact else leo >= op.seen


@compiled
def strands_another(ops: Records[OperationRecord], heads: Ints, c: int, deadline: int, hw: tuple[int, int]) -> bool:
    """Whether raising the HW from `hw[0]` to `hw[1]` with the head of chain c leaves another chain's head impossible.

    That is so if a read saw an HW that would be passed. It is also so if a log line of the broker names another value:
    the lines name every value that the HW took, in order, so the next raise must go to the next line's value, whatever
    the timestamps say.
    """
    for d in range(len(heads)):
        if d == c or heads[d] < 0:
            continue
        other = ops[heads[d]]
        if other.type == OP_WITNESS:
            if other.hw > hw[0] and other.hw != hw[1]:
                return True
        elif other.type in (OP_FETCH, OP_READ) and other.lo <= deadline and hw[0] <= other.hw < hw[1]:
            return True
    return False


@compiled
def is_refused_now(s: State, p: Profile, e: EventRecord) -> bool:
    """Whether the state lets a request be refused as it was.

    Of a produce, only an ISR below the minimum is a matter of order; of DeleteRecords, whatever the leader asks.
    """
    if e.kind == DELETE_RECORDS:
        return deletion_guard(s, p, e.broker, e.requested_offset, e.cause) in (e.error_code, UNSET)
    if e.error_code != NOT_ENOUGH_REPLICAS or may_be_unverified(p, e.acks, e.error_code):
        return True
    return produce_guard(s, p, e.broker, e.acks) in (NOT_ENOUGH_REPLICAS, UNSET)


@compiled
def rank_of(  # noqa: PLR0913, PLR0917 - compiled
    s: State,
    p: Profile,
    events: Records[EventRecord],
    ops: Records[OperationRecord],
    heads: Ints,
    c: int,
    deadline: int,
) -> int:
    """Return how well the head of chain c fits as the next operation (RANK_*); smaller is better."""
    op = ops[heads[c]]
    kind = op.type
    e = events[op.first]
    b = e.broker
    if kind == OP_CONTROL:
        if op.offset > 0 and s.leo[b] < op.offset:
            return RANK_LATE  # its log line states a LEO that is not reached yet
        for d in range(len(heads)):
            if d != c and heads[d] >= 0 and ops[heads[d]].est < op.est and ops[heads[d]].lo <= deadline:
                return RANK_NEEDED
        return RANK_DUE
    leo, hw = s.leo[b], s.hw[b]
    if kind == OP_ACK:
        return RANK_FITS if hw >= op.hw else RANK_LATE
    if kind == OP_WITNESS:
        return RANK_FITS if hw == op.hw else RANK_LATE
    if kind == OP_NOTED:
        return RANK_FITS
    if kind == OP_REFUSED:
        return RANK_FITS if is_refused_now(s, p, e) else RANK_LATE
    if kind == OP_APPEND:
        for d in range(len(heads)):
            if d != c and heads[d] >= 0:
                other = ops[heads[d]]
                if other.lo <= deadline and other.exact and leo_fits(other, leo):
                    return RANK_STRANDS
                if other.type == OP_CONTROL and other.hi < op.est:
                    return RANK_STRANDS  # the broker's own log line dates it earlier
        return RANK_APPEND
    if kind == OP_READ:
        return RANK_FITS if leo_fits(op, leo) and (op.hw < 0 or hw == op.hw) else RANK_LATE
    passed = kind == OP_UPDATE and op.exact and leo > op.offset
    if leo < op.offset or not (passed or leo_fits(op, leo)):
        return RANK_LATE
    hw_next = hw_after_update(s, p, b, e.replica, op.offset, op.est)
    told = answered_hw(p, hw, hw_next)
    if kind == OP_FETCH and op.hw >= 0 and (op.hw != told or told != hw):
        if op.hw != hw_next:
            return RANK_LATE
        strands = strands_another(ops, heads, c, deadline, (hw, hw_next))
        is_the_rule = p.hw_told_at_once or op.hw == told
        return RANK_READ_AGAIN if is_the_rule and not strands else RANK_AFTER_OWN
    if hw_next > hw and strands_another(ops, heads, c, deadline, (hw, hw_next)):
        return RANK_STRANDS
    # A fetch that is parked although there is more (a quota) fits nowhere better later, so its time decides.
    return RANK_SAFE if op.exact and not passed else RANK_APPEND


@compiled
def append_needed(s: State, events: Records[EventRecord], ops: Records[OperationRecord], heads: Ints, c: int) -> int:
    """Return the chain of appends if the head of chain c needs a higher LEO than the leader has, else c.

    Causality takes precedence over every timestamp.
    """
    op = ops[heads[c]]
    if max(op.offset, op.seen) > s.leo[events[op.first].broker]:
        for d in range(len(heads)):
            if heads[d] >= 0 and ops[heads[d]].type == OP_APPEND:
                return d
    return c


@compiled
def follow(s: State, p: Profile, events: Records[EventRecord], which: tuple[int, int, int], moves: Moves) -> None:
    """Apply events whose order is known. `which`: the first, how many, and whether the first two change places."""
    first, count, swapped = which
    for k in range(count):
        apply(s, p, events[first + (1 - k if swapped and k < 2 else k)], moves)


@compiled
def merge(
    s: State,
    p: Profile,
    events: Records[EventRecord],
    ops: Records[OperationRecord],
    ends: Ints,
    moves: Moves,
) -> tuple[Ints, Ints]:
    """Order the operations of one tenure; afterwards the state is as after all of them.

    `ops` is sorted by chain; `ends` holds the end of each chain. Returns the order (indices into ops) and, aligned with
    it, 1 where a fetch's own update came before its read (the fetch was completed inline, from Kafka's purgatory).
    """
    chains = len(ends)
    heads = np.empty(chains, np.int64)
    begin = 0
    for c in range(chains):
        heads[c] = begin if begin < ends[c] else -1
        begin = ends[c]
    order = np.empty(len(ops), np.int64)
    swapped = np.zeros(len(ops), np.int64)
    for done in range(len(ops)):
        deadline = np.iinfo(np.int64).max
        for c in range(chains):
            if heads[c] >= 0 and ops[heads[c]].hi < deadline:
                deadline = ops[heads[c]].hi
        best, best_rank, best_est = -1, RANK_LATE + 1, np.int64(0)
        for c in range(chains):
            if heads[c] < 0 or ops[heads[c]].lo > deadline:
                continue
            rank = rank_of(s, p, events, ops, heads, c, deadline)
            est = ops[heads[c]].est
            if rank < best_rank or (rank == best_rank and est < best_est):
                best, best_rank, best_est = c, rank, est
        if best_rank == RANK_LATE:
            best = append_needed(s, events, ops, heads, best)
        k = heads[best]
        order[done], swapped[done] = k, best_rank in (RANK_AFTER_OWN, RANK_READ_AGAIN)
        follow(s, p, events, (ops[k].first, ops[k].count, swapped[done]), moves)
        heads[best] = k + 1 if k + 1 < ends[best] else -1
    return order, swapped
