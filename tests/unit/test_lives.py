"""A topic deleted and created again where no source states topic ids: one life after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from facts_builder import History
from histories_of_losses import losses
from without_spark import tables_of

from replay.evidence.incarnations import Lives, starts_of_brokers
from replay.evidence.rows import Row, rows_of_facts
from replay.evidence.session_lines import SESSION_SCHEMA

OLD = {"kafka_version": "2.7.2"}
LIFE_MS = 10_000
BOTH = {"isr": [1, 2], "replicas": [1, 2]}


def live(history: History, begin: float, records: int) -> None:
    """Brokers 1 and 2 make their logs, 1 leads epoch 0, and both get some records."""
    for broker in (1, 2):
        for name, fields in (("completed", {"offset": 0}), ("created", {}), ("loaded", {"hw": 0})):
            history.add("log_load", begin, name=name, broker_id=broker, source_file=f"server-{broker}.log", **fields)
    history.role(begin + 10, 1, "leader", 0, offset=0, hw=0, partition_epoch=0, **BOTH)
    history.role(begin + 11, 2, "follower", 0, offset=0, hw=0)
    for base in range(records):
        ms = begin + 100 + 10 * base
        history.produce(ms + 1, 1, base, total_us=2000, remote_us=2000)
        history.fetch(ms, 1, 2, base, bytes=100, hw=base, total_us=5000, remote_us=5000)
    history.fetch(begin + 600, 1, 2, records, hw=records, total_us=100_000, remote_us=100_000)


def delete(history: History, ms: float, *brokers: int) -> None:
    for broker in brokers or (1, 2):
        name = f"/data/orders-0.{broker}{int(ms):031d}-delete"
        told = {"name": "renamed_for_deletion", "value": name, "source_file": f"server-{broker}.log"}
        history.add("log_change", ms, broker_id=broker, **told)


def rows_of(history: History) -> list[Row]:
    return rows_of_facts(pa.Table.from_pylist(history.rows, schema=SESSION_SCHEMA))


def lives_of(history: History) -> Lives:
    rows = rows_of(history)
    own = [row for row in rows if row["partition"] is not None]
    return Lives(own, starts_of_brokers(row for row in rows if row["partition"] is None))


def fail_over(history: History, ms: float, records: int) -> None:
    history.role(ms, 2, "leader", 1, offset=records, hw=records, partition_epoch=1, **BOTH)
    history.role(ms + 1, 1, "follower", 1, offset=records, hw=records)
    history.produce(ms + 10, 2, records, acks=1)


@pytest.mark.parametrize("told", [True, False])
def test_topic_created_again_has_lost_nothing_of_its_life_before(*, told: bool) -> None:
    history = History()
    live(history, 0, 10)
    if told:
        delete(history, 4000)
    live(history, 5000, 3)
    fail_over(history, 9000, 3)
    assert not losses(history, **OLD)
    rows = tables_of(history.events(**OLD))["leadership_timeline"].to_pylist()
    assert [(row["incarnation"], row["leader_epoch"], row["leader_id"]) for row in rows] == [
        (0, 0, 1),
        (1, 0, 1),
        (1, 1, 2),
    ]


@pytest.mark.parametrize("told", [True, False])
def test_topic_created_fifteen_times_has_fifteen_lives(*, told: bool) -> None:
    history = History()
    for life in range(15):
        live(history, life * LIFE_MS, 3)
        if told:
            delete(history, life * LIFE_MS + 5000)
    lives = lives_of(history)
    assert lives.count == 15
    bases = [(lives.of(row), row["base_offset"]) for row in rows_of(history) if row["kind"] == "produce"]
    assert sorted(bases) == [(life, base) for life in range(15) for base in range(3)]


def test_replica_that_was_taken_out_and_comes_back_begins_no_life() -> None:
    history = History()
    live(history, 0, 3)
    delete(history, 3000, 2)
    history.add("log_load", 4000, name="created", broker_id=2, source_file="server-2.log")
    history.add("log_load", 4001, name="loaded", hw=0, broker_id=2, source_file="server-2.log")
    history.role(4010, 2, "follower", 3, offset=0, hw=0)
    assert lives_of(history).count == 1


@pytest.mark.parametrize(("started", "count"), [(True, 1), (False, 2)])
def test_broker_that_started_with_an_empty_disk_begins_no_life(*, started: bool, count: int) -> None:
    history = History()
    live(history, 0, 3)
    if started:
        about: dict[str, Any] = {"topic": None, "partition": None, "broker_id": 1, "name": "version", "value": "2.7.2"}
        history.add("broker_lifecycle", 4000, **about)
    history.add("log_load", 5000, name="created", broker_id=1, source_file="server-1.log")
    history.role(5010, 1, "leader", 0, offset=0, hw=0, partition_epoch=0, **BOTH)
    assert lives_of(history).count == count


def test_leader_line_of_an_epoch_before_in_a_log_that_has_records_begins_no_life() -> None:
    history = History()
    live(history, 0, 3)
    fail_over(history, 2000, 3)
    history.role(3000, 1, "leader", 0, offset=3, hw=3, partition_epoch=0, **BOTH)
    assert lives_of(history).count == 1


def test_log_that_waits_for_its_deletion_is_of_the_life_that_ended() -> None:
    history = History()
    live(history, 0, 3)
    delete(history, 4000)
    live(history, 5000, 2)
    dumped = {"ts": None, "leader_epoch": 0, "base_offset": 0, "last_offset": 2, "broker_id": 1}
    folder = f"orders-0.1{4000:031d}-delete"
    old = history.add("segment_batch", 0, source_file=f"segments/node-1/{folder}/0.log.dump.txt", **dumped)
    unknown = history.add("segment_batch", 0, source_file=f"segments/node-1/orders-0.{'f' * 32}-delete/0.log", **dumped)
    new = history.add("segment_batch", 0, source_file="segments/node-1/orders-0/0.log.dump.txt", **dumped)
    lives = lives_of(history)
    found = {row["fact_id"]: lives.of(row) for row in rows_of(history) if row["kind"] == "segment_batch"}
    assert [found[row["fact_id"]] for row in (old, unknown, new)] == [0, None, 1]


def test_controller_s_lines_belong_to_the_partition_that_it_made_last() -> None:
    history = History()
    live(history, 100, 3)
    delete(history, 4000)
    live(history, 5000, 2)
    told = {"broker_id": 3, "name": "partition", "source_file": "state-change-3.log"}
    moves = ("NonExistent", "New", "Online", "Offline", "NonExistent")
    for begin in (90, 4990):
        for k, (before, after) in enumerate(pairwise(moves)):
            states = {"state_before": f"{before}Partition", "state_after": f"{after}Partition"}
            history.add("state_change", begin + (k if k < 2 else 3000 + k), **told, **states)
    lives = lives_of(history)
    found = [lives.of(row) for row in rows_of(history) if row["kind"] == "state_change"]
    assert found == [0] * 4 + [1] * 4
