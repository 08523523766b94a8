"""Replication quotas of a partition over time (KIP-73): how fast each broker may send it, and how fast fetch it.

A broker's rate (leader.replication.throttled.rate, follower.replication.throttled.rate) holds for all partitions
together that the topics' lists name for that broker (….throttled.replicas). Where the metadata log decides, its records
tell both. Elsewhere brokers' lines do: each broker writes one for every change that it hears of, with all that the
topic or broker has been given, so that a setting which the line does not name has been removed. What a broker was given
before its first such line it reads as it starts, and no line says so: then no limit is known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from replay.evidence.min_isr import number_in
from replay.evidence.tenures import micros
from replay.protocol.profile import profile_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from replay.evidence.rows import Row
    from replay.evidence.versions import Spoken

    SpokenAt = Callable[[int, int], Spoken]  # what a broker ran and spoke at a time

SIDES: Final = ("leader", "follower")
RATE_SETTINGS: Final = {f"{side}.replication.throttled.rate": side for side in SIDES}  # of a broker, or of all
LIST_SETTING: Final = "{}.replication.throttled.replicas"  # of a topic: partition:broker,... or *
LIST_SETTINGS: Final = {LIST_SETTING.format(side): side for side in SIDES}
NO_LIMIT: Final = -1
LINES: Final = "quota_change"
OF_CLIENTS: Final = "client"  # the name of lines about quotas of clients
TOGETHER_US: Final = 1_000_000  # the lines of all brokers about one change are written within this time


class QuotaChange(NamedTuple):
    """A record or line from which on another rate holds for a broker and side in this partition."""

    row: Row
    broker: int
    side: str
    rate: int  # bytes per second; NO_LIMIT: none

    @property
    def evidence(self) -> str:
        """Whether the metadata log or the broker's own line states it; another's line may be somewhat off in time."""
        own = self.row["metadata_offset"] is not None or self.row["broker_id"] == self.broker
        return "observed" if own else "bounded"


def quota_settings(rows: Iterable[Row], *, is_in_metadata: bool) -> list[Row]:
    """What is told of quotas, a row for each setting, in order; `value` is null where it was removed.

    `is_in_metadata`: whether the metadata log decides, so that its records tell, and not the lines of brokers.
    """
    if is_in_metadata:
        told = [row for row in rows if row["kind"] == "config_change" and row["metadata_offset"] is not None]
        return sorted((row for row in told if is_of_quotas(row)), key=lambda row: row["metadata_offset"])
    lines: dict[tuple[int, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == LINES and row["name"] != OF_CLIENTS and row["ts"] is not None:
            lines[micros(row["ts"]), row["source_file"] or "", row["source_line"] or 0].append(row)
    return [setting for place in sorted(lines) for setting in settings_in(lines[place])]


def is_of_quotas(row: Row) -> bool:
    """Whether a record of a setting is about a replication quota."""
    return row["name"] in (LIST_SETTINGS if row["topic"] is not None else RATE_SETTINGS)


def settings_in(line: Sequence[Row]) -> Iterator[Row]:
    """The settings that a line states, from its facts: those that it does not name were removed."""
    named = {row["name"]: row for row in line}
    for name in LIST_SETTINGS if line[0]["topic"] is not None else RATE_SETTINGS:
        yield named[name] if name in named else line[0].but(name=name, value=None)


def quota_changes(
    settings: Sequence[Row], partition: int, brokers: Iterable[int], spoken_at: SpokenAt
) -> list[QuotaChange]:
    """The changes of limits, in order. `settings`: of `quota_settings`; `brokers`: who ever was a replica."""
    found = [
        (place, SIDES.index(one.side), one.broker, one)
        for broker in set(brokers)
        for place, one in changes_of(heard_by(settings, broker), partition, broker, spoken_at)
    ]
    return [one for *_, one in sorted(found, key=lambda told: told[:3])]


def heard_by(settings: Sequence[Row], broker: int) -> Iterator[tuple[int, Row]]:
    """The settings as a broker heard of them, with their places: by its own line, or if it has none, by another's."""
    own: dict[tuple[str | None, int | None], list[int]] = defaultdict(list)
    for row in settings:
        if row["metadata_offset"] is None and row["broker_id"] == broker:
            own[row["topic"], row["subject_broker_id"]].append(micros(row["ts"]))
    for place, row in enumerate(settings):
        if row["metadata_offset"] is None and row["broker_id"] != broker:
            times, at = own[row["topic"], row["subject_broker_id"]], micros(row["ts"])
            near = bisect_left(times, at - TOGETHER_US)
            if near < len(times) and times[near] <= at + TOGETHER_US:
                continue
        yield place, row


def changes_of(
    heard: Iterable[tuple[int, Row]], partition: int, broker: int, spoken_at: SpokenAt
) -> Iterator[tuple[int, QuotaChange]]:
    """A broker's changes, with their places; its own rate goes before the cluster's, where that counts at all."""
    rates: dict[tuple[str, int | None], int | None] = {}
    lists = dict.fromkeys(SIDES, "")
    held = dict.fromkeys(SIDES, NO_LIMIT)
    for place, row in heard:
        if row["topic"] is not None:
            lists[LIST_SETTINGS[row["name"]]] = row["value"] or ""
        else:
            rates[RATE_SETTINGS[row["name"]], row["subject_broker_id"]] = number_in(row)
        profile = profile_named(*spoken_at(broker, micros(row["ts"]) if row["ts"] is not None else 0))
        for side, until_now in held.items():
            rate = rates.get((side, broker))
            if rate is None and profile.throttled_by_default:
                rate = rates.get((side, None))
            now = rate if rate is not None and is_listed(lists[side], partition, broker) else NO_LIMIT
            if now != until_now:
                held[side] = now
                yield place, QuotaChange(row, broker, side, now)


def is_listed(text: str, partition: int, broker: int) -> bool:
    """Whether a list of throttled replicas (`0:1,0:2`, or `*`) names the partition on the broker."""
    return text == "*" or f"{partition}:{broker}" in text.split(",")


def sides_of(settings: Iterable[Row], partition: int) -> set[str]:
    """The sides whose lists ever name the partition on any broker."""
    lists = ((LIST_SETTINGS.get(row["name"]), row["value"] or "") for row in settings)
    return {
        side
        for side, text in lists
        if side and any(one == "*" or one.startswith(f"{partition}:") for one in text.split(","))
    }
