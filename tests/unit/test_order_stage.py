"""The order stage between Spark's batches and the engine: facts travel as streams, by session and by partition."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from facts_builder import TOPIC, History
from without_spark import events_of_partition

from pipelines.spark.buckets import BUCKET_ROWS, MOST_BUCKETS, bucket_count, bucket_of, divided, joined
from pipelines.stages import order
from pipelines.stages.order import by_session, order_partitions, rebuilding, with_sessions
from pipelines.stages.partition_order import EVENTS
from replay.arrays.columns import numbers
from replay.evidence.cluster import Cluster
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.rows import METADATA_LOG, used_columns
from replay.evidence.sessions import rebuild_sessions

PARTITIONS = 5
UNNAMED = 3  # the partition whose fetches name no leader epoch
CLUSTER = Cluster(
    recording_id="small",
    rows=[],
    topics={},
    created={},
    standstills={},
    begins={},
    connection_ends={},
    own_logs=frozenset({1, 2}),
    kafka_version="4.1.0",
    settings={},
)


def history() -> History:
    """Partitions led by broker 1, which replica 2 fetches in one session, replica 3 without; of two topics one each."""
    told = History()
    for partition in range(PARTITIONS):
        topic = TOPIC if partition else "bills"
        which = {"topic": topic, "partition": partition}
        told.decide(0, 1, [1, 2, 3], leader_epoch=0, partition_epoch=0, replicas=[1, 2, 3], **which)
        told.role(10, 1, "leader", 0, offset=0, hw=0, **which)
        for epoch in range(20):
            told.produce(100 + 50 * epoch, 1, 10 * epoch, **which)
            unnamed = {"current_leader_epoch": None, "last_fetched_epoch": 0} if partition == UNNAMED else {}
            told.fetch(120 + 50 * epoch, 1, 3, 10 * epoch, hw=0, **which, **unnamed)
    for epoch in range(20):
        line = {"session_epoch": epoch, "session_id": 77 if epoch else 0, "response_session_id": 77}
        for partition in range(PARTITIONS) if epoch == 0 else [epoch % PARTITIONS]:
            topic = TOPIC if partition else "bills"
            told.correlations["r2-1"] = epoch - 1
            line["current_leader_epoch"] = None if partition == UNNAMED else 0
            told.fetch(130 + 50 * epoch, 1, 2, 10 * epoch, hw=0, topic=topic, partition=partition, **line)
    told.fetch(900, 1, 2, 0, topic=METADATA_LOG, connection="raft")
    told.produce(900, 1, 0, topic=None, topic_id=None)
    return told


def with_sessions_numbered(facts: pa.Table, buckets: int) -> pa.Table:
    """The facts as Spark hands them over: each fetch with a number of its session."""
    alone = [session_number(row) % buckets for row in facts.select(["kind", "replica_id"]).to_pylist()]
    fetches = pc.equal(facts["kind"], "fetch").combine_chunks()
    return facts.append_column("session", pc.if_else(fetches, pa.array(alone, pa.int32()), None))


def session_number(row: dict[str, object]) -> int:
    """A number of a session: here each replica has one, or none."""
    return int(str(row["replica_id"] or 0))


@pytest.mark.parametrize("buckets", [1, 3, 40])
@pytest.mark.parametrize("size", [7, 10_000])
def test_events_are_those_of_each_partition_by_itself(buckets: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "ROWS_AT_ONCE", 50)
    facts = history().table()
    given = with_sessions_numbered(facts, buckets)
    sent = (given.slice(first, size) for first in range(0, len(given), size))
    parted = pa.Table.from_batches(by_session(sent, {}, buckets))
    rebuilt = pa.Table.from_batches(
        [
            batch
            for number in pc.unique(parted["session"]).to_pylist()
            for batch in rebuilding(buckets)(iter(parted.filter(pc.equal(parted["session"], number)).to_batches()))
        ]
    )
    told = {}
    for number in pc.unique(rebuilt["bucket"]).to_pylist():
        mine = rebuilt.filter(pc.equal(rebuilt["bucket"], number)).to_batches()
        for name, table in order_partitions(mine, ToldOfCluster(CLUSTER)):
            if name != EVENTS:
                continue
            told[table["topic"][0].as_py(), table["partition"][0].as_py()] = table.to_pylist()

    fetches = pc.equal(facts["kind"], "fetch")
    whole = pa.concat_tables([*rebuild_sessions(facts.filter(fetches)), facts.filter(pc.invert(fetches))])
    for partition in range(PARTITIONS):
        topic = TOPIC if partition else "bills"
        mine = whole.filter(pc.and_(pc.equal(whole["topic"], topic), pc.equal(whole["partition"], partition)))
        alone = events_of_partition((topic, partition), mine, CLUSTER)
        assert told.pop((topic, partition)) == alone.to_pylist()
    assert told == {}


def test_what_the_driver_orders_itself_it_has_as_tasks_have_it() -> None:
    facts = history().table()
    streams = rebuilding(1)(by_session([with_sessions_numbered(facts, 1)], {}, 1))
    sent = joined([stream for batch in streams for stream in batch["rows"]]).drop_columns("recording_id")  # not sent
    kept = pa.concat_tables(map(used_columns, with_sessions([facts], {})), promote_options="default")
    assert {*kept.column_names} == {*sent.column_names}
    assert kept.select(sent.column_names).to_pylist() == sent.to_pylist()
    assert [*with_sessions([facts.slice(0, 0)], {})] == []


def test_few_rows_are_one_bucket_and_many_no_more_than_tasks_can_take() -> None:
    assert bucket_count(0, 8) == bucket_count(BUCKET_ROWS, 8) == 1
    assert bucket_count(BUCKET_ROWS + 1, 8) == 2
    assert bucket_count(10**12, 8) == MOST_BUCKETS * 8


def test_partitions_of_one_topic_are_dealt_out_evenly() -> None:
    rows = pa.table({"topic": ["a"] * 12, "partition": list(range(12))})
    assert sorted(bucket_of(rows, 4).tolist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_rows_of_a_number_keep_their_order() -> None:
    rows = pa.table({"number": [2, 1, 2, 1], "value": [1, 2, 3, 4], "nothing": pa.nulls(4)})
    found = {number: part["value"].to_pylist() for number, part in divided(numbers(rows["number"]), rows)}
    assert found == {1: [2, 4], 2: [1, 3]}
