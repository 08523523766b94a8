"""A partition of three brokers, small enough to be set up by hand: A leads, B and C follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.arrays.records import blank
from replay.engine import apply as engine
from replay.engine.emit import FoldRows, new_rows, rows_of
from replay.engine.event_record import EventRecord
from replay.engine.kernel import fold
from replay.engine.moves import new_moves
from replay.engine.purgatory import new_purgatory, with_room
from replay.protocol.profile import Profile, profile_of
from replay.protocol.role_changes import make_follower, make_leader
from replay.protocol.state import DERIVED, NONE, OBSERVED, OF_BROKER, OF_CACHE, OF_REMOTE, UNSET, State, new_state

if TYPE_CHECKING:
    from replay.arrays.records import Records

A, B, C = 0, 1, 2
ALL = 0b111
LAG = 10_000_000
NOW = 1_000_000_000
EPOCH = 5
LATEST = profile_of((4, 1, 0))


def led(isr: int = ALL, *, min_isr: int = 1, profile: Profile = LATEST) -> State:
    """A leads epoch 5 from offset 0, B and C follow, nobody has fetched."""
    s = new_state(3, min_isr=min_isr, lag_us=LAG)
    s.partition[0].assigned = ALL
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


def behind(profile: Profile = LATEST) -> State:
    """A leads at 9; C is a member at 4 that was caught up at NOW, B is at 9."""
    s = at(led(profile=profile), leo=9, remote={B: 9, C: 4}, hw=4)
    s.caught_up[A, B] = s.caught_up[A, C] = NOW
    return s


def event(kind: int, **fields: int) -> EventRecord:
    e = blank(1, EventRecord, UNSET)
    for name in ("broker", "replica", "leader"):
        e[name] = NONE
    for name in ("duplicate", "error_code", "evidence", "seq"):
        e[name] = OBSERVED
    for name, value in {
        "next_offset_evidence": DERIVED, "ts": NOW, "leader_epoch": EPOCH, "kind": kind, **fields
    }.items():  # fmt: skip
        e[name] = value
    return e[0]


def events_in(*found: EventRecord) -> Records[EventRecord]:
    """Events one after the other."""
    out = blank(len(found), EventRecord)
    for k, one in enumerate(found):
        out[k] = one
    return out


def apply(s: State, kind: int, *, profile: Profile = LATEST, **fields: int) -> int:
    return engine.apply(s, profile, event(kind, **fields), new_moves())


def folded(s: State, *events: EventRecord, profile: Profile = LATEST) -> FoldRows:
    """The rows that the fold makes of events, of a partition whose ISR was complete."""
    rows, some = new_rows(len(events), len(events), len(s.leo)), events_in(*events)
    fold(s, profile, some, ALL, new_moves(), rows, with_room(new_purgatory(len(s.leo)), len(s.leo), len(events)))
    return rows_of(rows)


def changed(before: State, after: State) -> set[str]:
    fields = (*OF_BROKER, *OF_REMOTE, *OF_CACHE, "partition")
    return {name for name in fields if not np.array_equal(getattr(before, name), getattr(after, name))}
