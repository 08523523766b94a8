"""The invariants of KIP-320's specification on random histories of several Kafka versions (`kip320` says which).

Elections are clean and no file is lost, so nothing but a fault of the version can break them. The versions of the
faults that Kafka has mended since do break them; on the same history the version that mended the fault does not.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from kip320 import STRONG_ISR, WEAK_ISR, Quorum, broken
from random_stories import ACTIONS, NAMES, random_story

from replay.protocol.state import NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from random_stories import RandomStory

LENGTH = 150
BOTH = {WEAK_ISR, STRONG_ISR}


def history(seed: int) -> list[tuple[str, int]]:
    rng = random.Random(seed)  # noqa: S311 - a test's choice, not a secret
    return [(rng.choice(ACTIONS), rng.randrange(len(NAMES))) for _ in range(LENGTH)]


def broken_in(version: str, actions: Sequence[tuple[str, int]]) -> set[str]:
    """Which invariants some event of a history breaks."""
    found: set[str] = set()
    random_story(version, actions, lambda story: found.update(broken(story.state, quorum_of(story))))
    return found


def quorum_of(story: RandomStory) -> Quorum:
    """What the story's controller decided last; before AlterIsr a leader writes its ISR itself, within a fetch."""
    leader, isr = story.leader, story.members
    if leader != NONE and story.is_current(leader) and not story.profile.isr_change_pending:
        isr = int(story.state.isr[leader])
    return Quorum(leader, story.epoch, isr)


ANOTHER_EPOCH = (  # A counts with a record that B has cut: A fetches from B in 3 as if nothing had happened
    ("prefer", 1), ("learn", 1), ("shrink", 1), ("learn", 0), ("prefer", 2), ("fetch", 0), ("learn", 2),
    ("append_all", 1), ("fetch", 0), ("learn", 1), ("fetch", 1), ("append", 2), ("fetch", 1), ("fetch", 1),
    ("prefer", 1), ("learn", 1), ("fetch", 0),
)  # fmt: skip


@pytest.mark.parametrize("version", ["2.1.1", "2.4.1", "2.6.3", "2.8.2", "3.3.2", "4.4.0"])
def test_from_2_1_on_no_history_without_unclean_elections_breaks_an_invariant(version: str) -> None:
    assert {seed: found for seed in range(30) if (found := broken_in(version, history(seed)))} == {}


@pytest.mark.parametrize(
    ("actions", "faulty", "mended", "breaks"),
    [
        (history(3), "0.10.2.2", "0.11.0.3", BOTH),  # followers cut to their own HW (KIP-101)
        (history(195), "0.11.0.3", "2.0.0", BOTH),  # a follower is told where an epoch that it lacks ends (KIP-279)
        (history(195), "1.0.2", "2.0.0", BOTH),
        (history(195), "1.1.1", "2.0.0", BOTH),
        (history(38), "2.0.0", "2.0.1", BOTH),  # a leader's epoch without records is in no cache (KAFKA-7415)
        (ANOTHER_EPOCH, "2.0.1", "2.1.1", {STRONG_ISR}),  # a fetch from another epoch counts (KIP-320)
    ],
    ids=["0.10.2.2", "0.11.0.3", "1.0.2", "1.1.1", "2.0.0", "2.0.1"],
)
def test_an_older_version_breaks_what_a_later_one_keeps_on_the_same_history(
    actions: Sequence[tuple[str, int]], faulty: str, mended: str, breaks: set[str]
) -> None:
    assert broken_in(faulty, actions) == breaks
    assert broken_in(mended, actions) == set()


def test_random_histories_are_rich() -> None:
    """What the invariants are about happens in them."""
    seen = dict.fromkeys(("elections", "committed", "cut", "shrunk", "grown", "zombies"), 0)

    def watch(story: RandomStory) -> None:
        s, now = story.state, set()
        leaders = [b for b in range(len(NAMES)) if story.leads(b)]
        now |= {"committed"} if s.hw.max() > 3 else set()
        now |= {"elections"} if story.epoch > 3 else set()
        now |= {"zombies"} if len(leaders) > 1 else set()
        now |= {"shrunk"} if any(int(s.isr[b]) != 0b111 for b in leaders) else set()
        isr = {(b, int(s.epoch[b])): int(s.isr[b]) for b in leaders}
        now |= {"grown"} if any(mask & ~before.get(role, mask) for role, mask in isr.items()) else set()
        before.update(isr)
        now |= {"cut"} if any(end < then for end, then in zip(s.leo.tolist(), ends, strict=True)) else set()
        ends[:] = s.leo.tolist()
        found.update(now)

    for seed in range(30):
        found: set[str] = set()
        ends = [0] * len(NAMES)
        before: dict[tuple[int, int], int] = {}
        random_story("4.4.0", history(seed), watch)
        for name in found:
            seen[name] += 1
    assert min(seen.values()) >= 5, seen
