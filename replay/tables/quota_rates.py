"""Replication rates against their quotas (KIP-73): when a quota was certainly exceeded, and which rounds it held back.

A broker keeps one rate for all partitions that it throttles, over samples of a second each, of which it keeps eleven
(`ReplicationQuotaManager`, `SimpleRate`). A partition's own bytes are the least of it: if they alone are more than the
limit, the quota was exceeded, and the next round had to be held back. Fewer bytes show nothing, since other partitions
add to them. The leader counts what it answers, in-sync replicas included, and withholds records from followers outside
the ISR; a follower counts what it appends, and leaves the partition out while it is behind its leader's HW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.emit import CheckRow
from replay.engine.encode import indices
from replay.evidence.tenures import micros
from replay.protocol.state import NONE, UNSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.events import Picked
    from replay.engine.purgatory import Held
    from replay.protocol.profile import Profile

SECOND_US: Final = 1_000_000
SAMPLES: Final = 11  # replication.quota.window.num, of replication.quota.window.size.seconds 1
SETTLES_US: Final = SECOND_US  # how long a broker may take to learn of a new limit
SLACK_US: Final = SECOND_US // 2  # by how much the times of two rounds may be off
SERVED, HELD_BACK = 0, 1
LEADER, FOLLOWER = "leader", "follower"


class Limit(NamedTuple):
    """A limit of a broker, in bytes per second, and since when it holds."""

    rate: int
    since: int


class Round(NamedTuple):
    """A fetch of a replica, and what came of it."""

    seq: int
    leader: int
    replica: int
    asked: int  # times in microseconds
    answered: int
    offset: int
    bytes: int
    left_out: bool
    plain: bool  # it is one fetch, listed and answered without error
    waits: bool  # the follower is outside the ISR, and there were records for it
    hw: int  # answered; NONE: none


class QuotaRates:
    """The limits that hold in one partition, and what each broker lately sent or fetched of it."""

    def __init__(self) -> None:
        """Start without any limit."""
        self.coming: list[dict[str, Any]] = []  # changes of limits that no round has come after yet
        self.limits: dict[tuple[int, str], Limit] = {}  # by broker and side
        self.counted: dict[tuple[int, str], list[tuple[int, int]]] = {}  # time and bytes, for each limit
        self.hw: dict[int, int] = {}  # replica -> HW that it was last answered

    def take(self, settings: Iterable[dict[str, Any]]) -> None:
        """Take events `config_change`, in order; those about other settings are skipped."""
        columns = [f"{side}_quota" for side in (LEADER, FOLLOWER)]  # events of older tables have none
        self.coming += [row for row in settings if any(row.get(name) is not None for name in columns)]

    def begin(self, seq: int) -> None:
        """Apply the changes before `seq`."""
        while self.coming and self.coming[0]["seq"] < seq:
            row = self.coming.pop(0)
            side = LEADER if row["leader_quota"] is not None else FOLLOWER
            key, rate = (row["broker_id"], side), row[f"{side}_quota"]
            self.limits.pop(key, None)
            if rate < 0:
                self.counted.pop(key, None)
            else:
                self.limits[key] = Limit(rate, micros(row["ts"]))
                self.counted.setdefault(key, [])

    def rates(
        self, fetches: Picked, saw: Records[Held], profile: Profile, brokers: Sequence[int]
    ) -> tuple[Ints, Ints, Records[CheckRow]]:
        """For each round the least rate and the limit that concern it (NONE: no limit), and what was held back.

        Compared are the rounds before which a limit was certainly exceeded.
        """
        rate, limit = np.full(len(saw), NONE, np.int64), np.full(len(saw), NONE, np.int64)
        found: list[tuple[int, int, int]] = []
        if self.limits or self.coming:
            for k, one in enumerate(rounds_in(fetches, saw)):
                self.begin(one.seq)
                if self.limits and one.replica >= 0:
                    rate[k], limit[k], checks = self.weigh(one, profile)
                    found += checks
                if one.hw >= 0:
                    self.hw[one.replica] = one.hw
        return rate, limit, rows_of(found, brokers)

    def weigh(self, one: Round, profile: Profile) -> tuple[int, int, list[tuple[int, int, int]]]:
        """A round against the limits: the rate and limit of the side that concerns it, and checks of both sides."""
        told, checks = (NONE, NONE), []
        served = HELD_BACK if one.bytes <= 0 else SERVED
        behind = self.hw.get(one.replica, NONE) > one.offset
        for key, at, compared, stated in (
            ((one.replica, FOLLOWER), one.asked, one.left_out or (one.plain and behind), HELD_BACK * one.left_out),
            ((one.leader, LEADER), one.answered, one.plain and one.waits, served),
        ):
            held = self.limits.get(key)
            if held is None or (one.left_out and key[1] == LEADER):
                continue
            rate = self.least_rate(key, at, profile)
            told = rate, held.rate
            if compared and rate > held.rate and at >= held.since + SETTLES_US:
                checks.append((one.seq, key[0], stated))
        if not one.left_out and one.bytes > 0:
            for key in ((one.replica, FOLLOWER), (one.leader, LEADER)):
                if key in self.limits and one.answered >= self.limits[key].since + SETTLES_US:
                    self.counted[key].append((one.answered, one.bytes))
        return *told, checks

    def least_rate(self, key: tuple[int, str], at: int, profile: Profile) -> int:
        """The least rate, in bytes per second, that a broker can have measured at `at`.

        A sample begins with the first answer after the one before is full, so it may be almost a second older than what
        it counts; up to 3.7 it is dropped by the time of its beginning, from then on by that of its last answer.
        """
        kept = (SAMPLES - 1 + profile.samples_kept_by_last_event) * SECOND_US - SLACK_US
        sent = self.counted[key] = [one for one in self.counted[key] if at - one[0] < kept]
        span = SAMPLES + profile.samples_kept_by_last_event
        return sum(size for when, size in sent if when <= at) // span


def rounds_in(fetches: Picked, saw: Records[Held]) -> Iterable[Round]:
    """Fetch events as rounds, in order."""
    of = fetches.numbers
    answered, offset = of("ts", 0), of("fetch_offset", NONE)
    left_out = fetches.kinds == c.FETCH_LEFT_OUT
    plain = ~left_out & (of("error_code", 0) == 0) & (of("run_count", UNSET) == UNSET)
    plain &= (of("diverging_epoch", UNSET) == UNSET) & (of("leader_id", NONE) == NONE)
    waits = (saw["in_isr"] == 0) & (saw["settled_leo"] > offset)
    columns = (
        saw["seq"], of("broker_id", NONE), of("replica_id", NONE), answered - of("remote_us", 0), answered, offset,
        of("bytes", 0), left_out, plain, waits, of("response_hw", NONE),
    )  # fmt: skip
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield Round(*values)


def rows_of(found: list[tuple[int, int, int]], brokers: Sequence[int]) -> Records[CheckRow]:
    """Checks as rows: after each of these rounds the quota had to hold it back."""
    rows = blank(len(found), CheckRow, c.CHECK_QUOTA)
    told = np.array(found, np.int64).reshape(-1, 3)
    rows["seq"], rows["broker"] = told[:, 0], indices(told[:, 1], brokers)
    rows["computed"], rows["stated"] = HELD_BACK, told[:, 2]
    return rows
