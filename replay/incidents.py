"""Which slots were lost, and what was in them: the accounting by slot (leader epoch, offset).

At the end of each leader epoch the leader's log is what the partition held; the next leader's log is what it holds
from then on. The slots of the first that the second does not have are gone for good. What was acknowledged, committed
or consumed among them is counted from the appends, answers and reads of the same slots. A mechanism is named by the
first rule that fits, in the order of `mechanism_of`. What the model leaves out: payloads, so a client's retry that
brought the same record again elsewhere cannot be seen; storage failures (a later table of signatures).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from replay.identity import digest
from replay.spine import micros
from replay.state import NONE, State

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

    def account(self, lost: list[Slots], committed: int) -> dict[str, Any]:
        """Counts over the lost slots, each a lower bound that the evidence forces."""
        count = {"acked_all": 0, "acked_one": 0, "unconfirmed": 0, "failed": 0, "unseen": 0}
        times: list[int] = []
        producers: set[str] = set()
        sure = True
        for batch in self.batches.values():
            for slots in lost:
                here = overlap(batch.base, batch.end, slots) if slots.epoch == batch.epoch else 0
                if not here:
                    continue
                sure = sure and batch.sure
                kind = kind_of(batch)
                count[kind] += here
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
            "sure": sure,
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


MECHANISM_SEVERITY = {
    "last_replica_standing": "S0",
    "eligible_leader_regressed": "S0",
    "hw_truncation": "S0",
    "unclean_election": "S1",
    "acks_one_leader_failure": "S2",
    "acks_one_planned_move": "S2",
}


def mechanism_of(old: Log, decision: Row, counts: dict[str, Any], *, to_hw: bool) -> str:
    """The first mechanism that fits, in the order of precedence."""
    election = decision["election"]
    if decision["leader_id"] == old.leader:
        return "last_replica_standing"
    if election == "unclean":
        return "unclean_election"
    if to_hw:
        return "hw_truncation"
    if counts["acked_all"]:
        return "other"
    planned = election in ("preferred", "reassignment", "controlled_shutdown")
    return "acks_one_planned_move" if planned else "acks_one_leader_failure"


def severity_of(mechanism: str, counts: dict[str, Any]) -> str:
    """Severity of the mechanism; of `other`, by whether anything committed went."""
    if mechanism in MECHANISM_SEVERITY:
        return MECHANISM_SEVERITY[mechanism]
    return "S0" if counts["committed"] else "S2"


def prevention_of(mechanism: str, old: Log) -> list[str]:
    """The settings that would have kept the records."""
    durable = ["acks=all", "min.insync.replicas=2"]
    if mechanism == "unclean_election":
        guard = ["unclean.leader.election.enable=false"]
        return [*guard, "min.insync.replicas=2"] if old.min_isr < 2 else guard
    if mechanism == "last_replica_standing":
        return ["min.insync.replicas=2", "eligible.leader.replicas.version=1", "log.flush.interval.messages"]
    if mechanism == "hw_truncation":
        return ["upgrade to Kafka 0.11 or later (KIP-101)", "inter.broker.protocol.version"]
    if mechanism in ("acks_one_leader_failure", "acks_one_planned_move"):
        return durable
    return ["min.insync.replicas=2"]


WORDS = {
    "unclean_election": "broker {new} was elected although it was not in the ISR",
    "last_replica_standing": "broker {old} was the last replica in the ISR, lost the end of its log and led again",
    "hw_truncation": "broker {new} had cut its log to its own high watermark and was elected before it fetched again",
    "acks_one_leader_failure": "broker {old} failed before its followers had fetched them, and broker {new} took over",
    "acks_one_planned_move": "leadership moved from broker {old} to broker {new} before it had fetched them",
    "other": "broker {new} took over from broker {old} without them",
}


def sentences(mechanism: str, where: str, old: Log, decision: Row, lost: list[Slots], counts: dict[str, Any]) -> str:
    """The incident in two or three plain sentences."""
    words = WORDS[mechanism].format(old=old.leader, new=decision["leader_id"])
    first, last = lost[0].first, lost[-1].end - 1
    span = f"offsets {first} to {last}" if last > first else f"offset {first}"
    out = [f"{where}: {span} of leader epoch {old.epoch} are gone: {words} (epoch {decision['leader_epoch']})."]
    if counts["acked_all"] is None:
        out.append("No request log tells whether they were acknowledged.")
    else:
        parts = [
            f"{counts[name]} acknowledged with acks={acks}"
            for name, acks in (("acked_all", "all"), ("acked_one", "1"))
            if counts[name]
        ]
        told = " and ".join(parts) or "none surely acknowledged"
        out.append(f"Of {counts['records']} records, {told}; {counts['committed']} were below the high watermark.")
    return " ".join(out)


def incident(  # noqa: PLR0913 - one row is made of all this
    key: dict[str, Any],
    old: Log,
    decision: Row,
    lost: list[Slots],
    ledger: Ledger,
    *,
    start_evidence: int,
    to_hw: bool,
) -> dict[str, Any] | None:
    """One losing event as a row of `data_loss_incidents`; None where nothing that matters went."""
    counts = ledger.account(lost, old.committed)
    sure = counts.pop("sure")
    unknown = counts["acked_all"] is None
    matters = ("acked_all", "acked_one", "committed", "consumed", "acked_all_possible", "acked_unconfirmed")
    ledger.forget(lost)
    if not unknown and not any(counts[name] for name in matters):
        return None
    mechanism = mechanism_of(old, decision, counts, to_hw=to_hw)
    where = f"{key['topic']}-{key['partition']}"
    certain = sure and start_evidence <= 1 and old.evidence <= 1
    return {
        **key,
        "incident_id": digest(
            key.get("recording_id"), key["topic"], key["incarnation"], key["partition"], lost[0].epoch,
            decision["leader_epoch"],
        ),
        "mechanism": mechanism,
        "severity": severity_of(mechanism, counts),
        "first_offset": min(slots.first for slots in lost),
        "last_offset": max(slots.end for slots in lost) - 1,
        "ranges": [{"leader_epoch": s.epoch, "first_offset": s.first, "last_offset": s.end - 1} for s in lost],
        **counts,
        "old_leader_id": old.leader,
        "old_leader_epoch": old.epoch,
        "new_leader_id": decision["leader_id"],
        "new_leader_epoch": decision["leader_epoch"],
        "losing_broker_id": old.leader,
        "lost_ts": micros(decision["ts"]),
        "prevention": prevention_of(mechanism, old),
        "explanation": sentences(mechanism, where, old, decision, lost, counts),
        "evidence": "derived" if certain else "bounded",
    }  # fmt: skip


def floor_of(s: State, assigned: int) -> int:
    """Least LEO of the assigned replicas: what lies below it every one of them has."""
    members = [int(s.leo[b]) for b in range(len(s.leo)) if assigned & (1 << b)]
    return min(members, default=NONE)


def log_of(s: State, b: int, leader: int, min_isr: int, committed: int) -> Log:
    """Leader b's log as it stands."""
    return Log(
        leader=leader,
        epoch=int(s.epoch[b]),
        spans=spans_of(s, b),
        leo=int(s.leo[b]),
        hw=int(s.hw[b]),
        committed=committed,
        min_isr=min_isr,
        evidence=int(np.int64(s.leo_evidence[b])),
    )


def chain_of(row: Row, history: list[Row], cuts: list[Row]) -> dict[str, Any]:
    """What led to a loss and what became of the log: ISR changes, last acknowledgement, election, truncation."""
    old, epoch = row["old_leader_epoch"], row["new_leader_epoch"]
    links: list[dict[str, Any]] = []
    for decision in history:
        if decision["leader_epoch"] == epoch and decision["election"] is not None:
            how = f"({decision['election']}): {decision['trigger']}"
            what = f"broker {decision['leader_id']} elected for epoch {epoch} {how}"
        elif old <= decision["leader_epoch"] < epoch and decision["election"] == "offline":
            what = f"partition offline from epoch {decision['leader_epoch']}"
        elif decision["leader_epoch"] == old and decision["change"] in ("shrink", "fenced", "controlled_shutdown"):
            what = f"ISR down to {decision['isr']} ({decision['change']})"
        else:
            continue
        links.append({"seq": decision["seq"], "ts": micros(decision["ts"]), "what": what})
    if row["last_ack_ts"] is not None:
        links.append({"seq": None, "ts": row["last_ack_ts"], "what": "last acknowledgement of a lost record"})
    truncated = None
    for cut in cuts:
        dropped = cut["leo_after"] <= row["last_offset"] and cut["leo_before"] > row["first_offset"]
        if not dropped or (cut["leader_epoch"] is not None and cut["leader_epoch"] < epoch):
            continue
        at = micros(cut["ts"])
        if cut["broker_id"] == row["losing_broker_id"] and truncated is None:
            truncated = at
        span = f"{cut['leo_before']} to {cut['leo_after']}"
        links.append(
            {"seq": cut["seq"], "ts": at, "what": f"broker {cut['broker_id']} cut its log from {span} ({cut['cause']})"}
        )
    links.sort(key=lambda link: (link["ts"], link["seq"] or 0))
    return {"chain": links, "truncated_ts": truncated}
