"""A fetch that is answered at once is a read and an update; where others' reads say so, each half has its own place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from facts_builder import History, at, of_kind
from without_spark import tables_of

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = {"total_us": 3000, "local_us": 3000}


def led(batches: int = 2) -> History:
    """Broker 1 leads; 2 and 3 follow and have all but the last of its batches, one of which comes each 10 ms."""
    history = History()
    history.decide(0, 1, [1, 2, 3])
    for broker in (1, 2, 3):
        history.role(10, broker, "leader" if broker == 1 else "follower", 0, offset=0, hw=0)
    for base in range(batches):
        history.produce(100 + 10 * base, 1, base, acks=1)
        for replica in (2, 3):
            history.fetch(102 + 10 * base, 1, replica, base, bytes=100, hw=max(base - 1, 0))
    return history


def halves(events: pa.Table, offset: int) -> list[tuple[str, int]]:
    """Which half of whose fetch at an offset comes when, and where batches do: ("append", base)."""
    rows = of_kind(events, "fetch_read", "fetch_update", "append")
    return [
        ("append", row["base_offset"]) if row["kind"] == "append" else (row["kind"], row["replica_id"])
        for row in rows
        if row["base_offset"] == offset or row["fetch_offset"] == offset
    ]


def told_of(events: pa.Table, replica: int, offset: int = 2) -> list[str]:
    """The events of a replica's fetch at an offset, in order."""
    rows = of_kind(events, "fetch_read", "fetch_update", "fetch_apply")
    return [row["kind"] for row in rows if (row["replica_id"], row["fetch_offset"]) == (replica, offset)]


def differences(events: pa.Table, check: str = "response_hw") -> int:
    (row,) = [row for row in tables_of(events)["conformance"].to_pylist() if row["check"] == check]
    assert row["compared"]
    return int(row["compared"] - row["matched"])


@pytest.mark.parametrize("version", ["2.4.1", "2.5.0", "4.1.0"])
def test_two_fetches_that_both_saw_the_hw_that_they_raised_together_were_parked_by_their_handlers(version: str) -> None:
    history = led()
    for replica in (2, 3):  # bytes of another partition complete them; nothing was read of this one
        history.fetch(150, 1, replica, 2, hw=2, request_bytes=70, **AT_ONCE)
    history.produce(149, 1, 2, acks=1)
    history.fetch(300, 1, 2, 2, hw=2, bytes=100, **AT_ONCE)
    events = history.events(kafka_version=version)
    assert differences(events) == 0
    first, second, *rest = halves(events, 2)
    assert (first[0], second[0]) == ("fetch_update", "fetch_update")
    assert [half for half in rest if half[0] == "fetch_read"][:2] == [("fetch_read", 3), ("fetch_read", 2)]


def test_a_fetch_that_nothing_answers_is_not_parked_by_its_handler() -> None:
    history = led()
    for replica in (2, 3):
        history.fetch(150, 1, replica, 2, hw=5, request_bytes=70, **AT_ONCE)  # no order makes it 5
    assert differences(history.events()) == 2


LONG = {"total_us": 20_000, "local_us": 20_000}


@pytest.mark.parametrize("later", [0, 4])
def test_two_fetches_that_saw_the_hw_of_both_were_parked_though_records_had_come_before_their_updates(
    later: int,
) -> None:
    history = led()
    history.produce(149, 1, 2, acks=1)
    for replica in (2, 3):  # neither answer could state 2 before the other fetch was taken
        history.fetch(160 + later * replica, 1, replica, 2, hw=2, bytes=100, **LONG)
        history.fetch(300 + replica, 1, replica, 3, hw=replica)
    events = history.events()
    assert differences(events) == 0
    assert {told_of(events, replica)[0] for replica in (2, 3)} == {"fetch_update"}


def answered_beyond_what_was_read() -> History:
    """Two followers fetch; the first of their last fetches states an HW that cannot be."""
    history = led()
    history.produce(140, 1, 2, acks=1)
    for replica in (2, 3):
        history.fetch(200, 1, replica, 2, hw=2, bytes=100)
        history.fetch(300 + replica, 1, replica, 3, hw=replica)
    return history


def test_a_fetch_that_came_after_the_records_that_it_was_answered_was_not_parked_before_them() -> None:
    events = answered_beyond_what_was_read().events()
    assert differences(events) == 1  # the first of them: what it states cannot be
    assert told_of(events, 2)[0] == told_of(events, 3)[0] == "fetch_read"


def test_a_read_behind_fetches_that_no_answer_lists_saw_the_hw_of_before_another_s_update() -> None:
    history = led()
    unlisted = {"run_count": 3, "run_until": at(141), "run_gap_us": 5000, "run_timeouts": 0, "hw_implied": True}
    history.fetch(130, 1, 2, 2, hw=1, in_request=False, in_response=False, **unlisted)
    history.produce(144, 1, 2, acks=1)
    history.fetch(145, 1, 3, 2, hw=1, bytes=100, **AT_ONCE)
    history.fetch(149, 1, 2, 2, hw=1, bytes=100)
    history.fetch(300, 1, 3, 3, hw=2, bytes=100)
    assert differences(history.events()) == 0


def test_what_an_answer_with_a_higher_hw_leaves_out_was_in_the_log_all_the_same() -> None:
    history = led(4)
    history.decide(1, None, [1, 3], leader_epoch=0, partition_epoch=1)  # 2 is far behind, in older segments
    history.fetch(150, 1, 3, 4, hw=3, bytes=0, request_bytes=70)
    history.fetch(151, 1, 2, 4, hw=4, bytes=0, request_bytes=70)
    history.fetch(170, 1, 2, 0, hw=4, bytes=300, current_leader_epoch=0, connection="later")
    history.fetch(180, 1, 2, 3, hw=4, bytes=100, connection="later")
    assert differences(history.events()) == 0


def test_the_hw_takes_the_value_of_the_leaders_line_before_it_passes_it() -> None:
    history = led()
    for base in (2, 3):
        history.produce(140 + base, 1, base, acks=1)
    history.fetch(150, 1, 2, 2, hw=1, bytes=200)
    history.fetch(152, 1, 3, 2, hw=1, bytes=100)
    history.fetch(160, 1, 3, 3, hw=2, bytes=100)
    history.fetch(300, 1, 3, 4, hw=4, total_us=131_000, remote_us=130_000)  # taken before that of 2, as it seems
    history.fetch(301, 1, 2, 4, hw=4, total_us=131_000, remote_us=130_000)
    for hw, ms in ((1, 113), (2, 153), (3, 170), (4, 170)):
        history.add("hw_update", ms, hw=hw, source_file="server-1.log", broker_id=1, name="leader", hw_before=0)
    events = history.events()
    assert differences(events, "leader_hw_line") == differences(events) == 0


def test_the_hw_waits_for_a_replica_from_when_its_leader_asked_for_it_though_the_line_comes_late() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2, 3])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    for base in (0, 1):
        history.produce(100 + 20 * base, 1, base, acks=1)
        history.fetch(102 + 20 * base, 1, 2, base, hw=0, bytes=100)
    history.fetch(141, 1, 2, 2, hw=1, bytes=100, total_us=17_000, remote_us=16_500)  # it cannot raise the HW to 2
    history.produce(140, 1, 2, acks=1)
    history.fetch(150, 1, 3, 1, hw=1, bytes=200, total_us=40_000, local_us=40_000)
    asks(history, 148, 3, [1, 2, 3])
    history.fetch(175, 1, 2, 3, hw=3, request_bytes=70, total_us=30_000, remote_us=29_000)
    history.fetch(176, 1, 3, 3, hw=3, request_bytes=70)
    history.decide(180, None, [1, 2, 3], leader_epoch=0, partition_epoch=1)
    events = history.events()
    assert differences(events) == differences(events, "predicted_expansion") == 0
    assert told_of(events, 3, 1)[0] == "fetch_update"


def test_a_leaders_line_says_when_a_handler_that_took_long_raised_the_hw_while_a_consumer_waited() -> None:
    history = led()
    history.fetch(150, 1, 3, 2, hw=1, total_us=20_000, remote_us=20_000, request_bytes=70)
    history.fetch(330, 1, 2, 2, hw=2, total_us=130_000, local_us=130_000, request_bytes=70)
    parked = {"total_us": 70_000, "remote_us": 70_000, "max_wait_ms": 500, "min_bytes": 1, "request_bytes": 100}
    history.fetch(325, 1, -1, 1, hw=2, bytes=100, **parked)
    history.add("hw_update", 300, hw=2, source_file="server-1.log", broker_id=1, name="leader", hw_before=1)
    assert differences(history.events(), "fetch_completion") == 0


def test_a_read_that_saw_the_hw_of_before_another_s_update_comes_before_it_and_its_own_update_behind() -> None:
    history = led()
    history.produce(140, 1, 2, acks=1)
    history.fetch(142, 1, 3, 2, hw=1, bytes=100)
    history.fetch(150, 1, 2, 2, hw=1, bytes=100, **AT_ONCE)  # reads 2, before 3 is there, and raises the HW to 2
    history.produce(151, 1, 3, acks=1)
    history.fetch(152, 1, 3, 3, hw=1, bytes=100, **AT_ONCE)  # reads 3, and still the HW of before
    history.fetch(160, 1, 2, 3, hw=2, bytes=100)
    events = history.events()
    assert differences(events) == 0
    assert told_of(events, 2) == ["fetch_read", "fetch_update", "fetch_apply"]
    assert [half for half in halves(events, 2) if half[0] != "append"][-1] == ("fetch_update", 2)


def test_an_answer_from_purgatory_comes_before_the_update_that_raises_the_hw_beyond_it() -> None:
    history = led()
    history.fetch(140, 1, 2, 2, hw=1, total_us=600, local_us=100, remote_us=500, request_bytes=70)  # parked until 140
    history.fetch(141, 1, 3, 2, hw=1, **AT_ONCE)  # raises the HW to 2; its stamp lets it come first
    history.fetch(150, 1, 2, 2, hw=2, request_bytes=70)
    assert differences(history.events()) == 0


def asks(history: History, ms: float, replica: int, isr: list[int]) -> None:
    line = {"source_file": "server-1.log", "broker_id": 1, "leader_epoch": 0, "replica_id": replica}
    history.add("isr_update", ms, name="pending_expand", isr=isr, **line)


def rejoined(**late: Any) -> History:
    """2 and 3 are outside the ISR and fetch at the same time; the leader asks for 3 although 2 could join, too."""
    history = History()
    history.decide(0, 1, [1], replicas=[1, 2, 3])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    for broker in (2, 3):
        history.role(10, broker, "follower", 0, offset=0, hw=0)
    history.fetch(100, 1, 2, 0, hw=0, total_us=40_000, local_us=40_000, **late)
    history.fetch(101, 1, 3, 0, hw=0, total_us=30_000, local_us=30_000)
    asks(history, 95, 3, [1, 3])
    history.decide(100, None, [1, 3], leader_epoch=0, partition_epoch=1)
    asks(history, 150, 2, [1, 2, 3])
    history.fetch(151, 1, 2, 0, hw=0, total_us=3000, local_us=3000)
    return history


def test_of_two_replicas_that_could_join_the_one_that_was_asked_for_came_first() -> None:
    events = rejoined().events()
    assert [row["replica_id"] for row in of_kind(events, "fetch_update")] == [3, 2, 2]
    assert differences(events, "predicted_expansion") == 0


def recorded(history: History, ms: float, offset: int) -> None:
    line = {"source_file": "server-1.log", "broker_id": 1, "replica_id": 2, "offset": offset}
    history.add("remote_leo_update", ms, **line)


def test_of_two_fetches_at_one_offset_the_second_has_the_leaders_second_line() -> None:
    history = led()
    history.fetch(150, 1, 2, 2, hw=1, request_bytes=70, total_us=3000, local_us=3000)
    history.fetch(172, 1, 2, 2, hw=1, bytes=100, total_us=24_000, local_us=24_000)
    history.produce(169, 1, 2, acks=1)
    for ms, offset in ((103, 0), (113, 1), (149, 2), (170, 2)):
        recorded(history, ms, offset)
    rows = [row for row in of_kind(history.events(), "fetch_update") if row["replica_id"] == 2]
    assert [row["ts_hi"].microsecond // 1000 for row in rows[-2:]] == [151, 172]


def test_a_fetch_has_the_first_line_of_its_time_where_a_line_is_missing() -> None:
    history = led()
    history.fetch(150, 1, 2, 2, hw=1, request_bytes=70, total_us=3000, local_us=3000)
    history.fetch(212, 1, 2, 2, hw=1, request_bytes=70, total_us=3000, local_us=3000)
    recorded(history, 211, 2)
    rows = [row for row in of_kind(history.events(), "fetch_update") if row["replica_id"] == 2]
    assert [row["ts_hi"].microsecond // 1000 for row in rows[-2:]] == [152, 213]


SESSION = {"session_id": 7, "response_session_id": 7, "last_fetched_epoch": -1}


def answered_under_the_next_epoch(hw: int) -> History:
    """A leader of ZooKeeper's that leads on while a fetch of 2 and a consumer's are parked; 3 has left the ISR."""
    history = led()
    history.fetch(140, 1, 2, 2, hw=1, total_us=20_000, remote_us=20_000, **SESSION, session_epoch=1)
    history.role(200, 1, "leader", 1, offset=2, hw=1, isr=[1, 2], replicas=[1, 2, 3])
    history.fetch(205, 1, 2, 2, hw=hw, total_us=40_000, remote_us=40_000, **SESSION, session_epoch=2)
    history.fetch(206, 1, -1, 1, hw=hw, bytes=100, total_us=40_000, remote_us=40_000)
    history.fetch(300, 1, 2, 2, hw=2, current_leader_epoch=1, **SESSION, session_epoch=3)
    return history


@pytest.mark.parametrize(("hw", "epoch"), [(2, 1), (1, 0)])
def test_an_hw_beyond_that_of_a_leader_that_leads_on_was_read_under_its_next_epoch(hw: int, epoch: int) -> None:
    events = answered_under_the_next_epoch(hw).events(kafka_version="2.4.1")
    rows = [row for row in of_kind(events, "fetch_read", "consumer_read") if row["response_hw"] == hw]
    assert rows[-3]["leader_epoch"] == rows[-2]["leader_epoch"] == epoch if hw == 2 else rows[-2]["leader_epoch"] == 0
    assert differences(events, "role_hw") == 0


def test_an_answer_to_all_never_comes_before_its_append_whatever_lines_say() -> None:
    history = led()
    for replica in (2, 3):
        history.fetch(150, 1, replica, 2, hw=1, bytes=100)
    history.produce(149, 1, 2, total_us=30_000, local_us=1000, remote_us=29_000)
    line = {"source_file": "server-1.log", "broker_id": 1, "name": "leader", "hw_before": 2}
    history.add("hw_update", 120, hw=3, **line)  # its clock is wrong
    history.fetch(160, 1, 2, 3, hw=2)
    history.fetch(160, 1, 3, 3, hw=3)
    rows = [row["kind"] for row in of_kind(history.events(), "append", "ack") if row["base_offset"] == 2]
    assert rows == ["append", "ack"]


def test_a_produce_stamped_very_late_has_the_line_of_its_base_offset_where_lines_join() -> None:
    history = led()
    history.produce(300, 1, 2, acks=1, total_us=1000, local_us=1000)  # appended at 150, as its leader's lines say
    for ms, offset in ((100, 0), (110, 1), (150, 2), (400, 3)):
        line = {"source_file": "server-1.log", "broker_id": 1, "base_offset": offset, "last_offset": offset}
        history.add("log_append", ms, offset=offset + 1, **line)
    history.produce(400, 1, 3, acks=1)
    rows = {row["base_offset"]: row["ts"] for row in of_kind(history.events(), "append")}
    assert rows[2] < rows[3]
    assert rows[2].microsecond == 150_000
