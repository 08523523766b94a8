"""Corrections of computed logs and HWs by what sources state about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.arrays.jit import compiled
from replay.protocol.isr import RACE_US
from replay.protocol.log import copy_epochs, parted_at, take_epochs, truncate_to
from replay.protocol.state import (
    BOUNDED,
    NONE,
    OBSERVED,
    ROLE_LEADER,
    ROLE_NONE,
    UNSET,
    State,
)

if TYPE_CHECKING:
    from replay.protocol.profile import Profile


DENIALS = 2  # so many statements in a row withdraw a computed HW


@compiled
def forget_log(s: State, b: int) -> None:
    """Empty the log of a replica that was removed from the assignment and thus deleted it. That is no truncation."""
    if s.gone[b]:
        s.leo[b], s.hw[b], s.log_start[b], s.cache_len[b] = 0, 0, 0, 0
        s.role[b], s.epoch[b], s.gone[b], s.unsure_until[b] = ROLE_NONE, NONE, 0, 0


@compiled
def take_stated_leo(s: State, p: Profile, b: int, leader: int, leo: int, evidence: int) -> None:
    """Take a LEO of b that a source states: a lower one means truncation, a higher one fetches from its leader."""
    if leo < s.leo[b]:
        truncate_to(s, p, b, leo)
    elif leader not in (NONE, b):
        copy_epochs(s, leader, b, s.leo[b], leo)
    note_leo(s, b, leo, evidence)


@compiled
def take_own_leo(s: State, p: Profile, b: int, leo: int, evidence: int) -> None:
    """Take b's LEO from its own line, which does not say what its log holds.

    If b is not the last leader and its LEO is not the computed one, it truncated or fetched, though no line says how or
    from whom. If its log had diverged from its leader's, it may by now hold the leader's records, or still its own: its
    epochs are assumed to be the leader's, and are marked unsure from the divergence on until the leader accepts a
    fetch.
    """
    leader, before, parted = last_leader(s, BOUNDED), s.leo[b], NONE
    follows = leader != b and leo != before
    if follows and leader != NONE:
        parted = parted_at(s, leader, b, min(leo, before, s.leo[leader]))
    take_stated_leo(s, p, b, leader, leo, evidence)
    if parted != NONE:
        take_epochs(s, leader, b, leo)
    elif follows and leo > before:
        parted = before
    if parted != NONE:
        s.unsure_from[b], s.unsure_until[b] = parted, leo


@compiled
def last_leader(s: State, evidence: int) -> int:
    """The broker that leads the newest epoch, among those with evidence for their LEO at least this good; else NONE."""
    found = NONE
    for b in range(len(s.leo)):
        if s.role[b] != ROLE_LEADER or s.leo_evidence[b] > evidence:
            continue
        if found == NONE or s.epoch[b] > s.epoch[found]:
            found = b
    return found


@compiled
def note_leo(s: State, b: int, leo: int, evidence: int) -> bool:
    """Set b's LEO to a stated one, which overrides the computed one. Returns whether they differed."""
    if leo == UNSET or leo < 0:
        return False
    different = s.leo[b] != leo
    s.leo[b] = leo
    s.leo_evidence[b] = evidence
    return different


@compiled
def note_hw(s: State, b: int, hw: int, evidence: int) -> bool:
    """Set b's HW to a stated one, which overrides the computed one. Returns whether they differed."""
    if hw == UNSET or hw < 0:
        return False
    different = s.hw[b] != hw
    s.hw[b] = hw
    s.hw_evidence[b] = evidence
    if s.role[b] == ROLE_LEADER and evidence < BOUNDED:
        note_committed(s, hw)
    return different


@compiled
def note_committed(s: State, hw: int) -> None:
    """Note that a leader states everything below `hw` to be committed."""
    s.partition[0].true_hw = max(s.partition[0].true_hw, hw)
    s.partition[0].stated_hw = max(s.partition[0].stated_hw, hw)


@compiled
def note_lost(s: State, offset: int) -> None:
    """Note that nothing from `offset` on is committed, or ever was."""
    of = s.partition[0]
    of.true_hw, of.stated_hw = min(of.true_hw, offset), min(of.stated_hw, offset)
    of.earlier_hw = min(of.earlier_hw, offset)


@compiled
def note_found_again(s: State, offset: int) -> None:
    """Note that everything below `offset` is committed: records assumed lost are there after all."""
    of = s.partition[0]
    of.true_hw, of.earlier_hw = max(of.true_hw, offset), max(of.earlier_hw, offset)


@compiled
def leader_agrees(s: State, b: int, hw: int, earliest: int, now: int) -> bool:
    """Whether the computed HW may stand beside the one that leader b states, at `earliest` or later.

    An answer may have been read before a raise that it does not show. A lower statement therefore counts only if it was
    certainly read after the computed HW rose beyond the last value agreed on, and only if it is the second in a row.
    """
    if hw > s.hw_agreed[b] or hw == s.hw[b]:
        s.hw_agreed[b], s.hw_denied[b] = hw, 0
        s.hw_apart[b] = now if hw < s.hw[b] else 0
    elif hw == s.hw_agreed[b] and s.hw_apart[b] and earliest > s.hw_apart[b] + RACE_US:
        s.hw_denied[b] += 1
    return s.hw_denied[b] < DENIALS


@compiled
def leader_withdraw_hw(s: State, b: int, hw: int) -> None:
    """Replace what was computed in this epoch, the HW and what it committed, by b's own statement."""
    s.hw[b], s.hw_evidence[b] = hw, OBSERVED
    s.partition[0].true_hw = max(s.partition[0].earlier_hw, s.partition[0].stated_hw, hw)
