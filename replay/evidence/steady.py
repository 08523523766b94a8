"""Which facts of a long partition an order that goes on can do without: requests in the middle of a steady tenure.

From some moment on (`Settling`) the newest leader epoch is steady: nobody takes up a role, loads or truncates a log,
and all that comes are requests without an error, of that leader and epoch. What was decided, and who had which role,
then follows from the facts up to that moment, and a request bears only upon its neighbours: the next one of its sender,
the next base offset, and what was under way at the same time. So requests that lie well behind the settled moment, and
well before the place where the order goes on, can be left out. What is asked here makes sure of that; see
docs/decisions/0014.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers, numbers_of, texts
from replay.arrays.digests import sum_of
from replay.arrays.ints import NEVER
from replay.evidence.choices import Choice
from replay.evidence.retries import GIVEN_UP_US
from replay.evidence.session_lines import LEFT_OUT
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from replay.arrays.digests import Hashes
    from replay.arrays.ints import Flags, Ints

FETCH, PRODUCE, HW_UPDATE = BULK = ("fetch", "produce", "hw_update")
# Lines that change what was decided, but neither who has which role nor what a log holds.
DECIDED: Final = (
    "partition_change",
    "isr_update",
    "isr_request",
    "log_start_change",
    "segment_change",
    "delete_records",
    "config_change",
)
# What these say depends on more than their neighbours: TRACE lines, markers, and fetches that leave a partition out.
BARRED: Final = (
    "log_append", "remote_leo_update", "transaction", "epoch_end_offset", LEFT_OUT
)  # fmt: skip
# Offsets that a checkpoint states, at an unknown time: only a partition's last events have them, those of its dumps.
OF_THE_END: Final = Choice(kinds=("checkpoint",), empty=("ts", "leader_epoch"))
SPAN_US: Final = 10_000_000  # a request that takes longer counts as none of a steady tenure
MARGIN_US: Final = 3 * SPAN_US  # so much from before the place where the order goes on is read again
RESENT_US: Final = GIVEN_UP_US + SPAN_US  # until then clients may send again what the leader before had answered
UNKNOWN: Final = -2  # a fetch that names no replica; a consumer's names -1


FACT_COLUMNS: Final = (  # those that `facts_of` reads
    "kind", "ts", "total_us", "run_until", "broker_id", "replica_id", "connection", "base_offset", "fetch_offset",
    "current_leader_epoch", "last_fetched_epoch", "preferred_read_replica", "error_code", "diverging_epoch",
    "forgotten", "transactional_id", "leader_epoch",
)  # fmt: skip


class Sums(NamedTuple):
    """The digest of the facts before a moment, but for those `decided`: of them, the events tell."""

    us: int
    facts: tuple[int, int]


class Steady(NamedTuple):
    """From when on the newest tenure of a partition is steady."""

    epoch: int
    leader: int
    settled_us: int


class LeftOut(NamedTuple):
    """Requests of a partition that are not read again: of those before a moment, what they add to digests."""

    steady: Steady
    since: int  # an order that goes on at this moment, or later, can do without them
    facts: int  # how many
    sums: tuple[int, int]


class NeedsAllError(Exception):
    """A partition has to be ordered as a whole, and not all of its facts were given."""


class Facts(NamedTuple):
    """A partition's facts as columns, as far as it has to be known which of them can be left out."""

    hashes: Hashes
    kind: Ints  # place in BULK; NONE: another kind
    decided: Flags  # of a kind in DECIDED, or `OF_THE_END`
    odd: Flags  # no request of a steady tenure, whichever it is
    us: Ints  # when a request arrived, or the line's stamp; -NEVER: no stamp
    until: Ints  # when a request, or the last of a run, was answered
    broker: Ints
    replica: Ints
    epoch: Ints  # leader epoch that a fetch names; NONE: none
    last_epoch: Ints  # of the last record that a fetcher had
    offset: Ints  # of a fetch, or the base offset of a batch
    connection: Ints

    def only(self, which: Flags) -> Facts:
        """Some of the facts."""
        columns: Any = (column[which] for column in self)
        return Facts(*columns)

    def are(self, kind: str) -> Flags:
        """Which of them are of one kind of `BULK`."""
        found: Flags = self.kind == BULK.index(kind)
        return found

    def of_kind(self, kind: str) -> Facts:
        """Those of one kind of `BULK`."""
        return self.only(self.are(kind))

    def during(self, since: int, until: int = NEVER) -> Facts:
        """Those that came in a time."""
        return self.only((self.us >= since) & (self.us < until))

    def near(self, since: int, hole: tuple[int, int]) -> Facts:  # noqa: ARG002 - of facts in files, these are read
        """Those that bear on whether an order can go on at `since`, without the requests in a hole: all."""
        return self

    def sums(self, us: int) -> Sums:
        """The digest of those before a moment."""
        return Sums(us, sum_of(self.hashes[~self.decided & (self.us < us)]))

    def settled_us(self, epoch: int, leader: int) -> int:
        """From when on a leader epoch is settled (`Settling`)."""
        settling = Settling(epoch, leader)
        settling.add(self)
        return settling.us


def facts_of(table: pa.Table, hashes: Hashes) -> Facts | None:
    """Return facts as columns, with these hashes; None: there are some that bar an order from going on."""
    kinds, place = table["kind"].unique(), pa.array([*BULK, *DECIDED])
    if pc.any(pc.is_in(kinds, pa.array(BARRED))).as_py():
        return None

    def column(name: str, missing: int = NONE) -> Ints:
        return numbers_of(table, name, missing)

    code = numbers(pc.index_in(table["kind"], place), NONE)
    kind = np.where(code < len(BULK), code, NONE)
    stamp, total, replica = column("ts", -NEVER), column("total_us", 0), column("replica_id", UNKNOWN)
    offset = np.where(kind == BULK.index(PRODUCE), column("base_offset"), column("fetch_offset"))
    failed = (column("error_code", 0) != 0) | (column("diverging_epoch") != NONE) | (column("forgotten", 0) != 0)
    names = table["transactional_id"] if "transactional_id" in table.column_names else pa.nulls(len(table), pa.string())
    failed |= pc.greater(pc.fill_null(pc.binary_length(names), 0), 0).to_numpy(zero_copy_only=False).astype(bool)
    is_fetch, asks = kind == BULK.index(FETCH), kind != BULK.index(HW_UPDATE)
    unknown = asks & ((offset < 0) | (is_fetch & (replica == UNKNOWN)))
    elsewhere = column("preferred_read_replica") >= 0
    return Facts(
        hashes=hashes,
        kind=kind,
        decided=(code >= len(BULK)) | OF_THE_END.mask(table).to_numpy(zero_copy_only=False).astype(bool),
        odd=(kind != NONE) & (failed | unknown | elsewhere | (total > SPAN_US)),
        us=np.where(stamp == -NEVER, stamp, stamp - total),
        until=np.maximum(stamp, column("run_until", -NEVER)),
        broker=column("broker_id"),
        replica=replica,
        epoch=column("current_leader_epoch"),
        last_epoch=column("last_fetched_epoch"),
        offset=offset,
        connection=connections(table),
    )


def connections(table: pa.Table) -> Ints:
    """Return a number for each connection of a broker."""
    if "connection" not in table.column_names:
        return np.full(len(table), NONE, np.int64)
    place, names = texts(table["connection"])
    return place + len(names) * numbers(table["broker_id"], NONE)


class Settling:
    """From when on nothing comes but requests of a leader epoch, and everybody has fetched in it before.

    The facts may be given in parts, in any order.
    """

    def __init__(self, epoch: int, leader: int) -> None:
        """No facts were given."""
        self.epoch, self.leader = epoch, leader
        self.latest = -NEVER  # when the last was over that is no request of that epoch
        self.firsts: dict[int | str, int] = {}  # when each replica fetched first, and when each kind came first

    def add(self, facts: Facts) -> None:
        """Take some facts."""
        is_fetch, by_replica = facts.are(FETCH), facts.replica >= 0
        named = np.where(by_replica, facts.epoch == self.epoch, (facts.epoch == NONE) | (facts.epoch == self.epoch))
        older = by_replica & (facts.last_epoch >= 0) & (facts.last_epoch < self.epoch)
        of_epoch = (facts.broker == self.leader) & (~is_fetch | (named & ~older))
        steady = facts.decided | ((facts.kind != NONE) & ~facts.odd & of_epoch)
        self.latest = int(facts.until[~steady].max(initial=self.latest))
        fetches = facts.of_kind(FETCH)
        for replica in np.unique(fetches.replica[fetches.replica >= 0]).tolist():
            self.note(replica, fetches.us[fetches.replica == replica])
        for kind in (PRODUCE, HW_UPDATE):
            self.note(kind, facts.of_kind(kind).us)

    def note(self, who: int | str, us: Ints) -> None:
        """Note when somebody's requests came."""
        if len(us):
            self.firsts[who] = min(int(us.min()), self.firsts.get(who, NEVER))

    @property
    def us(self) -> int:
        """From when on, by the facts that were given."""
        return max([self.latest, *self.firsts.values()])


def bears_on_neighbours(facts: Facts, steady: Steady, since: int, until: int) -> bool:
    """Whether what came from `until` on, as much of it as may be new, cannot change events before `since`.

    Everybody who fetches or writes has done so in between, so that what comes later follows that. It does not reach
    back to offsets of before, nor do reads to records whose batches are left out.
    """
    if facts.settled_us(steady.epoch, steady.leader) != steady.settled_us:
        return False
    requests = facts.only(facts.kind != NONE)
    between, after = requests.during(since, until), requests.during(until)
    again = np.intersect1d(requests.during(-NEVER, since).connection, after.connection)
    fetches = facts.of_kind(FETCH)
    replicas = fetches.replica[(fetches.epoch == steady.epoch) & (fetches.replica >= 0)]
    if not (
        np.isin(again, between.connection).all()
        and np.isin(after.kind, between.kind).all()
        and np.isin(replicas, between.of_kind(FETCH).replica).all()
    ):
        return False
    before = requests.during(steady.settled_us, since)
    return no_reach_back(before, between, after) and stands_alone(facts, steady, since)


def stands_alone(facts: Facts, steady: Steady, since: int) -> bool:
    """Whether what came from `since` on needs none of the requests that are left out before it, by what came so far."""
    requests, fetches = facts.only(facts.kind != NONE), facts.of_kind(FETCH)
    return are_held(requests.during(steady.settled_us), since) and take_turns(
        fetches.only(fetches.broker == steady.leader), since - MARGIN_US
    )


def no_reach_back(before: Facts, between: Facts, after: Facts) -> bool:
    """Whether a tenure's last requests are about offsets behind those of the first, which others have reached since."""
    last = before.of_kind(PRODUCE).offset.max(initial=NONE)
    followers = before.of_kind(FETCH).only(before.of_kind(FETCH).replica >= 0)
    floor = between.of_kind(PRODUCE).offset.min(initial=NEVER) if last > NONE else followers.offset.max(initial=NONE)
    reached = between.of_kind(FETCH).only(between.of_kind(FETCH).replica >= 0).offset
    return bool(
        after.of_kind(PRODUCE).offset.min(initial=NEVER) > last
        and after.of_kind(FETCH).offset.min(initial=NEVER) >= floor
        and (not len(reached) or reached.max() > last)
    )


def take_turns(fetches: Facts, since: int) -> bool:
    """Whether a follower's connections came one after the other, as far as they were in use from `since` on.

    A follower's fetches are ordered connection by connection (`partition_facts.in_own_order`). If it used two at the
    same time, all that came on the later one is behind the last fetch on the earlier one, however much later that was.
    """
    mine = fetches.only(fetches.replica >= 0)
    by_connection = np.lexsort((mine.connection, mine.replica))
    of = np.stack([mine.replica, mine.connection])[:, by_connection]
    us, until = mine.us[by_connection], mine.until[by_connection]
    first = np.flatnonzero(np.diff(of, axis=1, prepend=NONE - 1).any(axis=0))
    replica, begin = of[0][first], np.minimum.reduceat(us, first)
    last, end = np.maximum.reduceat(us, first), np.maximum.reduceat(until, first)
    order = np.lexsort((-last, begin, replica))
    one, following = order[:-1], order[1:]
    overlap = (replica[one] == replica[following]) & (begin[following] < last[one])
    return not bool((overlap & (end[one] >= since)).any())


def are_held(of_tenure: Facts, since: int) -> bool:
    """Whether reads from shortly before `since` on are of batches whose produces are not left out."""
    reads = of_tenure.of_kind(FETCH).during(since - 2 * SPAN_US)
    produces = of_tenure.of_kind(PRODUCE)
    held = produces.during(since - MARGIN_US, since - 2 * SPAN_US)
    reached = reads.offset[reads.replica < 0].min(initial=NEVER)
    return not len(produces.us) or bool(len(held.us) and reached > held.offset.min())


def hole_of(steady: Steady, since: int) -> tuple[int, int] | None:
    """Return the time whose requests are left out if the order goes on at `since`; None: it cannot, so soon."""
    begin, end = steady.settled_us + SPAN_US, since - MARGIN_US
    return (begin, end) if begin < end and steady.settled_us + RESENT_US < since else None


def first_on_connections(facts: Facts) -> Flags:
    """Return which facts are the first on their connection."""
    found = np.zeros(len(facts.us), np.bool_)
    order = np.argsort(facts.us, kind="stable")
    found[order[np.unique(facts.connection[order], return_index=True)[1]]] = True
    return found


def extremes(facts: Facts, since: int) -> Flags:
    """Return which facts have the greatest offset of those before a moment: of batches, and of followers' fetches."""
    found = np.zeros(len(facts.us), np.bool_)
    before = facts.us < since
    for kind in (PRODUCE, FETCH):
        mine = facts.are(kind) & before & ((facts.replica >= 0) | (kind == PRODUCE))
        if mine.any():
            found[np.argmax(np.where(mine, facts.offset, -NEVER))] = True
    return found


def kept(facts: Facts, hole: tuple[int, int], firsts: Flags | None = None) -> Flags:
    """Return which facts are kept: of the hole, only the first on each connection, by which connections have an order.

    What began in it and ended behind it is kept, too. `firsts`: the first on each connection, if they are known.
    """
    left_out = (facts.kind != NONE) & (facts.us > hole[0]) & (facts.until < hole[1])
    found: Flags = ~left_out | (first_on_connections(facts) if firsts is None else firsts)
    return found
