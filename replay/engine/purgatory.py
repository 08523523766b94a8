"""Purgatories: what completed each fetch, and whose fetch committed each acks=all produce.

A fetch is answered at once or parked until something completes it (kafka.server.DelayedFetch); an acks=all produce is
parked until the high watermark has passed its batch (DelayedProduce). `watch` follows the fold, event by event, and
keeps the little that a decision needs: what the leader held when a follower's fetch was taken, the HW it told each
follower last, when its HW last rose, and the batches that are open. `completion` then decides from that, from what the
fetch asked for and from what its answer says; `expected_wait` says how long the rules let it wait, whatever its line
says it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.arrays.bundle import bundle
from replay.arrays.jit import compiled, compiled_in_place
from replay.engine import stamps
from replay.engine.codes import (
    ACK,
    APPEND,
    CONSUMER_READ,
    E_BROKER,
    E_DIVERGING_EPOCH,
    E_DUPLICATE,
    E_END,
    E_END_EVIDENCE,
    E_EPOCH,
    E_ERROR,
    E_EVIDENCE,
    E_EXTRA,
    E_HW,
    E_KIND,
    E_LO,
    E_REPLICA,
    E_SEQ,
    E_TS,
    E_UNTIL,
    E_VALUE,
    FENCED_LEADER_EPOCH,
    FETCH_LEFT_OUT,
    FETCH_READ,
    FETCH_UPDATE,
    INCONSISTENT_TOPIC_ID,
    ISR_REQUEST,
    KAFKA_STORAGE_ERROR,
    LOG_LOAD,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    REPLICA_NOT_AVAILABLE,
    ROLE_CHANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from replay.protocol.state import BOUNDED, DERIVED, NONE, OBSERVED, ROLE_LEADER, UNKNOWN, UNSET, State
from schemas.rounds import COMMIT_CAUSES, COMPLETIONS

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
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
BY_FETCH, BY_APPEND, BY_ISR, BY_ROLE, BY_STATEMENT = range(len(COMMIT_CAUSES))

CLOCK_SLACK_US = stamps.STAMP_EARLY_US + stamps.STAMP_LATE_US  # between two estimates on one broker's clock

# Columns of what a fetch asked and was answered.
(
    A_FOLLOWER,
    A_OFFSET,
    A_BYTES,
    A_REQUEST_BYTES,  # UNSET: not known
    A_REQUEST_FORCED,
    A_MAX_WAIT,
    A_MIN_BYTES,
    A_LOCAL,
    A_WAIT,
    A_THROTTLE,
    A_ERROR,
    A_DIVERGING,
    A_PREFERRED,
    A_RUN,  # UNSET: one fetch
    A_RUN_TIMEOUTS,
    A_LEFT_OUT,
    A_REMOTE_STORAGE,
    A_LEADER_THROTTLED,
    A_TS,  # when it was answered
) = range(19)
ASKED_WIDTH = 19

# Columns of what the leader held.
ROUND_ROW = ("seq", "leo", "hw", "settled_leo", "told_hw", "raised", "in_isr")
W_SEQ, W_LEO, W_HW, W_SETTLED, W_TOLD, W_RAISED, W_IN_ISR = range(7)

# Columns of an open batch, and of its row once it leaves.
COMMIT_ROW = (
    "seq", "broker", "epoch", "base", "end", "evidence", "ts", "commit_seq", "commit_lo", "commit_ts", "cause",
    "replica", "isr", "ack_seq",
)  # fmt: skip
(
    O_SEQ, O_BROKER, O_EPOCH, O_BASE, O_END, O_EVIDENCE, O_TS, O_COMMIT_SEQ, O_COMMIT_LO, O_COMMIT_TS, O_CAUSE,
    O_REPLICA, O_ISR, O_ACK_SEQ,
) = range(14)  # fmt: skip


class Purgatory(NamedTuple):
    """What is waiting, as leader b remembers it, and the rows that left."""

    settled_leo: Ints  # [b, r] LEO that b had for sure when it took r's last fetch
    told_hw: Ints  # [b, r] HW that b last sent to r
    raised: Ints  # [b] when b's HW last rose
    marks: Ints  # [b, MARK_*] b's LEO at two earlier moments, 2 CLOCK_SLACK_US apart at least
    open: Ints  # [k, COMMIT_ROW] acks=all batches that are not yet committed and answered
    rounds: Ints  # [k, ROUND_ROW]
    commits: Ints  # [k, COMMIT_ROW]
    filled: Ints  # rows in open, rounds, commits


bundle(
    Purgatory,
    {"settled_leo": 2, "told_hw": 2, "raised": 1, "marks": 2, "open": 2, "rounds": 2, "commits": 2, "filled": 1},
)

N_OPEN, N_ROUND, N_COMMIT = range(3)
MARK_LEO, MARK_TS, MARK_NEXT_LEO, MARK_NEXT_TS = range(4)


def new_purgatory(brokers: int) -> Purgatory:
    """Nothing waits, and there is no room yet: see `with_room`."""
    return Purgatory(
        settled_leo=np.full((brokers, brokers), NONE, np.int64),
        told_hw=np.zeros((brokers, brokers), np.int64),
        raised=np.zeros(brokers, np.int64),
        marks=np.zeros((brokers, 4), np.int64),
        open=np.zeros((0, len(COMMIT_ROW)), np.int64),
        rounds=np.zeros((0, len(ROUND_ROW)), np.int64),
        commits=np.zeros((0, len(COMMIT_ROW)), np.int64),
        filled=np.zeros(3, np.int64),
    )


def with_room(g: Purgatory, brokers: int, events: int) -> Purgatory:
    """The same purgatory with room for so many brokers and events; rows that left are gone."""
    n, still = len(g.raised), int(g.filled[N_OPEN])
    wider = new_purgatory(brokers)
    for old, new in ((g.settled_leo, wider.settled_leo), (g.told_hw, wider.told_hw)):
        new[:n, :n] = old
    for old, new in ((g.raised, wider.raised), (g.marks, wider.marks)):
        new[:n] = old
    wider.filled[N_OPEN] = still
    room = np.zeros((still + events, len(COMMIT_ROW)), np.int64)
    room[:still] = g.open[:still]
    return wider._replace(open=room, commits=np.zeros_like(room), rounds=np.zeros((events, len(ROUND_ROW)), np.int64))


@compiled
def release(g: Purgatory, place: int) -> None:
    """An open batch leaves as a row; the last one takes its place."""
    last = g.filled[N_OPEN] - 1
    g.commits[g.filled[N_COMMIT]] = g.open[place]
    g.filled[N_COMMIT] += 1
    g.open[place] = g.open[last]
    g.filled[N_OPEN] = last


@compiled
def release_all(g: Purgatory, b: int) -> None:
    """Whatever is open on broker b leaves as it stands: b leads no more. NONE: on every broker."""
    for k in range(g.filled[N_OPEN] - 1, -1, -1):
        if b in (NONE, g.open[k, O_BROKER]):
            release(g, k)


@compiled
def open_batch(g: Purgatory, e: Ints) -> None:
    """An acks=all batch was appended: it waits for the HW, and its producer for the answer."""
    row = g.open[g.filled[N_OPEN]]
    row[:] = UNSET
    row[O_SEQ], row[O_BROKER], row[O_EPOCH], row[O_TS] = e[E_SEQ], e[E_BROKER], e[E_EPOCH], e[E_TS]
    row[O_BASE], row[O_END], row[O_EVIDENCE] = e[E_EXTRA], e[E_END], max(e[E_EVIDENCE], e[E_END_EVIDENCE])
    g.filled[N_OPEN] += 1


@compiled
def commit_batches(g: Purgatory, s: State, e: Ints, b: int) -> None:
    """The HW of leader b rose: the open batches below it are committed, by what raised it (DelayedProduce)."""
    kind = e[E_KIND]
    cause = BY_STATEMENT
    if kind == FETCH_UPDATE:
        cause = BY_FETCH
    elif kind == APPEND:
        cause = BY_APPEND
    elif kind == ISR_REQUEST:
        cause = BY_ISR
    elif kind == ROLE_CHANGE:
        cause = BY_ROLE
    for k in range(g.filled[N_OPEN] - 1, -1, -1):
        row = g.open[k]
        if row[O_BROKER] != b or row[O_COMMIT_SEQ] != UNSET or row[O_END] > s.hw[b]:
            continue
        row[O_COMMIT_SEQ], row[O_COMMIT_LO], row[O_COMMIT_TS] = e[E_SEQ], e[E_LO], e[E_TS]
        row[O_CAUSE], row[O_ISR] = cause, s.isr[b]
        row[O_REPLICA] = NONE
        if cause == BY_FETCH:
            row[O_REPLICA] = e[E_REPLICA]
        elif cause == BY_STATEMENT:
            row[O_REPLICA] = only_one_behind(s, b, row[O_END])
        if row[O_ACK_SEQ] != UNSET:
            release(g, k)


@compiled
def only_one_behind(s: State, b: int, end: int) -> int:
    """The one replica of the ISR that leader b has not seen at `end`; NONE where there are none, or several.

    Where a source states that the HW has passed `end`, its fetch had come by then.
    """
    found = NONE
    for r in range(len(s.leo)):
        if r != b and (s.isr[b] >> r) & 1 and s.remote_leo[b, r] < end:
            if found != NONE:
                return NONE
            found = r
    return found


@compiled
def answer_batch(g: Purgatory, e: Ints) -> None:
    """The producer is answered: the batch leaves if it is committed, else once it is.

    Without error it was committed by then; two of the leader's threads raced, and the order shows the other one first.
    """
    for k in range(g.filled[N_OPEN]):
        row = g.open[k]
        if row[O_BROKER] == e[E_BROKER] and row[O_EPOCH] == e[E_EPOCH] and row[O_END] == e[E_END]:
            row[O_ACK_SEQ] = e[E_SEQ]
            if row[O_COMMIT_SEQ] != UNSET:
                release(g, k)
            return


@compiled
def mark_leo(g: Purgatory, s: State, b: int, now: int) -> None:
    """Leader b appended: what its LEO was is remembered for as long as estimates of time may be apart."""
    mark = g.marks[b]
    if now - mark[MARK_NEXT_TS] > 2 * CLOCK_SLACK_US:  # a fetch that comes a little before has a mark all the same
        mark[MARK_LEO], mark[MARK_TS] = mark[MARK_NEXT_LEO], mark[MARK_NEXT_TS]
        mark[MARK_NEXT_LEO], mark[MARK_NEXT_TS] = s.leo[b], now


@compiled
def settled(g: Purgatory, b: int, now: int) -> int:
    """An LEO that leader b had reached by then whatever the slack of its times; NONE where none is sure."""
    mark = g.marks[b]
    if now - mark[MARK_NEXT_TS] > CLOCK_SLACK_US:
        return int(mark[MARK_NEXT_LEO])
    return int(mark[MARK_LEO]) if now - mark[MARK_TS] > CLOCK_SLACK_US else NONE


@compiled
def note_round(g: Purgatory, s: State, e: Ints) -> None:
    """A fetch was answered: what the leader held then, and when the fetch was taken."""
    b, r = e[E_BROKER], e[E_REPLICA]
    row = g.rounds[g.filled[N_ROUND]]
    row[W_SEQ], row[W_LEO], row[W_HW], row[W_RAISED] = e[E_SEQ], s.leo[b], s.hw[b], g.raised[b]
    row[W_SETTLED], row[W_TOLD], row[W_IN_ISR] = NONE, 0, 0
    if r >= 0:
        row[W_SETTLED], row[W_TOLD] = g.settled_leo[b, r], g.told_hw[b, r]
        row[W_IN_ISR] = (s.isr[b] >> r) & 1
    g.filled[N_ROUND] += 1


@compiled_in_place
def watch(g: Purgatory, s: State, e: Ints, leo_before: Ints, hw_before: Ints) -> None:
    """Follow one event that has just been applied; `leo_before` and `hw_before` are every broker's before it."""
    kind, b, r = e[E_KIND], e[E_BROKER], e[E_REPLICA]
    if b < 0:
        return
    if kind == APPEND and e[E_VALUE] == -1 and not e[E_DUPLICATE] and leo_before[b] < s.leo[b]:
        open_batch(g, e)
    if kind == APPEND:
        mark_leo(g, s, b, e[E_TS])
    if kind == LOG_LOAD or (kind == ROLE_CHANGE and e[E_VALUE] != ROLE_LEADER):
        release_all(g, b)
    if kind == ROLE_CHANGE:
        g.told_hw[b], g.settled_leo[b] = 0, NONE
        g.marks[b, MARK_LEO], g.marks[b, MARK_NEXT_LEO] = NONE, s.leo[b]
        g.marks[b, MARK_TS], g.marks[b, MARK_NEXT_TS] = e[E_TS], e[E_TS]
    if s.role[b] == ROLE_LEADER and s.hw[b] > hw_before[b]:
        g.raised[b] = e[E_TS]
        commit_batches(g, s, e, b)
    if kind == ACK and not e[E_DUPLICATE]:
        answer_batch(g, e)
    elif kind == FETCH_UPDATE:
        if e[E_ERROR] > 0 or e[E_DIVERGING_EPOCH] != UNSET or e[E_UNTIL] != UNSET:
            note_round(g, s, e)
        g.settled_leo[b, r] = settled(g, b, e[E_TS])
    elif kind in (FETCH_READ, CONSUMER_READ, FETCH_LEFT_OUT):
        note_round(g, s, e)
        if kind == FETCH_READ and r >= 0 and e[E_HW] >= 0:
            g.told_hw[b, r] = e[E_HW]


timed_out = compiled(stamps.timed_out)


@compiled
def waited_out(asked: Ints) -> bool:
    """Whether it waited until its time was up."""
    return timed_out(asked[A_LOCAL], asked[A_WAIT], asked[A_MAX_WAIT])


@compiled
def request_bytes(asked: Ints) -> int:
    """Bytes of the whole answer; where only this partition's are known, those."""
    return int(max(asked[A_REQUEST_BYTES], asked[A_BYTES], 0))


@compiled
def leader_throttles(asked: Ints, saw: Ints) -> bool:
    """Whether the leader's replication quota kept records from a follower outside the ISR (KIP-73).

    The partition is listed for it; they were there when the fetch came, and yet it was parked, or sent off with none.
    """
    if not asked[A_LEADER_THROTTLED] or not asked[A_FOLLOWER] or saw[W_IN_ISR]:
        return False
    if saw[W_SETTLED] <= asked[A_OFFSET] or asked[A_MIN_BYTES] > 1:
        return False
    return bool(asked[A_WAIT] > 0 or asked[A_BYTES] <= 0)


@compiled
def hw_is_news(p: Profile, asked: Ints, saw: Ints) -> bool:
    """Whether the follower has not been told the HW, which in 2.4 and 2.5 alone completes its fetch (KAFKA-8443)."""
    return bool(p.hw_told_at_once) and asked[A_FOLLOWER] == 1 and saw[W_HW] > saw[W_TOLD]


@compiled
def may_be_news_elsewhere(p: Profile, asked: Ints) -> bool:
    """Whether another partition's HW may have completed the fetch: it leaves no trace in this one (KAFKA-8443)."""
    return bool(p.hw_told_at_once) and asked[A_FOLLOWER] == 1


@compiled
def is_beyond_end(asked: Ints, saw: Ints) -> bool:
    """Whether the fetch offset lies beyond what the fetcher may read: the leader cut, or has yet to raise its HW.

    Such a fetch is completed as it is parked, so that its line has no wait.
    """
    return bool(asked[A_OFFSET] > (saw[W_LEO] if asked[A_FOLLOWER] else saw[W_HW]))


@compiled
def after_error(error: int) -> int:
    """What freed a parked fetch that was then refused (cases A to E of DelayedFetch.tryComplete)."""
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
def completion_at_once(p: Profile, asked: Ints, saw: Ints) -> tuple[int, int]:
    """Why a fetch was not parked (ReplicaManager.fetchMessages), and how that is known."""
    if asked[A_ERROR] > 0:
        return ERROR, OBSERVED
    if asked[A_DIVERGING]:
        return DIVERGING_EPOCH, OBSERVED
    if asked[A_PREFERRED] >= 0:
        return PREFERRED_REPLICA, OBSERVED
    if asked[A_MAX_WAIT] <= 0:
        return NO_WAIT, OBSERVED
    if leader_throttles(asked, saw):
        return THROTTLED, BOUNDED
    if request_bytes(asked) >= asked[A_MIN_BYTES]:
        here = asked[A_BYTES] > 0 or asked[A_MIN_BYTES] <= 0
        return (ENOUGH_BYTES if here else OTHER_PARTITION), DERIVED
    if hw_is_news(p, asked, saw):
        return HW_NOT_TOLD, DERIVED
    if is_beyond_end(asked, saw):
        return TRUNCATED_LEADER, DERIVED
    if asked[A_REQUEST_FORCED] == 1:
        return OTHER_PARTITION, DERIVED
    return (OTHER_PARTITION, BOUNDED) if may_be_news_elsewhere(p, asked) else (NOT_KNOWN, UNKNOWN)


@compiled
def completion_of_enough(asked: Ints, saw: Ints) -> tuple[int, int]:
    """What freed a parked fetch whose answer has as much as it asked for (case G of DelayedFetch.tryComplete)."""
    if asked[A_BYTES] <= 0:
        return OTHER_PARTITION, DERIVED
    if asked[A_FOLLOWER]:
        return BYTES, DERIVED
    parked = asked[A_TS] - asked[A_WAIT]
    if asked[A_REMOTE_STORAGE] == 1 and saw[W_RAISED] < parked - CLOCK_SLACK_US:
        return REMOTE_STORAGE, BOUNDED
    return HW_MOVED, DERIVED


@compiled
def completion_of_parked(p: Profile, asked: Ints, saw: Ints) -> tuple[int, int]:
    """What completed a parked fetch (DelayedFetch.tryComplete), and how that is known."""
    if asked[A_ERROR] > 0:
        return after_error(asked[A_ERROR]), OBSERVED
    if asked[A_DIVERGING]:
        return DIVERGING_EPOCH, OBSERVED
    if leader_throttles(asked, saw):
        return THROTTLED, BOUNDED
    if request_bytes(asked) >= max(asked[A_MIN_BYTES], 1):
        return completion_of_enough(asked, saw)
    if waited_out(asked):
        return TIMEOUT, DERIVED
    if hw_is_news(p, asked, saw):
        return HW_MOVED, DERIVED
    if is_beyond_end(asked, saw):
        return TRUNCATED_LEADER, DERIVED
    if asked[A_REQUEST_FORCED] == 1:
        return OTHER_PARTITION, DERIVED
    if asked[A_BYTES] > 0:
        return SEGMENT_ROLL, BOUNDED
    return (OTHER_PARTITION, BOUNDED) if may_be_news_elsewhere(p, asked) else (NOT_KNOWN, UNKNOWN)


@compiled
def completion(p: Profile, asked: Ints, saw: Ints) -> tuple[int, int]:
    """What completed a fetch, and how that is known.

    `asked` is what it asked and was answered (A_*), `saw` what the leader held (W_*).
    """
    if asked[A_LEFT_OUT]:
        return (THROTTLED, BOUNDED) if asked[A_WAIT] > 0 or asked[A_REQUEST_BYTES] > 0 else (NO_PARTITIONS, BOUNDED)
    if asked[A_THROTTLE] > 0:
        return THROTTLED, OBSERVED
    if asked[A_RUN] != UNSET:
        all_timed_out = asked[A_RUN_TIMEOUTS] == asked[A_RUN]
        return (TIMEOUT, DERIVED) if all_timed_out else (OTHER_PARTITION, DERIVED)
    if asked[A_WAIT] > 0:
        return completion_of_parked(p, asked, saw)
    return completion_at_once(p, asked, saw)


AT_ONCE, EARLY, IN_FULL = 0, 1, 2  # how long a fetch waited


@compiled
def measured_wait(asked: Ints) -> int:
    """How long it waited, as its line says."""
    if asked[A_WAIT] <= 0:
        return AT_ONCE
    return IN_FULL if waited_out(asked) else EARLY


@compiled
def expected_wait(p: Profile, asked: Ints, saw: Ints) -> int:
    """How long the replayed state lets it wait; `measured_wait` where that is among several, UNSET: no telling.

    Nothing in here reads how long it did wait, but to tell which moment of the leader's state was its beginning.
    """
    measured = measured_wait(asked)
    failed = asked[A_ERROR] > 0 or asked[A_DIVERGING] or asked[A_PREFERRED] >= 0 or asked[A_THROTTLE] > 0
    if failed or asked[A_LEFT_OUT] or asked[A_RUN] != UNSET or leader_throttles(asked, saw):
        return UNSET
    if asked[A_MAX_WAIT] <= 0 or asked[A_MIN_BYTES] <= 0:
        return AT_ONCE
    if asked[A_REQUEST_BYTES] == UNSET or asked[A_MIN_BYTES] > 1:
        return UNSET
    if asked[A_FOLLOWER]:
        there = saw[W_SETTLED] if measured != AT_ONCE else saw[W_LEO]
    elif measured == AT_ONCE or saw[W_RAISED] < asked[A_TS] - asked[A_WAIT] - CLOCK_SLACK_US:
        there = saw[W_HW]
    else:
        there = NONE  # the HW rose while it waited: it was lower before
    if there > asked[A_OFFSET]:
        return AT_ONCE
    if hw_is_news(p, asked, saw) or asked[A_REQUEST_FORCED] == 1 or is_beyond_end(asked, saw):
        return min(measured, EARLY)
    if request_bytes(asked) <= 0:
        return measured if may_be_news_elsewhere(p, asked) else IN_FULL
    if measured == AT_ONCE and asked[A_REQUEST_BYTES] == asked[A_BYTES]:
        return EARLY
    return measured  # also in full: what came with the last tick, or while the broker stood still


@compiled
def completions(p: Profile, asked: Ints, saw: Ints) -> Ints:
    """A row per fetch: what completed it (COMPLETIONS), how that is known, the wait expected and the wait measured."""
    out = np.empty((len(asked), 4), np.int64)
    for k in range(len(asked)):
        out[k, 0], out[k, 1] = completion(p, asked[k], saw[k])
        out[k, 2], out[k, 3] = expected_wait(p, asked[k], saw[k]), measured_wait(asked[k])
    return out
