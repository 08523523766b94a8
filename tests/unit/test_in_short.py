"""What facts before a moment tell, in short: together with later facts it tells what all of them tell."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from facts_builder import History, at
from silent_lines import lines_of

from pipelines.intake.collect import collect
from pipelines.overview.cluster import overview_of, overview_on
from pipelines.recording.recording import discover
from pipelines.stages.carried import TOLD, is_before
from replay.evidence import counted_requests
from replay.evidence.cluster import WHOLE, cluster_told
from replay.evidence.cluster_digest import ToldOfCluster
from replay.evidence.coverage import (
    BY_ITSELF,
    BY_OTHERS,
    LIFE,
    MEMBER,
    REQUEST_LOG,
    SERVER_LOG,
    windows_of,
)
from replay.evidence.heard import HEARD_SCHEMA, heard_by_broker, heard_together
from replay.evidence.heard_in_short import heard_in_short
from replay.evidence.in_short import InShort, in_short
from replay.evidence.missing_lines import MissingLines
from replay.evidence.standstills import PIECE_SCHEMA, by_broker, pieces_in_short, pieces_together, silences_of_all
from replay.evidence.steady import NeedsAllError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.overview.cluster import Overview

    Lacking = Callable[[pa.Table, int, Random], pa.Table]  # of facts, a broker's; returns what is left

RECORDINGS = Path(__file__).parent.parent / "recordings"
SECOND_US = 1_000_000
LATEST_US = 1 << 60


@cache
def facts_of(name: str) -> pa.Table:
    return collect(discover(str(RECORDINGS / name), recording_id=name)).facts


def told_by(seen: Overview) -> dict[str, Any]:
    """What is written of it, and what each topic's partitions are told."""
    cluster = cluster_told(seen.cluster, {}, seen.coverage.missing)
    told = ToldOfCluster(cluster)
    topics = {topic: told.partition(topic, LATEST_US, LATEST_US) for topic in sorted(cluster.created)}
    missing = seen.coverage.missing
    return {
        "coverage": seen.coverage.rows,
        "missing": missing,
        "facts": cluster.facts,
        "topics": topics,
        "everyone": told.everyone,
    }


def without_log(facts: pa.Table, broker: int, _: Random) -> pa.Table:
    """The facts, of which a broker's request log was not collected."""
    requests = pc.and_(pc.equal(facts["broker_id"], broker), pc.is_valid(facts["connection"]))
    return facts.filter(pc.invert(pc.coalesce(requests, pa.scalar(value=False))))


def without_a_number(facts: pa.Table) -> pa.Table:
    """The facts, without an early number of each producer, as of a request for telemetry (KIP-714)."""
    appends = pc.equal(facts["kind"], "produce")
    early = pc.and_(pc.greater(facts["correlation_id"], 3), pc.less(facts["correlation_id"], 14))
    number = pc.min(facts.filter(pc.and_(appends, early))["correlation_id"])
    gone = pc.and_(appends, pc.equal(facts["correlation_id"], number))
    return facts.filter(pc.invert(pc.coalesce(gone, pa.scalar(value=False))))


def with_lost_lines(facts: pa.Table, broker: int, random: Random) -> pa.Table:
    """The facts, of which a broker's request log has lost most lines of two seconds."""
    lines = facts.filter(pc.and_(pc.equal(facts["broker_id"], broker), pc.is_valid(facts["connection"])))
    stamps = lines["ts"].cast(pa.int64()).to_numpy()
    since = random.choice(stamps[: len(stamps) * 3 // 4].tolist())
    at_risk = lines["fact_id"].to_numpy()[(stamps >= since) & (stamps < since + 2 * SECOND_US)]
    lost = [one for one in at_risk if random.random() < 0.7]
    return facts.filter(pc.invert(pc.is_in(facts["fact_id"], pa.array(lost, facts["fact_id"].type))))


NAMES = ["last-replica", "min-isr-refused-zookeeper", "reassignment", "unclean-election"]


CASES = [
    *((name, seed, None) for name in NAMES for seed in range(3)),
    *((name, 3, without_log) for name in ("last-replica", "unclean-election")),
    *((name, seed, with_lost_lines) for name in NAMES for seed in range(10, 13)),
]


@pytest.mark.parametrize(("name", "seed", "lacking"), CASES)
def test_runs_that_look_at_new_facts_alone_find_what_one_look_at_all_finds(
    name: str, seed: int, lacking: Lacking | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_requests, "UNDER_WAY_US", 2 * SECOND_US)
    random, facts = Random(seed), facts_of(name)  # noqa: S311 - nothing secret
    facts = facts if lacking is None else lacking(facts, 2, random)
    facts = without_a_number(facts) if seed == 2 else facts
    stamps = facts["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    ends: dict[str, int] = pc.min_max(stamps).as_py()
    before: InShort | None = None
    whole, lean, given = facts[:0], 0, facts
    for cut in [*sorted(random.sample(range(ends["min"], ends["max"]), 7)), ends["max"] + 1]:
        given = facts.filter(is_before(facts, cut))
        later = given if before is None else given.filter(pc.invert(is_before(given, before.until_us)))
        seen = overview_of(given)
        if before is not None:
            try:
                found = overview_on(name, before, pa.concat_tables([whole, WHOLE.of(later)]), [later])
            except NeedsAllError:
                before, later = None, given
            else:
                assert told_by(found) == told_by(seen)
                lean += 1
        until = cut - random.choice([0, SECOND_US, 5 * SECOND_US])
        if before is None or until > before.until_us:
            early = later.filter(is_before(later, until))
            before = in_short(before, early.select(TOLD), until)
            whole = WHOLE.of(given.filter(is_before(given, until)))
    assert lean > 1
    assert before is not None
    if seed != 2:  # of a producer that counts on each connection and lacks a number all requests are kept
        assert sum(len(part) for part in before.told) + len(before.counters) < len(given) // 20


def seconds_of(random: Random) -> pa.Table:
    """What was heard of a broker in ten minutes: lines and silences, signs, and now and then a restart."""
    found: list[tuple[str, int]] = []
    at, is_up = 0, True
    while at < 600 * SECOND_US:
        at += random.choice([1, 200_000, 700_000, 1_300_000, 4_999_999, 5_000_000, 5_000_001, 14 * SECOND_US])
        sources = [REQUEST_LOG, REQUEST_LOG, REQUEST_LOG, BY_OTHERS, BY_ITSELF, MEMBER, SERVER_LOG]
        if random.random() < 0.04:
            sources, is_up = [[*LIFE][0 if is_up else 2]], not is_up
        elif random.random() < 0.02:
            sources = [[*LIFE][1]]
        source = random.choice(sources)
        many = random.randrange(30) if source == REQUEST_LOG and is_up else 1
        found += [(source, at + k * 90_000) for k in range(many)]
        at = found[-1][1] if many else at
    rows = [
        {
            "broker_id": 1,
            "source": source,
            "second": us // SECOND_US,
            "file": "log" if source in {REQUEST_LOG, SERVER_LOG} else None,
            "line": line if source in {REQUEST_LOG, SERVER_LOG} else 1,
            "until": line if source in {REQUEST_LOG, SERVER_LOG} else 0,
            "first": us,
            "last": us,
        }
        for line, (source, us) in enumerate(found)
    ]
    return heard_together(pa.Table.from_pylist(rows, HEARD_SCHEMA))


@pytest.mark.parametrize("seed", range(60))
def test_what_was_heard_in_short_makes_the_same_coverage(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - nothing secret
    every = seconds_of(random)
    begin, end = pc.min(every["first"]).as_py(), pc.max(every["last"]).as_py()
    short, since = every[:0], 0
    for until in sorted(random.sample(range(end), 4)):
        second = until // SECOND_US
        new = every.filter(pc.and_(pc.greater_equal(every["second"], since), pc.less(every["second"], second)))
        short, since = heard_in_short(heard_together(pa.concat_tables([short, new])), until, begin, {}), second
        later = every.filter(pc.greater_equal(every["second"], since))
        both = heard_by_broker(heard_together(pa.concat_tables([short, later])))
        spans = (begin, end), (begin, end + 9 * SECOND_US)
        for span in spans:
            rows = [windows_of(1, spoke[1], MissingLines(), span) for spoke in (heard_by_broker(every), both)]
            assert rows[0] == rows[1]
    assert len(short) < len(every) * 2 // 3


@pytest.mark.parametrize("seed", range(40))
def test_pieces_in_short_tell_the_same_standstills(seed: int) -> None:
    lines = sorted((broker, *line) for broker in (1, 2) for line in lines_of(2 * seed + broker))
    rows = [(broker, at, at + error, at, asked) for broker, at, error, asked in lines]
    every = pa.Table.from_pylist([dict(zip(PIECE_SCHEMA.names, row, strict=True)) for row in rows], schema=PIECE_SCHEMA)
    expected = by_broker(silences_of_all(pieces_together(every)))
    cuts = sorted(Random(seed).sample(range(max(at for _, at, *_ in lines)), 3))  # noqa: S311 - nothing secret
    short, since = every[:0], 0
    for cut in cuts:
        new = every.filter(pc.and_(pc.greater_equal(every["first"], since), pc.less(every["first"], cut)))
        short, since = pieces_in_short(pieces_together(pa.concat_tables([short, new]))), cut
        later = every.filter(pc.greater_equal(every["first"], since))
        assert by_broker(silences_of_all(pieces_together(pa.concat_tables([short, later])))) == expected
    assert np.isin(short["first"].to_numpy(), every["first"].to_numpy()).all()


def test_what_a_standstill_did_is_not_told_if_the_facts_are_parted_within_it() -> None:
    """A produce was under way when the standstill ended, and is the last line of before."""
    told = History()
    for tenth in range(100):
        told.produce(100 * tenth, 1, tenth, total_us=50_000)
    told.request("produce", 10_010, "woken", broker_id=1, base_offset=100, client_id="other", total_us=40_000)
    for tenth in range(100):
        told.produce(12_400 + 100 * tenth, 1, 101 + tenth, total_us=50_000)
    facts = told.table()

    def upto(ms: int, since: int = -1_000) -> pa.Table:
        return facts.filter(pc.and_(pc.greater_equal(facts["ts"], at(since)), pc.less(facts["ts"], at(ms))))

    def us(ms: int) -> int:
        return round(at(ms).timestamp() * 1_000_000)

    at_once = in_short(None, upto(20_000), us(20_000))
    assert "woken" in at_once.woken["connection"].to_pylist()
    outside = in_short(in_short(None, upto(5_000), us(5_000)), upto(20_000, 5_000), us(20_000))
    assert outside.woken.equals(at_once.woken)
    within = in_short(None, upto(11_500), us(11_500))
    with pytest.raises(NeedsAllError):
        in_short(within, upto(20_000, 11_500), us(20_000))
