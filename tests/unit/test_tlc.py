"""The engine's states, exported for small histories, are behaviours of the Kip320 specification: TLC searches for them.

`tlc` says how a history is told, and what of it is compared. The specification is our own writing of Kip320's steps
(`tests/testdata/tla/ReplicationSteps.tla`, which also names the steps that Kafka has and Kip320 has not). Unclean
elections, lost files, deleted records and acknowledgements have no step in it: random histories have none of the first
three, and stories that have one must stop there.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tlc
from random_stories import NAMES
from test_kip320_versions import ANOTHER_EPOCH
from tlc_stories import told_stories

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tlc import Event

pytestmark = pytest.mark.skipif(bool(tlc.why_not()), reason=tlc.why_not())

ACTIONS = (  # fewer brokers die than in `random_stories`, so that more is replicated in one epoch
    *("append",) * 8, *("fetch",) * 26, *("lose_answer",) * 2, *("learn",) * 14, "shrink", *("decide",) * 4,
    *("hear",) * 4, "kill", *("start",) * 4, *("prefer",) * 2,
)  # fmt: skip
THEIRS = os.environ.get("TIDEMARK_KIP320", "")
LENGTH = 120
CHOSEN = [("4.1.0", 1), ("4.1.0", 2), ("4.1.0", 7), ("4.1.0", 11), ("2.1.1", 0), ("2.1.1", 7), ("2.1.1", 8)]
WITHOUT_MORE = [
    ("4.1.0", 0),
    ("4.1.0", 2),
    ("4.1.0", 3),
    ("4.1.0", 5),
    ("2.1.1", 0),
]  # in which Kip320's own steps are enough


def history(version: str, seed: int) -> list[Event]:
    rng = random.Random(seed)  # noqa: S311 - a test's choice, not a secret
    return tlc.told(version, [(rng.choice(ACTIONS), rng.randrange(len(NAMES))) for _ in range(LENGTH)])


def with_fault(events: Sequence[Event], k: int, b: int, **values: object) -> list[Event]:
    """The same, with other values of a broker from an event on; whose steps it may be is left open."""
    brokers = list(events[k].brokers)
    brokers[b] = replace(brokers[b], **values)
    return [*events[:k], replace(events[k], brokers=tuple(brokers), acting=frozenset(NAMES))]


def raised_too_early(events: Sequence[Event]) -> list[Event]:
    """A leader's HW is one beyond what a member of its ISR has."""
    for k, event in enumerate(events):
        for b, leader in enumerate(event.brokers):
            members = [seen for name, seen in zip(NAMES, event.brokers, strict=True) if name in leader.isr]
            least = min((len(seen.log) for seen in members), default=0)
            if leader.role == "leader" and 0 < leader.hw == least < len(leader.log):
                return with_fault(events, k, b, hw=leader.hw + 1)
    raise AssertionError("no history for this fault")


def cut_too_late(events: Sequence[Event]) -> list[Event]:
    """A follower that had to cut its log keeps the first of the records, and goes on fetching behind it."""
    for k in range(1, len(events)):
        for b, seen in enumerate(events[k].brokers):
            before = events[k - 1].brokers[b].log
            if len(seen.log) < len(before):
                after = next(n for n in range(k, len(events)) if events[n].brokers[b].role == "follower")
                log = events[after].brokers[b].log
                return with_fault(events, after, b, log=(*before[: len(seen.log) + 1], *log[len(seen.log) + 1 :]))
    raise AssertionError("no history for this fault")


def test_random_histories_are_behaviours_of_the_specification_and_faulty_ones_are_not(tmp_path: Path) -> None:
    sound = [*(history(*chosen) for chosen in CHOSEN), tlc.told("2.1.1", ANOTHER_EPOCH)]
    faulty = [
        raised_too_early(history("4.1.0", 4)),
        cut_too_late(history("2.1.1", 0)),
        tlc.told("2.0.1", ANOTHER_EPOCH),  # a fetch from another epoch counts
    ]
    lengths = tlc.lengths_seen(tmp_path, [*sound, *faulty], tlc.STEPS)
    assert lengths[: len(sound)] == [len(events) for events in sound]
    early, late, another = lengths[len(sound) :]
    assert early == len(faulty[0]) - 1
    assert late == len(faulty[1]) - 1
    assert another < len(faulty[2])


def test_some_need_no_step_that_the_specification_lacks(tmp_path: Path) -> None:
    sound = [history(*chosen) for chosen in WITHOUT_MORE]
    assert tlc.lengths_seen(tmp_path, sound, []) == [len(events) for events in sound]


STOPPING = {  # stories that are no behaviours, and why
    "an unclean election": {("diverging-fetch", "4.1.0"), ("kip-279-asks-again", "2.3.1"),
                            ("unclean-election", "4.1.0"), ("truncation-and-the-hw", "2.4.1"),
                            ("truncation-and-the-hw", "2.3.1")},
    "files lost their end": {("kip-101-divergence", "0.10.2.2"), ("kip-101-divergence", "0.11.0.2"),
                             ("last-replica-standing", "4.1.0"), ("remote-leo-falls", "4.1.0")},
    "records are deleted": {("delete-records", "4.1.0"), ("out-of-range", "4.1.0")},
    "the same leader gets a new epoch, and nobody leaves": {("leads-again", "4.1.0"), ("reassignment", "4.1.0")},
    "a fault that a later version mended": {("kip-101-loss", "0.10.2.2"), ("kip-279-fast-failover", "1.1.1"),
                                            ("epoch-start", "2.0.0")},
}  # fmt: skip


def test_stories_are_behaviours_but_for_what_the_specification_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories = told_stories(monkeypatch)
    lengths = tlc.lengths_seen(tmp_path, list(stories.values()), tlc.STEPS)
    stopping = {of for (of, events), length in zip(stories.items(), lengths, strict=True) if length < len(events)}
    assert stopping == set.union(*STOPPING.values())
    assert len(stories) > 2 * len(stopping)


@pytest.mark.skipif(
    not THEIRS, reason="TIDEMARK_KIP320 names no folder with the files of hachikuji/kafka-specification"
)
@pytest.mark.parametrize(
    ("module", "begins", "property_of_it"),
    [("SameSteps", "Ours", "StepsAreTheirs"), ("SameStepsBack", "Theirs", "StepsAreOurs")],
)
def test_each_step_is_one_of_kip320_and_the_other_way_round(
    module: str, begins: str, property_of_it: str, tmp_path: Path
) -> None:
    for path in Path(THEIRS).glob("*.tla"):
        shutil.copy(path, tmp_path)
    small = 'Brokers = {"A", "B"}\n Replicas = {"A", "B"}\n LogSize = 2\n MaxRecords = 2\n MaxLeaderEpoch = 2\n'
    asked = f"SPECIFICATION {begins}\nPROPERTY {property_of_it}\n"
    said = tlc.started(tmp_path, module, f"CONSTANTS\n Also = {{}}\n {small}{asked}")
    assert "No error has been found" in said, said[-3000:]
    assert int(re.findall(r"(\d+) distinct states found", said)[-1]) > 5000


def test_the_histories_are_rich() -> None:
    events = [event for chosen in CHOSEN for event in history(*chosen)]
    assert max(event.epoch for event in events) >= 5
    assert max(seen.hw for event in events for seen in event.brokers) >= 6
    assert sum(seen.role != "unseen" for event in events for seen in event.brokers) > len(events)
    assert len({event.isr for event in events}) >= 4
