"""What one tenure needs to know of all the others, looked up by leader epoch, offset or time.

A partition may have a hundred thousand leader epochs, so no tenure scans the facts of all of them: each list is built
once, when first asked for, and searched by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypeVar

from replay.arrays.ints import NEVER
from replay.evidence.group_coordinators import coordinators_in
from replay.evidence.replication_quotas import LIST_SETTING
from replay.evidence.request_times import phases
from replay.evidence.roles import THREAD_END, moment
from replay.evidence.rows import place_in_log
from replay.evidence.tenures import ISR_TAKEN_OVER, micros
from replay.evidence.views import Indexed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.evidence.group_coordinators import Coordinators
    from replay.evidence.roles import RoleKey
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Decision, Tenure

SEGMENT_SETTING = "segment.bytes"
SEGMENT_DEFAULT = "log.segment.bytes"  # a broker's, for topics that have none
T = TypeVar("T")
Setting = tuple["Row", int]  # the line that states it, and its value
Falling = tuple[list[int], list[int]]  # numbers, rising; and for each the least value from it onward


def falling(found: Iterable[tuple[int, int]]) -> Falling:
    """Index numbers and values, to look up the least value beyond a number (`least_after`)."""
    told = sorted(found)
    return [number for number, _ in told], list(accumulate((value for _, value in reversed(told)), min))[::-1]


def least_after(told: Falling, number: int) -> int:
    """The least value among larger numbers; `NEVER` if there are none."""
    numbers, values = told
    place = bisect_right(numbers, number)
    return values[place] if place < len(numbers) else NEVER


def by_broker(keys: Iterable[RoleKey]) -> dict[int, list[int]]:
    """Broker -> the leader epochs of its roles, rising."""
    found: dict[int, list[int]] = defaultdict(list)
    for broker, epoch in sorted(keys):
        found[broker].append(epoch)
    return found


class Turns:
    """The facts of one partition by leader epoch."""

    def __init__(self, facts: Indexed) -> None:
        """Everything is looked up on demand."""
        self.facts = facts
        self.leos: dict[int, list[tuple[int, int | None]]] = {}
        self.taken_over: dict[int, dict[int, Row]] = {}

    @cached_property
    def roles(self) -> dict[int, list[int]]:
        """Broker -> leader epochs of its role lines, rising."""
        return by_broker(self.facts.role_lines)

    def role_after(self, broker: int, epoch: int) -> int | None:
        """The next leader epoch in which the broker reports having taken up a role."""
        epochs = self.roles.get(broker, ())
        place = bisect_right(epochs, epoch)
        return epochs[place] if place < len(epochs) else None

    @cached_property
    def moments(self) -> dict[int, Falling]:
        """Broker -> its leader epochs and when it took up its roles in them."""
        lines = self.facts.role_lines
        return {
            broker: falling((epoch, moment(lines[broker, epoch])) for epoch in epochs)
            for broker, epochs in self.roles.items()
        }

    def left_us(self, broker: int, epoch: int) -> int:
        """When a broker first reported a role in a later leader epoch, microseconds; else `NEVER`."""
        return least_after(self.moments.get(broker, ([], [])), epoch)

    @cached_property
    def followers(self) -> dict[int, set[int]]:
        """Leader epoch -> brokers that report following in it."""
        found: dict[int, set[int]] = defaultdict(set)
        for (broker, epoch), row in self.facts.role_lines.items():
            if row["name"] == "follower":
                found[epoch].add(broker)
        return found

    @cached_property
    def first_moment(self) -> dict[int, int]:
        """Leader epoch -> when the first broker took up a role in it."""
        found: dict[int, int] = {}
        for (_, epoch), row in self.facts.role_lines.items():
            found[epoch] = min(found.get(epoch, NEVER), moment(row))
        return found

    @cached_property
    def thread_ends(self) -> list[Row]:
        """Lines that say that a fetcher thread ended; they name its broker and its leader, but no partition."""
        rows = self.facts.cluster
        return [r for r in rows if r["kind"] == "broker_lifecycle" and r["name"] == THREAD_END and r["ts"] is not None]

    @cached_property
    def new_group_coordinators(self) -> Coordinators:
        """Broker -> when it printed whether it runs the group coordinator of KIP-848, and whether it does."""
        return coordinators_in(self.facts.cluster)

    @cached_property
    def saying(self) -> dict[int, set[int]]:
        """Leader epoch -> brokers whose lines in it tell of their fetchers."""
        found: dict[int, set[int]] = defaultdict(set)
        for broker, epoch in self.facts.fetcher_lines:
            found[epoch].add(broker)
        return found

    @cached_property
    def cutting(self) -> dict[int, set[int]]:
        """Leader epoch -> brokers that truncated their logs in it."""
        found: dict[int, set[int]] = defaultdict(set)
        for broker, epoch in self.facts.cuts:
            found[epoch].add(broker)
        return found

    @cached_property
    def log_starts(self) -> dict[int, list[tuple[int, list[Row]]]]:
        """Leader epoch -> brokers and their lines about new log starts."""
        found: dict[int, list[tuple[int, list[Row]]]] = defaultdict(list)
        for (broker, epoch), rows in sorted(self.facts.log_starts.items()):
            found[epoch].append((broker, rows))
        return found

    @cached_property
    def breaks(self) -> dict[int, list[int]]:
        """Broker -> leader epochs, rising, in which it truncated its log, or restarted and took up its role again."""
        found: dict[int, set[int]] = defaultdict(set)
        for roles in (self.facts.cuts, self.facts.rejoins):
            for (broker, epoch), rows in roles.items():
                if rows:
                    found[broker].add(epoch)
        return {broker: sorted(epochs) for broker, epochs in found.items()}

    @cached_property
    def loads(self) -> dict[int, list[int]]:
        """Broker -> leader epochs, rising, before which it loaded its log."""
        return by_broker(self.facts.loads)

    def was_whole(self, broker: int, since: int, until: int) -> bool:
        """Whether no truncation or restart is known in the leader epochs [since, until), except a load before them."""
        cut, load = self.breaks.get(broker, ()), self.loads.get(broker, ())
        no_cut = bisect_left(cut, since) == bisect_left(cut, until)
        return no_cut and bisect_right(load, since) >= bisect_left(load, until)

    @cached_property
    def tenures(self) -> dict[int, Tenure]:
        """Leader epoch -> tenure."""
        return {tenure.epoch: tenure for tenure in self.facts.tenures}

    @cached_property
    def decisions(self) -> dict[int, list[Decision]]:
        """Leader epoch -> decisions."""
        found: dict[int, list[Decision]] = defaultdict(list)
        for decision in self.facts.decisions:
            found[decision.leader_epoch].append(decision)
        return found

    @cached_property
    def places(self) -> Falling:
        """Leader epochs, and the places of their decisions in the metadata log."""
        return falling((decision.leader_epoch, decision.place) for decision in self.facts.decisions)

    @cached_property
    def begun(self) -> Falling:
        """Leader epochs, and when each was decided."""
        return falling((one.epoch, one.decisions[0].us) for one in self.facts.tenures if one.decisions)

    @cached_property
    def passed_on(self) -> dict[int, int]:
        """Leader epoch -> the first later one that another broker led."""
        found: dict[int, int] = {}
        later: Tenure | None = None
        for tenure in reversed(self.facts.tenures):
            if tenure.leader < 0:
                continue
            if later is not None:
                other = later.epoch if later.leader != tenure.leader else found.get(later.epoch)
                if other is not None:
                    found[tenure.epoch] = other
            later = tenure
        return found

    @cached_property
    def starts(self) -> Falling:
        """Leader epochs, and where each starts; 0 if no source states it."""
        told = self.facts.starts
        stated = {epoch: start for epoch, (start, evidence) in told.items() if evidence == "observed"}
        return falling((one.epoch, stated.get(one.epoch, 0)) for one in self.facts.tenures if one.leader >= 0)

    def may_follow_unheard(self, tenure: Tenure) -> bool:
        """Whether a tenure's leader reports no role up to the epoch in which another broker led after it."""
        passed, role = self.passed_on.get(tenure.epoch, NEVER), self.role_after(tenure.leader, tenure.epoch)
        return passed < (NEVER if role is None else role)

    def least_start_after(self, tenure: Tenure) -> int:
        """The least offset at which a later leader epoch may start."""
        return least_after(self.starts, tenure.epoch)

    def isr_lines(self, leader: int) -> dict[int, Row]:
        """Partition epoch -> the line with which that leader first reported having taken over that state."""
        if leader not in self.taken_over:
            rows = [r for r in self.facts.by_kind["isr_update"] if r["name"] in ISR_TAKEN_OVER]
            mine = [r for r in rows if r["broker_id"] == leader]
            mine.sort(key=place_in_log, reverse=True)
            self.taken_over[leader] = {row["partition_epoch"]: row for row in mine}
        return self.taken_over[leader]

    @cached_property
    def isr_updates(self) -> dict[tuple[int, int | None], list[Row]]:
        """(broker, leader epoch) -> lines about the ISR in the order of their log.

        A line belongs to the leader epoch that it names, else to the one in force on that broker at that time.
        """
        found: dict[tuple[int, int | None], list[Row]] = defaultdict(list)
        for row in self.facts.by_kind["isr_update"]:
            if row["ts"] is not None:
                epoch = row["leader_epoch"]
                named = epoch if epoch is not None else self.facts.epoch_at(row["broker_id"], micros(row["ts"]))
                found[row["broker_id"], named].append(row)
        for rows in found.values():
            rows.sort(key=place_in_log)
        return found

    @cached_property
    def isr_requests(self) -> dict[tuple[int, int], list[Row]]:
        """(leader, leader epoch) -> AlterPartition (AlterIsr) requests, in the order the controller took them up."""
        found: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in self.facts.by_kind["isr_request"]:
            found[row["replica_id"], row["leader_epoch"]].append(row)
        for rows in found.values():
            rows.sort(key=lambda row: (phases(row).taken, row["source_file"], row["source_line"]))
        return found

    @cached_property
    def min_isr_offsets(self) -> tuple[list[int], list[Setting]]:
        """Changes of min.insync.replicas with a place in the metadata log: their places, rising, and the changes."""
        told = [one for one in self.facts.min_isr_changes if one[0]["metadata_offset"] is not None]
        told.sort(key=lambda one: one[0]["metadata_offset"])
        return [row["metadata_offset"] for row, _ in told], told

    @cached_property
    def min_isr_times(self) -> tuple[list[int], list[Setting]]:
        """Changes of min.insync.replicas without such a place: their times, rising, and the changes."""
        told = [one for one in self.facts.min_isr_changes if one[0]["metadata_offset"] is None]
        told.sort(key=lambda one: micros(one[0]["ts"]))
        return [micros(row["ts"]) for row, _ in told], told

    @cached_property
    def segment_settings(self) -> list[Row]:
        """What the metadata log tells of how large a segment of the topic may become, in order."""
        rows = [*self.facts.cluster, *self.facts.by_kind["config_change"]]
        told = [r for r in rows if r["name"] == SEGMENT_SETTING and r["topic"] == self.facts.topic]
        return sorted((r for r in told if r["metadata_offset"] is not None), key=lambda row: row["metadata_offset"])

    @cached_property
    def segment_defaults(self) -> list[Row]:
        """What brokers print, as they start, of how large a segment of a topic without a limit may become.

        Nothing where the metadata log has such a setting: when a broker takes that up is not looked at.
        """
        told = [r for r in self.facts.cluster if r["kind"] == "config_change" and r["name"] == SEGMENT_DEFAULT]
        return [] if any(row["metadata_offset"] is not None for row in told) else told

    @cached_property
    def append_lines(self) -> dict[int, tuple[list[int], list[Row]]]:
        """Broker -> times of its lines about appends, rising, and the lines."""
        found: dict[int, list[Row]] = defaultdict(list)
        for (broker, _), rows in self.facts.append_lines.items():
            found[broker] += [row for row in rows if row["last_offset"] is not None]
        for rows in found.values():
            rows.sort(key=lambda line: (line["ts"], line["base_offset"]))
        return {broker: ([micros(row["ts"]) for row in rows], rows) for broker, rows in found.items()}

    @cached_property
    def fetch_times(self) -> dict[tuple[int, int], list[tuple[int, bool]]]:
        """(replica, leader) -> when it fetched, rising, and whether that fetch left the partition out."""
        found: dict[tuple[int, int], list[tuple[int, bool]]] = defaultdict(list)
        for row in self.facts.by_kind["fetch"]:
            found[row["replica_id"], row["broker_id"]].append((phases(row).taken, bool(row["forgotten"])))
        for times in found.values():
            times.sort()
        return found

    @cached_property
    def throttled(self) -> tuple[list[int], list[frozenset[int]]]:
        """Times, rising, and which followers of the partition the topic's configuration throttles from then on."""
        told: dict[int, str] = {}
        for row in self.facts.quota_settings:
            if row["name"] == LIST_SETTING.format("follower") and row["ts"] is not None:
                told.setdefault(micros(row["ts"]), row["value"] or "")
        every = frozenset(b for d in self.facts.decisions for b in d.replicas)
        listed = []
        for us in sorted(told):
            pairs = [one.partition(":") for one in told[us].split(",") if one]
            mine = frozenset(int(b) for at, _, b in pairs if at.isdigit() and int(at) == self.facts.partition)
            listed.append(every if told[us] == "*" else mine)
        return sorted(told), listed

    def left_out_at(self, replica: int, leader: int, us: int) -> bool:
        """Whether the replica's last fetch from that leader up to `us` left the partition out."""
        times = self.fetch_times.get((replica, leader), ())
        place = bisect_right(times, (us, True))
        return bool(place) and times[place - 1][1]

    @cached_property
    def ends(self) -> dict[int, int]:
        """Broker -> the end of its log in the final segment dump."""
        found: dict[int, int] = {}
        for row in self.facts.by_kind["segment_batch"]:
            found[row["broker_id"]] = max(found.get(row["broker_id"], 0), row["last_offset"] + 1)
        return found

    def stated_leos(self, replica: int) -> list[tuple[int, int | None]]:
        """(leader epoch, LEO) as the replica took up its role in that epoch; every epoch that it led is included."""
        if replica not in self.leos:
            lines, starts = self.facts.role_lines, self.facts.starts
            found = {e: lines[replica, e]["offset"] for e in self.roles.get(replica, ())}
            found = {epoch: offset for epoch, offset in found.items() if offset is not None}
            for tenure in self.facts.tenures:
                if tenure.leader == replica:
                    found.setdefault(tenure.epoch, starts.get(tenure.epoch, (None, ""))[0])
            self.leos[replica] = sorted(found.items(), key=lambda one: one[0])
        return self.leos[replica]

    def leo_after(self, replica: int, epoch: int) -> tuple[int, int | None] | None:
        """The next of `stated_leos` after a leader epoch."""
        told = self.stated_leos(replica)
        place = bisect_right(told, epoch, key=lambda one: one[0])
        return told[place] if place < len(told) else None

    def stated_after(self, tenure: Tenure) -> int | None:
        """The leader's LEO as first stated after the tenure; None if it may have followed another leader by then."""
        following = self.leo_after(tenure.leader, tenure.epoch)
        if following is None or self.passed_on.get(tenure.epoch, NEVER) < following[0]:
            return None
        return following[1]


def among(numbers: Sequence[int], told: Sequence[T], first: int, end: int) -> Sequence[T]:
    """Items whose numbers, rising, lie in [first, end)."""
    return told[bisect_left(numbers, first) : bisect_left(numbers, end)]


class IndexedByTenure(Indexed, Protocol):
    """The same with what one tenure needs to know of the others."""

    turns: Turns
