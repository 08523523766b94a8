"""The metadata log as production has it: it begins late, comes in several dumps, and as snapshots."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from facts_builder import History, at
from histories_of_losses import COMMITTED, acks_one_failure, losses, replicated, slots, tail
from without_spark import tables_of

from pipelines.intake.collect import Collected, collect
from pipelines.recording.recording import discover
from pipelines.stages.deposed import sentences
from replay.evidence.cluster import cluster_rows, incarnations, topics_named
from replay.evidence.metadata_log import PART
from replay.evidence.rows import Row, rows_of_facts
from replay.evidence.session_lines import SESSION_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

RECORD = "| offset: {} CreateTime: {} keySize: -1 valueSize: 9 sequence: -1 headerKeys: [] payload: {}"
BATCH = "baseOffset: {} lastOffset: {} count: 1 producerId: -1 partitionLeaderEpoch: {} isTransactional: false"
CHANGE = (
    '{{"type":"PARTITION_CHANGE_RECORD","version":0,"data":{{"partitionId":0,"topicId":"T","isr":{},"leader":{}}}}}'
)
NOTHING = '{"type":"NO_OP_RECORD","version":0,"data":{}}'
FULL = (
    '{"type":"PARTITION_RECORD","version":0,"data":{"partitionId":0,"topicId":"T","replicas":[1,2,3],"isr":[2],'
    '"leader":2,"leaderEpoch":4,"partitionEpoch":9}}'
)


def part(history: History, first: int, last: int, epoch: int = 1, name: str = "log") -> None:
    """Which offsets of the metadata log a dump holds."""
    place = {"metadata_offset": first, "last_offset": last, "controller_epoch": epoch, "name": name}
    history.add(PART, 9000, topic=None, partition=None, in_snapshot=name == "snapshot", **place)


def with_epochs(history: History, epoch: int = 1) -> History:
    """The records as a dump with its batches tells them."""
    for row in history.rows:
        if row.get("metadata_offset") is not None:
            row.setdefault("controller_epoch", epoch)
            row.setdefault("in_snapshot", False)
    return history


def states(history: History, **settings: Any) -> list[tuple[int, int | None, int, tuple[int, ...], str]]:
    return [
        (d.leader_epoch, d.partition_epoch, d.leader, d.isr, d.evidence) for d in history.facts(**settings).decisions
    ]


def begun_late(shift: int = 4) -> History:
    """The dump lacks the topic's creation; leaders' lines say which states they took up."""
    history = acks_one_failure()
    history.rows = [row for row in history.rows if row.get("record_type") != "PARTITION_RECORD"]
    for row in history.rows:
        if row["kind"] == "role_change" and row["name"] == "leader":
            isr = [1, 2] if not row["leader_epoch"] else [2]
            row.update(isr=isr, replicas=[1, 2], partition_epoch=shift + row["leader_epoch"])
    return history


def test_a_log_that_begins_after_the_topic_is_placed_by_the_leaders_own_lines() -> None:
    history = begun_late()
    assert [state[:3] for state in states(history)] == [(0, 4, 1), (1, 5, 2)]
    assert all(d.row["metadata_offset"] is not None for d in history.facts().decisions[1:])
    (row,) = losses(history)
    assert (slots(row), row["acked_one"], row["acked_all"]) == ([(0, 2, 4)], 3, 0)


def test_a_partition_older_than_what_is_at_hand_was_not_created_there() -> None:
    first = tables_of(begun_late().events())["leadership_timeline"].to_pylist()[0]
    assert (first["election"], first["trigger"]) == ("clean", "it led already where what is at hand begins")


def changes(count: int, seed: int) -> History:
    """A partition whose leader and ISR change at random; of half its states a leader's line tells."""
    chance, history = random.Random(seed), History()  # noqa: S311 - no secret
    history.decide(0, 1, [1, 2, 3])
    epoch = 0
    for k in range(1, count):
        leader = chance.choice([None, 1, 2, 3])
        isr = sorted(chance.sample([1, 2, 3], chance.choice([1, 2, 3])))
        epoch += leader is not None
        history.decide(1000 * k, leader, isr)
        if leader is not None and chance.random() < 0.5:
            lines = {"isr": isr, "partition_epoch": k, "offset": 0, "hw": 0}
            history.role(1000 * k + chance.randrange(-300, 300), leader, "leader", epoch, **lines)
    return history


@pytest.mark.parametrize("seed", range(20))
def test_wherever_a_dump_begins_its_records_lead_to_the_same_states(seed: int) -> None:
    history = with_epochs(changes(40, seed))
    whole = {state[:2]: state[2:4] for state in states(history)}
    begin = 100 + 15
    history.rows = [r for r in history.rows if (r.get("metadata_offset") or begin) >= begin]
    part(history, begin, 300)
    late = {state[:2]: state[2:4] for state in states(history)}
    kept = sum(row["kind"] == "partition_change" for row in history.rows)
    assert len(late) >= kept - 2  # but for those before the first that names a leader
    assert all(whole[key] == state for key, state in late.items() if whole[key][1] != ())
    assert set(late) <= set(whole)


def snapshot(history: History, end: int, **state: Any) -> None:
    """A partition's state as of `end`."""
    place = {"metadata_offset": end - 1, "controller_epoch": 1, "in_snapshot": True, "record_type": "PARTITION_RECORD"}
    history.add("partition_change", 500, **place, **{"replicas": [1, 2, 3], **state})
    part(history, end - 1, end - 1, name="snapshot")


def test_a_snapshot_is_the_state_at_its_end_from_which_the_log_goes_on() -> None:
    history = History()
    history.add("partition_change", 1000, metadata_offset=206, record_type="C", leader_id=None, isr=[2])
    history.add("partition_change", 2000, metadata_offset=210, record_type="C", leader_id=3, isr=[3])
    part(with_epochs(history), 206, 220)
    snapshot(history, 206, leader_id=2, leader_epoch=4, partition_epoch=9, isr=[2, 3])
    assert states(history) == [
        (4, 9, 2, (2, 3), "bounded"),
        (4, 10, 2, (2,), "observed"),
        (5, 11, 3, (3,), "observed"),
    ]


def test_a_snapshot_of_what_the_log_tells_adds_nothing() -> None:
    history = with_epochs(changes(20, 1))
    part(history, 0, 300)
    told = states(history)
    snapshot(history, 110, leader_id=1, leader_epoch=77, partition_epoch=99, isr=[1])
    assert states(history) == told


def test_a_deposed_controller_s_records_are_set_aside_where_its_successor_wrote_others() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    with_epochs(history, 1)
    history.add("partition_change", 50, metadata_offset=110, record_type="C", leader_id=1, isr=[1], controller_epoch=1)
    history.add("partition_change", 60, metadata_offset=111, record_type="C", leader_id=2, isr=[2], controller_epoch=2)
    part(history, 0, 112, 1)
    part(history, 109, 120, 2)
    facts = history.facts()
    assert [(d.leader_epoch, d.leader, d.isr) for d in facts.decisions] == [(0, 1, (1, 2)), (1, 2, (2,))]
    assert [row["metadata_offset"] for row in facts.set_aside] == [110]


def test_of_two_different_records_of_one_offset_and_controller_none_counts() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    for isr in ([1], [2]):
        history.add("partition_change", 50, metadata_offset=110, record_type="C", leader_id=1, isr=isr)
    part(with_epochs(history), 0, 120)
    assert [state[:3] for state in states(history)] == [(0, 0, 1)]
    assert len(history.facts().set_aside) == 2


def test_who_was_alive_is_not_known_behind_a_gap() -> None:
    history = History()
    for broker in (1, 2):
        history.fence(0, broker, fenced=False, record_type="REGISTER_BROKER_RECORD")
    history.decide(1, 1, [1, 2], replicas=[1, 2])
    history.decide(2, 2)
    part(with_epochs(history), 0, history.rows[-1]["metadata_offset"] - 1)
    assert history.facts().decisions[1].vote is not None
    history.rows[-2]["metadata_offset"] += 50
    part(with_epochs(history), 150, 200)
    row = tables_of(history.events())["leadership_timeline"].to_pylist()[-1]
    assert (row["leader_id"], row["rule"], row["live"]) == (2, "not_known", None)


def test_a_role_line_written_while_the_last_fetch_was_under_way_is_no_cut() -> None:
    history = tail(replicated())
    history.fetch(1004, 1, 2, COMMITTED + 3, hw=COMMITTED)
    history.fence(1000, 1)
    history.decide(1000, 3, [3])
    history.role(1001, 2, "follower", 1, offset=COMMITTED + 2, hw=COMMITTED)
    assert tables_of(history.events())["log_truncations"].num_rows == 0
    history.rows[-1]["ts"] = at(9000)
    assert tables_of(history.events())["log_truncations"].num_rows == 1


# -- dumps


def dump(tmp_path: Path, *lines: str, name: str = "cluster-metadata.dump.txt") -> Collected:
    """A recording with one dump of these lines."""
    (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return collect(discover(tmp_path))


def rows(found: Collected, kind: str) -> list[dict[str, Any]]:
    return [row for row in found.facts.to_pylist() if row["kind"] == kind]


def test_a_dump_says_which_offsets_it_holds_and_who_wrote_them(tmp_path: Path) -> None:
    log = [
        "Dumping /d/__cluster_metadata-0/00000000000000000100.log",
        BATCH.format(100, 101, 3),
        RECORD.format(100, 7000, NOTHING),
        RECORD.format(101, 7000, CHANGE.format("[1]", -2)),
        BATCH.format(102, 103, 4),
        RECORD.format(103, 7001, NOTHING),
    ]
    found = dump(tmp_path, *log)
    told = [(r["metadata_offset"], r["last_offset"], r["controller_epoch"]) for r in rows(found, PART)]
    assert told == [(100, 101, 3), (103, 103, 4)]
    (change,) = rows(found, "partition_change")
    assert (change["controller_epoch"], change["in_snapshot"], change["broker_id"]) == (3, False, None)


def test_a_snapshot_s_records_are_a_state_as_of_its_end_whatever_it_is_called(tmp_path: Path) -> None:
    found = dump(
        tmp_path,
        "Dumping /tmp/00000000000000001456-0000000002.checkpoint",
        "Snapshot end offset: 1456, epoch: 2",
        '| offset: 0 CreateTime: 9000 keySize: 4 SnapshotHeader {"version":0,"lastContainedLogTimestamp":8000}',
        RECORD.format(11, 9000, FULL),
        '| offset: 12 CreateTime: 9000 keySize: 4 SnapshotFooter {"version":0}',
        "Dumping /d/__cluster_metadata-0/00000000000000001456.log",
        RECORD.format(1456, 9100, CHANGE.format("[2]", -2)),
        name="old.txt",
    )
    state, change = rows(found, "partition_change")
    assert (state["metadata_offset"], state["in_snapshot"], state["ts"].timestamp()) == (1455, True, 8.0)
    assert (change["metadata_offset"], change["in_snapshot"]) == (1456, False)
    assert {row["name"] for row in rows(found, PART)} == {"snapshot", "log"}


def test_two_controllers_snapshots_of_one_end_are_one(tmp_path: Path) -> None:
    for node, written in (("a", 9000), ("b", 9500)):
        head = "Dumping /x/00000000000000001456-0000000002.checkpoint"
        found = dump(tmp_path, head, RECORD.format(11, written, FULL), name=f"{node}.txt")
    assert len(rows(found, "partition_change")) == 1


def test_dumps_in_a_folder_of_their_own_or_a_node_s_are_the_cluster_s(tmp_path: Path) -> None:
    for folder in ("metadata", "segments/node-3/__cluster_metadata-0"):
        (tmp_path / folder).mkdir(parents=True)
        found = dump(tmp_path, BATCH.format(5, 5, 1), RECORD.format(5, 1, FULL), name=f"{folder}/0.dump.txt")
    (row,) = rows(found, "partition_change")
    assert row["broker_id"] is None


@pytest.mark.parametrize("secret", ["ssl.keystore.password", "sasl.jaas.config", "anything.else"])
def test_the_value_of_a_setting_that_nothing_reads_is_not_kept(tmp_path: Path, secret: str) -> None:
    setting = '{{"type":"CONFIG_RECORD","data":{{"resourceType":4,"resourceName":"1","name":"{}","value":"hunter2"}}}}'
    read = setting.format("min.insync.replicas")
    whole, cut = setting.format(secret), setting.format(secret)[:-3]
    found = dump(tmp_path, RECORD.format(1, 1, whole), RECORD.format(2, 1, cut), RECORD.format(3, 1, read))
    assert {row["name"]: row["value"] for row in rows(found, "config_change")} == {
        secret: None,
        "min.insync.replicas": "hunter2",
    }
    assert found.rejected.num_rows == 1
    assert "hunter2" not in str(found.rejected.to_pylist())


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 5000])
def test_numbers_of_any_length_end_no_run(tmp_path: Path, digits: str) -> None:
    level = '{"type":"FEATURE_LEVEL_RECORD","data":{"name":"metadata.version","featureLevel":%s}}'
    found = dump(
        tmp_path,
        BATCH.format(1, 1, 1),
        f"Snapshot end offset: {digits}, epoch: 1",
        RECORD.format(digits, 1, NOTHING),
        RECORD.format(1, digits, NOTHING),
        RECORD.format(1, 1, FULL.replace("9", digits)),
        RECORD.format(1, 1, level % digits),
        RECORD.format(1, 1, level % '"four"'),
    )
    assert all(len(row["value"]) < 25 for row in rows(found, "feature_change"))
    assert found.rejected.num_rows >= 4


def test_what_holds_for_the_cluster_leaves_out_a_deposed_controller_s_records() -> None:
    history = History()
    history.fence(0, 1)
    history.fence(0, 2)
    with_epochs(history, 1)
    part(history, 0, 150, 1)
    part(history, 101, 150, 2)
    kept: list[Row] = cluster_rows(pa.Table.from_pylist(history.rows, schema=SESSION_SCHEMA))
    assert [row["subject_broker_id"] for row in kept if row["kind"] == "broker_change"] == [1]
    assert len(rows_of_facts(pa.Table.from_pylist(history.rows, schema=SESSION_SCHEMA))) == 4


def test_topics_that_a_deposed_controller_named_never_were() -> None:
    history = History()
    for offset, epoch, name in ((10, 1, "kept"), (120, 1, "overwritten"), (121, 2, "next")):
        place = {"metadata_offset": offset, "controller_epoch": epoch, "in_snapshot": False}
        history.add("topic_change", 0, name="create", topic="orders", topic_id=name, partition=None, **place)
    part(history, 0, 130, 1)
    part(history, 101, 150, 2)
    named = topics_named(pa.Table.from_pylist(history.rows, schema=SESSION_SCHEMA))
    _, created = incarnations(named)
    assert [topic_id for _, topic_id in created["orders"]] == ["kept", "next"]


def test_a_reader_is_told_how_many_records_of_deposed_controllers_were_set_aside() -> None:
    (told,) = sentences(1_200)
    assert told.startswith("1,200 records of the metadata log were set aside")
    assert sentences(0) == []
