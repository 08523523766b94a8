"""Histories of a made cluster, written directly as `replication_events`, and what truly happened beside them.

A history of a partition is a row of blocks: long steady ones, made column by column, and short ones for what happens
in between (an ISR flap, a leader that dies with batches that nobody fetched). Everything about it follows from its
shape and the partition's number, so any process can make any partition by itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from schemas.events import REPLICATION_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from made_shape import Shape

SCHEMA = REPLICATION_EVENTS.arrow_schema
TOPIC = "made"
START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
STEP_US = 100  # between two events
SLACK_US = 50  # how far the interval of an event reaches to either side
CHUNK = 4000  # batches per table
WAIT_MS = 500
Row = dict[str, Any]
IDS = {"topic_id": None, "incarnation": 0}
TEXT = {"evidence": "observed"}


@dataclass(slots=True)
class Truth:
    """What happened in a partition."""

    records: int = 0
    leader_hw: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # by leader epoch
    lost: list[tuple[int, int, int]] = field(default_factory=list)  # epoch, first offset, end
    cuts: list[tuple[int, int, int]] = field(default_factory=list)  # broker, LEO before and after
    isr: list[tuple[int, ...]] = field(default_factory=list)
    events: int = 0


class History:
    """One partition's history, told block by block."""

    def __init__(self, shape: Shape, partition: int) -> None:
        """Nothing has happened yet."""
        self.shape, self.partition = shape, partition
        self.random = np.random.default_rng([shape.seed, partition])
        self.brokers = list(range(1, shape.replicas + 1))
        shift = partition % shape.replicas
        self.replicas = self.brokers[shift:] + self.brokers[:shift]
        self.leader, self.epoch, self.partition_epoch = self.replicas[0], 0, 0
        self.isr = list(self.brokers)
        self.away: int | None = None
        self.leo = 0
        self.told_hw = 0  # HW that the followers have been told
        self.now = START_US + partition
        self.seq = 0
        self.correlation = 0
        self.rows: list[Row] = []
        self.truth = Truth()

    @property
    def followers(self) -> list[int]:
        """Who fetches now."""
        return [b for b in self.replicas if b not in (self.leader, self.away)]

    def tables(self) -> Iterator[pa.Table]:
        """All events, in replay order, table by table."""
        batches = self.shape.batches_of(self.partition)
        happenings = ["flap"] * self.shape.flaps + ["election"] * self.shape.elections
        self.random.shuffle(happenings)
        self.begin()
        stretch = max(batches // (len(happenings) + 1), 1)
        for happening in [*happenings, None]:
            for start in range(0, stretch, CHUNK):
                yield from self.told()
                yield self.steady(min(CHUNK, stretch - start))
            if happening == "flap":
                self.flap()
            elif happening == "election":
                self.election()
        yield from self.told()

    def told(self) -> Iterator[pa.Table]:
        """The rows written one by one so far."""
        if self.rows:
            rows, self.rows = self.rows, []
            self.truth.events += len(rows)
            yield pa.Table.from_pylist(rows, schema=SCHEMA)

    # -- single events

    def tell(self, kind: str, **fields: object) -> None:
        """One event, a step later than the one before."""
        self.now += STEP_US
        at = self.now
        self.rows.append({
            "recording_id": TOPIC, "topic": TOPIC, "partition": self.partition, **IDS, **TEXT,
            "seq": self.seq, "event_id": f"{self.partition:x}-{self.seq:x}",
            "ts": at, "ts_lo": at - SLACK_US, "ts_hi": at + SLACK_US,
            "source_file": "made.log", "source_line": self.seq + 1, "kind": kind, **fields,
        })  # fmt: skip
        self.seq += 1

    def begin(self) -> None:
        """Three brokers come up, the partition is made, its followers fetch for the first time."""
        self.tell(
            "config_change", min_insync_replicas=1, replica_lag_time_max_us=30_000_000, kafka_version="4.1.0",
            remote_storage=False, leader_throttled=False,
        )  # fmt: skip
        for broker in self.brokers:
            self.tell("broker_change", broker_id=broker, broker_epoch=broker, fenced=False)
        self.decide("initial", election="initial", trigger="the partition was created")
        for broker in [self.leader, *self.followers]:
            self.take_role(broker, 0, 0)
        for follower in self.followers:
            self.fetch(follower, 0, -1)

    def decide(self, change: str, election: str | None = None, trigger: str | None = None) -> None:
        """The controller's decision."""
        self.truth.isr.append(tuple(sorted(self.isr)))
        self.tell(
            "partition_change", leader_epoch=self.epoch, leader_id=self.leader, partition_epoch=self.partition_epoch,
            isr=sorted(self.isr), replicas=self.replicas, adding_replicas=[], removing_replicas=[], change=change,
            election=election, trigger=trigger, recovering=False, metadata_offset=self.partition_epoch,
        )  # fmt: skip

    def take_role(self, broker: int, leo: int, hw: int) -> None:
        """A broker's line about its new role."""
        role = "leader" if broker == self.leader else "follower"
        isr = sorted(self.isr) if role == "leader" else None
        self.tell(
            "role_change", broker_id=broker, leader_epoch=self.epoch, leader_id=self.leader, role=role, leo=leo, hw=hw,
            isr=isr,
        )  # fmt: skip

    def fetch(self, follower: int, offset: int, last_fetched_epoch: int) -> None:
        """A follower's fetch reaches the leader, and waits there."""
        self.correlation += 1
        self.tell(
            "fetch_update", broker_id=self.leader, leader_epoch=self.epoch, replica_id=follower, fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch, error_code=0, follower_log_start_offset=0,
            request_id=f"{self.leader}/f{follower}/{self.correlation}",
        )  # fmt: skip

    def commit(self, change: str) -> None:
        """A changed ISR, decided and taken over by its leader."""
        self.partition_epoch += 1
        self.decide(change)
        self.tell(
            "isr_request", broker_id=self.leader, leader_epoch=self.epoch, isr=sorted(self.isr), cause="committed",
            partition_epoch=self.partition_epoch,
        )  # fmt: skip

    # -- what happens in between

    def flap(self) -> None:
        """The last follower stands still, leaves the ISR, and comes back."""
        out = self.followers[-1]
        self.now += 60_000_000
        self.isr.remove(out)
        self.commit("shrink")
        self.fetch(out, self.leo, self.epoch)
        self.isr.append(out)
        self.commit("expand")

    def election(self) -> None:
        """The leader dies, with batches that nobody fetched; another takes over; it comes back and cuts its log."""
        old, end = self.leader, self.leo
        for _ in range(self.shape.lost_batches):
            self.append_alone()
        lost = self.leo
        if lost > end:
            self.truth.lost.append((self.epoch, end, lost))
        self.now += 9_000_000
        self.tell("broker_change", broker_id=old, broker_epoch=old, fenced=True)
        self.isr.remove(old)
        self.leader = next(b for b in self.replicas if b in self.isr)
        self.away = old
        self.epoch, self.partition_epoch, self.leo = self.epoch + 1, self.partition_epoch + 1, end
        self.decide("election", election="clean", trigger=f"broker {old} was fenced")
        for broker in [self.leader, *self.followers]:
            self.take_role(broker, end, self.told_hw)
        for follower in self.followers:
            self.fetch(follower, end, self.epoch - 1)
        self.truth.leader_hw[self.epoch] += [self.told_hw, end]
        self.now += 5_000_000
        self.tell("broker_change", broker_id=old, broker_epoch=old + 100, fenced=False)
        self.tell("log_load", broker_id=old, leo=lost, hw=end)
        self.away = None
        self.take_role(old, lost, end)
        if lost > end:
            self.truth.cuts.append((old, lost, end))
            self.tell(
                "truncation", broker_id=old, leader_epoch=self.epoch, truncate_to=end, cause="leader_epoch",
            )  # fmt: skip
        self.fetch(old, end, self.epoch - 1)
        self.isr.append(old)
        self.commit("expand")

    def append_alone(self) -> None:
        """A batch that only its leader has, and acknowledges."""
        records = int(self.random.integers(1, 2 * self.shape.batch_records))
        fields = {
            "broker_id": self.leader, "leader_epoch": self.epoch, "base_offset": self.leo,
            "next_offset": self.leo + records, "next_offset_evidence": "derived",
            "bytes": records * self.shape.record_bytes, "acks": 1, "error_code": 0, "client_id": "fire-and-hope",
            "duplicate": False, "request_id": f"{self.leader}/p{self.partition}/{self.correlation}",
        }  # fmt: skip
        self.tell("append", **fields)
        self.tell("ack", unconfirmed=False, remote_us=0, **fields)
        self.leo += records

    # -- the long stretches

    def steady(self, batches: int) -> pa.Table:
        """Batches with acks=all, one after the other, each fetched by everybody and read by a consumer.

        Followers wait at the LEO; the append ends their wait, and with the last one's next fetch the HW rises, which
        ends the wait of producer and consumer.
        """
        records = self.random.integers(1, 2 * self.shape.batch_records, batches)
        ends = self.leo + np.cumsum(records)
        bases = ends - records
        size = records * self.shape.record_bytes
        lines: list[Row] = []
        broker = {"broker_id": self.leader, "leader_epoch": self.epoch}
        batch = {
            "base_offset": bases, "next_offset": ends, "next_offset_evidence": "derived", "bytes": size, "acks": -1,
            "error_code": 0, "client_id": "made-producer", "duplicate": False, "request_id": "p",
        }  # fmt: skip
        read = {
            "delayed": True, "error_code": 0, "implied": False, "max_wait_ms": WAIT_MS, "min_bytes": 1,
            "request_forced": False, "preferred_read_replica": -1, "isolation_level": 0, "log_start_offset": 0,
            "queue_us": 20, "local_us": 30, "throttle_us": 0, "response_queue_us": 10, "send_us": 20,
        }  # fmt: skip
        lines.append({"kind": "append", **broker, **batch})
        for follower in self.followers:
            who = {**broker, "replica_id": follower, "fetch_offset": bases, "request_id": f"f{follower}"}
            lines.append({
                "kind": "fetch_read", **who, **read, "bytes": size, "request_bytes": size, "response_hw": bases,
                "client_id": f"broker-{follower}-fetcher-0", "remote_us": 2 * STEP_US, "last_stable_offset": bases,
            })  # fmt: skip
            lines.append({
                "kind": "fetch_apply", **who, "bytes": size, "next_offset": ends, "next_offset_evidence": "derived",
                "response_hw": bases, "log_start_offset": 0, "evidence": "derived",
            })  # fmt: skip
        again = {**broker, "fetch_offset": ends, "error_code": 0, "last_fetched_epoch": self.epoch}
        for follower in self.followers:
            who = {"replica_id": follower, "request_id": f"f{follower}", "follower_log_start_offset": 0}
            lines.append({"kind": "fetch_update", **again, **who})
        lines.append({"kind": "ack", **broker, **batch, "unconfirmed": False, "remote_us": 8 * STEP_US})
        lines.append({
            "kind": "consumer_read", **broker, **read, "replica_id": -1, "fetch_offset": bases, "next_offset": ends,
            "next_offset_evidence": "derived", "bytes": size, "request_bytes": size, "response_hw": ends,
            "client_id": "made-consumer", "remote_us": 9 * STEP_US, "last_stable_offset": ends, "request_id": "c",
        })  # fmt: skip
        self.truth.leader_hw[self.epoch] += ends.tolist()
        self.truth.records += int(records.sum())
        self.leo, self.told_hw = int(ends[-1]), int(bases[-1])
        return self.laid_out(lines, batches)

    def laid_out(self, lines: list[Row], batches: int) -> pa.Table:
        """Lines of one batch, with their values for every batch -> a table in the batches' order."""
        total = len(lines) * batches
        self.truth.events += total
        seq = np.arange(self.seq, self.seq + total)
        at = self.now + STEP_US * (1 + np.arange(total))
        number = pa.array(seq).cast(pa.string())
        common: dict[str, Any] = {
            "recording_id": TOPIC, "topic": TOPIC, "partition": self.partition, "incarnation": 0,
            "seq": seq, "ts": at, "ts_lo": at - SLACK_US, "ts_hi": at + SLACK_US, "source_file": "made.log",
            "source_line": seq + 1,
        }  # fmt: skip
        joined = {"event_id": f"{self.partition}"}
        arrays = []
        for one in SCHEMA:
            if one.name in joined:
                arrays.append(pa.compute.binary_join_element_wise(joined[one.name], number, "-"))
            elif one.name in common:
                value = common[one.name]
                column = pa.array(value) if isinstance(value, np.ndarray) else pa.repeat(value, total)
                arrays.append(column.cast(one.type))
            elif one.name == "request_id":
                arrays.append(self.requests([line.get("request_id") for line in lines], batches))
            elif any(one.name in line for line in lines) or one.name == "evidence":
                default = "observed" if one.name == "evidence" else None
                arrays.append(spread([line.get(one.name, default) for line in lines], batches, one.type))
            else:
                arrays.append(pa.nulls(total, one.type))
        self.seq += total
        self.now += STEP_US * total
        return pa.Table.from_arrays(arrays, schema=SCHEMA)

    def requests(self, names: list[str | None], batches: int) -> pa.Array:
        """Ids of requests: a follower's second fetch of a batch is another request than its first."""
        seen: dict[str, int] = defaultdict(int)
        kinds = []
        for name in names:
            seen[name or ""] += 1
            kinds.append(f"{self.leader}/{self.partition}/{name}{seen[name or '']}")
        numbers = np.repeat(np.arange(self.correlation, self.correlation + batches), len(names))
        self.correlation += batches
        words = pa.DictionaryArray.from_arrays(
            pa.array(np.tile(np.arange(len(kinds)), batches), pa.int32()), pa.array(kinds)
        ).cast(pa.string())
        return pa.compute.binary_join_element_wise(words, pa.array(numbers).cast(pa.string()), "/")


def spread(values: list[Any], batches: int, kind: pa.DataType) -> pa.Array:
    """One value per line, or one per line and batch, None for null -> a column in the batches' order."""
    width = len(values)
    if pa.types.is_string(kind):
        words = sorted({value for value in values if value is not None})
        places = np.tile([words.index(value) if value is not None else 0 for value in values], batches)
        missing = np.tile([value is None for value in values], batches)
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32(), mask=missing), pa.array(words)).cast(kind)
    matrix = np.zeros((batches, width), np.int64)
    for k, value in enumerate(values):
        matrix[:, k] = 0 if value is None else value
    missing = np.tile([value is None for value in values], batches)
    column = pa.array(matrix.reshape(-1), mask=missing)
    return column.cast(kind)
