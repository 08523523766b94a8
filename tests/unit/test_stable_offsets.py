"""The last stable offset, replayed from transactions and their markers, beside the one that answers state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.emit import HwRow
from replay.engine.encode import encode
from replay.engine.events import EventBatch
from replay.protocol.state import UNSET
from replay.tables import transactions as transactions_kept
from replay.tables.stable_offsets import StableOffsets
from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]


def batch(base: int, client: str = "shop", outcome: str = "commit", producer: int | None = None) -> Row:
    told = {"kind": "append", "base_offset": base, "client_id": client, "transaction": outcome}
    return told | {"leader_epoch": 0, "producer_id": producer}


def marker(base: int, outcome: str = "commit", evidence: str = "observed", producer: int | None = None) -> Row:
    sender = "broker-1-txn-marker-sender"
    return {**batch(base, sender, outcome, producer), "is_control": True, "evidence": evidence}


def read(hw: int, stable: int) -> Row:
    return {"kind": "fetch_read", "replica_id": 2, "response_hw": hw, "last_stable_offset": stable}


def leads(start: int, epoch: int = 1) -> Row:
    return {"kind": "role_change", "role": "leader", "leader_id": 1, "leader_epoch": epoch, "leo": start}


def rises(hw: int) -> Row:
    """An event at which the leader's HW rises, which the fold would find."""
    return {"kind": "fetch_update", "replica_id": 2, "fetch_offset": hw}


def taken(*rows: Row, size: int = 100) -> tuple[StableOffsets, list[int]]:
    """What was made of these events, and the LSO after each rise of the HW."""
    found, stable = StableOffsets(), []
    told = [
        {"evidence": "observed", "broker_id": 1, "seq": seq, "ts": seq, "ts_lo": seq} | row
        for seq, row in enumerate(rows)
    ]
    for first in range(0, len(told), size):
        table = pa.Table.from_pylist(told[first : first + size], REPLICATION_EVENTS.arrow_schema)
        events = EventBatch(table.combine_chunks()).events
        encoded = encode(events, [1, 2])
        moved = encoded[encoded["kind"] == c.FETCH_UPDATE]
        moves = blank(len(moved), HwRow)
        moves["seq"], moves["ts"], moves["hw"], moves["role"] = moved["seq"], moved["ts"], moved["fetch_offset"], 2
        stable += found.take(events, encoded, moves).tolist()
    return found, stable


def checked(*rows: Row, size: int = 100) -> list[Row]:
    return taken(*rows, size=size)[0].checks()


def transactions(*rows: Row, size: int = 100) -> list[Row]:
    return taken(leads(0, epoch=0), *rows, size=size)[0].finish()


def outcomes(*rows: Row) -> list[tuple[int, str, int | None]]:
    return [(row["first_offset"], row["outcome"], row["marker_offset"]) for row in transactions(*rows)]


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


def test_of_two_transactions_that_a_marker_may_end_nothing_is_claimed_until_both_have_ended() -> None:
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
    assert counts(*rows) == (3, 3)


def test_what_a_new_leader_does_not_have_is_open_no_more_and_a_lost_marker_leaves_its_transaction_open() -> None:
    rows = (batch(0), marker(2), read(3, 3), batch(3, "other"), leads(2), read(2, 0))
    assert counts(*rows) == (2, 2)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_lso_moves_with_the_hw_and_tells_when_a_transaction_could_be_read(size: int) -> None:
    rows = (
        leads(0, epoch=0), rises(0), batch(0, producer=7), rises(2), batch(2, "other", "abort", 8), rises(4),
        marker(4, producer=7), rises(4), rises(5), marker(5, "abort", producer=8), rises(6),
    )  # fmt: skip
    found, stable = taken(*rows, size=size)
    assert stable == [UNSET, 0, 0, 0, 2, 6]
    first, second = found.finish()
    assert (first["outcome"], first["marker_offset"], first["stable_ts"], first["producer_id"]) == ("commit", 4, 10, 7)
    assert (second["outcome"], second["first_offset"], second["stable_ts"]) == ("abort", 2, 10)
    assert second["unstable_ms"] == (10 - 4) / 1000


def test_of_two_transactions_that_end_alike_the_producers_id_tells_which_one_a_marker_ends() -> None:
    rows = (batch(0, producer=7), batch(1, "other", producer=8), read(2, 0), marker(2, producer=8), read(3, 0))
    assert counts(*rows, marker(3, producer=7), read(4, 4)) == (3, 3)
    assert outcomes(*rows) == [(0, "open", None), (1, "commit", 2)]


@pytest.mark.parametrize("size", [1, 100])
def test_a_batch_of_which_no_line_tells_what_it_is_may_be_a_marker(size: int) -> None:
    unknown = {"kind": "append", "base_offset": 1, "leader_epoch": 0}
    rows = (batch(0, producer=7), read(1, 0), unknown, read(2, 2), batch(2, producer=7), marker(3, producer=7))
    assert counts(*rows, read(4, 4), size=size) == (2, 2)
    plain = {**unknown, "client_id": "shop"}  # of a client that is in no transaction
    assert counts(batch(0, producer=7), plain, read(2, 2), size=size) == (1, 0)


def test_a_marker_of_a_producer_without_an_open_transaction_ends_none() -> None:
    assert outcomes(batch(0, producer=7), marker(1, producer=8)) == [(0, "open", None)]


def test_a_marker_that_an_unclean_leader_does_not_have_leaves_its_transaction_open() -> None:
    """KAFKA-20716: whoever reads committed records stops before it, though its producer was told that it ended."""
    rows = (batch(0, producer=7), rises(2), marker(2, producer=7), rises(3), leads(2))
    (row,) = transactions(*rows, {**batch(2, "later"), "leader_epoch": 1, "transaction": None}, rises(9))
    assert (row["outcome"], row["marker_offset"], row["stable_ts"]) == ("open", None, None)
    assert (row["removed_marker_offset"], row["removed_by_epoch"]) == (2, 1)
    assert taken(leads(0, epoch=0), *rows, rises(9))[1] == [0, 3, 0]


def test_a_transaction_goes_on_in_one_whose_marker_was_removed_and_a_marker_ends_both() -> None:
    rows = (batch(0, producer=7), marker(2, producer=7), leads(2), {**batch(2, producer=7), "leader_epoch": 1})
    aborted = {**marker(4, "abort", producer=7), "leader_epoch": 1}
    (row,) = transactions(*rows, aborted, rises(5))
    assert (row["first_offset"], row["outcome"], row["marker_offset"]) == (0, "abort", 4)
    assert row["removed_marker_offset"] == 2


def test_a_transaction_that_a_later_leader_does_not_have_is_removed() -> None:
    rows = (batch(0, producer=7), marker(2, producer=7), batch(3, producer=8), leads(2))
    assert sorted(outcomes(*rows)) == [(0, "open", None), (3, "removed", None)]


def test_what_a_deposed_leader_still_appends_is_in_no_other_leaders_log() -> None:
    assert outcomes(batch(0), leads(0), batch(0, "late")) == [(0, "removed", None)]


def test_a_marker_that_may_end_several_leaves_bounded_evidence() -> None:
    rows = transactions(batch(0), batch(1, "other"), marker(2), marker(3))
    assert sorted((row["first_offset"], row["evidence"]) for row in rows) == [(0, "bounded"), (1, "derived")]


def test_that_no_marker_is_known_does_not_show_that_a_transaction_hangs() -> None:
    (row,) = transactions(batch(0))
    assert (row["outcome"], row["evidence"]) == ("open", "bounded")


def test_transactions_that_ended_long_ago_are_told_of_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_kept, "KEPT", 2)
    rows = [row for k in range(10) for row in (batch(2 * k), marker(2 * k + 1), rises(2 * k + 2))]
    found, _ = taken(*rows)
    found.transactions.forget()
    assert [row["first_offset"] for row in found.rows()] == [0, 2, 4, 6, 8, 10, 12, 14]
    assert len(found.transactions.ended) == 2
    assert not found.transactions.is_certain(np.array([3])).any()  # too far back
