"""What `show` finds in the tables of a real recording, compared with what really happened."""

from __future__ import annotations

import gzip
import json
import re
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from looked_up import RECORDING, Shelf, filled, recorded

from pipelines.lookup import brokers, incidents, partitions, records
from pipelines.lookup.places import Place, partition_named, partitions_of, record_named
from pipelines.lookup.states import rare_events, state_at
from replay.engine.state_words import partition_in_words
from replay.tables.output import Output
from replay.tables.partition_replay import PartitionReplay
from replay.tables.partitions import partitions_of as replays_of
from schemas.errors import InputError

PLACE = Place("ledger", 0, 0)
TRUTH = RECORDING.with_suffix(".truth")


def acknowledged() -> list[dict[str, Any]]:
    text = gzip.decompress((TRUTH / "clients-acked.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def fate(offset: int) -> dict[str, Any]:
    return records.record(recorded(), PLACE, offset)


def test_a_lost_record_is_told_from_its_append_to_the_cut() -> None:
    (lost,) = json.loads((TRUTH / "summary.json").read_text())["ledger-0"]["lost_slot"]
    for offset in (lost["from"], lost["to"]):
        told = fate(offset)
        slot = next(one for one in told["slots"] if one["incidents"])
        assert slot["fate"]["word"] == "lost"
        assert [one["mechanism"] for one in slot["incidents"]] == ["last_replica_standing"]
        assert slot["answers"][0]["acks"] == -1
        assert slot["committed"]
        assert slot["appends"][0]["source"].startswith("logs/node-")
        assert slot["held_by"] == []
        assert slot["cut"]
    (row,) = incidents.incidents(recorded())
    rest = [one["fate"]["word"] for one in fate(lost["from"] - 1)["slots"]]
    assert "lost" not in rest
    assert (row["first_offset"], row["last_offset"]) == (lost["from"], lost["to"])


def test_records_that_clients_know_are_kept_or_lost_as_they_say() -> None:
    (lost,) = json.loads((TRUTH / "summary.json").read_text())["ledger-0"]["lost_slot"]
    known = [one for one in acknowledged() if str(one.get("topic", "ledger")).startswith("ledger")]
    offsets = sorted({one["offset"] for one in known if "offset" in one})[:: max(1, len(known) // 20)]
    assert len(offsets) > 10
    for offset in offsets:
        words = {one["fate"]["word"] for one in fate(offset)["slots"]}
        assert ("lost" in words) == (lost["from"] <= offset <= lost["to"]), offset
        assert any(answer["error_code"] == 0 for one in fate(offset)["slots"] for answer in one["answers"]), offset


def test_beyond_the_end_there_was_no_record() -> None:
    end = fate(0)["end"]
    assert fate(end - 1)["slots"]
    with pytest.raises(InputError, match=rf"never had an offset {end} .* last record was at {end - 1}"):
        fate(end)


def test_the_state_from_the_tables_is_that_of_the_engine() -> None:
    shelf = recorded()
    events = shelf.tables["replication_events"].sort_by("seq").combine_chunks()
    rare = rare_events(shelf, PLACE)
    seqs = events["seq"].to_pylist()
    picked = sorted({row["seq"] for row in rare} | set(seqs[:: len(seqs) // 25]) | {seqs[-1]})
    replay: PartitionReplay | None = None
    at = compared = 0
    for seq in picked:
        upto = seqs.index(seq) + 1
        for batch in events.slice(at, upto - at).combine_chunks().to_batches():
            for part, key in replays_of(batch):
                replay = replay or PartitionReplay(key, Output())
                replay.feed(part)
        at = upto
        assert replay is not None
        state = state_at(shelf, PLACE, seq, rare)
        of_engine = partition_in_words(replay.state, replay.brokers, records=lambda *_: "")
        ours = {one.broker_id: state.words(one) for one in state.shown()}
        for broker, words in zip(replay.brokers, of_engine, strict=False):
            if broker in ours and "?" not in told(ours[broker]):
                assert told(ours[broker]) == told(words), seq
                compared += 1
    assert compared > 100


def told(words: str) -> str:
    """Role, epoch, LEO, HW: the leader hears of an ISR after the controller has decided it, so that is left out."""
    return re.sub(r" isr \S+| pending| \[.*\]| low watermark -?\d+| \((fenced|stopping|bounded)\)", "", words)


def test_a_story_tells_each_step_with_what_came_of_it() -> None:
    shelf = recorded()
    (append,) = (one for slot in fate(100)["slots"] for one in slot["appends"])
    around = partitions.partition(shelf, PLACE, partitions.Moment(around=append["seq"], steps=5))
    assert [one["seq"] for one in around["steps"]] == list(range(append["seq"] - 5, append["seq"] + 6))
    (step,) = (one for one in around["steps"] if one["seq"] == append["seq"])
    assert step["what"].startswith(f"broker {append['broker']} appends offset")
    assert any(one.startswith(f"log end of broker {append['broker']}: ") for one in step["came_of_it"])
    assert any(re.match(rf"{append['broker']} leads \d+: leo {append['next_offset']} ", one) for one in step["states"])
    assert step["source"] == append["source"]


def test_a_moment_is_the_last_event_up_to_it() -> None:
    shelf = recorded()
    (append,) = (one for slot in fate(100)["slots"] for one in slot["appends"])
    at = partitions.partition(shelf, PLACE, partitions.Moment(at=append["ts"], steps=1))
    assert at["ts"] <= append["ts"]
    assert at["seq"] >= append["seq"]
    with pytest.raises(InputError, match="nothing is known of ledger-0 at that time: its first event is of 20"):
        partitions.partition(shelf, PLACE, partitions.Moment(at=append["ts"] - timedelta(days=400)))
    with pytest.raises(InputError, match=r"has no seq 99999999: it has 0 to \d+"):
        partitions.partition(shelf, PLACE, partitions.Moment(around=99_999_999))


def test_the_whole_history_is_told_by_its_milestones() -> None:
    whole = partitions.partition(recorded(), PLACE, partitions.Moment())
    kinds = {one["kind"] for one in whole["steps"]}
    assert {"partition_change", "role_change", "log_load"} <= kinds
    assert not kinds & {"append", "ack", "fetch_update", "consumer_read"}
    assert len(whole["steps"]) <= partitions.MILESTONES
    assert [one["mechanism"] for one in whole["incidents"]] == ["last_replica_standing"]


def test_an_incident_is_found_by_the_beginning_of_its_id() -> None:
    (row,) = incidents.incidents(recorded())
    assert incidents.incident(recorded(), row["incident_id"][:6])["chain"] == row["chain"]
    with pytest.raises(
        InputError, match=rf"no incident 'zz' in last-replica: there are {row['incident_id']} \(ledger-0\)"
    ):
        incidents.incident(recorded(), "zz")
    two = [{**row, "incident_id": "ab1"}, {**row, "incident_id": "ab2"}]
    with pytest.raises(InputError, match=r"several incidents begin with 'ab': ab1 \(ledger-0\), ab2"):
        incidents.incident(Shelf({"data_loss_incidents": filled("data_loss_incidents", two)}), "ab")


def test_a_withdrawn_incident_is_said_to_be_so() -> None:
    row = {"incident_id": "ab12", "status": "withdrawn", "topic": "t", "partition": 3}
    with pytest.raises(InputError, match=r"ab12 \(t-3\) was withdrawn: no run finds it any more"):
        incidents.incident(Shelf({"incident_reports": filled("incident_reports", [row])}), "ab")


def test_a_broker_is_told_with_its_part_in_the_loss() -> None:
    (row,) = incidents.incidents(recorded())
    told_of = brokers.broker(recorded(), row["losing_broker_id"])
    assert [(one["incident_id"], one["part"]) for one in told_of["incidents"]] == [(row["incident_id"], "lost them")]
    assert told_of["led"]
    assert told_of["life"]
    with pytest.raises(InputError, match=r"no broker 77 in last-replica: there are 1, 2, 3"):
        brokers.broker(recorded(), 77)


def places(*known: tuple[str, int, int]) -> Shelf:
    rows = [{"topic": topic, "incarnation": life, "partition": number} for topic, life, number in known]
    return Shelf({"event_windows": filled("event_windows", rows)})


def test_names_are_read_from_their_end() -> None:
    shelf = places(("a-1.b@x#0", 0, 7), ("a", 0, 1), ("a", 1, 1), ("a", 2, 1))
    assert partition_named(shelf, "a-1.b@x#0-7") == Place("a-1.b@x#0", 0, 7)
    assert record_named(shelf, "a-1.b@x#0-7@12") == (Place("a-1.b@x#0", 0, 7), 12)
    assert partition_named(shelf, "a-1") == Place("a", 2, 1, (0, 1))
    assert record_named(shelf, "a-1#1@3") == (Place("a", 1, 1, (0, 2)), 3)
    assert partitions_of(shelf) == ["a-1", "a-1#1", "a-1#2", "a-1.b@x#0-7"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("orders", "should name a partition, as orders-0"),
        ("order-0", r"no partition order-0 in r: there are orders-0, other-3"),
        ("orders-0#4", r"no incarnation 4 of orders-0: there are orders-0#0"),
        ("x\x1b[2J-0", r"no partition x\\x1b\[2J-0"),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_what_there_is(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        partition_named(places(("orders", 0, 0), ("other", 0, 3)), name)


def test_a_record_needs_an_offset() -> None:
    for name in ("orders-0", "orders-0@", "orders-0@-1", "orders-0@x"):
        with pytest.raises(InputError, match="as orders-0@1234"):
            record_named(places(("orders", 0, 0)), name)


KEY = {"recording_id": "r", "topic": "t", "incarnation": 0, "partition": 0, "evidence": "observed"}
NOON = datetime.fromisoformat("2024-05-01T12:00:00+00:00")


def event(seq: int, kind: str, **some: Any) -> dict[str, Any]:
    return {**KEY, "seq": seq, "ts": NOON + timedelta(seconds=seq), "kind": kind, "broker_id": 1, **some}


def append(seq: int, epoch: int, base: int, end: int | None, **some: Any) -> dict[str, Any]:
    return event(seq, "append", leader_epoch=epoch, base_offset=base, next_offset=end, **some)


def small(events: list[dict[str, Any]], **tables: list[dict[str, Any]]) -> Shelf:
    named = {"replication_events": events, **tables}
    return Shelf({name: filled(name, rows) for name, rows in named.items()})


def words(shelf: Shelf, offset: int) -> list[tuple[Any, str, str]]:
    told_of = records.record(shelf, Place("t", 0, 0), offset)
    return [(one["leader_epoch"], one["fate"]["word"], one["fate"]["sentence"]) for one in told_of["slots"]]


def test_without_an_answer_nothing_is_called_acknowledged() -> None:
    ((epoch, word, sentence),) = words(small([append(1, 0, 5, 8)]), 6)
    assert (epoch, word) == (0, "kept")
    assert "whether it was acknowledged is unknown" in sentence


def test_a_batch_of_unknown_end_may_hold_the_record() -> None:
    shelf = small([append(1, 0, 5, None), append(2, 0, 9, 10)])
    ((_, word, sentence),) = words(shelf, 7)
    assert word == "unknown"
    assert "may be in the batch that begins at 5" in sentence
    assert len(words(shelf, 9)) == 1  # the next batch begins there, so the first one ended


def test_records_of_two_epochs_at_one_offset_are_told_apart() -> None:
    cut = {**KEY, "seq": 2, "ts": NOON, "broker_id": 1, "leo_before": 9, "leo_after": 5, "cause": "diverging_fetch"}
    again = append(3, 1, 5, 7, broker_id=2)
    shelf = small([append(1, 0, 5, 9), again], log_truncations=[cut])
    assert [(epoch, word) for epoch, word, _ in words(shelf, 6)] == [(0, "cut"), (1, "kept")]
    assert [(epoch, word) for epoch, word, _ in words(shelf, 8)] == [(0, "cut")]


def test_a_follower_whose_row_comes_before_the_append_has_the_same_record() -> None:
    took = {
        **KEY,
        "seq": 1,
        "ts": NOON,
        "broker_id": 2,
        "observer": "local",
        "leader_epoch": 0,
        "step": "follower_append",
    }
    took |= {"leo_before": 5, "leo": 6, "evidence": "bounded"}
    led = {**KEY, "leader_epoch": 0, "leader_id": 1}
    retried = event(4, "ack", broker_id=2, leader_epoch=1, base_offset=5, next_offset=6, error_code=0, acks=-1)
    retried["duplicate"] = True
    shelf = small([append(2, 0, 5, 6), retried], leo_timeline=[took], leadership_timeline=[led])
    ((epoch, word, sentence),) = words(shelf, 5)
    assert (epoch, word) == (0, "kept")
    assert sentence.endswith("in the log of brokers 1, 2 at the end; acknowledged (acks=all)")


def test_what_retention_removed_is_no_loss() -> None:
    start = {**KEY, "seq": 5, "ts": NOON, "broker_id": 1, "log_start_before": 0, "log_start_offset": 7}
    gone = {**start, "records_removed": 7, "cause": "segment_deletion"}
    dump = event(9, "log_dump", leader_epoch=0, base_offset=0, next_offset=9, cause="holds")
    for events in ([append(1, 0, 5, 9)], [append(1, 0, 5, 9), dump]):  # the file may still be there
        shelf = small(events, log_start_timeline=[gone])
        assert [word for _, word, _ in words(shelf, 6)] == ["removed"]
        assert [word for _, word, _ in words(shelf, 8)] == ["kept"]


def test_answers_that_acknowledge_nothing_are_not_called_so() -> None:
    told_to = {"leader_epoch": 0, "base_offset": 5, "next_offset": 6, "acks": 1, "client_id": "c"}
    for some, said in (
        ({"error_code": 7}, "answered with REQUEST_TIMED_OUT, so not acknowledged"),
        ({"error_code": 0, "unconfirmed": True}, "answered only to a client that may have given up"),
        ({"error_code": 0, "acks": 0}, "asked for no answer"),
        ({"error_code": 0}, "acknowledged (acks=1)"),
    ):
        shelf = small([append(1, 0, 5, 6), event(2, "ack", **{**told_to, **some})])
        assert said in words(shelf, 5)[0][2]


def test_an_open_end_is_lost_only_as_far_as_the_incident_says() -> None:
    lost = {"incident_id": "i", "severity": "S1", "mechanism": "other", "ranges": [open_end()], "evidence": "bounded"}
    shelf = small([append(1, 0, 5, 20)], data_loss_incidents=[{**KEY, **lost}])
    assert words(shelf, 6)[0][1] == "kept"
    assert words(shelf, 19)[0][2].startswith("lost (bounded): incident i")


def open_end() -> dict[str, Any]:
    return {"leader_epoch": 0, "first_offset": 10, "last_offset": None}


def test_columns_of_a_later_release_are_null() -> None:
    events = pa.table({"seq": [1], "topic": ["t"], "incarnation": [0], "partition": [0], "kind": ["config_change"]})
    (row,) = rare_events(Shelf({"replication_events": events}), Place("t", 0, 0))
    assert (row["seq"], row["min_insync_replicas"]) == (1, None)
