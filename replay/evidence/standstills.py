"""Where a broker wrote no line for seconds although lines were due, and which connections it continued with.

What follows from that is in `broker_pauses`. Lines come in pieces: a single line, or all of a broker's lines within
`PIECE_US`, of which only the first and last line matter and whether any is about a request. A silence is longer than a
piece, so both give the same result; a broker may have written millions of lines. Connections are looked at afterwards,
once all silences are known.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import differing, numbers
from replay.arrays.ints import NEVER
from replay.evidence.broker_pauses import AWAKE_US, DUE_PARTS, PARTS, STANDSTILL_US
from replay.evidence.choices import Choice
from schemas.model import BOOL, INT32, INT64, STRING

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints

LINES: Final = Choice(others=("segment_batch", "checkpoint"), filled=("broker_id", "ts"))
PRODUCES: Final = Choice(kinds=("produce",), filled=("broker_id", "connection", "ts"))
ON_CONNECTIONS: Final = Choice(filled=("connection",))
PIECE_US: Final = STANDSTILL_US // PARTS
LOOKED_BACK_US: Final = 3 * STANDSTILL_US  # before a silence, at most, to see whether a line was due
WHOLE_SECOND_US: Final = 1_000_000  # no stamp is off by more
LONGEST_REQUEST_US: Final = 3_600_000_000  # no request really waits longer, whatever its line says
PIECE_SCHEMA: Final = pa.schema(
    [
        pa.field("broker_id", INT32),
        pa.field("first", INT64),  # its first line's stamp, microseconds
        pa.field("latest", INT64),  # when that line was written at the latest
        pa.field("last", INT64),
        pa.field("asked", BOOL),  # whether any of its lines is about a request
    ]
)
SILENCE_SCHEMA: Final = pa.schema(
    [
        pa.field("broker_id", INT32),
        pa.field("before", INT64),  # the last line before; null at the beginning of the broker's lines
        pa.field("first", INT64),  # the first line after
        pa.field("after", INT64),  # when that line was written at the latest
    ]
)
CONNECTION_SCHEMA: Final = pa.schema(
    [
        pa.field("broker_id", INT32),
        pa.field("connection", STRING),
        pa.field("last", INT64),  # its last stamp, microseconds
        pa.field("woken", BOOL),  # whether a produce on it was under way when a standstill of its broker ended
    ]
)
LINE_COLUMNS: Final = ("broker_id", "ts", "ts_error_us", "connection")
CONNECTION_COLUMNS: Final = ("kind", "broker_id", "connection", "ts", "ts_error_us", "total_us")


def pieces_of(facts: pa.Table) -> pa.Table:
    """A piece for each line."""
    lines = LINES.of(facts, LINE_COLUMNS)
    stamp = numbers(lines["ts"])
    latest = stamp + numbers(lines["ts_error_us"])
    columns = (lines["broker_id"], stamp, latest, stamp, pc.is_valid(lines["connection"]))
    return pa.table(dict(zip(PIECE_SCHEMA.names, columns, strict=True)), schema=PIECE_SCHEMA)


def pieces_together(pieces: pa.Table) -> pa.Table:
    """One piece for all lines of a broker within `PIECE_US`."""
    broker, first, latest, last, asked = (numbers(pieces[name]) for name in PIECE_SCHEMA.names)
    order = np.lexsort((latest, first, broker))
    broker, first, latest, last, asked = (column[order] for column in (broker, first, latest, last, asked))
    begins = np.flatnonzero(differing(broker, first // PIECE_US))
    if not len(begins):
        return pieces
    sums = (np.maximum.reduceat(last, begins), np.maximum.reduceat(asked, begins) > 0)
    columns = (broker[begins], first[begins], latest[begins], *sums)
    return pa.table([*map(pa.array, columns)], PIECE_SCHEMA.names).cast(PIECE_SCHEMA)


def pieces_in_short(pieces: pa.Table) -> pa.Table:
    """Fewer pieces that tell the same standstills, and the same together with any later ones.

    Pieces without a silence between them become one, but for those before a silence, or where one may follow: there it
    matters when requests had been answered.
    """
    broker, first, latest, last, asked = (numbers(pieces[name]) for name in PIECE_SCHEMA.names)
    order = np.lexsort((latest, first, broker))
    broker, first, latest, last, asked = (column[order] for column in (broker, first, latest, last, asked))
    is_other = differing(broker)
    is_new = is_other.copy()
    is_new[1:] |= first[1:] - last[:-1] >= STANDSTILL_US
    # Times of all brokers, one broker's behind the other's.
    least = last.min(initial=NEVER)
    time = np.cumsum(is_other) * (last.max(initial=least) - least + 2 * LOOKED_BACK_US) + last
    ends = time[np.append(is_new[1:], True)[: len(time)]]
    stays = np.searchsorted(ends, time + LOOKED_BACK_US, "right") > np.searchsorted(ends, time)
    is_new |= stays
    is_new[1:] |= stays[:-1]
    begins = np.flatnonzero(is_new)
    stops = np.append(begins[1:], len(first))[: len(begins)] - 1
    columns = (broker[begins], first[begins], latest[begins], last[stops], asked[stops] > 0)
    return pa.table([*map(pa.array, columns)], PIECE_SCHEMA.names).cast(PIECE_SCHEMA)


def silences_of(pieces: pa.Table) -> pa.Table:
    """One broker's standstills, and where its lines begin (`before` is null), from its pieces in any order.

    A line was due if requests had been answered in enough parts of the stretch of the last line and the stretch before
    it.
    """
    if not len(pieces):
        return SILENCE_SCHEMA.empty_table()
    order = np.lexsort((numbers(pieces["latest"]), numbers(pieces["first"])))
    first, latest, last, asked = (numbers(pieces[name])[order] for name in PIECE_SCHEMA.names[1:])
    answered = np.unique(last[asked > 0] // PIECE_US)
    gaps = np.flatnonzero(first[1:] - last[:-1] >= STANDSTILL_US)
    before = last[gaps]
    since = (before // STANDSTILL_US - 1) * PARTS
    lately = np.searchsorted(answered, before // PIECE_US, side="right") - np.searchsorted(answered, since)
    due = gaps[lately >= DUE_PARTS]
    after = np.concatenate([np.zeros(1, np.int64), due + 1])
    columns = (
        pa.repeat(pieces["broker_id"][0], len(after)),
        pa.array([None, *last[due].tolist()], INT64),
        first[after],
        latest[after],
    )
    return pa.table(dict(zip(SILENCE_SCHEMA.names, columns, strict=True)), schema=SILENCE_SCHEMA)


def silences_of_all(pieces: pa.Table) -> pa.Table:
    """Standstills and beginnings of all brokers."""
    brokers = pc.unique(pieces["broker_id"]).to_pylist()
    found = [silences_of(pieces.filter(pc.equal(pieces["broker_id"], broker))) for broker in brokers]
    return pa.concat_tables([SILENCE_SCHEMA.empty_table(), *found])


def by_broker(silences: pa.Table) -> tuple[dict[int, list[tuple[int, int]]], dict[int, int]]:
    """Standstills by broker, rising: last line before, first line after; and each broker's first line."""
    out: dict[int, list[tuple[int, int]]] = defaultdict(list)
    begins: dict[int, int] = {}
    columns = (silences[name].to_pylist() for name in ("broker_id", "before", "after"))
    for broker, before, after in zip(*columns, strict=True):
        if before is None:
            begins[broker] = after
        else:
            out[broker].append((before, after))
    return {broker: sorted(spans) for broker, spans in sorted(out.items())}, begins


def are_woken(produces: pa.Table, silences: pa.Table) -> Flags:
    """Which produces were under way when a standstill of their broker ended.

    Under way: it had arrived by shortly after the end, and was not answered before the stretch of time in which the
    broker's next line may have been written.
    """
    ended = silences.filter(pc.is_valid(silences["before"]))
    earliest = numbers(produces["ts"]) - numbers(produces["ts_error_us"])
    arrival = earliest - np.minimum(numbers(produces["total_us"]), LONGEST_REQUEST_US)
    broker = numbers(produces["broker_id"])
    found = np.zeros(len(produces), np.bool_)
    for one in np.unique(numbers(ended["broker_id"])).tolist():
        found |= (broker == one) & is_under_way(arrival, earliest, ended.filter(pc.equal(ended["broker_id"], one)))
    return found


def is_under_way(arrival: Ints, earliest: Ints, ended: pa.Table) -> Flags:
    """Whether each of a broker's produces was under way when one of these standstills ended."""
    until, since = np.sort(numbers(ended["after"])) + 10 * AWAKE_US, np.sort(awake_from(ended))
    place = np.searchsorted(until, arrival)  # the first that had not ended when it arrived; all later ones began later
    known = place < len(until)
    found: Flags = known & (since[np.where(known, place, 0)] <= earliest)
    return found


def awake_from(ended: pa.Table) -> Ints:
    """When each of these standstills may have ended at the earliest."""
    first = (numbers(ended["first"]) - WHOLE_SECOND_US) // STANDSTILL_US * STANDSTILL_US
    found: Ints = np.maximum(numbers(ended["before"]), first)
    return found


def are_any(silences: pa.Table) -> bool:
    """Whether any broker stood still."""
    return bool(pc.any(pc.is_valid(silences["before"])).as_py())


def connections_in(facts: pa.Table, silences: pa.Table) -> pa.Table:
    """Connections, with their last stamps and whether a produce was under way when a standstill ended."""
    requests = ON_CONNECTIONS.of(facts, CONNECTION_COLUMNS)
    is_produce = PRODUCES.mask(requests)
    woken = np.zeros(len(requests), np.bool_)
    woken[is_produce.to_numpy()] = are_woken(requests.filter(is_produce), silences)
    columns = (*(requests[name] for name in CONNECTION_SCHEMA.names[:2]), requests["ts"].cast(INT64), woken)
    return connections_together(pa.table([*columns], CONNECTION_SCHEMA.names))


def connections_together(rows: pa.Table) -> pa.Table:
    """The same with one row for each connection."""
    found = rows.group_by(CONNECTION_SCHEMA.names[:2]).aggregate([("last", "max"), ("woken", "max")])
    return found.rename_columns(CONNECTION_SCHEMA.names).cast(CONNECTION_SCHEMA)


def ends_told(connections: pa.Table) -> dict[tuple[int, str], int]:
    """Last stamp on each connection that had a produce under way when a standstill ended."""
    some = connections.filter(connections["woken"])
    broker, name = (some[column].to_pylist() for column in CONNECTION_SCHEMA.names[:2])
    return dict(zip(zip(broker, name, strict=True), numbers(some["last"]).tolist(), strict=True))
