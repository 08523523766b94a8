"""A replica's log in terms of its epochs: the leader epoch cache and what follows from it (KIP-101, KIP-279).

A log is a row of the epoch cache plus its LEO: entry k says that the records from `cache_start[k]` up to the next
entry's start were appended by the leader of `cache_epoch[k]`. The model leaves out the bytes of batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled
from replay.protocol.state import CACHE_CAPACITY, NONE, OBSERVED, State

if TYPE_CHECKING:
    from replay.protocol.profile import Profile


@compiled
def epoch_assign(s: State, b: int, epoch: int, start: int) -> None:
    """Note that `epoch` starts at `start` in b's log (LeaderEpochFileCache.assign).

    Other epochs that start there or beyond have no records and give way, newer ones too: a follower that led without a
    record gets records of an older epoch (truncateAndAppend, 2.0.1+; before, no epoch is cached without a record). A
    known epoch is kept. Leaves unchanged: LEO, HW.
    """
    n = s.cache_len[b]
    while n > 0 and s.cache_start[b, n - 1] >= start and s.cache_epoch[b, n - 1] != epoch:
        n -= 1
    s.cache_len[b] = n
    if n > 0 and s.cache_epoch[b, n - 1] >= epoch:
        return
    if n == CACHE_CAPACITY:
        half = CACHE_CAPACITY // 2
        for k in range(half):
            s.cache_epoch[b, k] = s.cache_epoch[b, k + half]
            s.cache_start[b, k] = s.cache_start[b, k + half]
        n = half
    s.cache_epoch[b, n] = epoch
    s.cache_start[b, n] = start
    s.cache_len[b] = n + 1


@compiled
def forget_epoch(s: State, b: int, epoch: int) -> None:
    """Remove `epoch` from b's cache if it is the last one and has no records: where it starts is unknown, if it did."""
    n = s.cache_len[b]
    if n > 0 and s.cache_epoch[b, n - 1] == epoch and s.cache_start[b, n - 1] >= s.leo[b]:
        s.cache_len[b] = n - 1


@compiled
def epoch_at(s: State, b: int, offset: int) -> int:
    """Epoch of the record at `offset` in b's log; -1 if the cache does not reach back to it."""
    for k in range(s.cache_len[b] - 1, -1, -1):
        if s.cache_start[b, k] <= offset:
            return s.cache_epoch[b, k]
    return NONE


@compiled
def end_offset_for(s: State, p: Profile, b: int, epoch: int) -> tuple[int, int]:
    """Largest epoch <= `epoch` in b's log and where it ends (LeaderEpochFileCache.endOffsetFor).

    An epoch below all others ends where the first one begins (2.0+), provided that the cache reaches back to the log
    start (ours may begin only where the recording does). (-1, -1), unknown: any other epoch below all, and epochs
    beyond the last one.
    """
    n = s.cache_len[b]
    if n == 0 or epoch > s.cache_epoch[b, n - 1]:
        return NONE, NONE
    for k in range(n - 1, -1, -1):
        if s.cache_epoch[b, k] <= epoch:
            end = s.leo[b] if k == n - 1 else s.cache_start[b, k + 1]
            return s.cache_epoch[b, k], end
    if p.epoch_end_names_epoch and epoch >= 0 and s.cache_start[b, 0] <= s.log_start[b]:
        return epoch, s.cache_start[b, 0]
    return NONE, NONE


@compiled
def truncate_to(s: State, p: Profile, b: int, offset: int) -> int:
    """Truncate b's log to end at `offset` (UnifiedLog.truncateTo), removing epochs that start there or above.

    The HW is lowered with it from 2.4 on; before, it stays and may exceed the LEO until the next answer. Even if
    nothing is removed, an epoch without records at the end is dropped from 2.6.1 on (KAFKA-10706). Returns how many
    offsets were removed. Never raises the LEO.
    """
    removed = max(s.leo[b] - offset, 0)
    if removed == 0 and not p.truncation_cleans_epochs:
        return 0
    s.leo[b] -= removed
    s.unsure_until[b] = min(s.unsure_until[b], s.leo[b])
    if p.truncation_lowers_hw:
        s.hw[b] = min(s.hw[b], s.leo[b])
    forget_empty_epochs(s, b)
    return removed


@compiled
def forget_empty_epochs(s: State, b: int) -> None:
    """Remove epochs that start at or beyond b's LEO (LeaderEpochFileCache.truncateFromEnd)."""
    n = s.cache_len[b]
    while n > 0 and s.cache_start[b, n - 1] >= s.leo[b]:
        n -= 1
    s.cache_len[b] = n


@compiled
def restart_at(s: State, p: Profile, b: int, offset: int) -> None:
    """Drop b's whole log and continue at `offset` (UnifiedLog.truncateFullyAndStartAt): its leader starts there."""
    s.leo[b], s.log_start[b], s.cache_len[b], s.unsure_until[b] = offset, offset, 0, 0
    if p.truncation_lowers_hw:
        s.hw[b] = offset


@compiled
def restart_in_tier(s: State, b: int, leader: int, offset: int) -> None:
    """Drop b's local log and continue at `offset`, behind what its leader has in the remote tier (3.5+, KIP-405).

    TierStateMachine.buildRemoteLogAuxState: its epochs are those of the tier, which are its leader's. Leaves unchanged:
    the log start, which the tier still reaches.
    """
    s.leo[b] = s.hw[b] = offset
    s.leo_evidence[b], s.unsure_until[b] = OBSERVED, 0
    take_epochs(s, leader, b, offset)


@compiled
def move_log_start(s: State, b: int, offset: int) -> bool:
    """Move b's log start up to `offset`: retention, DeleteRecords, or its leader's log start (0.11+).

    The HW is never below it. Epochs that end at or below it are removed; the one that spans it then starts there
    (LeaderEpochFileCache.truncateFromStart). Never moves it back. Leaves unchanged: the LEO.
    """
    if offset <= s.log_start[b]:
        return False
    s.log_start[b] = offset
    s.hw[b] = max(s.hw[b], min(offset, s.leo[b]))
    n, gone = s.cache_len[b], 0
    while gone + 1 < n and s.cache_start[b, gone + 1] <= offset:
        gone += 1
    for k in range(gone, n):
        s.cache_epoch[b, k - gone] = s.cache_epoch[b, k]
        s.cache_start[b, k - gone] = max(s.cache_start[b, k], offset)
    s.cache_len[b] = n - gone
    return True


@compiled
def copy_epochs(s: State, leader: int, follower: int, first: int, end: int) -> None:
    """Copy the leader's epochs of the batches [first, end) that the follower appended into its cache."""
    for k in range(s.cache_len[leader]):
        start = s.cache_start[leader, k]
        stop = s.leo[leader] if k == s.cache_len[leader] - 1 else s.cache_start[leader, k + 1]
        if stop <= first or start >= end:
            continue
        epoch_assign(s, follower, s.cache_epoch[leader, k], max(start, first))


@compiled
def match_epochs(s: State, p: Profile, leader: int, follower: int, offset: int) -> None:
    """Correct the follower's epochs: an accepted fetch shows that both logs match up to its offset.

    That holds where fetches name epochs (log matching). It matters if the fetches that showed a truncation are missing.
    """
    s.unsure_from[follower], s.unsure_until[follower] = s.unsure_from[leader], min(s.unsure_until[leader], offset)
    if not p.truncate_on_fetch or offset <= 0:
        return
    there = epoch_at(s, leader, offset - 1)
    if there == NONE or epoch_at(s, follower, offset - 1) == there:
        return
    take_epochs(s, leader, follower, offset)


@compiled
def take_epochs(s: State, leader: int, follower: int, offset: int) -> None:
    """Copy the leader's epochs up to `offset`, up to which the follower's log is the leader's."""
    n = 0
    while n < s.cache_len[leader] and s.cache_start[leader, n] < offset:
        s.cache_epoch[follower, n], s.cache_start[follower, n] = s.cache_epoch[leader, n], s.cache_start[leader, n]
        n += 1
    s.cache_len[follower] = n


@compiled
def parted_at(s: State, leader: int, follower: int, end: int) -> int:
    """First offset below `end` at which the two logs hold records of different epochs; NONE if there is none."""
    found = NONE
    for b in (leader, follower):
        for k in range(s.cache_len[b]):
            start = s.cache_start[b, k]
            if start >= end or (found != NONE and start >= found):
                break
            there, here = epoch_at(s, leader, start), epoch_at(s, follower, start)
            if NONE not in (there, here) and there != here:
                found = start
    return found


@compiled
def diverging_target(s: State, p: Profile, follower: int, epoch: int, end: int) -> tuple[int, bool]:
    """Where a follower truncates when told that the leader's largest epoch up to its own is `epoch` and ends at `end`.

    Source: AbstractFetcherThread.getOffsetTruncationState. The cases:

    - `end` is unknown: to its own HW.
    - The answer has no epoch (KIP-101, before KIP-279), or one that the follower's cache does not cover: to `end`, at
      most its LEO.
    - The follower has the epoch: to the least of that epoch's end there, its end here, and the LEO.
    - The follower lacks the epoch: to where its next lower epoch ends, which is not final (False). It asks again or,
      where fetches reveal divergence (2.8+), fetches and may diverge again.
    """
    leo = s.leo[follower]
    if end == NONE:
        return min(s.hw[follower], leo), True
    if epoch == NONE or not p.epoch_end_names_epoch:
        return min(end, leo), True
    own_epoch, own_end = end_offset_for(s, p, follower, epoch)
    if own_epoch == NONE:
        return min(end, leo), True
    if own_epoch != epoch:
        return min(own_end, leo), False
    return min(end, own_end, leo), True
