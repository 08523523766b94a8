"""What a broker states of its HW is stronger than what was computed, and an unknown setting is no setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from histories_of_losses import COMMITTED, alone, loss, losses, replicated, tail, taken_over_from
from without_spark import tables_of

if TYPE_CHECKING:
    from facts_builder import History


def in_short_isr(*, min_isr: int | None = None, **fields: Any) -> History:
    """Three records appended by broker 1 while it is alone in the ISR; then broker 2 is elected without them."""
    history = replicated()
    if min_isr is not None:
        setting = {"name": "min.insync.replicas", "value": str(min_isr), "metadata_offset": 99, "resource_type": 2}
        history.add("config_change", 1, partition=None, source_file="metadata", **setting)
    alone(history)
    tail(history, ms=340, **fields)
    history.fence(900, 1)
    history.decide(901, -1, [1])
    return taken_over_from(history, epoch=2)


TIMED_OUT = {"acks": -1, "error_code": 7, "total_us": 30_000, "remote_us": 30_000}


def test_nothing_is_committed_by_an_hw_that_an_unknown_min_insync_replicas_may_have_held_back() -> None:
    assert losses(in_short_isr(**TIMED_OUT)) == []
    assert loss(in_short_isr(min_isr=1, **TIMED_OUT))["committed"] == 3
    assert losses(in_short_isr(min_isr=2, **TIMED_OUT)) == []


def test_an_answer_to_acks_all_says_that_its_batch_was_committed_whatever_the_setting() -> None:
    assert loss(in_short_isr(acks=-1))["committed"] == 3


def test_an_unknown_min_insync_replicas_is_no_setting_that_would_have_kept_records() -> None:
    assert "min.insync.replicas=2" not in loss(in_short_isr(acks=1))["prevention"]
    assert "min.insync.replicas=2" in loss(in_short_isr(acks=1, min_isr=1))["prevention"]
    assert "min.insync.replicas=2" in loss(in_short_isr(acks=-1))["prevention"]  # answered, so one was enough


def test_an_append_of_which_nothing_tells_when_it_came_is_not_committed_by_a_leader_that_was_alone_for_a_while() -> (
    None
):
    """Broker 1 was alone in the ISR at first; its last record, of which no line tells, may have come later."""
    history = replicated()
    setting = {"name": "min.insync.replicas", "value": "1", "metadata_offset": 99, "resource_type": 2}
    history.add("config_change", 1, partition=None, source_file="metadata", **setting)
    alone(history)
    history.fence(400, 2, fenced=False)
    history.decide(401, None, [1, 2])
    history.fence(900, 1)
    history.decide(901, -1, [2])
    history.decide(1000, 2, [2])
    history.role(1010, 2, "leader", 2, offset=COMMITTED, hw=COMMITTED)
    asks = {"current_leader_epoch": 2, "last_fetched_epoch": 0}
    history.fetch(1500, 2, 1, COMMITTED + 1, hw=-1, diverging_epoch=0, diverging_end_offset=COMMITTED, **asks)
    assert [row["committed"] for row in losses(history)] in ([], [0])


def denied(*stated: int) -> History:
    """A leader of 3.7, told of as 3.6: what its answers state of the HW after three records under the minimum."""
    history = replicated()
    setting = {"name": "min.insync.replicas", "value": "2", "metadata_offset": 99, "resource_type": 2}
    history.add("config_change", 1, partition=None, source_file="metadata", **setting)
    alone(history)
    tail(history, ms=340, **TIMED_OUT)
    for k, hw in enumerate(stated):
        history.fetch(5000 + 100 * k, 1, -1, COMMITTED, hw=hw, client_id="c", total_us=5000, remote_us=5000)
    history.fence(6900, 1)
    history.decide(6901, -1, [1])
    return taken_over_from(history, ms=7000, epoch=2)


def test_a_computed_hw_is_withdrawn_where_the_leaders_answers_state_a_lower_one() -> None:
    assert losses(denied(2, 2), kafka_version="3.6.2") == []
    rows = tables_of(denied(2, 2).events(kafka_version="3.6.2"))["hw_timeline"].to_pylist()
    assert [row["hw"] for row in rows if row["broker_id"] == 1 and row["leader_epoch"] == 0][-2:] == [5, 2]


def test_a_computed_hw_stands_that_answers_state_too_or_only_one_denies() -> None:
    for stated in ((2, 5), (5, 5), (2,), ()):
        assert loss(denied(*stated), kafka_version="3.6.2")["committed"] == 3, stated
