"""What holds for a whole recording is the same however its facts are cut into pieces, and in whichever order."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silent_lines import Line, lines_of

from pipelines.intake.collect import collect
from pipelines.overview.coverage import Coverage, coverage_told
from pipelines.recording.recording import discover
from pipelines.spark.buckets import divided
from replay.evidence.broker_pauses import AWAKE_US
from replay.evidence.client_gaps import GAP_SCHEMA
from replay.evidence.client_requests import bucket_of_clients, shared_connections
from replay.evidence.cluster import WHOLE, Cluster, cluster_told, collected, collected_of
from replay.evidence.coverage import REQUEST_LOG
from replay.evidence.missing_lines import MissingLines
from replay.evidence.request_runs import gaps_in_pieces
from replay.evidence.standstills import connections_in, connections_together
from replay.evidence.summary import SUMMED, put_together, summary_of
from schemas.facts import FACTS

RECORDINGS = Path(__file__).parents[1] / "recordings"
START = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN = round(START.timestamp() * 1_000_000)
COLUMNS = ("recording_id", "fact_id", *SUMMED)


def chosen_by(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - nothing secret


def row(broker: int, kind: str, line: Line, connection: str = "c", total: int = 0, **more: Any) -> dict[str, Any]:
    at, error, asked = line
    when = {"ts": START + timedelta(microseconds=at), "ts_error_us": error or None, "total_us": total}
    return {"broker_id": broker, "kind": kind, **when, "connection": connection if asked else None, **more}


def in_one_table(rows: list[dict[str, Any]]) -> pa.Table:
    named = [{"recording_id": "small", "fact_id": f"f{k}", **one} for k, one in enumerate(rows)]
    return pa.Table.from_pylist(named, pa.schema([FACTS.arrow_schema.field(name) for name in COLUMNS]))


def in_pieces(facts: pa.Table, random: Random) -> list[pa.Table]:
    """Return the facts, cut at some places and dealt out; each piece has its rows in an order of its own."""
    share = random.choice((1.0, 0.5, 0.02))  # how many of the facts are with others than their neighbours
    count = random.randint(1, 7)
    places: list[list[int]] = [[] for _ in range(count)]
    for k in range(len(facts)):
        places[random.randrange(count) if random.random() < share else k * count // len(facts)].append(k)
    for mine in places:
        random.shuffle(mine)
    random.shuffle(places)
    return [facts.take(pa.array(mine, pa.int64())) for mine in places]


def by_pieces(pieces: list[pa.Table]) -> tuple[Coverage, Cluster]:
    """Return what holds for all, from pieces of which some are put together before the others."""
    some, others = pieces[::2], pieces[1::2]
    told = put_together([put_together(map(summary_of, some)), *map(summary_of, others)])
    whole = pa.concat_tables([WHOLE.of(one) for one in pieces])

    def connections(silences: pa.Table) -> pa.Table:
        return connections_together(pa.concat_tables([connections_in(one, silences) for one in pieces]))

    shared = shared_connections(told.users)
    each = divided(bucket_of_clients(told.requests, 3), told.requests)
    cut = [[mine[:7], mine[7:90], mine[90:]] for _, mine in each]
    gaps = [GAP_SCHEMA.empty_table(), *(gaps_in_pieces(partial(iter, some), shared) for some in cut)]
    coverage = coverage_told(told, pa.concat_tables(gaps))
    recording_id = pieces[0]["recording_id"][0].as_py() if len(pieces[0]) else "small"
    return coverage, cluster_told(collected(recording_id, told, whole, connections), {}, coverage.missing)


def compared(cluster: Cluster) -> dict[str, Any]:
    found = {
        one.name: getattr(cluster, one.name) for one in fields(cluster) if one.name not in ("about", "recording_id")
    }
    return {**found, "rows": [one["fact_id"] for one in cluster.rows]}


@cache
def facts_of(name: str) -> pa.Table:
    return collect(discover(str(RECORDINGS / name), recording_id=name)).facts


@cache
def in_one_piece(name: str) -> tuple[Coverage, dict[str, Any]]:
    facts = facts_of(name)
    coverage = coverage_told(summary_of(facts))
    return coverage, compared(cluster_told(collected_of(facts), {}, coverage.missing))


@pytest.mark.parametrize("name", ["unclean-election", "min-isr-refused-zookeeper"])
@pytest.mark.parametrize("seed", range(4))
def test_a_recording_in_pieces_tells_what_it_does_in_one(name: str, seed: int) -> None:
    coverage, cluster = by_pieces(in_pieces(facts_of(name), chosen_by(seed)))
    assert (coverage, compared(cluster)) == in_one_piece(name)


def made_facts(random: Random) -> pa.Table:
    """Return facts of brokers that stand still, of clients whose requests are not all there, and of signs of life."""
    rows: list[dict[str, Any]] = []
    for broker in (1, 2, 3):
        lines = lines_of(random.randrange(1000))
        for k, one in enumerate(lines):
            kind = random.choice(("fetch", "produce"))
            rows.append(
                row(broker, kind, one, f"a:1-h{k % 5}:2-{k % 7}", client_id=random.choice("pq") if k % 5 else "p")
            )
        rows += [row(broker, "isr_update", (one[0], 0, False), name="shrink", isr=[1, 2]) for one in lines[::9]]
        rows += [row(broker, "fetch", one, "a:1-f:2-0", client_id="f", replica_id=3) for one in lines[::3]]
    for k, one in enumerate(rows):
        place = {"source_file": f"{one['broker_id']}.log", "source_line": k // 2}
        one |= {**place, "correlation_id": k + random.choice((0, 0, 0, 2))}
    return in_one_table(rows)


@given(st.integers(0, 2**32))
def test_any_facts_in_pieces_tell_what_they_do_in_one(seed: int) -> None:
    random = chosen_by(seed)
    facts = made_facts(random)
    told = coverage_told(summary_of(facts))
    cluster = cluster_told(collected_of(facts), {}, told.missing)
    coverage, found = by_pieces(in_pieces(facts, random))
    assert (coverage, compared(found)) == (told, compared(cluster))


def test_what_is_made_up_for_it_has_standstills_and_missing_lines() -> None:
    """Otherwise the test above would compare nothing with nothing."""
    facts = made_facts(chosen_by(1))
    missing = coverage_told(summary_of(facts)).missing
    cluster = cluster_told(collected_of(facts), {}, missing)
    assert missing.cuts
    assert missing.lossy
    assert cluster.standstills
    assert cluster.connection_ends
    assert cluster.expiry


def test_no_facts_tell_nothing() -> None:
    for told in (put_together([]), summary_of(in_one_table([]))):
        assert coverage_told(told) == Coverage([], MissingLines())
        assert told.counts.to_pylist() == [{"facts": 0}]


def test_what_is_told_twice_is_in_a_summary_once() -> None:
    """So are lines of a request log that follow each other within a second, however many there are."""
    facts = facts_of("unclean-election").select(SUMMED)
    told, twice = summary_of(facts), summary_of(pa.concat_tables([facts, facts]))
    assert [len(one) for one in told] == [len(one) for one in twice]
    requests = told.heard.filter(pc.equal(told.heard["source"], REQUEST_LOG))
    assert len(requests) < pc.sum(pc.subtract(requests["until"], requests["line"])).as_py() / 50


def test_of_each_minute_the_first_shrink_is_taken() -> None:
    seconds = [(1, 59.9), (1, 60.0), (1, 60.1), (1, 119.999), (2, 61.0), (1, 3600.0)]
    rows = [row(broker, "isr_update", (round(at * 1e6), 0, False), name="shrink") for broker, at in seconds]
    rows += [row(1, "isr_update", (0, 0, False), name="expand")]  # no shrink
    rows += [row(1, "isr_update", (0, 1_000_000, False), name="shrink")]  # inexact
    found = sorted((one["broker_id"], one["us"] - BEGIN) for one in summary_of(in_one_table(rows)).shrinks.to_pylist())
    assert found == [(1, 59_900_000), (1, 60_000_000), (1, 3_600_000_000), (2, 61_000_000)]


def test_a_connection_ends_with_its_last_line_where_a_standstill_ended_in_a_produce() -> None:
    busy = [(at, 0, True) for at in range(0, 3_000_000, 400_000)]
    rows = [row(1, "fetch", line, "follower") for line in busy]
    rows += [row(1, "produce", (9_000_000, 0, True), "woken"), row(1, "api", (20_000_000, 0, True), "woken")]
    rows += [row(1, "produce", (9_000_000 + 11 * AWAKE_US, 0, True), "later"), row(2, "produce", busy[3], "other")]
    rows += [row(1, "produce", (9_900_000, 999_999, True), "off")]
    rows += [row(1, "produce", (9_950_000, 0, True), "late", total=1_500_000)]  # it came before the broker went on
    found = collected_of(in_one_table(rows)).connection_ends
    assert found == {(1, "woken"): BEGIN + 20_000_000, (1, "off"): BEGIN + 9_900_000, (1, "late"): BEGIN + 9_950_000}


def test_no_standstill_is_told_where_no_line_was_due() -> None:
    """A request now and then: thousands of silences, in none of which a line was due."""
    found = collected_of(in_one_table([row(1, "produce", (43_000_000 * k, 0, True), f"c{k}") for k in range(5_000)]))
    assert found.silences["before"].null_count == len(found.silences) == 1
    assert found.connection_ends == {}
