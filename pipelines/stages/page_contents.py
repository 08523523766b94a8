"""What the incident page says, in the words of the report: the verdict in two sentences, the numbers, the incidents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipelines.page.contents import Badge, Contents, Count, Figure, Incident, Link, Query, Remedy
from pipelines.page.lanes import times
from pipelines.recording.quoting import place_of as quoted_place
from pipelines.spark.session import VERSION
from pipelines.stages.report_text import (
    EVIDENCE_WORDS,
    SEVERITY_WORDS,
    clock_of,
    extent,
    leader_of,
    notes,
    place_of,
    time_of,
)
from pipelines.stages.verdict import acknowledged
from replay.losses import mechanisms
from replay.losses.explanations import would_have_kept
from replay.losses.sentences import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pipelines.page.contents import Part
    from pipelines.page.picture import Picture

    Row = Mapping[str, Any]
    Findings = Mapping[str, Any]

MOST_TOLD: Final = 12  # incidents that have a section of their own: the worst
MOST_PICTURED: Final = 6  # of them with pictures: each takes a fifth of a second
MOST_WAYS: Final = 3  # of keeping records that the second sentence names
MOST_ROWS: Final = 1000  # incidents in the table of the first screen
_COUNTS: Final = (
    ("acknowledged with acks=all", "acked_all", "acked_all_possible"),
    ("acknowledged with acks=1", "acked_one", "acked_one_possible"),
    ("answered to clients that had given up", "acked_unconfirmed", None),
    ("answered with an error", "failed_appended", None),
    ("never acknowledged", "unacked", None),
    ("committed (below the high watermark)", "committed", None),
    ("handed to consumers", "consumed", None),
    ("of aborted transactions", "aborted", None),
)
_ONLY_IF_ANY: Final = frozenset({"acked_unconfirmed", "failed_appended", "aborted"})


def places_quoted(findings: Findings) -> Iterable[tuple[str, int]]:
    """Yield the places of the lines that the page quotes."""
    for incident in findings["incidents"][:MOST_TOLD]:
        for source in incident["chain_sources"] or ():
            place = quoted_place(source) if source else None
            if place is not None:
                yield place


def contents_of(
    findings: Findings,
    parts: Sequence[Part],
    pictures_of: Callable[[Row], Sequence[Picture]],
    quotes: Mapping[tuple[str, int], str] | None,
    docs: str | None,
) -> Contents:
    """Return what stands on the page; `quotes`: lines by place, None: the recording's files are not at hand."""
    incidents = findings["incidents"]
    rows = [_row(incident) for incident in incidents[MOST_TOLD:MOST_ROWS]]
    told = [
        _told(incident, pictures_of(incident) if at < MOST_PICTURED else (), quotes or {})
        for at, incident in enumerate(incidents[:MOST_TOLD])
    ]
    left_out = []
    if len(incidents) > MOST_PICTURED:
        left_out.append(f"Pictures are drawn of the worst {MOST_PICTURED} of {len(incidents):,} incidents.")
    if len(incidents) > MOST_TOLD:
        left_out.append(
            f"The worst {MOST_TOLD} of {len(incidents):,} incidents have a section. All, with their chains, are "
            "in the table data_loss_incidents and in the Markdown beside this page."
        )
    if len(incidents) > MOST_ROWS:
        left_out.append(f"The table of incidents shows the worst {MOST_ROWS:,}.")
    if told and quotes is None:
        left_out.append("Source lines are named, not quoted: this page was made without the recording's files at hand.")
    return Contents(
        recording_id=findings["recording_id"],
        verdict=findings["verdict"],
        headline=findings["headline"],
        second=second_sentence(findings),
        figures=figures_of(findings),
        notes=notes(findings),
        incidents=[*told, *rows],
        parts=parts,
        warehouse=findings["look_at"]["warehouse"],
        queries=[Query(one["question"], one["tool"], one["text"]) for one in findings["look_at"]["queries"]],
        made_by=f"Made by Tidemark {VERSION} from the recording {findings['recording_id']}.",
        left_out=left_out,
        docs=docs,
    )


def second_sentence(findings: Findings) -> str:
    """Return what follows the headline: how it happened and what would have kept the records, or what it rests on."""
    incidents = findings["incidents"]
    if not incidents:
        return _basis(findings)
    how: dict[str, int] = {}
    for incident in incidents:
        how[incident["mechanism"]] = how.get(incident["mechanism"], 0) + 1
    worst = sorted(how, key=lambda name: (-how[name], name))
    ways = [
        mechanisms.WORDS[name] if len(how) == 1 else f"{mechanisms.WORDS[name]} ({times(how[name])})" for name in worst
    ]
    said = f"{_capital(_joined(ways, 'and'))}."
    kept = [tuple(incident["prevention"] or ()) for incident in incidents]
    them = "it" if len(incidents) == 1 and incidents[0]["records"] == 1 else "them"
    if not any(kept):
        return said
    if len(set(kept)) == 1:
        return f"{said} {would_have_kept(list(kept[0]), them)}"
    ways_out = dict.fromkeys(kept)
    if len(ways_out) <= MOST_WAYS and all(kept):
        each = [f"{_settings(one, them)} ({counted(kept.count(one), 'incident')})" for one in ways_out]
        return f"{said} Would have kept {them}: {'; '.join(each)}."
    firsts = list(dict.fromkeys(one[0] for one in kept if one))
    if len(firsts) == 1 and all(kept):
        return f"{said} The most direct setting that would have kept {them} is {firsts[0]}."
    return f"{said} What would have kept {them} differs from one to the next; each names it below."


def _settings(names: Sequence[str], them: str) -> str:
    return would_have_kept(list(names), them).removeprefix(f"Would have kept {them}: ").removesuffix(".")


def _basis(findings: Findings) -> str:
    brokers = [row for row in findings["coverage"] if row["broker_id"] is not None]
    times = [row[name] for row in findings["coverage"] for name in ("first_ts", "last_ts") if row[name] is not None]
    if not brokers or not times:
        return ""
    holes = findings["not_covered"]
    gaps = f"with {counted(len(holes), 'known gap')}" if holes else "without a known gap"
    whose = counted(len(brokers), "broker")
    return f"This rests on logs of {whose}, from {time_of(min(times))} to {time_of(max(times))}, {gaps}."


def figures_of(findings: Findings) -> list[Figure]:
    """Return the numbers of the first screen."""
    incidents = findings["incidents"]
    sure, possible = findings["acknowledged_lost"], findings["acknowledged_possible"]
    unknown = findings["incidents_with_unknown_acknowledgements"]
    beside = [f"up to {possible:,} more possible"] if possible else []
    beside += [f"of {counted(unknown, 'incident')} not known"] if unknown else []
    figures = [
        Figure(
            "Acknowledged records lost",
            "unknown" if sure is None or (not sure and findings["verdict"] == "unknown") else f"{sure:,}",
            ", ".join(beside) or None,
        ),
        Figure("Incidents", f"{len(incidents):,}", _by_severity(incidents)),
        Figure("Partitions hit", f"{findings['partitions_with_incidents']:,}"),
    ]
    if incidents:
        figures += [_summed("Committed, and gone", "committed", incidents), _summed("Read by consumers, and gone",
                    "consumed", incidents)]  # fmt: skip
        times = [one["lost_ts"] for one in incidents if one["lost_ts"] is not None]
        if times:
            last = f", last at {max(times):%H:%M:%S}" if max(times) != min(times) else ""
            figures.append(Figure("First loss (UTC)", f"{min(times):%H:%M:%S}", f"{min(times):%Y-%m-%d}{last}"))
    checked = findings["expectations"]["checked"]
    compared = sum(check["compared"] for check in findings["conformance"])
    if compared:
        matched = sum(check["matched"] for check in findings["conformance"])
        # Truncated, not rounded: only if all are equal it is 100 %.
        share = matched * 10_000 // compared / 100
        figures.append(Figure("Equal to what brokers report", f"{share:g} %", f"of {compared:,} compared"))
    if checked is not None and findings["expectations"]["failed"]:
        figures.append(Figure("Expectations broken", f"{len(findings['expectations']['failed']):,}", f"of {checked:,}"))
    return figures


def _by_severity(incidents: Sequence[Row]) -> str | None:
    counts: dict[str, int] = {}
    for incident in incidents:
        counts[incident["severity"]] = counts.get(incident["severity"], 0) + 1
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or None


def _summed(label: str, column: str, incidents: Sequence[Row]) -> Figure:
    known = [incident[column] for incident in incidents if incident[column] is not None]
    if not known:
        return Figure(label, "unknown")
    missing = len(incidents) - len(known)
    beside = f"of {counted(missing, 'incident')} not known" if missing else None
    if beside is None and not all(_is_whole(incident, column) for incident in incidents):
        beside = "at least"
    return Figure(label, f"{sum(known):,}", beside)


def _is_whole(incident: Row, column: str) -> bool:
    """Whether there cannot be more: every record of a loss whose ends are known is counted."""
    are_ends_known = incident["last_offset"] is not None and incident["evidence"] in {"observed", "derived"}
    return are_ends_known and incident[column] == incident["records"]


def _row(incident: Row) -> Incident:
    return Incident(**_in_table(incident))


def _in_table(incident: Row) -> dict[str, Any]:
    mechanism = incident["mechanism"]
    return {
        "key": f"incident-{incident['incident_id']}",
        "place": place_of(incident),
        "extent": extent(incident),
        "acknowledged": _acknowledged(incident),
        "mechanism": Badge(mechanism, mechanisms.WORDS[mechanism]),
        "severity": Badge(incident["severity"], SEVERITY_WORDS[incident["severity"]]),
        "evidence": Badge(incident["evidence"], EVIDENCE_WORDS[incident["evidence"]]),
        "when": "unknown" if incident["lost_ts"] is None else f"{incident['lost_ts']:%Y-%m-%d %H:%M:%S}",
    }


def _acknowledged(incident: Row) -> str:
    sure, possible = acknowledged(incident)
    if sure is None:
        return "unknown"
    parts = [
        f"{incident[column]:,} ({name})"
        for name, column in (("acks=all", "acked_all"), ("acks=1", "acked_one"))
        if incident[column]
    ]
    said = ", ".join(parts) or "none"
    if possible:
        said += f"; up to {possible:,} more"
    if incident["acked_unconfirmed"]:
        said += f"; {incident['acked_unconfirmed']:,} to clients that had given up"
    return said


def _told(incident: Row, pictures: Sequence[Picture], quotes: Mapping[tuple[str, int], str]) -> Incident:
    details = [
        ("Leader", f"{leader_of(incident, 'old')}, then {leader_of(incident, 'new')}"),
        ("Lost", time_of(incident["lost_ts"])),
        ("Cut", time_of(incident["truncated_ts"])),
        ("Acknowledged", _between(incident)),
        ("Mechanism", f"{mechanisms.WORDS[incident['mechanism']]} [{incident['mechanism']}]"),
        *((who.capitalize(), listed(incident[who])) for who in ("producers", "consumers") if incident[who]),
        ("Incident", incident["incident_id"]),
    ]
    return Incident(
        **_in_table(incident),
        explanation=incident["explanation"],
        counts=_counts(incident),
        details=[(name, value) for name, value in details if value],
        chain=_chain(incident, quotes),
        remedies=_remedies(incident),
        pictures=pictures,
        is_told=True,
    )


def _counts(incident: Row) -> list[Count]:
    records = None if incident["records"] is None else f"{incident['records']:,}"
    counts = [Count("gone, in all", records)]
    for label, column, more in _COUNTS:
        sure = incident[column]
        possible = None if more is None else incident[more]
        if column in _ONLY_IF_ANY and not sure:
            continue
        shown = None if possible is None or sure is None else f"{possible:,}" if possible else ""
        counts.append(Count(label, None if sure is None else f"{sure:,}", shown))
    return counts


def _chain(incident: Row, quotes: Mapping[tuple[str, int], str]) -> list[Link]:
    links, sources = incident["chain"] or (), incident["chain_sources"] or ()
    padded = [*sources, *[None] * (len(links) - len(sources))]
    chain = []
    for link, source in zip(links, padded, strict=True):
        place = quoted_place(source) if source else None
        chain.append(Link(clock_of(link["ts"]), link["what"], source, quotes.get(place) if place else None))
    return chain


def _remedies(incident: Row) -> list[Remedy]:
    settings, reasons = incident["prevention"] or (), incident["prevention_reasons"] or ()
    padded = [*reasons, *[""] * (len(settings) - len(reasons))]
    return [Remedy(setting, why) for setting, why in zip(settings, padded, strict=True)]


def _between(incident: Row) -> str:
    first, last = incident["first_ack_ts"], incident["last_ack_ts"]
    if first is None or last is None:
        return ""
    return f"{clock_of(first)} to {clock_of(last)}" if first != last else clock_of(first)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _joined(names: Sequence[str], word: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
