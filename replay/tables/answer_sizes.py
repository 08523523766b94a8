"""How the sizes that a fetch asks for limit its answer (KIP-74), and what such an answer may hold.

The leader goes through the partitions of a request (ReplicaManager.readFromLog) and reads each up to the lesser of the
partition's limit and what is left of the request's (LogSegment.read). It cuts by bytes, not at the end of a batch: who
fetched drops the part of a batch at the end. A batch of which not even the first bytes of the whole fit is left out.
From version 3 of the request on (0.10.1) the first partition with records is an exception: its first batch is handed
out whole, whatever the limits. And no answer goes beyond the end of a segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from replay.arrays.columns import codes
from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.completions import THROTTLED
from replay.engine.emit import CheckRow
from replay.engine.encode import EVIDENCE_CODE, indices
from replay.protocol.state import BOUNDED, NONE, UNSET
from schemas.rounds import LIMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.completions import Completion
    from replay.engine.events import EventBatch, Picked
    from replay.engine.purgatory import Held

BY_PARTITION, BY_REQUEST, BY_FIRST_BATCH, BY_SEGMENT = range(len(LIMITS))
LIMIT_COLUMNS: Final = ("max_bytes", "partition_max_bytes")
UNLIMITED: Final = np.iinfo(np.int64).max


class Sizes:
    """What fetches asked for and were answered, as far as sizes go, column by column."""

    def __init__(self, fetches: Picked, saw: Records[Held], found: Records[Completion]) -> None:
        """`saw`: what the leader held; `found`: what completed each fetch."""
        of = fetches.numbers
        self.bytes, self.all_bytes = of("bytes", 0), of("request_bytes", UNSET)
        self.most = limit_in(fetches, "partition_max_bytes")
        self.most_of_all = limit_in(fetches, "max_bytes")
        self.is_follower: Flags = of("replica_id", NONE) >= 0
        self.others = np.where(self.all_bytes == UNSET, 0, self.all_bytes - self.bytes)
        self.derived, self.listed = (numbers_in(fetches, name) for name in ("bytes_before", "bytes_listed_before"))
        before = np.where(self.is_follower, turns_in(fetches), NONE)  # what a consumer has from the tier has no turn
        self.before = np.where(self.others == 0, 0, before)  # NONE: not known
        self.offset = of("fetch_offset", NONE)
        self.next = np.where(fetches.read(doubts_of) < BOUNDED, of("next_offset", NONE), NONE)
        held = np.where(of("remote_us", 0) > 0, saw["settled_leo"], saw["leo"])
        self.there = np.where(self.is_follower, held, saw["hw"])
        self.surely_there = saw["settled_leo"]
        plain = (of("error_code", 0) == 0) & (of("run_count", UNSET) == UNSET) & (fetches.kinds != c.FETCH_LEFT_OUT)
        plain &= (of("diverging_epoch", UNSET) == UNSET) & (of("preferred_read_replica", NONE) < 0)
        plain &= of("leader_id", NONE) == NONE
        self.is_plain: Flags = plain & ((found["completed_by"] != THROTTLED) | (self.bytes > 0))

    @property
    def told(self) -> Flags:
        """Which of them were answered with records, and say how many bytes they took."""
        return self.is_plain & (self.bytes > 0) & (self.most < UNLIMITED)

    @property
    def exceeds(self) -> Flags:
        """Which answers are larger than a limit and may be the first with records: they hold a first batch that is."""
        return self.told & (self.bytes > np.minimum(self.most, self.most_of_all)) & (self.before <= 0)

    @property
    def used(self) -> Ints:
        """How much of the request's limit was used with this partition; where its turn is not known, with all."""
        return np.where(self.before == NONE, self.all_bytes, self.before + self.bytes)

    def ends_before(self, there: Ints) -> Flags:
        """Which answers end before the offset up to which the leader had records for them."""
        ends = np.where(self.bytes > 0, self.next, self.offset)
        return self.is_plain & (ends >= 0) & (ends < there)


def doubts_of(batch: EventBatch) -> Ints:
    """The evidence for where each answer's records end."""
    return codes(batch.table.column("next_offset_evidence"), EVIDENCE_CODE, BOUNDED)


def numbers_in(fetches: Picked, name: str) -> Ints:
    """A column of numbers; NONE where nothing is known. Events of older tables have no such column."""
    return fetches.numbers(name, NONE) if fetches.has(name) else np.full(len(fetches), NONE)


def turns_in(fetches: Picked) -> Ints:
    """The bytes of partitions read before each: in the answer's order, else as its session tells; NONE: unknown."""
    derived, listed = (numbers_in(fetches, name) for name in ("bytes_before", "bytes_listed_before"))
    return np.where(listed == NONE, derived, listed)


def limit_in(fetches: Picked, name: str) -> Ints:
    """A limit in bytes; `UNLIMITED` where a request has none. Events of older tables have no such column."""
    found = fetches.numbers(name, 0) if fetches.has(name) else np.zeros(len(fetches), np.int64)
    return np.where(found > 0, found, UNLIMITED)


def limits_of(sizes: Sizes) -> tuple[Ints, Flags]:
    """What limited each answer (`LIMITS`; NONE: nothing that is known), and where that is only what is left to say.

    An answer as large as the partition's limit was cut there. One that ends early was limited by the request if its
    limit is used up with this partition, or if less was left than the partition's limit, so that a batch may not have
    fitted. If not, and if the leader had the rest even when it took up the follower's fetch before this one, by the end
    of a segment.
    """
    out = np.full(len(sizes.bytes), NONE, np.int64)
    full = sizes.used >= sizes.most_of_all
    narrow = (sizes.most < UNLIMITED) & (sizes.used > 0) & (sizes.used > sizes.most_of_all - sizes.most)
    early, some = sizes.ends_before(sizes.there), sizes.bytes > 0
    out[sizes.ends_before(sizes.surely_there) & some & (sizes.most < UNLIMITED)] = BY_SEGMENT
    out[early & (full | (narrow & ~some))] = BY_REQUEST
    out[sizes.told & (sizes.bytes == sizes.most)] = BY_PARTITION
    out[sizes.exceeds] = BY_FIRST_BATCH
    return out, (out == BY_SEGMENT) | ((out == BY_REQUEST) & (~full | (sizes.before == NONE)))


def allowed(sizes: Sizes) -> Ints:
    """The bytes that the limits allow each answer to have, at most what it has.

    The first partition with records may have a batch that is larger. Any other has its own limit, and what those before
    it left of the request's; where its turn is not known, what all others left.
    """
    left = np.minimum(sizes.most, sizes.most_of_all - sizes.before)
    left = np.where(sizes.before == NONE, sizes.most_of_all - sizes.others, left)
    return np.where(sizes.before == 0, sizes.bytes, np.clip(left, 0, sizes.bytes))


def turn_checks(sizes: Sizes, fetches: Picked, brokers: Sequence[int]) -> Records[CheckRow]:
    """Whether what was read before each follows from the session as the answer lists it, where others had records."""
    rows = blank(len(sizes.bytes), CheckRow, c.CHECK_FETCH_TURN)
    rows["seq"], rows["broker"] = fetches.numbers("seq", 0), indices(fetches.numbers("broker_id", NONE), brokers)
    rows["computed"], rows["stated"] = sizes.derived, sizes.listed
    compared: Flags = (sizes.others > 0) & (sizes.derived != NONE) & (sizes.listed != NONE)
    return rows[compared]


def size_checks(sizes: Sizes, fetches: Picked, brokers: Sequence[int]) -> Records[CheckRow]:
    """Whether each answer with records is as large as the limits allow."""
    rows = blank(len(sizes.bytes), CheckRow, c.CHECK_ANSWER_SIZE)
    rows["seq"], rows["broker"] = fetches.numbers("seq", 0), indices(fetches.numbers("broker_id", NONE), brokers)
    rows["computed"], rows["stated"] = allowed(sizes), sizes.bytes
    return rows[sizes.told]
