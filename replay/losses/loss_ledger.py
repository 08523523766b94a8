"""Which slots were lost and what was in them: counts by slot (leader epoch, offset).

At the end of each leader epoch the leader's log is what the partition held; the next leader's log is what it holds from
then on. The slots of the first log that the second lacks (`slots`) are gone, unless a later leader's log still has
them: then they are back, and were not lost. What was acknowledged, committed or consumed among them is counted from the
appends, answers and reads of the same slots; how they were lost is determined in `mechanisms`. The model leaves out
payloads, so it cannot see that a client's retry wrote the same record again elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.columns import in_full
from replay.engine.codes import ACK, APPEND, CONSUMER_READ
from replay.evidence.tenures import micros
from replay.losses.append_stretches import WRITTEN, packed, stretch_of
from replay.losses.slots import Slots, add_spans, common, overlap, spans_of
from replay.losses.story import source_of
from replay.protocol.state import NONE, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.arrays.ints import Flags
    from replay.engine.events import EventBatch, Events
    from replay.losses.append_stretches import AppendStretch
    from replay.losses.story import Row

BATCHES_KEPT = 200_000  # at least so many batches that every replica has are kept
BATCHES_PACKED = 20_000  # that are compressed together; so many that are younger are not
READ = ("seq", "leader_epoch", "fetch_offset", "next_offset", "client_id")


class Acknowledgement(NamedTuple):
    """What a producer was told about a batch, and how certain it is that the answer reached it."""

    acks: int
    error: int
    client: str
    ts: int
    seq: int
    source: str | None
    reached: str = "reached"  # 'unconfirmed': the client had given up; 'unsure': only the broker's own log would tell


@dataclass(slots=True)
class AppendedBatch:
    """One appended batch, with what an incident would report of it."""

    epoch: int
    base: int
    end: int
    sure: bool  # whether its end follows from evidence
    known: bool  # whether a line reports it
    aborted: bool = False  # whether its transaction was aborted
    answer: Acknowledgement | None = None


@dataclass(slots=True)
class Log:
    """A leader's log at the end of its epoch: its epochs' spans, and what was known of it."""

    leader: int
    epoch: int
    spans: list[Slots]
    leo: int
    hw: int
    committed: int
    min_isr: int
    evidence: int
    seq: int  # the seq at which it was looked at
    fetched: dict[int, int] = field(default_factory=dict)  # other replica -> LEO as this leader last knew it


def is_written(batch: EventBatch) -> Flags:
    """Which events are appends or answers to them."""
    kinds = batch.events.kinds
    found: Flags = (kinds == APPEND) | (kinds == ACK)
    return found


def is_read(batch: EventBatch) -> Flags:
    """Which events are consumers' reads that succeeded."""
    found: Flags = (batch.events.kinds == CONSUMER_READ) & (batch.events.numbers("error_code") == 0)
    return found


def written_and_read(events: Events) -> tuple[Events, Events]:
    """Those events that a ledger takes, appends and answers apart from reads, with the columns that it needs."""
    return events.among(is_written, WRITTEN), events.among(is_read, READ)


@dataclass(slots=True)
class Ledger:
    """What was appended, answered and read, kept as long as it may still be lost."""

    batches: dict[tuple[int, int], AppendedBatch] = field(default_factory=dict)  # those that were looked at
    reads: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=dict)  # (epoch, client id) -> spans
    produced: bool = False  # whether any produce line was seen; without one, acknowledgements are unknown
    consumed: bool = False
    internal: bool = False  # whether only coordinators append, whose records are acknowledged to nobody
    stretches: list[AppendStretch] = field(default_factory=list)

    def take(self, written: Events, read: Events, held: dict[int, list[Slots]]) -> None:
        """Note events (`is_written`, `is_read`) in order; `held` as in `ack`, by broker."""
        if len(written):
            told = (written.kinds == APPEND) & written.known("source_line") & (written.numbers("is_control") == 0)
            self.produced = self.produced or bool(told.any())
            self.stretches.append(stretch_of(written, held))
            self.pack()
        if len(read):
            self.consumed = True
            self.take_reads(read)

    def take_reads(self, read: Events) -> None:
        """Note reads that returned records."""
        epoch, first, end = (read.numbers(n, NONE) for n in ("leader_epoch", "fetch_offset", "next_offset"))
        who, clients = read.texts("client_id")
        known = (first >= 0) & (end >= 0)
        for reader_epoch, client in set(zip(epoch[known].tolist(), who[known].tolist(), strict=True)):
            mine = known & (epoch == reader_epoch) & (who == client)
            spans = self.reads.setdefault((reader_epoch, intern(clients[client])), [])
            add_spans(spans, first[mine], end[mine])

    def pack(self) -> None:
        """Compress the oldest stretches: a replica may be away for days, and until then none of them is dropped."""
        loose = [one for one in self.stretches if one.is_loose]
        if sum(one.appends for one in loose) < 2 * BATCHES_PACKED:
            return
        held = next((one.held for one in loose if one.retried), None)
        count, appends = 0, 0
        for one in loose:
            if appends >= BATCHES_PACKED or (one.retried and one.held != held):
                break
            count, appends = count + 1, appends + one.appends
        first = len(self.stretches) - len(loose)
        self.stretches[first : first + count] = [packed(loose[:count])]

    def look_at(self, slots: list[Slots]) -> None:
        """Add the batches among the slots, and the answers to them, to `batches`."""
        if not slots:
            return
        epochs = {one.epoch for one in slots}
        first, end = min(one.first for one in slots), max(one.end for one in slots)
        stretches = [one for one in self.stretches if one.retried or not one.epochs.isdisjoint(epochs)]
        # Each is opened by itself, since all of them may not fit into memory.
        told = (one.opened() for one in stretches if one.bases[0] < end and one.end > first)
        asked = [one.base[one.among(slots)] for one in told]
        bases = np.unique(np.concatenate(asked)) if asked else np.zeros(0, np.int64)
        for stretch in stretches if len(bases) else ():
            if stretch.bases[0] > bases[-1] or stretch.bases[1] < bases[0]:
                continue
            one = stretch.opened()
            wanted = one.among(slots) | (~one.is_append & np.isin(one.base, bases))
            for row in in_full(one.rows.filter(pa.array(wanted))).to_pylist() if wanted.any() else ():
                if row["kind"] == "append":
                    self.append(row)
                else:
                    self.ack(row, stretch.held.get(row["broker_id"], []) if row["duplicate"] else [])

    def append(self, row: Row) -> None:
        """Note an `append` event."""
        if row["duplicate"] or row["next_offset"] is None or row["base_offset"] is None:
            return
        key = (row["leader_epoch"], row["base_offset"])
        sure = row["next_offset_evidence"] in ("observed", "derived")
        known = row["source_line"] is not None
        if key not in self.batches:
            self.batches[key] = AppendedBatch(*key, row["next_offset"], sure, known, row["transaction"] == "abort")

    def ack(self, row: Row, held: list[Slots]) -> None:
        """Note an `ack` event. A retry answered successfully from the producer's state acknowledges its batch, once.

        `held`: what the answering leader's log certainly holds of older epochs. It is empty if no source states where
        that leader's epoch starts: an error of one offset would claim a loss that did not happen. A retry of a batch
        within `held` counts for that batch.
        """
        batch = self.batches.get((row["leader_epoch"], row["base_offset"]))
        if batch is None and row["duplicate"]:
            epochs = [one.epoch for one in held if one.first <= row["base_offset"] < one.end]
            batch = self.batches.get((epochs[0], row["base_offset"])) if epochs else None
        if batch is None or row["error_code"] is None:
            return
        if row["duplicate"] and (row["error_code"] != 0 or (batch.answer is not None and batch.answer.error == 0)):
            return
        reached = "reached"
        if row["unconfirmed"]:
            reached = "unsure" if row["evidence"] == "bounded" else "unconfirmed"
        client, at = intern(row["client_id"] or ""), micros(row["ts"])
        batch.answer = Acknowledgement(row["acks"], row["error_code"], client, at, row["seq"], source_of(row), reached)

    def prune(self, floor: int) -> None:
        """Drop the oldest stretches that every assigned replica has, as long as enough younger ones are kept."""
        kept = sum(stretch.appends for stretch in self.stretches)
        while self.stretches and self.stretches[0].end <= floor:
            kept -= self.stretches[0].appends
            if kept < BATCHES_KEPT:
                return
            self.stretches.pop(0)

    def within(self, slots: list[Slots]) -> Iterator[tuple[AppendedBatch, int]]:
        """Batches with offsets among the slots, and how many of their offsets."""
        self.look_at(slots)
        for batch in self.batches.values():
            here = sum(overlap(batch.base, batch.end, one) for one in slots if one.epoch == batch.epoch)
            if here:
                yield batch, here

    def about(self, slots: list[Slots]) -> Ledger:
        """A ledger with what is noted of the slots, enough to count them again when this ledger has forgotten them."""
        first = min(one.first for one in slots)
        return Ledger(
            {(batch.epoch, batch.base): batch for batch, _ in self.within(slots)},
            {who: [(max(a, first), b) for a, b in spans if b > first] for who, spans in self.reads.items()},
            self.produced,
            self.consumed,
            self.internal,
        )

    def take_back(self, old: Ledger, back: list[Slots]) -> None:
        """Note again slots from `old` that are back in the partition's log: they may be lost once more."""
        self.batches |= old.about(back).batches
        for (epoch, client), spans in old.reads.items():
            reads = [Slots(epoch, *span) for span in spans]
            for one in back:
                mine = self.reads.setdefault((epoch, client), []) if epoch >= one.epoch else []
                mine += [(read.first, read.end) for read in common([one._replace(epoch=epoch)], reads)]

    def aborted(self, lost: list[Slots]) -> list[Slots]:
        """The slots of batches and markers of aborted transactions, as far as they certainly reach."""
        mine = [batch for batch, _ in self.within(lost) if batch.aborted]
        return common(lost, [Slots(b.epoch, b.base, b.end if b.sure else b.base + 1) for b in mine])

    def is_sure(self, lost: list[Slots]) -> bool:
        """Whether the ends of all batches among the slots follow from evidence."""
        return all(batch.sure for batch, _ in self.within(lost))

    def acknowledged(self, lost: list[Slots]) -> list[tuple[AppendedBatch, int]]:
        """Batches among the slots whose successful answer certainly reached its client, and how many offsets each."""
        return [(batch, here) for batch, here in self.within(lost) if kind_of(batch) in SURELY_ACKED]

    def account(self, lost: list[Slots], committed: int) -> dict[str, Any]:
        """Counts over the lost slots, each a lower bound that the evidence proves. They add up to `records`.

        Of a slot that no line reports anything may be true: it was never acknowledged, or at either level. What
        coordinators append to their own topics is never acknowledged to anybody.
        """
        count = dict.fromkeys(ANSWERS, 0)
        aborted = 0
        for batch, here in self.within(lost):
            kind = kind_of(batch)
            first = sum(overlap(batch.base, batch.base + 1, one) for one in lost if one.epoch == batch.epoch)
            sure = here if batch.sure else first
            count[kind] += sure
            aborted += sure if batch.aborted and kind in SURELY_ACKED else 0
            count["unseen"] += here - sure  # records of another batch may lie behind its first one
        records = sum(slots.end - slots.first for slots in lost)
        unseen = 0 if self.internal else records - sum(count.values()) + count["unseen"]
        possible = unseen + count["all_unsure"] + count["one_unsure"]
        surely = count["acked_all"] + count["acked_one"] + count["unconfirmed"]
        told = {
            "acked_all": count["acked_all"],
            "acked_one": count["acked_one"],
            "unacked": max(records - surely - possible, 0),
            "failed_appended": count["failed"],
            "acked_all_possible": unseen + count["all_unsure"],
            "acked_one_possible": unseen + count["one_unsure"],
            "acked_possible": possible,
            "acked_unconfirmed": count["unconfirmed"],
            "aborted": aborted,
            "producers": sorted({batch.answer.client for batch, _ in self.acknowledged(lost) if batch.answer}),
        }
        times = [batch.answer.ts for batch, _ in self.acknowledged(lost) if batch.answer]
        consumed = self.consumed_by(lost)
        return {
            "records": records,
            **(told if self.produced or self.internal else dict.fromkeys(told)),
            "committed": sum(max(0, min(slots.end, committed) - slots.first) for slots in lost),
            "consumed": self.count_consumed(lost) if self.consumed else None,
            "consumers": consumed if self.consumed else None,
            "first_ack_ts": min(times, default=None),
            "last_ack_ts": max(times, default=None),
        }

    def consumed_by(self, lost: list[Slots]) -> list[str]:
        """Client ids of the consumers that received lost offsets."""
        return sorted(
            {
                client
                for (epoch, client), spans in self.reads.items()
                for slots in lost
                if epoch >= slots.epoch and any(overlap(first, end, slots) for first, end in spans)
            }
        )

    def count_consumed(self, lost: list[Slots]) -> int:
        """How many lost offsets some consumer received under an epoch that could still serve them."""
        total = 0
        for slots in lost:
            edges = [
                (max(first, slots.first), min(end, slots.end))
                for (epoch, _), spans in self.reads.items()
                if epoch >= slots.epoch
                for first, end in spans
                if min(end, slots.end) > max(first, slots.first)
            ]
            reached = slots.first
            for first, end in sorted(edges):
                total += max(0, end - max(first, reached))
                reached = max(reached, end)
        return total

    def forget(self, lost: list[Slots]) -> None:
        """Forget reads at or beyond the first lost offset: they do not apply to the records that replace them."""
        first = min(slots.first for slots in lost)
        for who, spans in self.reads.items():
            self.reads[who] = [(a, min(b, first)) for a, b in spans if a < first]


SURELY_ACKED = ("acked_all", "acked_one")
ANSWERS = ("acked_all", "acked_one", "unconfirmed", "all_unsure", "one_unsure", "failed", "unanswered", "unseen")


def kind_of(batch: AppendedBatch) -> str:
    """How a batch was answered, one of `ANSWERS`."""
    if not batch.known:
        return "unseen"
    answer = batch.answer
    if answer is None:
        return "unanswered"
    if answer.error != 0:
        return "failed"
    if answer.reached == "unconfirmed":
        return "unconfirmed"
    level = "all" if answer.acks == -1 else "one"
    return f"acked_{level}" if answer.reached == "reached" else f"{level}_unsure"


def floor_of(s: State, assigned: int) -> int:
    """Least LEO of the assigned replicas: all of them have what lies below it."""
    members = [int(s.leo[b]) for b in range(len(s.leo)) if assigned & (1 << b)]
    return min(members, default=NONE)


def log_of(s: State, b: int, brokers: list[int], seq: int) -> Log:
    """Leader b's log as of `seq`; `brokers` are the ids behind the indices."""
    return Log(
        leader=brokers[b],
        epoch=int(s.epoch[b]),
        spans=spans_of(s, b),
        leo=int(s.leo[b]),
        hw=int(s.hw[b]),
        committed=int(s.partition[0].true_hw),
        min_isr=int(s.partition[0].min_isr),
        evidence=int(s.leo_evidence[b]),
        seq=seq,
        fetched={brokers[r]: int(s.remote_leo[b, r]) for r in range(len(s.leo)) if r != b},
    )
