"""The headline of a report and its basis: it says that nothing was lost only if a loss would have been visible."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pipelines.intake.releases import too_old
from replay.losses.sentences import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# At least one of these kinds of facts is needed: they say who led, what followers had, or that a log was cut.
TELLING: Final = frozenset(
    {
        "epoch_end_offset", "fetch", "isr_request", "isr_update", "leader_and_isr", "partition_change", "role_change",
        "truncation",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """What the logs of a recording could show."""

    kinds: frozenset[str] = frozenset()  # kinds of facts
    events: int = 0  # replication events in order; only whether there are any
    leaders: frozenset[int] = frozenset()
    with_requests: frozenset[int] = frozenset()  # brokers whose request log was read
    versions: Sequence[str] = field(default=())  # stated by brokers, or by the manifest
    complete: bool = True  # no log is known to have holes


def acknowledged(incident: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the acknowledged records lost, certainly and possibly beyond that; None: acknowledgements are unknown."""
    if incident["acked_all"] is None and incident["acked_one"] is None:
        return None, None
    sure = (incident["acked_all"] or 0) + (incident["acked_one"] or 0)
    return sure, incident["acked_possible"] or 0


def verdict(incidents: Sequence[Mapping[str, Any]], seen: Seen) -> dict[str, Any]:
    """Return the headline, the numbers it is based on, and the reasons if nothing can be told."""
    known = [acknowledged(incident) for incident in incidents]
    sure = sum(count for count, _ in known if count is not None)
    possible = sum(count for _, count in known if count is not None)
    unknown = sum(count is None for count, _ in known)
    losing = {_place(incident) for incident in incidents}
    hit = {_place(incident) for incident, (count, _) in zip(incidents, known, strict=True) if count}
    reasons = cannot_tell(seen)
    if sure:
        word, headline = "lost", f"{counted(sure, 'acknowledged record')} lost in {counted(len(hit), 'partition')}"
    elif unknown:
        word = "unknown"
        headline = f"Cannot tell how much was lost in {counted(len(losing), 'partition')}: acknowledgements unknown"
    elif possible:
        word = "possible"
        headline = (
            f"Up to {counted(possible, 'acknowledged record')} may be lost in {counted(len(losing), 'partition')}"
        )
    elif reasons:
        word, headline = "unknown", f"Cannot tell: {reasons[0]}"
    else:
        word, headline = _nothing_acknowledged(incidents, len(losing), seen)
    return {
        "verdict": word,
        "headline": headline,
        "cannot_tell": reasons,
        "acknowledged_lost": None if unknown and not sure else sure,
        "acknowledged_possible": None if unknown and not sure else possible,
        "incidents_with_unknown_acknowledgements": unknown,
        "partitions_with_incidents": len(losing),
    }


def _place(incident: Mapping[str, Any]) -> tuple[Any, ...]:
    return incident["topic"], incident["incarnation"], incident["partition"]


def _nothing_acknowledged(incidents: Sequence[Mapping[str, Any]], losing: int, seen: Seen) -> tuple[str, str]:
    """Return verdict and headline if acknowledgements are known and none of the acknowledged records was lost."""
    told = "" if seen.complete else " as far as the logs tell"
    unconfirmed = sum(incident["acked_unconfirmed"] or 0 for incident in incidents)
    if unconfirmed:
        return "unacknowledged", (
            f"Nothing surely acknowledged was lost{told}; {counted(unconfirmed, 'lost record')} answered to clients "
            f"that had given up, in {counted(losing, 'partition')}"
        )
    if incidents:
        where = counted(losing, "partition")
        return "unacknowledged", f"Nothing acknowledged was lost{told}, but committed or consumed records in {where}"
    return "nothing_lost", f"Nothing acknowledged was lost{told}"


def cannot_tell(seen: Seen) -> list[str]:
    """Return why the logs could not have shown a loss of acknowledged records, most serious reason first."""
    reasons = []
    if not seen.events:
        reasons.append("the recording holds nothing about replication")
    elif not seen.kinds & TELLING:
        reasons.append("no line that tells of leaders, followers or cut logs was understood")
    old = too_old(seen.versions)
    if old:
        reasons.append(old.removesuffix("."))
    if not seen.with_requests:
        reasons.append("no request log was read, so what was acknowledged is unknown")
    elif seen.leaders and not seen.leaders & seen.with_requests:
        reasons.append("no request log of a broker that led was read, so what was acknowledged is unknown")
    return reasons
