"""What would have prevented a loss: settings derived by rule from what happened, each with its reason.

Settings against a particular mechanism are in `remedies`; those that depend on acks, the ISR and the lag are here, as
is the order of all. A setting is named only if the chain shows that it would have mattered, and never one that was in
force already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.losses.causal_chain import shrinks_before
from replay.losses.remedies import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.losses.findings import Finding
    from replay.losses.mechanisms import Mechanism
    from replay.losses.story import Story


def prevention_of(mechanism: Mechanism, found: Finding, story: Story) -> list[Setting]:
    """The settings that would have prevented the loss, the most direct first."""
    out = [
        *mechanism.settings(found, story),
        *against_leader_alone(mechanism, found),
        *against_thin_isr(mechanism, found, story),
        *mechanism.further_settings(found, story),
        *against_lag(found, story),
    ]
    return list({setting.name: setting for setting in reversed(out)}.values())[::-1]


def against_leader_alone(mechanism: Mechanism, found: Finding) -> Iterator[Setting]:
    """acks=all, if records were acknowledged, or may have been, by the leader alone."""
    counts = found.counts
    if counts["acked_all"] is None:
        if mechanism.is_by_leader_alone:
            yield Setting(
                "acks=all", f"if they were acknowledged, most likely by broker {found.old.leader} alone (acks=1)"
            )
        return
    one = counts["acked_one"]
    unsure = counts["acked_one_possible"] or counts["acked_unconfirmed"]
    if one:
        reason = f"{one:,} acknowledged by broker {found.old.leader} alone (acks=1)"
    elif unsure and mechanism.is_by_leader_alone:
        reason = f"if any of them was acknowledged, broker {found.old.leader} alone had it"
    else:
        return
    every = "with acks=all no answer is given before every member of the ISR has it"
    yield Setting("acks=all", f"{reason}: {every}{mechanism.instead_of_acks_all}")


def against_thin_isr(mechanism: Mechanism, found: Finding, story: Story) -> Iterator[Setting]:
    """min.insync.replicas=2, if records were acknowledged while the leader was alone in the ISR and that sufficed."""
    alone = [
        here
        for batch, here in found.ledger.acknowledged(found.lost)
        if batch.answer
        and (batch.answer.acks == -1 or not mechanism.goes_from_any_isr)
        and len(story.isr_at(batch.answer.seq) or (0, 0)) == 1
        # acks=all: it was acknowledged successfully
        and (batch.answer.acks == -1 or story.min_isr_at(batch.answer.seq) == 1)
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


def against_lag(found: Finding, story: Story) -> Iterator[Setting]:
    """A longer replica.lag.time.max.ms, if a follower that was catching up was removed from the ISR before the loss."""
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
