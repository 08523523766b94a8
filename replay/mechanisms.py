"""How slots were lost: each losing event as a row of `data_loss_incidents`, with its mechanism, chain and prevention.

What was lost is counted as it happens (`incidents`); how, is told at the end of the partition, when it is known what
became of the logs. A mechanism is named by the first rule that fits, in the order of `mechanism_of`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from replay.encoding import LOG_CREATED, STORAGE_FAILED
from replay.identity import digest
from replay.incidents import common, without
from replay.spine import micros

if TYPE_CHECKING:
    from replay.incidents import Ledger, Log, Row, Slots

MATTERS = ("acked_all", "acked_one", "committed", "consumed", "acked_all_possible", "acked_unconfirmed")
MECHANISM_SEVERITY = {
    "last_replica_standing": "S0",
    "eligible_leader_regressed": "S0",
    "hw_truncation": "S0",
    "unclean_election": "S1",
    "acks_one_leader_failure": "S2",
    "acks_one_planned_move": "S2",
}
PLANNED = ("preferred", "reassignment", "controlled_shutdown")
WORDS = {
    "storage_failure": "the log directory of broker {old} failed and its log was made anew",
    "unclean_election": "broker {new} was elected although it was not in the ISR",
    "last_replica_standing": "broker {old} was the last replica in the ISR, lost the end of its log and led again",
    "eligible_leader_regressed": "broker {new} was an eligible leader replica, but lacked what was committed",
    "hw_truncation": "broker {new} had cut its log to its own high watermark and was elected before it fetched again",
    "acks_one_leader_failure": "broker {old} failed before its followers had fetched them, and broker {new} took over",
    "acks_one_planned_move": "leadership moved from broker {old} to broker {new} before it had fetched them",
    "other": "broker {new} took over from broker {old} without them",
}
NOT_TOLD = "the log of broker {old}, as dumped at the end, holds other records there, and no line tells how"


@dataclass(slots=True)
class Finding:
    """A losing event as it is found: a new leader took up its epoch without slots of the leader before."""

    old: Log
    decision: Row  # that elected the new leader
    lost: list[Slots]
    ledger: Ledger  # about the lost slots
    stated: bool  # whether evidence forces where both logs end
    seq: int  # where the new leader took up its role
    counts: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Account for the lost slots."""
        self.counts = self.ledger.account(self.lost, self.old.committed)

    def give_back(self, held: list[Slots]) -> list[Slots]:
        """A later leader's log holds `held`: what of it was taken for lost is not. Returns those slots."""
        back = common(self.lost, held)
        if back:
            self.lost = without(self.lost, back)
            self.counts = self.ledger.account(self.lost, self.old.committed)
        return back

    @property
    def matters(self) -> bool:
        """Whether anything acknowledged, committed or consumed went for good, or nothing tells."""
        unknown = self.counts["acked_all"] is None
        return bool(self.lost) and (unknown or any(self.counts[name] for name in MATTERS))


@dataclass(slots=True)
class Story:
    """What the partition's events tell beside its offsets, in replay order."""

    decisions: list[Row]
    cuts: list[Row]  # rows of `log_truncations`
    storage: list[Row]  # `log_load` events, and `observation` events of failed log directories


def was_made_anew(found: Finding, story: Story) -> list[Row]:
    """What tells that the old leader's log directory was lost: its log made anew at the next load, or never loaded."""
    loads = [
        row
        for row in story.storage
        if row["broker_id"] == found.old.leader and row["kind"] == "log_load" and row["seq"] > found.old.seq
    ]
    failures = [
        row
        for row in story.storage
        if row["broker_id"] == found.old.leader
        and row["cause"] == STORAGE_FAILED
        and row["leader_epoch"] == found.old.epoch
    ]
    if loads and loads[0]["cause"] == LOG_CREATED:
        return [] if was_taken_out(found, story, loads[0]["seq"]) else [*failures[:1], loads[0]]
    return [] if loads else failures[:1]


def was_taken_out(found: Finding, story: Story, until: int) -> bool:
    """Whether the old leader was out of the assignment for a while before `until`: it deleted its log in order."""
    return any(
        found.old.seq <= row["seq"] < until and row["replicas"] and found.old.leader not in row["replicas"]
        for row in story.decisions
    )


def was_cut_to_hw(found: Finding, story: Story) -> bool:
    """Whether the new leader had the first of the lost slots and cut it with all above its own high watermark."""
    return any(
        cut["cause"] == "high_watermark"
        and cut["broker_id"] == found.decision["leader_id"]
        and cut["seq"] < found.seq
        and cut["leo_after"] <= found.lost[0].first < cut["leo_before"]
        for cut in story.cuts
    )


def was_eligible_only(found: Finding, story: Story) -> bool:
    """Whether the new leader came from the eligible leader replicas, not from the ISR (KIP-966)."""
    before = [row for row in story.decisions if row["seq"] < found.decision["seq"]]
    if not before or found.decision["seq"] < 0:
        return False
    leader, last = found.decision["leader_id"], before[-1]
    return leader in (last["elr"] or ()) and leader not in (last["isr"] or ())


def mechanism_of(found: Finding, story: Story) -> str:
    """The first mechanism that fits, in the order of precedence."""
    election = found.decision["election"]
    if found.decision["leader_id"] is None:
        return "other"  # only the dumps at the end show it
    if was_made_anew(found, story):
        return "storage_failure"
    if found.decision["leader_id"] == found.old.leader:
        return "last_replica_standing"
    if election == "unclean":
        return "unclean_election"
    if found.counts["committed"] and was_eligible_only(found, story):
        return "eligible_leader_regressed"
    if was_cut_to_hw(found, story):
        return "hw_truncation"
    if found.counts["acked_all"]:
        return "other"
    return "acks_one_planned_move" if election in PLANNED else "acks_one_leader_failure"


def severity_of(mechanism: str, counts: dict[str, Any]) -> str:
    """Severity of the mechanism; of the others, by whether anything committed went."""
    if mechanism in MECHANISM_SEVERITY:
        return MECHANISM_SEVERITY[mechanism]
    if not counts["committed"]:
        return "S2"
    return "S1" if mechanism == "storage_failure" else "S0"


def prevention_of(mechanism: str, old: Log) -> list[str]:
    """The settings that would have kept the records."""
    durable = ["acks=all", "min.insync.replicas=2"]
    if mechanism == "unclean_election":
        guard = ["unclean.leader.election.enable=false"]
        return [*guard, "min.insync.replicas=2"] if old.min_isr < 2 else guard
    if mechanism == "last_replica_standing":
        return ["min.insync.replicas=2", "eligible.leader.replicas.version=1", "log.flush.interval.messages"]
    if mechanism == "hw_truncation":
        return ["inter.broker.protocol.version=0.11.0 or later (KIP-101)"]
    if mechanism in ("acks_one_leader_failure", "acks_one_planned_move", "storage_failure"):
        return durable
    return ["min.insync.replicas=2"]


def sentences(mechanism: str, where: str, found: Finding) -> str:
    """The incident in two or three plain sentences."""
    old, counts = found.old, found.counts
    told = WORDS[mechanism] if found.decision["leader_id"] is not None else NOT_TOLD
    words = told.format(old=old.leader, new=found.decision["leader_id"])
    first, last = found.lost[0].first, found.lost[-1].end - 1
    span, are = (f"offsets {first} to {last}", "are") if last > first else (f"offset {first}", "is")
    out = [f"{where}: {span} of leader epoch {old.epoch} {are} gone: {words} (epoch {found.decision['leader_epoch']})."]
    if counts["acked_all"] is None:
        out.append("No request log tells whether they were acknowledged.")
    else:
        parts = [
            f"{counts[name]} acknowledged with acks={acks}"
            for name, acks in (("acked_all", "all"), ("acked_one", "1"))
            if counts[name]
        ]
        told = " and ".join(parts) or "none surely acknowledged"
        of = "Of one record" if counts["records"] == 1 else f"Of {counts['records']} records"
        out.append(f"{of}: {told}; {counts['committed']} below the high watermark.")
    return " ".join(out)


def incident(key: dict[str, Any], found: Finding, story: Story) -> dict[str, Any]:
    """One losing event as a row of `data_loss_incidents`."""
    old, decision, lost = found.old, found.decision, found.lost
    mechanism = mechanism_of(found, story)
    row = {
        **key,
        "incident_id": digest(
            key.get("recording_id"), key["topic"], key["incarnation"], key["partition"], lost[0].epoch,
            decision["leader_epoch"],
        ),
        "mechanism": mechanism,
        "severity": severity_of(mechanism, found.counts),
        "first_offset": min(slots.first for slots in lost),
        "last_offset": max(slots.end for slots in lost) - 1,
        "ranges": [{"leader_epoch": s.epoch, "first_offset": s.first, "last_offset": s.end - 1} for s in lost],
        **found.counts,
        "old_leader_id": old.leader,
        "old_leader_epoch": old.epoch,
        "new_leader_id": decision["leader_id"],
        "new_leader_epoch": decision["leader_epoch"],
        "losing_broker_id": old.leader,
        "lost_ts": None if decision["ts"] is None else micros(decision["ts"]),
        "prevention": prevention_of(mechanism, old),
        "explanation": sentences(mechanism, f"{key['topic']}-{key['partition']}", found),
        "evidence": "derived" if found.stated and found.ledger.is_sure(lost) else "bounded",
    }  # fmt: skip
    row.update(chain_of(row, story, was_made_anew(found, story)))
    return row


def link(row: Row, what: str) -> dict[str, Any]:
    """One link of a chain."""
    return {"seq": row["seq"], "ts": micros(row["ts"]), "what": what}


def control_links(row: Row, decisions: list[Row]) -> list[dict[str, Any]]:
    """The controller's decisions that led to the loss: ISR changes of the old epoch, the election."""
    old, epoch = row["old_leader_epoch"], row["new_leader_epoch"]
    out = []
    for decision in decisions:
        if decision["leader_epoch"] == epoch and decision["election"] is not None:
            how = f"({decision['election']}): {decision['trigger']}"
            out.append(link(decision, f"broker {decision['leader_id']} elected for epoch {epoch} {how}"))
        elif old <= decision["leader_epoch"] < epoch and decision["election"] == "offline":
            out.append(link(decision, f"partition offline from epoch {decision['leader_epoch']}"))
        elif decision["leader_epoch"] == old and decision["change"] in ("shrink", "fenced", "controlled_shutdown"):
            out.append(link(decision, f"ISR down to {decision['isr']} ({decision['change']})"))
    return out


def chain_of(row: Row, story: Story, storage: list[Row]) -> dict[str, Any]:
    """What led to a loss and what became of the log: ISR changes, last acknowledgement, election, truncation."""
    links = control_links(row, story.decisions)
    if row["last_ack_ts"] is not None:
        links.append({"seq": None, "ts": row["last_ack_ts"], "what": "last acknowledgement of a lost record"})
    for event in storage:
        made = event["cause"] == LOG_CREATED
        what = "made its log anew, empty" if made else "lost the log directory of this partition"
        links.append(link(event, f"broker {event['broker_id']} {what}"))
    truncated = None
    for cut in story.cuts:
        holds = cut["leo_after"] <= row["last_offset"] and cut["leo_before"] > row["first_offset"]
        by_heir = cut["cause"] == "high_watermark" and cut["broker_id"] == row["new_leader_id"]
        late = cut["leader_epoch"] is None or cut["leader_epoch"] >= row["new_leader_epoch"]
        if not holds or not (late or by_heir):
            continue
        if late and cut["broker_id"] == row["losing_broker_id"] and truncated is None:
            truncated = micros(cut["ts"])
        span = f"{cut['leo_before']} to {cut['leo_after']}"
        links.append(link(cut, f"broker {cut['broker_id']} cut its log from {span} ({cut['cause']})"))
    links.sort(key=lambda one: (one["ts"], one["seq"] or 0))
    return {"chain": links, "truncated_ts": truncated}
