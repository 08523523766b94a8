"""What followers hand out to consumers (KIP-392), held against the high watermark that the replay has of them.

A follower serves a consumer up to its own HW, and its answer states that HW (`Partition.readRecords`). The order does
not decide when, between two of its fetches, a follower has taken an answer: nobody logs it. So each HW that it took
has a span of time: no sooner than the leader had answered, no later than its next fetch came there. An answer must
state the last HW that it surely had by then, or one that it may have taken since, and hand out nothing beyond them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.arrays.ints import NEVER
from replay.arrays.records import blank, together
from replay.engine import codes as c
from replay.engine.stamps import CLOCK_SLACK_US
from replay.protocol.state import BOUNDED, NONE, ROLE_FOLLOWER, ROLE_LEADER
from replay.tables.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags
    from replay.arrays.records import Records
    from replay.engine.emit import HwRow
    from replay.engine.event_record import EventRecord
    from replay.engine.events import Events

CHECK: Final = "follower_read"
KEPT_US: Final = 5_000_000  # so long behind a read its follower's fetches tell all that it may have had by then
HORIZON_US: Final = 60_000_000  # a read that began so long before its follower's latest fetch is not compared


class Taken:
    """An HW that a broker took as a follower."""

    seq: int
    lo: int  # not before
    hi: int  # surely by then; NEVER: not known yet
    until: int  # seq of the event that shows it
    hw: int
    certain: int


class Read:
    """An answer of a follower to a consumer."""

    seq: int
    lo: int
    hi: int
    hw: int
    end: int  # offset behind what it handed out; NONE: nothing, or not known
    due: int  # seq from which on nothing more is looked at; NEVER: not reached yet


@dataclass(slots=True)
class Reader:
    """A broker as a follower that consumers read from."""

    taken: Records[Taken] = field(default_factory=lambda: blank(0, Taken))
    waiting: Records[Read] = field(default_factory=lambda: blank(0, Read))
    clock: int = 0  # time of its latest fetch


@dataclass(slots=True)
class FollowerReads:
    """The check of one partition; what it finds does not depend on the batches that events come in."""

    readers: dict[int, Reader] = field(default_factory=lambda: defaultdict(Reader))
    tally: Tally = field(default_factory=Tally)

    def take(
        self, events: Events, encoded: Records[EventRecord], moves: Records[HwRow], brokers: Sequence[int]
    ) -> None:
        """Take the next events in order, and the HW moves that they made."""
        kinds, seqs = encoded["kind"], encoded["seq"]
        taken = moves[(moves["role"] != ROLE_LEADER) | (moves["kind"] == c.ROLE_CHANGE)]
        updates = np.flatnonzero((kinds == c.FETCH_UPDATE) & (encoded["replica"] >= 0))
        reads = np.flatnonzero(kinds == c.CONSUMER_READ)
        reads = reads[is_answer_of_follower(events)[reads]]
        if not (len(taken) or len(updates) or len(reads)):
            return
        earliest, latest = events.numbers("ts_lo"), events.numbers("ts_hi")
        shown = np.where(events.numbers("run_count") > 0, encoded["ts"], latest)  # of a run the first fetch shows it
        followers, servers = encoded["replica"][updates], encoded["broker"][reads]
        for b in np.unique(np.concatenate([taken["broker"], followers, servers])).tolist():
            reader, own = self.readers[b], updates[followers == b]
            mine = taken[taken["broker"] == b]
            new = blank(len(mine), Taken)
            place = np.searchsorted(seqs, mine["seq"])
            applied = mine["kind"] == c.FETCH_APPLY
            new["seq"], new["lo"], new["hw"] = mine["seq"], earliest[place], mine["hw"]
            new["hi"] = np.where(applied, NEVER, latest[place])
            new["until"] = np.where(applied, NEVER, mine["seq"])
            new["certain"] = (mine["role"] == ROLE_FOLLOWER) & (mine["evidence"] < BOUNDED)
            reader.taken = together([reader.taken, new])
            show(reader.taken, seqs[own], shown[own])
            clocks = np.maximum.accumulate(np.append(reader.clock, encoded["ts"][own]))
            asked = reads[servers == b]
            found = blank(len(asked), Read, NEVER)
            for name, values in (("seq", seqs), ("lo", earliest), ("hi", latest)):
                found[name] = values[asked]
            found["hw"] = events.numbers("response_hw", NONE)[asked]
            found["end"] = events.numbers("next_offset", NONE)[asked]
            passed = clocks[np.searchsorted(seqs[own], found["seq"])]
            found = found[found["lo"] >= passed - HORIZON_US + CLOCK_SLACK_US]
            reader.waiting = together([reader.waiting, found])
            self.settle(reader, seqs[own], clocks[1:], brokers[b])
            reader.clock = int(clocks[-1])
            forget(reader)

    def settle(self, reader: Reader, seqs: Any, clocks: Any, broker: int) -> None:  # noqa: ANN401 - arrays
        """Compare the reads behind which the follower has fetched for long enough, at its fetches `seqs`."""
        waiting = reader.waiting
        if not len(waiting) or not len(seqs):
            return
        place = np.searchsorted(clocks, waiting["hi"] + KEPT_US)
        place = np.maximum(place, np.searchsorted(seqs, waiting["seq"]))
        waiting["due"] = np.append(seqs, NEVER)[place]
        for k in np.flatnonzero(waiting["due"] < NEVER).tolist():
            self.compare(reader.taken, waiting[k], broker)
        reader.waiting = waiting[waiting["due"] == NEVER]

    def compare(self, taken: Records[Taken], read: Read, broker: int) -> None:
        """Compare one answer with what its follower may have had."""
        here = taken[taken["seq"] < read.due]
        surely = np.flatnonzero((here["until"] < read.due) & (here["hi"] < read.lo - CLOCK_SLACK_US))
        if not len(surely):
            return  # what it had before is not known
        here = here[surely[-1] :]
        may = here["lo"] <= read.hi + CLOCK_SLACK_US
        may[0] = True
        if not here["certain"][may].all():
            return
        had = here["hw"][may]
        text = ""
        agrees = bool((had == read.hw).any() and read.end <= had.max())
        if not agrees:
            what = f"states {read.hw} and hands out records up to {read.end}" if read.end >= 0 else f"states {read.hw}"
            text = f"broker {broker} {what}, and its HW was {had.min()} to {had.max()}"
        self.tally.note(int(read.seq), text, agrees=agrees)

    def finish(self, brokers: Sequence[int]) -> None:
        """Compare what waits. Call once, after the last batch."""
        for b, reader in self.readers.items():
            for k in range(len(reader.waiting)):
                self.compare(reader.taken, reader.waiting[k], brokers[b])
            reader.waiting = reader.waiting[:0]

    def checks(self, brokers: Sequence[int]) -> list[dict[str, Any]]:
        """The check; none if no follower's answer was compared."""
        self.finish(brokers)
        return self.tally.rows(CHECK)


def is_answer_of_follower(events: Events) -> Flags:
    """Which reads a broker other than the leader answered, and states its HW in the answer."""
    found: Flags = (events.numbers("leader_id", NONE) >= 0) & (events.numbers("response_hw", NONE) >= 0)
    found &= (events.numbers("run_count") == 0) & (events.numbers("error_code") == 0)
    return found


def show(taken: Records[Taken], seqs: Any, shown: Any) -> None:  # noqa: ANN401 - arrays
    """Each answer was taken by the follower's next fetch. `seqs`: its fetches, `shown`: when each had surely come."""
    open_ = np.flatnonzero(taken["until"] == NEVER)
    place = np.searchsorted(seqs, taken["seq"][open_], "right")
    known = place < len(seqs)
    taken["hi"][open_[known]], taken["until"][open_[known]] = shown[place[known]], seqs[place[known]]


def forget(reader: Reader) -> None:
    """Forget what no read can be held against any more."""
    since = reader.clock - HORIZON_US
    if len(reader.waiting):
        since = min(since, int(reader.waiting["lo"].min()) - CLOCK_SLACK_US)
    surely = np.flatnonzero(reader.taken["hi"] < since)
    if len(surely):
        reader.taken = reader.taken[surely[-1] :]
