"""`kafka-dump-log --cluster-metadata-decoder` of __cluster_metadata: the controller's decisions, in their order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from pipelines.parse.rows import FactSink, Shape, identity, row_id

if TYPE_CHECKING:
    from collections.abc import Callable

_RECORD = re.compile(r"\| offset: (\d+) .*?CreateTime: (-?\d+) .*?payload: (\{.*\})\s*")
_BATCH = "baseOffset: "
_SILENT = ("Dumping ", "Log starting offset", "Starting offset:", "Snapshot end offset", "log4j:", "SLF4J")
_UNCHANGED_LEADER = -2
_FLAGS = {1: True, -1: False}

_RECORD_COLUMNS = ("metadata_offset", "record_type")
_PARTITION_COLUMNS = (
    *_RECORD_COLUMNS,
    "topic_id",
    "partition",
    "leader_id",
    "leader_epoch",
    "partition_epoch",
    "isr",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "elr",
    "last_known_elr",
    "leader_recovery_state",
)
PARTITION_CHANGE = Shape("partition_change", _PARTITION_COLUMNS)
TOPIC_CREATED = Shape("topic_change", (*_RECORD_COLUMNS, "topic", "topic_id"), (("name", "create"),))
TOPIC_REMOVED = Shape("topic_change", (*_RECORD_COLUMNS, "topic_id"), (("name", "remove"),))
BROKER_CHANGE = Shape(
    "broker_change",
    (*_RECORD_COLUMNS, "subject_broker_id", "broker_epoch", "fenced", "in_controlled_shutdown"),
)
CONFIG_CHANGE = Shape(
    "config_change", (*_RECORD_COLUMNS, "resource_type", "topic", "subject_broker_id", "name", "value")
)
FEATURE_CHANGE = Shape("feature_change", (*_RECORD_COLUMNS, "topic", "name", "value"))
TOPIC_RESOURCE = 2


class _Payload(msgspec.Struct):
    type: str
    data: dict[str, Any]


_DECODER = msgspec.json.Decoder(_Payload)
_Values = tuple[Shape, tuple[Any, ...]]


def _partition(data: dict[str, Any]) -> _Values:
    return PARTITION_CHANGE, (
        data["topicId"],
        data["partitionId"],
        data["leader"],
        data["leaderEpoch"],
        data["partitionEpoch"],
        data["isr"],
        data["replicas"],
        data.get("addingReplicas"),
        data.get("removingReplicas"),
        data.get("eligibleLeaderReplicas"),
        data.get("lastKnownElr"),
        data.get("leaderRecoveryState"),
    )


def _partition_change(data: dict[str, Any]) -> _Values:
    leader = data.get("leader", _UNCHANGED_LEADER)
    return PARTITION_CHANGE, (
        data["topicId"],
        data["partitionId"],
        None if leader == _UNCHANGED_LEADER else leader,
        None,
        None,
        data.get("isr"),
        data.get("replicas"),
        data.get("addingReplicas"),
        data.get("removingReplicas"),
        data.get("eligibleLeaderReplicas"),
        data.get("lastKnownElr"),
        data.get("leaderRecoveryState"),
    )


def _register_broker(data: dict[str, Any]) -> _Values:
    shutting_down = data.get("inControlledShutdown", False)
    return BROKER_CHANGE, (data["brokerId"], data["brokerEpoch"], data.get("fenced", True), shutting_down)


def _registration_change(data: dict[str, Any]) -> _Values:
    fenced, shutting_down = _FLAGS.get(data.get("fenced", 0)), _FLAGS.get(data.get("inControlledShutdown", 0))
    return BROKER_CHANGE, (data["brokerId"], data["brokerEpoch"], fenced, shutting_down)


def _config(data: dict[str, Any]) -> _Values:
    kind, name = data["resourceType"], data["resourceName"]
    topic = name if kind == TOPIC_RESOURCE else None
    broker = int(name) if kind != TOPIC_RESOURCE and name.isdecimal() else None
    return CONFIG_CHANGE, (kind, topic, broker, data["name"], data.get("value"))


_MAKERS: dict[str, Callable[[dict[str, Any]], _Values]] = {
    "PARTITION_RECORD": _partition,
    "PARTITION_CHANGE_RECORD": _partition_change,
    "TOPIC_RECORD": lambda data: (TOPIC_CREATED, (data["name"], data["topicId"])),
    "REMOVE_TOPIC_RECORD": lambda data: (TOPIC_REMOVED, (data["topicId"],)),
    "REGISTER_BROKER_RECORD": _register_broker,
    "UNREGISTER_BROKER_RECORD": lambda data: (BROKER_CHANGE, (data["brokerId"], data["brokerEpoch"], True, None)),
    "FENCE_BROKER_RECORD": lambda data: (BROKER_CHANGE, (data["id"], data["epoch"], True, None)),
    "UNFENCE_BROKER_RECORD": lambda data: (BROKER_CHANGE, (data["id"], data["epoch"], False, None)),
    "BROKER_REGISTRATION_CHANGE_RECORD": _registration_change,
    "CONFIG_RECORD": _config,
    "FEATURE_LEVEL_RECORD": lambda data: (FEATURE_CHANGE, (None, data["name"], str(data["featureLevel"]))),
    "CLEAR_ELR_RECORD": lambda data: (FEATURE_CHANGE, (data.get("topicName") or None, "clear_elr", None)),
    "ZK_MIGRATION_STATE_RECORD": lambda data: (FEATURE_CHANGE, (None, "zk_migration", str(data["zkMigrationState"]))),
}


class MetadataDump:
    """Parses the lines of one metadata dump."""

    def __init__(self, sink: FactSink) -> None:
        """Add what it finds to the sink."""
        self._sink = sink

    def parse(self, text: str, line: int) -> None:
        """Add the line's fact, count it as of no interest, or reject it."""
        match = _RECORD.fullmatch(text)
        if match is None:
            self._without_record(text, line)
            return
        offset, created = int(match[1]), int(match[2])
        try:
            payload = _DECODER.decode(match[3])
            make = _MAKERS.get(payload.type)
            if make is None:
                self._sink.counts.no_interest["", payload.type] += 1
                return
            shape, values = make(payload.data)
        except KeyError as error:
            self._sink.reject(line, f"metadata record without {error}", text)
            return
        except (
            msgspec.ValidationError,
            msgspec.DecodeError,
            RecursionError,
            AttributeError,
            TypeError,
            ValueError,
        ) as error:
            self._sink.reject(line, f"metadata record is not the JSON that Kafka dumps: {error}"[:300], text)
            return
        ts = created * 1000 if created >= 0 else None
        if ts is not None:
            self._sink.counts.widen(ts)
        told = identity(f"metadata|{match[0].strip()}")
        self._sink.add(shape, row_id(told), line, ts, (offset, payload.type, *values))

    def _without_record(self, text: str, line: int) -> None:
        if not text.strip() or text.startswith((_BATCH, *_SILENT)):
            self._sink.counts.no_interest["", "batch"] += 1
        elif text.startswith("| offset: ") and (
            "LeaderChange" in text or "controlType" in text or "payload" not in text
        ):
            self._sink.counts.no_interest["", "control"] += 1
        else:
            self._sink.reject(line, "not a line of a metadata dump", text)
