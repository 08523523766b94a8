"""What would have kept lost records: settings derived by rule from what happened, each with its reason.

A setting is named only where the chain shows that it would have mattered: never what was in force already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replay.losses.causal_chain import shrinks_before
from replay.losses.mechanisms import rules_of, unclean_election
from replay.protocol.profile import LATEST, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.losses.findings import Finding
    from replay.losses.story import Story

ELIGIBLE_REPLICAS_SINCE = (4, 0, 0)  # KIP-966
BY_ELIGIBILITY = ("first_eligible", "last_known_leader")
UPGRADES = {
    "hw_truncation": (
        "inter.broker.protocol.version=0.11.0 or later",
        "since then a follower asks its leader where to cut, not its own high watermark (KIP-101, KAFKA-1211)",
    ),
    "fast_failover_divergence": (
        "inter.broker.protocol.version=2.0 or later",
        "since then the answer says which epoch it speaks of, and an unknown one is asked again (KIP-279, KAFKA-6361)",
    ),
    "stale_fetch_accepted": (
        "inter.broker.protocol.version=2.1 or later",
        "since then fetches name their leader epoch, and one of another epoch is refused (KIP-320, KAFKA-7395)",
    ),
    "stale_isr_rejoin": (
        "Kafka 3.7.0 or later",
        "since then no fetch of before a restart is taken for one of after it (KIP-903, KAFKA-15221)",
    ),
    "eligible_leader_regressed": (
        "log.flush.interval.messages=1",
        "the eligible replica had lost the end of its log in a crash that was taken for an orderly stop",
    ),
    "out_of_range_reset": (
        "inter.broker.protocol.version=2.7 or later",
        "since then a follower beyond its leader's end is told where the logs part before it cuts (KAFKA-10554)",
    ),
}


class Setting(NamedTuple):
    """A setting and why it would have kept the records."""

    name: str
    reason: str


def prevention_of(mechanism: str, found: Finding, story: Story) -> list[Setting]:
    """The settings that would have kept the records, the most direct first."""
    out = [
        *against_unclean(mechanism, found, story),
        *against_leader_alone(mechanism, found),
        *against_thin_isr(mechanism, found, story),
        *against_lost_tail(mechanism, found, story),
        *against_lag(found, story),
        *upgrades(mechanism, found, story),
    ]
    return list({setting.name: setting for setting in reversed(out)}.values())[::-1]


def against_unclean(mechanism: str, found: Finding, story: Story) -> Iterator[Setting]:
    """Unclean elections, by setting or by request."""
    if mechanism != "unclean_election":
        return
    row = unclean_election(found, story)
    old = found.old.leader
    if (row["trigger"] or "").startswith("an operator"):
        yield Setting(
            "no kafka-leader-election.sh --election-type unclean",
            f"the election was asked for; broker {old} still had the records",
        )
    else:
        yield Setting(
            "unclean.leader.election.enable=false",
            f"the partition would have waited without a leader until broker {old} was back with them",
        )


def against_leader_alone(mechanism: str, found: Finding) -> Iterator[Setting]:
    """Records that were answered, or may have been, by the leader alone."""
    counts = found.counts
    if counts["acked_all"] is None:
        if mechanism.startswith("acks_one"):
            yield Setting(
                "acks=all", f"if they were acknowledged, most likely by broker {found.old.leader} alone (acks=1)"
            )
        return
    one = counts["acked_one"]
    unsure = counts["acked_one_possible"] or counts["acked_unconfirmed"]
    if one:
        reason = f"{one:,} acknowledged by broker {found.old.leader} alone (acks=1)"
    elif unsure and mechanism.startswith("acks_one"):
        reason = f"if any of them was acknowledged, broker {found.old.leader} alone had it"
    else:
        return
    wait = ""
    if mechanism == "acks_one_planned_move":
        wait = "; or move leadership only once the next leader has no lag"
    yield Setting("acks=all", f"{reason}: with acks=all no answer is given before every member of the ISR has it{wait}")


def against_thin_isr(mechanism: str, found: Finding, story: Story) -> Iterator[Setting]:
    """Records answered while the leader was alone in the ISR and that was enough."""
    alone = [
        here
        for batch, here in found.ledger.acknowledged(found.lost)
        if batch.answer
        and (batch.answer.acks == -1 or mechanism not in ("acks_one_planned_move", "storage_failure"))
        and len(story.isr_at(batch.answer.seq) or (0, 0)) == 1
        and (batch.answer.acks == -1 or story.min_isr_at(batch.answer.seq) == 1)  # acks=all: it was answered well
    ]
    unknown = found.promised and (found.counts["acked_all"] is None or bool(found.counts["acked_possible"]))
    thin = len(story.isr_at(found.old.seq - 1) or (0, 0)) == 1 and story.min_isr_at(found.old.seq) == 1
    if not alone and not (unknown and thin):
        return
    records = sum(alone)
    told = f"{records:,} were" if alone else "they were"
    why = f"{told} written while broker {found.old.leader} was alone in the ISR, which min.insync.replicas=1 allows"
    both = "" if not found.counts["acked_one"] else " (with acks=all)"
    yield Setting("min.insync.replicas=2", f"{why}: they would have been refused{both}, not acknowledged and lost")


def against_lost_tail(mechanism: str, found: Finding, story: Story) -> Iterator[Setting]:
    """A last replica that lost the end of its log."""
    if mechanism != "last_replica_standing":
        return
    version = parse_version(story.spoken_at(found.old.leader, found.old.seq)[0]) or LATEST
    on = any(row["rule"] in BY_ELIGIBILITY or (row["elr"] or ()) for row in story.decisions)
    if story.is_kraft and not on:
        upgrade = "" if version >= ELIGIBLE_REPLICAS_SINCE else " (Kafka 4.0 or later)"
        yield Setting(
            f"eligible.leader.replicas.version=1{upgrade}",
            "with min.insync.replicas=2 the controller remembers who still has everything committed, and does not "
            "elect a replica that went down uncleanly (KIP-966)",
        )
    yield Setting(
        "log.flush.interval.messages=1",
        f"what broker {found.old.leader} lost had not been flushed to disk; flushing each batch costs throughput",
    )


def against_lag(found: Finding, story: Story) -> Iterator[Setting]:
    """A follower that was put out of the ISR while it was catching up, where that opened the door."""
    if not found.promised:
        return
    for row in shrinks_before(found, story):
        for mover in row["movers"] or ():
            late = mover["ms_since_caught_up"]
            if mover["reason"] == "fetching_but_behind" and not mover["joined"] and (late or 0) >= story.lag_ms > 0:
                yield Setting(
                    f"replica.lag.time.max.ms above {story.lag_ms}",
                    f"broker {mover['broker_id']} was fetching when put out of the ISR, {late / 1000:.1f} s behind",
                )
                return


def upgrades(mechanism: str, found: Finding, story: Story) -> Iterator[Setting]:
    """What a later version or protocol does not do any more."""
    if mechanism.startswith("acks_one") and found.counts["acked_all"] is None:
        if rules_of(found, story).truncate_to_hw:
            name, reason = UPGRADES["hw_truncation"]
            yield Setting(name, f"broker {found.leader} may have had them and cut them: {reason}")
        return
    if mechanism not in UPGRADES:
        return
    if mechanism == "out_of_range_reset" and rules_of(found, story).truncate_on_fetch:
        return
    yield Setting(*UPGRADES[mechanism])
