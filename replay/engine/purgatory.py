"""Purgatories: what is parked on each leader, and whose fetch committed each acks=all produce.

A fetch is answered at once or parked until something completes it (kafka.server.DelayedFetch); an acks=all produce is
parked until the high watermark has passed its batch (DelayedProduce). `watch` follows the fold event by event and keeps
the little that a decision needs: what the leader held when it took up a follower's fetch, the HW that it last sent each
follower, when its HW last rose, and the open batches. From that, `completions` decides what completed each fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.arrays.bundle import bundle
from replay.arrays.jit import compiled, compiled_in_place
from replay.arrays.records import blank
from replay.engine.apply_requests import is_of_future_log
from replay.engine.codes import (
    ACK,
    APPEND,
    CONSUMER_READ,
    FETCH_LEFT_OUT,
    FETCH_READ,
    FETCH_UPDATE,
    ISR_REQUEST,
    LOG_LOAD,
    OBSERVATION,
    PARTITION_CHANGE,
    ROLE_CHANGE,
)
from replay.engine.moves import HW, LEO, before_of
from replay.engine.stamps import CLOCK_SLACK_US
from replay.protocol.produce import ACKS_ALL, acks_outcome
from replay.protocol.state import NONE, ROLE_LEADER, UNSET, State
from schemas.rounds import COMMIT_CAUSES

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.engine.moves import Moves
    from replay.protocol.profile import Profile

BY_FETCH, BY_APPEND, BY_ISR, BY_ROLE, BY_STATEMENT = range(len(COMMIT_CAUSES))


class Held:
    """What the leader held when it answered a fetch."""

    seq: int
    leo: int
    hw: int
    settled_leo: int  # the LEO that it certainly had when it took up the fetch
    told_hw: int  # the HW that it had last sent to the follower
    raised: int  # when its HW last rose
    in_isr: int  # whether the follower was in the ISR


class OpenBatch:
    """An acks=all batch until it is committed and answered, then its row. UNSET: not yet."""

    seq: int
    broker: int
    epoch: int
    base: int
    end: int
    evidence: int
    ts: int
    commit_seq: int
    commit_lo: int
    commit_ts: int
    cause: int  # BY_*
    replica: int  # whose fetch committed it
    isr: int  # a mask
    ack_seq: int
    outcome: int  # with which it is answered, being committed (`produce`)
    lost_ts: int  # when its leader lost its role, at the latest


class Mark:
    """A leader's LEO at two earlier times, at least 2 CLOCK_SLACK_US apart."""

    leo: int
    ts: int
    next_leo: int
    next_ts: int


class Purgatory(NamedTuple):
    """What is waiting, as leader b remembers it, and the rows that are complete."""

    settled_leo: Ints  # [b, r] LEO that b certainly had when it took up r's last fetch
    told_hw: Ints  # [b, r] b's HW when r's last fetch arrived; b assumes that r knows it (lastSentHighWatermark)
    raised: Ints  # [b] when b's HW last rose
    marks: Records[Mark]  # [b]
    open: Records[OpenBatch]  # acks=all batches that are not yet committed and answered
    rounds: Records[Held]  # fetches that were answered
    commits: Records[OpenBatch]  # completed batches
    filled: Ints  # number of rows in open, rounds, commits


bundle(
    Purgatory,
    {
        "settled_leo": 2,
        "told_hw": 2,
        "raised": 1,
        "marks": Mark,
        "open": OpenBatch,
        "rounds": Held,
        "commits": OpenBatch,
        "filled": 1,
    },
)

N_OPEN, N_ROUND, N_COMMIT = range(3)


def new_purgatory(brokers: int) -> Purgatory:
    """An empty purgatory without room; see `with_room`."""
    return Purgatory(
        settled_leo=np.full((brokers, brokers), NONE, np.int64),
        told_hw=np.zeros((brokers, brokers), np.int64),
        raised=np.zeros(brokers, np.int64),
        marks=blank(brokers, Mark),
        open=blank(0, OpenBatch),
        rounds=blank(0, Held),
        commits=blank(0, OpenBatch),
        filled=np.zeros(3, np.int64),
    )


def with_room(g: Purgatory, brokers: int, events: int) -> Purgatory:
    """The same purgatory with room for more brokers and events; completed rows are dropped."""
    n, still = len(g.raised), int(g.filled[N_OPEN])
    wider = new_purgatory(brokers)
    for old, new in ((g.settled_leo, wider.settled_leo), (g.told_hw, wider.told_hw)):
        new[:n, :n] = old
    wider.raised[:n] = g.raised
    wider.marks[:n] = g.marks
    wider.filled[N_OPEN] = still
    room, left = blank(still + events, OpenBatch), blank(still + events, OpenBatch)
    room[:still] = g.open[:still]
    return wider._replace(open=room, commits=left, rounds=blank(events, Held))


@compiled
def release(g: Purgatory, place: int) -> None:
    """Move an open batch to the completed rows; the last open one takes its place."""
    last = g.filled[N_OPEN] - 1
    g.commits[g.filled[N_COMMIT]] = g.open[place]
    g.filled[N_COMMIT] += 1
    g.open[place] = g.open[last]
    g.filled[N_OPEN] = last


@compiled
def release_all(g: Purgatory, b: int, now: int = UNSET) -> None:
    """Release all open batches of broker b as they are, since b leads no longer, `now`. NONE: of every broker."""
    for k in range(g.filled[N_OPEN] - 1, -1, -1):
        if b in (NONE, g.open[k].broker):
            g.open[k].lost_ts = now
            release(g, k)


@compiled
def release_removed(g: Purgatory, s: State, now: int) -> None:
    """Release the open batches of brokers that the assignment no longer names: they stop their replica."""
    for b in range(len(s.gone)):
        if s.gone[b]:
            release_all(g, b, now)


@compiled
def open_batch(g: Purgatory, e: EventRecord) -> None:
    """Open an acks=all batch that was appended: it waits for the HW, and its producer for the answer."""
    row = g.open[g.filled[N_OPEN]]
    row.seq, row.broker, row.epoch, row.ts = e.seq, e.broker, e.leader_epoch, e.ts
    row.base, row.end, row.evidence = e.base_offset, e.next_offset, max(e.evidence, e.next_offset_evidence)
    row.commit_seq, row.commit_lo, row.commit_ts, row.ack_seq = UNSET, UNSET, UNSET, UNSET
    row.cause, row.replica, row.isr = UNSET, UNSET, UNSET
    row.outcome, row.lost_ts = UNSET, UNSET
    g.filled[N_OPEN] += 1


@compiled
def commit_batches(g: Purgatory, s: State, p: Profile, e: EventRecord, b: int) -> None:
    """Commit the open batches below leader b's HW, which just rose, with the cause of the rise (DelayedProduce)."""
    kind = e.kind
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
        if row.broker != b or row.commit_seq != UNSET or row.end > s.hw[b]:
            continue
        row.commit_seq, row.commit_lo, row.commit_ts = e.seq, e.ts_lo, e.ts
        row.cause, row.isr, row.outcome = cause, s.isr[b], acks_outcome(s, p, b)
        row.replica = NONE
        if cause == BY_FETCH:
            row.replica = e.replica
        elif cause == BY_STATEMENT:
            row.replica = only_one_behind(s, b, row.end)
        if row.ack_seq != UNSET:
            release(g, k)


@compiled
def only_one_behind(s: State, b: int, end: int) -> int:
    """The only replica of the ISR that leader b has not seen at `end`; NONE if there are none or several.

    If a source states that the HW has passed `end`, that replica's fetch had come by then.
    """
    found = NONE
    for r in range(len(s.leo)):
        if r != b and (s.isr[b] >> r) & 1 and s.remote_leo[b, r] < end:
            if found != NONE:
                return NONE
            found = r
    return found


@compiled
def answer_batch(g: Purgatory, e: EventRecord) -> None:
    """Answer a batch's producer: the batch is released if it is committed, else once it is.

    An answer without error means that it was committed by then. If it is not, two threads of the leader raced and the
    order shows the other one first.
    """
    for k in range(g.filled[N_OPEN]):
        row = g.open[k]
        if row.broker == e.broker and row.epoch == e.leader_epoch and row.end == e.next_offset:
            row.ack_seq = e.seq
            if row.commit_seq != UNSET:
                release(g, k)
            return


@compiled
def mark_leo(g: Purgatory, s: State, b: int, now: int) -> None:
    """Leader b appended: remember its LEO for as long as estimated times may differ."""
    mark = g.marks[b]
    if now - mark.next_ts > 2 * CLOCK_SLACK_US:  # a fetch that comes shortly before still has a mark
        mark.leo, mark.ts = mark.next_leo, mark.next_ts
        mark.next_leo, mark.next_ts = s.leo[b], now


@compiled
def settled(g: Purgatory, b: int, now: int) -> int:
    """An LEO that leader b had certainly reached by `now`, allowing for clock slack; NONE if none is certain."""
    mark = g.marks[b]
    if now - mark.next_ts > CLOCK_SLACK_US:
        return int(mark.next_leo)
    return int(mark.leo) if now - mark.ts > CLOCK_SLACK_US else NONE


@compiled
def note_round(g: Purgatory, s: State, e: EventRecord) -> None:
    """A fetch was answered: note what the leader held then, and when it took up the fetch."""
    b, r = e.broker, e.replica
    row = g.rounds[g.filled[N_ROUND]]
    row.seq, row.leo, row.hw, row.raised = e.seq, s.leo[b], s.hw[b], g.raised[b]
    row.settled_leo, row.told_hw, row.in_isr = NONE, 0, 0
    if r >= 0:
        row.settled_leo, row.told_hw = g.settled_leo[b, r], g.told_hw[b, r]
        row.in_isr = (s.isr[b] >> r) & 1
    g.filled[N_ROUND] += 1


@compiled_in_place
def watch(g: Purgatory, s: State, p: Profile, e: EventRecord, moves: Moves) -> None:
    """Follow one event that has just been applied, and what it moved."""
    kind, b, r = e.kind, e.broker, e.replica
    if b < 0:
        if kind == PARTITION_CHANGE:
            release_removed(g, s, e.ts)
        return
    if kind == APPEND and e.acks == ACKS_ALL and not e.duplicate and before_of(moves, LEO, b, s.leo[b]) < s.leo[b]:
        open_batch(g, e)
    if kind == APPEND:
        mark_leo(g, s, b, e.ts)
    if kind == LOG_LOAD or (kind == ROLE_CHANGE and e.role != ROLE_LEADER):
        release_all(g, b, e.ts)
    if kind == ROLE_CHANGE:
        g.told_hw[b], g.settled_leo[b] = 0, NONE
        g.marks[b].leo, g.marks[b].next_leo = NONE, s.leo[b]
        g.marks[b].ts, g.marks[b].next_ts = e.ts, e.ts
    if s.role[b] == ROLE_LEADER and s.hw[b] > before_of(moves, HW, b, s.hw[b]):
        g.raised[b] = e.ts
        commit_batches(g, s, p, e, b)
    if kind == OBSERVATION and s.role[b] == ROLE_LEADER and e.hw == s.hw[b] and not is_of_future_log(e):
        g.raised[b] = max(g.raised[b], e.ts)  # the leader's own line says when
    if kind == ACK and not e.duplicate:
        answer_batch(g, e)
    elif kind == FETCH_UPDATE:
        if e.error_code > 0 or e.diverging_epoch != UNSET or e.run_until != UNSET:
            note_round(g, s, e)
        g.settled_leo[b, r] = settled(g, b, e.ts)
        if e.error_code <= 0:  # for a run of fetches: what was read for the last one
            g.told_hw[b, r] = before_of(moves, HW, b, s.hw[b]) if e.run_until == UNSET else s.hw[b]
    elif kind in (FETCH_READ, CONSUMER_READ, FETCH_LEFT_OUT):
        note_round(g, s, e)
