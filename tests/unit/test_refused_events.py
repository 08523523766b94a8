"""Events that another tool wrote, or that break a rule: they neither stop a replay nor move what they do not name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from histories_of_losses import acks_one_failure
from small_partition import A, B, apply, at, led
from without_spark import tables_of

from replay.engine import codes as c
from replay.protocol.state import NONE

if TYPE_CHECKING:
    import pyarrow as pa


def without_field(kind: str, *names: str) -> pa.Table:
    """A history whose events of one kind lack a field."""
    events = acks_one_failure().events()
    rows = [{**row, **(dict.fromkeys(names) if row["kind"] == kind else {})} for row in events.to_pylist()]
    return type(events).from_pylist(rows, schema=events.schema)


def lost(events: pa.Table) -> list[int]:
    return [row["records"] for row in tables_of(events)["data_loss_incidents"].to_pylist()]


@pytest.mark.parametrize("kind", ["ack", "fetch_read", "fetch_update", "truncation", "append", "role_change"])
def test_event_without_brokers_makes_up_no_loss(kind: str) -> None:
    assert sum(lost(without_field(kind, "broker_id", "replica_id"))) <= sum(lost(acks_one_failure().events()))


def test_answer_applied_by_nobody_moves_nobodys_log() -> None:
    assert lost(without_field("fetch_apply", "broker_id", "replica_id")) == [3]


@pytest.mark.parametrize("kind", [c.FETCH_APPLY, c.FETCH_UPDATE, c.TRUNCATION, c.LOG_LOAD])
def test_event_of_an_unknown_replica_changes_nothing(kind: int) -> None:
    s = at(led(), leo=9, remote={B: 9})
    before = [column.copy() for column in s]
    fields: dict[str, Any] = {"broker": A if kind in (c.FETCH_APPLY, c.FETCH_UPDATE) else NONE, "replica": NONE}
    assert apply(s, kind, next_offset=7, fetch_offset=7, leo=7, truncate_to=0, **fields) == c.BROKEN
    assert all((x == y).all() for x, y in zip(before, s, strict=True))


def test_fetch_beyond_the_leaders_leo_states_nothing_of_the_follower() -> None:
    s = at(led(), leo=9, remote={B: 9})
    assert apply(s, c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=50) == c.BROKEN
    assert s.leo[B] == 9


def test_truncation_without_a_cause_is_replayed() -> None:
    assert lost(without_field("truncation", "cause")) == [3]
