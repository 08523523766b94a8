"""Fetch sessions (KIP-227): what an incremental fetch means without saying it."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from facts_builder import History, at
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions_one_by_one import Walk

from replay.evidence.session_lines import SESSION_SCHEMA, SessionLines
from replay.evidence.sessions import rebuild_sessions, walked

SESSION, NEXT_SESSION = 77, 78
SILENT: dict[str, Any] = {"partition": None, "in_request": False, "in_response": False}


class Session(History):
    """Fetches of replica 2 from broker 1, each line in a session."""

    def send(self, ms: float, epoch: int, *listed: dict[str, Any], asked: int = SESSION, opened: int = SESSION) -> None:
        """One line: a fact per partition that it lists, or one without a partition."""
        line = {"session_epoch": epoch, "session_id": asked, "response_session_id": opened}
        number = self.correlations.get("r2", -1) + 1
        for fields in listed or (SILENT,):
            self.correlations["r2"] = number - 1
            defaults = {"in_request": True, "in_response": True, "current_leader_epoch": 0, "bytes": 0, "replica_id": 2}
            self.request("fetch", ms, "r2", broker_id=1, **{**defaults, **line, **fields})

    def opened(self) -> Session:
        """The session begins: partition 0 at offset 10, HW 8."""
        self.send(0, 0, {"fetch_offset": 10, "hw": 8}, asked=0)
        return self

    def rebuilt(self) -> list[dict[str, Any]]:
        """The rows of partition 0, by time."""
        rows = pa.concat_tables(rebuild_sessions(self.table())).to_pylist()
        return sorted((r for r in rows if r["partition"] == 0), key=lambda r: (r["ts"], r["correlation_id"]))


def test_unlisted_fetches_are_one_row_with_how_many_until_when_and_the_largest_gap() -> None:
    session = Session().opened()
    for epoch, ms in enumerate((100, 200, 650, 700), start=1):
        session.send(ms, epoch)
    session.send(800, 5, {"fetch_offset": 12, "hw": 9})
    first, run, last = session.rebuilt()
    assert (first["run_count"], last["run_count"]) == (None, None)
    assert (run["run_count"], run["ts"], run["run_until"], run["run_gap_us"]) == (4, at(100), at(700), 450_000)
    assert (run["in_request"], run["in_response"]) == (False, False)


def test_run_names_the_broker_epoch_of_its_last_fetch_since_a_broker_fetches_before_it_knows_its_own() -> None:
    session = Session()
    session.send(0, 0, {"fetch_offset": 10, "hw": 8, "replica_epoch": -1}, asked=0)
    for epoch, named in enumerate((-1, -1, 7), start=1):
        session.send(100 * epoch, epoch, {**SILENT, "replica_epoch": named})
    listed, run = session.rebuilt()
    assert (listed["replica_epoch"], run["replica_epoch"], run["run_count"]) == (-1, 7, 3)


def test_unlisted_fetch_is_one_at_the_cached_offset_and_implies_the_hw_last_sent() -> None:
    session = Session().opened()
    session.send(100, 1)
    _, run = session.rebuilt()
    assert (run["fetch_offset"], run["current_leader_epoch"]) == (10, 0)
    assert (run["hw"], run["hw_implied"], run["run_gap_us"]) == (8, True, 0)


def test_no_row_for_unlisted_fetches_where_there_were_none() -> None:
    session = Session().opened()
    session.send(100, 1, {"fetch_offset": 12, "hw": 9})
    assert [row["run_count"] for row in session.rebuilt()] == [None, None]


def test_partition_in_the_request_only_has_the_hw_last_sent() -> None:
    session = Session().opened()
    session.send(100, 1, {"fetch_offset": 12, "in_response": False})
    _, row = session.rebuilt()
    assert (row["fetch_offset"], row["hw"], row["hw_implied"]) == (12, 8, True)


def test_partition_in_the_response_only_is_completed_from_the_cache() -> None:
    session = Session().opened()
    session.send(100, 1, {"in_request": False, "hw": 9, "current_leader_epoch": None})
    _, row = session.rebuilt()
    assert (row["fetch_offset"], row["current_leader_epoch"]) == (10, 0)
    assert (row["hw"], row["hw_implied"]) == (9, False)


def test_an_answer_without_a_request_has_the_limit_that_the_session_remembers() -> None:
    session = Session()
    session.send(0, 0, {"fetch_offset": 10, "hw": 8, "partition_max_bytes": 500, "max_bytes": 900}, asked=0)
    session.send(100, 1, {"in_request": False, "hw": 9, "max_bytes": 900})
    assert [(row["partition_max_bytes"], row["max_bytes"]) for row in session.rebuilt()] == [(500, 900)] * 2


def test_hw_of_a_response_only_row_is_what_later_fetches_imply() -> None:
    session = Session().opened()
    session.send(100, 1, {"in_request": False, "hw": 9})
    session.send(200, 2)
    assert session.rebuilt()[-1]["hw"] == 9


def test_forgotten_partition_is_fetched_no_more() -> None:
    session = Session().opened()
    session.send(100, 1)
    session.send(200, 2, {"forgotten": True, "in_request": False, "in_response": False})
    session.send(300, 3)
    first, run, forgotten, left_out = session.rebuilt()
    assert first["run_count"] is None
    assert (run["kind"], run["run_count"], run["ts"]) == ("fetch", 1, at(100))
    assert forgotten["forgotten"]
    assert forgotten["fetch_offset"] is None
    assert (left_out["kind"], left_out["run_count"], left_out["ts"]) == ("left_out", 2, at(200))


def test_that_a_consumer_leaves_a_partition_out_is_no_row() -> None:
    """It does so whenever it still has records of it, some times a second."""
    session, consumer = Session(), {"replica_id": -1}
    session.send(0, 0, {"fetch_offset": 10, "hw": 8, **consumer}, asked=0)
    session.send(100, 1, SILENT | consumer)
    session.send(200, 2, {"forgotten": True, "in_request": False, "in_response": False, **consumer})
    session.send(300, 3, SILENT | consumer)
    session.send(400, 4, {"fetch_offset": 12, "hw": 12, **consumer})
    told = [(row["kind"], row["run_count"], row["fetch_offset"], row["forgotten"]) for row in session.rebuilt()]
    assert told == [
        ("fetch", None, 10, None),
        ("fetch", 1, 10, None),
        ("fetch", None, None, True),
        ("fetch", None, 12, None),
    ]


def test_gap_in_the_epochs_leaves_nothing_known_until_the_partition_is_listed_again() -> None:
    session = Session().opened()
    session.send(100, 2, {"in_request": False, "hw": 9})
    session.send(200, 3)
    session.send(300, 4, {"fetch_offset": 12, "hw": 9})
    session.send(400, 5)
    found = [(row["ts"], row["fetch_offset"], row["run_count"]) for row in session.rebuilt()]
    assert found == [(at(0), 10, None), (at(300), 12, None), (at(400), 12, 1)]


def test_failed_partition_has_no_hw_and_no_unlisted_fetches() -> None:
    session = Session().opened()
    session.send(100, 1, {"fetch_offset": 12, "hw": -1, "error_code": 6})
    session.send(200, 2)
    assert [(row["hw"], row["run_count"]) for row in session.rebuilt()] == [(8, None), (None, None)]


def test_fetches_of_other_partitions_do_not_touch_this_one() -> None:
    session = Session().opened()
    session.send(100, 1, {"partition": 1, "fetch_offset": 3, "hw": 3})
    _, run = session.rebuilt()
    assert (run["fetch_offset"], run["run_count"]) == (10, 1)


def test_fetch_without_a_session_stands_alone() -> None:
    session = Session()
    for ms, offset in ((0, 10), (100, 11)):
        session.send(ms, -1, {"fetch_offset": offset, "hw": 8}, asked=0, opened=0)
    session.send(200, -1, asked=0, opened=0)
    assert [(row["fetch_offset"], row["hw"], row["run_count"]) for row in session.rebuilt()] == [
        (10, 8, None),
        (11, 8, None),
    ]


def test_sessions_of_two_fetchers_are_kept_apart() -> None:
    session = Session().opened()
    session.send(50, 0, {"fetch_offset": 40, "hw": 8}, asked=0, opened=NEXT_SESSION)
    session.send(100, 1)
    session.send(150, 1, asked=NEXT_SESSION, opened=NEXT_SESSION)
    assert [(row["fetch_offset"], row["run_count"]) for row in session.rebuilt()] == [
        (10, None),
        (40, None),
        (10, 1),
        (40, 1),
    ]


def test_order_of_the_facts_does_not_matter() -> None:
    session = Session().opened()
    for epoch in range(1, 9):
        session.send(epoch * 100, epoch, *([{"fetch_offset": 10 + epoch, "hw": 8}] if epoch % 3 == 0 else []))
    expected = pa.concat_tables(rebuild_sessions(session.table()))
    session.rows.reverse()
    assert pa.concat_tables(rebuild_sessions(session.table())).equals(expected)


def test_rows_are_the_same_however_many_leave_at_once() -> None:
    session = Session().opened()
    for epoch in range(1, 9):
        session.send(epoch * 100, epoch, *([{"fetch_offset": 10 + epoch, "hw": 8}] if epoch % 3 == 0 else []))
    (whole,) = rebuild_sessions(session.table())
    pieces = list(rebuild_sessions(session.table(), rows=2))
    assert len(pieces) == -(-len(whole) // 2) > 2
    assert pa.concat_tables(pieces).equals(whole)


def test_full_fetch_that_closes_a_session_opens_the_next_one() -> None:
    session = Session().opened()
    session.send(100, 1)
    session.send(200, 0, {"fetch_offset": 50, "hw": 40}, asked=SESSION, opened=NEXT_SESSION)  # after a disconnection
    session.send(300, 1, asked=NEXT_SESSION, opened=NEXT_SESSION)
    assert [(row["ts"], row["fetch_offset"], row["run_count"]) for row in session.rebuilt()] == [
        (at(0), 10, None),
        (at(100), 10, 1),
        (at(200), 50, None),
        (at(300), 50, 1),
    ]


@pytest.mark.parametrize(("preferred", "forced"), [(None, False), (-1, False), (0, True), (3, True)])
def test_consumer_that_is_sent_to_a_replica_is_answered_at_once_and_broker_0_is_a_replica(
    preferred: int | None, *, forced: bool
) -> None:
    session = Session()
    read = {"fetch_offset": 10, "hw": 20, "preferred_read_replica": preferred, "in_request": True, "in_response": True}
    session.request("fetch", 0, "c1", broker_id=1, replica_id=-1, session_epoch=-1, **read)
    assert [row["request_forced"] for row in session.rebuilt()] == [forced]


PARTITIONS = st.sampled_from([0, 0, 1, None])
LISTED = st.fixed_dictionaries(
    {
        "partition": PARTITIONS,
        "in_request": st.sampled_from([True, True, False]),
        "in_response": st.booleans(),
        "forgotten": st.sampled_from([False, False, False, True]),
        "error_code": st.sampled_from([0, 0, 0, 6]),
        "diverging_epoch": st.sampled_from([None, None, None, 3]),
    }
)
LINES = st.tuples(
    st.sampled_from([1, 1, 1, 1, 2, 0]), st.sampled_from([1] * 9 + [2]), st.lists(LISTED, min_size=1, max_size=2)
)


@settings(max_examples=50)
@given(lines=st.lists(LINES, max_size=25), seed=st.integers(0, 2**32))
def test_all_lines_at_once_tell_what_they_tell_one_by_one(
    lines: list[tuple[int, int, list[dict[str, Any]]]], seed: int
) -> None:
    epochs = {0: -1, 1: -1, 2: -1}
    sent = []
    for session, step, every in lines:
        epochs[session] += step  # 2: a line is missing
        sent.append((session, epochs[session] if session else 0, every))
    rows = [
        {
            **listed,
            "session_epoch": epoch,
            "session_id": session if epoch else 0,
            "response_session_id": session,
            "connection": "c",
            "correlation_id": number,
            "ts": at(100 * epoch + number % 7),
            "topic": "t",
            "hw": 0,
            "replica_id": 2,
        }
        for number, (session, epoch, every) in enumerate(sent)
        for listed in every
    ]
    Random(seed).shuffle(rows)  # noqa: S311 - a test's choice
    names = [*rows[0], "fact_id"] if rows else ["fact_id"]
    schema = pa.schema([SESSION_SCHEMA.field(name) for name in names])
    facts = pa.Table.from_pylist([{**row, "fact_id": f"{k:05}"} for k, row in enumerate(rows)], schema)
    given_lines = SessionLines(facts)
    found = walked(given_lines).rows
    assert list(zip(*(column.tolist() for column in found), strict=True)) == Walk(given_lines).all()


@pytest.mark.parametrize(("error", "forced"), [(0, False), (100, False), (29, False), (6, True), (3, True)])
def test_what_is_refused_before_anything_is_read_ends_no_wait_of_other_partitions(error: int, *, forced: bool) -> None:
    session = Session()
    read = {"fetch_offset": 0, "error_code": error, "in_request": True, "in_response": True}
    session.request("fetch", 0, "c1", broker_id=1, replica_id=2, session_epoch=-1, **read)
    assert [row["request_forced"] for row in session.rebuilt()] == [forced]
