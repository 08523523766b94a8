"""Where a broker's own log starts tells which fetches are read from the remote tier (KIP-405), and so how they wait."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, of_kind
from test_purgatory import fetch, held, known, parked, why
from test_rolls import committed
from without_spark import same_however_batched

from pipelines.spark.saved_states import bytes_of, state_of
from replay.engine import completions as w
from replay.engine.events import EventBatch, Picked
from replay.engine.purgatory import CONSUMER_READ
from replay.protocol.profile import profile_of
from replay.protocol.state import UNSET
from replay.tables.local_starts import LocalStarts
from replay.tables.rare_events import rare_events
from replay.tables.rolls import Rolls

LATEST = profile_of((4, 1, 0))
NEVER_RAISED = {"leo": 300, "hw": 300}
READER: dict[str, Any] = {"is_follower": 0, "remote_storage": 1}
WHERE = {w.LOCAL: "local", w.REMOTE: "remote", UNSET: None}


def expected(asked: Any) -> int:
    return w.expected_wait(LATEST, asked, held(**NEVER_RAISED))


def test_what_lies_below_the_local_log_start_is_read_from_the_tier_and_waits() -> None:
    tier = {**READER, "read_from": w.REMOTE}
    readable = held(**NEVER_RAISED)
    assert (why(parked(bytes=70, **tier), readable), known(parked(bytes=70, **tier), readable)) == (
        "remote_storage", "derived"
    )  # fmt: skip
    assert why(parked(bytes=70, min_bytes=100, **tier), readable) == "remote_storage"  # however few the records are
    assert expected(fetch(bytes=70, **tier)) == w.EARLY  # it cannot have been answered at once
    assert expected(parked(bytes=70, **tier)) == w.EARLY
    assert expected(fetch(bytes=70, **{**tier, "remote_storage": 0})) == w.EARLY  # no source states the setting


def test_of_a_request_whose_other_partitions_filled_it_nothing_was_read_from_the_tier() -> None:
    assert expected(fetch(request_bytes=70, **READER, read_from=w.REMOTE)) == w.AT_ONCE
    assert expected(parked(request_bytes=70, **READER, read_from=w.REMOTE)) == w.EARLY


def test_what_lies_in_the_local_log_is_read_at_once_unless_another_partition_waited() -> None:
    local = {**READER, "read_from": w.LOCAL}
    assert expected(fetch(bytes=70, **local)) == w.AT_ONCE
    assert expected(parked(bytes=70, **local)) == w.AT_ONCE
    assert expected(parked(bytes=70, request_bytes=140, **local)) == w.EARLY
    both = parked(bytes=70, request_bytes=140, **local)
    assert (why(both, held(**NEVER_RAISED)), known(both, held(**NEVER_RAISED))) == ("other_partition", "bounded")


def test_where_no_line_tells_the_local_log_start_the_wait_tells_it() -> None:
    assert expected(parked(bytes=70, **READER)) == w.EARLY
    assert expected(fetch(bytes=70, **READER)) == w.AT_ONCE
    assert known(parked(bytes=70, **READER), held(**NEVER_RAISED)) == "bounded"


# -- from lines


def starts_at(history: History, ms: float, offset: int, broker: int = 1) -> None:
    """A line that says to where a broker moved its local log start."""
    where = {"broker_id": broker, "source_file": f"server-{broker}.log"}
    history.add("segment_change", ms, name="local_log_start", offset=offset, **where)


def reads_at(history: History, *times: float, offset: int = 0, broker: int = 1) -> None:
    for ms in times:
        history.fetch(ms, broker, -1, offset, bytes=100, hw=2, connection=f"c{ms}", current_leader_epoch=0)


def read_from(history: History) -> list[str | None]:
    """Where each read of a consumer was read, by its time; the same from run to run."""
    batch = EventBatch(history.events())
    rolls = Rolls()
    rolls.take(rare_events(batch.events))
    rolls = state_of(bytes_of({"rolls": rolls}))["rolls"]
    events = batch.events
    reads = events.at(events.kinds == CONSUMER_READ)
    in_time = Picked(batch, reads.places[reads.numbers("ts").argsort(kind="stable")])
    return [WHERE[one] for one in rolls.starts.read_from(in_time).tolist()]


@pytest.mark.parametrize(("offset", "found"), [(0, [None, None, "remote"]), (1, [None, "local", "local"])])
def test_lines_about_the_local_log_start_tell_where_a_fetch_was_read(offset: int, found: list[str | None]) -> None:
    """Until the first nothing is known; a fetch just behind a line may have come before it."""
    history = committed()
    starts_at(history, 1000, 1)
    reads_at(history, 900, 1010, 1100, offset=offset)
    assert read_from(history) == found


def test_as_it_moves_a_fetch_between_the_two_may_be_read_from_either() -> None:
    history = committed()
    starts_at(history, 500, 1)
    starts_at(history, 1000, 2)
    reads_at(history, 900, 1010, 1100, offset=1)
    assert read_from(history) == ["local", None, "remote"]


def test_another_brokers_log_starts_elsewhere() -> None:
    history = committed()
    starts_at(history, 500, 1, broker=2)
    reads_at(history, 900)
    reads_at(history, 950, broker=2)
    assert read_from(history) == [None, "remote"]


def test_the_partitions_log_start_lifts_the_local_one() -> None:
    history = committed()
    starts_at(history, 500, 1)
    history.add("log_start_change", 600, name="segment deletion", broker_id=1, log_start_offset=2, source_file="s-1")
    reads_at(history, 900, offset=1)
    assert read_from(history) == ["remote"]


@pytest.mark.parametrize(
    ("event", "start"),
    [
        ({"kind": "log_load", "cause": "created"}, 0),
        ({"kind": "log_load", "cause": None}, 10),
        ({"kind": "truncation", "cause": "leader_epoch", "truncate_to": 5}, 5),  # the log begins there
        ({"kind": "truncation", "cause": "leader_epoch", "truncate_to": 15}, 10),
        ({"kind": "truncation", "cause": "leader_epoch", "truncate_to": None}, -1),
        ({"kind": "truncation", "cause": "tiered_storage", "truncate_to": 15}, -1),
        ({"kind": "truncation", "cause": "out_of_range", "truncate_to": 15}, -1),
        ({"kind": "observation", "cause": "future_log"}, -1),
        ({"kind": "observation", "cause": "another"}, 10),
        ({"kind": "segment_change", "cause": "rolled"}, 10),
    ],
)
def test_a_log_that_is_cut_or_replaced_starts_elsewhere_or_where_nobody_knows(
    event: dict[str, Any], start: int
) -> None:
    (line,) = of_kind(moved(10).events(), "segment_change")
    starts = LocalStarts()
    starts.take(line)  # type: ignore[arg-type]
    starts.take({**{name: line[name] for name in ("seq", "broker_id", "ts")}, **event})
    assert starts.of_broker[1][-1][-1] == start
    again = LocalStarts()
    again.take({**{name: line[name] for name in ("seq", "broker_id", "ts")}, **event})
    assert again.of_broker == {}  # without a line the log may as well be all there is


def moved(offset: int) -> History:
    history = committed()
    starts_at(history, 500, offset)
    return history


def waited(offset: int, *lines: tuple[float, int], whole: int = 100) -> History:
    """A consumer's fetch of a tiered topic is answered at 900 after 40 ms, with so many bytes of all partitions."""
    history = committed()
    history.add("config_change", 0, name="remote.storage.enable", value="true", partition=None, metadata_offset=100)
    for ms, start in lines:
        starts_at(history, ms, start)
    waits = {"total_us": 40_000, "remote_us": 40_000, "max_wait_ms": 500, "min_bytes": 1}
    history.fetch(900, 1, -1, offset, bytes=100, request_bytes=whole, hw=2, **waits)
    return history


@pytest.mark.parametrize(
    ("line", "completed_by"),
    [((500, 1), "other_partition"), ((899, 1), "other_partition"), ((1500, 1), "remote_storage")],
)
def test_a_line_that_comes_later_does_not_tell_what_a_fetch_before_it_waited_for(
    line: tuple[float, int], completed_by: str
) -> None:
    """However many events come at a time: a later line may be in the next run."""
    tables = same_however_batched(waited(1, line, whole=300).events())
    (row,) = [row for row in tables["fetch_rounds"].to_pylist() if row["replica_id"] == -1]
    assert (row["completed_by"], row["evidence"]) == (completed_by, "bounded")


def test_a_fetch_from_the_tier_says_so_in_its_round() -> None:
    tables = same_however_batched(waited(0, (500, 1)).events())
    (row,) = [row for row in tables["fetch_rounds"].to_pylist() if row["replica_id"] == -1]
    assert (row["completed_by"], row["evidence"]) == ("remote_storage", "derived")
    (check,) = [row for row in tables["conformance"].to_pylist() if row["check"] == "fetch_completion"]
    assert check["compared"] == check["matched"]
