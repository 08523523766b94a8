"""The steps in which a broker becomes a follower, compared with what its lines tell of their order.

`ReplicaManager.makeFollowers` (ZooKeeper) and `applyLocalFollowersDelta` (KRaft) mark the replica as a follower, stop
its fetcher, up to 0.10 cut its log, and start the new fetcher, in this order; a thread of the new fetcher cuts the log
from 0.11 on. Produces and fetches that wait at a deposed leader are ended before the new fetcher starts; in KRaft from
3.0 on only after that. A broker that begins to lead stops its fetcher before it does anything else. The new fetcher
begins at the follower's HW, and from 2.8 on, where fetches tell of diverging logs, at its LEO. Each of these is one
comparison. Lines of one thread stand in its order, so lines of the same millisecond agree with either order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replay.engine.stamps import CLOCK_SLACK_US, STAMP_EARLY_US
from replay.evidence.tenures import micros
from replay.protocol.produce import NOT_LEADER_OR_FOLLOWER
from replay.protocol.state import UNSET
from replay.tables.rare_events import in_turn
from replay.tables.rounds import ready_at
from replay.tables.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replay.arrays.records import Records
    from replay.engine.events import Event
    from replay.engine.purgatory import OpenBatch
    from replay.protocol.profile import Profile
    from replay.tables.rare_events import Rare
    from replay.tables.rounds import BatchAnswer

STEP_KINDS: Final = ("partition_change", "role_change", "log_load", "truncation")
CHECK: Final = "fetcher_steps"


class FetcherSteps:
    """The steps of one partition's brokers as they take up roles."""

    def __init__(self) -> None:
        """Start with nothing compared."""
        self.in_metadata = False  # whether the last decision stands in KRaft's metadata log
        self.roles: dict[int, Event] = {}  # broker -> its role, if that is a follower's of which its lines tell
        self.ends: dict[tuple[int, int], int] = {}  # broker and time of its role -> since when what waits may end
        self.tally = Tally()

    def take_all(self, rare: Rare, profile_at: Callable[[int | None, int], Profile]) -> None:
        """Take a batch's rare events. `profile_at`: the rules that a broker follows, by broker and seq."""
        for row in in_turn(rare, STEP_KINDS):
            broker = row["broker_id"]
            if row["kind"] == "partition_change":
                self.in_metadata = row["metadata_offset"] is not None
            elif row["kind"] == "truncation":
                if broker in self.roles and row["evidence"] == "observed":
                    self.cut(self.roles[broker], row, profile_at(broker, row["seq"]))
            else:
                self.roles.pop(broker, None)
                if row["kind"] == "role_change" and row.get("fetcher_started_ts") is not None:  # older events lack it
                    self.take_role(row, profile_at(broker, row["seq"]))

    def take_role(self, role: Event, profile: Profile) -> None:
        """Compare the steps of a role that a broker took up."""
        at, started = micros(role["ts"]), micros(role["fetcher_started_ts"])
        stopped = None if role["fetcher_stopped_ts"] is None else micros(role["fetcher_stopped_ts"])
        slack = 0 if role["request_id"] is None else CLOCK_SLACK_US  # the time of a request is known less well
        if role["role"] == "leader":
            in_order = stopped is not None and started <= stopped <= at + slack
            self.compare(role, "stopped its fetcher before it led", agrees=in_order)
            return
        self.roles[role["broker_id"]] = role
        in_order = stopped is not None and at - slack <= stopped <= started
        self.compare(role, "stopped its fetcher and then started the next", agrees=in_order)
        begins = role["leo"] if profile.truncate_on_fetch else role["hw"]
        if begins is not None and role["fetcher_offset"] is not None and role["evidence"] == "observed":
            self.compare(role, f"began to fetch at {begins}", agrees=begins == role["fetcher_offset"])
        ends = started if self.in_metadata and profile.starts_fetcher_first else stopped
        if ends is not None:
            self.ends[role["broker_id"], at] = ends

    def cut(self, role: Event, row: Event, profile: Profile) -> None:
        """Compare a cut with the start of the fetcher whose thread cuts the log, or before which the log is cut."""
        at, started, stopped = micros(row["ts"]), micros(role["fetcher_started_ts"]), role["fetcher_stopped_ts"]
        if profile.cuts_as_it_follows:
            in_order = stopped is not None and micros(stopped) <= at <= started
            self.compare(row, "cut its log between two fetchers", agrees=in_order)
        else:  # the thread runs before the line about it is written
            self.compare(row, "cut its log once it fetched", agrees=at >= started - CLOCK_SLACK_US)

    def take_ends(self, at: Records[OpenBatch], told: Records[BatchAnswer], brokers: Sequence[int]) -> None:
        """Compare when produces were ended that had waited at a leader which became a follower."""
        ready = ready_at(told)
        refused = (told["error_code"] == NOT_LEADER_OR_FOLLOWER) & (at["lost_ts"] != UNSET)
        for k in np.flatnonzero(refused).tolist():
            ends = self.ends.get((brokers[int(at[k].broker)], int(at[k].lost_ts)))
            if ends is not None:
                row = {"seq": int(at[k].seq), "broker_id": brokers[int(at[k].broker)]}
                self.compare(row, "ended what waited in its turn", agrees=int(ready[k]) >= ends - STAMP_EARLY_US)

    def compare(self, row: Event, told: str, *, agrees: bool) -> None:
        """Count a comparison."""
        text = f"broker {row['broker_id']}: computed that it {told}, stated otherwise"
        self.tally.note(row["seq"], text, agrees=agrees)

    def checks(self) -> list[dict[str, Any]]:
        """The check; none if nothing was compared."""
        return self.tally.rows(CHECK)
