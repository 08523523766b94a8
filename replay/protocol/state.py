"""The state of one partition: what every broker holds of it, and what leaders remember of their followers.

Brokers are dense indices 0..n-1; sets of brokers are bit masks. All values are int64, times in microseconds. The state
is one record and one epoch cache per replica, so it does not grow with the events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.arrays.bundle import bundle
from replay.arrays.records import blank

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.arrays.records import Records

NONE = -1  # no broker, no offset, no epoch
UNSET = -2  # a field that an event does not carry (offsets and epochs may be -1 in Kafka)

ROLE_NONE, ROLE_FOLLOWER, ROLE_LEADER = 0, 1, 2
OBSERVED, DERIVED, BOUNDED, UNKNOWN = 0, 1, 2, 3
# Who says that a broker is shutting down: its registration, which every broker has, or ZooKeeper's controller, which
# keeps it to itself.
STOPPING_REGISTERED, STOPPING_UNTOLD = 1, 2
CACHE_CAPACITY = 512  # epochs kept per replica; when full, the oldest half is dropped


class PartitionRecord:
    """State of the partition as a whole."""

    min_isr: int  # min.insync.replicas
    lag_us: int  # replica.lag.time.max.ms
    assigned: int  # a mask
    true_hw: int  # the highest known HW
    stated_hw: int  # the highest stated HW
    earlier_hw: int  # the highest HW known when the newest leader epoch began
    decision: int  # evidence of the newest decision, and thus of the ISR


class State(NamedTuple):
    """One partition. `[b]`: held by broker b; `[b, r]`: held by leader b about replica r. Made by `new_state`."""

    leo: Ints  # [b] log end offset of b's own log
    hw: Ints  # [b] high watermark of b
    log_start: Ints  # [b] log start offset of b
    future_start: Ints  # [b] log start offset of b's future log; -1: it has none
    role: Ints  # [b] ROLE_*
    epoch: Ints  # [b] leader epoch that b acts under; -1: none yet
    epoch_start: Ints  # [b] LEO when b became leader of that epoch
    follows: Ints  # [b] the leader b followed last, itself when it leads; -1: none since it started
    isr: Ints  # [b] committed ISR as leader b knows it, a mask
    maximal_isr: Ints  # [b] ISR with pending expansions, a mask
    pending: Ints  # [b] not 0 while an ISR change of b is in flight: predicted or asked for (`isr`)
    leo_evidence: Ints  # [b] evidence of leo
    leo_sure: Ints  # [b] lower bound of leader b's log end while leo is bounded
    hw_evidence: Ints  # [b] evidence of hw
    hw_untaken: Ints  # [b] HW of follower b before the last answer, which may not have reached it
    remote_leo: Ints  # [b, r] leader's record of r's LEO; -1: none
    caught_up: Ints  # [b, r] when r was last caught up
    leo_at_fetch: Ints  # [b, r] leader's LEO at r's previous fetch; -1: none
    fetched: Ints  # [b, r] time of r's previous fetch; 0: none
    blocked: Ints  # [b, r] what kept r out of the ISR at its previous fetch, or its fencing since, a mask (`isr`)
    out_for: Ints  # [b, r] how long r has been out of sync while b was awake; -1: it is in sync
    out_since: Ints  # [b, r] since when, if `out_for` says that it is
    hw_agreed: Ints  # [b] HW of leader b at which computed and stated values last agreed
    hw_apart: Ints  # [b] since when the computed HW is higher than that; 0: it is not
    hw_denied: Ints  # [b] how many statements in a row deny the higher HW
    acted: Ints  # [b] when b last acted as leader; 0: never
    remote_start: Ints  # [b, r] leader's record of r's log start; -1: none
    fetch_epoch: Ints  # [b, r] broker epoch that r's last fetch named; -1: it named none, or no source says
    asked: Ints  # [b] replicas that b asked to add and that were not added yet, a mask
    settled: Ints  # [b] when b's last ISR change ended; 0: never
    cache_epoch: Ints  # [b, k] leader epoch cache: epochs, rising
    cache_start: Ints  # [b, k] their start offsets
    cache_len: Ints  # [b]
    broker_epoch: Ints  # [b] epoch of b's registration (KRaft); -1: no source tells it
    fenced: Ints  # [b] 1 while the controller considers b fenced or unregistered
    stopping: Ints  # [b] STOPPING_* while b is in controlled shutdown, else 0
    unsure_from: Ints  # [b] from this offset
    unsure_until: Ints  # [b] up to this one, the epochs of b's records are unknown; an empty range: none
    gone: Ints  # [b] 1 once b has left the assignment: it deletes its log
    partition: Records[PartitionRecord]  # [0] state of the partition as a whole
    broker: Ints  # [field, b] storage of the fields [b] (OF_BROKER)
    remote: Ints  # [field, b, r] storage of the fields [b, r] (OF_REMOTE)
    cache: Ints  # [field, b, k] storage of the fields [b, k] (OF_CACHE)


OF_BROKER = (
    "leo", "hw", "log_start", "future_start", "role", "epoch", "epoch_start", "follows", "isr", "maximal_isr",
    "pending", "leo_evidence", "leo_sure", "hw_evidence", "hw_untaken", "hw_agreed", "hw_apart", "hw_denied", "acted",
    "asked", "settled", "cache_len", "broker_epoch", "fenced", "stopping", "unsure_from", "unsure_until", "gone",
)  # fmt: skip
OF_REMOTE = (
    "remote_leo", "caught_up", "leo_at_fetch", "fetched", "blocked", "out_for", "out_since", "remote_start",
    "fetch_epoch",
)  # fmt: skip
OF_CACHE = ("cache_epoch", "cache_start")
bundle(
    State,
    {"broker": 2, "remote": 3, "cache": 3, "partition": PartitionRecord},
    {"broker": OF_BROKER, "remote": OF_REMOTE, "cache": OF_CACHE},
)

MIN_ISR_UNKNOWN = 0


def new_state(brokers: int, *, min_isr: int, lag_us: int) -> State:
    """An empty partition: logs at 0, nobody leads, nobody is fenced."""
    state = laid_out(
        np.zeros((len(OF_BROKER), brokers), np.int64),
        np.zeros((len(OF_REMOTE), brokers, brokers), np.int64),
        np.zeros((len(OF_CACHE), brokers, CACHE_CAPACITY), np.int64),
        blank(1, PartitionRecord),
    )
    state.partition[0].min_isr, state.partition[0].lag_us = min_isr, lag_us
    for unknown in (
        state.epoch, state.follows, state.remote_leo, state.leo_at_fetch, state.out_for, state.remote_start,
        state.cache_epoch, state.future_start, state.fetch_epoch, state.broker_epoch,
    ):  # fmt: skip
        unknown[:] = NONE
    return state


def laid_out(broker: Ints, remote: Ints, cache: Ints, partition: Records[PartitionRecord]) -> State:
    """A state whose fields are stored in these blocks."""
    fields = dict(zip((*OF_BROKER, *OF_REMOTE, *OF_CACHE), (*broker, *remote, *cache), strict=True))
    return State(**fields, broker=broker, remote=remote, cache=cache, partition=partition)


def copied(state: State) -> State:
    """A copy of the state."""
    return laid_out(state.broker.copy(), state.remote.copy(), state.cache.copy(), state.partition.copy())


def grown(state: State, brokers: int) -> State:
    """The same state with room for more brokers."""
    wider, n = new_state(brokers, min_isr=MIN_ISR_UNKNOWN, lag_us=0), len(state.leo)
    wider.broker[:, :n], wider.partition[:] = state.broker, state.partition
    wider.remote[:, :n, :n], wider.cache[:, :n] = state.remote, state.cache
    return wider
