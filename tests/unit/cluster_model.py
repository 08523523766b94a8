"""A small cluster whose truth is known: three brokers, one partition, the rules of Kafka 4.1 in plain Python.

It shares nothing with `replay/`: logs are lists of (epoch, serial), sets are sets, and every rule is written a second
time, from the protocol's own description. Carried through a history of operations (`Cluster.run`), it notes what
happened (`Truth`), and writes what real brokers would have logged: rows of facts. An operation that cannot happen now
is passed over, so any list of operations is a history.

What it leaves out: leaders that learn of a fenced broker later than others, or not before they die; answers that are
lost on the way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from facts_builder import PARTITION, TOPIC, at

LAG_MS, SESSION_MS, FETCH_WAIT_MS, PRODUCE_WAIT_MS = 10_000, 9_000, 500, 30_000
QUIET_MS = 120  # after a decision: brokers learn of it on their own clocks
BYTES = 100
IDS = (1, 2, 3)
Slot = tuple[int, int]  # leader epoch, serial number of the record


@dataclass
class Produce:
    """A produce that waits for the HW."""

    base: int
    end: int
    since: float
    place: tuple[str, int]
    slots: list[Slot]


@dataclass
class Parked:
    """A follower's fetch that waits for records."""

    leader: int
    since: float
    fields: dict[str, Any]


@dataclass
class Broker:
    """What one broker holds, and what it knows of the others while it leads."""

    id: int
    log: list[Slot] = field(default_factory=list)
    hw: int = 0
    role: str = "none"
    epoch: int = -1
    leader: int = -1
    alive: bool = True
    cut_off: bool = False  # from the controller and from the other brokers; clients still reach it
    empty: int = -1  # an epoch that it led, or leads, without a record: last in its epoch cache
    incarnation: int = 0
    partition_epoch: int = -1
    shown: int = 0  # end of its log as a fetch, an answer or the first line of an epoch has told of it
    told_epoch: int = -1
    # while it leads
    epoch_start: int = 0
    isr: set[int] = field(default_factory=set)
    asked: set[int] | None = None  # the ISR asked for
    remote: dict[int, int] = field(default_factory=dict)
    caught_up: dict[int, float] = field(default_factory=dict)
    previous: dict[int, tuple[int, float]] = field(default_factory=dict)  # leader's LEO and time of the last fetch
    waiting: list[Produce] = field(default_factory=list)

    @property
    def leo(self) -> int:
        return len(self.log)

    def latest_epoch(self) -> int:
        return self.empty if self.empty >= 0 else self.log[-1][0] if self.log else -1

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Largest epoch <= `epoch` of this log and where it ends; one below all ends where the log begins."""
        known = sorted({e for e, _ in self.log} | ({self.empty} if self.empty >= 0 else set()))
        lower = [e for e in known if e <= epoch]
        if not known or epoch > known[-1]:
            return -1, -1
        if not lower:
            return epoch, 0
        return lower[-1], sum(1 for e, _ in self.log if e <= lower[-1])

    def is_caught_up(self, r: int, now: float) -> bool:
        return self.remote.get(r, -1) == self.leo or now - self.caught_up.get(r, -1e9) <= LAG_MS


@dataclass
class Truth:
    """What happened."""

    leader_hw: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))  # (broker, epoch)
    follower_hw: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    leo: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    isr: list[tuple[int, ...]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    cuts: list[tuple[int, int, int]] = field(default_factory=list)  # broker, LEO before, after
    acked: dict[Slot, int] = field(default_factory=dict)  # acks of the answer that its client got
    places: dict[tuple[int, int], Slot] = field(default_factory=dict)  # (leader epoch, offset) -> what was appended
    exposed: set[Slot] = field(default_factory=set)  # were below the HW of a leader
    missing: set[Slot] = field(default_factory=set)  # acknowledged, and not in the log of the last leader
    returned: set[Slot] = field(default_factory=set)  # were missing for a while
    lost: set[Slot] = field(default_factory=set)

    def lost_with(self, acks: int) -> int:
        return sum(1 for slot in self.lost if self.acked.get(slot) == acks)


class Cluster:
    """The cluster, its controller, and the pens of its brokers."""

    def __init__(self, *, min_isr: int, single: bool) -> None:
        """`single`: every batch has one record, and a broker that comes back may have lost the end of its log.

        Otherwise nothing tells where a batch ended that was lost before anybody fetched it.
        """
        self.now = 1000.0
        self.min_isr, self.single = min_isr, single
        self.brokers = {b: Broker(b) for b in IDS}
        self.truth = Truth()
        self.rows: list[dict[str, Any]] = []
        self.parked: dict[int, Parked] = {}
        self.correlations: dict[str, int] = defaultdict(int)
        self.serial = 0
        self.newest = 0  # the newest leader epoch that a broker has taken up
        # the controller's
        self.leader, self.epoch, self.partition_epoch = 1, 0, 0
        self.isr = set(IDS)
        self.fenced: set[int] = set()
        self.decide(leader=1, isr=self.isr, first=True)
        for b in IDS:
            self.learn(b)
        self.now += QUIET_MS

    # -- pens

    def write(self, kind: str, **fields: Any) -> None:
        """A line, or a record of the metadata log."""
        line = len(self.rows) + 1
        file = f"request-{fields['broker_id']}.log" if fields.get("broker_id") else "metadata.dump"
        place = {"source_file": file, "source_line": line, "topic": TOPIC, "partition": PARTITION}
        self.rows.append(
            {
                "recording_id": "small",
                "fact_id": f"f{line:05}",
                "kind": kind,
                "ts": at(int(self.now)),
                **place,
                **fields,
            }
        )

    def request(self, kind: str, since: float, place: tuple[str, int], **fields: Any) -> None:
        """A line of a request log, written now: handled in the first instant, the rest was waiting."""
        waited = int((int(self.now) - since) * 1000)
        connection, correlation = place
        durations = {"total_us": waited, "queue_us": 0, "local_us": 0, "remote_us": max(waited, 0)}
        error = {"error_code": 0}
        self.write(kind, connection=connection, correlation_id=correlation, **{**error, **durations, **fields})

    def place(self, connection: str) -> tuple[str, int]:
        self.correlations[connection] += 1
        return connection, self.correlations[connection]

    def tick(self, ms: float) -> None:
        """Time passes; what has waited long enough is answered on the way."""
        until = self.now + ms
        while True:
            due = [(p.since + FETCH_WAIT_MS, r) for r, p in self.parked.items()]
            due = sorted(d for d in due if d[0] <= until)
            if not due:
                break
            self.now = max(self.now, due[0][0])
            self.complete(due[0][1])
        self.now = until

    # -- notes

    def set_hw(self, b: Broker, hw: int) -> None:
        b.hw = hw
        self.note(b)

    def note(self, b: Broker) -> None:
        """The broker's HW and LEO, where they moved."""
        if b.role == "leader":
            moved(self.truth.leader_hw[b.id, b.epoch], b.hw)
            self.truth.exposed.update(b.log[: b.hw])
        elif b.role == "follower":
            moved(self.truth.follower_hw[b.id], b.hw)
        moved(self.truth.leo[b.id], b.leo)

    # -- the controller

    def decide(self, *, leader: int | None = None, isr: set[int] | None = None, first: bool = False, unclean: bool = False) -> None:  # fmt: skip  # noqa: E501
        """A partition record: who leads (if it changes), who is in sync."""
        if leader is not None:
            self.leader = leader
            self.epoch += 0 if first else 1
            self.truth.epochs.append((self.epoch, leader))
        self.partition_epoch += 0 if first else 1
        self.isr = set(isr if isr is not None else self.isr)
        self.truth.isr.append(tuple(sorted(self.isr)))
        record = {"leader_epoch": 0, "partition_epoch": 0, "replicas": list(IDS)} if first else {}
        self.write(
            "partition_change", metadata_offset=100 + len(self.rows), leader_id=leader, isr=sorted(self.isr),
            record_type="PARTITION_RECORD" if first else "PARTITION_CHANGE_RECORD",
            leader_recovery_state=1 if unclean else None, **record,
        )  # fmt: skip

    def register(self, b: int, *, fenced: bool) -> None:
        self.write(
            "broker_change", metadata_offset=100 + len(self.rows), subject_broker_id=b, fenced=fenced,
            record_type="BROKER_REGISTRATION_CHANGE_RECORD", topic=None, partition=None,
        )  # fmt: skip
        (self.fenced.add if fenced else self.fenced.discard)(b)

    def elect(self) -> None:
        """A live member of the ISR leads, the first of the assignment; nobody where there is none.

        (The sessions of brokers that cannot be reached end together, so none of them is elected in between.)
        """
        live = [b for b in IDS if b in self.isr and b not in self.fenced and not self.is_unreachable(b)]
        if live:
            self.decide(leader=live[0], isr=set(live))
        elif self.leader != -1:
            self.decide(leader=-1)

    def fence(self, b: int) -> None:
        """A broker's session is over: out of the ISR unless it is the last, and never the leader."""
        if b in self.fenced:
            return
        if self.leader not in (-1, b) and self.is_unreachable(self.leader):
            self.fence(self.leader)
        rest = self.isr - {b}
        if self.leader == b:
            self.register(b, fenced=True)
            self.isr = rest or self.isr
            self.elect()
        else:
            self.register(b, fenced=True)
            if b in self.isr and rest:
                self.decide(isr=rest)
        self.spread()

    def is_unreachable(self, b: int) -> bool:
        return not self.brokers[b].alive or self.brokers[b].cut_off

    def unfence(self, b: int) -> None:
        if b not in self.fenced:
            return
        self.register(b, fenced=False)
        if self.leader == -1:
            self.elect()
        self.spread()

    def spread(self) -> None:
        """Every broker that is reached learns what was decided."""
        for b in IDS:
            self.now += 3
            self.learn(b)
        self.tick(QUIET_MS)

    def learn(self, b: int) -> None:
        """A broker takes up the role that the metadata gives it; a leader that stays takes over the ISR (3.3+)."""
        broker = self.brokers[b]
        if not broker.alive or broker.cut_off or self.leader == -1:
            return
        if broker.epoch == self.epoch and broker.role != "none":
            if broker.role == "leader" and broker.partition_epoch < self.partition_epoch:
                broker.isr, broker.asked, broker.partition_epoch = set(self.isr), None, self.partition_epoch
                self.raise_hw(broker)
            return
        self.leave(broker)
        broker.epoch, broker.leader, broker.partition_epoch = self.epoch, self.leader, self.partition_epoch
        if broker.told_epoch != self.epoch:
            broker.shown, broker.told_epoch = broker.leo, self.epoch
        broker.role = "leader" if self.leader == b else "follower"
        stated = {"offset": broker.leo, "hw": broker.hw}
        if broker.role == "leader":
            broker.epoch_start, broker.empty = broker.leo, self.epoch
            broker.isr, broker.asked = set(self.isr), None
            broker.remote, broker.previous = {}, {}
            broker.caught_up = dict.fromkeys(self.isr, self.now)
            stated |= {"isr": sorted(self.isr), "partition_epoch": self.partition_epoch}
        self.write(
            "role_change", source_file=f"server-{b}.log", broker_id=b, name=broker.role, leader_epoch=self.epoch,
            **stated,
        )  # fmt: skip
        self.note(broker)
        if broker.role == "leader":
            held, self.newest = set(broker.log), self.epoch
            self.truth.returned |= self.truth.missing & held
            self.truth.missing = set(self.truth.acked) - held
            self.raise_hw(broker)

    def leave(self, broker: Broker) -> None:
        """Whatever waited for the broker's old role is over. Who waits for its HW is answered NOT_LEADER."""
        for r in [r for r, p in self.parked.items() if broker.id in (p.leader, r)]:
            self.complete(r)
        for produce in broker.waiting:
            self.answer_produce(broker, produce, error=6)
        broker.waiting = []

    # -- leaders

    def raise_hw(self, b: Broker) -> None:
        if len(b.isr) < min(self.min_isr, len(IDS)):
            return
        waited = b.isr | (b.asked or set())
        counted = [
            b.remote.get(r, -1)
            for r in IDS
            if r != b.id and (r in waited or (r not in self.fenced and b.is_caught_up(r, self.now)))
        ]
        candidate = min([b.leo, *counted])
        if candidate <= b.hw:
            return
        self.set_hw(b, candidate)
        for produce in [p for p in b.waiting if p.end <= b.hw]:
            b.waiting.remove(produce)
            self.answer_produce(b, produce, error=0)

    def answer_produce(self, b: Broker, produce: Produce, error: int) -> None:
        self.request(
            "produce", produce.since, produce.place, broker_id=b.id, acks=-1, client_id="shop",
            bytes=BYTES * (produce.end - produce.base), base_offset=produce.base, error_code=error,
        )  # fmt: skip
        if not error:
            self.truth.acked |= dict.fromkeys(produce.slots, -1)

    def produce(self, b: int, records: int, acks: int) -> None:
        """A client sends a batch to whom it takes for the leader."""
        broker = self.brokers[b]
        if broker.role != "leader" or not broker.alive:
            return
        place = self.place(f"p{b}-{broker.incarnation}")
        sent = {"broker_id": b, "acks": acks, "bytes": BYTES * records, "client_id": "shop"}
        if acks == -1 and len(broker.isr) < self.min_isr:
            self.request("produce", self.now, place, **sent, base_offset=-1, error_code=19)
            return
        base, slots = broker.leo, []
        for _ in range(records):
            self.serial += 1
            slots.append((broker.epoch, self.serial))
            self.truth.places[broker.epoch, base + len(slots) - 1] = slots[-1]
        broker.log += slots
        broker.empty, broker.shown = -1, broker.leo
        self.note(broker)
        waiting = Produce(base, broker.leo, self.now, place, slots)
        if acks == -1:
            broker.waiting.append(waiting)
        else:
            answer = {"error_code": None, "base_offset": None} if acks == 0 else {"base_offset": base}
            self.request("produce", self.now, place, **sent, **answer)
            self.truth.acked |= dict.fromkeys(slots, acks)
            if broker.epoch < self.newest:
                self.truth.missing |= set(slots)
        self.raise_hw(broker)
        for r in [r for r, p in sorted(self.parked.items()) if p.leader == b]:
            self.complete(r)

    def shrink(self, b: int) -> None:
        """The leader's expiry task: who has not been caught up for the lag is asked out; the controller agrees."""
        broker = self.brokers[b]
        if broker.role != "leader" or not broker.alive or broker.asked is not None:
            return
        out = {r for r in broker.isr - {b} if not broker.is_caught_up(r, self.now)}
        if out:
            broker.asked = broker.isr - out
            self.answer_isr(b)

    def answer_isr(self, b: int) -> None:
        """The controller answers what leader b asked for; not to one that it has replaced, or cannot reach."""
        broker = self.brokers[b]
        if broker.asked is None or not broker.alive or broker.cut_off or broker.epoch != self.epoch:
            return
        if broker.role != "leader" or broker.asked & self.fenced:
            return
        self.decide(isr=broker.asked)
        self.now += 2
        broker.isr, broker.asked, broker.partition_epoch = set(self.isr), None, self.partition_epoch
        self.write(
            "isr_update", source_file=f"server-{b}.log", broker_id=b, name="updated", isr=sorted(self.isr),
            partition_epoch=self.partition_epoch,
        )  # fmt: skip
        self.raise_hw(broker)
        self.tick(QUIET_MS)

    # -- followers

    def fetch(self, r: int) -> None:
        """A follower asks its leader for what comes after its log."""
        follower = self.brokers[r]
        if follower.role != "follower" or not follower.alive or follower.cut_off or r in self.parked:
            return
        b = self.brokers[follower.leader]
        if not b.alive or b.cut_off:
            return
        fields = {
            "broker_id": b.id, "replica_id": r, "fetch_offset": follower.leo, "session_epoch": -1, "session_id": 0,
            "response_session_id": 0, "in_request": True, "in_response": True, "current_leader_epoch": follower.epoch,
            "last_fetched_epoch": follower.latest_epoch(), "partition_max_bytes": 1 << 20, "bytes": 0, "hw": None,
        }  # fmt: skip
        parked, follower.shown = Parked(b.id, self.now, fields), follower.leo
        error = 6 if b.role != "leader" else 74 if follower.epoch < b.epoch else 76 if follower.epoch > b.epoch else 0
        if error:
            self.answer_fetch(r, parked, error_code=error, hw=-1)
            return
        last = follower.latest_epoch()
        if last >= 0:
            epoch, end = b.end_of(last)
            if epoch < last or end < follower.leo:
                self.answer_fetch(r, parked, diverging_epoch=epoch, diverging_end_offset=end, hw=b.hw)
                self.cut(follower, epoch, end)
                return
        hw_read = b.hw
        self.record_fetch(b, r, follower.leo)
        if follower.leo < b.leo:
            self.deliver(r, parked, hw_read)
        else:
            self.parked[r] = parked

    def record_fetch(self, b: Broker, r: int, offset: int) -> None:
        """Steps 4 to 6 at the leader."""
        if offset >= b.leo:
            b.caught_up[r] = max(b.caught_up.get(r, -1e9), self.now)
        elif r in b.previous and offset >= b.previous[r][0]:
            b.caught_up[r] = max(b.caught_up.get(r, -1e9), b.previous[r][1])
        b.previous[r] = (max(b.leo, b.previous[r][0]) if r in b.previous else b.leo, self.now)
        changed = b.remote.get(r, -1) != offset
        b.remote[r] = offset
        if r not in b.isr and b.asked is None and offset >= max(b.hw, b.epoch_start) and r not in self.fenced:
            b.asked = b.isr | {r}
        if changed:
            self.raise_hw(b)

    def answer_fetch(self, r: int, parked: Parked, **answer: Any) -> None:
        follower = self.brokers[r]
        place = self.place(f"r{r}-{follower.incarnation}-{parked.leader}")
        self.request("fetch", parked.since, place, **{**parked.fields, **answer})

    def complete(self, r: int) -> None:
        """A parked fetch is read again and answered, if its leader is still there to do so."""
        parked = self.parked.pop(r)
        self.deliver(r, parked, self.brokers[parked.leader].hw)

    def deliver(self, r: int, parked: Parked, hw: int) -> None:
        """Steps 7 to 9."""
        follower, b = self.brokers[r], self.brokers[parked.leader]
        sent = b.log[follower.leo :]
        self.answer_fetch(r, parked, bytes=BYTES * len(sent), hw=hw)
        if sent:
            follower.log += sent
            follower.empty = -1
        follower.hw = min(follower.leo, hw)
        self.note(follower)

    def cut(self, follower: Broker, epoch: int, end: int) -> None:
        own_epoch, own_end = follower.end_of(epoch)
        target = min(end, follower.leo)
        if own_epoch >= 0:
            target = min(own_end, follower.leo) if own_epoch != epoch else min(own_end, target)
        if target < follower.leo:
            self.truth.cuts.append((follower.id, follower.leo, target))
        del follower.log[target:]
        follower.empty = -1
        follower.hw = min(follower.hw, target)
        self.note(follower)

    # -- what befalls brokers

    def kill(self, b: int) -> None:
        broker = self.brokers[b]
        if not broker.alive:
            return
        for r in [r for r, p in self.parked.items() if b in (p.leader, r)]:
            self.complete(r)
        for produce in broker.waiting:
            self.answer_produce(broker, produce, error=7)
        broker.alive, broker.role, broker.waiting, broker.asked = False, "none", [], None
        self.now += SESSION_MS / 3

    def restart(self, b: int, lose: int) -> None:
        """Back with its files, the last `lose` records of which had not reached the disk."""
        broker = self.brokers[b]
        if broker.alive:
            return
        self.fence(b)  # its registration is a new one
        if lose and broker.log and broker.shown == broker.leo:  # else nothing tells that it ever had them
            before, end = broker.leo, max(broker.leo - lose, 0)
            del broker.log[end:]
            broker.empty = -1
            self.truth.cuts.append((b, before, end))
        broker.hw = min(broker.hw, broker.leo)
        broker.alive, broker.incarnation, broker.epoch, broker.leader = True, broker.incarnation + 1, -1, -1
        self.write("log_load", source_file=f"server-{b}.log", broker_id=b, offset=broker.leo, hw=broker.hw)
        moved(self.truth.leo[b], broker.leo)
        self.now += 5
        self.unfence(b)

    def cut_off(self, b: int) -> None:
        broker = self.brokers[b]
        if not broker.alive or broker.cut_off:
            return
        for r in [r for r, p in self.parked.items() if b in (p.leader, r)]:
            self.complete(r)
        broker.cut_off = True  # what it asked of the controller is never answered

    def reconnect(self, b: int) -> None:
        broker = self.brokers[b]
        if not broker.cut_off:
            return
        broker.cut_off = False
        broker.incarnation += 1  # new connections
        self.unfence(b)
        self.spread()

    def time_out(self) -> None:
        """Sessions of brokers that the controller does not hear from end."""
        self.tick(SESSION_MS)
        for b in IDS:
            if self.is_unreachable(b):
                self.fence(b)

    def unclean(self, b: int) -> None:
        """Nobody of the ISR is there: a live broker outside of it leads."""
        if self.leader == -1 and not self.is_unreachable(b) and b not in self.fenced and b not in self.isr:
            self.decide(leader=b, isr={b}, unclean=True)
            self.spread()

    def prefer(self, b: int) -> None:
        """A planned change of leader within the ISR."""
        if self.leader not in (-1, b) and b in self.isr and b not in self.fenced and not self.is_unreachable(b):
            self.decide(leader=b)
            self.spread()

    # -- histories

    def run(self, operations: list[tuple[str, int, int, int]]) -> None:
        """Operations (name, broker, how many, milliseconds before), then everybody comes back and catches up."""
        for name, b, count, pause in operations:
            self.tick(pause)
            self.do(name, b, count)
        self.heal()

    def do(self, name: str, b: int, count: int) -> None:
        if name.startswith("produce"):
            self.produce(b, 1 if self.single else count, {"produce_all": -1, "produce_one": 1, "produce_none": 0}[name])
        elif name == "wait":
            self.tick(LAG_MS + 1000 * count)
        elif name == "restart":
            self.restart(b, count - 1 if self.single else 0)
        elif name == "time_out":
            self.time_out()
        else:
            getattr(self, name)(b)

    def heal(self) -> None:
        """Everybody is back; the last leader's log is what is left."""
        for b in IDS:
            self.tick(20)
            self.restart(b, 0)
            self.reconnect(b)
        for b in IDS:
            self.unclean(b)
        for _ in range(6):
            for b in IDS:
                self.tick(20)
                self.fetch(b)
                self.answer_isr(b)
        self.tick(FETCH_WAIT_MS + 50)
        left = set(self.brokers[self.leader].log)
        self.truth.lost = {slot for slot in self.truth.acked if slot not in left}


def moved(values: list[int], value: int) -> None:
    if not values or values[-1] != value:
        values.append(value)
