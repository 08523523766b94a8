"""Rolls of segments complete fetches: what lines about them show of where an offset lies, and what they leave open."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History
from test_purgatory import fetch, held, known, parked, why
from without_spark import tables_of

from replay.engine import completions as w
from replay.protocol.profile import profile_of

BEFORE_3_8 = profile_of((3, 7, 2))
LATEST = profile_of((4, 1, 0))
WAITED_IN_FULL = {"wait_us": 500_000}


@pytest.mark.parametrize("asked", [parked, fetch])
def test_fetch_of_an_older_segment_than_the_end_is_completed_whatever_the_bytes(asked: Any) -> None:
    few = {"bytes": 70, "min_bytes": 100}
    rolled = asked(**few, older_segment=1)
    assert (why(rolled, held(leo=101)), known(rolled, held(leo=101))) == ("segment_roll", "derived")
    assert known(asked(**few), held(leo=101)) != "derived"


def test_up_to_3_7_fetch_beyond_the_end_completes_if_a_line_shows_that_the_end_is_on_an_older_segment() -> None:
    beyond, shown = held(leo=90, hw=90), parked(later_segment=1, **WAITED_IN_FULL)
    assert known(parked(later_segment=1), beyond, BEFORE_3_8) == "derived"
    assert w.expected_wait(BEFORE_3_8, shown, beyond) == w.EARLY
    assert w.expected_wait(BEFORE_3_8, parked(**WAITED_IN_FULL), beyond) == w.IN_FULL  # as it was
    assert w.expected_wait(LATEST, parked(**WAITED_IN_FULL), beyond) == w.EARLY


# -- from lines


def rolled(history: History, ms: float, base: int, broker: int = 1) -> None:
    """A line that says that a segment was rolled."""
    where = {"broker_id": broker, "source_file": f"server-{broker}.log"}
    history.add("segment_change", ms, name="segment_rolled", base_offset=base, **where)


def committed() -> History:
    """1 leads with 2; two records are committed at 120."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for base in (0, 1):
        history.produce(100 + 3 * base, 1, base, acks=1)
        history.fetch(101 + 3 * base, 1, 2, base, bytes=100, hw=0)
    history.fetch(120, 1, 2, 2, hw=2)
    return history


def read(history: History, asked: float, answered: float, offset: int, **fields: Any) -> None:
    """A consumer's fetch of 1000 bytes from broker 1."""
    us = round((answered - asked) * 1000)
    waits = {"total_us": us, "remote_us": us, "max_wait_ms": 500, "min_bytes": 1000, "max_bytes": 1 << 20}
    history.fetch(answered, 1, -1, offset, **{**waits, "request_bytes": fields.get("bytes", 0), **fields})


def completed(history: History, **settings: Any) -> tuple[str, str]:
    """What completed the consumer's last fetch, and how that is known, however many events come at a time."""
    events = history.events(**settings)
    found = set()
    for size in (1, 3, 1000):
        rows = [r for r in tables_of(events, size)["fetch_rounds"].to_pylist() if r["replica_id"] == -1]
        found.add((rows[-1]["completed_by"], rows[-1]["evidence"]))
    (same,) = found
    return same


@pytest.mark.parametrize(
    ("roll", "evidence"),
    [
        ((102, 1, 1), "derived"),  # behind the offset, before the fetch came
        ((110, 0, 1), "bounded"),  # at the offset, long before: the fetch lies on that segment
        ((110, 2, 1), "bounded"),  # at the end, which may still lie on the segment before
        ((110, 1, 2), "bounded"),  # of the follower's log
        (None, "bounded"),
    ],
)
def test_line_about_a_roll_shows_what_completed_a_fetch_with_fewer_bytes(
    roll: tuple[float, int, int] | None, evidence: str
) -> None:
    history = committed()
    if roll is not None:
        rolled(history, *roll)
    read(history, 2000, 2040, 0, bytes=100, hw=2)
    assert completed(history) == ("segment_roll", evidence)


def test_segment_that_was_rolled_at_the_very_offset_while_the_fetch_waited_completes_it() -> None:
    history = committed()
    history.produce(2030, 1, 2, acks=1)
    rolled(history, 2030, 2)
    history.fetch(2031, 1, 2, 2, bytes=100, hw=2)
    history.fetch(2034, 1, 2, 3, hw=3)
    read(history, 2000, 2040, 2, bytes=100, hw=3)
    assert completed(history) == ("segment_roll", "derived")


def beyond(*rolls: tuple[float, int], cut: int | None = None) -> History:
    """2 took over with the HW at 0 and two records, and a consumer reads from 2 there; 1 has not fetched yet."""
    history = committed()
    for ms, base in rolls:
        rolled(history, ms, base, 2)
    if cut is not None:
        history.add("truncation", 130, name="log", broker_id=2, offset=cut, source_file="server-2.log")
    history.decide(1000, 2, [1, 2], leader_epoch=1, partition_epoch=1)
    history.role(1010, 2, "leader", 1, offset=2, hw=0)
    waits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20}
    history.fetch(1100, 2, -1, 2, hw=0, current_leader_epoch=1, **waits)
    return history


@pytest.mark.parametrize(
    ("version", "rolls", "evidence"),
    [
        ("3.7.1", [(105, 1)], "derived"),
        ("3.7.1", [(105, 2)], "derived"),
        ("3.7.1", [], "bounded"),
        ("3.8.0", [], "derived"),
    ],
)
def test_line_about_a_roll_shows_that_a_fetch_beyond_the_hw_of_a_new_leader_completes(
    version: str, rolls: list[tuple[float, int]], evidence: str
) -> None:
    assert completed(beyond(*rolls), kafka_version=version) == ("truncated_leader", evidence)


def test_segment_that_a_truncation_took_away_shows_nothing() -> None:
    assert completed(beyond((105, 1), cut=1), kafka_version="3.7.1") == ("truncated_leader", "bounded")
    assert completed(beyond((105, 1), cut=2), kafka_version="3.7.1") == ("truncated_leader", "derived")
