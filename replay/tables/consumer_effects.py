"""What consumers saw of a loss: rows of `consumer_effects`.

An answer with records returns the offsets from the fetch on. How far it reaches follows from where the consumer fetches
next, limited by the answer's high watermark. Reads are kept as runs per client id, broker and leader epoch. If there
are very many, the time of each read is kept only while some replica lacks what was read, since hardly anything else can
be lost. The model leaves out groups (no fetch names one), and treats consumers that share a client id in one partition
as one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replay.engine.codes import CONSUMER, EPOCH_END_OFFSET
from replay.evidence.tenures import micros
from replay.losses.loss_ledger import BATCHES_KEPT
from replay.losses.slots import Slots, common
from replay.protocol.deletion import OFFSET_OUT_OF_RANGE
from replay.protocol.state import NONE, UNSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.engine.events import Event, EventBatch, Events, Picked
    from replay.losses.findings import Finding

ROW = ("seq", "ts", "broker_id", "leader_epoch", "client_id", "run_count")  # columns of an event that is reported
READS_TOGETHER = 10_000  # that an array has, about
QUESTION = (*ROW, "error_code", "diverging_end_offset")


class Reader(NamedTuple):
    """Who read, from which broker, and under which leader epoch."""

    client: str
    broker: int
    epoch: int


@dataclass(slots=True)
class ReadRun:
    """Offsets [first, end) that a reader received one after another, and the reads that extended the run."""

    first: int
    end: int
    # Of each read: the offset up to which it extended the run, its time and its seq, in arrays of three rows; numbers
    # of Python's own would take five times as much.
    reads: list[Ints] = field(default_factory=list)
    sure: bool = True  # whether each read's end follows from the next fetch
    known_from: int = 0  # the reads below this offset are forgotten

    @property
    def count(self) -> int:
        """How many reads are known."""
        return sum(some.shape[1] for some in self.reads)

    def extend(self, reads: Reads) -> None:
        """Append reads that continue the run; only those that extend it are kept."""
        before = np.maximum.accumulate(np.concatenate(([self.end], reads.end[:-1])))
        forward = reads.end > before
        if forward.any():
            some = np.stack([reads.end[forward], reads.ts[forward], reads.seq[forward]])
            if self.reads and self.reads[-1].shape[1] < READS_TOGETHER:
                some = np.concatenate([self.reads.pop(), some], axis=1)
            self.reads.append(some)
            self.sure = self.sure and bool(reads.sure[forward].all())
            self.end = int(some[0, -1])

    def prune(self, floor: int) -> None:
        """Forget when the offsets below `floor` were read."""
        while len(self.reads) > 1 and self.reads[1][0, 0] <= floor:
            self.known_from = int(self.reads.pop(0)[0, -1])
        if self.reads:
            gone = int(np.searchsorted(self.reads[0][0], floor, "right"))
            if gone > 1:
                self.known_from = int(self.reads[0][0, gone - 2])
                self.reads[0] = self.reads[0][:, gone - 1 :]

    def reads_of(self, first: int, end: int) -> list[tuple[int, int]]:
        """(seq, time) of the reads that returned [first, end), if they are still known."""
        if first < self.known_from or not self.reads:
            return []
        ends, times, seqs = np.concatenate(self.reads, axis=1)
        here = slice(np.searchsorted(ends, first, "right"), np.searchsorted(ends, end - 1, "right") + 1)
        return list(zip(seqs[here].tolist(), times[here].tolist(), strict=True))


class Reads(NamedTuple):
    """Answers to consumers' fetches as columns, by seq.

    `end`: the offset after what each returned; its fetch offset if it returned nothing.
    """

    seq: Ints
    ts: Ints  # microseconds
    client: Ints  # places among the batch's client ids
    broker: Ints
    epoch: Ints
    offset: Ints
    end: Ints
    sure: Flags  # the end follows from the next fetch

    def of(self, which: Flags | slice) -> Reads:
        """Some of the reads."""
        columns: tuple[Any, ...] = self
        return Reads(*(column[which] for column in columns))


def reads_in(fetches: Picked, clients: Ints) -> Reads:
    """Fetch events that were answered without error."""
    seq, ts, broker, epoch, offset, after, hw, size = (
        fetches.numbers(name, NONE)
        for name in (
            "seq", "ts", "broker_id", "leader_epoch", "fetch_offset", "next_offset", "response_hw", "bytes",
        )
    )  # fmt: skip
    sure = after != NONE
    known = np.where(hw > offset, np.minimum(after, hw), after)
    end = np.where(size > 0, np.where(sure, known, offset + 1), offset)
    return Reads(seq, ts, clients, broker, epoch, offset, end, sure)


def clients_of(events: Picked) -> tuple[Ints, list[str]]:
    """Each event's index into the client ids, and the client ids in order of first appearance."""
    named, names = events.texts("client_id")
    met, first, place = np.unique(named, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[place], [names[k] for k in met[order].tolist()]


def is_question(batch: EventBatch) -> Flags:
    """Which events are consumers' requests for the end of an epoch."""
    events = batch.events
    found: Flags = (events.kinds == EPOCH_END_OFFSET) & (events.numbers("replica_id", UNSET) == CONSUMER)
    return found


@dataclass(slots=True)
class ConsumerEffects:
    """Consumers of one partition, as its events come."""

    runs: dict[Reader, list[ReadRun]] = field(default_factory=dict)
    resumed: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)  # per client: epoch, offset, time
    positions: dict[str, int] = field(default_factory=dict)  # per client: where it reads next, at least
    last: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # per effect and client: its last row
    rows: list[dict[str, Any]] = field(default_factory=list)

    def take_all(self, events: Events, fetches: Picked, leo: Ints) -> None:
        """Take events, the fetches among them, and the LEO of the broker that answered each fetch (-1: unknown)."""
        mine = np.flatnonzero(fetches.known("fetch_offset") & (fetches.numbers("replica_id", UNSET) == CONSUMER))
        mine = mine[np.argsort(fetches.numbers("seq", NONE)[mine], kind="stable")]
        answers = fetches.at(mine)
        error = answers.numbers("error_code")
        for k in np.flatnonzero(error == OFFSET_OUT_OF_RANGE).tolist():
            offset, end = int(answers.numbers("fetch_offset")[k]), int(leo[mine[k]])
            self.tell("out_of_range", row_of(answers, k), offset, end=end if end >= 0 else None, evidence="observed")
        well = answers.at(error == 0)
        named, clients = clients_of(well)
        reads = reads_in(well, named)
        self.ask_all(events, reads, clients)
        if len(well):
            self.take_reads(reads, clients, handed=well.numbers("bytes") > 0)
        for k in np.flatnonzero(well.known("leader_id")).tolist():
            offset, end = int(reads.offset[k]), int(reads.end[k])
            self.tell("read_from_follower", row_of(well, k), offset, end=end, evidence="observed")

    def take_reads(self, reads: Reads, clients: list[str], handed: Flags) -> None:
        """Note where each client resumed and stands now, and what each reader received."""
        for k, client in enumerate(clients):
            mine = reads.of(reads.client == k)
            self.positions[client] = int(mine.end[-1])
            met = self.resumed.setdefault(client, [])
            before = np.maximum.accumulate(np.concatenate(([met[-1][0] if met else UNSET], mine.epoch[:-1])))
            for place in np.flatnonzero(mine.epoch > before).tolist():
                met.append((int(mine.epoch[place]), int(mine.offset[place]), int(mine.ts[place])))
        some = reads.of(handed)
        readers = set(zip(some.client.tolist(), some.broker.tolist(), some.epoch.tolist(), strict=True))
        for client, broker, epoch in sorted(readers):
            mine = some.of((some.client == client) & (some.broker == broker) & (some.epoch == epoch))
            self.hand_out(self.runs.setdefault(Reader(clients[client], broker, epoch), []), mine)

    def prune(self, epoch: int, floor: int) -> None:
        """Forget when readers of `epoch` read below `floor`: every replica has that part as its leader does."""
        if sum(run.count for runs in self.runs.values() for run in runs) <= BATCHES_KEPT:
            return
        for reader, runs in self.runs.items():
            if reader.epoch == epoch:
                runs[-1].prune(floor)

    def ask_all(self, events: Events, reads: Reads, clients: list[str]) -> None:
        """Report consumers that were told that the epoch of their position ends below it."""
        for question in map(in_micros, events.among(is_question, QUESTION).rows):
            end, client = question["diverging_end_offset"], question["client_id"] or ""
            position = self.positions.get(client)
            if client in clients:
                before = reads.end[(reads.client == clients.index(client)) & (reads.seq < question["seq"])]
                position = int(before[-1]) if len(before) else position
            if not question["error_code"] and end is not None and position is not None and 0 <= end < position:
                self.tell("truncation_detected", question, position, end=end, evidence="derived")

    def hand_out(self, runs: list[ReadRun], reads: Reads) -> None:
        """Continue a reader's last run with its reads, or begin another if an offset lies outside of it."""
        while len(reads.seq):
            if runs:
                run = runs[-1]
                until = np.maximum.accumulate(np.concatenate(([run.end], reads.end[:-1])))
                outside = (reads.offset < run.first) | (reads.offset > until)
                goes_on = int(np.argmax(outside)) if outside.any() else len(reads.seq)
                run.extend(reads.of(slice(goes_on)))
                reads = reads.of(slice(goes_on, None))
            if len(reads.seq):
                first = int(reads.offset[0])
                runs.append(ReadRun(first, first, known_from=first))

    def tell(self, effect: str, event: Event, offset: int, *, evidence: str, end: int | None = None) -> None:
        """Add a row, or count one more fetch in the last row of this effect and client.

        `end`: of the read, for a read from a follower; else of the log.
        """
        client, reads = event["client_id"] or "", effect == "read_from_follower"
        count = event["run_count"] or 1
        row = self.last.get((effect, client))
        same = row is not None and (row["broker_id"], row["leader_epoch"]) == (
            event["broker_id"],
            event["leader_epoch"],
        )
        if row is not None and same and (row["end"] if reads else row["first_offset"]) == offset:
            row["fetches"] += count
            row["last_ts"] = event["ts"]
            row["end"] = end if reads else None
            return
        row = {
            "seq": event["seq"],
            "effect": effect,
            "client_id": client,
            "broker_id": event["broker_id"],
            "leader_epoch": event["leader_epoch"],
            "first_offset": offset,
            "end": end if reads else None,
            "log_end": None if reads else end,
            "fetches": count,
            "first_ts": event["ts"],
            "last_ts": event["ts"],
            "evidence": evidence,
        }
        self.last[effect, client] = row
        self.rows.append(row)

    def finish(self, found: Sequence[tuple[Finding, str | None]], now: Sequence[Slots]) -> list[dict[str, Any]]:
        """All rows. `found`: the losses and their incidents; `now`: what the partition's log holds at the end."""
        rows = [*self.rows, *(row for finding, incident in found for row in self.lost_reads(finding, incident, now))]
        out = []
        for row in sorted(rows, key=lambda one: (one["seq"], one["effect"], one["first_offset"])):
            end = row.pop("end")
            some = end is not None and end > row["first_offset"]
            row["last_offset"] = end - 1 if some else None
            row["records"] = end - row["first_offset"] if some else None
            if row["effect"] in ("out_of_range", "truncation_detected"):
                row["incident_id"] = incident_behind(row, found)
            out.append(row)
        return out

    def lost_reads(self, finding: Finding, incident: str | None, now: Sequence[Slots]) -> Iterator[dict[str, Any]]:
        """Rows for runs among the lost slots that were read under an epoch that had them, before they were replaced."""
        new = finding.decision["leader_epoch"]
        for reader, runs in self.runs.items():
            slots = [one for one in finding.lost if one.epoch <= reader.epoch < new]
            for run in runs:
                for one in common([Slots(s.epoch, run.first, run.end) for s in slots], slots):
                    reads = run.reads_of(one.first, one.end)
                    replaced = (span.epoch for span in now if span.first <= one.first < span.end)
                    resumed = (met for met in self.resumed.get(reader.client, ()) if met[0] >= new)
                    _, offset, ts = next(resumed, (None, None, None))
                    yield {
                        "seq": reads[0][0] if reads else finding.heir.seq,
                        "effect": "read_then_lost",
                        "client_id": reader.client,
                        "broker_id": reader.broker,
                        "leader_epoch": reader.epoch,
                        "first_offset": one.first,
                        "end": one.end,
                        "fetches": len(reads) or None,
                        "first_ts": reads[0][1] if reads else None,
                        "last_ts": reads[-1][1] if reads else None,
                        "slot_epoch": one.epoch,
                        "incident_id": incident,
                        "replaced_by_epoch": next(replaced, None),
                        "resumed_offset": offset,
                        "resumed_ts": ts,
                        "evidence": "derived" if run.sure and finding.stated else "bounded",
                    }


def in_micros(event: Event) -> Event:
    """The event with its time in microseconds."""
    return {**event, "ts": None if event["ts"] is None else micros(event["ts"])}


def row_of(events: Picked, place: int) -> Event:
    """The reported columns of one event."""
    (row,) = events.at(np.array([place])).table(ROW).to_pylist()
    return in_micros(row)


def incident_behind(row: dict[str, Any], found: Iterable[tuple[Finding, str | None]]) -> str | None:
    """The last loss before a reset that took records at or below the position."""
    before = [
        (finding.decision["leader_epoch"], incident)
        for finding, incident in found
        if finding.decision["leader_epoch"] <= row["leader_epoch"] and finding.lost[0].first <= row["first_offset"]
    ]
    return max(before, key=lambda one: one[0])[1] if before else None
