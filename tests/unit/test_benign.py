"""What looks like a loss and is none stays silent: no row of `data_loss_incidents`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from facts_builder import PARTITION, TOPIC, History
from histories_of_losses import COMMITTED, losses, replicated, tail, taken_over
from without_spark import events_of_partition, tables_of

from replay.evidence.cluster import Cluster
from replay.evidence.session_lines import SESSION_SCHEMA


def moved(history: History, start: int, *, hw: int, ms: float = 1000) -> History:
    """Leadership goes to broker 2, which leads from `start`."""
    history.decide(ms, 2, [1, 2])
    history.role(ms + 10, 2, "leader", 1, offset=start, hw=hw)
    history.produce(ms + 20, 2, start, acks=1)
    return history


def test_hw_of_a_new_leader_that_has_not_caught_up_yet_is_no_loss() -> None:
    """KAFKA-2334: what it has was committed, though its own HW says less until its followers have fetched."""
    assert losses(moved(replicated(), COMMITTED, hw=0)) == []


@pytest.mark.parametrize("error", [7, 20])
def test_record_answered_with_an_error_and_committed_later_is_no_loss(error: int) -> None:
    history = replicated()
    history.produce(420, 1, COMMITTED, error_code=error, total_us=100_000, remote_us=100_000)
    history.fetch(430, 1, 2, COMMITTED, bytes=100, hw=COMMITTED)
    history.fetch(440, 1, 2, COMMITTED + 1, hw=COMMITTED + 1)
    assert losses(moved(history, COMMITTED + 1, hw=COMMITTED)) == []


def test_log_start_that_retention_moved_past_what_a_follower_has_is_no_loss() -> None:
    history = replicated()
    history.add("log_start_change", 400, broker_id=1, log_start_offset=COMMITTED, source_file="server-1.log")
    assert losses(moved(history, COMMITTED, hw=COMMITTED)) == []


def test_offsets_that_compaction_left_empty_are_no_loss() -> None:
    """A replica that was added fetches over a hole: fewer records than offsets."""
    history = History()
    history.decide(0, 1, [1], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    for base in (0, 1, 2, 3):
        history.produce(100 + base, 1, base)
    history.fetch(400, 1, 2, 0, bytes=100, hw=4)  # only the record at 3 is left
    history.fetch(500, 1, 2, 4, hw=4)
    history.decide(600, None, [1, 2])
    assert losses(moved(history, 4, hw=4)) == []


def test_control_records_without_a_produce_line_are_no_loss() -> None:
    history = replicated()
    history.fetch(400, 1, 2, COMMITTED, bytes=70, hw=COMMITTED)
    history.fetch(410, 1, 2, COMMITTED + 1, hw=COMMITTED + 1)  # a transaction's end marker
    assert losses(moved(history, COMMITTED + 1, hw=COMMITTED + 1)) == []


def test_cut_of_records_that_nobody_was_told_of_is_no_loss() -> None:
    refused = {"acks": -1, "error_code": 6, "total_us": 100_000, "remote_us": 100_000}
    assert losses(taken_over(tail(replicated(), **refused))) == []


def test_topic_that_was_deleted_and_created_again_lost_nothing() -> None:
    """Its new log begins at offset 0, where the old one had records."""
    first, second = replicated(), History()
    second.decide(5000, 2, [1, 2], replicas=[1, 2])
    second.role(5010, 2, "leader", 0, offset=0, hw=0)
    second.produce(5100, 2, 0, acks=1)
    rows = [{**row, "topic_id": "a"} for row in first.rows]
    rows += [{**row, "topic_id": "b", "fact_id": f"again-{row['fact_id']}"} for row in second.rows]
    cluster = Cluster(
        recording_id="small",
        rows=[],
        topics={"a": (TOPIC, 0), "b": (TOPIC, 1)},
        created={TOPIC: [(0, "a"), (1, "b")]},
        standstills={},
        begins={},
        connection_ends={},
        own_logs=frozenset({1, 2}),
        kafka_version="4.1.0",
        settings={},
    )
    table = pa.Table.from_pylist(rows, schema=SESSION_SCHEMA)
    events = events_of_partition((TOPIC, PARTITION), table, cluster)
    for incarnation in (0, 1):
        mine = events.filter(pc.equal(events["incarnation"], incarnation))
        assert tables_of(mine)["data_loss_incidents"].num_rows == 0
