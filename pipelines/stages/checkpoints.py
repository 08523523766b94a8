"""States of the replay from run to run: made and taken up in Spark's workers, chosen and stored by the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pipelines.spark.saved_states import bytes_of, state_of
from replay.arrays.memory import give_back
from replay.evidence.tenures import micros
from replay.order.windows import is_kept, reach_of
from replay.tables.partitions import KEY
from schemas.windows import REPLAY_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STATE: Final = "state"
# Columns beside those of the events: a partition's first row has the state to go on from, and its window's place.
GIVEN_STATE, GIVEN_PLACE = "given_state", "given_place"
BEFORE_EVENTS: Final = -1  # that row's seq
# A state is worth its bytes where it saves that many events; below, the replay from an older one is quicker.
EVENTS_BETWEEN: Final = 2_000
LONG: Final = 200_000  # events of a partition, after which its state takes tens of megabytes, and to write it as much


class Checkpoints:
    """The states of the partitions of one task: those to go on from, and those made on the way."""

    def __init__(self, between: int = EVENTS_BETWEEN) -> None:
        """`between`: so many events a state has to save (`keep`)."""
        self.between = between
        self.given: dict[tuple[Any, ...], tuple[int, int, bytes | pa.Buffer]] = {}
        self.made: list[dict[str, Any]] = []
        self.now: list[dict[str, Any]] = []  # those of the partition that is replayed
        self.begun = 0  # the place of the window that its replay begins with
        self.events = {0: 0}  # by places from there on, how many events lie before

    def take(self, batch: pa.RecordBatch) -> pa.Table:
        """Take the states out of a batch; return its events."""
        rows = pa.Table.from_batches([batch])
        if GIVEN_STATE not in rows.column_names:
            return rows
        is_state = rows[GIVEN_STATE].is_valid()
        given = rows.filter(is_state).select([*KEY, "window", GIVEN_PLACE, GIVEN_STATE])
        self.give(given.rename_columns([*KEY, "window", "place", STATE]).to_pylist())
        return rows.filter(rows[GIVEN_STATE].is_null()).drop_columns([GIVEN_STATE, GIVEN_PLACE])

    def give(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Take states to go on from: rows of `replay_checkpoints`, at most one of a partition."""
        for row in states:
            self.given[tuple(row[column] for column in KEY)] = row["place"], micros(row["window"]), row[STATE]

    def state_of(self, name: tuple[Any, ...]) -> tuple[int, int, dict[str, Any]] | None:
        """Begin a partition: return the state to go on from (`Keeper`)."""
        self.end()
        if name not in self.given:
            return None
        place, window, data = self.given.pop(name)
        state = state_of(data)
        self.begun, self.events = place, {place: state["last_seq"] + 1}
        if state["last_seq"] >= LONG:
            give_back()  # what unpacking it has taken
        return place, window, state

    def keep(self, key: dict[str, Any], place: int, window: int, state: dict[str, Any]) -> None:
        """Keep a state, and of earlier ones of the partition those that are still kept beside it (`Keeper`).

        A state outlasts as many windows as `is_kept` lets it, so it is kept if the windows up to it which it is to save
        later ones have enough events. Were it only far enough from the state before, all states of a partition with few
        events might stand at places that are soon given up, and it would be replayed from its start. Where the replay
        goes on from a state within these windows, they have enough, since fewer did for that one.
        """
        events = self.events[place] = state["last_seq"] + 1
        since = place - reach_of(place)
        if since >= self.begun and events - self.events[since] < self.between:
            return
        if events > LONG:
            give_back()
        same = {**key, "place": place, "window": window, "digest": "", "engine": ""}
        self.now = [row for row in self.now if is_kept(row["place"], place)]
        self.now.append({**same, STATE: bytes_of(state)})

    def end(self) -> None:
        """End a partition."""
        if max(self.events.values()) > LONG:
            give_back()  # what the partition had, before its states leave
        self.made += self.now
        self.now, self.begun, self.events = [], 0, {0: 0}

    @property
    def size(self) -> int:
        """Bytes of the states of partitions that have ended and were not handed out."""
        return sum(len(row[STATE]) for row in self.made)

    def hand_out(self, kept: dict[str, list[pa.Table]]) -> None:
        """Add them to the rows that leave a task: rows of `replay_checkpoints`, but for digest and engine."""
        if self.made:
            rows = pa.Table.from_pylist(self.made, REPLAY_CHECKPOINTS.arrow_schema)
            kept.setdefault(REPLAY_CHECKPOINTS.name, []).append(rows)
            self.made = []
