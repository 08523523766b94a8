"""The fetch sessions of one broker walked line by line, as its cache goes through them: slow, and easy to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replay.evidence.session_lines import NOTHING

if TYPE_CHECKING:
    from replay.evidence.session_lines import SessionLines


class Cached(NamedTuple):
    """What a session remembers of a partition, as places of facts, and which line listed it last."""

    row: int
    asked: int
    hw: int
    listed_at: int


class Walk:
    """Goes through the lines, and collects what `Rebuilt` has of each row."""

    def __init__(self, lines: SessionLines) -> None:
        self.lines = lines
        self.rows: list[tuple[int, ...]] = []
        self.asks, self.answers, self.failed, self.forgotten = (
            lines.numbers(name) != 0 for name in ("in_request", "in_response", "error_code", "forgotten")
        )
        self.diverged = lines.known("diverging_epoch")
        self.cache: dict[int, Cached] = {}
        self.left: dict[int, Cached] = {}

    def all(self) -> list[tuple[int, ...]]:
        """Walk all sessions."""
        sessions, epochs = self.lines.session.tolist(), self.lines.epoch.tolist()
        for index, session in enumerate(sessions):
            begins = index == 0 or session != sessions[index - 1]
            if begins:
                self.end(index)
            elif session and epochs[index] not in (epochs[index - 1] + 1, 0):
                self.cache, self.left = {}, {}
            for row in self.lines.rows[self.lines.begin[index] : self.lines.end[index]].tolist():
                if self.lines.partitions[row] != NOTHING:
                    self.take(row, index, in_session=session != 0)
        self.end(len(sessions))
        return self.rows

    def end(self, index: int) -> None:
        """A session has ended before this line."""
        for held in self.cache.values():
            self.run_between(held, index)
        for held in self.left.values():
            self.run_between(held, index, left_out=1)
        self.cache, self.left = {}, {}

    def take(self, row: int, index: int, *, in_session: bool) -> None:
        """A row of a line."""
        if not in_session:
            self.rows.append((row, row, row, row, 0, 0, NOTHING, NOTHING))
            return
        key = int(self.lines.partitions[row])
        held = self.cache.get(key)
        if held is not None:
            self.run_between(held, index)
        if key in self.left:
            self.run_between(self.left.pop(key), index, left_out=1)
        if self.forgotten[row]:
            self.cache.pop(key, None)
            self.rows.append((row, row, row, NOTHING, 0, 0, NOTHING, NOTHING))
            if held is not None and not self.diverged[held.row]:
                self.left[key] = held._replace(listed_at=index - 1)
            return
        if not self.asks[row] and held is None:
            return
        asked = row if self.asks[row] or held is None else held.asked
        implied = self.asks[row] and not self.answers[row]
        hw = (NOTHING if held is None else held.hw) if implied else row
        hw = NOTHING if self.failed[row] else hw
        self.cache[key] = Cached(row, asked, hw, index)
        self.rows.append((row, row, asked, hw, int(implied), 0, NOTHING, NOTHING))

    def run_between(self, held: Cached, index: int, left_out: int = 0) -> None:
        """The fetches after the last listing and before a line are one row, if there are any."""
        first, last = held.listed_at + 1, index - 1
        if first <= last and not self.failed[held.row]:
            line = int(self.lines.head[first])
            self.rows.append((held.row, line, held.asked, held.hw, 1, left_out, first, last))
