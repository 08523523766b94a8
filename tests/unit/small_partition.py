"""A partition of three brokers, small enough to be set up by hand: A leads, B and C follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.engine import codes as c
from replay.engine import kernel
from replay.protocol.profile import Profile, profile_of
from replay.protocol.role_changes import make_follower, make_leader
from replay.protocol.state import ASSIGNED, DERIVED, NONE, OF_BROKER, OF_CACHE, OF_REMOTE, UNSET, State, new_state

if TYPE_CHECKING:
    from replay.arrays.ints import Ints

A, B, C = 0, 1, 2
ALL = 0b111
LAG = 10_000_000
NOW = 1_000_000_000
EPOCH = 5
LATEST = profile_of((4, 1, 0))


def led(isr: int = ALL, *, min_isr: int = 1, profile: Profile = LATEST) -> State:
    """A leads epoch 5 from offset 0, B and C follow, nobody has fetched."""
    s = new_state(3, min_isr=min_isr, lag_us=LAG)
    s.cluster[ASSIGNED] = ALL
    make_leader(s, profile, A, EPOCH, isr, NOW)
    for follower in (B, C):
        make_follower(s, profile, follower, A, EPOCH)
    return s


def at(s: State, *, leo: int, remote: dict[int, int] | None = None, hw: int = 0) -> State:
    """The same with offsets: A's LEO and HW, and A's record of its followers."""
    s.leo[A], s.hw[A] = leo, hw
    for follower, offset in (remote or {}).items():
        s.remote_leo[A, follower] = s.leo[follower] = offset
    return s


def event(kind: int, **fields: int) -> Ints:
    e = np.full(c.EVENT_WIDTH, UNSET, np.int64)
    e[[c.E_BROKER, c.E_REPLICA, c.E_LEADER]] = NONE
    e[[c.E_DUPLICATE, c.E_ERROR, c.E_EVIDENCE, c.E_SEQ]] = 0
    e[c.E_END_EVIDENCE] = DERIVED
    e[c.E_TS], e[c.E_EPOCH], e[c.E_KIND] = NOW, EPOCH, kind
    for name, value in fields.items():
        e[getattr(c, f"E_{name.upper()}")] = value
    return e


def apply(s: State, kind: int, *, profile: Profile = LATEST, **fields: int) -> int:
    return kernel.apply(s, profile, event(kind, **fields))


def changed(before: State, after: State) -> set[str]:
    fields = (*OF_BROKER, *OF_REMOTE, *OF_CACHE, "cluster")
    return {name for name in fields if not np.array_equal(getattr(before, name), getattr(after, name))}
