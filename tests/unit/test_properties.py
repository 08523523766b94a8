"""Histories of a cluster whose truth is known, told in lines: order and replay must find just that truth."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from cluster_model import IDS, LAG_MS, Cluster, Truth, moved
from facts_builder import History
from hypothesis import strategies as st
from without_spark import tables_of

from replay.partition_facts import LAG_SETTING, MIN_ISR_SETTING

OPERATIONS = (
    *("produce_all",) * 5, *("produce_one",) * 3, *("fetch",) * 14, *("answer_isr",) * 3, *("kill",) * 2,
    *("restart",) * 2, "cut_off", *("reconnect",) * 2, *("time_out",) * 2, "wait", *("shrink",) * 2, "unclean", "prefer",
)  # fmt: skip
operations = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(IDS), st.integers(1, 3), st.integers(5, 90)),
    min_size=10,
    max_size=80,
)


def cluster_after(history: list[tuple[str, int, int, int]], min_isr: int, *, single: bool) -> Cluster:
    cluster = Cluster(min_isr=min_isr, single=single)
    cluster.run(history)
    return cluster


def shuffled(rows: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """The same lines from files in another order; names that say nothing of when they were written."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    rows = [{**row, "fact_id": f"{rng.getrandbits(64):016x}"} for row in rows]
    rng.shuffle(rows)
    return rows


def replayed(rows: list[dict[str, Any]], min_isr: int) -> tuple[pa.Table, dict[str, pa.Table]]:
    stated = {LAG_SETTING: LAG_MS, MIN_ISR_SETTING: min_isr}
    events = History().events(rows, settings=stated)
    return events, tables_of(events.append_column("recording_id", pa.array(["small"] * len(events))))


def found(tables: dict[str, pa.Table]) -> Truth:
    """The replay's tables in the words of the truth."""
    out = Truth()
    for row in tables["hw_timeline"].to_pylist():
        if row["role"] == "leader":
            moved(out.leader_hw[row["broker_id"], row["leader_epoch"]], row["hw"])
        else:
            moved(out.follower_hw[row["broker_id"]], row["hw"])
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
