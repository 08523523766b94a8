"""Histories of a cluster whose truth is known, told in lines: order and replay must find just that truth.

`--hypothesis-profile=histories` runs thousands of them; by default the same few hundred in every run.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
from cluster_model import Cluster
from cluster_state import IDS, LAG_MS, Truth, moved
from facts_builder import History, gaps_in
from hypothesis import assume, given
from hypothesis import strategies as st
from without_spark import tables_of

from replay.engine import codes as c
from replay.engine.apply import apply
from replay.engine.encode import brokers_of, encode
from replay.engine.events import EventBatch
from replay.engine.moves import new_moves
from replay.evidence.controller_view import MIN_ISR_SETTING
from replay.evidence.partition_facts import LAG_SETTING
from replay.evidence.rows import Row
from replay.evidence.tenures import micros
from replay.protocol.high_watermark import bits
from replay.protocol.profile import profile_named
from replay.protocol.state import BOUNDED, ROLE_LEADER, State, copied, new_state

OPERATIONS = (
    *("produce_all",) * 5, *("produce_one",) * 3, *("fetch",) * 14, *("answer_isr",) * 3, *("kill",) * 2,
    *("restart",) * 2, "cut_off", *("reconnect",) * 2, *("time_out",) * 2, "wait", *("shrink",) * 2, *("unclean",) * 4,
    "prefer",
)  # fmt: skip
SERVER_LINES = ("role_change", "log_load", "isr_update")
REQUESTS = ("produce", "fetch")
DROPPED = (SERVER_LINES, ("fetch",), ("produce",), REQUESTS, (*SERVER_LINES, *REQUESTS))


def clusters_after(operations: tuple[str, ...], longest: int) -> st.SearchStrategy[Cluster]:
    """Clusters that random histories of these operations have befallen."""
    histories = st.lists(
        st.tuples(st.sampled_from(operations), st.sampled_from(IDS), st.integers(1, 3), st.integers(5, 90)),
        min_size=25,
        max_size=longest,
    )
    return st.builds(
        lambda history, min_isr, single: cluster_after(history, min_isr, single=single),
        histories,
        st.integers(1, 2),
        st.booleans(),
    )


clusters = clusters_after(OPERATIONS, 80)


def cluster_after(history: list[tuple[str, int, int, int]], min_isr: int, *, single: bool) -> Cluster:
    cluster = Cluster(min_isr=min_isr, single=single)
    cluster.run(history)
    return cluster


def shuffled(rows: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """The same lines from files in another order; names that say nothing of when they were written."""
    rng = random.Random(seed)  # noqa: S311 - a test's choice, not a secret
    rows = [{**row, "fact_id": f"{rng.getrandbits(64):016x}"} for row in rows]
    rng.shuffle(rows)
    return rows


def events_of(rows: list[dict[str, Any]], min_isr: int) -> pa.Table:
    events = History().events(rows, settings={LAG_SETTING: LAG_MS, MIN_ISR_SETTING: min_isr})
    return events.append_column("recording_id", pa.array(["small"] * len(events)))


def replayed(rows: list[dict[str, Any]], min_isr: int) -> tuple[pa.Table, dict[str, pa.Table]]:
    events = events_of(rows, min_isr)
    return events, tables_of(events)


def found(tables: dict[str, pa.Table]) -> Truth:
    """The replay's tables in the words of the truth."""
    out = Truth()
    for row in tables["hw_timeline"].to_pylist():
        if row["role"] == "leader":
            moved(out.leader_hw[row["broker_id"], row["leader_epoch"]], row["hw"])
        else:
            moved(out.follower_hw[row["broker_id"]], row["hw"])
    out.leo |= {b: [0] for b in IDS}
    for row in tables["leo_timeline"].to_pylist():
        if row["observer"] == "local":
            moved(out.leo[row["broker_id"]], row["leo"])
    out.isr = [tuple(r["isr"]) for r in tables["isr_timeline"].to_pylist() if r["state"] == "committed"]
    rows = tables["leadership_timeline"].to_pylist()
    out.epochs = [(r["leader_epoch"], -1 if r["leader_id"] is None else r["leader_id"]) for r in rows]
    out.cuts = [(r["broker_id"], r["leo_before"], r["leo_after"]) for r in tables["log_truncations"].to_pylist()]
    return out


def lost(tables: dict[str, pa.Table], column: str) -> int:
    return sum(row[column] or 0 for row in tables["data_loss_incidents"].to_pylist())


@given(clusters, st.integers(0, 2**32))
def test_replay_of_what_brokers_logged_is_what_happened(cluster: Cluster, seed: int) -> None:
    _, tables = replayed(shuffled(cluster.rows, seed), cluster.min_isr)
    truth, told = cluster.truth, found(tables)
    assert told.epochs == truth.epochs
    assert told.isr == truth.isr
    assert {key: told.leader_hw[key] for key in truth.leader_hw} == truth.leader_hw
    assert {b: told.follower_hw[b] for b in truth.follower_hw} == truth.follower_hw
    assert told.leo == truth.leo
    assert sorted(told.cuts) == sorted(truth.cuts)
    for column, acks in (("acked_all", -1), ("acked_one", 1)):
        sure, possible = lost(tables, column), lost(tables, f"{column}_possible")
        assert sure <= truth.lost_with(acks) <= sure + possible
        if cluster.single:  # else what nobody fetched of a tenure's last batch is sure of its first record only
            assert sure == truth.lost_with(acks)


@given(clusters, st.integers(0, 2**32))
def test_order_of_the_lines_changes_nothing(cluster: Cluster, seed: int) -> None:
    rows = list(cluster.rows)
    random.Random(seed).shuffle(rows)  # noqa: S311 - a test's choice, not a secret
    assert events_of(rows, cluster.min_isr).equals(events_of(cluster.rows, cluster.min_isr))


@given(clusters, st.sampled_from(DROPPED), st.floats(0.02, 0.5), st.integers(0, 2**32))
def test_missing_lines_may_hide_losses_and_never_make_one(
    cluster: Cluster, kinds: tuple[str, ...], share: float, seed: int
) -> None:
    """Lines of server logs, requests, or both. A log that lost a request shows it, unless that was its only one."""
    rng = random.Random(seed)  # noqa: S311 - a test's choice, not a secret
    rows, lost_lines = [], []
    for row in cluster.rows:
        (rows if row["kind"] not in kinds or rng.random() >= share else lost_lines).append(row)
    missing = gaps_in(map(Row, rows))
    assume(all(missing.is_lossy(r["broker_id"], micros(r["ts"])) for r in lost_lines if r["kind"] in REQUESTS))
    _, tables = replayed(shuffled(rows, seed), cluster.min_isr)
    assert lost(tables, "acked_all") <= cluster.truth.lost_with(-1)
    assert lost(tables, "acked_one") <= cluster.truth.lost_with(1)


@given(clusters)
def test_invariants_hold_after_every_event(cluster: Cluster) -> None:
    events = events_of(cluster.rows, cluster.min_isr)
    brokers = brokers_of(EventBatch(events).events)
    profile, moves = profile_named("4.1.0", None), new_moves()
    state = new_state(len(brokers), min_isr=cluster.min_isr, lag_us=LAG_MS * 1000)
    for event in encode(EventBatch(events).events, brokers):
        before = copied(state)
        assert apply(state, profile, event, moves) != c.BROKEN
        for b in range(len(brokers)):
            hold_of_a_replica(state, before, b)
            if state.role[b] == ROLE_LEADER and state.leo_evidence[b] < BOUNDED:
                hold_of_a_leader(state, before, b, int(event.kind))


def hold_of_a_replica(s: State, before: State, b: int) -> None:
    """What is true of every replica's log."""
    n = int(s.cache_len[b])
    epochs, starts = s.cache_epoch[b, :n], s.cache_start[b, :n]
    assert 0 <= s.log_start[b] <= s.hw[b] <= s.leo[b]
    assert np.all(np.diff(epochs) > 0)
    assert np.all(np.diff(starts) > 0)
    assert n == 0 or starts[-1] <= s.leo[b]
    assert s.epoch[b] >= before.epoch[b]


def hold_of_a_leader(s: State, before: State, b: int, kind: int) -> None:
    """What is true of a leader, by its own knowledge."""
    bit = 1 << b
    assert s.isr[b] & bit
    assert s.maximal_isr[b] & s.isr[b] == s.isr[b]
    assert s.pending[b] or s.maximal_isr[b] == s.isr[b]
    assert s.epoch_start[b] <= s.leo[b]
    same = before.role[b] == ROLE_LEADER and before.epoch[b] == s.epoch[b]
    if same and kind != c.LOG_LOAD:
        assert s.hw[b] >= before.hw[b]
        assert s.leo[b] >= before.leo[b]
    if same and s.hw[b] > before.hw[b] and kind in (c.APPEND, c.FETCH_UPDATE, c.ISR_REQUEST):
        waited = [r for r in range(len(s.leo)) if s.maximal_isr[b] & (1 << r) and r != b]
        assert all(s.hw[b] <= s.remote_leo[b, r] for r in waited)
        assert bits(int(s.isr[b])) >= s.partition[0].min_isr


@given(clusters)
def test_logs_match_below_the_hw_of_the_leader_of_clean_elections(cluster: Cluster) -> None:
    """Every replica that has reached the newest leader's HW in its tenure has the leader's epochs below it."""
    unclean = any(row.get("leader_recovery_state") == 1 for row in cluster.rows)
    assume(not unclean and not cluster.truth.lost)
    events = events_of(cluster.rows, cluster.min_isr)
    brokers = brokers_of(EventBatch(events).events)
    state = new_state(len(brokers), min_isr=cluster.min_isr, lag_us=LAG_MS * 1000)
    moves = new_moves()
    for event in encode(EventBatch(events).events, brokers):
        apply(state, profile_named("4.1.0", None), event, moves)
    leader = max((b for b in range(len(brokers)) if state.role[b] == ROLE_LEADER), key=lambda b: state.epoch[b])
    hw = int(state.hw[leader])
    for b in range(len(brokers)):
        if state.epoch[b] == state.epoch[leader]:
            assert epochs_below(state, b, min(hw, int(state.leo[b]))) == epochs_below(
                state, leader, min(hw, int(state.leo[b]))
            )


def epochs_below(s: State, b: int, offset: int) -> list[tuple[int, int]]:
    """The epochs of b's log and where they begin, as far as they have records below `offset`."""
    n = int(s.cache_len[b])
    spans = zip(s.cache_epoch[b, :n].tolist(), s.cache_start[b, :n].tolist(), strict=True)
    return [(epoch, start) for epoch, start in spans if start < offset]


def test_record_that_a_later_leader_brings_back_is_not_lost() -> None:
    cluster = cluster_after(
        [
            ("produce_one", 1, 3, 20),
            ("fetch", 3, 1, 20),  # 3 has the batch, 2 does not
            ("prefer", 2, 1, 20),
            ("prefer", 3, 1, 20),  # before it has fetched from 2, so it has cut nothing
        ],
        min_isr=1,
        single=False,
    )
    assert cluster.truth.returned
    assert not cluster.truth.lost
    _, tables = replayed(cluster.rows, 1)
    assert lost(tables, "acked_one") == 0


def test_histories_are_rich() -> None:
    """What the histories are for happens in them."""
    rng = random.Random(7)  # noqa: S311 - a test's choice, not a secret
    seen = dict.fromkeys(("elections", "cuts", "lost", "shrunk", "unclean"), 0)
    for _ in range(60):
        history = [(rng.choice(OPERATIONS), rng.choice(IDS), rng.randint(1, 3), rng.randint(5, 90)) for _ in range(80)]
        cluster = cluster_after(history, rng.choice((1, 2)), single=rng.random() < 0.5)
        seen["elections"] += len(cluster.truth.epochs) > 2
        seen["cuts"] += bool(cluster.truth.cuts)
        seen["lost"] += bool(cluster.truth.lost)
        seen["shrunk"] += any(len(isr) < 3 for isr in cluster.truth.isr)
        seen["unclean"] += any(row.get("leader_recovery_state") == 1 for row in cluster.rows)
    assert min(seen.values()) >= 5, seen
