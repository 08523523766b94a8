"""What led to a loss, link by link: ISR shrink, last acknowledgement, death, election, restart, truncation.

Each link carries the line that states it. Repeated links are combined; of more than `LINKS` the least telling are left
out.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from replay.arrays.ints import NEVER
from replay.engine.codes import LOG_CREATED
from replay.evidence.tenures import micros
from replay.losses.signatures import deciding_election, elections_since, end_as_loaded, end_of, was_made_anew
from replay.losses.story import by_seq, is_in_batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.losses.findings import Finding
    from replay.losses.story import Row, Story

LINKS = 12
HALF = 0.5  # between two events
LEFT_BECAUSE = {
    "fenced": "fenced by the controller",
    "stopped": "shut down in order",
    "reassigning": "out of the assignment",
    "broker_away": "its broker was gone",
    "log_directory": "its log directory had failed",
    "left_by_controller": "taken out by the controller",
    "leader_stood_still": "the leader had stood still",
    "throttled": "throttled by a replication quota",
    "no_fetches": "no fetch in replica.lag.time.max.ms",
    "fetch_errors": "its fetches were refused",
    "fetching_but_behind": "fetching, but behind for replica.lag.time.max.ms",
}
BY_LAG = ("no_fetches", "fetching_but_behind")
CUT_BECAUSE = {
    "leader_epoch": "to where the leader's epoch ends",
    "high_watermark": "to its own high watermark",
    "diverging_fetch": "to where the leader's log parts from it",
    "out_of_range": "for an out-of-range answer",
    "recovery": "the end was gone when it started again",
    "tiered_storage": "to start again behind what is in the remote tier",
}


class Link(NamedTuple):
    """One event of a chain.

    `place`: the seq before which it is told. `weight`: links with low weight are left out first.
    """

    ts: int
    seq: int
    what: str
    source: str | None
    place: float
    weight: int = 3


def link_of(row: Row, what: str, story: Story, place: float | None = None, weight: int = 3) -> Link:
    """A link for an event."""
    ts = row["ts"] if isinstance(row["ts"], int) else micros(row["ts"])
    return Link(ts, row["seq"], what, story.sources.get(row["seq"]), row["seq"] if place is None else place, weight)


def shrinks_before(found: Finding, story: Story) -> list[Row]:
    """The committed ISR rows, since the ISR last grew, by which it shrank to its state at the end of the old epoch."""
    begun = story.begun(found.old.epoch)
    out: list[Row] = []
    for place in range(bisect_left(story.isr, found.old.seq, key=by_seq) - 1, -1, -1):
        row = story.isr[place]
        before, after = set(row["isr_before"]), set(row["isr"] or ())
        if after - before or (row["seq"] < begun and out):
            break
        if before - after:
            out.append(row)
    return out[::-1]


def shrink_links(found: Finding, story: Story) -> Iterator[Link]:
    """The shrinking of the ISR as one link: its first and last state, who left and why."""
    rows = shrinks_before(found, story)
    if not rows:
        return
    left: dict[int, str] = {}
    for row in rows:
        movers = {mover["broker_id"]: mover for mover in row["movers"] or () if not mover["joined"]}
        for broker in sorted(set(row["isr_before"]) - set(row["isr"])):
            left[broker] = why_left(movers.get(broker), story)
    who = ", ".join(f"broker {broker} ({why})" for broker, why in left.items())
    first, last = rows[0], rows[-1]
    what = f"ISR down from {first['isr_before']} to {last['isr']}: {who}"
    yield link_of(first, what, story)


def why_left(mover: Row | None, story: Story) -> str:
    """Why a replica left the ISR, in words; a lag reason is given only if the replica really was late."""
    reason = mover["reason"] if mover is not None else None
    late = mover["ms_since_caught_up"] if mover is not None else None
    if reason in BY_LAG and late is not None and late < story.lag_ms:
        reason = None
    return LEFT_BECAUSE.get(reason or "", "for a reason that no line tells")


def ack_links(found: Finding, story: Story) -> Iterator[Link]:
    """The last acknowledgement of a lost record; without one, the last answer that may have reached nobody.

    A leader that had not yet heard of the next one keeps answering; that is told after the election and what followed
    it.
    """
    told = found.ledger.acknowledged(found.lost)
    doubtful = [
        (batch, here)
        for batch, here in found.ledger.within(found.lost)
        if batch.answer and batch.answer.reached != "reached"
    ]
    batch = max(
        (b for b, _ in told or doubtful if b.answer), key=lambda b: b.answer.seq if b.answer else 0, default=None
    )
    if batch is None or batch.answer is None:
        return
    answer = batch.answer
    acks = "all" if answer.acks == -1 else str(answer.acks)
    offset = min(batch.end, found.end) - 1
    what = f"broker {found.old.leader} acknowledged a lost record for the last time (offset {offset}, acks={acks})"
    if not told:
        what = f"broker {found.old.leader}, just awake, answered offset {offset} to a client that had given up"
        if answer.reached == "unsure":
            what = f"broker {found.old.leader} answered offset {offset} (acks={acks}); perhaps the client had given up"
    moves = [*elections_since(found, story), *heir_role(found, story), *cuts_of(found, story)]
    passed = [row["seq"] for row in moves if row["ts"] is not None and micros(row["ts"]) < answer.ts]
    place = max(passed, default=answer.seq)
    yield Link(answer.ts, answer.seq, what, answer.source, place + HALF)


def heir_role(found: Finding, story: Story) -> list[Row]:
    """The event with which the new leader took up its role."""
    return story.within("role_change", found.leader, found.heir.seq, found.heir.seq + 1)


def broker_links(found: Finding, story: Story) -> Iterator[Link]:
    """How the old leader went (fenced, gone, shutting down), within its epoch or with the election.

    A fencing in the same metadata log batch as the election is told before the election.
    """
    begun = story.begun(found.old.epoch)
    election = deciding_election(found, story)
    until = max(election["seq"], found.old.seq)
    with_election = {
        row["ts"]: row["seq"] - HALF for row in elections_since(found, story) if row["metadata_offset"] is not None
    }
    fenced = False
    for row in story.within("broker_change", found.old.leader, begun, NEVER):
        if row["seq"] > until and not is_in_batch_of(election, row):
            break
        what = None
        if row["in_controlled_shutdown"]:
            what = "asked to shut down in order"
        elif row["fenced"] and fenced:
            what = None if end_as_loaded(found, story) else "registered anew: it had started again"
        elif row["fenced"]:
            what = "was gone for the controller" if row["metadata_offset"] is None else "was fenced by the controller"
        fenced = fenced if row["fenced"] is None else row["fenced"]
        if what is not None:
            yield link_of(row, f"broker {found.old.leader} {what}", story, with_election.get(row["ts"]))


def election_links(found: Finding, story: Story) -> Iterator[Link]:
    """Elections from the old leader's end up to the new leader, and the offset from which the new leader led."""
    for row in elections_since(found, story):
        epoch = row["leader_epoch"]
        if row["leader_id"] is None or row["leader_id"] < 0:
            yield link_of(row, f"no leader from epoch {epoch} on: {row['trigger']}", story)
            continue
        how = f"{row['election']} election: {row['trigger']}"
        what = f"broker {row['leader_id']} elected leader of epoch {epoch} ({how})"
        yield link_of(row, what, story)
    for row in heir_role(found, story):
        if found.leader != found.old.leader:
            what = f"broker {found.leader} led from offset {found.heir.start}; broker {found.old.leader}'s log ended at"
            yield link_of(row, f"{what} {found.old.leo}", story, weight=2)


def storage_links(found: Finding, story: Story) -> Iterator[Link]:
    """Log directories that failed, and logs that were created anew or loaded with less."""
    for row in was_made_anew(found, story):
        what = "made its log anew, empty" if row["cause"] == LOG_CREATED else "lost the log directory of this partition"
        yield link_of(row, f"broker {row['broker_id']} {what}", story)
    loaded = end_as_loaded(found, story) if found.leader == found.old.leader else None
    if loaded is not None:
        end = end_of(loaded)
        what = f"broker {found.old.leader} started again: its log ended at {end}, before at {found.old.leo}"
        election = deciding_election(found, story)["seq"]
        yield link_of(loaded, what, story, min(loaded["seq"], election - HALF))


def cuts_of(found: Finding, story: Story) -> list[Row]:
    """Truncations of lost slots: by the new leader before it led, and by brokers that followed it."""
    out = []
    for cut in story.cuts_into(found.first, found.end):
        late = cut["leader_epoch"] is None or cut["leader_epoch"] >= found.decision["leader_epoch"]
        by_heir = cut["broker_id"] == found.leader and found.fell_short and cut["seq"] < found.heir.seq
        by_heir = by_heir and cut["leo_after"] <= found.first
        reload = cut["cause"] == "recovery" and found.leader == found.old.leader == cut["broker_id"]
        if not reload and (by_heir or (late and cut["seq"] > found.old.seq)):
            out.append(cut)
    return out


def cut_links(found: Finding, story: Story) -> Iterator[Link]:
    """Who truncated what; repeated truncations by one broker are one link."""
    seen: dict[tuple[int, str], list[Row]] = {}
    for cut in cuts_of(found, story):
        seen.setdefault((cut["broker_id"], cut["cause"]), []).append(cut)
    for (broker, cause), cuts in seen.items():
        first = cuts[0]
        times = f", {len(cuts)} times" if len(cuts) > 1 else ""
        what = f"broker {broker} cut its log from {first['leo_before']} to {first['leo_after']}{times}"
        weight = 3 if broker in (found.old.leader, found.leader) else 1
        what = f"{what} ({CUT_BECAUSE[cause]})"
        yield link_of(first, what, story, weight=weight)


def truncated_ts(found: Finding, story: Story) -> int | None:
    """When the old leader truncated the lost records."""
    mine = [cut for cut in cuts_of(found, story) if cut["broker_id"] == found.old.leader]
    if found.leader == found.old.leader:
        loaded = end_as_loaded(found, story)
        mine = [*mine, loaded] if loaded is not None else mine
    return min((micros(cut["ts"]) for cut in mine), default=None)


def chain_of(found: Finding, story: Story) -> dict[str, Any]:
    """The columns `chain`, `chain_sources` and `truncated_ts` of an incident."""
    links = [
        *shrink_links(found, story),
        *ack_links(found, story),
        *broker_links(found, story),
        *election_links(found, story),
        *storage_links(found, story),
        *cut_links(found, story),
    ]
    told = in_order(links)
    return {
        "chain": [{"seq": link.seq, "ts": link.ts, "what": link.what} for link in told],
        "chain_sources": [link.source for link in told],
        "truncated_ts": truncated_ts(found, story),
    }


def in_order(links: Sequence[Link]) -> list[Link]:
    """The most telling `LINKS` links in replay order, which does not depend on any broker's clock."""
    kept = sorted(links, key=lambda link: -link.weight)[:LINKS]
    return sorted(kept, key=lambda link: (link.place, link.seq))
