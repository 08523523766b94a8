"""Who is in the ISR, who may join and who should leave: the leader's conditions, as the engine predicts them.

Names are apache/kafka's (kafka.cluster.Partition, ReplicaManager.maybeShrinkIsr) in snake case. `b` leads, `r` is a
follower; times in microseconds. Nothing here orders events, reads a clock, or builds a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled, compiled_in_place
from replay.protocol.state import NONE, ROLE_LEADER, STOPPING_REGISTERED, State

if TYPE_CHECKING:
    from replay.protocol.profile import Profile

# What kept a replica out of the ISR when last checked; a mask. NEVER_FETCHED: not under this leader, or since it left.
# STALE_EPOCH: since its broker registered anew, not again.
BELOW_HW, BELOW_EPOCH_START, FENCED, STOPPING, IN_FLIGHT, NOT_ASSIGNED, NEVER_FETCHED = 1, 2, 4, 8, 16, 32, 64
STALE_EPOCH = 128

# State.pending: predicted by the engine's rule; requested according to a source; predicted, but by a fetch that may
# have come before the last change ended.
NOTHING_PENDING, PREDICTED, ASKED, DOUBTFUL = 0, 1, 2, 3

RACE_US = 27_000  # requests as near as this may have been handled in either order (`request_times`)
AWAKE_US = 1_000_000  # a leader silent for longer may have stood still, and its expiry task with it
OVERDUE_SLACK_US = 1_000_000


@compiled
def blocks_eligibility(s: State, p: Profile, b: int, r: int) -> int:
    """What r's registration holds against it in b's ISR: FENCED, STOPPING (KIP-841), STALE_EPOCH; 0: nothing.

    With ZooKeeper a leader asks whether r's broker is alive and no more: it does not hear of shutdowns, and its
    controller refuses the replica instead (Partition.isReplicaIsrEligible).
    """
    if not p.expand_needs_unfenced:
        return 0
    found = (FENCED if s.fenced[r] else 0) | (STOPPING if s.stopping[r] == STOPPING_REGISTERED else 0)
    return found | (STALE_EPOCH if is_of_earlier_life(s, p, b, r) else 0)


@compiled
def is_of_earlier_life(s: State, p: Profile, b: int, r: int) -> bool:
    """Whether what b remembers of r is of r's broker before it registered anew (Partition.isBrokerEpochIsrEligible).

    A broker that restarts may come back with less than it had (KIP-903, KRaft 3.5+). A fetch that names no broker
    epoch, as of older protocols, passes. Where a source tells no registration, or a fetch shows a later one than any
    source tells, nothing is known, and nothing is held against r.
    """
    return bool(p.expand_needs_broker_epoch) and 0 <= s.fetch_epoch[b, r] < s.broker_epoch[r]


@compiled
def note_fetch_epoch(s: State, b: int, r: int, broker_epoch: int) -> None:
    """Leader b takes a fetch of r that names this broker epoch; below 0: none, or no source says which."""
    s.fetch_epoch[b, r] = max(broker_epoch, NONE)


@compiled_in_place
def note_registration(s: State, p: Profile, r: int, broker_epoch: int) -> None:
    """Note the epoch under which r's broker is registered; what leaders remember of an earlier life keeps r out.

    A change of a registration that stands states its epoch again.
    """
    s.broker_epoch[r] = broker_epoch
    for b in range(len(s.leo)):
        if is_of_earlier_life(s, p, b, r) and not s.isr[b] & (1 << r):
            s.blocked[b, r] |= STALE_EPOCH


@compiled_in_place
def note_fencing(s: State, p: Profile, r: int) -> None:
    """After a change of r's fencing: what leaders remember of why r is not in the ISR, until it fetches again."""
    if not p.expand_needs_unfenced:
        return
    for b in range(len(s.leo)):
        if s.fenced[r]:
            s.blocked[b, r] |= FENCED
        elif s.isr[b] & (1 << r):
            s.blocked[b, r] &= ~FENCED


@compiled
def blocks_expansion(s: State, p: Profile, b: int, r: int) -> int:
    """What keeps r out of b's ISR, a mask; 0: nothing (Partition.needsExpandIsr, canAddReplicaToIsr; KAFKA-7128)."""
    found = 0
    if s.remote_leo[b, r] < s.hw[b]:
        found |= BELOW_HW
    if p.expand_needs_epoch_start and s.remote_leo[b, r] < s.epoch_start[b]:
        found |= BELOW_EPOCH_START
    if s.pending[b]:
        found |= IN_FLIGHT
    if not s.partition[0].assigned & (1 << r):
        found |= NOT_ASSIGNED
    return found | blocks_eligibility(s, p, b, r)


@compiled
def is_doubtful(s: State, b: int, now: int) -> bool:
    """Whether the pending expansion at `now` may belong to a fetch that really came later than it is placed."""
    if s.pending[b] != PREDICTED:
        return bool(s.pending[b] == DOUBTFUL)
    newest = 0
    for r in range(len(s.leo)):
        if s.maximal_isr[b] & ~s.isr[b] & (1 << r):
            newest = max(newest, s.fetched[b, r])
    return bool(now - newest <= RACE_US)


@compiled
def lost_race(s: State, b: int, isr: int) -> int:
    """Who in the granted `isr` may have fetched before the replica that b was predicted to ask for instead, a mask.

    Nothing but that prediction kept them out, and their fetches are too near for their order to be known.
    """
    found = 0
    predicted = s.maximal_isr[b] & ~s.isr[b] & ~isr
    for r in range(len(s.leo)):
        if not isr & ~s.maximal_isr[b] & (1 << r) or s.blocked[b, r] != IN_FLIGHT:
            continue
        for other in range(len(s.leo)):
            if predicted & (1 << other) and abs(s.fetched[b, r] - s.fetched[b, other]) <= RACE_US:
                found |= 1 << r
    return found


@compiled
def is_out_of_sync(s: State, p: Profile, b: int, r: int, now: int) -> bool:
    """Whether the expiry task would remove r (Partition.isFollowerOutOfSync): not caught up for longer than the lag.

    2.1+ (KAFKA-7152): not while r has the leader's LEO. Nobody is removed while a change is in flight (KIP-497).
    """
    if r == b or not s.isr[b] & (1 << r) or s.pending[b]:
        return False
    if p.expiry_spares_equal_leo and s.remote_leo[b, r] == s.leo[b]:
        return False
    return bool(now - s.caught_up[b, r] > s.partition[0].lag_us)


@compiled
def expiry_period(s: State, p: Profile) -> int:
    """How often the expiry task runs, in microseconds (ReplicaManager.startup: isr-expiration)."""
    return int(s.partition[0].lag_us // 2 if p.expiry_twice_per_lag else s.partition[0].lag_us)


@compiled
def out_of_sync_since(s: State, b: int, r: int, last: int, now: int) -> int:
    """When r, which is out of sync `now`, became so: it was not at `last`, the time of the event before.

    It is so from the end of the lag on, or from when a change that was in flight ended, or since its leader went on
    without it.
    """
    return int(min(max(s.caught_up[b, r] + s.partition[0].lag_us, last, s.settled[b]), now))


@compiled
def first_out_of_sync(s: State, p: Profile, b: int, leaving: int, now: int) -> int:
    """Since when the first of the members `leaving`, a mask, has been out of sync; NONE: none of them is."""
    found = NONE
    for r in range(len(s.leo)):
        if not leaving & (1 << r) or not is_out_of_sync(s, p, b, r, now):
            continue
        known = s.out_for[b, r] != NONE
        since = s.out_since[b, r] if known else out_of_sync_since(s, b, r, s.acted[b], now)
        if found == NONE or since < found:
            found = since
    return int(found)


@compiled_in_place
def note_expiry(s: State, p: Profile, b: int, now: int) -> int:
    """Leader b acts at `now`: update how long each member has been out of sync while b was awake.

    Returns a mask (0: none) of members that have just become overdue: out of sync for longer than the task's period
    plus slack, so that a run of the task must have noticed. A standstill of the leader counts as at most `AWAKE_US`.
    """
    if s.role[b] != ROLE_LEADER:
        return 0
    last = s.acted[b]
    step = min(max(now - last, 0), AWAKE_US) if last else 0
    s.acted[b] = max(s.acted[b], now)
    limit = expiry_period(s, p) + OVERDUE_SLACK_US
    overdue = 0
    for r in range(len(s.leo)):
        if not is_out_of_sync(s, p, b, r, now):
            s.out_for[b, r] = NONE
            continue
        before = s.out_for[b, r]
        if before == NONE:
            s.out_for[b, r], s.out_since[b, r] = 0, out_of_sync_since(s, b, r, last, now)
            continue
        s.out_for[b, r] = before + step
        if before <= limit < s.out_for[b, r]:
            overdue |= 1 << r
    return overdue


@compiled
def overdue_at(s: State, p: Profile, b: int, leaving: int, now: int) -> int:
    """The members `leaving`, a mask, that were overdue before b took them out at `now`; 0: it came in time."""
    step = min(max(now - s.acted[b], 0), AWAKE_US) if s.acted[b] else 0
    limit = expiry_period(s, p) + OVERDUE_SLACK_US
    overdue = 0
    for r in range(len(s.leo)):
        if leaving & (1 << r) and is_out_of_sync(s, p, b, r, now) and s.out_for[b, r] + step > limit:
            overdue |= 1 << r
    return overdue


@compiled
def who_knows(s: State, epoch: int) -> int:
    """The broker that led last, up to `epoch`; its record shows how far others were. NONE: nobody led yet."""
    found = NONE
    for b in range(len(s.leo)):
        if s.role[b] == ROLE_LEADER and s.epoch[b] <= epoch and (found == NONE or s.epoch[b] > s.epoch[found]):
            found = b
    return found


@compiled
def is_eligible(s: State, p: Profile, b: int, r: int) -> bool:
    """Whether r may join b's ISR, by its broker's registration (Partition.isReplicaIsrEligible)."""
    return blocks_eligibility(s, p, b, r) == 0


@compiled
def rack_aware_choice(s: State, p: Profile, b: int, rack: int, offset: int, told: int) -> int:
    """The replica to which leader b sends a consumer at `offset`; NONE: b serves it (RackAwareReplicaSelector.select).

    `rack`: the replicas in the consumer's rack, a mask. If b is one of them it serves itself; else the most caught-up
    of those that may, of equal ones the one that was caught up last. Of several that were so within the inaccuracy of
    times it may be any: then `told`, which the answer names, if it is among them.
    """
    found = NONE
    if rack & (1 << b):
        return found
    for r in range(len(s.leo)):
        if not rack & (1 << r) or not may_serve_consumer(s, p, b, r, offset):
            continue
        if found == NONE or s.remote_leo[b, r] > s.remote_leo[b, found]:
            found = r
        elif s.remote_leo[b, r] == s.remote_leo[b, found]:
            behind = s.caught_up[b, found] - s.caught_up[b, r]
            if behind < -RACE_US or (behind <= RACE_US and r == told):
                found = r
    return found


@compiled
def may_serve_consumer(s: State, p: Profile, b: int, r: int, offset: int) -> bool:
    """Whether leader b may send a consumer at `offset` to r (KIP-392, ReplicaManager.findPreferredReadReplica).

    As far as b knows, r must have the offset, and from 3.3.2 on be in the ISR (KAFKA-14372).
    """
    if p.preferred_in_isr and not s.isr[b] & (1 << r):
        return False
    return bool(s.remote_leo[b, r] >= offset >= s.remote_start[b, r])
