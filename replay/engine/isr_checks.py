"""The rows that a moving ISR leaves, and what the leader did beside what the engine says that it had to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled
from replay.engine.codes import (
    CHECK_EXPANSION,
    CHECK_OVERDUE,
    CHECK_SHRINK,
    E_BROKER,
    E_EPOCH,
    E_EVIDENCE,
    E_ISR,
    E_KIND,
    E_LEADER,
    E_LEO,
    E_PARTITION_EPOCH,
    E_REPLICA,
    E_SEQ,
    E_TS,
    E_VALUE,
    FETCH_UPDATE,
    ISR_COMMITTED,
    ISR_PENDING_EXPAND,
    ISR_PENDING_SHRINK,
    PARTITION_CHANGE,
)
from replay.engine.emit import N_ISR, N_MOVE, Rows, check, put
from replay.protocol.high_watermark import bits
from replay.protocol.isr import IN_FLIGHT, PREDICTED, blocks_expansion, is_doubtful, is_out_of_sync, who_knows
from replay.protocol.state import ASSIGNED, DERIVED, MIN_ISR, MIN_ISR_UNKNOWN, NONE, ROLE_LEADER, UNSET, State

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.protocol.profile import Profile


@compiled
def emit_isr(s: State, e: Ints, change: tuple[int, int, int], blocked: int, rows: Rows) -> None:
    """An ISR row, and for each broker that moved how far it was behind as the leader of that moment knew it.

    `change`: (state, ISR, ISR before); `blocked`: what had kept a joining replica out until now.
    """
    state, isr, before = change
    leader = e[E_LEADER] if e[E_KIND] == PARTITION_CHANGE else e[E_BROKER]
    knows = who_knows(s, e[E_EPOCH])
    for r in range(len(s.leo)):
        bit = 1 << r
        if before < 0 or not (isr ^ before) & bit:
            continue
        remote, gap, us = UNSET, UNSET, UNSET
        if knows not in (NONE, r):
            if s.remote_leo[knows, r] >= 0:
                remote, gap = s.remote_leo[knows, r], max(s.leo[knows] - s.remote_leo[knows, r], 0)
            if s.caught_up[knows, r] > 0:
                us = max(e[E_TS] - s.caught_up[knows, r], 0)
        put(rows.move, rows.filled, N_MOVE, (
            e[E_SEQ], state, r, int(bool(isr & bit)), knows, remote, gap, us, blocked,
        ))  # fmt: skip
    needed = s.cluster[MIN_ISR]
    under = NONE if needed == MIN_ISR_UNKNOWN else int(bits(isr) < min(needed, max(bits(s.cluster[ASSIGNED]), 1)))
    put(rows.isr, rows.filled, N_ISR, (
        e[E_SEQ], e[E_TS], leader, e[E_EPOCH], e[E_PARTITION_EPOCH] if state == ISR_COMMITTED else UNSET, isr, before,
        state, under, e[E_EVIDENCE] if e[E_KIND] != FETCH_UPDATE else DERIVED,
    ))  # fmt: skip


@compiled
def check_isr_request(s: State, p: Profile, e: Ints, rows: Rows) -> None:
    """What the leader asks for, or is granted, against what the engine says it had to ask for.

    A prediction that may have come too early (`DOUBTFUL`) counts where it came true, not where it did not.
    An expansion is compared once: with the request where a source has it, else with the commit. A replica that the
    engine expands and the next decision leaves out was predicted and never came. Of a replica whose fetches no line
    told the leader's log could predict nothing: nothing is compared.
    """
    b, asked = e[E_BROKER], e[E_VALUE]
    if asked == ISR_PENDING_SHRINK:
        check(rows, e, CHECK_OVERDUE, b, 0, 0)
    if s.role[b] != ROLE_LEADER or s.epoch[b] != e[E_EPOCH]:
        return
    doubted = is_doubtful(s, b, e[E_TS])
    for r in range(len(s.leo)):
        bit = 1 << r
        expected = bool(s.maximal_isr[b] & bit)
        seen = expected or s.remote_leo[b, r] >= 0
        if asked == ISR_PENDING_EXPAND and r == e[E_REPLICA] and seen:
            fresh = expected and (s.pending[b] == PREDICTED or doubted or not p.isr_change_pending)
            if doubted and not expected:  # the doubtful one was wrong: without it, this one?
                fresh = blocks_expansion(s, p, b, r) in (0, IN_FLIGHT)
            check(rows, e, CHECK_EXPANSION, r, r if fresh else NONE, r)
        elif asked == ISR_COMMITTED and p.isr_change_pending:
            joins = seen and bool(e[E_ISR] & ~s.isr[b] & ~s.asked[b] & bit)
            if joins or (s.pending[b] == PREDICTED and expected and not e[E_ISR] & bit):
                check(rows, e, CHECK_EXPANSION, r, r if expected else NONE, r if joins else NONE)
        elif asked == ISR_PENDING_SHRINK and s.isr[b] & bit and r != b:
            out, named = is_out_of_sync(s, p, b, r, e[E_TS]), not e[E_ISR] & bit
            if out != named or (named and e[E_LEO] == UNSET):
                check(
                    rows, e, CHECK_SHRINK, r, s.remote_leo[b, r] if out else NONE, s.remote_leo[b, r] if named else NONE
                )
