"""Which Kafka version each broker ran and when: from its own startup lines, else a manifest, else inferred from use.

Brokers of one cluster may differ for as long as a rolling upgrade takes, so a version belongs to a broker, from one of
its starts to the next. The order in which lines were read never decides which of two lines wins.

A broker asks other brokers with the Fetch version of its inter.broker.protocol.version or metadata.version
(ReplicaFetcherThread.fetchRequestVersion up to 3.2, MetadataVersion.fetchRequestVersion since), a client with the
newest version that both know. Each version is possible from some release on; the newest release that fits is taken.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from replay.arrays.ints import NEVER
from replay.evidence.request_columns import RequestColumns
from replay.evidence.tenures import micros
from replay.protocol.profile import parse_protocol, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replay.evidence.epochs import LeaderSpan
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

PROTOCOL_SETTING = "inter.broker.protocol.version"
METADATA_VERSION = "metadata.version"  # the feature that replaces it in KRaft

# Fetch version -> last protocol whose brokers send it, last release that has no newer one
FETCH_VERSIONS = {
    3: ("0.10.2", "0.10.2"),
    4: ("0.11-IV0", "0.11.0"),
    5: ("1.0", "1.0.2"),
    7: ("2.0-IV0", "1.1.1"),
    8: ("2.1-IV1", "2.0.1"),
    10: ("2.3-IV0", "2.2.2"),
    11: ("2.7-IV0", "2.6.3"),
    12: ("3.0", "3.0.2"),
    13: ("3.4", "3.4.1"),
    14: ("3.5-IV0", "3.5.2"),
    15: ("3.7-IV3", "3.6.2"),
    16: ("3.8", "3.8.1"),
    17: ("4.0", "4.0.0"),
}
# first level of metadata.version in each release, from MetadataVersion
METADATA_LEVELS = (
    (1, "3.0"),
    (2, "3.1"),
    (3, "3.2"),
    (4, "3.3"),
    (8, "3.4"),
    (9, "3.5"),
    (12, "3.6"),
    (15, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (22, "4.0"),
    (26, "4.1"),
)


class Spoken(NamedTuple):
    """The version and protocol of a broker at some time; null if unknown."""

    version: str | None
    protocol: str | None


UNTOLD = Spoken(None, None)
Stated = dict[int, list[tuple[int, str]]]  # broker -> (since when, value), rising


@dataclass(frozen=True, slots=True)
class Versions:
    """Which Kafka version each broker ran when, and which inter.broker.protocol.version it was configured with."""

    versions: Stated = field(default_factory=dict)
    protocols: Stated = field(default_factory=dict)
    first: Spoken = UNTOLD  # from a manifest: a recording's first version, and its protocol
    used: Spoken = UNTOLD  # inferred from use, if nothing states it

    def at(self, broker: int, us: int) -> Spoken:
        """What a broker ran and spoke at `us`."""
        version = in_force(self.versions, broker, us, self.first.version) or self.used.version
        return Spoken(version, in_force(self.protocols, broker, us, self.first.protocol) or self.used.protocol)

    @property
    def differ(self) -> bool:
        """Whether versions or protocols differ between brokers or over time."""
        protocols = {value for rows in self.protocols.values() for _, value in rows}
        return len(self.seen) > 1 or len(protocols | ({self.first.protocol} if self.first.protocol else set())) > 1

    @property
    def seen(self) -> list[str]:
        """Every stated version, rising."""
        told = {value for rows in self.versions.values() for _, value in rows}
        return sorted(told | ({self.first.version} if self.first.version else set()), key=by_version)


def by_version(text: str) -> tuple[tuple[int, int, int], str]:
    """Sort key of versions."""
    return parse_version(text) or (0, 0, 0), text


def in_force(stated: Stated, broker: int, us: int, first: str | None) -> str | None:
    """A broker's own latest line, else the manifest, else its first line; without any, the other brokers' lines."""
    own = stated.get(broker, [])
    before = [value for since, value in own if since <= us]
    if before or first or own:
        return before[-1] if before else first or own[0][1]
    others = sorted((since, by_version(value), value) for rows in stated.values() for since, value in rows)
    earlier = [value for since, _, value in others if since <= us]
    return earlier[-1] if earlier else others[0][2] if others else None


def versions_of(cluster: Iterable[Row], fetches: Sequence[Row], first: Spoken) -> Versions:
    """Versions and protocols from the facts of a recording; `first`: those in its manifest."""
    rows, asked = list(cluster), list(fetches)
    versions = stated_over_time(r for r in rows if r["kind"] == "broker_lifecycle" and r["name"] == "version")
    protocols = stated_over_time(
        r for r in rows if r["kind"] == "config_change" and r["name"] == PROTOCOL_SETTING and r["topic"] is None
    )
    told = first.version or version_told(rows, asked)
    spoken = None if protocols or first.protocol else protocol_told(asked, told)
    return Versions(versions, protocols, first, Spoken(told, spoken))


def spoken_in_tenures(
    versions: Versions, tenures: Sequence[Tenure], leads: Mapping[int, Sequence[LeaderSpan]], others: set[int]
) -> dict[int, dict[int, Spoken]]:
    """Leader epoch -> what each broker ran and spoke in the tenure; empty if it is the same throughout.

    For the leader, as it began to lead (`leads`: broker -> the epochs that it led), since after a restart it leads in
    another epoch. For any other broker, as the tenure ended, since what it does about its log comes after it has
    started.
    """
    if not versions.differ:
        return {}
    brokers = {b for one in tenures for d in one.decisions for b in (*d.replicas, *d.isr)} | leads.keys() | others
    began = {(b, span.epoch): span.since for b, spans in leads.items() for span in spans}
    out: dict[int, dict[int, Spoken]] = {}
    until = NEVER
    for tenure in reversed(tenures):
        out[tenure.epoch] = {
            b: versions.at(b, began.get((b, tenure.epoch), until) if b == tenure.leader else until)
            for b in sorted(brokers)
            if b >= 0
        }
        until = tenure.decisions[0].us if tenure.decisions else until
    return out


def stated_over_time(rows: Iterable[Row]) -> Stated:
    """Values that brokers state about themselves, by broker and in time; repetitions are left out."""
    found: dict[int, set[tuple[int, tuple[Any, str]]]] = {}
    for row in rows:
        if row["value"] and row["ts"] is not None and parse_version(row["value"]) is not None:
            broker = row["broker_id"] if row["broker_id"] is not None else -1
            found.setdefault(broker, set()).add((micros(row["ts"]), by_version(row["value"])))
    out: Stated = {}
    for broker, told in sorted(found.items()):
        mine = out.setdefault(broker, [])
        for us, (_, value) in sorted(told):
            if not mine or mine[-1][1] != value:
                mine.append((us, value))
    return out


def release_of_level(level: str | None) -> str | None:
    """The first release with a metadata.version level; the newest known for higher ones; None: not a level."""
    number = int(level) if level is not None and level.isdecimal() else 0
    known = bisect_right(METADATA_LEVELS, number, key=itemgetter(0))
    return METADATA_LEVELS[known - 1][1] if known else None


def version_told(cluster: Iterable[Row], fetches: Sequence[Row]) -> str | None:
    """The release that wrote the evidence: the first one stated, else inferred from use; None if unknown."""
    rows = list(cluster)
    stated = stated_over_time(r for r in rows if r["kind"] == "broker_lifecycle" and r["name"] == "version")
    if stated:
        return min((us, by_version(value)) for told in stated.values() for us, value in told)[1][1]
    levels = [r["value"] for r in rows if r["kind"] == "feature_change" and r["name"] == METADATA_VERSION]
    told = [release for level in levels if (release := release_of_level(level)) is not None]
    sent = newest_version(fetches)
    if sent in FETCH_VERSIONS:
        told.append(FETCH_VERSIONS[sent][1])
    return max(told, key=lambda text: parse_version(text) or (0, 0, 0), default=None)


def newest_version(fetches: Sequence[Row], *, by_replicas: bool = False) -> int:
    """The newest version that fetches use, or those that brokers send; -1 if none tells."""
    told = RequestColumns(fetches)
    sent = told.stated("api_version")
    return int((sent[told.stated("replica_id") >= 0] if by_replicas else sent).max(initial=-1))


def protocol_told(fetches: Sequence[Row], version: str | None) -> str | None:
    """The inter.broker.protocol.version that followers use, if it is below the brokers' own; else None."""
    told, _ = FETCH_VERSIONS.get(newest_version(fetches, by_replicas=True), (None, None))
    spoken, own = parse_protocol(told), parse_protocol(version)
    return told if spoken and own and spoken[:2] < own[:2] else None
