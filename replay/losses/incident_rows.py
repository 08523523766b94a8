"""Rows of `data_loss_incidents`: what was lost and how, what led to it, and what would have prevented it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replay.evidence.tenures import micros
from replay.losses.causal_chain import chain_of
from replay.losses.explanations import explanation_of, what_went
from replay.losses.mechanisms import OTHER, mechanism_of, severity_of
from replay.losses.prevention import prevention_of
from replay.order.event_ids import digest

if TYPE_CHECKING:
    from replay.losses.findings import Finding
    from replay.losses.mechanisms import Mechanism
    from replay.losses.story import Story


def incident(key: dict[str, Any], found: Finding, story: Story) -> dict[str, Any]:
    """One losing event as a row of `data_loss_incidents`."""
    old, decision, lost = found.old, found.decision, found.lost
    found.believe(story.stated_hw(old.leader, found.heir.seq))
    where = f"{key['topic']}-{key['partition']}"
    is_told = decision["leader_id"] is not None
    mechanism = mechanism_of(found, story) if is_told else OTHER
    how = told_by_events(mechanism, where, found, story) if is_told else shown_by_dump(where, found, story)
    sure = found.stated and found.ledger.is_sure(lost) and mechanism.is_certain
    ident = (key.get("recording_id"), key["topic"], key["incarnation"], key["partition"])
    return {
        **key,
        "incident_id": digest(*ident, lost[0].epoch, decision["leader_epoch"]),
        "mechanism": mechanism.name,
        "severity": severity_of(mechanism, found.owed, doubted=found.doubted),
        "first_offset": found.first,
        "last_offset": found.end - 1,
        "ranges": [{"leader_epoch": s.epoch, "first_offset": s.first, "last_offset": s.end - 1} for s in lost],
        **found.counts,
        "old_leader_id": old.leader,
        "old_leader_epoch": old.epoch,
        "new_leader_epoch": decision["leader_epoch"],
        "losing_broker_id": old.leader,
        **how,
        "evidence": "derived" if sure else "bounded",
    }


def told_by_events(mechanism: Mechanism, where: str, found: Finding, story: Story) -> dict[str, Any]:
    """Columns for a loss that a new leader caused, as events show it."""
    settings = prevention_of(mechanism, found, story)
    return {
        "new_leader_id": found.leader,
        "lost_ts": micros(found.decision["ts"]),
        **chain_of(found, story),
        "prevention": [setting.name for setting in settings],
        "prevention_reasons": [setting.reason for setting in settings],
        "explanation": explanation_of(mechanism, where, found, story, settings),
    }


def shown_by_dump(where: str, found: Finding, story: Story) -> dict[str, Any]:
    """Columns for a loss that only the dump of the last leader's log shows: how, when and through whom is unknown."""
    return {
        "new_leader_id": None,
        "lost_ts": None,
        "chain": [],
        "chain_sources": [],
        "truncated_ts": None,
        "prevention": [],
        "prevention_reasons": [],
        "explanation": f"{what_went(found, where, story)} The log of broker {found.old.leader}, as dumped at the end, "
        "holds other records there, and no line tells how.",
    }
