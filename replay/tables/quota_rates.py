"""Replication rates against their quotas (KIP-73): when a quota was certainly exceeded, and which rounds it held back.

A broker keeps one rate for all partitions that it throttles, over samples of a second each, of which it keeps eleven
(`ReplicationQuotaManager`, `SimpleRate`). A partition's own bytes are the least of it: if they alone are more than the
limit, the quota was exceeded, and the next round had to be held back. Fewer bytes show nothing, since other partitions
add to them. The leader counts what it answers, in-sync replicas included, and withholds records from followers outside
the ISR; a follower counts what it appends, so nothing of an answer that finds it with another role, and leaves the
partition out while it is behind its leader's HW.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replay.arrays.records import blank
from replay.engine import codes as c
from replay.engine.emit import CheckRow
from replay.engine.encode import indices
from replay.evidence.tenures import micros
from replay.protocol.state import NONE, UNSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.events import Picked
    from replay.engine.purgatory import Held
    from replay.protocol.profile import Profile

    ProfileAt = Callable[[int | None, int], Profile]  # the rules of a broker at a seq

SECOND_US: Final = 1_000_000
SAMPLES: Final = 11  # replication.quota.window.num, of replication.quota.window.size.seconds 1
SETTLES_US: Final = SECOND_US  # how long a broker may take to learn of a new limit
SLACK_US: Final = SECOND_US // 2  # by how much the times of two rounds may be off
SERVED, HELD_BACK = 0, 1
ADJOINS: Final = "derived"  # how the end of an answer is known: from the very next fetch of its follower
LEADER, FOLLOWER = "leader", "follower"
BYTE_RATES: Final = {LEADER: "LeaderReplication", FOLLOWER: "FollowerReplication"}  # metrics, by side


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
    used: bool  # the follower's next fetch shows that it appended what came


@dataclass(slots=True)
class Second:
    """What was sent or fetched under a limit in the second of the last answer, of which no row tells yet."""

    us: int  # of the last answer
    seq: int
    window: int
    bytes: int = 0


class QuotaRates:
    """The limits that hold in one partition, and what each broker lately sent or fetched of it."""

    def __init__(self) -> None:
        """Start without any limit."""
        self.coming: list[dict[str, Any]] = []  # changes of limits that no round has come after yet
        self.limits: dict[tuple[int, str], Limit] = {}  # by broker and side
        self.counted: dict[tuple[int, str], list[tuple[int, int]]] = {}  # time and bytes, for each limit
        self.hw: dict[int, int] = {}  # replica -> HW that came with the last records
        self.open: dict[tuple[int, str], Second] = {}  # for each limit
        self.told: list[dict[str, Any]] = []  # rows of `partition_meters` that were not handed out yet

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
            self.close(key)
            self.limits.pop(key, None)
            if rate < 0:
                self.counted.pop(key, None)
            else:
                self.limits[key] = Limit(rate, micros(row["ts"]))
                self.counted.setdefault(key, [])
            self.told.append(self.meter_row(key, row["seq"], micros(row["ts"])))

    def rates(
        self, fetches: Picked, saw: Records[Held], profile_at: ProfileAt, brokers: Sequence[int]
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
                    rate[k], limit[k], checks = self.weigh(one, profile_at)
                    found += checks
                if one.hw >= 0 and one.used:  # a follower's lag stays as it is if nothing came
                    self.hw[one.replica] = one.hw
        return rate, limit, rows_of(found, brokers)

    def weigh(self, one: Round, profile_at: ProfileAt) -> tuple[int, int, list[tuple[int, int, int]]]:
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
            rate = self.least_rate(key, at, window_of(profile_at(key[0], one.seq)))
            told = rate, held.rate
            if compared and rate > held.rate and at >= held.since + SETTLES_US:
                checks.append((one.seq, key[0], stated))
        if not one.left_out and one.bytes > 0:
            counts = ((one.replica, FOLLOWER), (one.leader, LEADER))[not one.used :]
            for key in counts:
                if key in self.limits and one.answered >= self.limits[key].since + SETTLES_US:
                    self.counted[key].append((one.answered, one.bytes))
                    self.note(key, one, window_of(profile_at(key[0], one.seq)))
        return *told, checks

    def note(self, key: tuple[int, str], one: Round, window: int) -> None:
        """Add what a round brought to its second; if another second has begun, make the row of the one before."""
        known = self.open.get(key)
        if known is not None and one.answered // SECOND_US > known.us // SECOND_US:
            self.close(key)
            known = None
        if known is None:
            known = self.open[key] = Second(one.answered, one.seq, window)
        known.us, known.seq = max(known.us, one.answered), one.seq
        known.bytes += one.bytes

    def close(self, key: tuple[int, str]) -> None:
        """Make the row of the second that is open for a limit, if there is one."""
        known = self.open.pop(key, None)
        if known is not None:
            row = self.meter_row(key, known.seq, known.us)
            self.told.append({**row, "value": known.bytes, "quota_window": known.window})

    def meter_row(self, key: tuple[int, str], seq: int, us: int) -> dict[str, Any]:
        """A row of `partition_meters` about the limit that now holds for a broker and side, without any bytes."""
        limit = self.limits.get(key)
        told = {"seq": seq, "ts": us, "broker_id": key[0], "metric": BYTE_RATES[key[1]], "value": 0, "highest": None}
        return {**told, "quota_limit": limit and limit.rate, "quota_window": None, "evidence": "bounded"}

    def rows(self) -> list[dict[str, Any]]:
        """Hand out the rows of `partition_meters` that are complete."""
        out, self.told = self.told, []
        return out

    def finish(self) -> list[dict[str, Any]]:
        """Return the rows that are left. Call once, after the last event."""
        for key in sorted(self.open):
            self.close(key)
        while self.coming:
            self.begin(self.coming[0]["seq"] + 1)
        return self.rows()

    def least_rate(self, key: tuple[int, str], at: int, window: int) -> int:
        """The least rate, in bytes per second, that a broker can have measured at `at`; `window`: of `window_of`."""
        kept = (window - 1) * SECOND_US - SLACK_US
        sent = self.counted[key] = [one for one in self.counted[key] if at - one[0] < kept]
        return sum(size for when, size in sent if when <= at) // window


def window_of(profile: Profile) -> int:
    """Over how many seconds a rate goes at most; what was counted in all of them but the first is kept for sure.

    A sample begins with the first answer after the one before is full, so it may be almost a second older than what
    it counts; up to 3.7 it is dropped by the time of its beginning, from then on by that of its last answer.
    """
    return SAMPLES + int(profile.samples_kept_by_last_event)


def rounds_in(fetches: Picked, saw: Records[Held]) -> Iterable[Round]:
    """Fetch events as rounds, in order."""
    of, of_text = fetches.numbers, fetches.texts
    answered, offset = of("ts", 0), of("fetch_offset", NONE)
    left_out = fetches.kinds == c.FETCH_LEFT_OUT
    plain = ~left_out & (of("error_code", 0) == 0) & (of("run_count", UNSET) == UNSET)
    plain &= (of("diverging_epoch", UNSET) == UNSET) & (of("leader_id", NONE) == NONE)
    place, evidence = of_text("next_offset_evidence")
    used = np.array([word == ADJOINS for word in evidence], np.bool_)[place]
    waits = (saw["in_isr"] == 0) & (saw["settled_leo"] > offset)
    columns = (
        saw["seq"], of("broker_id", NONE), of("replica_id", NONE), answered - of("remote_us", 0), answered, offset,
        of("bytes", 0), left_out, plain, waits, of("response_hw", NONE), used,
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
