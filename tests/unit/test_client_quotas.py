"""A client whose records alone are more than its quota is answered a throttle time."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, of_kind
from without_spark import tables_of

BYTES, RATE = 4_000, 1_000  # of each of six produces within two seconds, and per second: the fourth is above 12 s of it

NOWHERE: dict[str, Any] = {"topic": None, "partition": None}


def history(*lines: tuple[float, str], throttled: bool = True, gap: float = 300, **fields: Any) -> History:
    """A leader that writes these lines about quotas, and a client that produces six times from second 5 on."""
    told = History()
    told.decide(0, 1, [1], replicas=[1])
    told.role(10, 1, "leader", 0, offset=0, hw=0)
    for ms, value in lines or ((1_000, f"PRODUCE quota for client-id shop to {RATE}.0"),):
        line = {"broker_id": 1, "source_file": "server-1.log", **NOWHERE}
        told.add("quota_change", ms, name="client", value=value, **line)
    for k in range(6):
        given = {"acks": 1, "bytes": BYTES, "throttle_us": 5_000_000 if throttled and k >= 3 else 0, **fields}
        told.produce(5_000 + gap * k, 1, k, **given)
    return told


def compared(told: History, version: str = "4.1.0", batch: int = 1000) -> tuple[int, int] | None:
    rows = tables_of(told.events(kafka_version=version), batch)["conformance"].to_pylist()
    return next(((row["compared"], row["matched"]) for row in rows if row["check"] == "client_quota"), None)


@pytest.mark.parametrize(("throttled", "matched"), [(True, 3), (False, 0)])
def test_a_client_that_produced_more_than_its_quota_is_answered_a_throttle_time(throttled: bool, matched: int) -> None:  # noqa: FBT001
    assert compared(history(throttled=throttled)) == (3, matched)


def test_up_to_3_7_a_sample_is_kept_a_second_less_and_so_less_is_enough() -> None:
    assert compared(history(throttled=False, bytes=3_800), "3.8.0") == (3, 0)
    assert compared(history(throttled=False, bytes=3_800), "3.7.0") == (4, 0)


def test_fewer_bytes_or_fewer_within_the_window_show_nothing() -> None:
    assert compared(history(throttled=False, bytes=1_000)) is None
    assert compared(history(throttled=False, gap=4_000)) is None


@pytest.mark.parametrize(
    ("lines", "limits"),
    [
        ([(1_000, "PRODUCE quota for client-id other to 1000.0")], [None]),
        ([(1_000, "PRODUCE quota for default client-id to 1000.0")], [RATE]),
        ([(1_000, "Produce quota for client-id shop to 1000.0")], [RATE]),  # as 2.4 writes it
        ([(1_000, "FETCH quota for client-id shop to 1000.0")], [None]),
        ([(1_000, "PRODUCE quota for default client-id to 9.0"), (1_100, "PRODUCE quota for client-id shop to 1000.0")],
         [RATE]),
        ([(1_000, "PRODUCE quota for client-id shop to 1000.0"), (2_000, "PRODUCE quota for client-id shop")], [None]),
        ([(1_000, "PRODUCE quota for client-id shop to 1000.0"), (2_000, "PRODUCE quota for user ann to 9.0")], [None]),
        ([(1_000, "PRODUCE quota for user ann client-id shop to 1000.0")], [None]),
        ([(5_600, "PRODUCE quota for client-id shop to 1000.0")], [None]),  # it may not have taken it up by then
    ],
    ids=["another's", "of all", "as in 2.4", "fetches", "its own first", "removed", "a user's", "of both", "just now"],
)  # fmt: skip
def test_an_answer_tells_the_limit_of_its_client(lines: list[tuple[float, str]], limits: list[int | None]) -> None:
    answers = of_kind(history(*lines).events(kafka_version="4.1.0"), "ack")
    assert [row["client_quota"] for row in answers] == limits * 6


def test_a_broker_that_starts_again_has_the_limits_that_it_writes_since_then() -> None:
    told = history()
    told.add("broker_lifecycle", 3_000, name="clean_start", broker_id=1, source_file="server-1.log", **NOWHERE)
    assert {row["client_quota"] for row in of_kind(told.events(kafka_version="4.1.0"), "ack")} == {None}
    line = {"name": "client", "value": f"PRODUCE quota for client-id shop to {RATE}.0", "source_file": "server-1.log"}
    told.add("quota_change", 3_100, broker_id=1, **line, **NOWHERE)
    assert {row["client_quota"] for row in of_kind(told.events(kafka_version="4.1.0"), "ack")} == {RATE}


def test_a_broker_that_starts_again_has_counted_nothing() -> None:
    told = history(throttled=False)
    told.decide(5_690, 1, [1], leader_epoch=1, partition_epoch=1)
    told.add("log_load", 5_700, name="loaded", broker_id=1, source_file="server-1.log", offset=3, hw=3)
    told.role(5_750, 1, "leader", 1, offset=3, hw=3)
    assert len(of_kind(told.events(kafka_version="4.1.0"), "log_load")) == 1
    for batch in (1, 2, 7, 1000):
        assert compared(told, batch=batch) is None
