"""Followers' fetches by the tenure that they name, and in the order in which they were sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine.codes import CONSUMER
from replay.evidence.request_columns import RequestColumns, places_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.arrays.ints import Flags
    from replay.evidence.rows import Row


class FetchIndex:
    """The fetches of a partition; epochs are those that served them (`served_epochs`)."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Fetches without a replica or an offset are left out."""
        self.rows, self.told = rows, RequestColumns(rows)
        self.replica = self.told.stated("replica_id", NEVER)
        self.offset = self.told.stated("fetch_offset", NEVER)
        self.epoch = self.told.now("current_leader_epoch", NEVER)
        is_whole = (self.replica != NEVER) & (self.offset != NEVER)
        self.by_followers = np.flatnonzero(is_whole & (self.replica >= 0) & (self.epoch != NEVER))
        self.by_consumers = np.flatnonzero(is_whole & (self.replica == CONSUMER))

    def by_tenure(self) -> Iterator[tuple[tuple[int, int], list[Row], dict[int, list[Row]]]]:
        """Followers' fetches by leader and epoch, together and by replica, each in the order of the rows."""
        mine = self.by_followers
        for (leader, epoch), places in places_by(self.told.stated("broker_id")[mine], self.epoch[mine]):
            these = mine[places]
            of_each = {
                replica: [self.rows[k] for k in these[own].tolist()]
                for (replica,), own in places_by(self.replica[these])
            }
            yield (leader, epoch), [self.rows[k] for k in these.tolist()], of_each

    def edges(self) -> Iterator[tuple[int, list[int]]]:
        """Leader epochs, and offsets at which batches of theirs end: fetched from, or fetched up to."""
        mine, last = self.by_followers, self.told.stated("last_fetched_epoch")
        accepted = mine[self.told.accepted[mine]]
        # Whatever the answer, the follower has a last record of the epoch that it names as the last one.
        for epochs, which in ((self.epoch, accepted), (last, mine[last[mine] >= 0])):
            for (epoch,), places in places_by(epochs[which]):
                yield epoch, np.unique(self.offset[which[places]]).tolist()


def in_own_order(rows: Sequence[Row]) -> list[Row]:
    """Sort a fetcher's rows in the order it sent them: by epoch, then by connection, then by correlation id.

    A fetcher has one request in flight, so correlation ids order a connection's requests; connections do not overlap.
    """
    told = RequestColumns(rows)
    rank = told.connections
    epoch, taken = told.now("current_leader_epoch"), told.at.taken
    begun = np.zeros(len(rows), np.int64)
    for _, places in places_by(epoch, rank):
        begun[places] = taken[places].min()
    return [rows[k] for k in np.lexsort((told.stated("correlation_id", 0), rank, begun, epoch)).tolist()]


def ends_connection(told: RequestColumns) -> Flags:
    """Whether the next of a replica's fetches in order does not come on the same connection."""
    found = np.ones(len(told.places), np.bool_)
    found[:-1] = np.diff(told.connections) != 0
    return found


def by_connection(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Requests by connection, in the order of its name, and on each in the order in which they were sent."""
    told = RequestColumns(rows)
    number = told.stated("correlation_id", 0)
    for _, places in places_by(told.connections):
        yield [rows[k] for k in places[np.argsort(number[places], kind="stable")].tolist()]


def follow_each_other(told: RequestColumns) -> Flags:
    """After which of a replica's fetches in order the next one is of the same tenure."""
    found = np.zeros(len(told.places), np.bool_)
    epoch, broker = told.now("current_leader_epoch"), told.stated("broker_id")
    found[:-1] = (epoch[1:] == epoch[:-1]) & (broker[1:] == broker[:-1])
    return found
