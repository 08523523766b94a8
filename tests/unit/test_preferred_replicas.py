"""Consumers that are sent to another replica (KIP-392): which replicas a leader may choose."""

from __future__ import annotations

import pytest
from facts_builder import History
from small_partition import A, B, at, led
from without_spark import tables_of

from replay.protocol.isr import may_serve_consumer
from replay.protocol.profile import profile_of


@pytest.mark.parametrize(("version", "outside"), [((3, 3, 1), True), ((3, 3, 2), False)])
def test_only_members_of_the_isr_serve_consumers_from_3_3_2_on(version: tuple[int, int, int], *, outside: bool) -> None:
    profile = profile_of(version)
    s = at(led(0b011, profile=profile), leo=9, remote={B: 5})
    assert may_serve_consumer(s, profile, A, B, 5)
    s.isr[A] = 0b001
    assert may_serve_consumer(s, profile, A, B, 5) is outside


def test_a_replica_serves_only_what_it_has_as_far_as_its_leader_knows() -> None:
    profile = profile_of((4, 1, 0))
    s = at(led(0b011, profile=profile), leo=9, remote={B: 5})
    s.remote_start[A, B] = 3
    assert [offset for offset in range(9) if may_serve_consumer(s, profile, A, B, offset)] == [3, 4, 5]


def sent_to(replica: int) -> dict[str, int | str | None]:
    """Broker 1 leads with 2 in the ISR and 3 outside it, and sends a consumer to `replica`."""
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2, 3])
    history.role(10, 1, "leader", 0, offset=9, hw=0)
    for follower, offset in ((2, 9), (3, 4)):
        history.role(11, follower, "follower", 0, offset=offset, hw=0)
        history.fetch(100 + follower, 1, follower, offset, hw=0)
    history.fetch(200, 1, -1, 3, preferred_read_replica=replica, hw=9, current_leader_epoch=0)
    rows = tables_of(history.events())["conformance"].to_pylist()
    (check,) = (row for row in rows if row["check"] == "preferred_replica")
    return {name: check[name] for name in ("compared", "matched", "note")}


def test_the_replica_that_a_consumer_was_sent_to_is_held_against_what_its_leader_knew() -> None:
    assert sent_to(2) == {"compared": 1, "matched": 1, "note": None}
    assert sent_to(3) == {"compared": 1, "matched": 0, "note": "broker 1: computed nothing, stated broker 3"}
