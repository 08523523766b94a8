"""Where brokers are, and how their leaders choose among replicas for a consumer (KIP-392).

A broker prints `broker.rack` and `replica.selector.class` as it starts. `RackAwareReplicaSelector` goes by the rack
that the consumer's fetch names; any other selector may do as it likes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replay.evidence.controller_view import stated_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.evidence.rows import Row

RACK_SETTING, SELECTOR_SETTING = "broker.rack", "replica.selector.class"
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NULL: Final = "null"  # as a setting that is not set is printed


class Racks(NamedTuple):
    """Which broker is in which rack, as far as known, and which brokers choose by racks."""

    of: dict[int, str]
    choosing: frozenset[int]

    def among(self, leader: int, replicas: Iterable[int], wanted: Sequence[str | None]) -> list[list[int] | None]:
        """Of some replicas those in each wanted rack; None: unknown, or it is not by racks that the leader chooses."""
        replicas = sorted(replicas)
        if leader not in self.choosing or not all(replica in self.of for replica in replicas):
            return [None] * len(wanted)
        return [None if rack is None else [one for one in replicas if self.of[one] == rack] for rack in wanted]


def racks_of(cluster: list[Row]) -> Racks:
    """What the brokers' own lines say; a broker that was moved to another rack is in none that is known."""
    said: dict[int, set[str]] = {}
    for row in cluster:
        if row["kind"] == "config_change" and row["name"] == RACK_SETTING and row["broker_id"] is not None:
            said.setdefault(row["broker_id"], set()).add(row["value"] or NULL)
    settings = stated_settings(cluster)
    choosing = frozenset(broker for broker, told in settings.items() if told.get(SELECTOR_SETTING) == RACK_AWARE)
    return Racks({broker: next(iter(racks)) for broker, racks in said.items() if len(racks) == 1}, choosing)
