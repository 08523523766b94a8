"""Requests of clients as the request logs tell them: what is needed to see which lines are missing (`missing_lines`).

Facts may be told in pieces, cut anywhere. All numbers of all connections are kept: whether another connection of the
client has a number is known only when all of this client's are there. Each client's can be looked at by themselves.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import differing, numbers, texts
from replay.evidence.choices import FETCHES, Choice
from replay.evidence.kept_requests import KEPT
from schemas.model import BOOL, INT32, INT64, STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replay.arrays.ints import Ints

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
PLACE_SCHEMA: Final = pa.schema([pa.field("broker_id", INT32), pa.field("connection", STRING)])
USER_SCHEMA: Final = pa.schema([*PLACE_SCHEMA, pa.field("client_id", STRING)])
STATED = (
    "kind", "client_id", "connection", "broker_id", "correlation_id", "ts", "total_us", "queue_us", "replica_id",
    "api_key",
)  # fmt: skip
NAMES: Final = ("client_id", "connection")
REQUESTS = Choice(filled=("connection", "ts"))
APPENDS = Choice(kinds=("produce",))
RAFT_CLIENT = "raft-client-"  # followed by the node's id: Kafka's names for the clients of the metadata quorum


def requests_in(facts: pa.Table) -> pa.Table:
    """Requests in facts, each once (`REQUEST_SCHEMA`), but for those of clients of the metadata quorum."""
    told = REQUESTS.of(facts, STATED)
    told = told.set_column(1, "client_id", pc.coalesce(told["client_id"], ""))
    told = told.filter(pc.invert(pc.starts_with(told["client_id"], RAFT_CLIENT)))
    fetches = FETCHES.mask(told)
    columns = (
        told["client_id"].combine_chunks().dictionary_encode(),
        told["connection"].combine_chunks().dictionary_encode(),
        told["broker_id"],
        numbers(told["correlation_id"]),
        numbers(told["ts"]) - numbers(told["total_us"]) + numbers(told["queue_us"]),
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


def users_in(facts: pa.Table) -> pa.Table:
    """Which clients there are on each connection (`USER_SCHEMA`)."""
    told = REQUESTS.of(facts, USER_SCHEMA.names)
    return told.set_column(2, "client_id", pc.coalesce(told["client_id"], "")).cast(USER_SCHEMA)


def users_together(users: pa.Table) -> pa.Table:
    """The same, each once."""
    return users.group_by(USER_SCHEMA.names).aggregate([])


def shared_connections(users: pa.Table) -> pa.Table:
    """Connections that several clients share (`PLACE_SCHEMA`), from each user once: they forward requests."""
    found = users.group_by(PLACE_SCHEMA.names).aggregate([("client_id", "count")])
    return found.filter(pc.greater(found["client_id_count"], 1)).select(PLACE_SCHEMA.names)


def bucket_of_clients(requests: pa.Table, buckets: int) -> Ints:
    """A number for each request, below `buckets`: the same for all of a client's."""
    place, names = texts(requests["client_id"].cast(STRING))
    return np.array([crc32(name.encode()) % buckets for name in names], np.int64)[place]


def by_client(requests: pa.Table, shared: pa.Table) -> Iterator[pa.Table]:
    """Yield the requests of each client on each host, but for those on shared connections, which prove nothing."""
    if len(shared):
        places = requests.select(PLACE_SCHEMA.names).cast(PLACE_SCHEMA)
        places = places.append_column("row", pa.array(np.arange(len(places))))
        own = places.join(shared, keys=PLACE_SCHEMA.names, join_type="left anti")
        requests = requests.take(own["row"])
    if not len(requests):
        return
    told = requests.combine_chunks()
    client, connection = (told[name].chunk(0) for name in NAMES)
    whose, host = numbers(client.indices), places_of_words(connection, host_of)
    order = np.lexsort((host, whose))
    bounds = np.flatnonzero(differing(whose[order], host[order])).tolist()
    told = told.take(order)
    for first, stop in pairwise([*bounds, len(order)]):
        yield told.slice(first, stop - first)


def host_of(connection: str) -> str:
    """The client's address without its port, from `server:port-client:port-index-...`."""
    return connection.partition("-")[2].rpartition(":")[0]
