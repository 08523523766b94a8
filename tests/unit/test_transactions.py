"""Transactions: markers occupy offsets and are nobody's records; what was aborted is told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from facts_builder import History, of_kind
from histories_of_losses import COMMITTED, alone, loss, losses, replicated, taken_over
from without_spark import tables_of

from replay.evidence import markers
from replay.evidence.batch_ends import MARKER_BYTES
from replay.evidence.controller_view import MIN_ISR_SETTING
from replay.evidence.group_coordinators import PROTOCOLS, SWITCH
from replay.evidence.markers import Markers
from replay.order.stored import Stored
from replay.protocol.produce import NOT_ENOUGH_REPLICAS, UNKNOWN_TOPIC_OR_PARTITION


def marker(history: History, ms: float, producer: int = 7, name: str = "marker_commit", **fields: Any) -> None:
    """The coordinator lets broker 1 append a marker."""
    fields = {"producer_id": producer, "producer_epoch": 0, "name": name, "broker_id": 1, **fields}
    history.request("transaction", ms, "markers", **fields)


def transaction(history: History, ms: float, base: int, name: str = "marker_commit", **fields: Any) -> None:
    """One batch of a transaction and, 100 ms later, its marker."""
    history.request("transaction", ms - 1, "t", name="added", transactional_id="tx", producer_id=7, broker_id=1)
    history.produce(ms, 1, base, **{"acks": 1, "transactional_id": "tx", **fields})
    marker(history, ms + 100, name=name)


def lost(history: History) -> dict[str, Any]:
    history.fence(2000, 1)
    return loss(taken_over(history, ms=2000))


def batches(history: History) -> list[tuple[int, int, str, bool]]:
    found = of_kind(history.events(), "append")
    return [(r["base_offset"], r["next_offset"], r["next_offset_evidence"], bool(r["is_control"])) for r in found]


def test_a_marker_occupies_an_offset_and_is_no_acknowledged_record() -> None:
    history = replicated()
    transaction(history, 500, COMMITTED)
    transaction(history, 900, COMMITTED + 3)
    history.produce(1300, 1, COMMITTED + 5, acks=1)
    assert batches(history)[COMMITTED:] == [
        (2, 4, "derived", False),
        (4, 5, "derived", True),
        (5, 6, "derived", False),
        (6, 7, "derived", True),
        (7, 8, "bounded", False),
    ]
    row = lost(history)
    assert (row["records"], row["acked_one"], row["unacked"], row["acked_possible"]) == (6, 4, 2, 0)


def producers(history: History) -> list[tuple[int, int | None]]:
    return [(row["base_offset"], row["producer_id"]) for row in of_kind(history.events(), "append")]


def test_appends_and_markers_name_the_producer() -> None:
    history = replicated()
    history.request("transaction", 480, "t", name="added", transactional_id="other", producer_id=8, broker_id=1)
    history.produce(490, 1, COMMITTED, acks=1, transactional_id="other")
    transaction(history, 500, COMMITTED + 1)
    history.request("transaction", 800, "t", name="added", transactional_id="tx", producer_id=9, broker_id=1)
    history.produce(801, 1, COMMITTED + 3, acks=1, transactional_id="tx")
    assert producers(history)[COMMITTED:] == [(2, 8), (3, 7), (4, 7), (5, 9)]
    found = tables_of(history.events())["transactions"].to_pylist()
    told = [(r["producer_id"], r["first_offset"], r["outcome"], r["marker_offset"]) for r in found]
    assert told == [(8, 2, "open", None), (7, 3, "commit", 4), (9, 5, "open", None)]


def test_of_two_markers_at_one_place_none_names_its_producer() -> None:
    history = replicated()
    for name, producer, base in (("tx", 7, COMMITTED), ("other", 8, COMMITTED + 1)):
        history.request(
            "transaction", 480, name, name="added", transactional_id=name, producer_id=producer, broker_id=1
        )
        history.produce(490 + base, 1, base, acks=1, transactional_id=name)
    marker(history, 600, producer=7)
    marker(history, 600, producer=8)
    history.produce(900, 1, COMMITTED + 4, acks=1)
    assert producers(history)[COMMITTED:] == [(2, 7), (3, 8), (4, None), (5, None), (6, None)]


def test_a_marker_that_may_stand_in_two_places_leaves_the_batches_there_open() -> None:
    history = replicated()
    history.produce(500, 1, COMMITTED, acks=1)
    history.produce(505, 1, COMMITTED + 2, acks=1)
    marker(history, 510)
    history.produce(515, 1, COMMITTED + 4, acks=1)
    assert [one[2] for one in batches(history)[COMMITTED:]] == ["bounded"] * 3
    row = lost(history)
    assert (row["records"], row["acked_one"], row["acked_one_possible"]) == (5, 3, 2)


def test_the_bytes_that_a_follower_was_handed_say_where_a_marker_stands() -> None:
    history = replicated()
    history.produce(500, 1, COMMITTED, acks=1)
    history.produce(505, 1, COMMITTED + 2, acks=1)
    marker(history, 510)
    history.produce(515, 1, COMMITTED + 4, acks=1)
    history.fetch(520, 1, 2, COMMITTED, bytes=100, hw=COMMITTED)
    history.fetch(521, 1, 2, COMMITTED + 2, bytes=100 + MARKER_BYTES, hw=COMMITTED + 2)
    history.fetch(522, 1, 2, COMMITTED + 4, hw=COMMITTED + 4)
    assert batches(history)[COMMITTED:-1] == [
        (2, 4, "derived", False),
        (4, 5, "derived", False),
        (5, 6, "derived", True),
    ]


@pytest.mark.parametrize("length", [60, 400])
def test_markers_that_may_stand_in_each_other_s_places_are_taken_apart_every_few_seconds(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch each 10 ms, and a marker that may stand on two sides of the next batch; 100 ms stand for the seconds."""
    monkeypatch.setattr(markers, "CELL_US", 100_000)
    history, found = replicated(), []
    for k in range(length):
        history.produce(500 + 10 * k, 1, COMMITTED + 2 * k, acks=1)
        marker(history, 509 + 10 * k)
    whole = Markers.parted

    def noted(self: Markers, *args: Any) -> Any:
        found.append(whole(self, *args))
        return found[-1]

    monkeypatch.setattr(Markers, "parted", noted)
    told = batches(history)[COMMITTED:]
    ((apart, cuts),) = found
    assert len(cuts) == len(apart) - COMMITTED - 1 == (length - 1) // 10  # one in each 100 ms but the first
    assert (np.diff(apart[COMMITTED:]) < 2 * markers.CELL_US).all()
    assert [base for base, *_, is_control in told if not is_control] == [*range(COMMITTED, COMMITTED + 2 * length, 2)]


def test_ends_are_open_where_no_line_tells_of_the_markers_of_transactions() -> None:
    history = replicated()
    history.produce(500, 1, COMMITTED, acks=1, transactional_id="tx")
    history.produce(700, 1, COMMITTED + 2, acks=1, transactional_id="tx")
    history.produce(900, 1, COMMITTED + 4, acks=1, transactional_id="tx")
    assert [one[2] for one in batches(history)[COMMITTED:]] == ["bounded"] * 3
    row = lost(history)
    assert (row["records"], row["acked_one"], row["acked_one_possible"]) == (5, 3, 2)


def test_a_marker_that_was_refused_occupies_nothing() -> None:
    history = replicated()
    history.produce(500, 1, COMMITTED, acks=1)
    marker(history, 600, error_code=6)
    history.produce(700, 1, COMMITTED + 2, acks=1)
    assert batches(history)[COMMITTED] == (COMMITTED, COMMITTED + 2, "derived", False)


def left_alone() -> History:
    """Broker 1 leads, and is the only one in sync from 205 ms on."""
    history = History()
    history.decide(0, 1, [1, 2])
    history.role(5, 1, "leader", 0, offset=0, hw=0, isr=[1, 2], partition_epoch=0)
    history.decide(200, None, [1])
    history.add("isr_update", 205, name="updated", broker_id=1, isr=[1], partition_epoch=1, source_file="server-1.log")
    return history


def refusals_compared(events: pa.Table) -> tuple[int, int]:
    """How many refusals were compared with the guard, and how many agree."""
    rows = {row["check"]: row for row in tables_of(events)["conformance"].to_pylist()}
    return rows["produce_refusal"]["compared"], rows["produce_refusal"]["matched"]


def test_a_marker_that_was_refused_is_compared_with_what_the_leader_was() -> None:
    """The coordinator asks for all replicas (acks=all), and sends the marker again until one is taken."""
    history = left_alone()
    for ms in (203, 600):  # of the first no stamp tells whether it came before the shrink
        marker(history, ms, error_code=NOT_ENOUGH_REPLICAS)
    marker(history, 700, error_code=UNKNOWN_TOPIC_OR_PARTITION)  # it hosts no such partition, says the broker
    history.decide(800, None, [1, 2])
    history.add(
        "isr_update", 805, name="updated", broker_id=1, isr=[1, 2], partition_epoch=2, source_file="server-1.log"
    )
    marker(history, 900)
    events = history.events(settings={MIN_ISR_SETTING: 2})
    refused = of_kind(events, "produce_refused")
    assert [(row["error_code"], row["is_control"], row["acks"]) for row in refused] == [(19, True, None)] * 2
    assert refusals_compared(events) == (2, 2)
    marker(history, 950, error_code=NOT_ENOUGH_REPLICAS)  # while two were in sync
    events = history.events(settings={MIN_ISR_SETTING: 2})
    assert refusals_compared(events) == (3, 2)


def test_a_coordinator_s_append_that_was_refused_is_compared_with_what_the_leader_was() -> None:
    """It has no line in the request log, but the broker says that it failed: only for want of replicas it says so."""
    history = left_alone()
    history.add("append_refused", 600, broker_id=1, source_file="server-1.log")
    events = history.events(settings={MIN_ISR_SETTING: 2})
    (refused,) = of_kind(events, "produce_refused")
    assert (refused["broker_id"], refused["error_code"], refused["acks"]) == (1, NOT_ENOUGH_REPLICAS, -1)
    assert (refused["evidence"], refused["is_control"]) == ("derived", None)
    assert refusals_compared(events) == (1, 1)
    assert NOT_ENOUGH_REPLICAS not in {row["error_code"] for row in of_kind(events, "append")}


@pytest.mark.parametrize(("version", "refused"), [("3.9.1", 1), ("4.0.0", 0)])
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__share_group_state"])
def test_group_coordinators_ask_for_no_replicas_from_4_0_on(topic: str, version: str, refused: int) -> None:
    """What they could not append failed for another reason then, which the line does not say."""
    history = left_alone()
    history.add("append_refused", 600, broker_id=1, source_file="server-1.log", topic=topic)
    events = history.events(settings={MIN_ISR_SETTING: 2}, kafka_version=version)
    assert len(of_kind(events, "produce_refused")) == refused


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ([], 1),
        ([(100, SWITCH, "false"), (100, PROTOCOLS, "[classic]")], 1),
        ([(100, SWITCH, "false"), (100, PROTOCOLS, "[classic, consumer]")], 0),
        ([(100, SWITCH, "true"), (100, PROTOCOLS, "[classic]")], 0),
        ([(100, SWITCH, "true"), (500, SWITCH, "false")], 1),  # it was started anew, with another configuration
        ([(700, SWITCH, "true")], 1),
    ],
)
def test_a_broker_s_settings_say_whether_its_group_coordinator_asks_for_replicas_up_to_3_9(
    settings: list[tuple[float, str, str]], refused: int
) -> None:
    history = left_alone()
    history.add("append_refused", 600, broker_id=1, source_file="server-1.log", topic="__consumer_offsets")
    for ms, name, value in settings:
        told = {"broker_id": 1, "source_file": "server-1.log", "topic": None, "partition": None}
        history.add("config_change", ms, name=name, value=value, resource_type=4, **told)
        history.add("config_change", ms, name=SWITCH, value="true", resource_type=4, **{**told, "broker_id": 2})
    events = history.events(settings={MIN_ISR_SETTING: 2}, kafka_version="3.9.1")
    assert len(of_kind(events, "produce_refused")) == refused


@pytest.mark.parametrize(("name", "aborted"), [("marker_abort", 1), ("marker_commit", 0)])
def test_records_of_an_aborted_transaction_are_acknowledged_and_told_apart(name: str, aborted: int) -> None:
    history = replicated()
    transaction(history, 500, COMMITTED, name)
    history.produce(900, 1, COMMITTED + 2, acks=1)
    row = lost(history)
    assert (row["acked_one"], row["aborted"], row["unacked"]) == (2, aborted, 1)


def lost_uncleanly(*ends: str) -> dict[str, Any]:
    """Transactions that broker 1 alone took with acks=all; broker 2 leads from before them."""
    history = replicated()
    alone(history)
    for k, name in enumerate(ends):
        transaction(history, 400 + 200 * k, COMMITTED + 2 * k, name, acks=-1)
    history.decide(900, -1, [1])
    history.decide(1000, 2, [2], leader_recovery_state=1)
    history.role(1010, 2, "leader", 2, offset=COMMITTED, hw=COMMITTED)
    return loss(history)


@pytest.mark.parametrize(
    ("ends", "severity"),
    [
        (["marker_abort"], "S3"),
        (["marker_abort", "marker_abort"], "S3"),
        (["marker_commit"], "S1"),
        (["marker_abort", "marker_commit"], "S1"),
    ],
)
def test_what_was_aborted_makes_no_loss_worse(ends: list[str], severity: str) -> None:
    row = lost_uncleanly(*ends)
    aborted = ends.count("marker_abort")
    assert (row["severity"], row["acked_all"], row["aborted"]) == (severity, len(ends), aborted)


def test_aborted_records_that_a_leader_alone_acknowledged_are_no_acks_one_loss() -> None:
    history = replicated()
    transaction(history, 500, COMMITTED, "marker_abort")
    history.fence(1000, 1)
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 1, offset=COMMITTED, hw=COMMITTED)
    row = loss(history)
    assert (row["severity"], row["acked_one"], row["aborted"]) == ("S3", 1, 1)


def test_a_transaction_without_a_known_end_is_not_told_as_aborted() -> None:
    history = replicated()
    transaction(history, 500, COMMITTED, "marker_abort")
    history.produce(900, 1, COMMITTED + 2, acks=1, transactional_id="tx")
    assert lost(history)["aborted"] == 1


def test_what_coordinators_append_to_their_own_topics_was_acknowledged_to_nobody() -> None:
    history = replicated()
    alone(history)
    history.rows = [row for row in history.rows if row["kind"] != "produce"]
    marker(history, 400)
    history.fence(1000, 1)
    events = taken_over(history).events()
    place = events.column_names.index("topic")
    internal = events.set_column(place, "topic", pa.array(["__consumer_offsets"] * len(events), pa.string()))
    for row in tables_of(internal)["data_loss_incidents"].to_pylist():
        assert (row["acked_all"], row["acked_one"], row["acked_possible"], row["unacked"]) == (0, 0, 0, row["records"])
    assert losses(history)[0]["acked_all"] is None
    assert tables_of(events)["data_loss_incidents"].num_rows == 1


def test_what_an_answer_handed_out_ends_with_the_last_batch_that_fits_into_its_bytes() -> None:
    stored = Stored(bases=[0, 2, 5], ends=[2, 5, 6], sizes=[0, 100, 200, 300])
    assert stored.handed_until(0, 200, 6) == 5
    assert stored.handed_until(1, 100, 6) == 2
    assert stored.handed_until(1, 300, 3) == 3
    assert stored.handed_until(0, 50, 6) == 1  # packed anew by the broker: its first record


def test_of_a_batch_whose_end_is_open_only_the_first_record_was_handed_out() -> None:
    stored = Stored(bases=[0, 2, 5], ends=[2, 5, 6], sizes=[0, 100, 200, 300], open=[1])
    assert stored.handed_until(0, 300, 6) == 3


def test_another_leaders_log_goes_on_from_where_it_starts() -> None:
    stored = Stored(bases=[0, 2, 5], ends=[2, 5, 6], sizes=[0, 100, 200, 300], open=[2])
    stored.take([], 4)
    assert (stored.bases, stored.ends, stored.sizes, stored.open) == ([0, 2], [2, 4], [0, 100, 200], [])
