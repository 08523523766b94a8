"""Where logs begin: retention, DeleteRecords, what an answer states, and the low watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from histories_of_losses import COMMITTED, replicated
from without_spark import tables_of

if TYPE_CHECKING:
    from facts_builder import History


def starts(history: History, **settings: Any) -> list[tuple[int, int, int, int | None, str]]:
    rows = tables_of(history.events(**settings))["log_start_timeline"].to_pylist()
    return [
        (r["broker_id"], r["log_start_before"], r["log_start_offset"], r["low_watermark"], r["cause"]) for r in rows
    ]


def deleted(*, answer: bool = True, line: bool = True) -> History:
    """The leader deletes the first of two committed records; the follower fetches twice after it."""
    history = replicated()
    if line:
        told = {"broker_id": 1, "name": "segment deletion", "log_start_offset": 1, "source_file": "server-1.log"}
        history.add("log_start_change", 400, **told)
    first = {"log_start_offset": 1} if answer else {}
    history.fetch(500, 1, 2, COMMITTED, hw=COMMITTED, follower_log_start_offset=0, **first)
    history.fetch(600, 1, 2, COMMITTED, hw=COMMITTED, follower_log_start_offset=1, **first)
    return history


def test_retention_moves_the_leader_then_its_answer_the_follower_then_its_fetch_the_low_watermark() -> None:
    assert starts(deleted()) == [
        (1, 0, 1, None, "segment_deletion"),
        (2, 0, 1, None, "leader_answer"),
        (1, 1, 1, 1, "follower_fetch"),
    ]


def test_answer_tells_where_the_log_begins_where_no_line_does() -> None:
    assert starts(deleted(line=False))[0] == (1, 0, 1, None, "stated_in_answer")


@pytest.mark.parametrize(("version", "moved"), [("0.10.2", False), ("0.11.0", True)])
def test_follower_takes_its_leaders_log_start_from_0_11_on(version: str, *, moved: bool) -> None:
    found = starts(deleted(), kafka_version=version)
    assert ((2, 0, 1, None, "leader_answer") in found) is moved


def test_records_that_went_by_policy_are_no_loss() -> None:
    history = deleted()
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    history.produce(1020, 2, COMMITTED, acks=1)
    assert tables_of(history.events())["data_loss_incidents"].to_pylist() == []
