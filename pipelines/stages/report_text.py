"""The report in words, as Markdown for the ticket, and one incident of it for a terminal.

Names from logs are never trusted: control characters cannot reach a terminal, nor Markdown or HTML a page.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any, Final

from pipelines.expectations.found_rows import in_words
from pipelines.expectations.history import history_lines
from replay.losses import mechanisms
from replay.losses.sentences import counted, listed
from schemas.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

SHOWN_LINES: Final = 10

SEVERITY_WORDS: Final = {
    "S0": "committed records lost silently",
    "S1": "committed records lost, as the configuration permits",
    "S2": "only records acknowledged by the leader alone (acks=1)",
    "S3": "visible records gone, none acknowledged",
}
EVIDENCE_WORDS: Final = {
    "observed": "stated by the logs",
    "derived": "the logs leave no other explanation",
    "bounded": "at least this much; where exactly it begins or ends the logs leave open",
    "unknown": "the logs cannot tell",
}
STATE_WORDS: Final = {
    "leaderless": "without a leader",
    "isr_one": "one of several replicas in the ISR",
    "under_min_isr": "ISR smaller than min.insync.replicas",
    "acknowledged_by_one": "acks=all acknowledged by one replica",
}
EFFECT_WORDS: Final = {
    "read_then_lost": "read records that were lost later",
    "out_of_range": "was answered that its position is out of range",
    "truncation_detected": "found its position cut away",
    "read_from_follower": "read from a follower",
}
ENDS: Final = {
    "expanded": "another replica joined the ISR",
    "elected": "a leader was elected",
    "leader_lost": "the leader was gone",
    "leader_changed": "another broker led",
    "min_isr_lowered": "min.insync.replicas was lowered",
    "topic_deleted": "the topic was deleted",
    "other": "the controller decided anew",
}

_MARKDOWN: Final = re.compile(r"([\\`*_\[\]|~])")
# What trackers make links and notifications of although it is no markup: addresses, @names, #numbers.
_ALIVE: Final = re.compile(r"(?:https?|ftp):(?=//)|www(?=\.)|[@#](?=\w)", re.IGNORECASE)


def markdown_text(text: object) -> str:
    """Escape text from a log so that neither Markdown nor HTML takes it for markup, and nobody is notified by it.

    An empty comment is what keeps trackers from linking: they look for names in the page that Markdown has become.
    """
    escaped = _MARKDOWN.sub(r"\\\1", html.escape(printable(text), quote=False))
    return _ALIVE.sub(r"\g<0><!-- -->", escaped)


def incident_text(incident: Mapping[str, Any]) -> list[str]:
    """Return one incident for a terminal: its title, then indented the details, what led to it, what prevents it."""
    title, *details = _incident_lines(incident)
    lines = [printable(title), *(f"  {printable(detail)}" for detail in details)]
    for heading, story in _story_lines(incident):
        lines += [f"  {heading}:", *(f"    {printable(line)}" for line in story)]
    return lines


def markdown(findings: dict[str, Any]) -> str:
    """Return the report as Markdown, with all incidents."""
    name = markdown_text(findings["recording_id"])
    lines = [f"# What {name} lost", "", f"**{markdown_text(findings['headline'])}**", ""]
    lines += [f"{markdown_text(note)}\n" for note in notes(findings)]
    for incident in findings["incidents"]:
        title, *details = _incident_lines(incident)
        lines += [f"## {markdown_text(title)}", "", *(f"- {markdown_text(detail)}" for detail in details), ""]
        for heading, story in _story_lines(incident):
            numbered = (f"{n}. {markdown_text(line)}" for n, line in enumerate(story, start=1))
            lines += [f"{heading[0].upper()}{heading[1:]}:", "", *numbered, ""]
    for title, section in _sections(findings):
        lines += [f"## {title}", "", *(f"- {markdown_text(line)}" for line in section), ""]
    lines += ["## Where to look", "", f"Tables under {markdown_text(findings['look_at']['warehouse'])}", ""]
    for query in findings["look_at"]["queries"]:
        language = "sql" if query["tool"] == "spark-sql" else query["tool"]
        fence = "`" * (3 + max((len(run) for run in re.findall("`+", query["text"])), default=0))
        lines += [f"{query['question']} ({query['tool']})", "", f"{fence}{language}", query["text"], fence, ""]
    return "\n".join(lines)


def notes(findings: Mapping[str, Any]) -> list[str]:
    """Return what the headline cannot say in one sentence."""
    notes = list(findings.get("attribution", ()))
    others = [reason for reason in findings.get("cannot_tell", ()) if reason not in findings["headline"]]
    notes += [f"{reason[0].upper()}{reason[1:]}." for reason in others]
    notes += [findings["too_new"]] if findings.get("too_new") else []
    if findings["verdict"] == "lost" and findings["acknowledged_possible"]:
        notes.append(f"At most {findings['acknowledged_possible']:,} more cannot be ruled out.")
    unknown = findings["incidents_with_unknown_acknowledgements"]
    if unknown and findings["verdict"] == "lost":
        notes.append(f"Of {unknown} more losses the acknowledgements are unknown.")
    return notes


def _incident_lines(incident: Mapping[str, Any]) -> list[str]:
    """Return title and details of one incident as plain text that must still be escaped."""
    lines = [
        f"{place_of(incident)}: {extent(incident)}",
        incident["explanation"],
        f"acknowledged: {acks_of(incident)}",
        f"how: {mechanisms.WORDS[incident['mechanism']]} [{incident['mechanism']}]",
        f"severity: {incident['severity']}, {SEVERITY_WORDS[incident['severity']]}",
        f"how sure: {EVIDENCE_WORDS[incident['evidence']]} [{incident['evidence']}]",
        f"when: lost {time_of(incident['lost_ts'])}, cut {time_of(incident['truncated_ts'])}",
        f"leader: {leader_of(incident, 'old')} -> {leader_of(incident, 'new')}",
    ]
    return lines + [f"{who}: {listed(incident[who])}" for who in ("producers", "consumers") if incident[who]]


def extent(incident: Mapping[str, Any]) -> str:
    """Return what was lost of a partition."""
    first, last = incident["first_offset"], incident["last_offset"]
    offsets = f"offset {last}" if last == first else f"offsets {first} to {'the end (open)' if last is None else last}"
    records = "an unknown number of records" if incident["records"] is None else counted(incident["records"])
    return f"{offsets}, {records}"


def _prevention_lines(incident: Mapping[str, Any]) -> list[str]:
    """Return each setting that would have kept the records, and why."""
    settings, reasons = incident["prevention"] or [], incident["prevention_reasons"] or []
    reasons = [*reasons, *[""] * (len(settings) - len(reasons))]
    return [f"{name}{f': {why}' if why else ''}" for name, why in zip(settings, reasons, strict=True)]


def _link_lines(incident: Mapping[str, Any]) -> list[str]:
    """Return each link of the causal chain, with its time and the line that states it."""
    links, sources = incident["chain"] or [], incident["chain_sources"] or []
    sources = [*sources, *[None] * (len(links) - len(sources))]
    return [
        f"{clock_of(link['ts'])} {link['what']}{f'  [{source}]' if source else ''}"
        for link, source in zip(links, sources, strict=True)
    ]


def clock_of(value: datetime | None) -> str:
    """Return the time of a day."""
    return "at an unknown time" if value is None else f"{value:%H:%M:%S}.{value.microsecond // 1000:03d}"


def acks_of(incident: Mapping[str, Any]) -> str:
    """Return counts by acks: the certain minimum and how many more are possible; unknown if nothing tells."""
    parts = []
    for name, column in (("acks=all", "acked_all"), ("acks=1", "acked_one")):
        sure, possible = incident[column], incident[f"{column}_possible"]
        more = f" (up to {possible:,} more)" if possible else ""
        parts.append(f"{name} {'unknown' if sure is None else f'{sure:,}'}{more}")
    if incident["acked_unconfirmed"]:
        parts.append(f"answered to clients that had given up {incident['acked_unconfirmed']:,}")
    if incident["failed_appended"]:
        parts.append(f"answered with an error {incident['failed_appended']:,}")
    if incident["aborted"]:
        parts.append(f"of aborted transactions {incident['aborted']:,}")
    for name in ("unacked", "committed", "consumed"):
        value = incident[name]
        parts.append(f"{name} {'unknown' if value is None else f'{value:,}'}")
    return ", ".join(parts)


def leader_of(incident: Mapping[str, Any], which: str) -> str:
    """Return the `old` or the `new` leader of an incident, and its epoch."""
    broker, epoch = incident[f"{which}_leader_id"], incident[f"{which}_leader_epoch"]
    named = "unknown" if broker is None else f"broker {broker}"
    return named if epoch is None else f"{named} (epoch {epoch})"


def time_of(value: datetime | None) -> str:
    """Return a time with its day."""
    return "at an unknown time" if value is None else f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d} UTC"


def _story_lines(incident: Mapping[str, Any]) -> Iterable[tuple[str, list[str]]]:
    """Return title and lines of what follows an incident's details, if there is any."""
    for title, lines in (
        ("what led to it (UTC)", _link_lines(incident)),
        ("would have kept them", _prevention_lines(incident)),
    ):
        if lines:
            yield title, lines


def _sections(findings: dict[str, Any]) -> Iterable[tuple[str, list[str]]]:
    """Return title and lines of each part after the incidents that has something to say."""
    retold = [retold_line(one) for name in ("withdrawn", "revised") for one in findings.get(name, ())]
    if retold:
        more = [f"and {len(retold) - SHOWN_LINES} more in incident_reports"] if len(retold) > SHOWN_LINES else []
        yield "Withdrawn or revised: what earlier runs had said, and what holds now", [*retold[:SHOWN_LINES], *more]
    for title, key, line in CONSEQUENCES:
        if findings[key]:
            yield title, [line(row) for row in findings[key]]
    yield "Tables", [", ".join(f"{name} {rows:,}" for name, rows in findings["tables"].items())]
    yield (
        "Computed against reported (worst first)",
        [check_line(check) for check in findings["conformance"]] or ["nothing to compare with"],
    )
    rejected = findings["rejected_lines"]
    if rejected["lines"]:
        reasons = [
            f"{row['lines']:,} x {row['reason']}, first {row['first']['source_file']}:{row['first']['source_line']}"
            for row in rejected["reasons"]
        ]
        yield f"Rejected lines: {rejected['lines']:,}", reasons
    yield _expectation_section(findings["expectations"])
    history = history_lines(findings.get("quality_history") or ())
    if history:
        yield "Quality from run to run (newest first)", history
    holes = findings["not_covered"]
    if holes:
        more = [f"and {len(holes) - SHOWN_LINES} more in coverage"] if len(holes) > SHOWN_LINES else []
        yield "Not covered: verdicts that rest on these logs are lower bounds", [*holes[:SHOWN_LINES], *more]
    yield "What was recorded", [_coverage_line(row) for row in findings["coverage"]] or ["nothing"]


def place_of(row: Mapping[str, Any]) -> str:
    """Return a row's partition, with its incarnation unless that is the first."""
    return f"{row['topic']}-{row['partition']}" + (f" (incarnation {row['incarnation']})" if row["incarnation"] else "")


def retold_line(one: Mapping[str, Any]) -> str:
    """Return what had been said of an incident, and what holds now."""
    before, now = one["before"], one["now"]
    said = "withdrawn" if before["status"] == "withdrawn" else _said(before)
    if now is None:
        holds = "withdrawn"
    elif said == _said(now):
        holds = "the same, but other details of it have changed"
    else:
        holds = _said(now)
    return f"{place_of(one)}, first reported {time_of(one['first_reported'])}: before: {said}; now: {holds}"


def _said(row: Mapping[str, Any]) -> str:
    acks = (("acks=all", row["acked_all"]), ("acks=1", row["acked_one"]))
    known = ", ".join(f"{name} {'unknown' if count is None else f'{count:,}'}" for name, count in acks)
    return f"{extent(row)} (acknowledged: {known}), {row['mechanism']}, {row['severity']}"


def _difference_line(row: dict[str, Any]) -> str:
    what = f"leader epochs {row['epoch_a']} and {row['epoch_b']}" if row["differs"] == "epoch" else "other batches"
    span = f"offsets {row['first_offset']} to {row['last_offset']}"
    return f"{place_of(row)}: {span} on brokers {row['broker_a']} and {row['broker_b']}: {what} ({row['evidence']})"


def _nearly_line(row: dict[str, Any]) -> str:
    how_long = "to the end of the recording" if row["seconds"] is None else f"for {row['seconds']:,.1f} s"
    acks = ", ".join(
        f"acks={name} {'unknown' if row[column] is None else f'{row[column]:,}'}"
        for name, column in (("all", "acked_all"), ("1", "acked_one"))
    )
    only = f"up to {counted(row['records_at_risk'])} on broker {row['leader_id']} only"
    ended = "" if row["ended_by"] is None else f"; then: {ENDS[row['ended_by']]}"
    return f"{place_of(row)}: {how_long} from {time_of(row['start_ts'])} {only} (acknowledged meanwhile: {acks}){ended}"


def _risk_line(row: dict[str, Any]) -> str:
    spans = f"{row['spans']:,} span{'' if row['spans'] == 1 else 's'}"
    where = f"{row['partitions']:,} partition{'' if row['partitions'] == 1 else 's'}"
    still = f", {row['still_open']:,} still so at the end" if row["still_open"] else ""
    how_long = "" if row["seconds"] is None else f"{row['seconds']:,.1f} s "
    return f"{STATE_WORDS[row['state']]}: {how_long}in {where}, {spans}{still}"


def _effect_line(row: dict[str, Any]) -> str:
    records = "" if row["records"] is None else f"{counted(row['records'])}, "
    where = f"{row['partitions']:,} partition{'' if row['partitions'] == 1 else 's'}"
    return f"{row['client_id']}: {EFFECT_WORDS[row['effect']]}: {records}{where}, first {time_of(row['first_ts'])}"


CONSEQUENCES: Final = (
    ("Replicas that differ below their high watermarks", "divergences", _difference_line),
    ("What consumers saw", "consumer_effects", _effect_line),
    ("Nearly lost (longest first)", "nearly_lost", _nearly_line),
    ("At risk", "at_risk", _risk_line),
)


def check_line(check: Mapping[str, Any]) -> str:
    """Return how much of what a check computed equals what brokers reported."""
    if not check["compared"]:
        return f"{check['check']}: nothing to compare"
    # Truncated, not rounded: only if all are equal it is 100 %.
    percent = check["matched"] * 10_000 // check["compared"] / 100
    line = f"{check['check']}: {check['matched']:,} of {check['compared']:,} equal ({percent:g} %)"
    first = check["first"]
    if first is None:
        return line
    note = f": {first['note']}" if first["note"] else ""
    return f"{line}; first at {first['topic']}-{first['partition']} seq {first['first_mismatch_seq']}{note}"


def _expectation_section(expectations: dict[str, Any]) -> tuple[str, list[str]]:
    if expectations["checked"] is None:
        return "Expectations", ["not validated yet"]
    failed = expectations["failed"]
    if not failed:
        return "Expectations", [f"all {expectations['checked']} hold"]
    lines = [_failed_line(row) for row in failed[:SHOWN_LINES]]
    if len(failed) > SHOWN_LINES:
        lines.append(f"and {len(failed) - SHOWN_LINES} more in expectation_results")
    return f"Expectations: {len(failed)} of {expectations['checked']} do not hold", lines


def expectation_line(row: Mapping[str, Any]) -> str:
    """Return an expectation that does not hold, and for how many rows."""
    line = f"{row['severity']}: {row['table']}: {row['meaning']} [{row['expectation']}]"
    if row["rows_failed"] is None:
        return line
    may = f" ({row['rows_allowed']:,} may)" if row.get("rows_allowed") else ""
    return f"{line} {row['rows_failed']:,} of {row['rows_checked']:,} rows{may}"


def _failed_line(row: Mapping[str, Any]) -> str:
    """Return the same, with where the first of the rows stand, and what it means for the answer."""
    places = f"; first at {'; '.join(map(in_words, row['places']))}" if row.get("places") else ""
    answer = f". {row['answer']}" if row.get("answer") else ""
    return f"{expectation_line(row)}{places}{answer}"


def _coverage_line(row: dict[str, Any]) -> str:
    who = "cluster" if row["broker_id"] is None else f"broker {row['broker_id']}"
    times = "without times" if row["first_ts"] is None else f"{time_of(row['first_ts'])} to {time_of(row['last_ts'])}"
    release = f"; Kafka {', then '.join(row['kafka_versions'])}" if row.get("kafka_versions") else ""
    if row.get("metadata_versions"):
        release += f"; metadata.version {', then '.join(row['metadata_versions'])}"
    return f"{who}: {', '.join(row['sources']) or 'nothing of use'}; {times}; {row['facts']:,} facts{release}"
