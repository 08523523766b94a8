"""Damaged logs of a cluster whose truth is known: less may be found, and nothing acknowledged is claimed beyond it.

Every damage of `damages` befalls random histories. `--hypothesis-profile=histories` tries two thousand of each kind.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from damages import DAMAGES
from hypothesis import given
from hypothesis import strategies as st
from test_properties import OPERATIONS, cluster_after, clusters_after, replayed, shuffled

if TYPE_CHECKING:
    import pyarrow as pa
    from cluster_model import Cluster

# More of what loses records than in other properties.
FAULTS = (
    *OPERATIONS, *("time_out",) * 3, *("kill",) * 2, *("restart",) * 2, *("unclean",) * 4, *("shrink",) * 2,
    *("produce_all",) * 3, *("produce_one",) * 3,
)  # fmt: skip
CERTAIN = ("observed", "derived")
ACKNOWLEDGED = {"acked_all": -1, "acked_one": 1}
clusters = clusters_after(FAULTS, 90)


def claims_beyond(cluster: Cluster, tables: dict[str, pa.Table]) -> list[dict[str, Any]]:
    """Incidents that claim for certain more acknowledged records than were lost of their slots."""
    out = []
    for row in tables["data_loss_incidents"].to_pylist():
        lost = [
            cluster.truth.acked[slot]
            for (epoch, offset), slot in cluster.truth.places.items()
            if slot in cluster.truth.lost
            and any(
                r["leader_epoch"] == epoch and r["first_offset"] <= offset <= r["last_offset"] for r in row["ranges"]
            )
        ]
        beyond = any((row[column] or 0) > lost.count(acks) for column, acks in ACKNOWLEDGED.items())
        if beyond and row["evidence"] in CERTAIN:
            out.append(row)
    return out


@pytest.mark.parametrize("name", DAMAGES)
@given(cluster=clusters, seed=st.integers(0, 2**32))
def test_damaged_logs_never_make_a_loss_of_acknowledged_records(name: str, cluster: Cluster, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - a test's choice, not a secret
    rows = DAMAGES[name](cluster.rows, rng)
    if any(row["partition"] is not None for row in rows):
        _, tables = replayed(shuffled(rows, seed), cluster.min_isr)
        assert claims_beyond(cluster, tables) == []


def test_a_claim_beyond_the_truth_is_seen() -> None:
    """The check itself can fail: of a history with a loss, one whose client never heard of its records."""
    cluster = cluster_after(
        [("produce_one", 1, 1, 20), ("kill", 1, 1, 20), ("time_out", 1, 1, 20), ("produce_one", 2, 1, 20)],
        1,
        single=True,
    )
    _, tables = replayed(cluster.rows, 1)
    assert tables["data_loss_incidents"].num_rows == 1
    assert claims_beyond(cluster, tables) == []
    cluster.truth.lost.clear()
    assert len(claims_beyond(cluster, tables)) == 1
