"""Replication quotas (KIP-73): which limits hold, which rates they are held against, what they hold back."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History, of_kind
from facts_builder import at as ms_after
from without_spark import tables_of

from pipelines.spark.saved_states import bytes_of, state_of
from replay.evidence.replication_quotas import NO_LIMIT, QuotaChange, quota_changes, quota_settings
from replay.evidence.rows import Row
from replay.evidence.versions import Spoken
from replay.protocol.profile import profile_of
from replay.tables.quota_rates import FOLLOWER, LEADER, SECOND_US, Limit, QuotaRates, Round

RATE, REPLICAS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
LIMIT = 1_000
NEW, OLD = profile_of((4, 1, 0)), profile_of((3, 7, 0))


def setting(offset: int, name: str, value: str | None, topic: str | None = None, broker: int | None = None) -> Row:
    fields = {"kind": "config_change", "metadata_offset": offset, "name": name, "value": value, "topic": topic}
    return Row({**fields, "subject_broker_id": broker})


def changes(*rows: Row, partition: int = 0, version: str = "4.1.0", in_metadata: bool = True) -> list[QuotaChange]:
    settings = quota_settings(rows, is_in_metadata=in_metadata)
    return quota_changes(settings, partition, [1, 2], lambda *_: Spoken(version, None))


def told(*rows: Row, **how: Any) -> list[tuple[int, int, str, int]]:
    return [(one.row["metadata_offset"], one.broker, one.side, one.rate) for one in changes(*rows, **how)]


def test_a_limit_holds_where_the_brokers_rate_and_the_topics_list_both_say_so() -> None:
    rate, listed = setting(5, RATE, "1000", broker=1), setting(6, REPLICAS, "0:1,1:2", topic="orders")
    assert told(listed, rate) == [(6, 1, "leader", 1000)]
    assert told(rate, listed, partition=1) == []  # partition 1 is listed on broker 2, which has no rate


@pytest.mark.parametrize(
    "ends", [setting(9, RATE, None, broker=1), setting(9, REPLICAS, None, topic="orders")], ids=["rate", "list"]
)
def test_a_limit_ends_with_the_rate_or_the_list(ends: Row) -> None:
    begins = setting(5, RATE, "1000", broker=1), setting(6, REPLICAS, "*", topic="orders")
    assert told(*begins, ends) == [(6, 1, "leader", 1000), (9, 1, "leader", NO_LIMIT)]


def test_a_brokers_own_rate_goes_before_that_of_the_cluster() -> None:
    rows = setting(5, REPLICAS, "*", topic="orders"), setting(6, RATE, "70"), setting(7, RATE, "50", broker=2)
    assert told(*rows) == [(6, 1, "leader", 70), (6, 2, "leader", 70), (7, 2, "leader", 50)]
    assert told(*rows, version="3.8.1") == [(7, 2, "leader", 50)]  # until then the cluster's rate has no effect


def line(ms: int, broker: int, name: str | None, value: str | None = None, **about: Any) -> Row:
    """What the parser makes of a setting in a broker's line; the line's number is its time."""
    place = {"source_file": f"server-{broker}.log", "source_line": ms, "ts": ms_after(ms), "broker_id": broker}
    fields = {"topic": None, "subject_broker_id": None, "metadata_offset": None, **about}
    return Row({"kind": "quota_change", "name": name, "value": value, **place, **fields})


def heard(*rows: Row, **how: Any) -> list[tuple[Any, ...]]:
    """When by whose line, of whom, which rate, and how that is known."""
    found = changes(*rows, in_metadata=False, **how)
    return [(one.row["source_line"], one.row["broker_id"], one.broker, one.rate, one.evidence) for one in found]


LISTED = [line(10 + broker, broker, REPLICAS, "0:1,0:2", topic="orders") for broker in (1, 2)]
RATED = [line(20 + broker, broker, RATE, "1000", subject_broker_id=1) for broker in (1, 2)]


def test_without_a_metadata_log_the_lines_of_the_broker_that_is_limited_tell_its_limit() -> None:
    assert heard(*LISTED, *RATED) == [(21, 1, 1, 1000, "observed")]
    other = [line(30 + broker, broker, RATE, "70", subject_broker_id=2) for broker in (1, 2)]
    assert heard(*LISTED, *RATED, *other)[1:] == [(32, 2, 2, 70, "observed")]


@pytest.mark.parametrize("about", [{"topic": "orders"}, {"subject_broker_id": 1}], ids=["list", "rate"])
def test_a_line_that_does_not_name_a_setting_tells_that_it_was_removed(about: dict[str, Any]) -> None:
    """A line states all that its topic or broker has been given: Map(), or settings of another kind."""
    ends = [line(3000 + broker, broker, None, **about) for broker in (1, 2)]
    assert heard(*LISTED, *RATED, *ends)[1:] == [(3001, 1, 1, NO_LIMIT, "observed")]
    follower = line(3001, 1, REPLICAS.replace("leader", "follower"), "*", topic="orders")
    assert heard(*LISTED, *RATED, follower)[1:] == [(3001, 1, 1, NO_LIMIT, "observed")]


def test_where_a_brokers_own_line_is_missing_anothers_tells_about_when_it_was_limited() -> None:
    assert heard(LISTED[0], RATED[1]) == [(22, 2, 1, 1000, "bounded")]
    again = line(5000, 2, RATE, "7", subject_broker_id=1)
    assert heard(*LISTED, *RATED, again)[1:] == [(5000, 2, 1, 7, "bounded")]


def test_the_rate_of_all_brokers_holds_by_lines_too_and_from_3_9_on() -> None:
    every = line(30, 1, RATE, "70")
    assert heard(*LISTED, every, version="3.9.0") == [(30, 1, 1, 70, "observed"), (30, 1, 2, 70, "bounded")]
    assert heard(*LISTED, every, version="3.8.1") == []


def test_lines_tell_nothing_where_the_metadata_log_decides() -> None:
    assert changes(*LISTED, *RATED) == []


def fetched(seconds: float, handed: int = 0, **fields: Any) -> Round:
    at = int(seconds * SECOND_US)
    shape = {"offset": 0, "left_out": False, "plain": True, "waits": True, "hw": 9, "used": True}
    return Round(
        **{"seq": at, "leader": 1, "replica": 2, "asked": at, "answered": at, "bytes": handed, **shape, **fields}
    )


def limited(side: str, broker: int) -> QuotaRates:
    rates = QuotaRates()
    rates.limits[broker, side], rates.counted[broker, side] = Limit(LIMIT, 0), []
    return rates


def checks(rates: QuotaRates, *rounds: Round, profile: Any = NEW) -> list[tuple[int, int, int]]:
    return [check for one in rounds for check in rates.weigh(one, lambda *_: profile)[2]]


def test_a_leader_that_sent_more_than_its_limit_has_to_withhold_records_from_who_is_outside_the_isr() -> None:
    sent = fetched(10, 20 * LIMIT)
    held, served = fetched(11), fetched(11, 5)
    assert checks(limited(LEADER, 1), sent, held) == [(held.seq, 1, 1)]
    assert checks(limited(LEADER, 1), sent, served) == [(served.seq, 1, 0)]  # and is found out if it does not
    assert checks(limited(LEADER, 1), sent, fetched(11, waits=False)) == []


def test_fewer_bytes_of_this_partition_than_the_limit_show_nothing() -> None:
    assert checks(limited(LEADER, 1), fetched(10, 11 * LIMIT), fetched(11)) == []


@pytest.mark.parametrize(("profile", "until"), [(NEW, 20), (OLD, 19)], ids=["3.8", "3.7"])
def test_what_was_sent_counts_for_ten_seconds_and_from_3_8_on_for_eleven(profile: Any, until: int) -> None:
    for seconds, found in ((until + 0.4, 1), (until + 0.6, 0)):
        rates = limited(LEADER, 1)
        assert len(checks(rates, fetched(10, 20 * LIMIT), fetched(seconds), profile=profile)) == found


def test_a_follower_that_fetched_more_than_its_limit_leaves_the_partition_out_while_it_is_behind() -> None:
    got = fetched(10, 20 * LIMIT)
    left_out, asked_all_the_same = fetched(11, left_out=True, plain=False), fetched(11)
    assert checks(limited(FOLLOWER, 2), got, left_out) == [(left_out.seq, 2, 1)]
    behind = limited(FOLLOWER, 2)
    behind.hw[2] = 9
    assert checks(behind, got, asked_all_the_same) == [(asked_all_the_same.seq, 2, 0)]
    in_sync = limited(FOLLOWER, 2)
    in_sync.hw[2] = 0
    assert checks(in_sync, got, asked_all_the_same) == []


def test_what_a_follower_did_not_append_counts_for_its_leader_only() -> None:
    """The answer found it as the next leader."""
    unused, later = fetched(10, 20 * LIMIT, used=False), fetched(11)
    assert checks(limited(LEADER, 1), unused, later) == [(later.seq, 1, 1)]
    follower = limited(FOLLOWER, 2)
    follower.hw[2] = 9
    assert checks(follower, unused, later) == []
    assert follower.finish() == []


def follower_rate(after: str) -> list[int]:
    """What `FollowerReplication` counts of a fetch that `after` follows."""
    history = History()
    config = {"topic": None, "partition": None}
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    limit, listed = RATE.replace("leader", "follower"), REPLICAS.replace("leader", "follower")
    history.add("config_change", 20, **config, subject_broker_id=2, name=limit, value="1000", metadata_offset=500)
    history.add("config_change", 21, **{**config, "topic": "orders"}, name=listed, value="0:2", metadata_offset=501)
    history.produce(1900, 1, 0, acks=1)
    history.fetch(2000, 1, 2, 0, bytes=200, hw=0)
    if after == "fetch":
        history.fetch(2500, 1, 2, 1, hw=1)
    else:
        history.decide(2100, 2, [2], leader_epoch=1)
        history.role(2110, 2, "leader", 1, offset=0, hw=0)
    rows = tables_of(history.events())["partition_meters"].to_pylist()
    return [row["value"] for row in rows if row["metric"] == "FollowerReplication" and row["value"]]


def test_a_follower_counts_an_answer_after_which_it_fetches_on() -> None:
    assert follower_rate("fetch") == [200]
    assert follower_rate("role") == []


def test_nothing_is_compared_until_a_broker_has_surely_heard_of_its_limit() -> None:
    rates = limited(LEADER, 1)
    rates.limits[1, LEADER] = Limit(LIMIT, 10 * SECOND_US)
    assert checks(rates, fetched(10.5, 20 * LIMIT), fetched(10.9), fetched(11.1)) == []


def test_a_replay_that_goes_on_later_knows_what_was_sent() -> None:
    rates = limited(LEADER, 1)
    checks(rates, fetched(10, 20 * LIMIT))
    again = state_of(bytes_of({"quotas": rates}))["quotas"]
    assert checks(again, fetched(11)) == [(11 * SECOND_US, 1, 1)]


def metered(size: int = 1000, until: str | None = None) -> list[tuple[Any, ...]]:
    """What the history `throttled` adds to the leader's rate."""
    history = throttled()
    if until is not None:
        config = {"topic": None, "partition": None, "subject_broker_id": 1, "name": RATE, "metadata_offset": 502}
        history.add("config_change", 4000, **config, value=until or None)
    rows = tables_of(history.events(), size=size)["partition_meters"].to_pylist()
    names = ("broker_id", "value", "quota_limit", "quota_window", "evidence")
    return [tuple(row[name] for name in names) for row in rows if row["metric"] == "LeaderReplication"]


@pytest.mark.parametrize("size", [1, 1000])
def test_a_partition_tells_what_it_sent_in_a_second_and_from_when_to_when_a_limit_holds(size: int) -> None:
    begun = (1, 0, LIMIT, None, "bounded")
    assert metered(size) == [begun, (1, 20 * LIMIT, LIMIT, 12, "bounded")]
    assert metered(size, until="") == [begun, (1, 20 * LIMIT, LIMIT, 12, "bounded"), (1, 0, None, None, "bounded")]
    assert metered(size, until="7")[-1] == (1, 0, 7, None, "bounded")


def test_answers_of_the_same_second_are_one_row_and_a_clock_that_goes_back_begins_no_other() -> None:
    rates = limited(FOLLOWER, 2)
    checks(rates, fetched(10.1, 5), fetched(10.9, 6), fetched(10.2, 7), fetched(11, 8), fetched(10.9, 9))
    assert [(row["value"], row["ts"] // SECOND_US) for row in rates.finish()] == [(18, 10), (17, 11)]


def throttled() -> History:
    """Broker 2, outside the ISR, is sent 20 s worth of the leader's limit at once, and then nothing."""
    history = History()
    config = {"topic": None, "partition": None}
    history.decide(0, 1, [1], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=500, hw=500)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    history.add("config_change", 20, **config, subject_broker_id=1, name=RATE, value=str(LIMIT), metadata_offset=500)
    history.add("config_change", 21, **{**config, "topic": "orders"}, name=REPLICAS, value="0:1", metadata_offset=501)
    history.fetch(2000, 1, 2, 0, bytes=20 * LIMIT, hw=500)
    for at in (2500, 3000):
        history.fetch(at, 1, 2, 400, hw=500, remote_us=300_000, total_us=300_000)
    return history


def throttled_by_lines() -> History:
    """The same of a ZooKeeper cluster, where lines tell that the limit begins, and at 2.9 s that it ends."""
    history = History()
    told = {"leader_id": 1, "leader_epoch": 0, "partition_epoch": 0, "isr": [1], "replicas": [1, 2]}
    for broker in (1, 2):
        history.request("leader_and_isr", 2 + broker, f"controller-{broker}", broker_id=broker, **told)
    history.role(10, 1, "leader", 0, offset=500, hw=500)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    about = {"broker_id": 1, "topic": None, "partition": None, "source_file": "server-1.log"}
    history.add("quota_change", 20, **about, subject_broker_id=1, name=RATE, value=str(LIMIT))
    history.add("quota_change", 21, **{**about, "topic": "orders"}, name=REPLICAS, value="0:1")
    asks = {"current_leader_epoch": 0, "hw": 500}
    history.fetch(2000, 1, 2, 0, bytes=20 * LIMIT, **asks)
    history.fetch(2500, 1, 2, 400, remote_us=300_000, total_us=300_000, **asks)
    history.add("quota_change", 2900, **about, subject_broker_id=1, name=None)
    history.fetch(3000, 1, 2, 400, bytes=100, **asks)
    return history


def test_limits_that_brokers_lines_tell_are_held_against_the_rates_until_a_line_ends_them() -> None:
    events = throttled_by_lines().events(kafka_version="2.8.2")
    limits = [(r["broker_id"], r["leader_quota"], r["evidence"]) for r in of_kind(events, "config_change")][1:]
    assert limits == [(1, LIMIT, "observed"), (1, NO_LIMIT, "observed")]
    tables = tables_of(events)
    rounds = [(r["quota"], r["quota_limit"]) for r in tables["fetch_rounds"].to_pylist()]
    assert rounds == [(None, LIMIT), ("leader", LIMIT), (None, None)]
    (check,) = (row for row in tables["conformance"].to_pylist() if row["check"] == "replication_quota")
    assert (check["compared"], check["matched"]) == (1, 1)


def test_limits_are_events_and_rates_stand_beside_the_rounds_that_they_held_back() -> None:
    events = throttled().events()
    assert [(r["broker_id"], r["leader_quota"]) for r in of_kind(events, "config_change")][1:] == [(1, LIMIT)]
    tables = tables_of(events)
    rounds = [(r["quota"], r["quota_rate"], r["quota_limit"]) for r in tables["fetch_rounds"].to_pylist()]
    assert rounds == [(None, 0, LIMIT), *[("leader", 20 * LIMIT // 12, LIMIT)] * 2]
    (check,) = (row for row in tables["conformance"].to_pylist() if row["check"] == "replication_quota")
    assert (check["compared"], check["matched"]) == (2, 2)
