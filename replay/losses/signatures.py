"""The rules by which mechanisms are recognized: functions of a finding and the partition's story.

What was lost is counted as it happens (`loss_ledger`). How it was lost is decided at the end of the partition, when it
is known what became of the logs. The order of the rules, and the rest of each mechanism, is in `mechanisms`.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from replay.arrays.ints import NEVER
from replay.engine.codes import LOG_CREATED
from replay.losses.story import CUT, by_seq

if TYPE_CHECKING:
    from replay.losses.findings import Finding
    from replay.losses.story import Row, Story
    from replay.protocol.profile import Profile

PLANNED = ("preferred", "reassignment", "controlled_shutdown")


def rules_of(found: Finding, story: Story) -> Profile:
    """The rules that the new leader followed when it took over."""
    return story.profile_at(found.leader, found.heir.seq)


def was_made_anew(found: Finding, story: Story) -> list[Row]:
    """Evidence that the old leader's log directory was lost: its log created anew at the next load, or never loaded."""
    loads = story.within("log_load", found.old.leader, found.old.seq + 1, NEVER)
    failures = storage_failures(found, story)
    if loads and loads[0]["cause"] == LOG_CREATED:
        return [] if was_taken_out(found, story, loads[0]["seq"]) else [*failures[:1], loads[0]]
    return [] if loads else failures[:1]


def storage_failures(found: Finding, story: Story) -> list[Row]:
    """Evidence that a log directory of the old leader failed in its epoch."""
    told = story.of.get(("observation", found.old.leader), ())
    return [row for row in told if row["leader_epoch"] == found.old.epoch]


def was_taken_out(found: Finding, story: Story, until: int) -> bool:
    """Whether the old leader left the assignment for a while before `until`, and thus deleted its log in order."""
    begin = bisect_left(story.decisions, found.old.seq, key=by_seq)
    decided = story.decisions[begin : bisect_left(story.decisions, until, key=by_seq)]
    return any(row["replicas"] and found.old.leader not in row["replicas"] for row in decided)


def elections_since(found: Finding, story: Story) -> list[Row]:
    """Elections after the old leader's, up to and including the new leader's."""
    decided = story.decided(found.old.epoch + 1, found.decision["leader_epoch"])
    return [row for row in decided if row["election"] is not None]


def deciding_election(found: Finding, story: Story) -> Row:
    """The election that left the lost slots behind: the first of another leader, else the new leader's own.

    A leader elected in between counts even if no source shows it at work, since replicas followed it all the same.
    """
    others = [
        row
        for row in elections_since(found, story)
        if row["leader_id"] is not None and row["leader_id"] >= 0 and row["leader_id"] != found.old.leader
    ]
    return others[0] if others else found.decision


def end_as_loaded(found: Finding, story: Story) -> Row | None:
    """The old leader's log as loaded after its epoch with less than before; None if no load shows that."""
    for row in story.within("log_load", found.old.leader, found.old.seq, found.heir.seq):
        if row["leo"] is not None and row["leo"] < found.end:
            return row
    for cut in story.within(CUT, found.old.leader, found.old.seq, found.heir.seq + 1):
        if cut["cause"] == "recovery" and cut["leo_after"] < found.end:
            return cut
    return None


def end_of(loaded: Row) -> int:
    """Where a log ended when it was loaded; `loaded` is a load or a truncation, from `end_as_loaded`."""
    return int(loaded["leo"] if "leo" in loaded else loaded["leo_after"])


def led_again_with_less(found: Finding, story: Story) -> bool:
    """Whether the old leader led again, having lost the end of its log while nobody else led (KIP-966)."""
    if found.leader != found.old.leader:
        return False
    return end_as_loaded(found, story) is not None or is_last_election(found, deciding_election(found, story))


def is_last_election(found: Finding, election: Row) -> bool:
    """Whether an election is the new leader's own."""
    return bool(election["leader_epoch"] == found.decision["leader_epoch"])


def was_elected_unclean(found: Finding, story: Story) -> bool:
    """Whether a leader from outside the ISR and the ELR was elected and left the slots behind.

    An unclean election after a clean one explains only promised records: the rest was already gone with the first.
    """
    if deciding_election(found, story)["election"] == "unclean":
        return True
    return found.promised and any(row["election"] == "unclean" for row in elections_since(found, story))


def unclean_election(found: Finding, story: Story) -> Row:
    """The election that brought in a leader from outside the ISR; the new leader's if no source calls one unclean."""
    return next((row for row in elections_since(found, story) if row["election"] == "unclean"), found.decision)


def must_have_been_unclean(found: Finding, story: Story) -> bool:
    """Whether the new leader cannot have been in the ISR, although no source says that it was not.

    If states of the partition are missing, the ISR is only partly known. But acks=all is not answered before every
    member has the record, so a leader that never had it was no member.
    """
    if not found.counts["acked_all"] or (is_in_last_isr(found, story) and knows_every_isr(found, story)):
        return False
    return found.fell_short and 0 <= found.old.fetched.get(found.leader, -1) <= found.first


def knows_every_isr(found: Finding, story: Story) -> bool:
    """Whether no state of the partition is missing between the old leader's election and the new leader's."""
    decided = story.decided(found.old.epoch, found.decision["leader_epoch"])
    epochs = [row["partition_epoch"] for row in decided if row["seq"] <= found.decision["seq"]]
    known = [epoch for epoch in epochs if epoch is not None]
    return len(known) == len(epochs) and all(after <= before + 1 for before, after in pairwise(known))


def was_eligible_only(found: Finding, story: Story) -> bool:
    """Whether the new leader came from the eligible leader replicas, not the ISR, and lacked promised records."""
    last = story.decision_before(found.decision["seq"])
    if last is None or not found.promised:
        return False
    return found.leader in (last["elr"] or ()) and found.leader not in (last["isr"] or ())


def cut_of_heir(found: Finding, story: Story, cause: str) -> Row | None:
    """The truncation by which the new leader gave up the first lost slot before it led."""
    for cut in story.cuts_into(found.first, found.first + 1):
        if cut["cause"] == cause and cut["broker_id"] == found.leader and cut["seq"] < found.heir.seq:
            return cut
    return None


def was_cut_to_hw(found: Finding, story: Story) -> bool:
    """Whether the new leader had truncated its log to its own high watermark (KIP-101).

    Protocols before 0.11 have no other way to truncate, so a leader that lacks what it had fetched must have done so.
    """
    if cut_of_heir(found, story, "high_watermark") is not None:
        return True
    if not rules_of(found, story).truncate_to_hw or not found.fell_short:
        return False
    had = found.was_counted or (bool(found.counts["acked_all"]) and is_in_last_isr(found, story))
    return had and found.promised and cut_of_heir(found, story, "out_of_range") is None


def is_in_last_isr(found: Finding, story: Story) -> bool:
    """Whether the new leader was in the ISR just before its election."""
    last = story.decision_before(found.decision["seq"])
    return last is not None and found.leader in (last["isr"] or ())


def holds_other_records(found: Finding) -> bool:
    """Whether the new leader, assumed to have the first lost slot, held a record of another epoch there."""
    epoch = next(slots.epoch for slots in found.lost if slots.first == found.first)
    other = any(span.first <= found.first < span.end and span.epoch != epoch for span in found.heir.held)
    return other and found.was_counted


def diverged_in_fast_failover(found: Finding, story: Story) -> bool:
    """Whether the new leader kept records of an epoch that the old leader had never heard of (KIP-279).

    Before protocol 2.0 the answer to the question where an epoch ends does not name its epoch; for an unknown epoch it
    is the end of another one.
    """
    if rules_of(found, story).epoch_end_names_epoch or not holds_other_records(found):
        return False
    last = max((span.epoch for span in found.heir.held if span.first <= found.first), default=None)
    return last is not None and last not in {span.epoch for span in found.old.spans}


def was_fetched_in_another_epoch(found: Finding, story: Story) -> bool:
    """Whether the old leader counted fetches of a follower in another epoch that had not truncated (KIP-320)."""
    return not rules_of(found, story).fetch_names_epoch and holds_other_records(found)


def rejoined_stale(found: Finding, story: Story) -> bool:
    """Whether the new leader was in the ISR without the promised records.

    Either its broker had restarted with less than it had fetched, and was still, or again, a member (KIP-903); or it
    was added below the high watermark or the start of the epoch (KAFKA-7128).
    """
    if not found.promised or not found.fell_short or not is_in_last_isr(found, story):
        return False
    if found.was_counted:
        return started_again(found, story) is not None
    return taken_in_short(found, story) is not None


def started_again(found: Finding, story: Story) -> Row | None:
    """The new leader's restart within the old leader's epoch: its log loaded with less, or a new registration."""
    begun = story.begun(found.old.epoch)
    for row in story.within("log_load", found.leader, begun + 1, found.heir.seq):
        if row["leo"] is not None and row["leo"] <= found.first:
            return row
    told = story.within("broker_change", found.leader, -NEVER, found.heir.seq)
    for before, row in pairwise(row for row in told if row["broker_epoch"] is not None):
        if row["broker_epoch"] != before["broker_epoch"] and begun < row["seq"] < found.heir.seq:
            return row
    return None


def taken_in_short(found: Finding, story: Story) -> Row | None:
    """The ISR change of the old epoch that added the new leader below the first lost slot."""
    for row in story.moved.get(found.old.epoch, ()):
        for mover in row["movers"] if row["seq"] <= found.old.seq else ():
            short = mover["remote_leo"] is not None and mover["remote_leo"] <= found.first
            if mover["joined"] and mover["broker_id"] == found.leader and short:
                return row
    return None


def was_reset_out_of_range(found: Finding, story: Story) -> bool:
    """Whether the new leader had dropped the records after an out-of-range answer, without asking where logs part."""
    return found.promised and cut_of_heir(found, story, "out_of_range") is not None


def gone_or_stopping(found: Finding, story: Story) -> tuple[Row | None, Row | None]:
    """The rows showing that the old leader was gone, or was shutting down in order, when another was elected.

    A fencing in the same batch of the metadata log follows the election that it causes.
    """
    election = deciding_election(found, story)
    gone: Row | None = None
    stopping: Row | None = None
    told = story.changes_until(found.old.leader, election)
    back = next((k for k in range(len(told) - 1, -1, -1) if told[k]["fenced"] is False), 0)
    for row in told[back:]:
        if row["in_controlled_shutdown"]:
            stopping = row
        elif row["in_controlled_shutdown"] is False:
            stopping = None
        if row["fenced"]:
            gone = row if stopping is None else gone
        elif row["fenced"] is False:
            gone = stopping = None
    return gone, stopping


def was_planned(found: Finding, story: Story) -> bool:
    """Whether leadership was moved on purpose while the old leader was alive: not dead, fenced, cut off or diskless."""
    election = deciding_election(found, story)
    gone, stopping = gone_or_stopping(found, story)
    if gone is not None:
        return False
    if stopping is not None:
        return True
    offline = any(row["election"] == "offline" for row in elections_since(found, story))
    if storage_failures(found, story) or offline:
        return False
    return election["election"] in PLANNED or found.old.leader in (election.get("isr") or ())


def answered_by_leader_alone(found: Finding, _story: Story) -> bool:
    """Whether at most acks=1 was answered; if no answers are known, whether nothing was committed."""
    return not (found.counts["committed"] if found.counts["acked_all"] is None else found.counts["acked_all"])


def left_in_planned_move(found: Finding, story: Story) -> bool:
    """Whether at most acks=1 was answered, and leadership was moved on purpose."""
    return answered_by_leader_alone(found, story) and was_planned(found, story)
