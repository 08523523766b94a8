"""Which Kafka wrote the evidence, where neither a broker's start nor a manifest says: told by what brokers use.

A broker asks other brokers with the Fetch version of its inter.broker.protocol.version or metadata.version
(ReplicaFetcherThread.fetchRequestVersion up to 3.2, MetadataVersion.fetchRequestVersion since), a client with the
newest that both know. Each use is possible from some release on; among those that fit, the newest is taken.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from replay.profile import parse_protocol, parse_version
from replay.rows import Row, is_by_replica

if TYPE_CHECKING:
    from collections.abc import Iterable

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
# first level of metadata.version that a release has, MetadataVersion
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


def version_told(cluster: Iterable[Row], fetches: Iterable[Row]) -> str | None:
    """The release that wrote the evidence; None where nothing tells. What a broker says of itself wins."""
    rows = list(cluster)
    stated = [r["value"] for r in rows if r["kind"] == "broker_lifecycle" and r["name"] == "version" and r["value"]]
    if stated:
        return str(stated[0])
    levels = [r["value"] for r in rows if r["kind"] == "feature_change" and r["name"] == "metadata.version"]
    told = [
        METADATA_LEVELS[bisect_right(METADATA_LEVELS, int(level), key=itemgetter(0)) - 1][1]
        for level in levels
        if (level or "").isdecimal() and int(level)
    ]
    sent = [row["api_version"] for row in fetches if row["api_version"] is not None]
    if sent and max(sent) in FETCH_VERSIONS:
        told.append(FETCH_VERSIONS[max(sent)][1])
    return max(told, key=lambda text: parse_version(text) or (0, 0, 0), default=None)


def protocol_told(fetches: Iterable[Row], version: str | None) -> str | None:
    """The inter.broker.protocol.version that followers ask by, where it is below the brokers' own; else None."""
    sent = [row["api_version"] for row in fetches if is_by_replica(row) and row["api_version"] is not None]
    told, _ = FETCH_VERSIONS.get(max(sent, default=-1), (None, None))
    spoken, own = parse_protocol(told), parse_protocol(version)
    return told if spoken and own and spoken[:2] < own[:2] else None
