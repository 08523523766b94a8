"""Checks of computed against stated values, made before the event corrects the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled, compiled_in_place
from replay.engine.apply_requests import acts_in_its_epoch, was_deleted
from replay.engine.codes import (
    APPEND,
    CHECK_BROKER_EPOCH,
    CHECK_DELETION,
    CHECK_EXPANSION,
    CHECK_EXPIRY,
    CHECK_FETCH_IS_LEO,
    CHECK_HW_BY_LINES,
    CHECK_HW_LINE,
    CHECK_OVERDUE,
    CHECK_PREFERRED,
    CHECK_PRODUCE_GUARD,
    CHECK_REFUSAL,
    CHECK_RESPONSE_HW,
    CHECK_ROLE_HW,
    CHECK_ROLE_LEO,
    CHECK_SHRINK,
    CONSUMER_READ,
    DELETE_RECORDS,
    FETCH_READ,
    FETCH_UPDATE,
    ISR_COMMITTED,
    ISR_PENDING_EXPAND,
    ISR_PENDING_SHRINK,
    ISR_REQUEST,
    OBSERVATION,
    PRODUCE_REFUSED,
    ROLE_CHANGE,
)
from replay.engine.emit import Rows, check
from replay.protocol.deletion import deletion_guard
from replay.protocol.isr import (
    IN_FLIGHT,
    PREDICTED,
    blocks_expansion,
    first_out_of_sync,
    is_doubtful,
    is_out_of_sync,
    lost_race,
    may_serve_consumer,
    overdue_at,
    rack_aware_choice,
)
from replay.protocol.produce import GUARD_ERRORS, may_be_unverified, produce_guard
from replay.protocol.state import NONE, OBSERVED, ROLE_FOLLOWER, UNSET, State

if TYPE_CHECKING:
    from replay.engine.event_record import EventRecord
    from replay.protocol.profile import Profile


@compiled_in_place
def check_before(s: State, p: Profile, e: EventRecord, rows: Rows) -> None:
    """Compare the state with what the event states, before the event corrects it."""
    kind, b, r = e.kind, e.broker, e.replica
    if kind == APPEND:
        if e.acks != UNSET and not e.duplicate:  # an inserted batch may have come with any acks
            check_guard(s, p, e, CHECK_PRODUCE_GUARD, 0, rows)
    elif kind == PRODUCE_REFUSED and e.error_code in GUARD_ERRORS:
        check_guard(s, p, e, CHECK_REFUSAL, e.error_code, rows)
    elif kind == PRODUCE_REFUSED:
        check_guard(s, p, e, CHECK_PRODUCE_GUARD, 0, rows)
    elif kind == DELETE_RECORDS:
        refused = deletion_guard(s, p, b, e.requested_offset, e.cause)
        if refused != UNSET:
            check(rows, e, CHECK_DELETION, b, refused, 0 if was_deleted(e) else e.error_code)
    elif kind == ISR_REQUEST:
        check_isr_request(s, p, e, rows)
    elif kind in (FETCH_READ, CONSUMER_READ, OBSERVATION):
        if kind == OBSERVATION and r >= 0 and acts_in_its_epoch(s, e):
            if is_out_of_sync(s, p, b, r, e.ts) and hears_followers(s, b):
                check(rows, e, CHECK_SHRINK, r, s.remote_leo[b, r], e.fetch_offset)
        elif e.hw >= 0 and acts_in_its_epoch(s, e):
            check(rows, e, CHECK_HW_LINE if kind == OBSERVATION else CHECK_RESPONSE_HW, b, s.hw[b], e.hw)
        if kind == CONSUMER_READ and acts_in_its_epoch(s, e):
            check_preferred(s, p, e, rows)
        if kind == OBSERVATION and e.hw_by_lines != UNSET:
            check(rows, e, CHECK_HW_BY_LINES, b, e.hw_by_lines, e.hw)
    elif kind == FETCH_UPDATE and s.role[e.replica] == ROLE_FOLLOWER:
        check(rows, e, CHECK_FETCH_IS_LEO, e.replica, s.leo[e.replica], e.fetch_offset)
    elif kind == ROLE_CHANGE and s.epoch[b] != NONE and e.evidence == OBSERVED:
        if e.leo >= 0:
            check(rows, e, CHECK_ROLE_LEO, b, s.leo[b], e.leo)
        if e.hw >= 0:
            untaken = s.role[b] == ROLE_FOLLOWER and s.hw_untaken[b] == e.hw  # the role came before the last answer
            check(rows, e, CHECK_ROLE_HW, b, e.hw if untaken else s.hw[b], e.hw)


@compiled_in_place
def check_preferred(s: State, p: Profile, e: EventRecord, rows: Rows) -> None:
    """Compare the replica that a leader sends a consumer to with the one of its rack; else with those that it may."""
    b, told = e.broker, e.preferred if e.preferred >= 0 else NONE
    if e.replicas != UNSET:
        check(rows, e, CHECK_PREFERRED, b, rack_aware_choice(s, p, b, e.replicas, e.fetch_offset, told), told)
    elif told >= 0:
        serves = may_serve_consumer(s, p, b, told, e.fetch_offset)
        check(rows, e, CHECK_PREFERRED, b, told if serves else NONE, told)


@compiled_in_place
def check_guard(s: State, p: Profile, e: EventRecord, of: int, stated: int, rows: Rows) -> None:
    """Compare whether the broker takes a produce, as the state has it, with the answer; 0: it was appended.

    Refusals are a check of their own, for the order places each where the guard refuses it, if there is such a place.
    """
    computed = produce_guard(s, p, e.broker, e.acks)
    if computed != UNSET and not (computed != stated and may_be_unverified(p, e.acks, e.error_code)):
        check(rows, e, of, e.broker, computed, stated)


@compiled_in_place
def hears_followers(s: State, b: int) -> bool:
    """Whether b is known to have handled a follower's fetch: otherwise its log of requests may not be there."""
    found = False
    for r in range(len(s.leo)):
        found = found or (r != b and s.remote_leo[b, r] >= 0)
    return found


@compiled
def check_isr_request(s: State, p: Profile, e: EventRecord, rows: Rows) -> None:
    """Compare what the leader requests, or is granted, with what the engine predicts that it must request.

    A prediction that may have come too early (`DOUBTFUL`) counts if it came true, but not if it did not. An expansion
    is compared once: with the request if a source has it, else with the commit. A replica that the engine adds and the
    next decision leaves out was predicted but never came. The broker epoch that a request names of the replica is that
    of its last fetch (3.5+). If no line reports a replica's fetches, the leader's log could predict nothing, and
    nothing is compared; nor is when a member fell out of sync if none reports those of any. Of two whose fetches are
    too near to be ordered (`lost_race`) either may be the one.
    """
    b, asked = e.broker, e.isr_request
    if not acts_in_its_epoch(s, e):
        return
    if asked == ISR_PENDING_SHRINK and hears_followers(s, b):
        leaving = s.isr[b] & ~e.isr & ~(1 << b)
        check(rows, e, CHECK_OVERDUE, b, overdue_at(s, p, b, leaving, e.ts), 0)
        since = first_out_of_sync(s, p, b, leaving, e.ts)
        if since != NONE:
            check(rows, e, CHECK_EXPIRY, b, since, e.ts)
    doubted, raced = is_doubtful(s, b, e.ts), lost_race(s, b, e.isr)
    for r in range(len(s.leo)):
        bit = 1 << r
        expected = bool(s.maximal_isr[b] & bit)
        seen = expected or s.remote_leo[b, r] >= 0
        if asked == ISR_PENDING_EXPAND and r == e.replica and seen:
            fresh = expected and (s.pending[b] == PREDICTED or doubted or not p.isr_change_pending)
            if doubted and not expected:  # the doubtful one was wrong: would this one be predicted without it?
                fresh = blocks_expansion(s, p, b, r) in (0, IN_FLIGHT)
            check(rows, e, CHECK_EXPANSION, r, r if fresh else NONE, r)
            if s.fetch_epoch[b, r] >= 0 and e.replica_epoch >= 0:
                check(rows, e, CHECK_BROKER_EPOCH, r, s.fetch_epoch[b, r], e.replica_epoch)
        elif asked == ISR_COMMITTED and p.isr_change_pending:
            joins = seen and bool(e.isr & ~s.isr[b] & ~s.asked[b] & bit)
            if joins or (s.pending[b] == PREDICTED and expected and not e.isr & bit and not raced):
                check(rows, e, CHECK_EXPANSION, r, r if expected or raced & bit else NONE, r if joins else NONE)
        elif asked == ISR_PENDING_SHRINK and s.isr[b] & bit and r != b:
            out, named = is_out_of_sync(s, p, b, r, e.ts), not e.isr & bit
            if out != named or (named and e.leo == UNSET):
                check(
                    rows, e, CHECK_SHRINK, r, s.remote_leo[b, r] if out else NONE, s.remote_leo[b, r] if named else NONE
                )
