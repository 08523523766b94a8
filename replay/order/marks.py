"""Places in a partition's order from which a later order goes on, and what has to be the same there.

Such a place is before an operation of a tenure that reaches into a window. What the merge does from there on
follows from the engine's state, and from each chain's next operation and those behind it (`merge`). So an order goes on
if it finds all these next operations again, and if everything else that is new came later than whatever was ordered
before. The events that come of decisions and roles are few; they are made again, and are compared by their digest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import ranges
from replay.arrays.digests import row_hashes, sum_of
from replay.arrays.ints import NEVER
from replay.engine.moves import new_moves
from replay.evidence.cluster_digest import digest_of
from replay.evidence.markers import Transactions, transactions_of
from replay.evidence.missing_digests import MissingUntil
from replay.evidence.request_columns import RequestColumns
from replay.evidence.request_times import phases
from replay.evidence.roles import restarts_at
from replay.evidence.steady_times import SPAN_US
from replay.order.event_rows import AT_ONCE
from replay.order.fetcher_lines import batch_starts
from replay.order.isr_joins import granted_expansions
from replay.order.isr_requests import changes_of
from replay.order.merge import follow
from replay.order.windows import BEFORE_ALL, Boundary, is_kept, starts_of, windows_of
from replay.protocol.state import NONE, copied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.event_record import EventRecord
    from replay.evidence.epochs import Leads
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure
    from replay.order.event_rows import EventRows
    from replay.order.front import OperationRecord, PieceRecord
    from replay.protocol.profile import Profile
    from replay.protocol.state import State

    Done = tuple[Records[OperationRecord], int]  # a chain, and how many of its operations have been taken

OF_REQUESTS: Final = (
    "append", "ack", "produce_refused", "fetch_read", "fetch_update", "fetch_apply", "consumer_read"
)  # fmt: skip
OF_HW_LINES: Final = "high_watermark_updated"
MARKED: Final = 4  # so many of the newest boundaries: later ones are always among them, and facts come late by little


class Mark(NamedTuple):
    """A place in the order, before the operation that reaches the window of a kept boundary."""

    place: int  # of the boundary
    since: int  # start of its window, microseconds
    seq: int  # of the operation's first event
    state: State
    brokers: tuple[int, ...]
    heads: tuple[str, ...]  # event ids, rising: the first event of each chain's next operation
    reach: int  # no operation before can have happened later, microseconds
    ground: str
    told: tuple[int, int]  # digest of the events before that come of no request
    epoch: int  # the leader epoch in which it lies,
    leader: int  # and who led
    pending: str  # digest of what later lines may say of before it: see `Ground.pending_at`


class LastFetch(NamedTuple):
    """The last fetch of a follower in a leader epoch."""

    us: int
    replica: int
    epoch: int
    leo: int  # the follower's, as next stated after it; NONE: nothing has stated it yet
    joined: tuple[int, ...]  # when it joined the ISR with it, see `granted_at`


class Ground(NamedTuple):
    """What was found out about a partition before the requests of a leader epoch are ordered.

    What is known of later epochs is not in it, nor when this one was over.
    """

    epoch: int
    leader: int
    told: str  # digest of what holds at all times
    paused: list[tuple[int, int, int]]  # when leaders stood still: broker, its last line before, its first one after
    ended: list[tuple[int, str, int]]  # connections on which a produce outlasted that: broker, name, last stamp
    opened: list[tuple[int, int]]  # when produces came whose leader epoch is uncertain, and their base offsets
    rejoined: list[tuple[int, int, int]]  # brokers that came back in that epoch: see `rejoined_in`
    lasts: list[LastFetch]  # of each follower, in that epoch and in older ones
    transactions: Transactions
    missing: MissingUntil  # of those who led up to that epoch, and on the connections on which it was fetched from

    def at(self, us: int) -> str:
        """Return a digest of what can bear upon events before a moment."""
        paused, ended = (one for one in self.paused if one[1] < us), (one for one in self.ended if one[2] < us)
        opened, rejoined = (one for one in self.opened if one[0] < us), (one for one in self.rejoined if one[0] < us)
        stopped = (one for one in self.lasts if one.us < us)  # followers that have not fetched since
        return digest_of([self.told, *map(sorted, (paused, ended, opened, rejoined, stopped))])

    def pending_at(self, us: int) -> str:
        """Return a digest of what later lines may say of before a moment.

        That is which lines are known to be missing up to shortly behind it, and how transactions of before it ended.
        """
        return digest_of([self.missing.before(us + SPAN_US), sorted(self.transactions.at(us, self.epoch))])

    def is_awake_at(self, us: int) -> bool:
        """Whether the leader did not stand still at a moment, nor shortly before."""
        own = ((before, after) for broker, before, after in self.paused if broker == self.leader)
        return not any(before < us <= after + SPAN_US for before, after in own)


def ground_of(facts: PartitionFacts, epoch: int, transactions: Transactions | None = None) -> Ground | None:
    """Return what was found out up to a leader epoch. `transactions`: the partition's, if they are known.

    None: there is no such epoch, nobody led in it, or requests in it bear upon more than their neighbours.
    """
    tenure = next((one for one in facts.tenures if one.epoch == epoch), None)
    if tenure is None or tenure.leader < 0:
        return None
    if not facts.profile_in(tenure.epoch, tenure.leader).session_keeps_epoch:
        return None
    led = {one.epoch: one.leader for one in facts.tenures if one.epoch <= tenure.epoch}
    leaders = {*led.values()}
    connections = connections_of(facts.by_kind["fetch"]) if facts.missing.cuts else []  # mostly there are none
    starts, spoken = up_to(facts.starts, tenure.epoch), up_to(facts.spoken, tenure.epoch)
    began = [batch_starts(facts, tenure, replica) for replica in sorted(facts.followers(tenure))]
    stated = (facts.versions, facts.kafka_version, facts.inter_broker_protocol, spoken, facts.settings)
    known = (facts.lag_us, facts.min_insync_replicas, facts.remote_storage, facts.own_logs, facts.begins)
    quotas = sorted(facts.throttled)  # whether any list ever named the partition counts at all times
    return Ground(
        tenure.epoch,
        tenure.leader,
        digest_of([facts.key, led, leads_up_to(facts.leads, tenure.epoch), starts, began, quotas, *stated, *known]),
        [(one, *span) for one, spans in facts.standstills.items() if one in leaders for span in spans],
        [(*key, us) for key, us in facts.connection_ends.items() if key[0] in leaders],
        facts.opened,
        rejoined_in(facts, tenure),
        last_fetches(facts, tenure),
        transactions or transactions_in(facts),
        MissingUntil(facts.missing, leaders, connections),
    )


def connections_of(requests: Sequence[Row]) -> list[tuple[int, str]]:
    """Return on which connections requests came."""
    if not requests:
        return []
    told = requests[0].columns.table.select(["broker_id", "connection"]).group_by(["broker_id", "connection"])
    return [(row["broker_id"], row["connection"] or "") for row in told.aggregate([]).to_pylist()]


def rejoined_in(facts: PartitionFacts, tenure: Tenure) -> list[tuple[int, int, int]]:
    """Return which followers came back within a leader epoch: since when that matters, who, and with which log.

    It decides how changes of the follower's connection around it are understood (`PartitionFacts.all_next_known`).
    """
    found = []
    for (replica, epoch), rows in facts.rejoins.items():
        if epoch == tenure.epoch and rows:
            fetches = [fetch.row for fetch in facts.fetches_of(replica, tenure)]
            changed = np.flatnonzero(np.diff(RequestColumns(fetches).connections)).tolist()
            for load, places in restarts_at(rows, fetches, changed):
                since = min((phases(fetches[k + 1]).taken for k in places), default=NEVER)
                found.append((since, replica, NONE if load["offset"] is None else load["offset"]))
    return found


def last_fetches(facts: PartitionFacts, tenure: Tenure) -> list[LastFetch]:
    """Return each follower's last fetch in a leader epoch, and in each older one, with what later facts may say of it.

    That is the LEO that is next stated, by its next fetch when it is back, or by a line about its log; in the epoch
    itself also by what was acknowledged with acks=all (in older ones, batches that tell of that may be left out). And
    of a run of fetches that are not listed, whether the leader let it join the ISR with one of them.
    """
    found = []
    for one in (one for one in facts.tenures if one.epoch <= tenure.epoch):
        for replica in sorted(facts.followers(one)):
            fetches = facts.fetches_of(replica, one)
            if not fetches:
                continue
            row, after = fetches[-1].row, fetches[-1].after
            if one.epoch < tenure.epoch:
                sequence = facts.sequence_of(replica)
                place = bisect_right(sequence, one.epoch, key=lambda fetch: fetch.row["current_leader_epoch"])
                after = facts.next_stated(replica, row, sequence[place].row if place < len(sequence) else None)
            joined = granted_at(facts, one, replica, len(fetches) - 1)
            found.append(LastFetch(phases(row).taken, replica, one.epoch, NONE if after is None else after, joined))
    return found


def granted_at(facts: PartitionFacts, tenure: Tenure, replica: int, place: int) -> tuple[int, ...]:
    """Return when a follower joined the ISR by a run of its fetches, as far as only decisions tell."""
    if facts.fetches_of(replica, tenure)[place].row["run_until"] is None:
        return ()
    asked = [change for change in changes_of(facts, tenure) if not change.shrinks]
    granted = granted_expansions(facts, tenure, asked)
    return tuple(sorted(change.us for at, change in granted if (change.replica, at) == (replica, place)))


def grounds_of(facts: PartitionFacts) -> dict[int, Ground]:
    """Return the same of each of the newest leader epochs, as far as there is such a ground."""
    told = transactions_in(facts)
    found = ((tenure.epoch, ground_of(facts, tenure.epoch, told)) for tenure in facts.tenures[-MARKED:])
    return {epoch: ground for epoch, ground in found if ground is not None}


def transactions_in(facts: PartitionFacts) -> Transactions:
    """Return the transactions of a partition."""
    return transactions_of(facts.by_kind["produce"], facts.places, facts.outcomes, facts.producers)


def up_to(told: dict[int, Any], epoch: int) -> dict[int, Any]:
    """Return what is told of leader epochs up to one."""
    return {one: of for one, of in told.items() if one <= epoch}


def leads_up_to(leads: Leads, epoch: int) -> list[Any]:
    """Return who led when, up to a leader epoch, as far as later ones have no part in it."""
    spans = {
        broker: [span._replace(until=NEVER) for span in mine if span.epoch <= epoch]
        for broker, mine in leads.spans.items()
    }
    rising = {broker: leads.rising[broker][: len(mine)] for broker, mine in spans.items() if mine}
    led = {broker: mine for broker, mine in spans.items() if mine}
    unknown = {one for one in leads.unknown if one <= epoch}
    apart = ({b: leads.back[b] for b in led}, leads.off & {*led}, unknown)
    return [led, rising, *apart, up_to(leads.starts, epoch), up_to(leads.low, epoch), up_to(leads.leaders, epoch)]


class Merged(NamedTuple):
    """A tenure's operations in order, or those of them behind the place where the order went on."""

    rows: EventRows
    begin: int  # seq of the first event
    chains: list[Records[OperationRecord]]
    pieces: Records[PieceRecord]  # of all chains, in order
    before: Flags | int  # which rows come before all of them, or how many: the first ones
    state: State  # before them
    profile: Profile
    reach: int  # no operation before can have happened later
    ground: Ground
    apart: Ints | None  # `Markers.parted`

    @property
    def end(self) -> int:
        """The seq behind the last event."""
        return self.begin + int(self.pieces["count"].sum())

    def is_parted_at(self, us: int) -> bool:
        """Whether transaction markers of before a moment and behind it do not bear on each other."""
        if self.apart is None:
            return True
        k = int(np.searchsorted(self.apart, us))
        return k > 0 and bool(self.apart[k - 1] >= us - SPAN_US)

    def told_before(self, count: int) -> tuple[int, int]:
        """Return the digest of the events that come of no request, before the piece number `count`."""
        before = np.arange(len(self.rows)) < self.before if isinstance(self.before, int) else self.before.copy()
        before[ranges(self.pieces["first"][:count], self.pieces["count"][:count])] = True
        return told_sum(self.rows, before)

    def is_whole_at(self, count: int) -> bool:
        """Whether no operation has been taken in part, after so many pieces."""
        taken = self.pieces[:count]
        last = np.unique(taken["chain"][::-1], return_index=True)[1]
        return bool(taken["whole"][::-1][last].all())

    def done_at(self, count: int) -> list[Done]:
        """Return each chain, and how many of its operations have been taken as a whole, after so many pieces."""
        done = Counter(self.pieces["chain"][:count][self.pieces["whole"][:count] == 1].tolist())
        return [(one, done[int(one["chain"][0])]) for one in self.chains]

    def heads_of(self, done: Sequence[Done], until: int) -> tuple[str, ...]:
        """Return the names of each chain's next operation, but for those from `until` on."""
        heads = [int(one["first"][k]) for one, k in done if k < len(one) and one["lo"][k] < until]
        return tuple(sorted(names_of(self.rows, np.array(heads, np.int64))))


def are_dated(done: Sequence[Done]) -> bool:
    """Whether each chain's next operation has times that the one before does not change."""
    return all(
        min(int(one["est"][k]), int(one["hi"][k])) >= int(one["lo"][k - 1]) for one, k in done if 0 < k < len(one)
    )


def are_timely(done: Sequence[Done], us: int) -> bool:
    """Whether no operation that is left is of long before a moment: requests of then may be left out."""
    return all(int(one["hi"][k:].min()) >= us - SPAN_US for one, k in done if k < len(one))


def names_of(rows: EventRows, numbers: Ints) -> list[str]:
    """Return the event ids of some rows."""
    found: list[str] = rows.take(numbers)["event_id"].to_pylist()
    return found


def told_sum(rows: EventRows, which: Flags) -> tuple[int, int]:
    """Return the digest of those of some rows that come of no request, in whatever order."""
    sums = np.zeros(2, np.uint64)
    for part, numbers in zip(rows.parts, rows.places, strict=True):
        mine = part.filter(pa.array(which[numbers]))
        of_requests = pc.is_in(mine["kind"], pa.array(OF_REQUESTS))
        if "cause" in mine.column_names:
            of_requests = pc.or_(of_requests, pc.coalesce(pc.equal(mine["cause"], OF_HW_LINES), pa.scalar(value=False)))
        sums += np.array(sum_of(row_hashes(mine.filter(pc.invert(of_requests)))), np.uint64)
    return int(sums[0]), int(sums[1])


def behind(
    mark: Mark, rows: EventRows, chains: list[Records[OperationRecord]]
) -> list[Records[OperationRecord]] | None:
    """Return what each chain has from the mark on; None: it cannot be told, or something new belongs before it."""
    out: list[Records[OperationRecord]] = []
    found: set[str] = set()
    for chain in chains:
        names = names_of(rows, chain["first"])
        later = chain["lo"] > mark.reach
        k = next((k for k, name in enumerate(names) if name in mark.heads), None)
        if k is None:  # all that it had lies before the mark, or it is new
            k = int(np.argmax(later)) if later.any() else len(chain)
            if not later[k:].all():
                return None
        else:
            found.add(names[k])
        if later[:k].any():
            return None
        out.append(chain[k:])
    return [one for one in out if len(one)] if found == {*mark.heads} else None


def marks_of(
    tenures: Sequence[Merged],
    events: Records[EventRecord],
    order: tuple[Ints, int],
    brokers: tuple[int, ...],
    grid: tuple[Grid, int],
) -> list[Mark]:
    """Return the marks of the newest boundaries that are kept.

    `order`: of the rows from a seq on, and that seq. `grid`: the windows, and from which of these rows on.
    """
    windows, begin = grid
    boundaries = windows.boundaries(events["ts"][order[0][begin:]])
    last = boundaries[-1].place if boundaries else 0
    held = [one for one in boundaries if is_kept(one.place, last) and one.place > 0][-MARKED:]
    out: list[Mark] = []
    for merged in tenures:
        mine = [one for one in held if merged.begin < one.seq < merged.end]
        first = merged.begin - order[1]
        some = order[0][first : merged.end - order[1]]
        out += marks_in(merged, events, some, brokers, mine, windows.until) if mine else []
    return out


def marks_in(
    merged: Merged,
    events: Records[EventRecord],
    order: Ints,
    brokers: tuple[int, ...],
    held: Sequence[Boundary],
    until: int,
) -> list[Mark]:
    """Return the marks of some boundaries that lie in a tenure. `order`: of its rows."""
    begins = np.cumsum(merged.pieces["count"]) - merged.pieces["count"]
    ground = merged.ground
    out: list[Mark] = []
    state, done, moves = copied(merged.state), 0, new_moves()
    for one in held:
        count = int(np.searchsorted(begins, one.seq - merged.begin, side="right")) - 1
        if count < 1 or not merged.is_whole_at(count):
            continue
        taken = merged.done_at(count)
        are_apart = ground.is_awake_at(one.window) and merged.is_parted_at(one.window)
        if not (are_apart and are_dated(taken) and are_timely(taken, one.window)):
            continue
        at = int(begins[count])
        for first in range(done, at, AT_ONCE):
            some = order[first : min(first + AT_ONCE, at)]
            follow(state, merged.profile, events[some], (0, len(some), 0), moves)
        done = at
        reach = max(merged.reach, int(merged.pieces["hi"][:count].max()))
        seq, heads, told = merged.begin + at, merged.heads_of(taken, until), merged.told_before(count)
        of = ground.at(one.window), told, ground.epoch, ground.leader, ground.pending_at(one.window)
        out.append(Mark(one.place, one.window, seq, copied(state), brokers, heads, reach, *of))
    return out


class Grid(NamedTuple):
    """Windows of one length, from an event on."""

    length_us: int
    newest: int = BEFORE_ALL  # the window of the event before
    place: int = 0  # of the next boundary
    seq: int = 0  # of the first event
    until: int = NEVER  # windows that begin then or later are not looked at

    @classmethod
    def at(cls, length_us: int, boundary: Boundary) -> Grid:
        """Return those from a boundary on, which is the first of them."""
        return cls(length_us, boundary.window - 1, boundary.place, boundary.seq)

    def boundaries(self, us: Ints) -> list[Boundary]:
        """Return where windows begin, without digests, of events at these times."""
        window = windows_of(us, self.length_us, self.newest)
        begins = starts_of(window, None if self.newest == BEFORE_ALL else self.newest)
        begins = begins[window[begins] < self.until].tolist()
        return [Boundary(self.place + k, int(window[begin]), self.seq + begin, "") for k, begin in enumerate(begins)]

    def since(self, us: Ints, seq: int) -> Grid:
        """Return the same windows from a later event on, by the times of the events up to there."""
        before = [one for one in self.boundaries(us) if one.seq < seq]
        newest, place = (before[-1].window, before[-1].place + 1) if before else (self.newest, self.place)
        return Grid(self.length_us, newest, place, seq)
