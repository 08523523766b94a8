"""What is known to be missing before a time has the same digest exactly if it is the same."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest

from replay.evidence.missing_digests import MissingUntil
from replay.evidence.missing_lines import Cuts, Gap, MissingLines

END_US = 1_000
PLACES = [(broker, name) for broker in (1, 2) for name in ("a", "b")]


def made(random: Random) -> MissingLines:
    """Few stretches and cuts, so that two of these are often alike up to some time."""

    def stretches() -> dict[int, list[Gap]]:
        found = {}
        for broker in (1, 2, 3):
            ends = sorted(random.sample(range(0, END_US, 200), random.choice([0, 2, 4])))
            found[broker] = [Gap(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]
        return found

    cuts = {}
    for place in random.sample(PLACES, 2):
        number = sorted(random.sample(range(4), random.choice([1, 2])))
        cuts[place] = Cuts(array("q", number), array("q", [random.randrange(0, END_US, 200) for _ in number]))
    return MissingLines(stretches(), cuts, stretches(), {}, stretches())


def told(missing: MissingLines, us: int, brokers: set[int], places: set[tuple[int, str]]) -> list[Any]:
    """All that is missing before a time, one after the other."""
    found: list[Any] = [
        sorted((broker, one.since, min(one.until, us)) for broker in brokers for one in of[broker] if one.since < us)
        for of in missing.stretches
    ]
    for place in sorted(missing.cuts.keys() & places):
        cuts = missing.cuts[place]
        found += [(place, number) for number, since in zip(*cuts, strict=True) if since < us]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_digests_differ_as_what_is_missing_does(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - nothing secret
    brokers, places = {1, 3}, {(1, "a"), (2, "b")}
    alike = 0
    some = [made(random) for _ in range(60)]
    for us in (0, 100, 200, 201, 350, 600, 601, END_US):
        digests = [MissingUntil(one, brokers, places).before(us) for one in some]
        naive = [told(one, us, brokers, places) for one in some]
        for one, digest in zip(naive, digests, strict=True):
            assert [digest == other for other in digests] == [one == other for other in naive]
            alike += sum(one == other for other in naive) - 1
    assert alike > 100


def test_what_begins_later_is_told_by_kind_and_broker() -> None:
    missing = MissingLines({1: [Gap(1, 5), Gap(8, 9)]}, {}, {2: [Gap(7, 8)]})
    until = MissingUntil(missing, {1, 2}, ())
    assert until.later(7) == [(0, 1), (1, 2)]
    assert until.later(8) == [(0, 1)]
    assert until.later(9) == []
