"""Each losing event as a row of `data_loss_incidents`: what was lost, how, what led to it, what would have kept it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replay.explanations import explanation_of
from replay.identity import digest
from replay.loss_chains import chain_of
from replay.mechanisms import UNSURE, mechanism_of, severity_of
from replay.prevention import prevention_of
from replay.spine import micros

if TYPE_CHECKING:
    from replay.findings import Finding
    from replay.story import Story


def incident(key: dict[str, Any], found: Finding, story: Story) -> dict[str, Any]:
    """One losing event as a row of `data_loss_incidents`."""
    old, decision, lost = found.old, found.decision, found.lost
    found.believe(story.stated_hw(old.leader, found.heir.seq))
    mechanism = mechanism_of(found, story)
    settings = prevention_of(mechanism, found, story)
    sure = found.stated and found.ledger.is_sure(lost) and mechanism not in UNSURE
    ident = (key.get("recording_id"), key["topic"], key["incarnation"], key["partition"])
    return {
        **key,
        "incident_id": digest(*ident, lost[0].epoch, decision["leader_epoch"]),
        "mechanism": mechanism,
        "severity": severity_of(mechanism, found.counts),
        "first_offset": found.first,
        "last_offset": found.end - 1,
        "ranges": [{"leader_epoch": s.epoch, "first_offset": s.first, "last_offset": s.end - 1} for s in lost],
        **found.counts,
        "old_leader_id": old.leader,
        "old_leader_epoch": old.epoch,
        "new_leader_id": found.leader,
        "new_leader_epoch": decision["leader_epoch"],
        "losing_broker_id": old.leader,
        "lost_ts": micros(decision["ts"]),
        **chain_of(found, story),
        "prevention": [setting.name for setting in settings],
        "prevention_reasons": [setting.reason for setting in settings],
        "explanation": explanation_of(mechanism, f"{key['topic']}-{key['partition']}", found, story, settings),
        "evidence": "derived" if sure else "bounded",
    }
