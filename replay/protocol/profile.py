"""What differs between Kafka versions, as a table of switches in one place.

A rule never asks for a version: it asks for a switch. `profile_of` turns a version into switches; the source of each is
named beside it. A broker has its own profile, from one of its starts to the next. The model leaves out
replica.lag.max.messages of 0.8.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

Version = tuple[int, int, int]
Protocol = tuple[int, int, int]  # inter.broker.protocol.version: major, minor, IV


class Profile(NamedTuple):
    """Switches, 1 on and 0 off. Integers, so that the compiled kernel can carry them."""

    # HW and ISR
    hw_over_caught_up: int  # 0.10.2+: the HW also waits for caught-up replicas outside the ISR
    hw_over_maximal_isr: int  # 2.7+ (KIP-497): HW candidates are the maximal ISR, not the committed one
    hw_caught_up_by_leo: int  # 3.3+: a replica at the leader's LEO counts as caught up, whatever the time
    hw_caught_up_eligible: int  # 3.6+ (KAFKA-15021): outside the ISR it counts only if it may join
    hw_needs_min_isr: int  # 3.7+ (KAFKA-15583): no raise while the committed ISR is below min.insync.replicas
    verifies_transactions: int  # 3.6+ (KIP-890): a transactional batch is taken once the coordinator has verified it
    min_isr_within_replicas: int  # 3.7+ (KAFKA-15583): min.insync.replicas counts as at most the number of replicas
    hw_on_every_fetch: int  # <=2.3: each follower fetch attempts a raise; later only if the remote LEO changed
    hw_after_isr_commit: int  # synchronous commits, and 3.1+ (KAFKA-13091): one attempt after each ISR commit
    isr_change_pending: int  # 2.7 with AlterIsr (KIP-497), 2.8+: an ISR change is pending until answered; one in flight
    asks_controller: int  # 2.7-IV2+ (KIP-497): the controller writes the ISR that a leader asks for
    expiry_twice_per_lag: int  # 0.10.2+: the expiry task runs every replica.lag.time.max.ms / 2; before, every lag time
    expiry_spares_equal_leo: int  # 2.1+ (KAFKA-7152): no replica at the leader's LEO is out of sync
    # 2.0.1+ (KAFKA-7128): a replica joins only once it has the start of the leader's epoch
    expand_needs_epoch_start: int
    expand_needs_unfenced: int  # 3.3+ (KIP-841)
    expand_needs_broker_epoch: int  # KRaft 3.5+ (KIP-903): its last fetch is of its broker's newest registration
    # What a leader remembers of its followers
    caught_up_at_previous: int  # 0.10.2+: reaching the LEO of the previous fetch counts as caught up at that time
    caught_up_at_start: int  # 0.10.2+: a new leader considers the ISR caught up now, other replicas never
    remembered_leo_max: int  # 3.3+: the LEO at the previous fetch never falls
    leader_reset_by_epoch: int  # 3.3+: only a new leader epoch resets it, not the same epoch sent again
    failed_read_resets: int  # <=2.3: a fetch that could not be read sets the remote LEO to -1
    update_on_diverging: int  # <=2.8.0 (KAFKA-13141): a diverging fetch still moves the remote LEO
    # What an answer carries
    answer_after_update: int  # 1.0.0, 1.0.1, 1.1.0 (KAFKA-7104): an immediate answer has the HW after the fetch
    # 3.8+: a fetch beyond the readable end completes; before, only if that end lies on an older segment
    past_end_completes: int
    hw_told_at_once: int  # 2.4, 2.5 (KAFKA-8443, KAFKA-9952): an HW not sent yet completes a fetch at once
    # Followers' logs
    hw_from_log_start: int  # 2.4+: a follower's HW is never below its log start
    log_start_follows: int  # 0.11+ (KIP-107): a follower adopts its leader's log start
    truncation_lowers_hw: int  # 2.4+: truncation lowers the HW with the LEO
    truncation_cleans_epochs: int  # 2.6.1+ (KAFKA-10706): truncation drops an empty epoch even if it removes nothing
    truncate_to_hw: int  # <=0.10: becoming follower truncates the log to its own HW
    epoch_end_names_epoch: int  # 2.0+ (KIP-279): an epoch end offset comes with the epoch that ends there
    fetch_names_epoch: int  # 2.1-IV2+ (KIP-320): a leader refuses a follower's fetch of another epoch
    # 2.5+ (KAFKA-9338): also for incremental fetches; before, sessions dropped the named epoch
    session_keeps_epoch: int
    truncate_on_fetch: int  # 2.7-IV1+ (KIP-595, KAFKA-10554): fetches name the last epoch, answers where logs diverge
    refollow_on_missed_epoch: int  # 2.0: a new epoch of the same leader restarts the fetcher only if one was skipped
    refollow_on_new_epoch: int  # 2.1+: any new epoch restarts it
    epoch_cached_at_start: int  # 2.0.1+ (KAFKA-7415): an epoch is cached when taken up; before, with its first batch
    # Followers' fetchers
    partition_fails_alone: int  # 2.3+ (KIP-461): a partition that cannot go on leaves the thread as failed
    thread_waits_too: int  # <=3.0: after a request that failed the thread waits a backoff, then each partition another
    follows_nobody: int  # KRaft 3.3+: a follower whose leader is not alive takes up the role and fetches from nobody
    fenced_by_same_epoch: int  # 2.5+ (AbstractFetcherThread.onPartitionFenced): only if its epoch has not moved since
    preferred_in_isr: int  # 3.3.2+ (KAFKA-14372): consumers are sent to members of the ISR only
    throttled_by_default: int  # 3.9+ (KAFKA-10190): the cluster's replication rate holds for brokers without their own
    samples_kept_by_last_event: int  # 3.8+ (SampledStat): a quota's sample counts until its last event is too old
    cuts_as_it_follows: int  # <=0.10: the log is cut as the role is taken up; then by the new fetcher's thread
    # KRaft 3.0+ (ReplicaManager.applyLocalFollowersDelta): the new fetcher starts before what waits is ended
    starts_fetcher_first: int
    builds_tier_state: int  # 3.5+ (KIP-405): a fetch below the leader's local log makes the follower start there
    # 4.2+ (KAFKA-19112): cleanup.policy may be empty; records of such a topic can be deleted
    deletes_without_policy: int
    groups_ask_all: (
        int  # to 3.9: what coordinators of groups write waits for all replicas; then for the leader (KIP-848)
    )


LATEST: Version = (4, 1, 0)
KIP_101: Protocol = (0, 11, 2)  # 0.11.0-IV2: below it no follower asks where an epoch ends
KIP_279: Protocol = (2, 0, 0)  # 2.0-IV0
KIP_320: Protocol = (2, 1, 2)  # 2.1-IV2: fetches of version 9 and later
TRUNCATE_ON_FETCH: Protocol = (2, 7, 1)  # 2.7-IV1
ALTER_ISR: Protocol = (2, 7, 2)  # 2.7-IV2, ApiVersion.isAlterIsrSupported
# Below ALTER_ISR the leader writes to ZooKeeper: itself up to 2.7, through ZkIsrManager from 2.8 on, which answers at
# once and leaves the change pending if the update lost.
LAST_IV = 99  # a protocol version named without IV means its last one


# Major release of Confluent's platform -> the Kafka release of its first minor one; the others follow one by one.
CONFLUENT = {4: (1, 0), 5: (2, 0), 6: (2, 6), 7: (3, 0), 8: (4, 0)}


def parse_version(text: str | None) -> Version | None:
    """`4.1.0`, `3.9.1-IV0`, `2.8` -> a triple; None: not a version. Confluent's `7.5.0-ccs` is Kafka's 3.5.0."""
    match = re.match(r"\s*v?(\d+)\.(\d+)(?:\.(\d+))?(-cc|-ce)?", text or "")
    if not match:
        return None
    major, minor, patch = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[4] and major in CONFLUENT:
        kafka, first = CONFLUENT[major]
        return kafka, first + minor, patch
    return major, minor, patch


def parse_protocol(text: str | None) -> Protocol | None:
    """`2.7-IV2`, `2.8`, `0.10.2` -> major, minor, IV (the last IV if none is named); None if not a version."""
    match = re.match(r"\s*(\d+)\.(\d+)(?:\.\d+)?(?:-IV(\d+))?", text or "")
    if not match:
        return None
    return int(match[1]), int(match[2]), int(match[3] or LAST_IV)


def profile_of(version: Version, protocol: Protocol | None = None) -> Profile:
    """The switches of that version of apache/kafka (kafka.cluster.Partition, kafka.cluster.Replica).

    `protocol`: inter.broker.protocol.version, which governs what brokers send each other; None: the version's own,
    which is Kafka's default.
    """
    spoken = protocol or (version[0], version[1], LAST_IV)
    requests = version >= (2, 7, 0) and spoken >= ALTER_ISR
    return Profile(
        hw_over_caught_up=int(version >= (0, 10, 2)),
        hw_over_maximal_isr=int(version >= (2, 7, 0)),
        hw_caught_up_by_leo=int(version >= (3, 3, 0)),
        hw_caught_up_eligible=int(version >= (3, 6, 0)),
        hw_needs_min_isr=int(version >= (3, 7, 0)),
        verifies_transactions=int(version >= (3, 6, 0)),
        min_isr_within_replicas=int(version >= (3, 7, 0)),
        hw_on_every_fetch=int(version < (2, 4, 0)),
        hw_after_isr_commit=int(not requests or version >= (3, 1, 0)),
        isr_change_pending=int(requests or version >= (2, 8, 0)),
        asks_controller=int(requests),
        expiry_twice_per_lag=int(version >= (0, 10, 2)),
        expiry_spares_equal_leo=int(version >= (2, 1, 0)),
        expand_needs_epoch_start=int(version >= (2, 0, 1)),
        expand_needs_unfenced=int(version >= (3, 3, 0)),
        expand_needs_broker_epoch=int(version >= (3, 5, 0)),
        caught_up_at_previous=int(version >= (0, 10, 2)),
        caught_up_at_start=int(version >= (0, 10, 2)),
        remembered_leo_max=int(version >= (3, 3, 0)),
        leader_reset_by_epoch=int(version >= (3, 3, 0)),
        failed_read_resets=int(version < (2, 4, 0)),
        update_on_diverging=int(version < (2, 7, 2) or version == (2, 8, 0)),
        answer_after_update=int(version in ((1, 0, 0), (1, 0, 1), (1, 1, 0))),
        past_end_completes=int(version >= (3, 8, 0)),
        hw_told_at_once=int((2, 4, 0) <= version < (2, 6, 0)),
        hw_from_log_start=int(version >= (2, 4, 0)),
        log_start_follows=int(version >= (0, 11, 0)),
        truncation_lowers_hw=int(version >= (2, 4, 0)),
        truncation_cleans_epochs=int(version >= (2, 6, 1)),
        truncate_to_hw=int(spoken < KIP_101),
        epoch_end_names_epoch=int(spoken >= KIP_279),
        fetch_names_epoch=int(spoken >= KIP_320),
        session_keeps_epoch=int(version >= (2, 5, 0)),
        truncate_on_fetch=int(version >= (2, 8, 0) and spoken >= TRUNCATE_ON_FETCH),
        refollow_on_missed_epoch=int((2, 0, 0) <= version < (2, 1, 0)),
        refollow_on_new_epoch=int(version >= (2, 1, 0)),
        epoch_cached_at_start=int(version >= (2, 0, 1)),
        partition_fails_alone=int(version >= (2, 3, 0)),
        thread_waits_too=int(version < (3, 1, 0)),
        follows_nobody=int(version >= (3, 3, 0)),
        fenced_by_same_epoch=int(version >= (2, 5, 0)),
        preferred_in_isr=int(version >= (3, 3, 2)),
        throttled_by_default=int(version >= (3, 9, 0)),
        samples_kept_by_last_event=int(version >= (3, 8, 0)),
        cuts_as_it_follows=int(version < (0, 11, 0)),
        starts_fetcher_first=int(version >= (3, 0, 0)),
        builds_tier_state=int(version >= (3, 5, 0)),
        deletes_without_policy=int(version >= (4, 2, 0)),
        groups_ask_all=int(version < (4, 0, 0)),
    )


def default_lag_ms(version: str | None) -> int:
    """replica.lag.time.max.ms if nothing states it: 10 s, from 2.5 on 30 s (KIP-537)."""
    return 30_000 if (parse_version(version) or LATEST) >= (2, 5, 0) else 10_000


@cache
def profile_named(version: str | None, protocol: str | None) -> Profile:
    """The switches for the version and protocol that a recording names; the newest version's if it names none."""
    return profile_of(parse_version(version) or LATEST, parse_protocol(protocol))


@cache
def is_original_size(version: str | None) -> bool:
    """Whether replicas that are being added do not make a partition under-replicated: 2.5+ (AssignmentState)."""
    return (parse_version(version) or LATEST) >= (2, 5, 0)
