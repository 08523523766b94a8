"""What completed each fetch, from what it asked for, what its answer says, and what the leader held.

`completion` says what caused a fetch to be answered (kafka.server.ReplicaManager.fetchMessages, DelayedFetch);
`expected_wait` says how long the rules make it wait, regardless of what its line says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled
from replay.engine import stamps
from replay.engine.codes import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_TOPIC_ID,
    REPLICA_NOT_AVAILABLE,
    UNKNOWN_TOPIC_ID,
)
from replay.engine.stamps import CLOCK_SLACK_US
from replay.protocol.deletion import OFFSET_OUT_OF_RANGE
from replay.protocol.produce import KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION
from replay.protocol.state import BOUNDED, DERIVED, NONE, OBSERVED, UNKNOWN, UNSET
from schemas.rounds import COMPLETIONS

if TYPE_CHECKING:
    from replay.arrays.records import Records
    from replay.engine.purgatory import Held
    from replay.protocol.profile import Profile

(
    NO_WAIT,
    NO_PARTITIONS,
    ENOUGH_BYTES,
    ERROR,
    HW_NOT_TOLD,
    DIVERGING_EPOCH,
    PREFERRED_REPLICA,
    BYTES,
    HW_MOVED,
    TIMEOUT,
    SEGMENT_ROLL,
    NOT_LEADER,
    TRUNCATED_LEADER,
    FENCED_EPOCH,
    REPLICA_REMOVED,
    LOG_DIR_OFFLINE,
    REMOTE_STORAGE,
    THROTTLED,
    OTHER_PARTITION,
    NOT_KNOWN,
) = range(len(COMPLETIONS))
LOCAL, REMOTE = 0, 1  # where a consumer's fetch is read: its broker's own log, or the remote tier


class Asked:
    """What a fetch asked for, and what it was answered."""

    is_follower: int
    offset: int
    bytes: int
    request_bytes: int  # UNSET: unknown
    request_forced: int
    max_wait_us: int
    min_bytes: int
    local_us: int
    wait_us: int
    throttle_us: int
    error_code: int
    is_diverging: int
    preferred_replica: int
    run_count: int  # UNSET: one fetch
    run_timeouts: int
    is_left_out: int
    remote_storage: int
    leader_throttled: int
    older_segment: int  # 1: by lines about rolls, its offset lies on an older segment than the end that it may read
    later_segment: int  # 1: by such lines, on a later one
    stable: int  # the LSO in its answer, up to which a read_committed consumer reads; UNSET for all others
    ts: int  # when it was answered
    read_from: int  # by lines about the local log start, where a consumer's fetch was read; UNSET: not known


class Completion:
    """What completed a fetch, and how long it waited."""

    completed_by: int  # COMPLETIONS
    evidence: int  # the evidence for that
    expected_wait: int  # by the rules: AT_ONCE, EARLY, IN_FULL; UNSET: unknown
    measured_wait: int  # according to its line
    quota_rate: int  # bytes per second that count towards a replication quota, at least; NONE: no limit holds
    quota_limit: int


timed_out = compiled(stamps.timed_out)


@compiled
def waited_out(asked: Asked) -> bool:
    """Whether it waited until it timed out."""
    return timed_out(asked.local_us, asked.wait_us, asked.max_wait_us)


@compiled
def request_bytes(asked: Asked) -> int:
    """Bytes of the whole answer; if unknown, those of this partition."""
    return int(max(asked.request_bytes, asked.bytes, 0))


@compiled
def leader_throttles(asked: Asked, saw: Held) -> bool:
    """Whether the leader's replication quota withheld records from a follower outside the ISR (KIP-73).

    That is so if the partition is listed as throttled there, and records were available when the fetch came, and yet it
    was parked, or answered without any.
    """
    if not asked.leader_throttled or not asked.is_follower or saw.in_isr:
        return False
    if saw.settled_leo <= asked.offset or asked.min_bytes > 1:
        return False
    return bool(asked.wait_us > 0 or asked.bytes <= 0)


@compiled
def hw_is_news(p: Profile, asked: Asked, saw: Held) -> bool:
    """Whether the HW is new to the follower, which in 2.4 and 2.5 alone completes its fetch (KAFKA-8443)."""
    return bool(p.hw_told_at_once) and asked.is_follower == 1 and saw.hw > saw.told_hw


@compiled
def may_be_news_elsewhere(p: Profile, asked: Asked) -> bool:
    """Whether another partition's HW may have completed the fetch, which leaves no trace in this one (KAFKA-8443)."""
    return bool(p.hw_told_at_once) and asked.is_follower == 1


@compiled
def is_beyond_end(asked: Asked, saw: Held) -> bool:
    """Whether the fetch offset is beyond what may be read: the leader truncated, or has yet to raise its HW.

    Such a fetch is completed as soon as it is parked, so its line has no wait.
    """
    return bool(asked.offset > (saw.leo if asked.is_follower else saw.hw))


@compiled
def completes_past_end(p: Profile, asked: Asked) -> bool:
    """Whether a fetch beyond the end surely completes: 3.8+ always, before only if the end is on an older segment."""
    return bool(p.past_end_completes or asked.later_segment == 1)


@compiled
def after_error(error: int) -> int:
    """What completed a parked fetch that was then refused (cases A to E of DelayedFetch.tryComplete)."""
    if error == NOT_LEADER_OR_FOLLOWER:
        return NOT_LEADER
    if error == FENCED_LEADER_EPOCH:
        return FENCED_EPOCH
    if error == KAFKA_STORAGE_ERROR:
        return LOG_DIR_OFFLINE
    if error in (UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID):
        return REPLICA_REMOVED
    return TRUNCATED_LEADER if error == OFFSET_OUT_OF_RANGE else ERROR


@compiled
def completion_at_once(p: Profile, asked: Asked, saw: Held) -> tuple[int, int]:
    """Why a fetch was not parked (ReplicaManager.fetchMessages), and the evidence for that."""
    if asked.error_code > 0:
        return ERROR, OBSERVED
    if asked.is_diverging:
        return DIVERGING_EPOCH, OBSERVED
    if asked.preferred_replica >= 0:
        return PREFERRED_REPLICA, OBSERVED
    if asked.max_wait_us <= 0:
        return NO_WAIT, OBSERVED
    if leader_throttles(asked, saw):
        return THROTTLED, BOUNDED
    if request_bytes(asked) >= asked.min_bytes:
        here = asked.bytes > 0 or asked.min_bytes <= 0
        return (ENOUGH_BYTES if here else OTHER_PARTITION), DERIVED
    if hw_is_news(p, asked, saw):
        return HW_NOT_TOLD, DERIVED
    if is_beyond_end(asked, saw):
        return TRUNCATED_LEADER, DERIVED if completes_past_end(p, asked) else BOUNDED
    if asked.older_segment == 1:
        return SEGMENT_ROLL, DERIVED
    if asked.request_forced == 1:
        return OTHER_PARTITION, DERIVED
    return (OTHER_PARTITION, BOUNDED) if may_be_news_elsewhere(p, asked) else (NOT_KNOWN, UNKNOWN)


@compiled
def completion_of_enough(asked: Asked, saw: Held) -> tuple[int, int]:
    """What completed a parked fetch whose answer has as much as it asked for (case G of DelayedFetch.tryComplete)."""
    if asked.bytes <= 0:
        return OTHER_PARTITION, DERIVED
    if asked.is_follower:
        return BYTES, DERIVED
    parked = asked.ts - asked.wait_us
    if asked.remote_storage == 1 and saw.raised < parked - CLOCK_SLACK_US:
        if asked.read_from == LOCAL and request_bytes(asked) > asked.bytes:
            return OTHER_PARTITION, BOUNDED  # another one's records are in the tier
        return REMOTE_STORAGE, BOUNDED
    return HW_MOVED, DERIVED


@compiled
def completion_of_parked(p: Profile, asked: Asked, saw: Held) -> tuple[int, int]:
    """What completed a parked fetch (DelayedFetch.tryComplete), and the evidence for that."""
    if asked.error_code > 0:
        return after_error(asked.error_code), OBSERVED
    if asked.is_diverging:
        return DIVERGING_EPOCH, OBSERVED
    if leader_throttles(asked, saw):
        return THROTTLED, BOUNDED
    if asked.read_from == REMOTE and asked.bytes > 0:
        return REMOTE_STORAGE, DERIVED
    if request_bytes(asked) >= max(asked.min_bytes, 1):
        return completion_of_enough(asked, saw)
    if waited_out(asked):
        return TIMEOUT, DERIVED
    if hw_is_news(p, asked, saw):
        return HW_MOVED, DERIVED
    if is_beyond_end(asked, saw):
        return TRUNCATED_LEADER, DERIVED if completes_past_end(p, asked) else BOUNDED
    if asked.older_segment == 1:
        return SEGMENT_ROLL, DERIVED
    if asked.request_forced == 1:
        return OTHER_PARTITION, DERIVED
    if asked.bytes > 0:
        return SEGMENT_ROLL, BOUNDED
    return (OTHER_PARTITION, BOUNDED) if may_be_news_elsewhere(p, asked) else (NOT_KNOWN, UNKNOWN)


@compiled
def completion(p: Profile, asked: Asked, saw: Held) -> tuple[int, int]:
    """What completed a fetch, and the evidence for that.

    `asked` is what it asked for and was answered (`Asked`), `saw` what the leader held (`Held`).
    """
    if asked.is_left_out:
        return (THROTTLED, BOUNDED) if asked.wait_us > 0 or asked.request_bytes > 0 else (NO_PARTITIONS, BOUNDED)
    if asked.throttle_us > 0:
        return THROTTLED, OBSERVED
    if asked.run_count != UNSET:
        all_timed_out = asked.run_timeouts == asked.run_count
        return (TIMEOUT, DERIVED) if all_timed_out else (OTHER_PARTITION, DERIVED)
    if asked.wait_us > 0:
        return completion_of_parked(p, asked, saw)
    return completion_at_once(p, asked, saw)


AT_ONCE, EARLY, IN_FULL = 0, 1, 2  # how long a fetch waited


@compiled
def measured_wait(asked: Asked) -> int:
    """How long it waited, according to its line."""
    if asked.wait_us <= 0:
        return AT_ONCE
    return IN_FULL if waited_out(asked) else EARLY


@compiled
def was_read_remotely(asked: Asked, measured: int) -> bool:
    """Whether a consumer's fetch, whose records are there, is read from the remote tier (3.6+).

    `DelayedRemoteFetch` always waits, and ends as soon as they are. What lies below the broker's local log start is in
    the tier alone. If no line tells where that is, or if other partitions of the request have records, which may be
    in the tier, that the fetch waited is what tells.
    """
    if asked.is_follower or (asked.remote_storage != 1 and asked.read_from != REMOTE):
        return False
    if asked.read_from == REMOTE and (asked.bytes > 0 or request_bytes(asked) <= 0):
        return True
    alone = asked.read_from == LOCAL and request_bytes(asked) <= asked.bytes
    return bool(measured != AT_ONCE and not alone)


@compiled
def waited_for_lso(asked: Asked, measured: int) -> bool:
    """Whether a read_committed consumer found nothing to read although the HW is beyond its offset.

    The LSO never falls: it was not beyond the offset at the beginning if it is not at the end, and it may have risen if
    something ended the wait.
    """
    return bool(asked.stable != UNSET and (asked.stable <= asked.offset or measured == EARLY))


@compiled
def expected_wait(p: Profile, asked: Asked, saw: Held) -> int:
    """How long the replayed state makes a fetch wait; UNSET if unknown.

    If the state allows several outcomes, `measured_wait` is returned. The measured wait is used for nothing else,
    except to tell which moment of the leader's state was the beginning of the wait.
    """
    measured = measured_wait(asked)
    failed = asked.error_code > 0 or asked.is_diverging or asked.preferred_replica >= 0 or asked.throttle_us > 0
    if failed or asked.is_left_out or asked.run_count != UNSET or leader_throttles(asked, saw):
        return UNSET
    if asked.max_wait_us <= 0 or asked.min_bytes <= 0:
        return AT_ONCE
    if asked.request_bytes == UNSET or asked.min_bytes > 1:
        return UNSET
    if asked.is_follower:
        there = saw.settled_leo if measured != AT_ONCE else saw.leo
    elif measured == AT_ONCE:
        there = saw.hw
    elif waited_for_lso(asked, measured) or saw.raised >= asked.ts - asked.wait_us - CLOCK_SLACK_US:
        there = NONE  # the HW rose while it waited, so it was lower before; or the LSO was
    else:
        there = saw.hw
    if there > asked.offset:
        return EARLY if was_read_remotely(asked, measured) else AT_ONCE
    if is_beyond_end(asked, saw) and not completes_past_end(p, asked):
        return measured  # it completes only if the end is on an older segment than the offset, which no line tells
    if hw_is_news(p, asked, saw) or asked.request_forced == 1 or is_beyond_end(asked, saw):
        return min(measured, EARLY)
    if request_bytes(asked) <= 0:
        return measured if may_be_news_elsewhere(p, asked) else IN_FULL
    if measured == AT_ONCE and asked.request_bytes == asked.bytes:
        return EARLY
    return measured  # also IN_FULL: data that came with the last tick, or while the broker stood still


@compiled
def completions(p: Profile, asked: Records[Asked], saw: Records[Held], found: Records[Completion]) -> None:
    """Write into `found` what completed each fetch, and how long it waited."""
    for k in range(len(asked)):
        out = found[k]
        out.completed_by, out.evidence = completion(p, asked[k], saw[k])
        out.expected_wait, out.measured_wait = expected_wait(p, asked[k], saw[k]), measured_wait(asked[k])
