"""Which log a broker read, where up to 2.5 the directories of deleted topics are read under the same name."""

from __future__ import annotations

import pytest
from facts_builder import History
from histories_of_losses import COMMITTED, loss, replicated, tail, taken_over
from without_spark import tables_of


@pytest.mark.parametrize("ends", [(4, 0), (0, 4), (4,)])
def test_log_that_waits_for_its_deletion_is_not_the_partition_s(ends: tuple[int, ...]) -> None:
    history = History()
    for broker, role in ((1, "leader"), (2, "follower")):
        history.role(10 + broker, broker, role, 0, offset=0, hw=0, isr=[1, 2], replicas=[1, 2])
    for base in range(4):
        history.produce(101 + 10 * base, 1, base, total_us=2000, remote_us=2000)
        history.fetch(100 + 10 * base, 1, 2, base, bytes=100, hw=base)
    history.fetch(300, 1, 2, 4, hw=4, total_us=150_000, remote_us=150_000)
    for end in ends:
        history.add("log_load", 1000, name="completed", offset=end, broker_id=2, source_file="server-2.log")
    history.add("log_load", 1010, name="loaded", hw=4, broker_id=2, source_file="server-2.log")
    history.role(1020, 2, "follower", 0)
    history.fetch(1100, 1, 2, 4, hw=4, total_us=150_000, remote_us=150_000, connection="again")
    assert not tables_of(history.events(kafka_version="2.4.1"))["log_truncations"].num_rows


@pytest.mark.parametrize(("end", "mechanism"), [(COMMITTED + 3, "acks_one_leader_failure"), (0, "storage_failure")])
def test_a_log_that_was_made_is_not_the_one_whose_role_line_states_records(end: int, mechanism: str) -> None:
    """It was another directory's, to which the log was to move: its own went on."""
    history = tail(replicated())
    line = {"broker_id": 1, "source_file": "server-1.log"}
    history.add("log_load", 500, name="created", **line)
    history.add("log_load", 501, name="loaded", hw=0, **line)
    history.fence(1000, 1)
    taken_over(history)
    history.role(1490, 1, "follower", 1, offset=end, hw=0)
    assert loss(history)["mechanism"] == mechanism
