"""A leader that is told its role anew, as ZooKeeper's controller does for a change of the ISR: it never stopped."""

from __future__ import annotations

import pytest
from facts_builder import History, of_kind
from without_spark import tables_of

ZOOKEEPER = {"kafka_version": "2.4.1"}
TOLD_MS = 1000
HAD = 4  # records when the role was told anew


def told_anew(*, stated: int = HAD, load: bool = False) -> History:
    """Broker 1 leads epoch 0 and has four records; then the ISR loses broker 3, which is epoch 1."""
    history = History()
    for broker in (1, 2, 3):
        role = "leader" if broker == 1 else "follower"
        history.role(10 + broker, broker, role, 0, offset=0, hw=0, isr=[1, 2, 3], replicas=[1, 2, 3])
    for base in range(HAD):
        history.produce(101 + 10 * base, 1, base, total_us=2000, remote_us=2000)
        for replica in (2, 3):
            history.fetch(100 + 10 * base + replica / 10, 1, replica, base, bytes=100, hw=base, **in_session(base))
    for replica in (2, 3):
        history.fetch(300, 1, replica, HAD, hw=HAD, total_us=150_000, remote_us=150_000, **in_session(HAD))
    if load:
        for name, fields in (("completed", {"offset": stated}), ("loaded", {"hw": stated})):
            history.add("log_load", TOLD_MS - 5, broker_id=1, name=name, source_file="server-1.log", **fields)
    history.role(TOLD_MS, 1, "leader", 1, offset=stated, hw=stated, isr=[1, 2], replicas=[1, 2, 3])
    return history


def in_session(epoch: int) -> dict[str, int]:
    return {"session_id": 7, "session_epoch": epoch + 1, "response_session_id": 7, "last_fetched_epoch": -1}


def goes_on(history: History) -> History:
    """Three more records under epoch 1; broker 2 was not told of it and still names epoch 0."""
    for base in range(HAD, HAD + 3):
        ms = TOLD_MS + 100 + 10 * base
        history.produce(ms + 1, 1, base, total_us=2000, remote_us=2000)
        history.fetch(ms, 1, 2, base, bytes=100, hw=base, current_leader_epoch=0, **in_session(base))
    history.fetch(TOLD_MS + 300, 1, 2, HAD + 3, hw=HAD + 3, current_leader_epoch=0, **in_session(HAD + 3))
    return history


def test_fetch_of_a_session_is_served_under_the_leader_s_epoch_up_to_2_4() -> None:
    events = goes_on(told_anew()).events(**ZOOKEEPER)
    assert {row["leader_epoch"] for row in of_kind(events, "fetch_update") if row["fetch_offset"] > HAD} == {1}
    assert [row["leader_epoch"] for row in of_kind(events, "append")] == [0] * HAD + [1] * 3


def test_role_told_anew_to_the_same_leader_loses_and_cuts_nothing() -> None:
    tables = tables_of(goes_on(told_anew()).events(**ZOOKEEPER))
    assert not tables["data_loss_incidents"].num_rows
    assert not tables["log_truncations"].num_rows
    hws = [(row["leader_epoch"], row["hw"]) for row in tables["hw_timeline"].to_pylist() if row["role"] == "leader"]
    assert hws[-3:] == [(1, HAD + 1), (1, HAD + 2), (1, HAD + 3)]
    assert {row["hw"] for row in tables["hw_timeline"].to_pylist() if row["broker_id"] == 2} >= {HAD, HAD + 1, HAD + 2}


def test_follower_that_was_told_late_has_its_old_epoch_until_it_names_the_new_one() -> None:
    history = goes_on(told_anew())
    history.role(TOLD_MS + 400, 2, "follower", 1, offset=HAD + 3, hw=HAD + 3)
    history.produce(TOLD_MS + 501, 1, HAD + 3, total_us=2000, remote_us=2000)
    asks = {"current_leader_epoch": 1, "session_id": 7, "response_session_id": 7, "last_fetched_epoch": -1}
    history.fetch(TOLD_MS + 502, 1, 2, HAD + 3, bytes=100, hw=HAD + 3, session_epoch=20, total_us=2000, **asks)
    history.fetch(TOLD_MS + 510, 1, 2, HAD + 4, hw=HAD + 4, session_epoch=21, total_us=2000, **asks)
    rows = tables_of(history.events(**ZOOKEEPER))["hw_timeline"].to_pylist()
    epochs = {row["hw"]: row["leader_epoch"] for row in rows if row["broker_id"] == 2 and row["step"] != "role"}
    assert epochs[HAD + 2] == 0
    assert epochs[HAD + 4] == 1


@pytest.mark.parametrize(("load", "lost"), [(False, 0), (True, 2)])
def test_loss_on_one_broker_needs_a_start_of_that_broker(*, load: bool, lost: int) -> None:
    tables = tables_of(told_anew(stated=HAD - 2, load=load).events(**ZOOKEEPER))
    assert sum(row["records"] for row in tables["data_loss_incidents"].to_pylist()) == lost
    cuts = [(row["broker_id"], row["leo_before"], row["leo_after"]) for row in tables["log_truncations"].to_pylist()]
    assert cuts == ([(1, HAD, HAD - 2)] if load else [])
