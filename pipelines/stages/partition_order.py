"""From one partition's facts to its events and windows; what stands already, and is still true, is not made again.

A partition's events follow from its facts, from what it is told about the cluster, and from the settings. If the
digest of all these is what it was when the events in the warehouse were made, they are left. Otherwise the partition is
ordered anew, and its events are written from the first window on in which they differ from those that stand there.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pipelines.spark.buckets import by_partition, spans_of
from pipelines.spark.packed import rows_of_buffer
from pipelines.stages import spilled_facts
from pipelines.stages.order_marks import ALONE, kept_of, newest_alone, places_by_facts, places_to_go_on
from pipelines.stages.short_partitions import SHORT, Waiting, short_of
from pipelines.stages.spilled_facts import Bucket, joined_rows, longest_of, released, taken_digests
from pipelines.stages.standing_windows import StandingWindows
from pipelines.stages.stretches import by_stretches, is_long
from replay.arrays.columns import numbers, numbers_of
from replay.arrays.digests import row_hashes, sums_of
from replay.arrays.memory import give_back
from replay.evidence.clock_steps import SET_BACK, steadied
from replay.evidence.cluster_digest import ToldOfCluster, digest_of
from replay.evidence.incarnations import Lives, starts_of_brokers
from replay.evidence.partition_facts import PartitionFacts
from replay.evidence.rows import Row, rows_of_facts, rows_of_partitions
from replay.evidence.steady import NeedsAllError, facts_of, kept
from replay.evidence.tenures import micros
from replay.order.marks import Grid
from replay.order.operation_blocks import EVENT_SCHEMA
from replay.order.order import order_of, order_on
from replay.order.short_orders import orders_of
from replay.order.windows import BEFORE_ALL, Boundary, Windows, windows_of, with_window
from replay.protocol.state import NONE
from schemas.windows import EVENT_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipelines.stages.order_marks import Ordered, Since
    from pipelines.stages.spilled_events import SpilledEvents
    from pipelines.stages.spilled_facts import SpilledFacts
    from pipelines.stages.standing_windows import Of
    from replay.arrays.digests import Hashes
    from replay.evidence.cluster import Cluster
    from replay.evidence.steady import Facts, LeftOut
    from replay.order.order import OrderedEvents

    Found = tuple[Ordered, Windows]

EVENTS: Final = "replication_events"
CHANGES: Final = "changes"  # partitions whose events differ from those that stand in the warehouse
WITH_RECORDING: Final = pa.schema([pa.field("recording_id", pa.string()), *EVENT_SCHEMA])
# Where the window of the first event that differs begins; null: all events are replaced.
CHANGE_SCHEMA: Final = pa.schema(
    [WITH_RECORDING.field(name) for name in ("recording_id", "topic", "incarnation", "partition", "window")]
    + [pa.field("place", pa.int32()), pa.field("digest", pa.string())]
)
MANY: Final = 1.5  # times as many facts as one partition may have in memory, all of a bucket may
ENDS: Final = ("ts", "metadata_offset")  # the last of a partition's facts: its line, and its record
Output = tuple[str, pa.Table]


def order_tables(
    given: Iterable[pa.Table], told: ToldOfCluster, standing: StandingWindows | None = None
) -> Iterator[Output]:
    """Order those of a bucket's partitions of which anything is new, one after the other.

    `given`: the facts; those of a list are taken out of it. Yields `replication_events`, `event_windows`, `CHANGES` and
    `ALONE`. NeedsAllError: not all facts that are needed are there.
    """
    standing = standing or StandingWindows()
    tables = released(given) if isinstance(given, list) else iter(given)
    few: list[pa.Table] = []
    count = 0
    for rows in tables:
        few.append(rows)
        count += len(rows)
        if count > MANY * spilled_facts.HELD:
            break
    if count > spilled_facts.HELD and (count > MANY * spilled_facts.HELD or longest_of(few) > spilled_facts.HELD):
        yield from order_many(chain(released(few), tables), told, standing)
        return
    waiting, stand = told_apart(joined_rows(few), told, standing)
    if stand:
        yield EVENT_WINDOWS.name, standing.rows(stand)
    least = min(standing.least, SHORT)
    waiting.sort(key=lambda one: one.of in standing.left)  # these first, for they may ask for all facts
    while waiting:
        if len(waiting[-1].facts) < least and waiting[-1].of not in standing.left:
            yield from order_together(short_of(waiting, least), told.cluster, standing)
            continue
        of, made_of, hashes, facts = waiting.pop()
        given = [facts]
        del facts
        yield from order_windows(given, of, told.cluster, standing, hashes, made_of)


def ordered(
    streams: list[bytes], told: ToldOfCluster, standing: StandingWindows | None = None
) -> list[tuple[str, pa.Table]]:
    """Return the same for one bucket: what another process is asked for, which loads no more than this module."""
    tables = (rows_of_buffer(pa.py_buffer(stream)) for stream in streams)
    return [*order_tables(tables, told, standing)]


def order_many(tables: Iterable[pa.Table], told: ToldOfCluster, standing: StandingWindows) -> Iterator[Output]:
    """Order those of a bucket's partitions of which anything is new, if their facts are too many for memory."""
    bucket = Bucket()
    for rows in tables:
        bucket.add(rows)
    for of in sorted(bucket.parts):
        facts = bucket.parts.pop(of)
        known = told.partition(of[0], facts.last_us, facts.last_record)
        made_of = digest_of([*standing.every(of, facts.digest, facts.count), known, standing.length_us])
        if standing.is_made_of(of, made_of):
            yield EVENT_WINDOWS.name, standing.rows([of])
        else:
            yield from order_spilled(facts, of, told.cluster, standing, made_of)


def order_spilled(
    facts: SpilledFacts, of: Of, cluster: Cluster, standing: StandingWindows, made_of: str
) -> Iterator[Output]:
    """Order a partition whose facts may wait in a file: from a mark on, else in stretches, else as a whole."""
    if facts.is_spilled() and facts.count >= standing.least:
        with without_cycles():
            found: Found | None = spilled_on(facts, of, cluster, standing) if standing.places.get(of) else None
            if found is None and of not in standing.left and not standing.boundaries(of, 1):
                spilled = by_stretches(facts, cluster, standing.length_us, partial(incarnations, *of))
                found = None if spilled is None else (spilled, windows_through(spilled, of, standing))
            if found is not None:
                give_back()
                yield from written(found, of, cluster, standing, facts, made_of)
                give_back()
                return
        if of in standing.left and is_long(facts):
            raise NeedsAllError(*of)
    given = [facts.whole()]
    hashes = taken_digests(given)
    del facts
    yield from order_windows(given, of, cluster, standing, hashes, made_of)


def spilled_on(facts: SpilledFacts, of: Of, cluster: Cluster, standing: StandingWindows) -> Found | None:
    """Order a partition whose facts wait in a file as `gone_on` does it, in stretches."""
    if facts.is_barred:
        return None
    before = standing.boundaries(of, 0)
    for since in places_to_go_on(facts, standing.to_go_on_from(of, before), standing.engine, standing.left.get(of)):
        ordered = by_stretches(facts, cluster, standing.length_us, partial(incarnations, *of), since)
        if ordered is not None:
            return as_it_stood(ordered, since, before, standing.length_us)
    return None


def told_apart(facts: pa.Table, told: ToldOfCluster, standing: StandingWindows) -> tuple[list[Waiting], list[Of]]:
    """Return the partitions of which anything is new, and those whose events stand as they would be made again.

    There may be thousands without news, so nothing is read of one alone but its digests. A partition that has a bucket
    for itself may be a long one, so its facts are not copied.
    """
    number, partition_of = by_partition(facts)
    order, spans = spans_of(number)
    begins = np.array([first for first, _ in spans], np.int64)
    if len(spans) > 1:
        facts = facts.combine_chunks()
    hashes = row_hashes(facts)[order]
    ends = zip(*(np.maximum.reduceat(numbers_of(facts, name, NONE)[order], begins) for name in ENDS), strict=True)
    waiting, stand = [], []
    for (first, stop), sums, (last_us, last_record) in zip(spans, sums_of(hashes, begins), ends, strict=True):
        of = partition_of(int(number[order[first]]))
        known = told.partition(of[0], int(last_us), int(last_record))
        made_of = digest_of([*standing.every(of, sums, stop - first), known, standing.length_us])
        if standing.is_made_of(of, made_of):
            stand.append(of)
        else:
            mine = facts.take(order[first:stop]) if len(spans) > 1 else facts
            waiting.append(Waiting(of, made_of, hashes[first:stop], mine))
    return waiting, stand


def order_together(waiting: list[Waiting], cluster: Cluster, standing: StandingWindows) -> Iterator[Output]:
    """Order short partitions as a whole, each by itself but in columns that they share."""
    with without_cycles():
        partitions = rows_of_partitions([steadied(one.facts) for one in waiting])
        lives = [lives_of(*one.of, rows, cluster) for one, rows in zip(waiting, partitions, strict=True)]
        of_each = [one for one, (count, _) in zip(waiting, lives, strict=True) for _ in range(count)]
        orders = orders_of(chain.from_iterable(parts for _, parts in lives))
        for one, ordered in zip(of_each, orders, strict=True):
            windows = windows_through(ordered, one.of, standing)
            yield from written((ordered, windows), one.of, cluster, standing, None, one.made_of)


def order_windows(
    given: list[pa.Table],
    of: Of,
    cluster: Cluster,
    standing: StandingWindows,
    hashes: Hashes | None = None,
    made_of: str = "",
) -> Iterator[Output]:
    """Order the incarnations of one topic name and partition; what has to be written is yielded as it is made.

    `given`: its facts, which are taken out of the list, so that their order can release them. `hashes`: of these facts,
    if their order may go on from where it was. `made_of`: the digest of all that the events follow from.
    """
    with without_cycles():
        left = standing.left.get(of)
        known = known_of(given, hashes, standing, left)
        found = None if known is None else gone_on(given[0], known, of, cluster, standing)
        if found is None and left is not None:
            raise NeedsAllError(*of)
        for one in order_whole(given, of, cluster, standing, known) if found is None else [found]:
            yield from written(one, of, cluster, standing, known, made_of)


def known_of(
    given: list[pa.Table],
    hashes: Hashes | None,
    standing: StandingWindows,
    left: LeftOut | None = None,
) -> Facts | None:
    """Return a partition's facts as columns, if its order may go on; their clocks are made to rise in any case.

    `left`: what was not given of them.
    """
    given[0] = steadied(given[0])
    count = len(given[0]) + (0 if left is None else left.facts)
    is_long = count >= standing.least and SET_BACK not in given[0].column_names
    return facts_of(given[0], hashes) if hashes is not None and is_long else None


def written(
    found: Found,
    of: Of,
    cluster: Cluster,
    standing: StandingWindows,
    known: Facts | SpilledFacts | None,
    made_of: str,
) -> Iterator[Output]:
    """Yield what has to be written of one incarnation's events. `known`: the facts, if a later order may go on."""
    ordered, windows = found
    before = standing.boundaries(of, ordered.key["incarnation"])
    key = {"recording_id": cluster.recording_id, **ordered.key}
    if before:
        yield from changed(ordered, windows, before, key)
    else:
        for piece in ordered.pieces():
            yield EVENTS, named(windows.take(piece, ordered.hashes), key)
        yield CHANGES, pa.Table.from_pylist([key], CHANGE_SCHEMA)
    rows = rows_of_windows(windows, {**key, "facts": made_of})
    marks = kept_of(ordered, known, standing.left.get(of))
    kept_rows = with_states(rows, before, marks, standing.engine)
    yield EVENT_WINDOWS.name, kept_rows
    if marks and known is not None and standing.tells_alone and not ordered.key["incarnation"]:
        yield ALONE, newest_alone(of, known, kept_rows, standing.engine)


def order_whole(
    given: list[pa.Table], of: Of, cluster: Cluster, standing: StandingWindows, known: Facts | None
) -> Iterator[tuple[OrderedEvents, Windows]]:
    """Order all facts of a partition; yield each incarnation's order, and its windows if some stand of it."""
    count, parts = incarnations(*of, given, cluster)
    grids = [Grid(standing.length_us)] if known is not None and count == 1 else []
    for ordered in (order_of(one, *grids) for one in parts):
        yield ordered, windows_through(ordered, of, standing)


def windows_through(ordered: Ordered, of: Of, standing: StandingWindows) -> Windows:
    """Return the windows of events: of all, if some stand that they are to be compared with, else of none so far."""
    windows = Windows(standing.length_us)
    for piece in ordered.pieces() if standing.boundaries(of, ordered.key["incarnation"]) else ():
        windows.take(piece, ordered.hashes)
    return windows


def gone_on(facts: pa.Table, known: Facts, of: Of, cluster: Cluster, standing: StandingWindows) -> Found | None:
    """Order a long partition from a place on before which nothing is new; None: it has to be ordered as a whole.

    What lies between that place and the first news is ordered once more, and has to be as it stands.
    """
    before = standing.boundaries(of, 0)
    for since in places_by_facts(known, standing.to_go_on_from(of, before), standing.engine, standing.left.get(of)):
        some = facts.filter(pa.array(kept(known, since.holes)))
        count, parts = incarnations(*of, [some], replace(cluster, missing=since.told_of(cluster.missing)))
        if count != 1:
            return None
        grid = Grid.at(standing.length_us, since.at)
        ordered = order_on(next(parts), since.mark, since.later, since.at, grid)
        if ordered is not None:
            return as_it_stood(ordered, since, before, standing.length_us)
    return None


def as_it_stood(
    ordered: OrderedEvents | SpilledEvents, since: Since, before: Mapping[Boundary, Mapping[str, Any]], length_us: int
) -> Found | None:
    """Return the windows of an order that went on; None: what it has made again is not what stands there (`before`)."""
    windows = Windows.going_on(length_us, [*(one for one in sorted(before) if one.place < since.at.place), since.at])
    for piece in ordered.pieces(since.at.seq):
        windows.take(piece)
    shared = windows.latest_shared(before)
    return None if shared is None or shared.place < since.until.place else (ordered, windows)


def changed(
    ordered: Ordered,
    windows: Windows,
    before: dict[Boundary, dict[str, Any]],
    key: dict[str, Any],
) -> Iterator[Output]:
    """Yield the events from the newest boundary that stands there as well (`before`); all, if there is none."""
    stands = next(iter(before.values()))
    if (windows.total, windows.count) == (stands["total"], stands["events"]):
        return
    shared = windows.latest_shared(before)
    since = shared if shared is not None and shared.place else None
    seq, newest = (since.seq, since.window) if since else (0, BEFORE_ALL)
    for piece in ordered.pieces(seq):
        reached = windows_of(numbers(piece["ts"]), windows.length_us, newest)
        newest = int(reached[-1]) if len(piece) else newest
        yield EVENTS, named(with_window(piece, reached), key)
    told = {} if since is None else {"place": since.place, "window": since.window, "digest": since.digest}
    yield CHANGES, pa.Table.from_pylist([{**key, **told}], CHANGE_SCHEMA)


def rows_of_windows(windows: Windows, key: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the boundaries that are kept as rows of `event_windows`; `key`: the columns that all have."""
    same = {**key, "events": windows.count, "total": windows.total}
    return [{**same, **one._asdict()} for one in windows.kept]


def with_states(
    rows: list[dict[str, Any]], before: dict[Boundary, dict[str, Any]], made: dict[int, bytes], engine: str
) -> pa.Table:
    """Return rows of `event_windows` with the states that were made, else with those that stand there."""
    for row in rows:
        stands = before.get(Boundary(*(row[name] for name in Boundary._fields)))
        if row["place"] in made:
            row["engine"], row["state"] = engine, made[row["place"]]
        elif stands is not None:
            row["engine"], row["state"] = stands["engine"], stands["state"]
    return pa.Table.from_pylist(rows, EVENT_WINDOWS.arrow_schema)


def named(events: pa.Table, key: dict[str, Any]) -> pa.Table:
    """Return the events with the recording's name."""
    ident = pa.repeat(pa.scalar(key["recording_id"], pa.string()), len(events))
    return events.add_column(0, WITH_RECORDING.field(0), ident)


@contextmanager
def without_cycles() -> Iterator[None]:
    """Disable Python's search for reference cycles: the order makes none, so the search would be in vain."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def incarnations(
    topic: str, partition: int, given: list[pa.Table], cluster: Cluster
) -> tuple[int, Iterator[PartitionFacts]]:
    """Return how many incarnations a partition has, and the facts of each. `given`: its facts, which are taken out."""
    return lives_of(topic, partition, rows_of_facts(given.pop()), cluster)


def lives_of(topic: str, partition: int, rows: list[Row], cluster: Cluster) -> tuple[int, Iterator[PartitionFacts]]:
    """Return how many incarnations a partition has, and the facts of each; topic ids tell them apart, else lines."""
    ids = cluster.created.get(topic, [])
    parts = by_incarnation(rows, ids, cluster) if ids else by_life(rows, cluster)
    found = (
        # No name here holds the facts, so that the order can release them.
        PartitionFacts(
            topic=topic,
            topic_id=ids[incarnation][1] if incarnation < len(ids) else None,
            incarnation=incarnation,
            partition=partition,
            rows=parts.pop(incarnation),
            cluster=cluster.rows_about(topic),
            standstills=cluster.standstills,
            begins=cluster.begins,
            expiry=cluster.expiry,
            client_quotas=cluster.client_quotas,
            connection_ends=cluster.connection_ends,
            own_logs=cluster.own_logs,
            kafka_version=cluster.kafka_version,
            settings=cluster.settings,
            inter_broker_protocol=cluster.inter_broker_protocol,
            missing=cluster.missing,
        )
        for incarnation in sorted(parts)
    )
    return len(parts), found


def by_life(rows: list[Row], cluster: Cluster) -> dict[int, list[Row]]:
    """Return the facts of each incarnation if there are no topic ids; facts that cannot be assigned are left out."""
    lives = Lives(rows, starts_of_brokers(cluster.rows))
    parts: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        life = lives.of(row)
        if life is not None:
            parts[life].append(row)
    return parts


def by_incarnation(rows: Iterable[Row], ids: list[tuple[int, str]], cluster: Cluster) -> dict[int, list[Row]]:
    """Return the facts of each incarnation by topic ids."""
    rows = list(rows)
    if len(ids) == 1 and {row["topic_id"] for row in rows} <= {ids[0][1], None}:
        return {0: rows}
    parts: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        parts[incarnation_of(row, ids, cluster)].append(row)
    return parts


def incarnation_of(row: Row, ids: list[tuple[int, str]], cluster: Cluster) -> int:
    """Return the incarnation that a fact is about: by its topic id, else by when topics of that name were created."""
    if row["topic_id"] in cluster.topics:
        return cluster.topics[row["topic_id"]][1]
    if row["ts"] is None or len(ids) < 2:
        return max(len(ids) - 1, 0)
    at = micros(row["ts"])
    return max(sum(created <= at for created, _ in ids) - 1, 0)
