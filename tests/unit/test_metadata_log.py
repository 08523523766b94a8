"""The metadata log as production has it: it begins late, comes in several dumps, and as snapshots."""

from __future__ import annotations

from test_incidents import acks_one_failure, loss, slots


def test_a_log_that_begins_after_the_topic_leaves_the_leaders_own_lines() -> None:
    history = acks_one_failure()
    history.rows = [row for row in history.rows if row.get("record_type") != "PARTITION_RECORD"]
    for row in history.rows:
        if row["kind"] == "role_change" and row["name"] == "leader":
            row.update(isr=[1, 2], replicas=[1, 2], partition_epoch=4 + row["leader_epoch"])
    row = loss(history)
    assert slots(row) == [(0, 2, 4)]
    assert (row["acked_one"], row["acked_all"]) == (3, 0)
