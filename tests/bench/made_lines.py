"""The pens of a made cluster: lines of request logs and server logs, and a dump of the metadata log."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any, TextIO

from made_state import CONSUMER, Partition, Session, Truth

TOPIC = "made"
DUMP = "cluster-metadata.dump.txt"
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
WAIT_MS = 500
TOPIC_ID = base64.urlsafe_b64encode(bytes(range(16))).decode().rstrip("=")
TIMES = (
    '"throttleTimeMs":0,"responseQueueTimeMs":0.021,"sendTimeMs":0.043,"securityProtocol":"PLAINTEXT",'
    '"principal":"User:ANONYMOUS","listener":"PLAINTEXT","clientInformation":{"softwareName":"made",'
    '"softwareVersion":"1"}}'
)


class Pens:
    """The files of a recording, and the clock by which their lines are stamped."""

    def __init__(self, brokers: list[int], wait_ms: int = WAIT_MS) -> None:
        """Nothing is open, and nothing is written. `wait_ms`: for so long a fetch waits for records."""
        self.brokers = brokers
        self.wait_ms = wait_ms
        self.now = float(START_MS)
        self.truth = Truth()
        self.pens: dict[str, TextIO] = {}
        self.held: dict[int, list[tuple[float, str]]] = {b: [] for b in brokers}
        self.metadata_offset = 0
        self.broker_epochs = {b: 10 + b for b in brokers}

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
            f'{{"replicaId":{fetcher},"replicaEpoch":{epoch}}},"maxWaitMs":{self.wait_ms},"minBytes":1,'
            f'"maxBytes":10485760,"isolationLevel":0,"sessionId":{sent},"sessionEpoch":{session.epoch},"topics":[{asked}],'
            f'"forgottenTopicsData":[],"rackId":""}},"response":{{"throttleTimeMs":0,"errorCode":0,"sessionId":'
            f'{session.number},"responses":[{told}]}},"connection":"{session.connection}","totalTimeMs":'
            f'{remote + 0.3:.3f},"requestQueueTimeMs":0.05,"localTimeMs":0.2,"remoteTimeMs":{remote:.3f},'
        )

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

    def create(self, partitions: list[Partition]) -> None:
        """Brokers come up, the topic is made, roles are taken up."""
        self.pens["metadata"].write("Log starting offset: 0\n")
        self.record("FEATURE_LEVEL_RECORD", name="metadata.version", featureLevel=27)
        for broker in self.brokers:
            self.register(broker)
        self.record("TOPIC_RECORD", name=TOPIC, topicId=TOPIC_ID)
        for p in partitions:
            self.record(
                "PARTITION_RECORD", 2, partitionId=p.number, topicId=TOPIC_ID, replicas=p.replicas, isr=p.isr,
                removingReplicas=[], addingReplicas=[], leader=p.leader, leaderEpoch=0, partitionEpoch=0,
            )  # fmt: skip
        self.now += 100
        for p in partitions:
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
