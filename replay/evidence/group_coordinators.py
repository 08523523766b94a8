"""Which brokers run the group coordinator of KIP-848, by the settings that they print when they start.

From 4.0 on there is no other. In 3.7 to 3.9 a KRaft broker has it if the new rebalance protocol is enabled, or by a
switch that no documentation names (`KafkaConfig.isNewGroupCoordinatorEnabled`); by default it does not. It writes with
acks=1, where the older one asks for all replicas (`CoordinatorPartitionWriter`, `GroupMetadataManager`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from replay.evidence.rows import place_in_log
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.rows import Row

SWITCH: Final = "group.coordinator.new.enable"
PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
CONSUMER: Final = "consumer"  # the protocol that only the new coordinator speaks

Coordinators = dict[int, list[tuple[int, bool]]]  # broker -> when it printed a setting; if it is on


def coordinators_in(cluster: Iterable[Row]) -> Coordinators:
    """Which brokers printed that they have it, and when. `cluster`: the facts about the whole cluster."""
    printed = [
        row
        for row in cluster
        if row["kind"] == "config_change"
        and row["name"] in (SWITCH, PROTOCOLS)
        and row["broker_id"] is not None
        and row["ts"] is not None
    ]
    by_setting: dict[tuple[int, str], bool] = {}
    found: Coordinators = defaultdict(list)
    for row in sorted(printed, key=place_in_log):
        broker, value = row["broker_id"], (row["value"] or "").strip("[] ")
        protocols = {one.strip().lower() for one in value.split(",")}
        by_setting[broker, row["name"]] = value == "true" if row["name"] == SWITCH else CONSUMER in protocols
        is_on = any(by_setting.get((broker, name), False) for name in (SWITCH, PROTOCOLS))
        found[broker].append((micros(row["ts"]), is_on))
    return found


def is_on(turns: Coordinators, broker: int, us: int) -> bool:
    """Whether a broker had it at `us`, by what it printed before; where it printed nothing, Kafka's default holds."""
    told = turns.get(broker, [])
    place = bisect_right(told, us, key=lambda turn: turn[0])
    return told[place - 1][1] if place else False
