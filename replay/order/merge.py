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
from replay.arrays.records import blank
from replay.engine.apply import apply
from replay.engine.codes import DELETE_RECORDS
from replay.engine.stamps import STAMP_EARLY_US
from replay.order.front import (
    OP_ACK,
    OP_APPEND,
    OP_CONTROL,
    OP_FETCH,
    OP_NOTED,
    OP_READ,
    OP_REFUSED,
    OP_UPDATE,
    OP_WITNESS,
    PieceRecord,
    front_of,
)
from replay.order.look_ahead import (
    holds_back,
    hw_after_update,
    leo_fits,
    parks,
    passes_a_line,
    strands_a_parked_one,
    strands_another,
    takes_a_turn,
    told_next,
    was_parked,
)
from replay.protocol.deletion import deletion_guard
from replay.protocol.produce import NOT_ENOUGH_REPLICAS, may_be_unverified, produce_guard
from replay.protocol.state import NONE, UNSET
from replay.protocol.steps import answered_hw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.engine.moves import Moves
    from replay.order.front import Front, OperationRecord
    from replay.protocol.profile import Profile
    from replay.protocol.state import State

(
    RANK_FITS,
    RANK_DUE,
    RANK_SAFE,
    RANK_READ_AGAIN,  # read after its own update: the first read was empty; or by the rules of 2.4, 2.5, 1.0 and 1.1
    RANK_APPEND,
    RANK_NEEDED,
    RANK_RACED,  # as RANK_READ_AGAIN, but only a race explains it
    RANK_PARKS,  # its update, and only later its read: nothing had come when it was read again
    RANK_READS,  # its read, and only later its update
    RANK_STRANDS,
    RANK_AFTER_OWN,  # as RANK_RACED, but it is early, or strands another
    RANK_PARKS_FOR_DATA,  # its update, and only later its read: what it was answered had come by then
    RANK_PARKED,  # the same, but records had come before its update: its first read was before them, and empty
    RANK_LATE,
) = range(14)


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
def rank_of(s: State, p: Profile, events: Records[EventRecord], front: Front, c: int, deadline: int) -> int:
    """Return how well the head of chain c fits as the next operation (RANK_*); smaller is better."""
    op = front.head[c]
    kind = op.type
    e = events[op.first]
    b = e.broker
    if kind == OP_CONTROL:
        if op.offset > 0 and s.leo[b] < op.offset:
            return RANK_LATE  # its log line states a LEO that is not reached yet
        for d in range(len(front.place)):
            if d != c and front.place[d] >= 0 and front.head[d].est < op.est and front.head[d].lo <= deadline:
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
        for d in range(len(front.place)):
            if d != c and front.place[d] >= 0:
                other = front.head[d]
                if other.lo <= deadline and other.exact and leo_fits(other, leo):
                    return RANK_STRANDS
                if other.type == OP_CONTROL and other.hi < op.est:
                    return RANK_STRANDS  # the broker's own log line dates it earlier
        return RANK_APPEND
    if kind == OP_READ:
        return RANK_FITS if leo_fits(op, leo) and (op.hw < 0 or hw == op.hw) else RANK_LATE
    found = rank_of_update(s, p, events, front, c, deadline)
    if found == RANK_LATE:
        return rank_of_parked(s, p, events, front, c, deadline)
    if found < RANK_READS and takes_a_turn(s, p, events, front, c, deadline):
        return RANK_STRANDS
    if found < RANK_READS and (
        strands_a_parked_one(s, p, events, front, c, deadline) or passes_a_line(s, p, events, front, c, deadline)
    ):
        return RANK_READS if op.type == OP_FETCH and op.hw in (hw, NONE) else RANK_STRANDS
    return found


@compiled
def rank_of_parked(s: State, p: Profile, events: Records[EventRecord], front: Front, c: int, deadline: int) -> int:
    """Return how well the update of a fetch fits next if its handler parked it, and read again before it answered."""
    op, e = front.head[c], events[front.head[c].first]
    leo, hw = s.leo[e.broker], s.hw[e.broker]
    if holds_back(s, p, events, front, c, deadline):
        return RANK_PARKS
    at_end = parks(op, leo, hw, deadline)
    if not at_end and not was_parked(front, op, leo, hw):
        return RANK_LATE
    hw_next = hw_after_update(s, p, e, op.offset, op.est)
    if hw_next > hw and strands_another(front, c, deadline, (hw, hw_next)):
        return RANK_LATE
    if not at_end:
        return RANK_PARKED if hw_next <= op.hw else RANK_LATE
    is_told = hw_next > hw and hw_next == told_next(front, hw)
    return RANK_PARKS_FOR_DATA if op.seen > leo and not is_told else RANK_PARKS


@compiled
def rank_of_update(s: State, p: Profile, events: Records[EventRecord], front: Front, c: int, deadline: int) -> int:
    """Return how well a follower's fetch at the head of chain c fits next, with its read if that came at once."""
    op = front.head[c]
    e = events[op.first]
    b = e.broker
    leo, hw = s.leo[b], s.hw[b]
    passed = op.type == OP_UPDATE and op.exact and leo > op.offset
    if leo < op.offset or not (passed or leo_fits(op, leo)):
        return RANK_LATE
    hw_next = hw_after_update(s, p, e, op.offset, op.est)
    told = answered_hw(p, hw, hw_next)
    if op.type == OP_FETCH and op.hw >= 0 and (op.hw != told or told != hw):
        if op.hw != hw_next:
            return RANK_LATE
        strands = strands_another(front, c, deadline, (hw, hw_next))
        is_the_rule = p.hw_told_at_once or op.hw == told or leo == op.offset  # an empty read is made again
        if strands or (not is_the_rule and op.est > deadline):
            return RANK_AFTER_OWN
        return RANK_READ_AGAIN if is_the_rule else RANK_RACED
    if hw_next > hw and strands_another(front, c, deadline, (hw, hw_next)):
        return RANK_READS if op.type == OP_FETCH else RANK_STRANDS
    # A fetch that is parked although there is more (a quota) fits nowhere better later, so its time decides.
    return RANK_SAFE if op.exact and not passed else RANK_APPEND


@compiled
def append_needed(s: State, events: Records[EventRecord], front: Front, c: int) -> int:
    """Return the chain of appends if the head of chain c needs a higher LEO than the leader has, else c.

    Causality takes precedence over every timestamp.
    """
    op = front.head[c]
    needed = op.hw if op.type == OP_ACK else max(op.offset, op.seen)
    if needed > s.leo[events[op.first].broker]:
        for d in range(len(front.place)):
            if front.place[d] >= 0 and front.head[d].type == OP_APPEND:
                return d
    return c


@compiled
def follow(s: State, p: Profile, events: Records[EventRecord], which: tuple[int, int, int], moves: Moves) -> None:
    """Apply events whose order is known. `which`: the first, how many, and how many of the first the next precedes."""
    first, count, turned = which
    for k in range(count):
        apply(s, p, events[first + (k if not turned or k > turned else turned if k == 0 else k - 1)], moves)


@compiled
def take(front: Front, c: int, rank: int, pieces: Records[PieceRecord], filled: int) -> int:
    """Take the head of chain c as it fits, or the half of it that comes first; the other half is the head then.

    Writes what is taken into `pieces`, and returns how many pieces there are then.
    """
    op, piece = front.head[c], pieces[filled]
    piece.chain, piece.hi = op.chain, op.hi
    piece.first, piece.count, piece.turned, piece.whole = op.first, op.count, 0, 0
    if op.type == OP_FETCH and rank in (RANK_PARKS, RANK_PARKS_FOR_DATA, RANK_PARKED):
        piece.count = op.updates
        op.type, op.est, op.hi = OP_READ, op.handled, op.handled + STAMP_EARLY_US
        op.first, op.count = op.first + op.updates, op.count - op.updates
        return filled + 1
    if op.type == OP_FETCH and rank == RANK_READS:
        piece.first, piece.count = op.first + op.updates, 1
        op.type, op.exact, op.seen, op.hw = OP_UPDATE, 0, NONE, NONE
        return filled + 1
    if op.type == OP_FETCH and rank not in (RANK_AFTER_OWN, RANK_RACED, RANK_READ_AGAIN):
        piece.turned = op.updates
    piece.whole = 1
    if op.type == OP_UPDATE and op.updates:  # its read stands already, between its update and what the follower does
        piece.count = op.updates
        rest = pieces[filled + 1]
        rest.chain, rest.hi, rest.turned, rest.whole = op.chain, op.hi, 0, 1
        rest.first, rest.count = op.first + op.updates + 1, op.count - op.updates - 1
        if rest.count:
            piece.whole = 0
            filled += 1
    front.place[c] += 1
    if front.place[c] < front.end[c]:
        soonest = op.lo
        front.head[c] = front.ops[front.place[c]]
        op.est, op.hi = max(op.est, soonest), max(op.hi, soonest)  # it is behind that one, whatever its line says
    else:
        front.place[c] = NONE
    return filled + 1


@compiled
def merge(
    s: State, p: Profile, events: Records[EventRecord], front: Front, moves: Moves, pieces: Records[PieceRecord]
) -> int:
    """Order the operations of one tenure; afterwards the state is as after all of them.

    Writes their order into `pieces`, and returns how many there are.
    """
    chains = len(front.place)
    done, filled = 0, 0
    while done < len(front.ops):
        deadline = np.iinfo(np.int64).max
        for c in range(chains):
            if front.place[c] >= 0 and front.head[c].hi < deadline:
                deadline = front.head[c].hi
        best, best_rank, best_est = -1, RANK_LATE + 1, 0
        for c in range(chains):
            if front.place[c] < 0 or front.head[c].lo > deadline:
                continue
            rank = rank_of(s, p, events, front, c, deadline)
            est = front.head[c].est
            if rank < best_rank or (rank == best_rank and est < best_est):
                best, best_rank, best_est = c, rank, est
        if best_rank == RANK_LATE:
            best = append_needed(s, events, front, best)
        begin, filled = filled, take(front, best, best_rank, pieces, filled)
        for k in range(begin, filled):
            follow(s, p, events, (pieces[k].first, pieces[k].count, pieces[k].turned), moves)
            done += int(pieces[k].whole)
    return filled


def merged(
    s: State, p: Profile, events: Records[EventRecord], chains: Sequence[Records[OperationRecord]], moves: Moves
) -> Records[PieceRecord]:
    """Return the operations of a tenure in order, piece by piece; afterwards the state is as after all of them."""
    front = front_of(chains)
    pieces = blank(len(front.ops) + 2 * int((front.ops["type"] == OP_FETCH).sum()), PieceRecord)
    return pieces[: merge(s, p, events, front, moves, pieces)]
