"""The report in words: for a terminal at three in the morning, and as Markdown for the ticket.

Names from logs are never trusted: control characters cannot reach a terminal, nor Markdown or HTML a page.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

SHOWN_INCIDENTS: Final = 20  # on a terminal; the JSON and the table hold all
SHOWN_LINES: Final = 10

MECHANISM_WORDS: Final = {
    "unclean_election": "unclean election: a replica outside the ISR became leader",
    "acks_one_leader_failure": "the leader failed before a follower had fetched what it had acknowledged (acks=1)",
    "acks_one_planned_move": "leadership was moved on purpose before a follower had what was acknowledged (acks=1)",
    "last_replica_standing": "the only replica in the ISR came back with less than it had",
    "hw_truncation": "a replica truncated to its own high watermark and then became leader",
    "fast_failover_divergence": "two elections in a row left a diverging log standing",
    "stale_fetch_accepted": "a fetch from an older epoch was counted as replication",
    "stale_isr_rejoin": "a replica that had lost its log was taken back into the ISR",
    "eligible_leader_regressed": "an eligible leader (ELR) had less than what was committed",
    "storage_failure": "a log directory or disk failed at the leader",
    "out_of_range_reset": "a replica gave up its log after an out-of-range fetch",
    "other": "by a way that no rule names",
}
SEVERITY_WORDS: Final = {
    "S0": "committed records lost silently",
    "S1": "committed records lost, as the configuration permits",
    "S2": "only records acknowledged by the leader alone (acks=1)",
    "S3": "visible records gone, none acknowledged",
}
RED, YELLOW, GREEN, BOLD, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[0m"
VERDICT_COLOURS: Final = {
    "lost": RED,
    "possible": YELLOW,
    "unknown": YELLOW,
    "unacknowledged": YELLOW,
    "nothing_lost": GREEN,
}

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]|~])")


def printable(text: object) -> str:
    """Text from a log with its control characters spelled out."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", str(text))


def markdown_text(text: object) -> str:
    """Text from a log that neither Markdown nor HTML takes for markup."""
    return _MARKDOWN.sub(r"\\\1", html.escape(printable(text), quote=False))


def terminal(findings: dict[str, Any], *, colour: bool) -> str:
    """The summary: the headline, a block per incident, and one line for everything else that matters."""

    def paint(code: str, text: str) -> str:
        return f"{code}{text}{PLAIN}" if colour else text

    incidents = findings["incidents"]
    headline = paint(BOLD + VERDICT_COLOURS[findings["verdict"]], findings["headline"])
    lines = [f"{printable(findings['recording_id'])}: {headline}", *_notes(findings)]
    for incident in incidents[:SHOWN_INCIDENTS]:
        title, *details = _incident_lines(incident)
        lines += ["", paint(BOLD, printable(title)), *(f"  {printable(detail)}" for detail in details)]
    if len(incidents) > SHOWN_INCIDENTS:
        lines += ["", f"... and {len(incidents) - SHOWN_INCIDENTS} more in data_loss_incidents"]
    for title, section in _sections(findings):
        lines += ["", paint(BOLD, title), *(f"  {printable(line)}" for line in section)]
    lines += ["", paint(BOLD, "Where to look"), f"  tables under {printable(findings['look_at']['warehouse'])}"]
    for query in findings["look_at"]["queries"]:
        lines += [f"  {query['question']}  ({query['tool']})", *(f"    {line}" for line in query["text"].splitlines())]
    return "\n".join(lines)


def markdown(findings: dict[str, Any]) -> str:
    """The same as `terminal`, all incidents, as Markdown."""
    name = markdown_text(findings["recording_id"])
    lines = [f"# What {name} lost", "", f"**{markdown_text(findings['headline'])}**", ""]
    lines += [f"{markdown_text(note)}\n" for note in _notes(findings)]
    for incident in findings["incidents"]:
        title, *details = _incident_lines(incident)
        lines += [f"## {markdown_text(title)}", "", *(f"- {markdown_text(detail)}" for detail in details), ""]
        lines += _chain_lines(incident)
    for title, section in _sections(findings):
        lines += [f"## {title}", "", *(f"- {markdown_text(line)}" for line in section), ""]
    lines += ["## Where to look", "", f"Tables under {markdown_text(findings['look_at']['warehouse'])}", ""]
    for query in findings["look_at"]["queries"]:
        language = "sql" if query["tool"] == "spark-sql" else query["tool"]
        fence = "`" * (3 + max((len(run) for run in re.findall("`+", query["text"])), default=0))
        lines += [f"{query['question']} ({query['tool']})", "", f"{fence}{language}", query["text"], fence, ""]
    return "\n".join(lines)


def _notes(findings: dict[str, Any]) -> list[str]:
    """What the headline cannot say in one sentence."""
    notes = []
    if findings["verdict"] == "lost" and findings["acknowledged_possible"]:
        notes.append(f"At most {findings['acknowledged_possible']:,} more cannot be ruled out.")
    unknown = findings["incidents_with_unknown_acknowledgements"]
    if unknown and findings["verdict"] == "lost":
        notes.append(f"Of {unknown} more losses the acknowledgements are unknown.")
    return notes


def counted(records: int) -> str:
    """`1 record`, `2,048 records`."""
    return f"{records:,} record{'' if records == 1 else 's'}"


def _incident_lines(incident: dict[str, Any]) -> list[str]:
    """Title and details of one incident, as plain text that is still to be escaped."""
    place = f"{incident['topic']}-{incident['partition']}"
    if incident["incarnation"]:
        place += f" (incarnation {incident['incarnation']})"
    last = incident["last_offset"]
    offsets = f"offsets {incident['first_offset']} to {'the end (open)' if last is None else last}"
    if last == incident["first_offset"]:
        offsets = f"offset {last}"
    records = "an unknown number of records" if incident["records"] is None else counted(incident["records"])
    lines = [
        f"{place}: {offsets}, {records}",
        f"acknowledged: {_acks(incident)}",
        f"how: {MECHANISM_WORDS[incident['mechanism']]} [{incident['mechanism']}]",
        f"severity: {incident['severity']}, {SEVERITY_WORDS[incident['severity']]}; evidence: {incident['evidence']}",
        f"when: lost {_time(incident['lost_ts'])}, cut {_time(incident['truncated_ts'])}",
        f"leader: {_leader(incident, 'old')} -> {_leader(incident, 'new')}",
        f"the records stood on: broker {incident['losing_broker_id']}",
    ]
    if incident["producers"]:
        lines.append(f"producers: {', '.join(incident['producers'])}")
    lines.append(f"why: {incident['explanation']}")
    if incident["prevention"]:
        lines.append(f"would have kept them: {'; '.join(incident['prevention'])}")
    return lines


def _acks(incident: dict[str, Any]) -> str:
    """Counts by acks: at least so many, and how many more are possible; unknown where nothing tells."""
    parts = []
    for name, column in (("acks=all", "acked_all"), ("acks=1", "acked_one")):
        sure, possible = incident[column], incident[f"{column}_possible"]
        more = f" (up to {possible:,} more)" if possible else ""
        parts.append(f"{name} {'unknown' if sure is None else f'{sure:,}'}{more}")
    if incident["acked_unconfirmed"]:
        parts.append(f"answered but unconfirmed {incident['acked_unconfirmed']:,}")
    for name in ("unacked", "committed", "consumed"):
        value = incident[name]
        parts.append(f"{name} {'unknown' if value is None else f'{value:,}'}")
    return ", ".join(parts)


def _leader(incident: dict[str, Any], which: str) -> str:
    broker, epoch = incident[f"{which}_leader_id"], incident[f"{which}_leader_epoch"]
    named = "unknown" if broker is None else f"broker {broker}"
    return named if epoch is None else f"{named} (epoch {epoch})"


def _time(value: datetime | None) -> str:
    return "at an unknown time" if value is None else f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d} UTC"


def _chain_lines(incident: dict[str, Any]) -> list[str]:
    if not incident["chain"]:
        return []
    links = (f"{_time(link['ts'])}: {link['what']}" for link in incident["chain"])
    return ["What led to it:", "", *(f"{n}. {markdown_text(link)}" for n, link in enumerate(links, start=1)), ""]


def _sections(findings: dict[str, Any]) -> Iterable[tuple[str, list[str]]]:
    """What follows the incidents: title and lines of each part that has something to say."""
    yield "Tables", [", ".join(f"{name} {rows:,}" for name, rows in findings["tables"].items())]
    yield (
        "Computed against reported (worst first)",
        [_check_line(check) for check in findings["conformance"]] or ["nothing to compare with"],
    )
    rejected = findings["rejected_lines"]
    if rejected["lines"]:
        reasons = [
            f"{row['lines']:,} x {row['reason']}, first {row['first']['source_file']}:{row['first']['source_line']}"
            for row in rejected["reasons"]
        ]
        yield f"Rejected lines: {rejected['lines']:,}", reasons
    yield _expectation_section(findings["expectations"])
    holes = findings["not_covered"]
    if holes:
        more = [f"and {len(holes) - SHOWN_LINES} more in coverage"] if len(holes) > SHOWN_LINES else []
        yield "Not covered: verdicts that rest on these logs are lower bounds", [*holes[:SHOWN_LINES], *more]
    yield "What was recorded", [_coverage_line(row) for row in findings["coverage"]] or ["nothing"]


def _check_line(check: dict[str, Any]) -> str:
    if not check["compared"]:
        return f"{check['check']}: nothing to compare"
    # Cut, not rounded: only all equal is 100 %.
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
    lines = [
        f"{row['severity']}: {row['table']}: {row['meaning']} [{row['expectation']}]"
        + ("" if row["rows_failed"] is None else f" {row['rows_failed']:,} of {row['rows_checked']:,} rows")
        for row in failed[:SHOWN_LINES]
    ]
    if len(failed) > SHOWN_LINES:
        lines.append(f"and {len(failed) - SHOWN_LINES} more in expectation_results")
    return f"Expectations: {len(failed)} of {expectations['checked']} do not hold", lines


def _coverage_line(row: dict[str, Any]) -> str:
    who = "cluster" if row["broker_id"] is None else f"broker {row['broker_id']}"
    times = "without times" if row["first_ts"] is None else f"{_time(row['first_ts'])} to {_time(row['last_ts'])}"
    return f"{who}: {', '.join(row['sources']) or 'nothing of use'}; {times}; {row['facts']:,} facts"
