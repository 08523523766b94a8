"""What ends and what begins as a broker becomes a follower, and what a look at waiting produces completes."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, of_kind
from small_partition import EPOCH, LATEST, A, B, at, event, led
from without_spark import tables_of

from replay.engine import codes as c
from replay.engine.purgatory import N_COMMIT, N_OPEN, answer_batch, commit_batches, new_purgatory, open_batch, with_room
from replay.protocol.state import UNSET


def test_what_becoming_a_follower_ends_and_begins_is_of_one_event() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    history.fetch(500, 1, 2, 0, hw=0)
    history.produce(5_000, 1, 0, total_us=4_000_000, remote_us=3_999_000, local_us=1_000, error_code=6)
    history.decide(2_000, 2, [1, 2], leader_epoch=1, partition_epoch=1)
    history.role(2_010, 1, "follower", 1, offset=1, hw=0)
    events = history.events()
    (role,) = (one for one in of_kind(events, "role_change") if one["broker_id"] == 1 and one["role"] == "follower")
    tables = tables_of(events)
    begun = [row for row in tables["follower_states"].to_pylist() if row["broker_id"] == 1]
    assert [(row["seq"], row["cause"]) for row in begun] == [(role["seq"], "became_follower")]
    told = [row for row in tables["hw_timeline"].to_pylist() if row["broker_id"] == 1 and row["seq"] == role["seq"]]
    assert {row["role"] for row in told} == {"follower"}
    assert [row["commit_ts"] for row in tables["commit_latency"].to_pylist()] == [None]


@pytest.mark.parametrize(
    ("isr", "version", "state"),
    [([1], "4.1.0", (None, "shutting_down")), ([1, 2], "4.1.0", None), ([1], "3.2.3", None)],
    ids=["outside the ISR", "in the ISR", "up to 3.2"],
)
def test_a_broker_that_shuts_down_outside_the_isr_starts_no_fetcher(
    isr: list[int], version: str, state: tuple[Any, str] | None
) -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    history.fence(100, 2, fenced=None, in_controlled_shutdown=True)
    history.decide(200, 1, isr, leader_epoch=1, partition_epoch=1)
    history.role(210, 2, "follower", 1, offset=0, hw=0)
    rows = tables_of(history.events(kafka_version=version))["follower_states"].to_pylist()
    last = [(row["state"], row["cause"]) for row in rows if row["broker_id"] == 2][-1]
    assert last == (state or ("truncating" if version < "2.8" else "fetching", "became_follower"))


def test_a_broker_of_zookeeper_says_that_it_starts_no_fetcher_as_it_shuts_down() -> None:
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    line = {"broker_id": 2, "source_file": "server-2.log", "leader_id": 1, "correlation_id": 7}
    history.add("fetcher", 12, name="not_added", **line)
    rows = tables_of(history.events(kafka_version="3.9.0"))["follower_states"].to_pylist()
    assert [(row["state"], row["cause"]) for row in rows][-1] == (None, "shutting_down")


def test_looking_again_at_what_waits_completes_nothing_while_the_hw_stays() -> None:
    s = at(led(), leo=9, remote={B: 6})
    s.hw[A] = 6
    g = with_room(new_purgatory(len(s.leo)), len(s.leo), 4)
    for base, end in ((0, 6), (6, 9)):
        batch = {"base_offset": base, "next_offset": end, "leader_epoch": EPOCH}
        open_batch(g, event(c.APPEND, broker=A, **batch))
        answer_batch(g, event(c.ACK, broker=A, **batch))
    fetch = event(c.FETCH_UPDATE, broker=A, replica=B, fetch_offset=6)
    commit_batches(g, s, LATEST, fetch, A)
    completed = [int(g.filled[N_OPEN]), int(g.filled[N_COMMIT])]
    assert completed == [1, 1]
    for _ in range(2):  # as up to 0.11 after every fetch
        commit_batches(g, s, LATEST, fetch, A)
    assert [int(g.filled[N_OPEN]), int(g.filled[N_COMMIT])] == completed
    assert g.open[0]["commit_seq"] == UNSET
    s.hw[A] = 9
    commit_batches(g, s, LATEST, fetch, A)
    assert g.filled[N_OPEN] == 0
