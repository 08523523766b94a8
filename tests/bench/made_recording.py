"""A made cluster that writes what real brokers write: request logs, server logs, a dump of the metadata log.

Kafka 4.1 in its steady state: in each tick some partitions take a batch, the followers fetch it in incremental fetch
sessions (KIP-227), a consumer reads what is committed. At the elections of its shape a broker dies with batches that
nobody fetched, another leads, and the first comes back and cuts its logs. Rules are written here from the protocol's
description; nothing of `replay/` is used.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
from made_lines import DUMP, TOPIC, Pens
from made_state import CONSUMER, Partition, Session, Truth, created

if TYPE_CHECKING:
    from pathlib import Path

    from made_shape import Shape

SESSION_MS = 9_000
IDLE_MS = 500  # metadata.max.idle.interval.ms: after that the controller writes that there is nothing to write


class MadeCluster(Pens):
    """The cluster, which takes its pens along."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        """Nothing has happened; the recording will stand in `folder`."""
        super().__init__(list(range(1, shape.replicas + 1)), shape.wait_ms)
        self.shape, self.folder = shape, folder
        self.random = np.random.default_rng(shape.seed)
        self.away: int | None = None
        self.partitions = [created(k, self.brokers) for k in range(shape.partitions + shape.idle)]
        self.sessions: dict[tuple[int, int], Session] = {}
        self.opened = 0
        self.said_so_ms = self.now
        self.correlations = dict.fromkeys(self.brokers, 0)

    def write(self) -> Truth:
        """Write the recording."""
        with ExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            dump = self.folder / DUMP
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
        self.create(self.partitions)
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
            self.now += self.wait_ms
            self.tick([])

    def tick(self, taking: list[Partition]) -> None:
        """What has waited for long enough is answered; then come batches, and answers to what waited for them."""
        self.now += self.shape.tick_ms
        if self.now >= self.said_so_ms + IDLE_MS:
            self.record("NO_OP_RECORD")
            self.said_so_ms = self.now
        for leader, fetcher in sorted(self.sessions):
            if (session := self.sessions[leader, fetcher]).since + self.wait_ms <= self.now:
                self.answer(leader, fetcher, session.since + self.wait_ms)
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
                elif leader in touched and fetcher != CONSUMER and session.news:
                    self.answer(leader, fetcher, self.now + 1.5 + k / 4)
            self.flush(leader, until=self.now - self.wait_ms)

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
        life = self.broker_epochs[leader] // 100  # its sockets are gone when it dies
        self.correlations[leader] += 1
        remote = at - since - 0.4 if acks == -1 else 0
        self.request(leader, at, (
            f'{{"isForwarded":false,"requestHeader":{{"requestApiKey":0,"requestApiVersion":12,"correlationId":{number},'
            f'"clientId":"made-producer","requestApiKeyName":"PRODUCE"}},"request":{{"transactionalId":null,'
            f'"acks":{acks},"timeoutMs":30000,"topicData":[{{"name":"{TOPIC}","partitionData":[{{"index":'
            f'{partition.number},"recordsSizeInBytes":{size}}}]}}]}},"response":{{"responses":[{{"name":"{TOPIC}",'
            f'"partitionResponses":[{{"index":{partition.number},"errorCode":0,"baseOffset":{base},'
            f'"logAppendTimeMs":-1,"logStartOffset":0,"recordErrors":[],"errorMessage":null}}]}}],'
            f'"throttleTimeMs":0}},"connection":"10.0.0.{leader}:9092-10.0.1.1:{50000 + 10 * life + leader}-0-{life}",'
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
        for number in [one for one in session.offsets if one in news]:
            answers += self.answered(session, self.partitions[number], fetcher, full=session.epoch == 0)
        self.request(leader, at, self.fetch_text(session, fetcher, answers, at if waited else session.since))
        session.epoch += 1
        session.correlation += 1 + (fetcher == CONSUMER)  # it commits its offset, of which a filtered log has no line

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
            if not full:  # but for the first answer, what has records comes to the end of the session
                del session.offsets[number]
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

    # -- what happens in between

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
        for _ in range(self.shape.away_ticks):
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
