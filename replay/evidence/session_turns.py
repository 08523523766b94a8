"""In which order a leader read the partitions of a fetch, as far as the lines of its session tell (KIP-227).

A request's limit is used up in the order of the session that the leader has cached, not in that of the follower's
thread (FetchSession.IncrementalFetchContext). What the first request lists is there in an order of its own; a partition
that a later one adds comes to the end, and so does each one that is answered with records, those of one answer as they
were among themselves. Of two partitions the one that came to the end last is behind the other, whatever the order was
before, and so it remains while both come to the end together. The order in which an answer lists them is not looked at
here; what follows is compared with it (`answer_sizes.turn_checks`).

Up to 2.8 whatever an answer lists came to the end, with records or without (KAFKA-12330). Where the version of a
request does not show that its leader is newer, only what follows from either rule is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from replay.arrays.alike import alike
from replay.arrays.jit import compiled
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints

BY_RECORDS: Final = 13  # version of a fetch that no broker of 3.0 or before answers
UNSURE: Final = -2  # no turn: the partition may have been added, or have been there before the lines begin
BROKEN, PARTLY, WHOLLY = range(3)  # what is known of a session: what comes is as behind a gap; since a gap; all
RULES: Final = {"state_turn": "size", "state_turn_listed": "answered"}  # what brings a partition to the end, by rule


class Lines(Protocol):
    """What is read of the lines of one broker's sessions (`sessions.SessionLines`)."""

    session: Ints
    epoch: Ints
    rows: Ints
    begin: Ints
    end: Ints
    head: Ints
    stand: Flags

    @property
    def partitions(self) -> Ints:
        """The partition of each fact."""

    def numbers(self, name: str, missing: int = 0) -> Ints:
        """A column of numbers."""

    def known(self, name: str) -> Flags:
        """Where a column is not null."""

    def of_rows(self) -> Ints:
        """The line of each of `rows`."""


def bytes_before(lines: Lines) -> Ints:
    """For each fact, the bytes that its answer holds of partitions read before its own; NONE: it is not known."""
    size = lines.numbers("bytes")
    found = np.full(len(size), NONE)
    if not len(lines.head):
        return found
    whole = np.repeat(np.add.reduceat(size[lines.rows], lines.begin), lines.end - lines.begin)
    found[lines.rows[whole == size[lines.rows]]] = 0  # no other partition has any
    is_read = (lines.numbers("in_request") != 0) | (lines.numbers("in_response") != 0)
    found[~is_read] = NONE
    if (found[is_read] == 0).all():
        return found
    listed = Listed(lines)
    told, by_listing = (listed.read(name).before for name in RULES)
    is_newer = lines.numbers("api_version")[listed.row] >= BY_RECORDS
    told = np.where(is_newer | (told == by_listing), told, NONE)
    found[listed.row] = np.where(is_read[listed.row], np.maximum(found[listed.row], told), NONE)
    return found


def turns_behind(lines: Lines) -> dict[str, Ints]:
    """For each fact, the place of its partition behind its line, by either rule; NONE: it is not known."""
    listed, out = Listed(lines), {}
    for name in RULES:
        read = listed.read(name)
        some = np.flatnonzero(read.turn != UNSURE)
        _, place = alike(np.stack([read.turn[some], read.rank[some]]))
        out[name] = np.full(len(lines.numbers("bytes")), NONE)
        out[name][listed.row[some]] = place
    return out


def told_of_order(lines: Lines) -> Ints:
    """For each line, what is known of its session behind it."""
    stretch, is_whole = stretches_of(lines)
    found = np.where(is_whole[stretch], WHOLLY, PARTLY)
    return np.where(is_told(lines), found, BROKEN)


def is_told(lines: Lines) -> Flags:
    """Whether each line says what was answered; a state stands for its session's last line."""
    of_states = lines.stand[lines.head]
    broken = lines.numbers("state_told")[lines.head] == BROKEN
    found: Flags = np.where(of_states, ~broken, lines.known("response_session_id")[lines.head])
    return found


def stretches_of(lines: Lines) -> tuple[Ints, Flags]:
    """The stretch without a gap that each line is in, and which stretches are known as a whole."""
    begins = np.diff(lines.session, prepend=NONE) != 0
    begins |= (np.diff(lines.epoch, prepend=NONE) != 1) & (lines.epoch != 0)
    begins[1:] |= ~is_told(lines)[:-1]
    first = lines.head[begins]
    is_whole = (lines.epoch[begins] == 0) & ~lines.stand[first]
    is_whole |= lines.stand[first] & (lines.numbers("state_told")[first] == WHOLLY)
    return np.cumsum(begins) - 1, is_whole


class Read(NamedTuple):
    """In which turn partitions were read, by one of the rules."""

    before: Ints  # bytes before each
    turn: Ints  # of its partition behind its line; UNSURE: not known
    rank: Ints  # among those of the same turn


class Listed:
    """The facts that list a partition of a session, line by line."""

    def __init__(self, lines: Lines) -> None:
        """`lines`: of one broker."""
        line, key = lines.of_rows(), lines.partitions[lines.rows]
        some = np.flatnonzero((lines.session[line] != 0) & (key != NONE))
        self.lines, self.row, self.line = lines, lines.rows[some], line[some]
        self.stand: Flags = lines.stand[self.row]
        forgotten, asks, answers = (lines.numbers(name)[self.row] != 0 for name in FLAGS)
        self.forgotten: Flags = forgotten | (self.stand & (lines.numbers("state_left")[self.row] != 0))
        size = np.where(self.forgotten, 0, lines.numbers("bytes")[self.row])
        self.size: Ints = np.where(self.stand, NONE, size)  # a state is no answer
        self.moved = {"size": self.size > 0, "answered": answers & ~self.forgotten}
        self.is_first: Flags = lines.epoch[self.line] == 0  # such an answer makes the order, and moves nothing
        stretch, is_whole = stretches_of(lines)
        key, of = key[some], stretch[self.line]
        self.by_partition: Ints = np.lexsort((key, of))  # stable
        key, of, ours = key[self.by_partition], of[self.by_partition], np.arange(len(key))
        is_new = (np.diff(key, prepend=NONE) != 0) | (np.diff(of, prepend=NONE) != 0)
        again = np.append(np.False_, self.forgotten[self.by_partition])[:-1] & ~is_new
        life = np.cumsum(is_new | again) - 1
        # A partition is held from the first request for it on; what is told before says nothing of its place.
        since = np.full(len(key), len(key))
        held = np.flatnonzero((asks & ~self.forgotten)[self.by_partition])
        np.minimum.at(since, life[held], held)
        self.since: Ints = since[life]
        first = self.by_partition[np.minimum(self.since, len(key) - 1)]
        is_added = (self.since <= ours) & (is_whole[of] | again[np.flatnonzero(is_new | again)][life])
        is_added &= ~self.stand[first]
        self.base: Ints = np.empty(len(key), np.int64)
        self.base[self.by_partition] = np.where(is_added, 2 * self.line[first], UNSURE)

    def read(self, name: str) -> Read:
        """In which turn they were read, if what one of the `RULES` says brings partitions to the end."""
        state = self.lines.numbers(name, NONE)[self.row]
        moves = np.where(self.stand, state != NONE, self.moved[RULES[name]] & ~self.is_first) & ~self.forgotten
        places = np.arange(len(moves))
        last = np.maximum.accumulate(np.where(moves[self.by_partition], places, NONE))
        last = np.append(NONE, last)[: len(last)]  # the one before
        previous = np.full(len(moves), NONE)
        is_known = last >= self.since
        previous[self.by_partition[is_known]] = self.by_partition[last[is_known]]
        begin = np.flatnonzero(np.diff(self.line, prepend=NONE) != 0)
        turn = np.where(previous == NONE, self.base, 2 * self.line[previous] + 1)
        found, rank = np.full(len(moves), NONE), np.where(self.stand & moves, state, 0)
        take_turns(np.append(begin, len(moves)), turn, previous, moves, self.size, rank, found)
        held = np.empty(len(moves), np.bool_)
        held[self.by_partition] = self.since <= places
        behind = np.where(moves, 2 * self.line + 1, turn)
        rank = np.where(moves, rank, np.where(previous == NONE, 0, rank[previous]))
        return Read(found, np.where(held, behind, UNSURE), rank)


FLAGS: Final = ("forgotten", "in_request", "in_response")


@compiled
def take_turns(  # noqa: PLR0913, PLR0917 - one pass over columns
    begin: Ints, turn: Ints, previous: Ints, moves: Flags, size: Ints, rank: Ints, found: Ints
) -> None:
    """Go through the lines, and note of each listing the bytes before it.

    `begin`: where each line begins, and the end; `turn`: by which the listings of a line are read; `previous`: among
    those of the same turn, the listing that brought the partition to the end, NONE: none did; `rank`: among what its
    line brings to the end, alike where it is not known which came first. A state has a rank already, and no size.
    """
    for k in range(len(begin) - 1):
        start, count = begin[k], begin[k + 1] - begin[k]
        if count == 1 or size[start] < 0:
            continue
        key = np.empty(count, np.int64)
        unsure_moves, unsure_handed = False, False
        for i in range(count):
            at = start + i
            before = previous[at]
            key[i] = turn[at] * (len(turn) + 1) + (0 if before == NONE else rank[before])
            if turn[at] == UNSURE:
                unsure_moves |= moves[at]
                unsure_handed |= size[at] > 0
        order = np.argsort(key)
        handed, moved, i = 0, 0, 0
        while i < count:
            stop, bytes_here, sent_here, moved_here = i, 0, 0, 0
            while stop < count and key[order[stop]] == key[order[i]]:
                at = start + order[stop]
                bytes_here += size[at]
                sent_here += size[at] > 0
                moved_here += moves[at]
                stop += 1
            for j in range(i, stop):
                at = start + order[j]
                rank[at] = 0 if unsure_moves else moved
                if sent_here == (size[at] > 0) and not unsure_handed and turn[at] != UNSURE:
                    found[at] = handed
            handed, moved, i = handed + bytes_here, moved + moved_here, stop
