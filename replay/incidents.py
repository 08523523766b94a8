"""Which slots were lost, and what was in them: the accounting by slot (leader epoch, offset).

At the end of each leader epoch the leader's log is what the partition held; the next leader's log is what it holds
from then on. The slots of the first that the second does not have are gone, unless a later leader's log still has
them: then they are back, and were not lost. What was acknowledged, committed
or consumed among them is counted from the appends, answers and reads of the same slots; how they were lost is named in
`mechanisms`. What the model leaves out: payloads, so a client's retry that brought the same record again elsewhere
cannot be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from replay.spine import micros
from replay.state import MIN_ISR, NONE, TRUE_HW, State

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, Any]

PRUNE_EVERY = 200_000  # batches kept before those that every replica has are dropped


class Slots(NamedTuple):
    """Offsets [first, end) of one leader epoch; `end` None: open."""

    epoch: int
    first: int
    end: int


@dataclass(slots=True)
class Batch:
    """One appended batch, as far as a loss of it would be told of."""

    epoch: int
    base: int
    end: int
    sure: bool  # whether its end follows from evidence
    known: bool  # whether a produce line tells of it
    answer: tuple[int, int, str, int] | None = None  # acks, error, client, time
    unconfirmed: bool = False


@dataclass(slots=True)
class Log:
    """A leader's log at the end of its epoch: its epochs' spans, and what the cluster thought of it."""

    leader: int
    epoch: int
    spans: list[Slots]
    leo: int
    hw: int
    committed: int
    min_isr: int
    evidence: int
    seq: int  # where it was looked at


def spans_of(s: State, b: int) -> list[Slots]:
    """The epoch cache of b as spans."""
    n = int(s.cache_len[b])
    starts = [int(v) for v in s.cache_start[b, :n]]
    ends = [*starts[1:], int(s.leo[b])]
    return [
        Slots(int(epoch), first, end)
        for epoch, first, end in zip(s.cache_epoch[b, :n], starts, ends, strict=True)
        if end > first
    ]


def known_from(s: State, b: int) -> int:
    """Offset from which b's epoch cache tells of its log; what lies below is taken for held."""
    return int(s.cache_start[b, 0]) if s.cache_len[b] else int(s.leo[b])


def doubtful(s: State, b: int, slots: list[Slots]) -> list[Slots]:
    """What of the slots b may hold or not: nothing says whose records its log has there."""
    first, end = int(s.unsure_from[b]), int(s.unsure_until[b])
    return [Slots(one.epoch, first, end) for one in slots] if first < end else []


def lost_slots(old: list[Slots], new: list[Slots], floor: int) -> list[Slots]:
    """Slots of `old` at `floor` or above that `new` does not hold: for each epoch, what lies beyond its end there."""
    kept = {span.epoch: span.end for span in new}
    out = []
    for span in old:
        first = max(span.first, floor, kept.get(span.epoch, span.first))
        if first < span.end:
            out.append(Slots(span.epoch, first, span.end))
    return out


def without(lost: list[Slots], told: list[Slots]) -> list[Slots]:
    """Slots of `lost` that are not among those told of before: each stands in one incident."""
    out = lost
    for old in told:
        rest = []
        for slots in out:
            if slots.epoch != old.epoch or old.end <= slots.first or slots.end <= old.first:
                rest.append(slots)
                continue
            rest += [Slots(slots.epoch, slots.first, old.first)] if slots.first < old.first else []
            rest += [Slots(slots.epoch, old.end, slots.end)] if old.end < slots.end else []
        out = rest
    return out


def common(lost: list[Slots], held: list[Slots]) -> list[Slots]:
    """Slots that are in both."""
    return [
        Slots(slots.epoch, max(slots.first, span.first), min(slots.end, span.end))
        for slots in lost
        for span in held
        if slots.epoch == span.epoch and overlap(slots.first, slots.end, span)
    ]


def overlap(batch_first: int, batch_end: int, slots: Slots) -> int:
    """How many offsets of [first, end) are among the slots."""
    return max(0, min(batch_end, slots.end) - max(batch_first, slots.first))


@dataclass(slots=True)
class Ledger:
    """What was appended, answered and read, kept as long as it may still be lost."""

    batches: dict[tuple[int, int], Batch] = field(default_factory=dict)
    reads: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    produced: bool = False  # whether any produce line was seen: without one nothing is known of acknowledgements
    consumed: bool = False

    def append(self, row: Row) -> None:
        """Note an `append` event."""
        self.produced = self.produced or row["source_line"] is not None
        if row["duplicate"] or row["next_offset"] is None or row["base_offset"] is None:
            return
        key = (row["leader_epoch"], row["base_offset"])
        sure = row["next_offset_evidence"] in ("observed", "derived")
        known = row["source_line"] is not None
        if key not in self.batches:
            self.batches[key] = Batch(*key, row["next_offset"], sure, known)

    def ack(self, row: Row) -> None:
        """Note an `ack` event. A retry answered well from the producer's state acknowledges its batch, once.

        Only a batch of the answering leader's own epoch: which older batch a new leader speaks of hangs on where its
        epoch starts, and one off would claim a loss that was not.
        """
        batch = self.batches.get((row["leader_epoch"], row["base_offset"]))
        if batch is None or row["error_code"] is None:
            return
        if row["duplicate"] and (row["error_code"] != 0 or (batch.answer is not None and batch.answer[1] == 0)):
            return
        batch.answer = (row["acks"], row["error_code"], row["client_id"] or "", micros(row["ts"]))
        batch.unconfirmed = bool(row["unconfirmed"])

    def read(self, row: Row) -> None:
        """Note a `consumer_read` event that handed records out."""
        self.consumed = True
        if row["next_offset"] is None or row["fetch_offset"] is None:
            return
        spans = self.reads.setdefault(row["leader_epoch"], [])
        first, end = row["fetch_offset"], row["next_offset"]
        if spans and first <= spans[-1][1] and first >= spans[-1][0]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((first, end))

    def prune(self, floor: int) -> None:
        """Drop the batches that every assigned replica has."""
        if len(self.batches) > PRUNE_EVERY:
            self.batches = {key: batch for key, batch in self.batches.items() if batch.end > floor}

    def within(self, slots: list[Slots]) -> Iterator[tuple[Batch, int]]:
        """Batches with offsets among the slots, and how many."""
        for batch in self.batches.values():
            here = sum(overlap(batch.base, batch.end, one) for one in slots if one.epoch == batch.epoch)
            if here:
                yield batch, here

    def about(self, slots: list[Slots]) -> Ledger:
        """What is noted of the slots: enough to account for them again when this ledger has forgotten them."""
        first = min(one.first for one in slots)
        return Ledger(
            {(batch.epoch, batch.base): batch for batch, _ in self.within(slots)},
            {epoch: [(max(a, first), b) for a, b in spans if b > first] for epoch, spans in self.reads.items()},
            self.produced,
            self.consumed,
        )

    def take_back(self, old: Ledger, back: list[Slots]) -> None:
        """Slots that `old` is about are in the partition's log again: they may be lost once more."""
        self.batches |= old.about(back).batches
        for epoch, spans in old.reads.items():
            reads = [Slots(epoch, *span) for span in spans]
            for one in back:
                mine = self.reads.setdefault(epoch, []) if epoch >= one.epoch else []
                mine += [(read.first, read.end) for read in common([one._replace(epoch=epoch)], reads)]

    def is_sure(self, lost: list[Slots]) -> bool:
        """Whether the ends of all batches among the slots follow from evidence."""
        return all(batch.sure for batch, _ in self.within(lost))

    def account(self, lost: list[Slots], committed: int) -> dict[str, Any]:
        """Counts over the lost slots, each a lower bound that the evidence forces."""
        count = {"acked_all": 0, "acked_one": 0, "unconfirmed": 0, "failed": 0, "unseen": 0}
        times: list[int] = []
        producers: set[str] = set()
        for batch, here in self.within(lost):
            kind = kind_of(batch)
            sure = (
                here
                if batch.sure
                else sum(overlap(batch.base, batch.base + 1, one) for one in lost if one.epoch == batch.epoch)
            )
            count[kind] += sure
            count["unseen"] += here - sure  # another's records may lie behind its first one
            if kind in ("acked_all", "acked_one") and batch.answer is not None:
                times.append(batch.answer[3])
                producers.add(batch.answer[2])
        records = sum(slots.end - slots.first for slots in lost)
        told = self.produced
        return {
            "records": records,
            "acked_all": count["acked_all"] if told else None,
            "acked_one": count["acked_one"] if told else None,
            "unacked": max(
                records - count["acked_all"] - count["acked_one"] - count["unconfirmed"] - count["unseen"], 0
            )
            if told
            else None,
            "committed": sum(max(0, min(slots.end, committed) - slots.first) for slots in lost),
            "consumed": self.count_consumed(lost) if self.consumed else None,
            "acked_all_possible": count["unseen"] if told else None,
            "acked_one_possible": count["unseen"] if told else None,
            "acked_unconfirmed": count["unconfirmed"] if told else None,
            "first_ack_ts": min(times, default=None),
            "last_ack_ts": max(times, default=None),
            "producers": sorted(producers) if told else None,
        }

    def count_consumed(self, lost: list[Slots]) -> int:
        """Lost offsets that some consumer was handed under an epoch that could still serve them."""
        total = 0
        for slots in lost:
            edges = [
                (max(first, slots.first), min(end, slots.end))
                for epoch, spans in self.reads.items()
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
        """What is lost is told of once; reads of replaced offsets do not stand for the new ones."""
        first = min(slots.first for slots in lost)
        for epoch, spans in self.reads.items():
            self.reads[epoch] = [(a, min(b, first)) for a, b in spans if a < first]


def kind_of(batch: Batch) -> str:
    """How a batch was answered, as the accounting counts it."""
    if not batch.known:
        return "unseen"
    if batch.answer is None or batch.answer[1] != 0:
        return "failed"
    if batch.unconfirmed:
        return "unconfirmed"
    return "acked_all" if batch.answer[0] == -1 else "acked_one"


def floor_of(s: State, assigned: int) -> int:
    """Least LEO of the assigned replicas: what lies below it every one of them has."""
    members = [int(s.leo[b]) for b in range(len(s.leo)) if assigned & (1 << b)]
    return min(members, default=NONE)


def log_of(s: State, b: int, leader: int, seq: int) -> Log:
    """Leader b's log as it stands at `seq`."""
    return Log(
        leader=leader,
        epoch=int(s.epoch[b]),
        spans=spans_of(s, b),
        leo=int(s.leo[b]),
        hw=int(s.hw[b]),
        committed=int(s.cluster[TRUE_HW]),
        min_isr=int(s.cluster[MIN_ISR]),
        evidence=int(s.leo_evidence[b]),
        seq=seq,
    )
