"""A replica's log as its epochs see it: the leader epoch cache and what follows from it (KIP-101, KIP-279).

A log is a row of the epoch cache plus its LEO: entry k says that the records from `cache_start[k]` up to the next
entry's start were appended by the leader of `cache_epoch[k]`. What the model leaves out: batches' bytes.
"""

from __future__ import annotations

from replay.jit import compiled
from replay.state import CACHE_CAPACITY, NONE, State


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
def epoch_at(s: State, b: int, offset: int) -> int:
    """Epoch of the record at `offset` in b's log; -1 where the cache does not reach back to it."""
    for k in range(s.cache_len[b] - 1, -1, -1):
        if s.cache_start[b, k] <= offset:
            return s.cache_epoch[b, k]
    return NONE


@compiled
def end_offset_for(s: State, b: int, epoch: int) -> tuple[int, int]:
    """Largest epoch <= `epoch` in b's log and where it ends (LeaderEpochFileCache.endOffsetFor); (-1, -1) unknown."""
    n = s.cache_len[b]
    for k in range(n - 1, -1, -1):
        if s.cache_epoch[b, k] <= epoch:
            end = s.leo[b] if k == n - 1 else s.cache_start[b, k + 1]
            return s.cache_epoch[b, k], end
    return NONE, NONE


@compiled
def truncate_to(s: State, b: int, offset: int) -> int:
    """Cut b's log to end at `offset` (UnifiedLog.truncateTo, 2.4+): LEO and HW come down to it, epochs above go.

    Returns how many offsets went. Never raises the LEO.
    """
    removed = s.leo[b] - offset
    if removed <= 0:
        return 0
    s.leo[b] = offset
    s.hw[b] = min(s.hw[b], offset)
    n = s.cache_len[b]
    while n > 0 and s.cache_start[b, n - 1] >= offset:
        n -= 1
    s.cache_len[b] = n
    return removed


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
def diverging_target(s: State, follower: int, epoch: int, end: int) -> int:
    """Where a follower cuts that was told: the leader's `epoch` ends at `end` (AbstractFetcherThread, KIP-279)."""
    own_epoch, own_end = end_offset_for(s, follower, epoch)
    target = min(end, s.leo[follower])
    if own_epoch == NONE:
        return target
    return min(target, own_end)
