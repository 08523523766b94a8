"""How a broker becomes leader or follower of a partition, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled
from replay.protocol.isr import NEVER_FETCHED, NOTHING_PENDING
from replay.protocol.log import epoch_assign, truncate_to
from replay.protocol.state import NONE, ROLE_FOLLOWER, ROLE_LEADER, State
from replay.protocol.steps import leader_maybe_increment_hw

if TYPE_CHECKING:
    from replay.protocol.profile import Profile


@compiled
def make_leader(s: State, p: Profile, b: int, epoch: int, isr: int, now: int) -> None:
    """Become leader (Partition.makeLeader), step by step.

    The ISR is the one received, and nothing is pending. For a new epoch (before 3.3 for any), the epoch starts at the
    own LEO, and the record of followers is reset. One HW attempt follows.
    """
    led, newer = s.role[b] == ROLE_LEADER, epoch > s.epoch[b]
    s.isr[b], s.maximal_isr[b], s.pending[b] = isr, isr, NOTHING_PENDING
    if newer or not led or not p.leader_reset_by_epoch:
        s.epoch_start[b] = s.leo[b]
        if p.epoch_cached_at_start:
            epoch_assign(s, b, epoch, s.leo[b])
        for r in range(len(s.leo)):
            reset_follower(s, p, b, r, led, bool(isr & (1 << r)), now)
    s.role[b], s.epoch[b], s.follows[b] = ROLE_LEADER, epoch, b
    s.acted[b], s.asked[b], s.settled[b] = now, 0, now
    s.hw_agreed[b], s.hw_apart[b], s.hw_denied[b] = s.hw[b], 0, 0
    s.partition[0].earlier_hw = s.partition[0].true_hw
    leader_maybe_increment_hw(s, p, b, now)


@compiled
def reset_follower(s: State, p: Profile, b: int, r: int, led: bool, in_isr: bool, now: int) -> None:  # noqa: PLR0913, PLR0917, FBT001 - compiled
    """A leader's record of r when its epoch begins (Replica.resetReplicaState).

    If b led before, r's LEO and broker epoch are kept; otherwise they are unknown, so that the HW stays until r has
    fetched. ISR members count as caught up now, other replicas as never caught up (0.10.2+).
    """
    if not led:
        s.remote_leo[b, r], s.remote_start[b, r], s.fetch_epoch[b, r] = NONE, NONE, NONE
    s.blocked[b, r], s.out_for[b, r] = NEVER_FETCHED, NONE
    s.leo_at_fetch[b, r] = s.leo[b] if led else NONE
    s.fetched[b, r] = now if led and (in_isr or not p.leader_reset_by_epoch) else 0
    if p.caught_up_at_start:
        s.caught_up[b, r] = now if in_isr else 0


@compiled
def follows_anew(s: State, p: Profile, b: int, leader: int, epoch: int) -> bool:
    """Whether following `leader` restarts b's fetcher (ReplicaManager.makeFollowers skips other cases).

    Another leader always does; a new epoch of the same leader does in some versions.
    """
    if leader == NONE or s.follows[b] != leader or s.role[b] != ROLE_FOLLOWER:
        return True
    if p.refollow_on_new_epoch:
        return epoch != s.epoch[b]
    return bool(p.refollow_on_missed_epoch) and epoch not in (s.epoch[b], s.epoch[b] + 1)


@compiled
def make_follower(s: State, p: Profile, b: int, leader: int, epoch: int) -> None:
    """Become follower of `leader` (Partition.makeFollower, ReplicaManager.makeFollowers).

    Before 0.11 the log is truncated to its own HW. Since then log and HW stay; the fetcher finds out where to truncate.
    """
    anew = follows_anew(s, p, b, leader, epoch)
    s.role[b], s.epoch[b], s.follows[b] = ROLE_FOLLOWER, epoch, leader
    s.isr[b], s.maximal_isr[b], s.pending[b] = 0, 0, NOTHING_PENDING
    if anew and p.truncate_to_hw:
        truncate_to(s, p, b, s.hw[b])
