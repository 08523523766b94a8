"""Which leader epoch an event on a broker belongs to, and at which offset each leader epoch starts.

The reliable evidence decides first: the broker's own lines about its roles, the epochs under which fetches were served,
and offsets, since the records of an epoch lie between its start and the start of the next leader's epoch. All times are
on that one broker's clock. The controller's clock is used only if more than one epoch remains possible, and only while
no line of the broker contradicts it. If doubt remains after that, the result says so (`sure`), and nothing that depends
on it counts as certain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replay.arrays.ints import NEVER
from replay.engine.stamps import STAMP_EARLY_US, STAMP_LATE_US
from replay.evidence.request_columns import RequestColumns, places_by
from replay.evidence.roles import moment
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.evidence.request_times import Phases
    from replay.evidence.roles import RoleKey
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

Starts = dict[int, tuple[int, str]]  # by leader epoch: offset, evidence
ALWAYS = -NEVER
STEP_US = 500_000  # lines of two threads may be swapped by less; a larger step back: the clock was set


class LeaderSpan(NamedTuple):
    """A leader epoch on the broker that leads it, by that broker's clock."""

    epoch: int
    earliest: int  # it cannot have begun earlier
    since: int  # best estimate of its beginning
    surely: int  # it had begun by then
    until: int  # it had ended by then
    told: bool  # whether the broker's own line states the beginning
    decided: bool  # whether at least the controller states it


class Place(NamedTuple):
    """The leader epoch that something belongs to."""

    epoch: int | None  # None: to no known one
    sure: bool


NOWHERE = Place(None, sure=False)


def was_accepted(row: Row) -> bool:
    """Whether the leader accepted the fetch offset as a position in its log."""
    return not row["error_code"] and row["diverging_epoch"] is None


def served_times(fetches: Sequence[Row], leaders: dict[int, int]) -> dict[tuple[int, int], tuple[int, int]]:
    """(broker, epoch) -> first and last time it took up a fetch that named the epoch it led and succeeded.

    Up to 2.4 a session does not keep the epoch that was named (KAFKA-9338), so the epoch may be over while fetches of
    the session go on. The last time is therefore taken only from sessionless and full fetches.
    """
    out: dict[tuple[int, int], tuple[int, int]] = {}
    told = RequestColumns(fetches)
    broker, epoch = told.stated("broker_id"), told.stated("current_leader_epoch")
    which = np.flatnonzero(told.without_error & (epoch >= 0))
    at, is_named = told.at.taken[which], told.stated("session_epoch", 0)[which] <= 0
    for (one, led), places in places_by(broker[which], epoch[which]):
        if leaders.get(led) == one:
            first = int(at[places[0]])
            last = at[places[is_named[places]]].max(initial=first)
            out[one, led] = (int(at[places].min()), int(last))
    return out


@dataclass(slots=True)
class Leads:
    """Which leader epochs each broker led, by its own clock, and the offsets that tell these epochs apart."""

    spans: dict[int, list[LeaderSpan]] = field(default_factory=dict)  # by broker, in the order of epochs
    rising: dict[int, list[int]] = field(default_factory=dict)  # by broker, its spans' beginnings, made to rise
    back: dict[int, int] = field(default_factory=dict)  # how far a broker's clock was set back, as far as that shows
    off: set[int] = field(default_factory=set)  # brokers whose clock and the controller's contradict each other
    unknown: set[int] = field(default_factory=set)  # epochs before which their leader may have led unknown epochs
    starts: Starts = field(default_factory=dict)
    low: dict[int, int] = field(default_factory=dict)  # lower bound of an epoch's start
    follows: dict[int, int] = field(default_factory=dict)  # the next epoch that has a leader
    leaders: dict[int, int] = field(default_factory=dict)

    def epoch_at(self, broker: int, us: int) -> int | None:
        """Leader epoch in which `broker` served a request at `us` of its clock; None if it led no known one.

        A later known epoch never stands in for an unknown one.
        """
        spans = self.spans.get(broker)
        if not spans:
            return None
        k = bisect_right(self.rising[broker], us + STAMP_EARLY_US) - 1
        if k < 0:
            return None if spans[0].told or spans[0].epoch in self.unknown else spans[0].epoch
        return spans[k].epoch

    def place_of(self, broker: int, at: Phases, base: int | None) -> Place:
        """The epoch in which `broker` handled a produce that was answered with `base`."""
        spans = self.spans.get(broker)
        if not spans:
            return NOWHERE
        back = self.back.get(broker, 0)
        first, last = at.taken - STAMP_LATE_US - back, at.local + STAMP_EARLY_US + back
        k = bisect_right(self.rising[broker], at.local + STAMP_EARLY_US) - 1
        by_clock = spans[k] if k >= 0 else None
        alone = k + 1 == len(spans) or last < spans[k + 1].earliest
        if by_clock is not None and by_clock.surely <= first and last <= by_clock.until and alone:
            return Place(by_clock.epoch, sure=True)
        open_to = [one for one in spans if one.earliest <= last and first <= one.until]
        unknown = by_clock is None and any(one.epoch in self.unknown for one in open_to or spans)
        if len(open_to) == 1 and not unknown:
            return Place(open_to[0].epoch, sure=True)
        compared = bool(open_to) and not back and broker not in self.off  # comparable clocks: nothing contradicts them
        compared = compared and all(one.decided for one in open_to)
        if by_clock is None:
            fitting = [one for one in open_to if self.fits(one.epoch, base)]
            return Place(fitting[0].epoch, sure=not unknown) if len(fitting) == 1 else NOWHERE
        if not self.begins_by(by_clock.epoch, base):  # appended earlier, or the answer to a retry
            others = [one for one in open_to if one.epoch < by_clock.epoch and self.begins_by(one.epoch, base)][-1:]
        elif not compared and self.is_beyond(by_clock.epoch, base):  # a tail the next leader lacked, or a later append
            others = [one for one in open_to if one.epoch > by_clock.epoch and self.fits(one.epoch, base)]
        else:
            others = []
        if len(others) == 1:
            passed = self.is_passed_on(by_clock.epoch, others[0].epoch)
            return Place(others[0].epoch, sure=not passed or self.fits(min(by_clock, others[0]).epoch, base))
        alone = by_clock in open_to and not any(self.fits(one.epoch, base) for one in open_to if one != by_clock)
        return Place(by_clock.epoch, sure=not others and (compared or (bool(open_to) and (by_clock.told or alone))))

    def begins_by(self, epoch: int, base: int | None) -> bool:
        """Whether an epoch may have begun at or below that offset."""
        start = self.starts.get(epoch)
        return base is None or base < 0 or base >= (start[0] if start is not None else self.low.get(epoch, 0))

    def is_beyond(self, epoch: int, base: int | None) -> bool:
        """Whether the next leader began at or below that offset, as far as its start is known."""
        end = self.starts.get(self.follows.get(epoch, -1))
        return base is not None and end is not None and base >= end[0]

    def fits(self, epoch: int, base: int | None) -> bool:
        """Whether an offset lies between the start of an epoch and the start of the next, as far as they are known."""
        return self.begins_by(epoch, base) and not self.is_beyond(epoch, base)

    def is_passed_on(self, epoch: int, later: int) -> bool:
        """Whether another broker led between two epochs; the later one lacks what was appended unawares meanwhile."""
        between = range(min(epoch, later) + 1, max(epoch, later))
        return any(self.leaders.get(one, -2) not in (-1, self.leaders[later]) for one in between)


def leads_of(tenures: Sequence[Tenure], fetches: Sequence[Row], role_lines: dict[RoleKey, Row]) -> Leads:
    """Who led which epoch and when, from tenures, fetches as they came, and the brokers' role lines."""
    leaders = {tenure.epoch: tenure.leader for tenure in tenures}
    led: dict[int, list[Tenure]] = defaultdict(list)
    for tenure in tenures:
        led[tenure.leader].append(tenure)
    told = {leader: EpochEvidence() for leader in led if leader >= 0}
    for (broker, epoch), row in role_lines.items():
        if broker in told:
            told[broker].roles[epoch] = row
    for (broker, epoch), times in served_times(fetches, leaders).items():
        told[broker].served[epoch] = times
    found = Leads(leaders=leaders)
    for broker, one in told.items():
        found.back[broker] = one.set_back()
        spans = one.spans_of(led[broker])
        if one.is_ahead(led[broker]):
            found.off.add(broker)
        found.spans[broker] = spans
        found.rising[broker] = list(accumulate((span.since for span in reversed(spans)), min))[::-1]
        epochs = [span.epoch for span in spans]
        gaps = zip([-1, *epochs], epochs, strict=False)
        found.unknown |= {e for before, e in gaps if any(one not in leaders for one in range(before + 1, e))}
    found.follows = dict(pairwise(tenure.epoch for tenure in tenures if tenure.leader >= 0))
    return found


@dataclass(slots=True)
class EpochEvidence:
    """Evidence of the epochs that one broker was in, on its own clock."""

    roles: dict[int, Row] = field(default_factory=dict)  # by epoch, its lines about roles
    served: dict[int, tuple[int, int]] = field(default_factory=dict)  # by epoch that it led, as in `served_times`

    def since_line(self, epoch: int) -> int | None:
        """When its own line says that it became leader of an epoch; None without such a line."""
        line = self.roles.get(epoch)
        return moment(line) if line is not None and line["name"] == "leader" else None

    def spans_of(self, led: Sequence[Tenure]) -> list[LeaderSpan]:
        """The epochs that it led."""
        turns = sorted(self.roles)
        seen = sorted({*turns, *self.served})
        left = self.times_of(seen)
        over = [*accumulate((micros(self.roles[epoch]["ts"]) for epoch in reversed(turns)), min, initial=NEVER)][::-1]
        spans: list[LeaderSpan] = []
        for tenure in reversed(led):
            since = self.since_line(tenure.epoch)
            until = over[bisect_right(turns, tenure.epoch)]
            until = spans[-1].surely if until == NEVER and spans else until
            if since is not None:
                spans.append(LeaderSpan(tenure.epoch, since, since, since, until, told=True, decided=True))
                continue
            earliest = left[bisect_left(seen, tenure.epoch)]
            surely = self.served.get(tenure.epoch, (NEVER, NEVER))[0]
            decided = tenure.decisions[0].us if tenure.decisions else surely
            since = min(max(decided, earliest), surely)
            decided_too = bool(tenure.decisions)
            spans.append(
                LeaderSpan(tenure.epoch, min(earliest, since), since, surely, until, told=False, decided=decided_too)
            )
        return spans[::-1]

    def times_of(self, epochs: Sequence[int]) -> list[int]:
        """The latest sign of an earlier epoch, for each of these rising epochs and for one behind the last."""
        lasts = [max([self.served.get(e, (0, ALWAYS))[1], *self.line_of(e)]) for e in epochs]
        return [ALWAYS, *accumulate(lasts, max)]

    def line_of(self, epoch: int) -> list[int]:
        """When it took up its role in an epoch: one time, or none without a line."""
        return [moment(self.roles[epoch])] if epoch in self.roles else []

    def is_ahead(self, led: Sequence[Tenure]) -> bool:
        """Whether it acted on a decision before the controller, by its own clock, had made it."""
        signs = (
            (tenure.decisions[0].us, [*self.line_of(tenure.epoch), *self.served.get(tenure.epoch, ())[:1]])
            for tenure in led
            if tenure.decisions
        )
        return any(decided > min(done) + STAMP_LATE_US for decided, done in signs if done)

    def set_back(self) -> int:
        """How far its clock was set back, as far as that shows; 0 if it does not.

        Epochs only rise: a broker serves none before it says that it leads it, and none that it has left.
        """
        latest, most = ALWAYS, 0
        for epoch in sorted({*self.roles, *self.served}):
            first, last = self.served.get(epoch, (NEVER, ALWAYS))
            said = self.line_of(epoch) or [first]
            most = max(most, latest - min(first, *said), said[0] - first)
            latest = max(latest, last, *(one for one in said if one != NEVER))
        return most if most >= STEP_US else 0


def stated_starts(
    tenures: Sequence[Tenure], role_lines: dict[RoleKey, Row], checkpoints: Sequence[Row], batches: Sequence[Row]
) -> Starts:
    """Start offsets of leader epochs that a source states: role lines, epoch checkpoints, segments.

    The first epoch in a checkpoint or a log may have started lower: retention deletes records, and the start of the
    oldest remaining epoch moves up to the log start.
    """
    starts: Starts = {}
    for tenure in tenures:
        line = role_lines.get((tenure.leader, tenure.epoch))
        if line is not None and line["name"] == "leader" and line["offset"] is not None:
            starts[tenure.epoch] = (line["offset"], "observed")
    told = [(row, row["offset"]) for row in checkpoints]
    for row, offset in but_the_first(told, "source_file"):
        starts.setdefault(row["leader_epoch"], (offset, "observed"))
    least: dict[int, int] = {}
    for row, offset in but_the_first([(row, row["base_offset"]) for row in batches], "broker_id"):
        least[row["leader_epoch"]] = min(least.get(row["leader_epoch"], offset), offset)
    for epoch, offset in least.items():
        starts.setdefault(epoch, (offset, "derived"))
    return starts


def but_the_first(told: Sequence[tuple[Row, int | None]], source: str) -> list[tuple[Row, int]]:
    """Entries with an epoch and an offset, without those of each source's first epoch unless it starts at 0."""
    known = [(row, offset) for row, offset in told if row["leader_epoch"] is not None and offset is not None]
    first: dict[Any, tuple[int, int]] = {}
    for row, offset in known:
        key = (row["broker_id"], row[source])
        first[key] = min(first.get(key, (row["leader_epoch"], offset)), (row["leader_epoch"], offset))
    return [
        (row, offset)
        for row, offset in known
        if row["leader_epoch"] != (begin := first[row["broker_id"], row[source]])[0] or begin[1] == 0
    ]


def least_starts(tenures: Sequence[Tenure], fetches: Sequence[Row], *, waits: bool) -> tuple[dict[int, int], Starts]:
    """Lower bounds of leader epochs' starts, from fetches; and the starts that are certain.

    A fetch accepted at X whose last record is of an older epoch shows that the current epoch starts at X or later. If
    it also waited and the whole answer was empty, the leader had no more than X, so the epoch starts exactly there. The
    answer that an older epoch ends at X shows the same, provided that nobody led in between. What a leader had fetched
    itself before it led, it has: an answer with a lower base is one to a retry. `waits`: whether a fetch waits for
    nothing but records.
    """
    low: dict[int, int] = {}
    ends: dict[int, int] = {}
    numbers = [tenure.epoch for tenure in tenures if tenure.leader >= 0]
    own: dict[tuple[int, int], int] = {}  # follower, epoch -> the offset of its last accepted fetch
    told = RequestColumns(fetches)
    replica, offsets = told.stated("replica_id"), told.stated("fetch_offset", ALWAYS)
    of = told.now("current_leader_epoch", ALWAYS)
    fitting = (told.stated("error_code", 0) == 0) & (offsets != ALWAYS) & (of != ALWAYS) & (replica >= 0)
    which = np.flatnonzero(fitting & told.accepted)
    which = which[np.lexsort((offsets[which], told.at.taken[which]))]
    for key, places in places_by(replica[which], of[which]):
        own[key[0], key[1]] = int(offsets[which[places[-1]]])
    before = told.stated("last_fetched_epoch")
    for row in (fetches[k] for k in np.flatnonzero(fitting & (before >= 0) & (before < of)).tolist()):
        epoch, last, offset = row["current_leader_epoch"], row["last_fetched_epoch"], row["fetch_offset"]
        if was_accepted(row):
            low[epoch] = max(low.get(epoch, 0), offset)
            if waits and row["request_bytes"] == 0 and row["remote_us"] and row["run_count"] is None:
                ends[epoch] = offset
        elif row["diverging_epoch"] is not None and (row["diverging_end_offset"] or -1) >= 0:
            low[epoch] = max(low.get(epoch, 0), row["diverging_end_offset"])
            if bisect_right(numbers, last) == bisect_left(numbers, epoch):
                ends[epoch] = row["diverging_end_offset"]
    for epoch, offset in had_fetched(tenures, own).items():
        low[epoch] = max(low.get(epoch, 0), offset)
    return low, {epoch: (end, "derived") for epoch, end in ends.items() if end == low[epoch]}


def had_fetched(tenures: Sequence[Tenure], own: dict[tuple[int, int], int]) -> dict[int, int]:
    """Leader epoch -> its leader's last fetch offset, if fetched from the previous leader: nothing cut it since."""
    out: dict[int, int] = {}
    before: Tenure | None = None
    for tenure in tenures:
        if tenure.leader < 0:
            continue
        if before is not None and (tenure.leader, before.epoch) in own:
            out[tenure.epoch] = own[tenure.leader, before.epoch]
        before = tenure
    return out
