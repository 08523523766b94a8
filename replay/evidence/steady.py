"""Which facts of a long partition an order that goes on can do without: requests in the middle of a steady time.

In a steady time (`steady_times`) nobody takes up a role, loads or truncates a log, and all that comes are requests
without an error, of one leader epoch. What was decided, and who had which role, then follows from the facts around it,
and a request bears only upon its neighbours: the next one of its sender, the next base offset, and what was under way
at the same time. So requests in the middle of such a time can be left out, if they lie well before the place where the
order goes on. What is asked here makes sure of that; see docs/decisions/0014.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers, numbers_of, texts
from replay.arrays.digests import row_hashes, sum_of
from replay.arrays.ints import NEVER
from replay.engine.codes import CONSUMER
from replay.evidence.choices import Choice
from replay.evidence.markers import ADDED
from replay.evidence.session_lines import LEFT_OUT
from replay.evidence.steady_times import MARGIN_US, SPAN_US, Hole, Series, SteadyTime, series_of, steady_times
from replay.protocol.state import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replay.arrays.digests import Hashes
    from replay.arrays.ints import Flags, Ints

# Frequent facts, most of which can be left out; of transactions, their markers are told from partitions that are added.
FETCH, PRODUCE, HW_UPDATE, MARKER, ADDITION = BULK = ("fetch", "produce", "hw_update", "marker", "addition")
TRANSACTION: Final = "transaction"
ADDITIONS: Final = Choice(kinds=(TRANSACTION,), names=(ADDED,))
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
# Questions where an epoch ends, as consumers ask them when they start and after an election: nothing follows from them.
ASIDE: Final = ("epoch_end_offset",)
# Requests of a session without a partition that it had, the first of which ends a steady time, as the follower fetches
# no more. They go on for as long as the session if the leader has moved. Events come of them under a quota alone.
WITHOUT: Final = (LEFT_OUT,)
# What these say depends on more than their neighbours: TRACE lines.
BARRED: Final = ("log_append", "remote_leo_update")
# Offsets that a checkpoint states, at an unknown time: only a partition's last events have them, those of its dumps.
OF_THE_END: Final = Choice(kinds=("checkpoint",), empty=("ts", "leader_epoch"))
UNKNOWN: Final = -2  # a fetch that names no replica; a consumer names -1
OTHERS: Final = -10  # less a kind's place: as the sender of that kind's requests


FACT_COLUMNS: Final = (  # those that `facts_of` reads
    "kind", "ts", "total_us", "run_until", "broker_id", "replica_id", "connection", "base_offset", "fetch_offset",
    "current_leader_epoch", "last_fetched_epoch", "preferred_read_replica", "error_code", "diverging_epoch",
    "forgotten", "transactional_id", "leader_epoch", "name", "producer_id",
)  # fmt: skip


class Sums(NamedTuple):
    """The digest of the facts before a moment, but for those `decided`: of them, the events tell."""

    us: int
    facts: tuple[int, int]


class Alone(NamedTuple):
    """A moment behind which an order needs none of the requests in the middle of steady times before it."""

    since: int
    settled_us: int  # of the steady time in which it lies
    holes: tuple[Hole, ...]  # in order, without any the last of which is that time's


class LeftOut(NamedTuple):
    """Requests of a partition that are not read again: what they add to digests."""

    since: int  # an order that goes on at this moment, or later, can do without them
    holes: tuple[Hole, ...]  # in which they lie
    facts: int  # how many
    sums: tuple[int, int]
    mark: Mapping[str, Any] | None = None  # what stands at `since`, as a row of `event_windows`
    behind: Mapping[str, Any] | None = None  # likewise the next mark, if none stands behind it any more


class NeedsAllError(Exception):
    """A partition has to be ordered as a whole, and not all of its facts were given."""


class Facts(NamedTuple):
    """A partition's facts as columns, as far as it has to be known which of them can be left out."""

    hashes: Hashes
    kind: Ints  # place in BULK; NONE: another kind
    decided: Flags  # of a kind in DECIDED or WITHOUT, or `OF_THE_END`
    without: Flags  # of a kind in WITHOUT
    # Of a kind in ASIDE, an addition, or a consumer's that leaves the partition out: such a fact says nothing of who
    # leads, nor of anybody's next request.
    aside: Flags
    odd: Flags  # no request of a steady time, whichever it is
    us: Ints  # when a request arrived, or the line's stamp; -NEVER: no stamp
    until: Ints  # when a request, or the last of a run, was answered
    broker: Ints
    replica: Ints
    epoch: Ints  # leader epoch that a fetch names; NONE: none
    last_epoch: Ints  # of the last record that a fetcher had
    offset: Ints  # of a fetch, or the base offset of a batch
    connection: Ints
    who: Ints  # of whom the last one is kept: a follower, a transactional id's digest, a producer id; NONE: nobody

    def only(self, which: Flags | Ints) -> Facts:
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

    def near(self, since: int, holes: Sequence[Hole]) -> Facts:  # noqa: ARG002 - of facts in files, these are read
        """Those that bear on whether an order can go on at `since`, without the requests in holes: all."""
        return self

    def sums(self, us: int) -> Sums:
        """The digest of those before a moment."""
        return Sums(us, sum_of(self.hashes[~self.decided & (self.us < us)]))

    def series(self) -> list[Series]:
        """Which requests of a leader epoch follow each other, by these facts."""
        is_fetch, by_replica = self.are(FETCH), self.replica >= 0
        of_none = (by_replica & (self.epoch < 0)) | (
            by_replica & (self.last_epoch >= 0) & (self.last_epoch < self.epoch)
        )
        plain = (self.kind != NONE) & ~self.odd & ~(is_fetch & of_none)
        which = (~self.decided | self.without) & ~self.aside & (self.us > -NEVER)
        leader = np.where(plain, self.broker, NONE)[which]
        epoch = np.where(plain & is_fetch & (self.epoch >= 0), self.epoch, NONE)[which]
        sender = np.where(is_fetch, np.where(by_replica, self.replica, NONE), OTHERS - self.kind)[which]
        until = np.where(self.without, self.us, self.until)
        return series_of(self.us[which], until[which], leader, epoch, sender)

    @property
    def times(self) -> list[SteadyTime]:
        """When the partition was steady; these are all of its facts."""
        return steady_times(self.series())


def facts_of(table: pa.Table, hashes: Hashes) -> Facts | None:
    """Return facts as columns, with these hashes; None: there are some that bar an order from going on."""
    bulk = (FETCH, PRODUCE, HW_UPDATE, TRANSACTION)
    kinds, place = table["kind"].unique(), pa.array([*bulk, *DECIDED, *WITHOUT, *ASIDE])
    if pc.any(pc.is_in(kinds, pa.array(BARRED))).as_py():
        return None

    def column(name: str, missing: int = NONE) -> Ints:
        return numbers_of(table, name, missing)

    code = numbers(pc.index_in(table["kind"], place), NONE)
    ends = np.cumsum([len(bulk), len(DECIDED), len(WITHOUT)])
    decided, without, aside = (np.searchsorted(ends, code, "right") == group for group in (1, 2, 3))
    kind = np.where(code < len(bulk), code, NONE)
    is_last = OF_THE_END.mask(table).to_numpy(zero_copy_only=False).astype(bool)
    if (kind == BULK.index(MARKER)).any():
        kind[ADDITIONS.mask(table).to_numpy(zero_copy_only=False).astype(bool)] = BULK.index(ADDITION)
    stamp, total, replica = column("ts", -NEVER), column("total_us", 0), column("replica_id", UNKNOWN)
    offset = np.where(kind == BULK.index(PRODUCE), column("base_offset"), column("fetch_offset"))
    error = column("error_code", 0) != 0
    is_fetch, forgets = kind == BULK.index(FETCH), column("forgotten", 0) != 0
    leaves = is_fetch & forgets & (replica == CONSUMER) & ~error
    failed = error | (column("diverging_epoch") != NONE) | (forgets & ~leaves)
    unknown = (is_fetch | (kind == BULK.index(PRODUCE))) & ((offset < 0) | (is_fetch & (replica == UNKNOWN))) & ~leaves
    elsewhere = column("preferred_read_replica") >= 0
    return Facts(
        hashes=hashes,
        kind=kind,
        decided=decided | without | is_last,
        without=without,
        aside=aside | (kind == BULK.index(ADDITION)) | leaves,
        odd=(kind != NONE) & (failed | unknown | elsewhere | (total > SPAN_US)),
        us=np.where(stamp == -NEVER, stamp, stamp - total),
        until=np.maximum(stamp, column("run_until", -NEVER)),
        broker=column("broker_id"),
        replica=replica,
        epoch=column("current_leader_epoch"),
        last_epoch=column("last_fetched_epoch"),
        offset=offset,
        connection=connections(table),
        who=whose(table, kind, replica, error),
    )


def whose(table: pa.Table, kind: Ints, replica: Ints, failed: Flags) -> Ints:
    """Return who sent a follower's fetch, a batch of a transaction, or what is said of a transaction; NONE: others."""
    found = np.where((kind == BULK.index(FETCH)) & (replica >= 0), replica, NONE)
    if "transactional_id" in table.column_names and table["transactional_id"].null_count < len(table):
        name = table.select(["transactional_id"])
        is_named = pc.greater(pc.fill_null(pc.binary_length(name[0]), 0), 0).to_numpy().astype(bool)
        is_named &= kind == BULK.index(PRODUCE)
        found[is_named] = row_hashes(name.filter(pa.array(is_named))).view(np.int64)
    of_producer = (kind == BULK.index(MARKER)) | ((kind == BULK.index(ADDITION)) & ~failed)
    return np.where(of_producer, numbers_of(table, "producer_id", NONE), found)


def connections(table: pa.Table) -> Ints:
    """Return a number for each connection of a broker."""
    if "connection" not in table.column_names:
        return np.full(len(table), NONE, np.int64)
    place, names = texts(table["connection"])
    return place + len(names) * numbers(table["broker_id"], NONE)


def bears_on_neighbours(facts: Facts, time: SteadyTime, since: int, until: int) -> bool:
    """Whether what came from `until` on, as much of it as may be new, cannot change events before `since`.

    Everybody who fetches or writes from `until` on has also done so between `since` and `until`, so that what is new
    follows that. It does not reach back to offsets of before, nor do reads to records whose batches are left out.
    `time`: in which `since` lies. Once it is over, the next leader may state how far the log had come: only a follower
    or a writer told of that before. What is said later of a follower that has not fetched since then is compared when
    the order goes on (`marks.last_fetches`).
    """
    requests = facts.only((facts.kind != NONE) & ~facts.aside)
    between, after = requests.during(since, until), requests.during(until)
    if time.until_us < NEVER and not ((between.replica >= 0) | between.are(PRODUCE)).any():
        return False
    again = np.intersect1d(requests.during(-NEVER, since).connection, after.connection)
    fetches = facts.of_kind(FETCH)
    are_mine = fetches.broker == time.leader if time.epoch == NONE else fetches.epoch == time.epoch
    replicas = fetches.replica[are_mine & (fetches.replica >= 0) & (fetches.us >= until)]
    if not (
        np.isin(again, between.connection).all()
        and np.isin(after.kind, between.kind).all()
        and np.isin(replicas, between.of_kind(FETCH).replica).all()
    ):
        return False
    before, stated = requests.during(time.settled_us, since), after.only(after.offset >= 0)
    return no_reach_back(before, between, stated) and stands_alone(facts, time.leader, time.settled_us, since)


def may_have_a_mark(facts: Facts, us: int) -> bool:
    """Whether there may be a mark at a moment: among transactions only shortly behind a batch (`Markers.parted`).

    Where only a coordinator writes, no batch is known, and no marker has a place.
    """
    produces = facts.of_kind(PRODUCE)
    return not facts.are(MARKER).any() or not len(produces.us) or len(produces.during(us - SPAN_US, us).us) > 0


def open_spans(who: Ints, us: Ints, ends: Flags) -> tuple[Ints, Ints]:
    """Return when transactions began that were ended, and when they were, by columns of additions and markers.

    `who`: the producer's id; `ends`: which of them are markers.
    """
    order = np.lexsort((us, who))
    who, us, ends = who[order], us[order], ends[order]
    is_first = np.append(True, who[1:] != who[:-1])[: len(who)]
    is_behind_an_end = is_first | np.append(True, ends[:-1])[: len(who)]
    begins = np.maximum.accumulate(np.where(~ends & is_behind_an_end, np.arange(len(who)), 0))
    closing = np.flatnonzero(ends & ~is_behind_an_end)
    return us[begins[closing]], us[closing]


def stands_alone(facts: Facts, leader: int, settled_us: int, since: int) -> bool:
    """Whether what came from `since` on needs none of the requests that are left out before it, by what came so far.

    `leader`, `settled_us`: of the steady time in which it lies.
    """
    fetches = facts.of_kind(FETCH)
    mine = fetches.only(fetches.broker == leader)
    return are_held(facts, settled_us, since) and take_turns(mine, since - MARGIN_US)


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


def are_held(facts: Facts, settled_us: int, since: int) -> bool:
    """Whether reads from shortly before `since` on are of batches whose produces are not left out.

    Those are the ones that came shortly before. If nobody wrote then, though somebody had, what is read was left out.
    """
    produces, begin = facts.of_kind(PRODUCE), since - 2 * SPAN_US
    if not len(produces.during(-NEVER, begin).us):
        return True
    reads = facts.only(facts.are(FETCH) & ~facts.aside).during(begin)
    reached = reads.offset[reads.replica < 0].min(initial=NEVER)
    held = produces.during(max(settled_us, since - MARGIN_US), begin)
    return bool(reached == NEVER or (len(held.us) and reached > held.offset.min()))


def first_on_connections(facts: Facts) -> Flags:
    """Return which requests are the first on their connection, of those that bear upon others."""
    found = np.zeros(len(facts.us), np.bool_)
    mine = np.flatnonzero((facts.kind != NONE) & ~facts.aside)
    order = mine[np.argsort(facts.us[mine], kind="stable")]
    found[order[np.unique(facts.connection[order], return_index=True)[1]]] = True
    return found


def are_last(facts: Facts) -> Flags:
    """Return which facts are the last of their kind of those that they are kept of (`Facts.who`)."""
    found = np.zeros(len(facts.us), np.bool_)
    mine = np.flatnonzero((facts.kind != NONE) & (facts.who != NONE))
    if not len(mine):
        return found
    order = mine[np.lexsort((facts.us[mine], facts.who[mine], facts.kind[mine]))]
    kind, who, us = facts.kind[order], facts.who[order], facts.us[order]
    begins = np.flatnonzero((np.diff(kind, prepend=NONE) != 0) | (np.append(True, who[1:] != who[:-1])))
    last = us[np.append(begins[1:], len(us)) - 1]
    found[order] = us == np.repeat(last, np.diff(begins, append=len(us)))
    return found


def lasts_of(facts: Facts) -> dict[tuple[int, int], int]:
    """Return when these came, by kind and by whom."""
    mine = facts.only(are_last(facts))
    return dict(zip(zip(mine.kind.tolist(), mine.who.tolist(), strict=True), mine.us.tolist(), strict=True))


def extremes(facts: Facts, since: int) -> Flags:
    """Return which facts have the greatest offset of those before a moment: of batches, and of followers' fetches."""
    found = np.zeros(len(facts.us), np.bool_)
    before = facts.us < since
    for kind in (PRODUCE, FETCH):
        mine = facts.are(kind) & before & ((facts.replica >= 0) | (kind == PRODUCE))
        if mine.any():
            found[np.argmax(np.where(mine, facts.offset, -NEVER))] = True
    return found


def kept(facts: Facts, holes: Sequence[Hole], firsts: Flags | None = None) -> Flags:
    """Return which facts are kept: of holes, the first on each connection, and the last of each follower and producer.

    By the first of them connections have an order; a follower that stopped is known by its last fetch, and a
    transaction that is open by its last batch. What began in a hole and ended behind it is kept, too. `firsts`: the
    first on each connection, if they are known.
    """
    left_out = np.zeros(len(facts.us), np.bool_)
    lasts = np.zeros(len(facts.us), np.bool_)
    first, last = facts.us.min(initial=NEVER), facts.until.max(initial=-NEVER)
    for hole in holes:
        if last <= hole.begin or first >= hole.end:
            continue
        within = np.flatnonzero((facts.kind != NONE) & (facts.us > hole.begin) & (facts.until < hole.end))
        left_out[within] = True
        lasts[within] |= are_last(facts.only(within))
    found: Flags = ~left_out | lasts | (first_on_connections(facts) if firsts is None else firsts)
    return found
