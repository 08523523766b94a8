"""Requests of clients as the request logs tell them: what is needed to see which lines are missing (`missing_lines`).

Facts may be told in pieces, cut anywhere. All numbers of all connections are kept: whether another connection of the
client has a number is known only when all are there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import differing, numbers
from replay.arrays.ints import NEVER
from replay.evidence.choices import FETCHES, Choice
from replay.evidence.kept_requests import KEPT
from schemas.model import BOOL, INT32, INT64, STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replay.arrays.ints import Flags, Ints

NAME = pa.dictionary(pa.int32(), STRING)
REQUEST_SCHEMA = pa.schema(
    [
        pa.field("client_id", NAME),
        pa.field("connection", NAME),
        pa.field("broker_id", INT32),
        pa.field("correlation_id", INT64),
        pa.field("taken_us", INT64),  # when a handler took it up
        pa.field("fetches", BOOL),
        pa.field("replicates", BOOL),  # it is a follower's fetch
        pa.field("appends", BOOL),
        pa.field("unkept", BOOL),  # a filtered log does not keep such a request
    ]
)
STATED = (
    "kind", "client_id", "connection", "broker_id", "correlation_id", "ts", "total_us", "queue_us", "replica_id",
    "api_key",
)  # fmt: skip
NAMES: Final = ("client_id", "connection")
REQUESTS = Choice(filled=("connection", "ts"))
APPENDS = Choice(kinds=("produce",))
RAFT_CLIENT = "raft-client-"  # followed by the node's id: Kafka's names for the clients of the metadata quorum


def requests_in(facts: pa.Table) -> pa.Table:
    """Requests in facts, each once (`REQUEST_SCHEMA`); of clients of the quorum only which connections they have."""
    told = REQUESTS.of(facts, STATED)
    client = pc.coalesce(told["client_id"], "").combine_chunks().dictionary_encode()
    counts = ~is_chosen(client, is_of_quorum)
    fetches = FETCHES.mask(told)
    columns = (
        client,
        told["connection"].combine_chunks().dictionary_encode(),
        told["broker_id"],
        numbers(told["correlation_id"]) * counts,
        (numbers(told["ts"]) - numbers(told["total_us"]) + numbers(told["queue_us"])) * counts,
        fetches,
        pc.and_(fetches, pc.greater_equal(pc.coalesce(told["replica_id"], -1), 0)),
        APPENDS.mask(told),
        pc.invert(pc.is_in(told["api_key"], value_set=pa.array([None, *KEPT], INT32))),
    )
    return requests_together(pa.table([*columns], schema=REQUEST_SCHEMA))


def requests_together(requests: pa.Table) -> pa.Table:
    """Each of these requests once."""
    told = requests.combine_chunks()
    # Numbers in place of names: they are grouped in half the time.
    names = {name: told[name].chunk(0) for name in NAMES} if len(told) else {}
    for name, column in names.items():
        told = told.set_column(told.schema.get_field_index(name), name, column.indices)
    once = told.group_by(REQUEST_SCHEMA.names).aggregate([])
    for name, column in names.items():
        back = pa.DictionaryArray.from_arrays(once[name].combine_chunks(), column.dictionary)
        once = once.set_column(once.schema.get_field_index(name), name, back)
    return once.select(REQUEST_SCHEMA.names).cast(REQUEST_SCHEMA)


def places_of_words(column: pa.DictionaryArray, word_of: Callable[[str], str]) -> Ints:
    """For each row the place of what is said of its name among all that is, in order."""
    words = [word_of(name) for name in column.dictionary.to_pylist()]
    place = {word: k for k, word in enumerate(sorted(set(words)))}
    return np.array([place[word] for word in words], np.int64)[numbers(column.indices)]


def is_chosen(column: pa.DictionaryArray, choice: Callable[[str], bool]) -> Flags:
    """Which rows have a name of which this holds."""
    chosen = np.array([choice(name) for name in column.dictionary.to_pylist()], np.bool_)
    found: Flags = chosen[numbers(column.indices)]
    return found


def by_client(requests: pa.Table) -> Iterator[pa.Table]:
    """Yield the requests of each client on each host, but for those that prove nothing.

    These are the clients of the quorum, and connections that several clients share: they forward requests.
    """
    if not len(requests):
        return
    told = requests.combine_chunks()
    client, connection = (told[name].chunk(0) for name in NAMES)
    whose, host, name = numbers(client.indices), places_of_words(connection, host_of), numbers(connection.indices)
    broker = numbers(told["broker_id"], NEVER)
    order = np.lexsort((whose, name, broker))
    is_connection = differing(broker[order], name[order])
    connections = np.cumsum(is_connection) - 1
    is_user = is_connection | differing(whose[order])
    users = np.bincount(connections[is_user])
    order = order[(users == 1)[connections] & ~is_chosen(client, is_of_quorum)[order]]
    order = order[np.lexsort((host[order], whose[order]))]
    bounds = np.flatnonzero(differing(whose[order], host[order])).tolist()
    told = told.take(order)
    for first, stop in pairwise([*bounds, len(order)]):
        yield told.slice(first, stop - first)


def is_of_quorum(client_id: str) -> bool:
    """Whether a client belongs to the metadata quorum; such a client's numbers prove nothing."""
    return client_id.startswith(RAFT_CLIENT)


def host_of(connection: str) -> str:
    """The client's address without its port, from `server:port-client:port-index-...`."""
    return connection.partition("-")[2].rpartition(":")[0]
