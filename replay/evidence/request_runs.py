"""Requests of clients in pieces, looked through for gaps one piece after the other.

A client of which a log has all numbers on every connection has no gap, and to see that, few rows of a piece of its
requests are enough: the runs of numbers that follow each other. Of a client whose numbers prove nothing, as a
consumer's in a filtered log, only the ends of its connections are told, so a run is all that a piece has of one of
them. Only of other clients all requests are needed at once, since a number that is missing on one connection may have
been sent on another (`client_gaps`).
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import differing, numbers
from replay.evidence.client_gaps import FAR, GAP_SCHEMA, gaps_in, next_begun, prove_nothing
from replay.evidence.client_requests import NAME, PLACE_SCHEMA, REQUEST_SCHEMA, by_client
from schemas.model import BOOL, INT32, INT64, STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RUN_SCHEMA: Final = pa.schema(
    [
        pa.field("client_id", NAME),
        pa.field("connection", NAME),
        pa.field("broker_id", INT32),
        pa.field("first", INT64),  # numbers
        pa.field("last", INT64),
        pa.field("last_us", INT64),  # when the last was taken up,
        pa.field("begun_us", INT64),  # and when the earliest
        pa.field("ended_us", INT64),  # and the latest of all
        pa.field("fetches", BOOL),  # whether any of them does,
        pa.field("tells", BOOL),  # and whether any is such that numbers of its client prove something
        pa.field("is_whole", BOOL),  # whether all numbers from the first to the last are there
    ]
)


def gaps_in_pieces(pieces: Callable[[], Iterable[pa.Table]], shared: pa.Table) -> pa.Table:
    """All requests of some clients, in pieces (`REQUEST_SCHEMA`) -> their gaps and ends, as `gaps_in` finds them.

    `pieces`: returns the pieces, which are asked for once or twice, and of which one is in memory at a time. `shared`:
    connections that are used by several of all clients.
    """
    runs = pa.concat_tables(
        [RUN_SCHEMA.empty_table(), *(runs_of(mine) for piece in pieces() for mine in by_client(piece, shared))]
    )
    found: defaultdict[str, list[pa.Table | None]] = defaultdict(list)
    for mine in by_client(runs, PLACE_SCHEMA.empty_table()):  # those on shared connections are gone
        found[mine["client_id"][0].as_py()].append(ends_of_runs(mine))
    have_gaps = [client for client, ends in found.items() if None in ends]
    told = [ends for client, every in found.items() if client not in have_gaps for ends in every if ends is not None]
    if have_gaps:
        some = pa.array(have_gaps, STRING)
        theirs = [piece.filter(pc.is_in(piece["client_id"].cast(STRING), some)) for piece in pieces()]
        told.append(gaps_in(pa.concat_tables(theirs), shared))
    return pa.concat_tables([GAP_SCHEMA.empty_table(), *told])


def runs_of(requests: pa.Table) -> pa.Table:
    """Requests of one client on one host (`REQUEST_SCHEMA`) -> the runs of numbers that follow each other.

    If these requests prove nothing, perhaps no other does: then all of a connection are one run.
    """
    connection = requests["connection"].combine_chunks()
    broker, number, taken, fetches, *kinds = (numbers(requests[name]) for name in REQUEST_SCHEMA.names[2:])
    tells = np.maximum.reduce(kinds)
    name = numbers(connection.indices)
    order = np.lexsort((taken, number, name, broker))
    broker, name, number, taken, fetches, tells = (
        column[order] for column in (broker, name, number, taken, fetches, tells)
    )
    begins = differing(broker, name)
    is_whole = not prove_nothing(fetches, tells)
    if is_whole:
        begins[1:] |= np.diff(number) > 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(number)) - 1
    columns = {
        "client_id": requests["client_id"].take(pa.array(order[first])),
        "connection": connection.take(pa.array(order[first])),
        "broker_id": broker[first],
        "first": number[first],
        "last": number[last],
        "last_us": taken[last],
        "begun_us": np.minimum.reduceat(taken, first),
        "ended_us": np.maximum.reduceat(taken, first),
        "fetches": np.maximum.reduceat(fetches, first) > 0,
        "tells": np.maximum.reduceat(tells, first) > 0,
        "is_whole": np.full(len(first), is_whole),
    }
    return pa.table(columns, schema=RUN_SCHEMA)


def ends_of_runs(runs: pa.Table) -> pa.Table | None:
    """Runs of one client on one host -> the ends of its connections (`GAP_SCHEMA`).

    Runs of several pieces may lie in each other. None: all of its requests have to be looked at, since numbers are left
    out on a connection, or may be, and prove something, or since the client began to count anew.
    """
    connection = runs["connection"].combine_chunks()
    place = numbers(connection.indices)
    broker, first, last, last_us = (numbers(runs[name]) for name in ("broker_id", "first", "last", "last_us"))
    order = np.lexsort((last_us, last, first, place, broker))
    place, broker, first, last, last_us = (column[order] for column in (place, broker, first, last, last_us))
    begins = np.flatnonzero(differing(broker, place))
    of_mute = prove_nothing(*(numbers(runs[name]) for name in ("fetches", "tells")))
    if (first < -FAR).any() if of_mute else not pc.all(runs["is_whole"]).as_py():
        return None
    told: dict[str, list[int]] = {"correlation_id": [], "since_us": []}
    for begin, end in pairwise([*begins.tolist(), len(order)]):
        reached = np.maximum.accumulate(last[begin:end])
        if not of_mute and (first[begin + 1 : end] > reached[:-1] + 1).any():
            return None
        told["correlation_id"].append(int(reached[-1]))
        told["since_us"].append(int(last_us[begin:end][last[begin:end] == reached[-1]].max()))
    begun, ended, fetches = (numbers(runs[name])[order] for name in ("begun_us", "ended_us", "fetches"))
    none = np.zeros(len(begins), np.int64)
    columns = {
        "broker_id": broker[begins],
        "connection": connection.dictionary.take(place[begins]),
        **told,
        "until_us": next_begun(broker[begins], np.minimum.reduceat(begun, begins), np.maximum.reduceat(ended, begins)),
        "lines": none,
        "lost": none,
        "fetches": np.maximum.reduceat(fetches, begins) > 0,
        "proves": none > 0,
    }
    return pa.table(columns, schema=GAP_SCHEMA)
