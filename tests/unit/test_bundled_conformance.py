"""Every check of `conformance`, by recording, holds in 99.5 % of its comparisons or more: the four bundled recordings.

Few comparisons must all hold, for one of them is more than half a percent.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from without_spark import events_and_tables_of

if TYPE_CHECKING:
    from pathlib import Path

SHARE = 0.995
RECORDINGS = ("last-replica", "min-isr-refused-zookeeper", "reassignment", "unclean-election")
AT_LEAST = {  # so many comparisons of each check in all four; what is not here has none in them
    "alter_partition": 40,
    "answer_size": 15_000,
    "commit_before_ack": 10_000,
    "delayed_produce": 10_000,
    "delete_records": 1,
    "election_choice": 60,
    "election_isr": 60,
    "fetch_backoff": 8,
    "fetch_completion": 20_000,
    "fetch_offset_is_leo": 9_000,
    "fetch_turn": 1_700,
    "fetcher_steps": 150,
    "isr_expiry": 2,
    "isr_propagation": 15,
    "last_stable_offset": 20_000,
    "leader_hw_by_lines": 10_000,
    "leader_hw_line": 10_000,
    "leader_stays": 50,
    "low_watermark": 1,
    "overdue_shrink": 2,
    "partition_state": 15,
    "predicted_expansion": 25,
    "predicted_shrink": 4,
    "produce_guard": 10_000,
    "produce_refusal": 200,
    "produce_timeout": 3_000,
    "replica_state": 60,
    "response_hw": 20_000,
    "role_hw": 100,
    "role_leo": 100,
    "state_moves": 200,
}


def checks_of(root: Path) -> tuple[Counter[str], Counter[str]]:
    """How many comparisons of each check there are in a recording, and how many of them agree."""
    compared, matched = Counter[str](), Counter[str]()
    for _, tables in events_and_tables_of(root):
        for row in tables["conformance"].to_pylist():
            compared[row["check"]] += row["compared"]
            matched[row["check"]] += row["matched"]
    return compared, matched


def test_all_bundled_recordings_are_asked(recordings: Path) -> None:
    assert sorted(manifest.parent.name for manifest in recordings.glob("*/MANIFEST.json")) == list(RECORDINGS)


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_check_of_a_recording_holds(name: str, recordings: Path) -> None:
    compared, matched = checks_of(recordings / name)
    short = {check: (matched[check], count) for check, count in compared.items() if matched[check] < SHARE * count}
    assert short == {}


def test_every_check_compares_something(recordings: Path) -> None:
    compared = Counter[str]()
    for name in RECORDINGS:
        compared += checks_of(recordings / name)[0]
    assert set(compared) == set(AT_LEAST)
    assert {check: count for check, count in compared.items() if count < AT_LEAST[check]} == {}
