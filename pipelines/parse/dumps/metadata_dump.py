"""`kafka-dump-log --cluster-metadata-decoder` of __cluster_metadata: the controller's decisions, in their order.

A dump holds segments of the log, snapshots, or both, one after the other. A snapshot's records are not records of the
log, whatever offsets they have in their file: they are the state as of the snapshot's end offset. Which part of the
log a dump holds, and in which controller epoch it was written, is a fact of its own, because dumps overlap or begin
late, and a deposed controller's log may end in records that its successor's does not have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pipelines.lines.rows import LATEST, NO_TIME, FactSink, Shape, identity, row_id
from replay.evidence.metadata_log import LOG_PART, PART, SNAPSHOT_PART

if TYPE_CHECKING:
    from collections.abc import Callable

_RECORD = re.compile(r"\| offset: (\d{1,18}) \w{1,20}: (-?\d{1,18}) ")
_BATCH = re.compile(r"baseOffset: (\d{1,18}) lastOffset: (\d{1,18}) ")
_EPOCH = re.compile(r" partitionLeaderEpoch: (-?\d{1,9}) ")
_SNAPSHOT = re.compile(r"Snapshot end offset: (\d{1,18}), epoch: (\d{1,9})\s*")
_SNAPSHOT_NAME = re.compile(r"(?:^|[/\\])(\d{20})-(\d{10})\.checkpoint\b")
_LAST_TIME = re.compile(r'"lastContainedLogTimestamp":(\d{1,15})\b')
_PAYLOAD = " payload: {"
_MAX_OFFSET, _MAX_EPOCH = 10**18, 2**31
_SILENT = (
    "Dumping ", "Log starting offset", "Starting offset:", "Snapshot end offset", "KRaft bootstrap snapshot", "Found ",
    "log4j:", "SLF4J", "WARNING:", "OpenJDK ",
)  # fmt: skip
_QUORUM = ("controlType: ", "LeaderChange", "KRaftVersion", "KRaftVoters")  # records of the quorum itself
_UNCHANGED_LEADER = -2
_FLAGS = {1: True, -1: False}

_RECORD_COLUMNS = ("metadata_offset", "controller_epoch", "in_snapshot", "record_type")
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
PART_OF_LOG = Shape(PART, ("metadata_offset", "last_offset", "controller_epoch", "in_snapshot"), (("name", LOG_PART),))
WHOLE_SNAPSHOT = Shape(PART, ("metadata_offset", "controller_epoch", "in_snapshot"), (("name", SNAPSHOT_PART),))
TOPIC_RESOURCE = 2
# Settings whose values some rule reads. Of all others only the name is kept, since a value may be a secret.
READ_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "follower.replication.throttled.rate",
        "follower.replication.throttled.replicas",
        "inter.broker.protocol.version",
        "leader.replication.throttled.rate",
        "leader.replication.throttled.replicas",
        "log.cleanup.policy",
        "min.insync.replicas",
        "remote.storage.enable",
        "replica.lag.time.max.ms",
        "log.segment.bytes",
        "segment.bytes",
        "unclean.leader.election.enable",
    }
)


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
    """Return a changed setting; its value only if a rule reads it, since it may be a secret."""
    kind, resource, name = data["resourceType"], data["resourceName"], data["name"]
    topic = resource if kind == TOPIC_RESOURCE else None
    broker = int(resource) if kind != TOPIC_RESOURCE and resource.isdecimal() else None
    return CONFIG_CHANGE, (kind, topic, broker, name, data.get("value") if name in READ_SETTINGS else None)


def _feature(data: dict[str, Any]) -> _Values:
    return FEATURE_CHANGE, (None, data["name"], str(int(data["featureLevel"])))


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
    "FEATURE_LEVEL_RECORD": _feature,
    "CLEAR_ELR_RECORD": lambda data: (FEATURE_CHANGE, (data.get("topicName") or None, "clear_elr", None)),
    "ZK_MIGRATION_STATE_RECORD": lambda data: (FEATURE_CHANGE, (None, "zk_migration", str(data["zkMigrationState"]))),
}
READ_RECORDS: Final = frozenset(_MAKERS)
_NOT_AS_DUMPED: Final = (
    msgspec.ValidationError,
    msgspec.DecodeError,
    RecursionError,
    AttributeError,
    TypeError,
    ValueError,
    OverflowError,
)


class _Snapshot(NamedTuple):
    """The snapshot whose records are being read."""

    end: int  # the first offset of the log that it does not cover
    epoch: int
    ts: int | None = None  # when the last record that it covers was written, microseconds


_UNTOLD = _Snapshot(0, -1)  # also Kafka's bootstrap snapshot, which holds no partition


class _Place(NamedTuple):
    """A record's place in the metadata log, and its time."""

    offset: int
    epoch: int | None
    ts: int | None


class _Part(NamedTuple):
    """Consecutive records of the log in one controller epoch."""

    first: int
    last: int
    epoch: int | None
    line: int  # of its last record
    ts: int | None


class MetadataDump:
    """Parses the lines of one metadata dump."""

    def __init__(self, sink: FactSink, file_name: str = "", begun: tuple[str, int] | None = None) -> None:
        """Add facts to the sink; `file_name` tells the snapshot if the lines that name it are missing.

        `begun`: what other lines tell (`state`) that stand before this line, which begins a batch.
        """
        sink.of_no_broker()
        self._sink = sink
        self._snapshot = snapshot_named(file_name)
        self._batch: tuple[int, int, int] | None = None  # first and last offset, controller epoch
        self._part: _Part | None = None
        self._line = 1  # the first
        if begun is not None:
            state, line = begun
            snapshot, part = msgspec.json.decode(state)
            self._snapshot = None if snapshot is None else _Snapshot(*snapshot)
            self._part, self._line = None if part is None else _Part(*part), line

    @property
    def state(self) -> str:
        """What it takes to go on with the next batch: the snapshot that is being read, and the part of the log."""
        return msgspec.json.encode((self._snapshot, self._part)).decode()

    def parse(self, text: str, line: int) -> None:
        """Add the line's fact, count it as of no interest, or reject it."""
        match = _RECORD.match(text)
        if match is None:
            self._between(text, line)
            return
        payload = text.find(_PAYLOAD, match.end() - 1)
        offset, created = int(match[1]), int(match[2])
        if created * 1000 > LATEST:
            self._sink.reject(line, NO_TIME, _shown(text))
            return
        ts = created * 1000 if created >= 0 else None
        if payload < 0:
            self._control(text, offset, ts, line)
            return
        if self._snapshot == _UNTOLD:
            self._sink.counts.no_interest["", "snapshot"] += 1
            return
        try:
            told = _DECODER.decode(text[payload + len(_PAYLOAD) - 1 :].rstrip())
            make = _MAKERS.get(told.type)
            found = make(told.data) if make is not None else None
        except KeyError as error:
            self._sink.reject(line, f"metadata record without {error}", _shown(text))
            return
        except _NOT_AS_DUMPED as error:
            self._sink.reject(line, f"metadata record is not the JSON that Kafka dumps: {_said(error)}", _shown(text))
            return
        epoch = self._epoch_of(offset)
        if self._snapshot is None:
            self._goes_on(offset, epoch, line, ts)
        if found is None:
            self._sink.counts.no_interest["", told.type] += 1
        else:
            self._add(_Place(offset, epoch, ts), told.type, found, line, text[payload:].strip())

    def finish(self) -> None:
        """Add the fact about the part of the log that was read last.

        It is longer once lines follow, so it stands where those are read from that are read again.
        """
        if self._part is not None:
            self._part = self._part._replace(line=max(self._part.line, self._line))
            self._close()

    def _close(self) -> None:
        """Add the fact about a part of the log that has ended."""
        if self._part is not None:
            first, last, epoch, line, ts = self._part
            told = row_id(identity(f"metadata part|{first}|{last}|{epoch}"))
            if ts is not None:
                self._sink.counts.widen(ts)
            self._sink.add(PART_OF_LOG, told, line, ts, (first, last, epoch, False))
            self._part = None

    def _add(self, place: _Place, kind: str, found: _Values, line: int, payload: str) -> None:
        """Add a record's fact; a snapshot's record is state as of the snapshot's end, whoever wrote the snapshot."""
        shape, values = found
        snapshot = self._snapshot
        told = identity(f"metadata|{place.offset}|{place.epoch}|{place.ts}|{payload}")
        if snapshot is not None:
            told = identity(f"snapshot|{snapshot.end}|{snapshot.epoch}|{payload}")
            place = _Place(snapshot.end - 1, snapshot.epoch, snapshot.ts)
        if place.ts is not None:
            self._sink.counts.widen(place.ts)
        values = (place.offset, place.epoch, snapshot is not None, kind, *values)
        self._sink.add(shape, row_id(told), line, place.ts, values)

    def _goes_on(self, offset: int, epoch: int | None, line: int, ts: int | None) -> None:
        """Extend the current part of the log by a record, or begin another part."""
        part = self._part
        if part is not None and part.last + 1 == offset and part.epoch == epoch:
            self._part = part._replace(last=offset, line=line, ts=ts)
            return
        self._close()
        self._part = _Part(offset, offset, epoch, line, ts)

    def _epoch_of(self, offset: int) -> int | None:
        """Return the controller epoch of the batch that a record is in; None if it is unknown."""
        if self._batch is None or not self._batch[0] <= offset <= self._batch[1]:
            return None
        return self._batch[2]

    def _control(self, text: str, offset: int, ts: int | None, line: int) -> None:
        """Handle a control record, which has no payload: of an election of the quorum, or a snapshot's head or foot."""
        if "SnapshotHeader" in text:
            last = _LAST_TIME.search(text)
            if self._snapshot is not None and last is not None and int(last[1]) * 1000 <= LATEST:
                self._snapshot = self._snapshot._replace(ts=int(last[1]) * 1000)
            elif self._snapshot is None:
                self._sink.reject(line, "a snapshot of the metadata log whose end offset is not told", text)
                self._snapshot = _UNTOLD
        elif "SnapshotFooter" in text and self._snapshot is not None:
            end, epoch, at = self._snapshot
            if self._snapshot != _UNTOLD:
                told = row_id(identity(f"metadata snapshot|{end}|{epoch}"))
                if at is not None:
                    self._sink.counts.widen(at)
                self._sink.add(WHOLE_SNAPSHOT, told, line, at, (end - 1, epoch, True))
        elif self._snapshot is None and any(word in text for word in _QUORUM):
            self._goes_on(offset, self._epoch_of(offset), line, ts)
        self._sink.counts.no_interest["", "control"] += 1

    def _between(self, text: str, line: int) -> None:
        """Handle a line that is no record: the beginning of a file or batch, or a message of the tool or its JVM."""
        batch = _BATCH.match(text)
        if batch is not None:
            epoch = _EPOCH.search(text)
            self._batch = (int(batch[1]), int(batch[2]), int(epoch[1])) if epoch is not None else None
        elif text.startswith("Dumping "):
            self._close()
            self._batch, self._snapshot = None, snapshot_named(text)
        else:
            snapshot = _SNAPSHOT.fullmatch(text)
            if snapshot is not None:
                self._snapshot = _snapshot(int(snapshot[1]), int(snapshot[2]))
        if batch is not None or not text.strip() or text.startswith(_SILENT):
            self._sink.counts.no_interest["", "batch"] += 1
        else:
            self._sink.reject(line, "not a line of a metadata dump", text)


def snapshot_named(text: str) -> _Snapshot | None:
    """Return the snapshot that a file's name or path names, if it names one."""
    name = _SNAPSHOT_NAME.search(text)
    return _snapshot(int(name[1]), int(name[2])) if name is not None else None


def _snapshot(end: int, epoch: int) -> _Snapshot:
    """Return the snapshot with that end offset and controller epoch."""
    return _Snapshot(end, epoch) if 0 < end < _MAX_OFFSET and epoch < _MAX_EPOCH else _UNTOLD


def _shown(text: str) -> str:
    """Return a record without its payload, which may hold a setting's value and so a secret."""
    return text.partition(_PAYLOAD)[0]


def _said(error: Exception) -> str:
    return str(error)[:200] if isinstance(error, msgspec.MsgspecError) else type(error).__name__
