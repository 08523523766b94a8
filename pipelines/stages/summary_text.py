"""The summary of a report, which fits on a screen: the answer first, then what is uncertain, then where to look.

Everything else that the report tells is in its Markdown file (`report_text.markdown`), and `show` tells it one by one.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from pipelines.stages.report_text import (
    SEVERITY_WORDS,
    STATE_WORDS,
    check_line,
    expectation_line,
    notes,
    place_of,
    retold_line,
)
from pipelines.stages.screen import DEFAULT_WIDTH, Screen
from replay.losses.sentences import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

LINES: Final = 34  # what fits on a screen together with the paths that a run prints below
FEWEST: Final = 3  # incidents that are shown however much there is to say besides
FEW_DOUBTS: Final = 4  # of so many, each may take two lines
SHORT_ID: Final = 8  # so much of an incident's id nearly always names it, and `show` says where it does not
VERDICT_STYLES: Final = {
    "lost": "bold red",
    "possible": "bold yellow",
    "unknown": "bold yellow",
    "unacknowledged": "bold yellow",
    "nothing_lost": "bold green",
}
SEVERITY_STYLES: Final = {"S0": "red", "S1": "red", "S2": "yellow", "S3": ""}
COLUMNS: Final = ("sev", "id", "partition", "acked", "lost", "mechanism", "when (UTC)", "evidence")
WHOLE: Final = ("sev", "id", "acked", "lost", "mechanism", "when (UTC)", "evidence")


def terminal(findings: Mapping[str, Any], *, colour: bool = False, width: int = DEFAULT_WIDTH) -> str:
    """Return the summary for a terminal of this width."""
    without = Screen(width)
    _write(without, findings, 0)
    screen = Screen(width, colour=colour)
    _write(screen, findings, max(FEWEST, LINES - without.height))
    return screen.text()


def _write(screen: Screen, findings: Mapping[str, Any], most: int) -> None:
    """Write the summary with so many incidents at most."""
    screen.line(f"{findings['recording_id']}: {findings['headline']}", VERDICT_STYLES[findings["verdict"]])
    for note in notes(findings):
        screen.line(note, most=2)
    if findings["incidents"]:
        screen.blank()
        incident_table(screen, findings["incidents"], most)
    besides = list(_besides(findings))
    if besides:
        screen.heading("Besides")
        for sentence in besides:
            screen.line(sentence, indent=2, hanging=2, most=2)
    screen.heading("What is uncertain")
    doubts = list(doubts_of(findings)) or ["nothing that the tables know of"]
    for sentence in doubts:
        screen.line(sentence, indent=2, hanging=2, most=2 if len(doubts) <= FEW_DOUBTS else 1)
    screen.heading("Where to look")
    for what, command in _commands(findings):
        screen.line(what, indent=2)
        screen.exact(f"./spark-submit.sh {command}", indent=4)


def incident_table(screen: Screen, incidents: Sequence[Mapping[str, Any]], most: int) -> None:
    """Write one line for each incident, up to so many, and what the severities mean."""
    shown = incidents[:most]
    days = {one["lost_ts"].date() for one in shown if one["lost_ts"]}
    rows = [
        (
            one["severity"],
            one["incident_id"][:SHORT_ID],
            place_of(one),
            acknowledged_words(one),
            "unknown" if one["records"] is None else f"{one['records']:,}",
            one["mechanism"],  # the word by which tables, pages and docs/mechanisms.md name it
            _when(one["lost_ts"], with_day=len(days) > 1, wide=screen.width >= DEFAULT_WIDTH),
            one["evidence"],
        )
        for one in shown
    ]
    on = f" on {next(iter(days))}" if len(days) == 1 else ""
    screen.line(f"{counted(len(incidents), 'incident')}{on}", "bold")
    styles = [SEVERITY_STYLES[one["severity"]] for one in shown]
    screen.table(COLUMNS, rows, right=("acked", "lost"), whole=WHOLE, styles=styles)
    if len(incidents) > most:
        screen.line(f"and {len(incidents) - most:,} more: show incident lists all of them")
    if any(one["acked_possible"] for one in shown):
        screen.line("+: more cannot be ruled out", "dim")
    for severity in sorted({one["severity"] for one in incidents}):
        screen.line(f"{severity}: {SEVERITY_WORDS[severity]}", "dim")


def acknowledged_words(incident: Mapping[str, Any]) -> str:
    """Return how many acknowledged records are gone, with a plus sign if more cannot be ruled out."""
    if incident["acked_all"] is None and incident["acked_one"] is None:
        return "unknown"
    sure = (incident["acked_all"] or 0) + (incident["acked_one"] or 0)
    return f"{sure:,}+" if incident["acked_possible"] else f"{sure:,}"


def doubts_of(findings: Mapping[str, Any]) -> Iterable[str]:
    """Return what keeps the answer from being certain and complete, one sentence each."""
    incidents = findings["incidents"]
    unknown = findings["incidents_with_unknown_acknowledgements"]
    if unknown:
        yield f"acknowledgements: unknown for {counted(unknown, 'incident')}"
    given_up = [one for one in incidents if one["acked_unconfirmed"]]
    if given_up:
        records = sum(one["acked_unconfirmed"] for one in given_up)
        yield f"answers: {counted(records, 'lost record')} answered only to clients that had given up"
    bounded = sum(one["evidence"] in {"bounded", "unknown"} for one in incidents)
    if bounded:
        yield f"evidence: {counted(bounded, 'incident')} known only as a lower bound"
    retold = [retold_line(one) for name in ("withdrawn", "revised") for one in findings.get(name, ())]
    yield from _some("withdrawn or revised", retold)
    yield from _some("not covered by logs, so lower bounds", findings["not_covered"])
    yield from _of_expectations(findings["expectations"])
    differing = [check_line(check) for check in findings["conformance"] if check["matched"] < check["compared"]]
    yield from _some("computed against reported", differing)
    if not any(check["compared"] for check in findings["conformance"]):
        yield "computed against reported: nothing to compare with"
    rejected = findings["rejected_lines"]["lines"]
    if rejected:
        yield f"rejected: {counted(rejected, 'line')} said nothing certain"


def _of_expectations(expectations: Mapping[str, Any]) -> Iterable[str]:
    if expectations["checked"] is None:
        yield "expectations: not validated yet"
    elif failed := expectations["failed"]:
        told = [expectation_line(row) for row in failed]
        yield from _some(f"expectations: {len(failed)} of {expectations['checked']} do not hold", told)


def _some(what: str, sentences: Sequence[str]) -> Iterable[str]:
    """Return how many sentences there are and the first of them; nothing if there is none."""
    if sentences:
        more = f" ({len(sentences):,} in the report), first" if len(sentences) > 1 else ""
        yield f"{what}{more}: {sentences[0]}"


def _besides(findings: Mapping[str, Any]) -> Iterable[str]:
    """Return what was found beside losses, a line for each kind."""
    divergences = findings["divergences"]
    if divergences:
        yield f"replicas that differ below their high watermarks: {_places(divergences)}"
    readers = {row["client_id"] for row in findings["consumer_effects"] if row["effect"] == "read_then_lost"}
    if readers:
        named = ", ".join(sorted(name or "without a name" for name in readers)[:3])
        more = f" and {len(readers) - 3:,} more" if len(readers) > 3 else ""
        yield f"consumers that read records which were lost later: {named}{more}"
    nearly = findings["nearly_lost"]
    if nearly:
        yield f"nearly lost: {_places(nearly)}"
    still = [row for row in findings["at_risk"] if row["still_open"]]
    if still:
        places = findings.get("still_at_risk") or ()  # a report of an earlier version has no names
        told = "; ".join(f"{STATE_WORDS[row['state']]} {_still(row, places)}" for row in still)
        yield f"still at risk when the recording ends: {told}"


def _still(row: Mapping[str, Any], named: Sequence[Mapping[str, Any]]) -> str:
    """Return the partitions that were in a state at the end: a partition is so once, so there are as many as spans."""
    names = [place_of(one) for one in named if one["state"] == row["state"]]
    if not names:
        return counted(row["still_open"], "partition")
    others = row["still_open"] - len(names)
    return f"{', '.join(names)}{f' and {others:,} more' if others > 0 else ''}"


def _places(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the partitions of some rows: the first three, and how many more."""
    names = list(dict.fromkeys(place_of(row) for row in rows))
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def _commands(findings: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return what to ask next, and the command that asks it."""
    where = f"--warehouse {shlex.quote(findings['look_at']['warehouse'])}"
    where += f" --recording-id {shlex.quote(findings['recording_id'])}"
    incidents = findings["incidents"]
    if incidents:
        worst = incidents[0]
        yield "an incident, from its causes to its cure", f"show incident {worst['incident_id'][:SHORT_ID]} {where}"
        name = f"{worst['topic']}-{worst['partition']}" + (f"#{worst['incarnation']}" if worst["incarnation"] else "")
        record = shlex.quote(f"{name}@{worst['first_offset']}")
        yield "the fate of a record that it lost", f"show record {record} {where}"
        yield "its partition, step by step", f"show partition {shlex.quote(name)} {where}"
    else:
        yield "what happened to a partition", f"show partition TOPIC-PARTITION {where}"


def _when(at: datetime | None, *, with_day: bool, wide: bool) -> str:
    if at is None:
        return "unknown"
    clock = f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}" if wide else f"{at:%H:%M:%S}"
    return f"{at:%Y-%m-%d} {clock}" if with_day else clock
