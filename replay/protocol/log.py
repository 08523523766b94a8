"""A replica's log as its epochs see it: the leader epoch cache and what follows from it (KIP-101, KIP-279).

A log is a row of the epoch cache plus its LEO: entry k says that the records from `cache_start[k]` up to the next
entry's start were appended by the leader of `cache_epoch[k]`. What the model leaves out: batches' bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled
from replay.protocol.state import CACHE_CAPACITY, NONE, State

if TYPE_CHECKING:
    from replay.protocol.profile import Profile


@compiled
def epoch_assign(s: State, b: int, epoch: int, start: int) -> None:
    """Note that `epoch` starts at `start` in b's log (LeaderEpochFileCache.assign).

    An entry of the same start and an older epoch is replaced: that epoch has no records. A known epoch is kept.
    Leaves unchanged: LEO, HW.
    """
    n = s.cache_len[b]
    while n > 0 and (s.cache_start[b, n - 1] >= start and s.cache_epoch[b, n - 1] < epoch):
        n -= 1
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
    """Take `epoch` out of b's cache where it is the last and has no record: nothing says where it begins, if it did."""
    n = s.cache_len[b]
    if n > 0 and s.cache_epoch[b, n - 1] == epoch and s.cache_start[b, n - 1] >= s.leo[b]:
        s.cache_len[b] = n - 1


@compiled
def epoch_at(s: State, b: int, offset: int) -> int:
    """Epoch of the record at `offset` in b's log; -1 where the cache does not reach back to it."""
    for k in range(s.cache_len[b] - 1, -1, -1):
        if s.cache_start[b, k] <= offset:
            return s.cache_epoch[b, k]
    return NONE


@compiled
def end_offset_for(s: State, p: Profile, b: int, epoch: int) -> tuple[int, int]:
    """Largest epoch <= `epoch` in b's log and where it ends (LeaderEpochFileCache.endOffsetFor).

    An epoch below all, 2.0+: ends where the first one begins, if the cache reaches back to the log's start (ours may
    reach back only to where the recording begins). (-1, -1) unknown: else, and an epoch beyond the last one.
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
    """Cut b's log to end at `offset` (UnifiedLog.truncateTo): the LEO comes down to it, epochs that begin above go.

    The HW comes down too, 2.4+; before it stays and may exceed the LEO until the next answer. Where nothing is cut, an
    epoch without records at the end goes all the same, 2.6.1+ (KAFKA-10706). Returns how many offsets went. The LEO is
    never raised.
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
    """Epochs that begin at or beyond b's LEO go (LeaderEpochFileCache.truncateFromEnd)."""
    n = s.cache_len[b]
    while n > 0 and s.cache_start[b, n - 1] >= s.leo[b]:
        n -= 1
    s.cache_len[b] = n


@compiled
def restart_at(s: State, p: Profile, b: int, offset: int) -> None:
    """Drop b's whole log and go on at `offset` (UnifiedLog.truncateFullyAndStartAt): its leader holds nothing lower."""
    s.leo[b], s.log_start[b], s.cache_len[b], s.unsure_until[b] = offset, offset, 0, 0
    if p.truncation_lowers_hw:
        s.hw[b] = offset


@compiled
def move_log_start(s: State, b: int, offset: int) -> bool:
    """The log of b begins at `offset` from now on: retention, DeleteRecords, or its leader's log start (0.11+).

    The HW is never below it; epochs that end at or below it go, the one that spans it begins there
    (LeaderEpochFileCache.truncateFromStart). Never goes back. Leaves unchanged: the LEO.
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
    """The follower's appended batches [first, end) carry the leader's epochs into its cache."""
    for k in range(s.cache_len[leader]):
        start = s.cache_start[leader, k]
        stop = s.leo[leader] if k == s.cache_len[leader] - 1 else s.cache_start[leader, k + 1]
        if stop <= first or start >= end:
            continue
        epoch_assign(s, follower, s.cache_epoch[leader, k], max(start, first))


@compiled
def match_epochs(s: State, p: Profile, leader: int, follower: int, offset: int) -> None:
    """A fetch that was accepted says that the logs match up to its offset (log matching, where fetches name epochs).

    Corrects the follower's epochs where the fetches that would have told of a cut are missing.
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
    """The follower's log is the leader's up to `offset`: so are its epochs."""
    n = 0
    while n < s.cache_len[leader] and s.cache_start[leader, n] < offset:
        s.cache_epoch[follower, n], s.cache_start[follower, n] = s.cache_epoch[leader, n], s.cache_start[leader, n]
        n += 1
    s.cache_len[follower] = n


@compiled
def parted_at(s: State, leader: int, follower: int, end: int) -> int:
    """First offset below `end` at which the two logs hold records of different epochs; NONE where there is none."""
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
    """Where a follower cuts that was told: the leader's largest epoch up to mine is `epoch`, and ends at `end`.

    (AbstractFetcherThread.getOffsetTruncationState.) `end` unknown: its own HW. Answers without an epoch (KIP-101,
    before KIP-279): the end, at most its LEO. It has the epoch: the least of the end there, the end here and its LEO.
    It lacks the epoch: where its next lower epoch ends, and that is not yet the place (False): it asks again, or, where
    fetches tell (2.8+), it fetches and may diverge again.
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
