"""What sources state of a replica's log and HW wins over what was computed of it."""

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
    """A replica taken out of the assignment deletes its log: back again, it starts empty. That is no truncation."""
    if s.gone[b]:
        s.leo[b], s.hw[b], s.log_start[b], s.cache_len[b] = 0, 0, 0, 0
        s.role[b], s.epoch[b], s.gone[b], s.unsure_until[b] = ROLE_NONE, NONE, 0, 0


@compiled
def take_stated_leo(s: State, p: Profile, b: int, leader: int, leo: int, evidence: int) -> None:
    """A source states b's LEO: below what was computed, its log was cut; above, it had the rest from its leader."""
    if leo < s.leo[b]:
        truncate_to(s, p, b, leo)
    elif leader not in (NONE, b):
        copy_epochs(s, leader, b, s.leo[b], leo)
    note_leo(s, b, leo, evidence)


@compiled
def take_own_leo(s: State, p: Profile, b: int, leo: int, evidence: int) -> None:
    """A broker's own line states its LEO, not what its log holds.

    One that is not the last leader, and whose LEO is not the computed one, was cut or fetched, though no line tells
    how, or of whom. Where its log had parted from its leader's, it may hold the leader's records by now, or still its
    own: its epochs are taken for the leader's, and unsure from there on, until a fetch that the leader accepts.
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
    """The broker that leads the newest epoch, of those whose LEO is known as well as that; NONE where there is none."""
    found = NONE
    for b in range(len(s.leo)):
        if s.role[b] != ROLE_LEADER or s.leo_evidence[b] > evidence:
            continue
        if found == NONE or s.epoch[b] > s.epoch[found]:
            found = b
    return found


@compiled
def note_leo(s: State, b: int, leo: int, evidence: int) -> bool:
    """A source states b's LEO: it wins over what was computed. Returns whether that was different."""
    if leo == UNSET or leo < 0:
        return False
    different = s.leo[b] != leo
    s.leo[b] = leo
    s.leo_evidence[b] = evidence
    return different


@compiled
def note_hw(s: State, b: int, hw: int, evidence: int) -> bool:
    """A source states b's HW: it wins over what was computed. Returns whether that was different."""
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
    """A leader states that everything below `hw` is committed."""
    s.partition[0].true_hw = max(s.partition[0].true_hw, hw)
    s.partition[0].stated_hw = max(s.partition[0].stated_hw, hw)


@compiled
def note_lost(s: State, offset: int) -> None:
    """What is known to be committed ends at `offset`: nothing beyond it is so, or was ever."""
    of = s.partition[0]
    of.true_hw, of.stated_hw = min(of.true_hw, offset), min(of.stated_hw, offset)
    of.earlier_hw = min(of.earlier_hw, offset)


@compiled
def note_found_again(s: State, offset: int) -> None:
    """What was taken for lost is there after all: everything below `offset` is committed."""
    of = s.partition[0]
    of.true_hw, of.earlier_hw = max(of.true_hw, offset), max(of.earlier_hw, offset)


@compiled
def leader_agrees(s: State, b: int, hw: int, earliest: int, now: int) -> bool:
    """Leader b states its HW, at `earliest` at the earliest: whether what was computed may stand beside it.

    An answer may have been read before the move that it does not show; so one that is lower counts only if it was
    surely read after the HW was computed to be beyond the last one that both agreed on, and only the second in a row.
    """
    if hw > s.hw_agreed[b] or hw == s.hw[b]:
        s.hw_agreed[b], s.hw_denied[b] = hw, 0
        s.hw_apart[b] = now if hw < s.hw[b] else 0
    elif hw == s.hw_agreed[b] and s.hw_apart[b] and earliest > s.hw_apart[b] + RACE_US:
        s.hw_denied[b] += 1
    return s.hw_denied[b] < DENIALS


@compiled
def leader_withdraw_hw(s: State, b: int, hw: int) -> None:
    """What b states is stronger than what was computed in this epoch: the HW, and what was committed by it."""
    s.hw[b], s.hw_evidence[b] = hw, OBSERVED
    s.partition[0].true_hw = max(s.partition[0].earlier_hw, s.partition[0].stated_hw, hw)
