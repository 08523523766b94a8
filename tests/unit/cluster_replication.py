"""How the brokers of `cluster_model` replicate: clients produce, followers fetch, the HW rises; and what they log."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from cluster_state import BYTES, FETCH_WAIT_MS, IDS, Broker, Parked, Produce, Truth, moved
from facts_builder import PARTITION, TOPIC, at


class Replication:
    """Brokers that lead and follow as they were told to, with the pens that write their lines."""

    def __init__(self, *, min_isr: int) -> None:
        self.now = 1000.0
        self.min_isr = min_isr
        self.brokers = {b: Broker(b) for b in IDS}
        self.truth = Truth()
        self.rows: list[dict[str, Any]] = []
        self.parked: dict[int, Parked] = {}
        self.correlations: dict[str, int] = defaultdict(int)
        self.serial = 0
        self.newest = 0  # the newest leader epoch that a broker has taken up
        self.fenced: set[int] = set()  # by the controller

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
