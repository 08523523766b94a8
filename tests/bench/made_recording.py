"""A made cluster that writes what real brokers write: request logs, server logs, a dump of the metadata log.

Kafka 4.1 in its steady state: in each tick some partitions take a batch, the followers fetch it in incremental fetch
sessions (KIP-227), a consumer reads what is committed. At the elections of its shape a broker dies with batches that
nobody fetched, another leads, and the first comes back and cuts its logs. Rules are written here from the protocol's
description; nothing of `replay/` is used.
"""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from made_shape import Shape

TOPIC = "made"
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
TICK_MS = 20
WAIT_MS = 500
SESSION_MS = 9_000
TOPIC_ID = base64.urlsafe_b64encode(bytes(range(16))).decode().rstrip("=")
CONSUMER = -1
TIMES = (
    '"throttleTimeMs":0,"responseQueueTimeMs":0.021,"sendTimeMs":0.043,"securityProtocol":"PLAINTEXT",'
    '"principal":"User:ANONYMOUS","listener":"PLAINTEXT","clientInformation":{"softwareName":"made",'
    '"softwareVersion":"1"}}'
)


@dataclass(slots=True)
class Replica:
    """One replica's log: where it ends, what its broker takes for the HW, the epoch of its last record."""

    leo: int = 0
    hw: int = 0
    last_epoch: int = -1


@dataclass(slots=True)
class Partition:
    """A partition, as its leader and the controller have it."""

    number: int
    replicas: list[int]
    leader: int
    isr: list[int]
    logs: dict[int, Replica]
    epoch: int = 0
    partition_epoch: int = 0
    remote: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # where each epoch before this one ended
    waiting: list[tuple[float, int, int, int]] = field(default_factory=list)  # since, base, end, bytes


@dataclass(slots=True)
class Session:
    """A fetch session of a follower or a consumer (`CONSUMER`) at a leader."""

    number: int
    connection: str
    epoch: int = 0
    correlation: int = 0
    since: float = 0.0  # when the fetch that is open reached the leader
    named: str = ""  # what it named
    offsets: dict[int, int] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)  # partitions whose offset the next request names
    news: set[int] = field(default_factory=set)  # partitions that the next answer may name


@dataclass(slots=True)
class Truth:
    """What happened."""

    records: int = 0
    lines: int = 0
    lost: list[tuple[int, int, int, int]] = field(default_factory=list)  # partition, epoch, first offset, end
    cuts: list[tuple[int, int, int, int]] = field(default_factory=list)  # partition, broker, LEO before, after


class MadeCluster:
    """The cluster and its pens."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        """Nothing has happened; the recording will stand in `folder`."""
        self.shape, self.folder = shape, folder
        self.random = np.random.default_rng(shape.seed)
        self.brokers = list(range(1, shape.replicas + 1))
        self.now = float(START_MS)
        self.away: int | None = None
        self.truth = Truth()
        self.partitions = [self.partition(k) for k in range(shape.partitions + shape.idle)]
        self.sessions: dict[tuple[int, int], Session] = {}
        self.opened = 0
        self.correlations = dict.fromkeys(self.brokers, 0)
        self.pens: dict[str, TextIO] = {}
        self.held: dict[int, list[tuple[float, str]]] = {b: [] for b in self.brokers}
        self.metadata_offset = 0
        self.broker_epochs = {b: 10 + b for b in self.brokers}

    def partition(self, number: int) -> Partition:
        """A partition that was just created."""
        shift = number % len(self.brokers)
        replicas = self.brokers[shift:] + self.brokers[:shift]
        return Partition(number, replicas, replicas[0], list(replicas), {b: Replica() for b in replicas})

    def write(self) -> Truth:
        """Write the recording."""
        with ExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            dump = self.folder / "cluster-metadata.dump.txt"
            self.pens["metadata"] = stack.enter_context(dump.open("w"))
            for broker in self.brokers:
                logs = self.folder / "logs" / f"node-{broker}"
                logs.mkdir(parents=True, exist_ok=True)
                for kind in ("kafka-request", "server"):
                    pen = (logs / f"{kind}.log").open("w")
                    self.pens[f"{kind}-{broker}"] = stack.enter_context(pen)
            config = {"replica.lag.time.max.ms": 30_000, "min.insync.replicas": 1}
            manifest = {"kafka": "4.1.0", "brokers": len(self.brokers), "time_zone": "UTC", "broker_config": config}
            (self.folder / "MANIFEST.json").write_text(json.dumps(manifest))
            self.run()
        return self.truth

    def run(self) -> None:
        """The whole history."""
        self.create()
        batches = max(self.shape.events // 9, 1)
        per_tick = max(min(self.shape.partitions, 30) // 3, 1)
        ticks = max(batches // per_tick, 4)
        deaths = {ticks * (k + 1) // (self.shape.elections + 1): k for k in range(self.shape.elections)}
        for tick in range(ticks):
            if tick in deaths:
                self.settle()
                self.fail(self.brokers[deaths[tick] % len(self.brokers)])
            self.tick(self.chosen(per_tick))
        self.settle()
        for broker in self.brokers:
            self.flush(broker)

    def chosen(self, count: int) -> list[Partition]:
        """Partitions that take a batch now."""
        if self.shape.skew and self.random.random() < self.shape.skew:
            return [self.partitions[0]]
        picked = self.random.choice(self.shape.partitions, min(count, self.shape.partitions), replace=False)
        return [self.partitions[k] for k in sorted(picked.tolist())]

    def settle(self) -> None:
        """Time passes without a batch: everybody fetches once more, and is told the HW."""
        for _ in range(3):
            self.now += WAIT_MS
            self.tick([])

    def tick(self, taking: list[Partition]) -> None:
        """Batches; then what waited for them, or has waited for long enough, is answered."""
        self.now += TICK_MS
        for partition in taking:
            self.produce(partition)
        touched = {partition.leader for partition in taking}
        for leader in self.brokers:
            if leader == self.away:
                continue
            fetchers = [*[b for b in self.brokers if b not in (leader, self.away)], CONSUMER]
            for k, fetcher in enumerate(fetchers):
                session = self.sessions.get((leader, fetcher))
                if session is None:
                    self.begin(leader, fetcher, self.now + 2 + k / 4)
                elif session.since + WAIT_MS <= self.now:
                    self.answer(leader, fetcher, session.since + WAIT_MS)
                elif leader in touched and fetcher != CONSUMER and session.news:
                    self.answer(leader, fetcher, self.now + 1.5 + k / 4)
            self.flush(leader, until=self.now - WAIT_MS)

    # -- requests

    def produce(self, partition: Partition, acks: int = -1) -> None:
        """A batch reaches the leader."""
        leader = partition.leader
        records = int(self.random.integers(1, 2 * self.shape.batch_records))
        log = partition.logs[leader]
        base, size = log.leo, records * self.shape.record_bytes
        log.leo, log.last_epoch = base + records, partition.epoch
        self.truth.records += records
        for follower in [*self.brokers, CONSUMER]:
            if (leader, follower) in self.sessions:
                self.sessions[leader, follower].news.add(partition.number)
        at = self.now + 1
        if acks == -1:
            partition.waiting.append((at, base, log.leo, size))
        else:
            self.acknowledge(partition, at, at + 0.4, base, size, acks)

    def acknowledge(self, partition: Partition, since: float, at: float, base: int, size: int, acks: int) -> None:
        """The answer to a produce."""
        leader = partition.leader
        number = self.correlations[leader]
        self.correlations[leader] += 1
        remote = at - since - 0.4 if acks == -1 else 0
        self.request(leader, at, (
            f'{{"isForwarded":false,"requestHeader":{{"requestApiKey":0,"requestApiVersion":12,"correlationId":{number},'
            f'"clientId":"made-producer","requestApiKeyName":"PRODUCE"}},"request":{{"transactionalId":null,'
            f'"acks":{acks},"timeoutMs":30000,"topicData":[{{"name":"{TOPIC}","partitionData":[{{"index":'
            f'{partition.number},"recordsSizeInBytes":{size}}}]}}]}},"response":{{"responses":[{{"name":"{TOPIC}",'
            f'"partitionResponses":[{{"index":{partition.number},"errorCode":0,"baseOffset":{base},'
            f'"logAppendTimeMs":-1,"logStartOffset":0,"recordErrors":[],"errorMessage":null}}]}}],'
            f'"throttleTimeMs":0}},"connection":"10.0.0.{leader}:9092-10.0.1.1:5000{leader}-0-{leader}",'
            f'"totalTimeMs":{at - since:.3f},"requestQueueTimeMs":0.05,"localTimeMs":0.3,"remoteTimeMs":{remote:.3f},'
        ))  # fmt: skip

    def begin(self, leader: int, fetcher: int, at: float) -> None:
        """A session is opened, by a fetch of every partition that the leader leads."""
        mine = [p for p in self.partitions if p.leader == leader]
        if not mine:
            return
        offsets = {p.number: p.logs[leader].hw if fetcher == CONSUMER else p.logs[fetcher].leo for p in mine}
        self.opened += 1
        connection = f"10.0.0.{leader}:9092-10.0.2.{fetcher + 1}:{40000 + self.opened % 20000}-1-{self.opened}"
        session = Session(1000 + self.opened, connection, offsets=offsets)
        session.moved, session.news = set(offsets), set(offsets)
        self.sessions[leader, fetcher] = session
        self.arrive(leader, fetcher, at)

    def arrive(self, leader: int, fetcher: int, at: float) -> None:
        """A fetch reaches its leader. It waits, unless there is something to tell at once."""
        session = self.sessions[leader, fetcher]
        session.since, session.named = at, self.names(session, fetcher)
        moved = {number: session.offsets[number] for number in session.moved}
        session.moved = set()
        if self.has_news(session, leader, fetcher):
            self.reply(leader, fetcher, at, waited=False)
            self.take_all(fetcher, moved, at)
            self.arrive(leader, fetcher, at + 0.5)
        else:
            self.take_all(fetcher, moved, at)

    def has_news(self, session: Session, leader: int, fetcher: int) -> bool:
        """Whether a fetch is answered at once: records for it, or, from 2.4 on, an HW that a follower was not told."""
        for number in session.news:
            log = self.partitions[number].logs[leader]
            end = log.hw if fetcher == CONSUMER else log.leo
            if end > session.offsets[number] or (fetcher != CONSUMER and session.told.get(number, 0) != log.hw):
                return True
        return False

    def answer(self, leader: int, fetcher: int, at: float) -> None:
        """A fetch that waited is answered, and the next one comes."""
        self.reply(leader, fetcher, at, waited=True)
        self.arrive(leader, fetcher, at + 0.5)

    def take_all(self, fetcher: int, moved: dict[int, int], at: float) -> None:
        """The leader takes the offsets of a follower's fetch."""
        if fetcher != CONSUMER:
            for number in sorted(moved):
                self.take(self.partitions[number], fetcher, moved[number], at)

    def names(self, session: Session, fetcher: int) -> str:
        """The partitions that a fetch request names."""
        named = []
        for number in sorted(session.moved):
            partition = self.partitions[number]
            last = partition.logs[fetcher].last_epoch if fetcher != CONSUMER else -1
            named.append(
                f'{{"partition":{number},"currentLeaderEpoch":{partition.epoch},"fetchOffset":'
                f'{session.offsets[number]},"lastFetchedEpoch":{last},"logStartOffset":'
                f'{-1 if fetcher == CONSUMER else 0},"partitionMaxBytes":1048576}}'
            )
        return ",".join(named)

    def reply(self, leader: int, fetcher: int, at: float, *, waited: bool) -> None:
        """The answer to the fetch that has arrived."""
        session = self.sessions[leader, fetcher]
        news, session.news = session.news, set()
        answers: list[str] = []
        for number in sorted(news):
            answers += self.answered(session, self.partitions[number], fetcher, full=session.epoch == 0)
        self.request(leader, at, self.fetch_text(session, fetcher, answers, at if waited else session.since))
        session.epoch += 1
        session.correlation += 1

    def answered(self, session: Session, partition: Partition, fetcher: int, *, full: bool) -> list[str]:
        """What a fetch answers of one partition, and the fetcher's taking of it."""
        log, number = partition.logs[partition.leader], partition.number
        offset = session.offsets[number]
        end = log.leo if fetcher != CONSUMER else log.hw
        diverging, size = "", 0
        mine = partition.logs[fetcher] if fetcher != CONSUMER else None
        parted = partition.ends.get(mine.last_epoch, offset) if mine is not None else offset
        if mine is not None and parted < offset:
            diverging = f'"divergingEpoch":{{"epoch":{mine.last_epoch},"endOffset":{parted}}},'
            self.cut(partition, fetcher, parted)
            session.offsets[number] = parted
            session.moved.add(number)
            session.news.add(number)
        elif end > offset:
            size = (end - offset) * self.shape.record_bytes
            session.offsets[number] = end
            session.moved.add(number)
            if mine is not None:
                mine.leo, mine.last_epoch = end, log.last_epoch
        elif not full and session.told.get(number) == log.hw:
            return []
        session.told[number] = log.hw
        if mine is not None:
            mine.hw = min(mine.leo, log.hw)
        text = (
            f'{{"partitionIndex":{number},"errorCode":0,"highWatermark":{log.hw},"lastStableOffset":{log.hw},'
            f'"logStartOffset":0,{diverging}"abortedTransactions":null,"preferredReadReplica":-1,'
            f'"recordsSizeInBytes":{size}}}'
        )
        return [text]

    def take(self, partition: Partition, follower: int, offset: int, at: float) -> None:
        """The leader takes a fetch offset for the follower's LEO; the HW may rise, and produces be answered."""
        log = partition.logs[partition.leader]
        partition.remote[follower] = offset
        if follower not in partition.isr and offset >= log.hw:
            partition.isr.append(follower)
            partition.partition_epoch += 1
            self.change(partition, isr=partition.isr)
        ends = [log.leo, *(partition.remote.get(b, -1) for b in partition.isr if b != partition.leader)]
        if min(ends) <= log.hw:
            return
        log.hw = min(ends)
        for other in [*self.brokers, CONSUMER]:
            if (partition.leader, other) in self.sessions:
                self.sessions[partition.leader, other].news.add(partition.number)
        reader = self.sessions.get((partition.leader, CONSUMER))
        if reader is not None and log.hw > reader.offsets[partition.number]:
            self.answer(partition.leader, CONSUMER, max(at, reader.since) + 0.2)
        done = [one for one in partition.waiting if one[2] <= log.hw]
        partition.waiting = [one for one in partition.waiting if one[2] > log.hw]
        for since, base, _, size in done:
            self.acknowledge(partition, since, at + 0.5, base, size, -1)

    def fetch_text(self, session: Session, fetcher: int, answers: list[str], at: float) -> str:
        """A fetch request and its answer at `at`, as the request log prints them."""
        consumer = fetcher == CONSUMER
        name = "made-consumer" if consumer else f"broker-{fetcher}-fetcher-0"
        sent = session.number if session.epoch else 0
        asked = f'{{"topicId":"{TOPIC_ID}","partitions":[{session.named}]}}' if session.named else ""
        told = f'{{"topicId":"{TOPIC_ID}","partitions":[{",".join(answers)}]}}' if answers else ""
        epoch = -1 if consumer else self.broker_epochs[fetcher]
        remote = at - session.since
        return (
            f'{{"isForwarded":false,"requestHeader":{{"requestApiKey":1,"requestApiVersion":17,"correlationId":'
            f'{session.correlation},"clientId":"{name}","requestApiKeyName":"FETCH"}},"request":{{"replicaState":'
            f'{{"replicaId":{fetcher},"replicaEpoch":{epoch}}},"maxWaitMs":{WAIT_MS},"minBytes":1,"maxBytes":10485760,'
            f'"isolationLevel":0,"sessionId":{sent},"sessionEpoch":{session.epoch},"topics":[{asked}],'
            f'"forgottenTopicsData":[],"rackId":""}},"response":{{"throttleTimeMs":0,"errorCode":0,"sessionId":'
            f'{session.number},"responses":[{told}]}},"connection":"{session.connection}","totalTimeMs":'
            f'{remote + 0.3:.3f},"requestQueueTimeMs":0.05,"localTimeMs":0.2,"remoteTimeMs":{remote:.3f},'
        )

    # -- what happens in between

    def create(self) -> None:
        """Brokers come up, the topic is made, roles are taken up."""
        self.pens["metadata"].write("Log starting offset: 0\n")
        self.record("FEATURE_LEVEL_RECORD", name="metadata.version", featureLevel=27)
        for broker in self.brokers:
            self.register(broker)
        self.record("TOPIC_RECORD", name=TOPIC, topicId=TOPIC_ID)
        for p in self.partitions:
            self.record(
                "PARTITION_RECORD", 2, partitionId=p.number, topicId=TOPIC_ID, replicas=p.replicas, isr=p.isr,
                removingReplicas=[], addingReplicas=[], leader=p.leader, leaderEpoch=0, partitionEpoch=0,
            )  # fmt: skip
        self.now += 100
        for p in self.partitions:
            for broker in p.replicas:
                self.loaded(p, broker)
                self.starts(p, broker)
        self.now += 100

    def register(self, broker: int) -> None:
        """A broker registers and is unfenced."""
        epoch = self.broker_epochs[broker]
        self.record(
            "REGISTER_BROKER_RECORD", 3, brokerId=broker, isMigratingZkBroker=False, incarnationId=f"made-{epoch}",
            brokerEpoch=epoch, endPoints=[], features=[], rack=None, fenced=True, inControlledShutdown=False,
            logDirs=[],
        )  # fmt: skip
        self.record("BROKER_REGISTRATION_CHANGE_RECORD", brokerId=broker, brokerEpoch=epoch, fenced=-1)

    def fail(self, broker: int) -> None:
        """A leader dies with batches that nobody fetched; the next replica leads; it comes back later."""
        led = [p for p in self.partitions if p.leader == broker]
        ends = {p.number: p.logs[broker].leo for p in led}
        for p in led:
            for _ in range(self.shape.lost_batches):
                self.produce(p, acks=1)
            if p.logs[broker].leo > ends[p.number]:
                self.truth.lost.append((p.number, p.epoch, ends[p.number], p.logs[broker].leo))
        self.flush(broker)
        self.away = broker
        self.now += SESSION_MS
        for p in self.partitions:
            if broker not in p.isr:
                continue
            p.isr.remove(broker)
            p.partition_epoch += 1
            if p.leader == broker:
                p.leader = next(b for b in p.replicas if b in p.isr)
                p.ends[p.epoch] = p.logs[p.leader].leo
                p.epoch += 1
                p.remote = {}
                self.change(p, isr=p.isr, leader=p.leader)
            else:
                self.change(p, isr=p.isr)
                p.remote.pop(broker, None)
        epoch = self.broker_epochs[broker]
        self.record("BROKER_REGISTRATION_CHANGE_RECORD", brokerId=broker, brokerEpoch=epoch, fenced=1)
        self.now += 100
        self.take_up(led, [b for b in self.brokers if b != broker])
        for _ in range(20):
            self.tick(self.chosen(2))
        self.settle()
        self.broker_epochs[broker] += 100
        self.away = None
        self.register(broker)
        self.now += 100
        self.take_up([p for p in self.partitions if broker in p.replicas], [broker], load=True)
        self.settle()

    def take_up(self, partitions: list[Partition], brokers: list[int], *, load: bool = False) -> None:
        """Brokers take up their roles; sessions with the old leaders end."""
        for p in partitions:
            for broker in brokers:
                if load:
                    self.loaded(p, broker)
                self.starts(p, broker)
        self.sessions = {}

    def cut(self, partition: Partition, broker: int, end: int) -> None:
        """A follower cuts its log where its leader's epoch ended."""
        log = partition.logs[broker]
        self.truth.cuts.append((partition.number, broker, log.leo, end))
        at, name = self.now + 3.5, f"{TOPIC}-{partition.number}"
        self.line(broker, at, (
            f"[ReplicaFetcher replicaId={broker}, leaderId={partition.leader}, fetcherId=0] Truncating partition "
            f"{name} with TruncationState(offset={end}, completed=true) due to leader epoch and offset "
            f"EpochEndOffset(errorCode=0, partition={partition.number}, leaderEpoch={log.last_epoch}, endOffset={end}) "
            "(kafka.server.ReplicaFetcherThread)"
        ))  # fmt: skip
        self.line(broker, at, (
            f"[UnifiedLog partition={name}, dir=/data] Truncating to offset {end} "
            "(org.apache.kafka.storage.internals.log.UnifiedLog)"
        ))  # fmt: skip
        log.leo, log.hw = end, min(log.hw, end)

    # -- pens

    def request(self, broker: int, at: float, text: str) -> None:
        """A line of the request log, stamped when the answer is sent."""
        self.held[broker].append((at, f"DEBUG Completed request:{text}{TIMES} (kafka.request.logger)"))

    def flush(self, broker: int, until: float | None = None) -> None:
        """Write the lines that no later one comes before."""
        lines = sorted(self.held[broker], key=lambda one: one[0])
        ready = len(lines) if until is None else sum(at < until for at, _ in lines)
        pen = self.pens[f"kafka-request-{broker}"]
        for at, text in lines[:ready]:
            pen.write(f"[{stamp(at)}] {text}\n")
        self.truth.lines += ready
        self.held[broker] = lines[ready:]

    def line(self, broker: int, at: float, text: str) -> None:
        """A line of the server log."""
        self.pens[f"server-{broker}"].write(f"[{stamp(at)}] INFO {text}\n")

    def loaded(self, partition: Partition, broker: int) -> None:
        """A broker's line about a log that it loaded."""
        log, name = partition.logs[broker], f"{TOPIC}-{partition.number}"
        self.line(broker, self.now, (
            f"Completed load of Log(dir=/data/{name}, topicId={TOPIC_ID}, topic={TOPIC}, partition="
            f"{partition.number}, highWatermark=0, lastStableOffset=0, logStartOffset=0, logEndOffset={log.leo}) with "
            f"1 segments, local-log-start-offset 0 and log-end-offset {log.leo} in 1ms (1/1 completed in /data) "
            "(kafka.log.LogManager)"
        ))  # fmt: skip
        self.line(broker, self.now, (
            f"[Partition {name} broker={broker}] Log loaded for partition {name} with initial high watermark "
            f"{log.hw} (kafka.cluster.Partition)"
        ))  # fmt: skip

    def starts(self, partition: Partition, broker: int) -> None:
        """A broker's line about its role."""
        log, p = partition.logs[broker], partition
        head = f"[Broker id={broker}] {{}} {TOPIC}-{p.number} "
        if broker == p.leader:
            isr = ",".join(map(str, p.isr))
            text = (
                f"{head.format('Leader')}with topic id Some({TOPIC_ID}) starts at leader epoch {p.epoch} from offset "
                f"{log.leo} with partition epoch {p.partition_epoch}, high watermark {log.hw}, ISR [{isr}], adding "
                "replicas [] and removing replicas [] . Previous leader None and previous leader epoch was -1."
            )
        else:
            text = (
                f"{head.format('Follower')}starts at leader epoch {p.epoch} from offset {log.leo} with partition epoch "
                f"{p.partition_epoch} and high watermark {log.hw}. Current leader is {p.leader}. Previous leader "
                f"Some({p.leader}) and previous leader epoch was {p.epoch}."
            )
        self.line(broker, self.now, f"{text} (state.change.logger)")

    def change(self, partition: Partition, **fields: Any) -> None:
        """A decision of the controller."""
        self.record("PARTITION_CHANGE_RECORD", 2, partitionId=partition.number, topicId=TOPIC_ID, **fields)

    def record(self, kind: str, version: int = 0, **data: Any) -> None:
        """One record of the metadata log, in a batch of its own, as the dump tool prints it."""
        at, offset = int(self.now), self.metadata_offset
        self.metadata_offset += 1
        payload = json.dumps({"type": kind, "version": version, "data": data}, separators=(",", ":"))
        self.pens["metadata"].write(
            f"baseOffset: {offset} lastOffset: {offset} count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 "
            f"producerEpoch: -1 partitionLeaderEpoch: 1 isTransactional: false isControl: false deleteHorizonMs: "
            f"OptionalLong.empty position: {offset * 100} CreateTime: {at} size: 100 magic: 2 compresscodec: none "
            f"crc: 1 isvalid: true\n| offset: {offset} CreateTime: {at} keySize: -1 valueSize: 40 sequence: -1 "
            f"headerKeys: [] payload: {payload}\n"
        )


def stamp(at: float) -> str:
    """A time as log4j prints it."""
    whole = datetime.fromtimestamp(int(at) // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{whole},{int(at) % 1000:03d}"
