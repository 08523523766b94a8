"""One leader's tenure put in order: the chains that Kafka keeps in order, merged by what the answers let happen.

A tenure is a leader epoch on the broker that leads it. Its operations stand in chains, each in its true order: appends
by base offset; each follower's fetches; each consumer connection's reads; acknowledgements; the controller's decisions.
Between chains, two operations whose intervals do not overlap are ordered by them; the others by evidence: a read shows
the LEO it saw (the next fetch offset) and the HW it saw, and the HW never falls within a tenure. The merge runs ahead
with the engine's own rules (`kernel.apply`), so that at each point it knows LEO and HW, and takes of the operations
that may come next the one that fits; where evidence is silent, the earliest estimate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.arrays.jit import compiled
from replay.engine.codes import E_BROKER, E_REPLICA
from replay.engine.kernel import apply
from replay.protocol.high_watermark import hw_candidate
from replay.protocol.steps import leader_update_follower_leo

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.protocol.profile import Profile
    from replay.protocol.state import State

# Columns of an operation.
(
    O_TYPE,
    O_CHAIN,
    O_LO,  # earliest it can have happened
    O_EST,  # best estimate
    O_HI,  # latest
    O_FIRST,  # its events: rows [first, first + count) of the event matrix
    O_COUNT,
    O_OFFSET,  # LEO that it needs: the fetch offset; of an append its end
    O_SEEN,  # LEO that the read saw, -1 unknown
    O_HW,  # HW that the read saw, -1 unknown; of an acknowledgement: the HW that it needs
    O_EXACT,  # 1: the leader's LEO was exactly `seen` (reads) or `offset` (parked fetches), no more
) = range(11)
OP_WIDTH = 11

OP_APPEND, OP_UPDATE, OP_FETCH, OP_READ, OP_ACK, OP_CONTROL, OP_WITNESS = range(7)
# UPDATE: a fetch that is parked. READ: an answer from purgatory, or to a consumer. FETCH: read and update at once.
# WITNESS: the broker's own line says that its HW is now `hw`.

(
    RANK_FITS,
    RANK_DUE,
    RANK_SAFE,
    RANK_READ_AGAIN,  # parked and completed by the HW that its own update raised (2.4, 2.5), so read after it
    RANK_APPEND,
    RANK_NEEDED,
    RANK_STRANDS,
    RANK_AFTER_OWN,  # the same where only a race explains it
    RANK_LATE,
) = range(9)


@compiled
def hw_after_update(s: State, p: Profile, b: int, r: int, offset: int, now: int) -> int:
    """The HW of leader b if follower r's fetch at `offset` came now. Leaves the state as it was."""
    leo, caught, previous, fetched = s.remote_leo[b, r], s.caught_up[b, r], s.leo_at_fetch[b, r], s.fetched[b, r]
    leader_update_follower_leo(s, p, b, r, offset, now)
    candidate = max(hw_candidate(s, p, b, now), s.hw[b])
    s.remote_leo[b, r], s.caught_up[b, r], s.leo_at_fetch[b, r], s.fetched[b, r] = leo, caught, previous, fetched
    return candidate


@compiled
def leo_fits(op: Ints, leo: int) -> bool:
    """Whether the leader's LEO is what the operation saw."""
    if op[O_TYPE] == OP_UPDATE:
        return leo == op[O_OFFSET] if op[O_EXACT] else leo >= op[O_OFFSET]
    if op[O_TYPE] == OP_READ and op[O_SEEN] == op[O_OFFSET] and leo > op[O_SEEN]:
        return True  # nothing was read though there is more, and the LEO never falls: a quota, so only the HW tells
    if op[O_SEEN] < 0:
        return leo >= op[O_OFFSET]
    return leo == op[O_SEEN] if op[O_EXACT] else leo >= op[O_SEEN]


@compiled
def strands_another(ops: Ints, heads: Ints, c: int, deadline: int, hw: tuple[int, int]) -> bool:
    """Whether raising the HW from `hw[0]` to `hw[1]` by the head of chain c would strand the head of another chain.

    A read saw an HW that would be gone. The broker's own lines name every value that its HW took, in order: whatever
    their stamps, the next raise goes to the next line's value.
    """
    for d in range(len(heads)):
        if d == c or heads[d] < 0:
            continue
        other = ops[heads[d]]
        if other[O_TYPE] == OP_WITNESS:
            if other[O_HW] > hw[0] and other[O_HW] != hw[1]:
                return True
        elif other[O_TYPE] in (OP_FETCH, OP_READ) and other[O_LO] <= deadline and hw[0] <= other[O_HW] < hw[1]:
            return True
    return False


@compiled
def rank_of(s: State, p: Profile, events: Ints, ops: Ints, heads: Ints, c: int, deadline: int) -> int:  # noqa: PLR0913, PLR0917 - compiled
    """How well the head of chain c may come next; small is good."""
    op = ops[heads[c]]
    kind = op[O_TYPE]
    e = events[op[O_FIRST]]
    b = e[E_BROKER]
    if kind == OP_CONTROL:
        if op[O_OFFSET] > 0 and s.leo[b] < op[O_OFFSET]:
            return RANK_LATE  # its line states a LEO that is not reached yet
        for d in range(len(heads)):
            if d != c and heads[d] >= 0 and ops[heads[d], O_EST] < op[O_EST] and ops[heads[d], O_LO] <= deadline:
                return RANK_NEEDED
        return RANK_DUE
    leo, hw = s.leo[b], s.hw[b]
    if kind == OP_ACK:
        return RANK_FITS if hw >= op[O_HW] else RANK_LATE
    if kind == OP_WITNESS:
        return RANK_FITS if hw == op[O_HW] else RANK_LATE
    if kind == OP_APPEND:
        for d in range(len(heads)):
            if d != c and heads[d] >= 0:
                other = ops[heads[d]]
                if other[O_LO] <= deadline and other[O_EXACT] and leo_fits(other, leo):
                    return RANK_STRANDS
                if other[O_TYPE] == OP_CONTROL and other[O_HI] < op[O_EST]:
                    return RANK_STRANDS  # the broker's own line dates it earlier
        return RANK_APPEND
    if kind == OP_READ:
        return RANK_FITS if leo_fits(op, leo) and (op[O_HW] < 0 or hw == op[O_HW]) else RANK_LATE
    passed = kind == OP_UPDATE and op[O_EXACT] and leo > op[O_OFFSET]
    if leo < op[O_OFFSET] or not (passed or leo_fits(op, leo)):
        return RANK_LATE
    hw_next = hw_after_update(s, p, b, e[E_REPLICA], op[O_OFFSET], op[O_EST])
    if kind == OP_FETCH and op[O_HW] >= 0 and hw != op[O_HW]:
        if hw_next != op[O_HW]:
            return RANK_LATE
        strands = strands_another(ops, heads, c, deadline, (hw, hw_next))
        return RANK_READ_AGAIN if p.hw_told_at_once and not strands else RANK_AFTER_OWN
    if hw_next > hw and strands_another(ops, heads, c, deadline, (hw, hw_next)):
        return RANK_STRANDS
    # A fetch that is parked though there is more (a quota) fits nowhere better later: its time decides.
    return RANK_SAFE if op[O_EXACT] and not passed else RANK_APPEND


@compiled
def append_needed(s: State, events: Ints, ops: Ints, heads: Ints, c: int) -> int:
    """The chain of appends where the head of chain c is past the leader's LEO: causality wins over every stamp."""
    op = ops[heads[c]]
    if max(op[O_OFFSET], op[O_SEEN]) > s.leo[events[op[O_FIRST], E_BROKER]]:
        for d in range(len(heads)):
            if heads[d] >= 0 and ops[heads[d], O_TYPE] == OP_APPEND:
                return d
    return c


@compiled
def merge(s: State, p: Profile, events: Ints, ops: Ints, chain_start: Ints, chain_end: Ints) -> tuple[Ints, Ints]:
    """Order the operations of one tenure; the state ends as after all of them.

    `ops` is sorted by chain; chain c is ops[chain_start[c]:chain_end[c]]. Returns the order (indices into ops) and,
    beside each, 1 where the fetch's own update came before its read (completed inline, KAFKA purgatory).
    """
    chains = len(chain_start)
    heads = np.empty(chains, np.int64)
    for c in range(chains):
        heads[c] = chain_start[c] if chain_start[c] < chain_end[c] else -1
    order = np.empty(len(ops), np.int64)
    swapped = np.zeros(len(ops), np.int64)
    for done in range(len(ops)):
        deadline = np.iinfo(np.int64).max
        for c in range(chains):
            if heads[c] >= 0 and ops[heads[c], O_HI] < deadline:
                deadline = ops[heads[c], O_HI]
        best, best_rank, best_est = -1, RANK_LATE + 1, np.int64(0)
        for c in range(chains):
            if heads[c] < 0 or ops[heads[c], O_LO] > deadline:
                continue
            rank = rank_of(s, p, events, ops, heads, c, deadline)
            est = ops[heads[c], O_EST]
            if rank < best_rank or (rank == best_rank and est < best_est):
                best, best_rank, best_est = c, rank, est
        if best_rank == RANK_LATE:
            best = append_needed(s, events, ops, heads, best)
        k = heads[best]
        order[done] = k
        first, count = ops[k, O_FIRST], ops[k, O_COUNT]
        if best_rank in (RANK_AFTER_OWN, RANK_READ_AGAIN):
            swapped[done] = 1
            apply(s, p, events[first + 1])
            apply(s, p, events[first])
            first, count = first + 2, count - 2
        for i in range(first, first + count):
            apply(s, p, events[i])
        heads[best] = k + 1 if k + 1 < chain_end[best] else -1
    return order, swapped
