"""Which requests a filtered request log keeps, by Kafka's number and name of the API.

The settings that we recommend for brokers (`conf/kafka-broker-log4j2.yaml`, `conf/kafka-broker-log4j.properties`) let
pass these and no others; a test compares the lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Requests whose bodies are read. Names are those of the text form (up to 2.7): ALTER_ISR is AlterPartition since 3.2.
READ: Final[Mapping[int, str]] = {
    0: "PRODUCE",
    1: "FETCH",
    3: "METADATA",
    4: "LEADER_AND_ISR",
    21: "DELETE_RECORDS",
    23: "OFFSET_FOR_LEADER_EPOCH",
    24: "ADD_PARTITIONS_TO_TXN",
    26: "END_TXN",
    27: "WRITE_TXN_MARKERS",
    56: "ALTER_ISR",
}
# What producers and followers send besides. Only their numbers are read: without these lines each of them would look
# like a line that the log has lost. The last two came with 3.7 and never were printed as text.
NUMBERED: Final[Mapping[int, str]] = {
    2: "LIST_OFFSETS",
    10: "FIND_COORDINATOR",
    18: "API_VERSIONS",
    22: "INIT_PRODUCER_ID",
    25: "ADD_OFFSETS_TO_TXN",
    28: "TXN_OFFSET_COMMIT",
    71: "GET_TELEMETRY_SUBSCRIPTIONS",
    72: "PUSH_TELEMETRY",
}
KEPT: Final[Mapping[int, str]] = {**READ, **NUMBERED}
