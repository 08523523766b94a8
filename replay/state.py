"""The state of one partition: what every broker holds of it, and what leaders remember of their followers.

Brokers are dense indices 0..n-1; sets of brokers are bit masks. All values are int64, times in microseconds.
State is a record per replica and an epoch cache per replica, so it does not grow with the events.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

NONE = -1  # no broker, no offset, no epoch
UNSET = -2  # a field that an event does not carry (offsets and epochs may be -1 in Kafka)

ROLE_NONE, ROLE_FOLLOWER, ROLE_LEADER = 0, 1, 2
OBSERVED, DERIVED, BOUNDED, UNKNOWN = 0, 1, 2, 3
CACHE_CAPACITY = 512  # epochs kept per replica; beyond it the oldest half is forgotten


class State(NamedTuple):
    """One partition. `[b]`: held by broker b; `[b, r]`: held by leader b of replica r."""

    leo: Ints  # [b] log end offset of b's own log
    hw: Ints  # [b] high watermark of b
    log_start: Ints  # [b] log start offset of b
    role: Ints  # [b] ROLE_*
    epoch: Ints  # [b] leader epoch that b acts under; -1 none yet
    epoch_start: Ints  # [b] LEO when b became leader of that epoch
    follows: Ints  # [b] broker that b took for the leader last, itself when it leads; -1 none since it started
    isr: Ints  # [b] committed ISR as leader b knows it, a mask
    maximal_isr: Ints  # [b] ISR with pending expansions, a mask
    pending: Ints  # [b] not 0 while an ISR change of b is in flight: predicted or asked for (`isr_lifecycle`)
    leo_evidence: Ints  # [b] how leo is known
    hw_evidence: Ints  # [b] how hw is known
    remote_leo: Ints  # [b, r] leader's record of r's LEO; -1 none
    caught_up: Ints  # [b, r] when r was last caught up
    leo_at_fetch: Ints  # [b, r] leader's LEO at r's previous fetch; -1 none
    fetched: Ints  # [b, r] time of r's previous fetch; 0 none
    blocked: Ints  # [b, r] what kept r out of the ISR at its previous fetch, a mask (`isr_lifecycle`)
    out_for: Ints  # [b, r] for how long r has been out of sync while b was awake; -1 it is not
    acted: Ints  # [b] when b last did something as leader; 0 never
    remote_start: Ints  # [b, r] leader's record of r's log start; -1 none
    hw_sent: Ints  # [b, r] HW that the leader had at r's previous fetch: what it takes r to have been told
    asked: Ints  # [b] who b has asked to join and has not got yet, a mask
    settled: Ints  # [b] when b's last ISR change ended; 0 never
    cache_epoch: Ints  # [b, k] leader epoch cache: epochs, rising
    cache_start: Ints  # [b, k] their start offsets
    cache_len: Ints  # [b]
    fenced: Ints  # [b] 1 while the controller has b fenced or unregistered
    stopping: Ints  # [b] 1 while b is in controlled shutdown
    unsure_from: Ints  # [b] offsets from here
    unsure_until: Ints  # [b] to here nothing says whose records b's log holds; none where that is not larger
    gone: Ints  # [b] 1 once b is out of the assignment: it deletes its log
    cluster: Ints  # [CLUSTER_*] what holds for the partition as a whole


MIN_ISR, LAG_US, ASSIGNED, TRUE_HW = 0, 1, 2, 3  # indices into State.cluster


def new_state(brokers: int, *, min_isr: int, lag_us: int) -> State:
    """An empty partition: logs at 0, nobody leads, nobody is fenced."""

    def zeros() -> Ints:
        return np.zeros(brokers, np.int64)

    def square(value: int) -> Ints:
        return np.full((brokers, brokers), value, np.int64)

    cluster = np.zeros(4, np.int64)
    cluster[MIN_ISR], cluster[LAG_US] = min_isr, lag_us
    return State(
        leo=zeros(),
        hw=zeros(),
        log_start=zeros(),
        role=zeros(),
        epoch=np.full(brokers, NONE, np.int64),
        epoch_start=zeros(),
        follows=np.full(brokers, NONE, np.int64),
        isr=zeros(),
        maximal_isr=zeros(),
        pending=zeros(),
        leo_evidence=zeros(),
        hw_evidence=zeros(),
        remote_leo=square(NONE),
        caught_up=square(0),
        leo_at_fetch=square(NONE),
        fetched=square(0),
        blocked=square(0),
        out_for=square(NONE),
        acted=zeros(),
        remote_start=square(NONE),
        hw_sent=square(0),
        asked=zeros(),
        settled=zeros(),
        cache_epoch=np.full((brokers, CACHE_CAPACITY), NONE, np.int64),
        cache_start=np.zeros((brokers, CACHE_CAPACITY), np.int64),
        cache_len=zeros(),
        fenced=zeros(),
        stopping=zeros(),
        unsure_from=zeros(),
        unsure_until=zeros(),
        gone=zeros(),
        cluster=cluster,
    )
