"""A small cluster whose truth is known: three brokers, one partition, the rules of Kafka 4.1 in plain Python.

It shares nothing with `replay/`: logs are lists of (epoch, serial), sets are sets, and every rule is written a second
time, from the protocol's own description. Carried through a history of operations (`Cluster.run`), it notes what
happened (`Truth`), and writes what real brokers would have logged: rows of facts. An operation that cannot happen now
is passed over, so any list of operations is a history.

What it leaves out: leaders that learn of a fenced broker later than others, or not before they die; answers that are
lost on the way.
"""

from __future__ import annotations

from cluster_replication import Replication
from cluster_state import FETCH_WAIT_MS, IDS, LAG_MS, QUIET_MS, SESSION_MS, Broker, moved


class Cluster(Replication):
    """The cluster: brokers that replicate, what befalls them, and the controller that tells them what to do."""

    def __init__(self, *, min_isr: int, single: bool) -> None:
        """`single`: every batch has one record, and a broker that comes back may have lost the end of its log.

        Otherwise nothing tells where a batch ended that was lost before anybody fetched it.
        """
        super().__init__(min_isr=min_isr)
        self.single = single
        # the controller's
        self.leader, self.epoch, self.partition_epoch = 1, 0, 0
        self.isr = set(IDS)
        self.decide(leader=1, isr=self.isr, first=True)
        for b in IDS:
            self.learn(b)
        self.now += QUIET_MS

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

    # -- what leaders ask for

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
