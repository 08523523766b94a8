"""The last stable offset, replayed from transactions and their markers, beside the one that answers state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from replay.engine.encode import encode
from replay.engine.events import EventBatch
from replay.tables import stable_offsets
from replay.tables.stable_offsets import StableOffsets
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]


def batch(base: int, client: str = "shop", outcome: str = "commit") -> Row:
    return {"kind": "append", "base_offset": base, "client_id": client, "transaction": outcome}


def marker(base: int, outcome: str = "commit", evidence: str = "observed") -> Row:
    return {**batch(base, "broker-1-txn-marker-sender", outcome), "is_control": True, "evidence": evidence}


def read(hw: int, stable: int) -> Row:
    return {"kind": "fetch_read", "replica_id": 2, "response_hw": hw, "last_stable_offset": stable}


def leads(start: int) -> Row:
    return {"kind": "role_change", "role": "leader", "leader_id": 1, "leader_epoch": 1, "leo": start}


def checked(*rows: Row, size: int = 100) -> list[Row]:
    found = StableOffsets()
    told = [
        {"evidence": "observed", "broker_id": 1, "seq": seq, "ts": seq, "ts_lo": seq} | row
        for seq, row in enumerate(rows)
    ]
    for first in range(0, len(told), size):
        table = pa.Table.from_pylist(told[first : first + size], REPLICATION_EVENTS.arrow_schema)
        events = EventBatch(table.combine_chunks()).events
        found.take(events, encode(events, [1, 2]))
    return found.checks()


def counts(*rows: Row, **settings: int) -> tuple[int, int]:
    (row,) = checked(*rows, **settings)
    return row["compared"], row["matched"]


HISTORY: Sequence[Row] = (
    read(0, 0),
    batch(0),
    read(3, 0),  # open: nobody with read_committed sees what lies above 0
    batch(3),
    marker(5),
    read(5, 0),  # the marker is there, but below no HW
    read(6, 6),
    batch(6, "other", "abort"),
    batch(7),
    read(8, 6),
    marker(8, "abort"),
    read(9, 7),
    marker(9),
    read(10, 10),
)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_lso_is_the_first_offset_of_the_first_transaction_whose_marker_the_hw_has_not_passed(size: int) -> None:
    assert counts(*HISTORY, size=size) == (7, 7)


def test_an_lso_that_differs_is_a_mismatch_with_its_place() -> None:
    (row,) = checked(batch(0), read(3, 0), read(3, 3))
    assert (row["compared"], row["matched"], row["first_mismatch_seq"]) == (2, 1, 2)
    assert row["note"] == "at high watermark 3: computed 0, stated 3"


def test_an_lso_beyond_the_hw_of_its_answer_was_read_after_it() -> None:
    assert counts(batch(0), marker(3), read(3, 4), read(9, 10)) == (2, 2)


def test_a_transaction_that_hangs_holds_the_lso_back_for_ever() -> None:
    rows = [batch(4, outcome="open"), *(read(hw, 4) for hw in (5, 500, 5000))]
    assert counts(*rows, batch(5000, "other"), marker(5001), read(5002, 4)) == (4, 4)


def test_of_two_transactions_that_a_marker_may_end_nothing_is_claimed_from_there_on() -> None:
    rows = (
        batch(0),
        batch(1, "other"),
        read(2, 0),
        marker(2),
        read(2, 0),
        read(3, 1),
        read(3, 0),
        marker(3),
        read(4, 4),
    )
    assert counts(*rows) == (2, 2)


def test_what_a_new_leader_does_not_have_is_open_no_more_and_a_lost_marker_leaves_its_transaction_open() -> None:
    rows = (batch(0), marker(2), read(3, 3), batch(3, "other"), leads(2), read(2, 0))
    assert counts(*rows) == (2, 2)


def test_transactions_that_ended_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stable_offsets, "KEPT", 2)
    rows = [row for k in range(10) for row in (batch(2 * k), marker(2 * k + 1), read(2 * k + 2, 2 * k + 2))]
    assert counts(*rows, read(3, 3), size=1) == (10, 10)  # the last is too far back
