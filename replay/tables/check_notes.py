"""Notes on checks that differ: what was computed and what is stated, in words that a report's reader understands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replay.engine.codes import (
    CHECK_COMMIT_BEFORE_ACK,
    CHECK_DELAYED_PRODUCE,
    CHECK_DELETION,
    CHECK_EXPANSION,
    CHECK_EXPIRY,
    CHECK_FETCH_COMPLETION,
    CHECK_PREFERRED,
    CHECK_PRODUCE_GUARD,
    CHECK_PRODUCE_TIMEOUT,
    CHECK_QUOTA,
    CHECK_REFUSAL,
)
from replay.engine.completions import AT_ONCE, EARLY, IN_FULL
from replay.losses.sentences import clock
from replay.protocol.deletion import INVALID_TOPIC, OFFSET_OUT_OF_RANGE, POLICY_VIOLATION
from replay.protocol.produce import (
    KAFKA_STORAGE_ERROR,
    NO_ERROR,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from replay.protocol.state import NONE, UNSET

if TYPE_CHECKING:
    from collections.abc import Sequence

WAITS: Final = {AT_ONCE: "no wait", EARLY: "a wait that something ended", IN_FULL: "a wait until time was up"}

ANSWERED: Final = {
    NO_ERROR: "no error",
    UNKNOWN_TOPIC_OR_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
    NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_OR_FOLLOWER",
    REQUEST_TIMED_OUT: "REQUEST_TIMED_OUT",
    NOT_ENOUGH_REPLICAS: "NOT_ENOUGH_REPLICAS",
    NOT_ENOUGH_REPLICAS_AFTER_APPEND: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    KAFKA_STORAGE_ERROR: "KAFKA_STORAGE_ERROR",
    OFFSET_OUT_OF_RANGE: "OFFSET_OUT_OF_RANGE",
    INVALID_TOPIC: "INVALID_TOPIC_EXCEPTION",
    POLICY_VIOLATION: "POLICY_VIOLATION",
}


def in_words(code: int, value: int, brokers: Sequence[int]) -> str:
    """A value of the check `code` in words; `brokers`: the ids behind its replica indices."""
    if value in (NONE, UNSET):
        return "nothing"
    if code in (CHECK_EXPANSION, CHECK_PREFERRED):
        return f"broker {brokers[value]}"
    if code == CHECK_FETCH_COMPLETION:
        return WAITS.get(value, str(value))
    if code in (CHECK_PRODUCE_GUARD, CHECK_REFUSAL, CHECK_DELAYED_PRODUCE, CHECK_DELETION):
        return ANSWERED.get(value, f"error {value}")
    if code == CHECK_PRODUCE_TIMEOUT:
        return "time was up" if value else "time was not up"
    if code == CHECK_QUOTA:
        return "a round held back" if value else "a round served"
    if code in (CHECK_COMMIT_BEFORE_ACK, CHECK_EXPIRY):
        return clock(value)
    return str(value)


def note_of(code: int, place: int, values: tuple[int, int], brokers: Sequence[int]) -> str:
    """The note: which broker (by its index `place`), what was computed, and what is stated."""
    broker = brokers[place] if place >= 0 else "unknown"
    computed, stated = (in_words(code, value, brokers) for value in values)
    return f"broker {broker}: computed {computed}, stated {stated}"
