"""What an operation rules out or needs: whether others can still have seen what they saw, once it is taken.

The merge asks this of the operations that may come next. `front.head[c]` is the one that is asked about; those of the
other chains count if they have begun by `deadline`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled
from replay.engine.codes import ISR_PENDING_EXPAND, ISR_REQUEST
from replay.order.front import OP_APPEND, OP_FETCH, OP_READ, OP_UPDATE, OP_WITNESS
from replay.protocol.high_watermark import hw_candidate
from replay.protocol.isr import blocks_expansion, note_fetch_epoch
from replay.protocol.state import NONE
from replay.protocol.steps import leader_update_follower_leo

if TYPE_CHECKING:
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.order.front import Front, OperationRecord
    from replay.protocol.profile import Profile
    from replay.protocol.state import State

FETCHES_AHEAD = 4  # parts of fetches: as far as one may be ahead of what its handler did for others


@compiled
def hw_after_update(s: State, p: Profile, e: EventRecord, offset: int, now: int) -> int:
    """Return the HW that its leader would have after the fetch e, at `offset` now; the state is left as it was."""
    b, r = e.broker, e.replica
    known = s.remote[:, b, r].copy()
    note_fetch_epoch(s, b, r, e.replica_epoch)
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
def strands_another(front: Front, c: int, deadline: int, hw: tuple[int, int]) -> bool:
    """Whether raising the HW from `hw[0]` to `hw[1]` with the head of chain c leaves another chain's head impossible.

    That is so if a read saw an HW that would be passed, be it behind updates of parked or unlisted fetches. It is
    also so if a log line of the broker names another value: the lines name every value that the HW took, in order, so
    the next raise must go to the next line's value, whatever the timestamps say.
    """
    for d in range(len(front.place)):
        if d == c or front.place[d] < 0:
            continue
        other = front.head[d]
        if other.type == OP_WITNESS:
            if other.hw > hw[0] and other.hw != hw[1]:
                return True
            continue
        place = front.place[d] + 1
        while other.type == OP_UPDATE and place < front.end[d]:
            other = front.ops[place]
            place += 1
        if other.type in (OP_FETCH, OP_READ) and other.lo <= deadline and hw[0] <= other.hw < hw[1]:
            return True
    return False


@compiled
def strands_a_parked_one(s: State, p: Profile, events: Records[EventRecord], front: Front, c: int, hi: int) -> bool:
    """Whether after the fetch at the head of chain c another replica would pass, before a read, the HW that it saw.

    That read is behind its own parked fetch, or a few fetches on. `hi`: only fetches that may have begun by then.
    """
    e, op, found = events[front.head[c].first], front.head[c], False
    known = s.remote[:, e.broker, e.replica].copy()
    note_fetch_epoch(s, e.broker, e.replica, e.replica_epoch)
    leader_update_follower_leo(s, p, e.broker, e.replica, op.offset, op.est)
    for d in range(len(front.place)):
        if d == c or front.place[d] < 0 or found:
            continue
        other, reached, us, first = front.head[d], NONE, 0, 0
        for k in range(front.place[d], min(front.place[d] + FETCHES_AHEAD, front.end[d])):
            if k > front.place[d]:
                other = front.ops[k]
            if other.lo > hi or other.type not in (OP_UPDATE, OP_FETCH, OP_READ):
                break
            if other.type != OP_UPDATE and s.hw[e.broker] <= other.hw < reached:
                found = hw_after_update(s, p, events[first], reached, us) > other.hw
                break
            if other.type != OP_READ:
                reached, us, first = other.offset, other.est, other.first
    s.remote[:, e.broker, e.replica] = known
    return found


@compiled
def told_next(front: Front, hw: int) -> int:
    """Return the HW that the broker's next line names, if it is beyond `hw`; else NONE."""
    for d in range(len(front.place)):
        if front.place[d] >= 0 and front.head[d].type == OP_WITNESS and front.head[d].hw > hw:
            return front.head[d].hw
    return NONE


@compiled
def passes_a_line(s: State, p: Profile, events: Records[EventRecord], front: Front, c: int, hi: int) -> bool:
    """Whether behind the update at the head of chain c another's would pass the HW that the broker's next line names.

    Only if that other one, which has begun by `hi`, takes the HW right there if it comes first.
    """
    e, op = events[front.head[c].first], front.head[c]
    b, r, told = e.broker, e.replica, told_next(front, s.hw[e.broker])
    if told < 0 or not s.remote_leo[b, r] <= told < op.offset:
        return False
    for d in range(len(front.place)):
        other = front.head[d]
        if d == c or front.place[d] < 0 or other.type not in (OP_UPDATE, OP_FETCH) or other.lo > hi:
            continue
        if hw_after_update(s, p, events[other.first], other.offset, other.est) != told:
            continue
        known = s.remote[:, b, r].copy()
        note_fetch_epoch(s, b, r, e.replica_epoch)
        leader_update_follower_leo(s, p, b, r, op.offset, op.est)
        passed = hw_after_update(s, p, events[other.first], other.offset, other.est) > told
        s.remote[:, b, r] = known
        if passed:
            return True
    return False


@compiled
def asks_to_join(events: Records[EventRecord], op: OperationRecord) -> bool:
    """Whether a source says that the leader asked for a replica to join while it handled this fetch."""
    for k in range(op.first, op.first + op.count):
        if events[k].kind == ISR_REQUEST and events[k].isr_request == ISR_PENDING_EXPAND:
            return True
    return False


@compiled
def takes_a_turn(s: State, p: Profile, events: Records[EventRecord], front: Front, c: int, deadline: int) -> bool:
    """Whether the fetch at the head of chain c would make the leader ask for its replica, while it asked for another.

    A leader has one change in flight at most (2.7+, KIP-497). If it did not ask at this fetch, although nothing but a
    change in flight can have kept it from that, and did at another that was under way, that one came first.
    """
    e, r = events[front.head[c].first], events[front.head[c].first].replica
    if r < 0 or not p.isr_change_pending or asks_to_join(events, front.head[c]):
        return False
    if (s.isr[e.broker] | s.maximal_isr[e.broker]) & (1 << r):
        return False
    known = s.remote[:, e.broker, r].copy()
    note_fetch_epoch(s, e.broker, r, e.replica_epoch)
    s.remote_leo[e.broker, r] = front.head[c].offset
    free = blocks_expansion(s, p, e.broker, r) == 0
    s.remote[:, e.broker, r] = known
    if not free:
        return False
    for d in range(len(front.place)):
        if d != c and front.place[d] >= 0:
            other = front.head[d]
            if other.type in (OP_FETCH, OP_UPDATE) and other.lo <= deadline and asks_to_join(events, other):
                return True
    return False


@compiled
def holds_back(s: State, p: Profile, events: Records[EventRecord], front: Front, c: int, deadline: int) -> bool:
    """Whether the leader asked for a replica at the head of chain c before another's update, which would raise the HW.

    From then on its HW waits for that replica, too. If the answer still states the HW of then, and yet another's update
    that was under way would raise it, the asking came first: the handler did it, and only later read again.
    """
    op = front.head[c]
    b = events[op.first].broker
    if op.type != OP_FETCH or not s.leo[b] >= op.offset == s.hw[b] == op.hw or not asks_to_join(events, op):
        return False
    for d in range(len(front.place)):
        other = front.head[d]
        if d == c or front.place[d] < 0 or other.type not in (OP_UPDATE, OP_FETCH) or other.lo > deadline:
            continue
        if s.leo[b] >= other.offset and hw_after_update(s, p, events[other.first], other.offset, other.est) > op.hw:
            return True
    return False


@compiled
def parks(op: OperationRecord, leo: int, hw: int, deadline: int) -> bool:
    """Whether a fetch that was answered at once may have been parked by its handler, and read again before it left.

    Its first read was empty then, so it asked for the end of the log; what it was answered came only later. Its own
    update was before that (ReplicaManager.fetchMessages: updateFollowerFetchState, then tryCompleteElseWatch).
    """
    if op.type != OP_FETCH or leo != op.offset or op.est > deadline:
        return False
    return bool(op.hw >= hw and (op.hw > hw or op.seen > leo))


@compiled
def was_parked(front: Front, op: OperationRecord, leo: int, hw: int) -> bool:
    """Whether a fetch that was answered at once may have been parked (`parks`) when records had come behind its read.

    Its answer has them, and an HW that is not reached yet. That read came before the append that passed its offset.
    """
    if op.type != OP_FETCH or leo <= op.offset or op.hw <= hw:
        return False
    for d in range(len(front.place)):
        place = front.end[d] if front.place[d] < 0 else front.place[d]
        passed = NONE
        while place > 0 and front.ops[place - 1].type == OP_APPEND and front.ops[place - 1].offset > op.offset:
            place -= 1
            passed = place
        if passed >= 0:
            return bool(op.lo <= front.ops[passed].hi)
    return False
