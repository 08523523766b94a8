"""Facts that wait in a file are those of one table, and say of themselves what that table says."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pipelines.stages import spilled_facts
from pipelines.stages.spilled_facts import HASH, Bucket, SpilledFacts, taken_digests
from replay.arrays.columns import numbers_of
from replay.arrays.digests import row_hashes, sum_of
from replay.arrays.ints import NEVER
from replay.evidence.clock_steps import LEAST_US, SET_BACK, steadied
from replay.evidence.steady import Facts, extremes, facts_of, first_on_connections, kept
from replay.evidence.steady_times import Hole
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints

SECOND_US = 1_000_000
ROWS = 3_000
KINDS = ("fetch", "produce", "hw_update", "isr_update", "log_load")
STAMP = pa.timestamp("us", "UTC")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_facts, "HELD", 400)
    monkeypatch.setattr(spilled_facts, "PIECE_ROWS", 70)


def made(seed: int, partitions: int = 1) -> pa.Table:
    """Facts of a minute or two, by two brokers; nearly all of them are requests, and a few have no stamp."""
    chosen = np.random.default_rng(seed)
    kind = chosen.choice(len(KINDS), ROWS, p=[0.6, 0.3, 0.08, 0.01, 0.01])
    stamp = np.sort(chosen.integers(0, 100 * SECOND_US, ROWS))
    late = chosen.random(ROWS) < 0.002
    broker = chosen.integers(1, 3, ROWS)

    def of(kinds: tuple[int, ...], values: Ints) -> pa.Array:
        return pa.array(values, pa.int64(), mask=~np.isin(kind, kinds))

    table = {
        "topic": pa.array(["orders", "bills"]).take(
            pa.array(chosen.integers(0, 2, ROWS) if partitions > 1 else broker * 0)
        ),
        "partition": pa.array(chosen.integers(0, partitions, ROWS), pa.int32()),
        "kind": pa.array(KINDS).take(pa.array(kind)),
        "ts": pa.array(stamp, pa.int64(), mask=(kind == len(KINDS) - 1) & (chosen.random(ROWS) < 0.5)).cast(STAMP),
        "broker_id": pa.array(broker, pa.int32()),
        "source_file": pa.array([f"{k}.log" for k in broker]),
        "source_line": pa.array(np.arange(ROWS)),
        "fact_id": pa.array([f"{k:05}" for k in range(ROWS)]),
        "total_us": of((0, 1), np.where(late, 30 * SECOND_US, chosen.integers(0, 400_000, ROWS))),
        "replica_id": of((0,), chosen.integers(-1, 4, ROWS)),
        "current_leader_epoch": of((0,), chosen.integers(3, 5, ROWS)),
        "fetch_offset": of((0,), stamp // 1000 + chosen.integers(0, 50, ROWS)),
        "base_offset": of((1,), stamp // 1000),
        "metadata_offset": of((3,), np.arange(ROWS)),
        "connection": pa.array([f"c{k}" for k in chosen.integers(0, 40, ROWS)], mask=kind > 1),
    }
    return pa.table(table)


def spilled(facts: pa.Table, seed: int) -> Bucket:
    """The facts as they come: in tables that are sorted by nothing, some of them small."""
    bucket = Bucket()
    mixed = facts.take(pa.array(np.random.default_rng(seed).permutation(len(facts)))) if seed % 2 else facts
    cuts = sorted({0, len(facts), *np.random.default_rng(seed).integers(0, len(facts), 12).tolist()})
    for first, stop in pairwise(cuts):
        bucket.add(mixed.slice(first, stop - first))
    return bucket


def part(seed: int) -> tuple[SpilledFacts, pa.Table, Facts]:
    facts = made(seed)
    (found,) = spilled(facts, seed).parts.values()
    assert found.is_spilled()
    assert len(found.pieces) > 20
    known = facts_of(facts, row_hashes(facts))
    assert known is not None
    return found, facts, known


def ids(facts: pa.Table, which: Flags | None = None) -> list[str]:
    return sorted((facts if which is None else facts.filter(pa.array(which)))["fact_id"].to_pylist())


@pytest.mark.parametrize("seed", range(4))
def test_what_is_summed_up_is_what_the_table_says(seed: int) -> None:
    found, facts, known = part(seed)
    assert (found.count, found.digest) == (ROWS, sum_of(known.hashes))
    assert found.last_us == numbers_of(facts, "ts", NONE).max()
    assert found.last_record == numbers_of(facts, "metadata_offset", NONE).max()
    for us in (-1, 20 * SECOND_US, 99 * SECOND_US, 1000 * SECOND_US):
        assert found.sums(us) == known.sums(us)
        assert found.later_than(us) == (known.us > us).sum()
    assert found.last() == known.us.max()


def test_pieces_tell_the_steady_times_of_the_whole() -> None:
    """Facts of one leader, then of another, each of which follows what came before without anything between them."""
    facts = made(5)
    stamp = numbers_of(facts, "ts", 0)
    leader, kind = np.where(stamp < 40 * SECOND_US, 1, 2), np.array(facts["kind"].to_pylist())
    quiet = {
        "broker_id": pa.array(leader, pa.int32()),
        "current_leader_epoch": pa.array(leader + 2, mask=kind != "fetch"),
        "total_us": pa.array(np.full(ROWS, 1000)),
        "replica_id": pa.array(np.arange(ROWS) % 2, mask=kind != "fetch"),
    }
    for name, column in quiet.items():
        facts = facts.set_column(facts.schema.get_field_index(name), name, column)
    facts = facts.filter(pc.not_equal(facts["kind"], "log_load"))
    known = facts_of(facts, row_hashes(facts))
    (found,) = spilled(facts, 4).parts.values()
    assert found.is_spilled()
    assert known is not None
    assert found.times == known.times
    assert [(one.leader, one.epoch) for one in known.times] == [(1, 3), (2, 4)]
    assert known.times[1].until_us == NEVER


HOLES = [Hole(1, 10 * SECOND_US, 30 * SECOND_US), Hole(2, 34 * SECOND_US, 50 * SECOND_US)]


@pytest.mark.parametrize("seed", range(4))
def test_the_same_facts_are_left_out(seed: int) -> None:
    """But for some fetches that are the last of their follower in a piece."""
    found, facts, known = part(seed)
    found.find_openings()
    firsts = first_on_connections(known)
    for end, holes in (
        (70 * SECOND_US, HOLES),
        (40 * SECOND_US, [Hole(1, -1, 39 * SECOND_US)]),
        (1000 * SECOND_US, [Hole(1, 5 * SECOND_US, 98 * SECOND_US)]),
        (30 * SECOND_US, []),
    ):
        mine = (known.us < end) & kept(known, holes, firsts)
        read = found.until(end, holes)
        more = {*ids(read)} - {*ids(facts, mine)}
        assert {*ids(facts, mine)} <= {*ids(read)}
        others = facts.filter(pc.is_in(facts["fact_id"], pa.array(sorted(more), pa.string())))
        assert pc.all(pc.greater_equal(others["replica_id"], 0)).as_py() in (True, None)
        assert len(more) < ROWS // 20
        assert len(ids(read)) == len({*ids(read)}) <= (known.us < end).sum()
        assert HASH not in read.column_names
        whole = facts.filter(pc.is_in(facts["fact_id"], read["fact_id"])).sort_by("fact_id").cast(facts.schema)
        assert read.sort_by("fact_id").select(facts.column_names).equals(whole)


@pytest.mark.parametrize("seed", range(4))
def test_the_greatest_offsets_before_are_among_what_is_looked_at(seed: int) -> None:
    found, _, known = part(seed)
    found.find_openings()
    end, since = 70 * SECOND_US, 60 * SECOND_US
    some = found.facts_until(end, HOLES, since)
    mine = (kept(known, HOLES, first_on_connections(known)) | extremes(known, since)) & (known.us < end)
    assert {*known.hashes[mine].tolist()} <= {*some.hashes.tolist()}
    assert len(some.us) == len({*some.hashes.tolist()}) < ROWS
    assert (some.us < end).all()


def test_a_bucket_holds_few_facts_and_gives_all_of_them_back() -> None:
    facts = made(7, partitions=30)
    bucket = spilled(facts, 7)
    assert bucket.in_memory == sum(one.in_memory for one in bucket.parts.values()) <= spilled_facts.HELD
    for (topic, partition), one in bucket.parts.items():
        given = [one.whole()]
        hashes = taken_digests(given)
        mine = facts.filter(pc.and_(pc.equal(facts["topic"], topic), pc.equal(facts["partition"], partition)))
        assert ids(given[0]) == ids(mine)
        assert sorted(hashes.tolist()) == sorted(row_hashes(mine).tolist()) == sorted(row_hashes(given[0]).tolist())
        assert (one.count, one.digest) == (len(mine), sum_of(row_hashes(mine)))


@pytest.mark.parametrize("back_us", [0, LEAST_US // 2, 3 * LEAST_US])
@pytest.mark.parametrize("line", [None, ROWS // 3])
def test_a_clock_that_was_set_back_is_seen(back_us: int, line: int | None) -> None:
    """From a line on, or in every hundredth line, which is a thread that was late to write it."""
    facts = made(1)
    broker, at = facts["broker_id"].to_numpy(), np.arange(ROWS)
    moved = (broker == 1) & ((at > line) if line is not None else at % 100 == 0)
    stamps = pc.subtract(facts["ts"].cast(pa.int64()), pa.array(moved * back_us)).cast(STAMP)
    facts = facts.set_column(facts.schema.get_field_index("ts"), "ts", stamps)
    (found,) = spilled(facts, 1).parts.values()
    assert found.is_spilled()
    assert found.were_clocks_steady == (SET_BACK not in steadied(facts).column_names)
    assert found.were_clocks_steady == (line is None or back_us < LEAST_US)


def test_facts_that_bar_an_order_from_going_on_are_told() -> None:
    facts = made(3)
    kinds = pa.array([*facts["kind"].to_pylist()[:-1], "log_append"])
    facts = facts.set_column(facts.schema.get_field_index("kind"), "kind", kinds)
    (found,) = spilled(facts, 2).parts.values()
    assert found.is_spilled()
    assert found.is_barred
    assert ids(found.whole()) == ids(facts)
