"""What Kafka's metrics would have shown: each partition's part in them, then broker by broker and minute by minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from facts_builder import History, at, of_kind
from isr_histories import begun, isr_line, late_history
from without_spark import tables_of, tables_of_recording

from pipelines.overview.metrics import cluster_metrics, stretches_of
from replay.engine.codes import INELIGIBLE_REPLICA, INVALID_UPDATE_VERSION
from replay.evidence.coverage import LOGGED, METADATA, NOTHING_TELLS, REQUEST_LOG, SERVER_LOG, SILENT
from replay.tables.cluster_metrics import levels
from replay.tables.meters import MINUTE_US, Meters
from schemas.meters import PARTITION_METERS

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]
UNKNOWN_SERVER_ERROR = -1  # the leader sends its request again


def meters(history: History, metric: str, *, size: int = 1000, **settings: Any) -> list[Row]:
    rows = tables_of(history.events(**settings), size=size)["partition_meters"].to_pylist()
    return [row for row in rows if row["metric"] == metric]


def told(history: History, metric: str, **settings: Any) -> list[tuple[int | None, int | None]]:
    """(broker, value) of each change."""
    return [(row["broker_id"], row["value"]) for row in meters(history, metric, **settings)]


def alone() -> History:
    """Broker 1 leads, and its ISR falls from three to itself by the metadata."""
    history = begun()
    history.decide(1000, None, [1])
    isr_line(history, 1010, "applied", [1], partition_epoch=1)
    return history


def test_a_leader_counts_a_partition_as_under_replicated_from_when_it_learns_of_the_smaller_isr() -> None:
    rows = meters(alone(), "UnderReplicatedPartitions")
    assert [(row["broker_id"], row["value"], row["ts"]) for row in rows] == [(1, 1, at(1010))]


def test_a_deposed_leader_counts_until_it_learns_of_it() -> None:
    history = alone()
    history.decide(2000, 2, [2], leader_epoch=1)
    history.role(2010, 2, "leader", 1, offset=0, hw=0)
    history.role(5000, 1, "follower", 1, offset=0, hw=0)
    assert told(history, "UnderReplicatedPartitions") == [(1, 1), (2, 1), (1, 0)]
    assert told(history, "LeaderCount") == [(1, 1), (2, 1), (1, 0)]


def test_a_broker_that_starts_again_counts_nothing() -> None:
    history = alone()
    history.decide(2000, 2, [2], leader_epoch=1)
    history.add("log_load", 4000, broker_id=1, offset=0, hw=0, source_file="server-1.log")
    history.role(4100, 1, "follower", 1, offset=0, hw=0, leader_id=2)
    rows = meters(history, "UnderReplicatedPartitions")
    assert [(row["broker_id"], row["value"], row["ts"]) for row in rows if row["broker_id"] == 1] == [
        (1, 1, at(1010)),
        (1, 0, at(4000)),
    ]


@pytest.mark.parametrize(("version", "wanted"), [("2.4.1", [(1, 1), (1, 0)]), ("2.5.0", [])])
def test_a_replica_that_is_being_added_makes_no_partition_under_replicated_from_2_5_on(
    version: str, wanted: list[tuple[int, int]]
) -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2, 3], adding_replicas=[3])
    history.role(10, 1, "leader", 0, offset=0, hw=0, isr=[1, 2])
    history.decide(1000, None, [1, 2], replicas=[1, 2], adding_replicas=[])
    isr_line(history, 1010, "applied", [1, 2], partition_epoch=1)
    assert told(history, "UnderReplicatedPartitions", kafka_version=version) == wanted


@pytest.mark.parametrize(("version", "under", "at_min"), [("3.6.2", [1], []), ("3.7.0", [], [1])])
def test_the_minimum_is_at_most_the_number_of_replicas_from_3_7_on(
    version: str, under: list[int], at_min: list[int]
) -> None:
    history = begun()
    history.add("config_change", 0, name="min.insync.replicas", value="5", resource_type=2, metadata_offset=99)
    for metric, wanted in (("UnderMinIsrPartitionCount", under), ("AtMinIsrPartitionCount", at_min)):
        rows = told(history, metric, kafka_version=version, settings={"min.insync.replicas": 5})
        assert [value for broker, value in rows if broker == 1] == wanted


def test_without_a_known_minimum_nothing_is_said_of_it() -> None:
    (row,) = [row for row in meters(begun(), "UnderMinIsrPartitionCount") if row["broker_id"] == 1]
    assert (row["value"], row["evidence"]) == (None, "unknown")


def test_a_shrink_that_the_controller_answered_is_marked() -> None:
    (row,) = meters(late_history(), "IsrShrinksPerSec", settings={"replica.lag.time.max.ms": 1000}, lag_us=0)
    assert (row["broker_id"], row["value"], row["highest"], row["ts"]) == (1, 1, 1, at(1710))


def test_what_reaches_the_leader_by_the_metadata_is_marked_by_nobody() -> None:
    assert meters(alone(), "IsrShrinksPerSec") == []


def test_an_answer_without_a_line_may_have_been_marked() -> None:
    history = begun()
    history.decide(1000, None, [1, 2])
    isr_line(history, 1010, "applied", [1, 2], partition_epoch=1)
    history.fetch(1500, 1, 3, 0, hw=0)
    isr_line(history, 1500, "pending_expand", [1, 2, 3], replica_id=3, partition_epoch=1)
    history.decide(1510, None, [1, 2, 3])
    (row,) = meters(history, "IsrExpandsPerSec")
    assert (row["value"], row["highest"], row["evidence"]) == (0, 1, "bounded")


def test_an_answer_and_the_metadata_in_one_millisecond_are_told_apart_by_their_lines() -> None:
    history = begun()
    history.decide(1500, None, [1, 2])
    for name, line in (("updated", 7), ("applied", 8)):
        isr_line(history, 1510, name, [1, 2], partition_epoch=1, source_line=line)
    (row,) = meters(history, "IsrShrinksPerSec")
    assert (row["broker_id"], row["value"], row["highest"]) == (1, 1, 1)


def test_a_refused_change_is_a_failed_update() -> None:
    history = begun()
    isr_line(history, 1500, "pending_shrink", [1, 2], partition_epoch=0)
    isr_line(history, 1510, "failed", [1, 2], error_code=74, partition_epoch=0)
    assert told(history, "FailedIsrUpdatesPerSec") == [(1, 1)]


def refused_meters(error: int, *, by_line: bool) -> list[tuple[int | None, int | None, str]]:
    """(value, highest, evidence) of the meter when the controller refuses a change of the ISR with this error."""
    history = begun()
    isr_line(history, 1500, "pending_expand", [1, 2, 3], partition_epoch=0, replica_id=3)
    if by_line:
        isr_line(history, 1510, "failed", [1, 2, 3], error_code=error, partition_epoch=0)
    else:
        asked = {"leader_epoch": 0, "partition_epoch": 0, "isr": [1, 2, 3], "replica_id": 1, "error_code": error}
        for ms in (1510, 1510.2):
            history.request("isr_request", ms, "c100", broker_id=100, source_file="request-100.log", **asked)
    return [(row["value"], row["highest"], row["evidence"]) for row in meters(history, "FailedIsrUpdatesPerSec")]


def test_a_line_about_a_refusal_after_which_the_leader_asks_again_may_stand_for_several() -> None:
    """Of lines with the same words in the same millisecond one fact is made."""
    for error in (INELIGIBLE_REPLICA, UNKNOWN_SERVER_ERROR):
        assert refused_meters(error, by_line=True) == [(1, None, "bounded")]
    assert refused_meters(INVALID_UPDATE_VERSION, by_line=True) == [(1, 1, "observed")]


def test_a_refused_request_is_marked_unless_the_leader_has_taken_up_another_state_meanwhile() -> None:
    assert refused_meters(INELIGIBLE_REPLICA, by_line=False) == [(0, 1, "bounded")] * 2


def test_a_final_refusal_is_told_by_the_controller_though_lines_tell_of_others() -> None:
    """A leader writes of it at DEBUG only."""
    history = begun()
    asked = {"leader_epoch": 0, "partition_epoch": 0, "isr": [1, 2], "replica_id": 1}
    for ms, error in ((1505, INELIGIBLE_REPLICA), (1600, INVALID_UPDATE_VERSION)):
        place = {"broker_id": 100, "source_file": "request-100.log", "error_code": error}
        history.request("isr_request", ms, "c100", **place, **asked)
    isr_line(history, 1510, "failed", [1, 2], error_code=INELIGIBLE_REPLICA, partition_epoch=0)
    events = of_kind(history.events(), "isr_request")
    assert [(row["cause"], row["request_id"] is None) for row in events if row["error_code"]] == [
        ("reset", True),
        ("refused", False),
    ]


def test_a_meter_of_which_no_bound_is_known_has_no_highest_in_that_minute() -> None:
    name = "FailedIsrUpdatesPerSec"
    parts = [part(1, 1, highest=1, metric=name), part(2, 1, metric=name), part(61, 1, highest=1, metric=name)]
    assert minutes(parts, WHOLE, name)[:2] == [(None, 2, None, "bounded"), (1, 1, 1, "derived")]


def test_the_controller_counts_a_partition_without_a_leader_and_an_unclean_election() -> None:
    history = alone()
    history.decide(2000, -1, [1], leader_epoch=1)
    history.decide(3000, 2, [2], leader_epoch=2, leader_recovery_state=1)
    assert told(history, "OfflinePartitionsCount") == [(None, 1), (None, 0)]
    assert told(history, "UncleanLeaderElectionsPerSec") == [(None, 1)]


def test_of_several_moves_in_one_event_the_last_counts() -> None:
    same = {"machine": "partition", "ts": 0, "evidence": "derived"}
    states = [(1, "Offline"), (4, "Online"), (4, "Offline"), (4, "Online")]
    moves = [{**same, "seq": seq, "state": state} for seq, state in states]
    rows = Meters().take_all([], moves, lambda *_: (None, None))
    assert [(row["seq"], row["value"]) for row in rows] == [(1, 1), (4, 0)]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_lag_is_the_leaders_hw_less_what_the_follower_has_a_row_for_each_minute(size: int) -> None:
    history = begun()
    history.fetch(50, 1, 2, 0, bytes=0, hw=0)
    for k, ms in enumerate((1000, 30_000, 59_500, 61_000, 62_000, 200_000)):
        history.fetch(ms, 1, 3, 0 if k < 5 else 10, bytes=0, hw=(2, 9, 4, 5, 7, 10)[k])
    rows = meters(history, "MaxLag", size=size)
    assert {row["broker_id"] for row in rows} == {3}
    assert [(row["value"], row["highest"]) for row in rows] == [(4, 9), (7, 7), (0, 0)]


def test_levels_are_the_lowest_highest_and_last_of_each_minute() -> None:
    begins = np.arange(0, 4 * MINUTE_US, MINUTE_US)
    steps = [(10, 1), (70, 1), (70, -1), (80, 1), (90, -2), (119, 1)]  # at the same time: one step
    found = levels(
        np.array([seconds * 1_000_000 for seconds, _ in steps]), np.array([step for _, step in steps]), begins
    )
    assert found.low.tolist() == [0, 0, 1, 1]
    assert found.high.tolist() == [1, 2, 1, 1]
    assert found.end.tolist() == [1, 1, 1, 1]


def part(seconds: int, value: int | None, **fields: Any) -> Row:
    place = {"recording_id": "r", "topic": "orders", "incarnation": 0, "partition": 0, "window": None}
    row = {"seq": seconds, "ts": seconds * 1_000_000, "broker_id": 1, "metric": "UnderReplicatedPartitions"}
    return {**place, **row, "value": value, "highest": None, "evidence": "derived", **fields}


def stretch(source: str, start: int, end: int, state: str = LOGGED, reason: str | None = None) -> Row:
    broker = None if source == METADATA else 1
    times = {"start_ts": start * 1_000_000, "end_ts": end * 1_000_000}
    return {"broker_id": broker, "source": source, "state": state, "reason": reason, **times}


def minutes(parts: list[Row], coverage: list[Row], metric: str = "UnderReplicatedPartitions") -> list[tuple[Any, ...]]:
    found = cluster_metrics(pa.Table.from_pylist(parts, PARTITION_METERS.arrow_schema), coverage, "r")
    assert isinstance(found, pa.Table)
    names = ("value", "lowest", "highest", "evidence")
    return [tuple(row[name] for name in names) for row in found.to_pylist() if row["metric"] == metric]


WHOLE = [stretch(source, 0, 180) for source in (REQUEST_LOG, SERVER_LOG, METADATA)]


def test_partitions_of_a_broker_are_added_up() -> None:
    parts = [part(20, 1), part(130, 0), part(30, 1, partition=1), part(40, 0, partition=1)]
    assert minutes(parts, WHOLE)[:3] == [(1, 0, 2, "derived"), (1, 1, 1, "derived"), (0, 0, 1, "derived")]


def test_a_part_that_is_not_known_leaves_the_sum_between_two_bounds() -> None:
    parts = [part(20, 1), part(70, None, partition=1, evidence="unknown")]
    assert minutes(parts, WHOLE)[:2] == [(1, 0, 1, "derived"), (None, 1, 2, "bounded")]


def test_nothing_is_claimed_of_a_minute_in_which_nothing_shows_that_the_broker_was_up() -> None:
    logs = [
        stretch(REQUEST_LOG, 0, 50),
        stretch(REQUEST_LOG, 50, 130, SILENT, NOTHING_TELLS),
        stretch(REQUEST_LOG, 130, 180),
        *WHOLE[1:],
    ]
    assert minutes([part(20, 1)], logs)[:3] == [
        (1, 0, 1, "bounded"),
        (None, None, None, "unknown"),
        (1, 1, 1, "bounded"),
    ]


def test_a_meter_counts_by_minute() -> None:
    name = "IsrShrinksPerSec"
    parts = [part(s, 1, highest=1, metric=name) for s in (1, 2, 61)] + [part(62, 0, highest=1, metric=name)]
    assert minutes(parts, WHOLE, name)[:3] == [(2, 2, 2, "derived"), (None, 1, 2, "bounded"), (0, 0, 0, "derived")]


def test_max_lag_is_the_largest_of_all_and_lasts_until_it_changes() -> None:
    parts = [part(5, 3, highest=9, metric="MaxLag"), part(130, 0, highest=3, metric="MaxLag")]
    parts.append(part(10, 5, highest=5, metric="MaxLag", partition=1))
    assert minutes(parts, WHOLE, "MaxLag")[:3] == [
        (5, None, 9, "derived"),
        (5, None, 5, "derived"),
        (5, None, 5, "derived"),
    ]


def test_the_recorded_unclean_election_as_a_dashboard_shows_it(recordings: Path) -> None:
    """Its brokers exported these by their logs; the controller removed who was fenced, so that no leader marked it."""
    tables = tables_of_recording(recordings / "unclean-election")
    found = cluster_metrics(tables["partition_meters"], stretches_of(tables["coverage"]), "unclean-election")
    assert isinstance(found, pa.Table)
    rows = {(f"{row['minute']:%H:%M}", row["broker_id"], row["metric"]): row for row in found.to_pylist()}
    assert rows["03:48", 1, "UnderReplicatedPartitions"]["value"] == 4
    assert rows["03:49", None, "UncleanLeaderElectionsPerSec"]["value"] == 3
    assert {row["highest"] for (_, _, metric), row in rows.items() if metric == "IsrShrinksPerSec"} == {0}
