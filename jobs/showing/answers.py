"""Each answer of `show` as text for a terminal, from the same values that `--json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.showing.parts import clock, doubt, listed, moment, place, source
from pipelines.lookup.event_words import CUT_BY, acks_words, error_words, offsets_words
from pipelines.stages.report_text import incident_text
from pipelines.stages.summary_text import SEVERITY_STYLES, incident_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipelines.stages.screen import Screen

FATE_STYLES = {
    "lost": "bold red",
    "kept": "bold green",
    "removed": "bold",
    "cut": "bold yellow",
    "unknown": "bold yellow",
}
SHOWN = 15  # rows of each kind; --json has more


def incidents(screen: Screen, told: Mapping[str, Any]) -> None:
    """Write the list of incidents."""
    if not told["incidents"]:
        screen.line(f"{told['recording_id']}: no incident")
        return
    screen.line(told["recording_id"], "bold")
    incident_table(screen, told["incidents"], len(told["incidents"]))
    screen.blank()
    screen.line("show incident ID tells one of them: the beginning of its id is enough")


def partitions(screen: Screen, told: Mapping[str, Any]) -> None:
    """Write the names of all partitions."""
    screen.line(told["recording_id"], "bold")
    screen.line(", ".join(told["partitions"]) or "no partition was replayed", indent=2)


def incident(screen: Screen, told: Mapping[str, Any]) -> None:
    """Write one incident: what was lost, how, what led to it, and what would have kept it."""
    title, *lines = incident_text(dict(told))
    screen.line(title, f"bold {SEVERITY_STYLES[told['severity']]}".strip())
    screen.line(f"incident {told['incident_id']}", indent=2)
    for line in lines:
        indent = len(line) - len(line.lstrip())
        screen.line(line.strip(), "bold" if line.endswith(":") and indent == 2 else "", indent, hanging=2)
    for lost in told["ranges"] or ():
        end = None if lost["last_offset"] is None else lost["last_offset"] + 1
        slots = f"{lost['first_offset']} to an unknown end" if end is None else offsets_words(lost["first_offset"], end)
        screen.line(f"lost slots: {slots} of leader epoch {lost['leader_epoch']}", indent=2)
    reported = told["reported"]
    if reported and reported.get("status") != "reported":
        screen.line(f"{reported['status']} {moment(reported.get('revised'))}: earlier runs said otherwise", indent=2)


def partition(screen: Screen, told: Mapping[str, Any]) -> None:
    """Write a partition's state and its story."""
    state = told["state"]
    screen.line(f"{place(told)} after seq {told['seq']:,} of {told['last_seq']:,}, {moment(told['ts'])}", "bold")
    _other_incarnations(screen, told)
    leader = "nobody" if state["leader_id"] is None else f"broker {state['leader_id']}"
    epoch = "unknown" if state["leader_epoch"] is None else state["leader_epoch"]
    version = "" if state["partition_epoch"] is None else f" (partition epoch {state['partition_epoch']})"
    pending = "" if state["pending"] is None else f"; asked for: {listed(state['pending'])}"
    screen.fields(
        (
            ("leader", f"{leader}, leader epoch {epoch}"),
            ("ISR", f"{listed(state['isr'])}{version}{pending}"),
            ("replicas", listed(state["assigned"])),
            ("min ISR", "unknown" if state["min_isr"] is None else state["min_isr"]),
        )
    )
    screen.heading("Each replica, and what a leader knows of the others [broker LEO ...]")
    for replica in state["replicas"]:
        screen.line(replica["words"], indent=2, hanging=4)
    if told["incidents"]:
        screen.heading("Incidents")
        for one in told["incidents"]:
            end = None if one["last_offset"] is None else one["last_offset"] + 1
            what = f"{one['incident_id'][:8]} {one['severity']} {one['mechanism']}"
            lost = f"{offsets_words(one['first_offset'], end)}, {clock(one['lost_ts'])}"
            screen.line(f"{what}: {lost}{doubt(one['evidence'])}", indent=2, hanging=2)
    screen.heading("What happened" + (", in short" if told["is_whole_history"] else ", step by step"))
    if told["left_out"]:
        screen.line(f"... {told['left_out']:,} earlier milestones; --at or --around shows any of them", indent=2)
    for step in told["steps"]:
        _step(screen, step, told["seq"] if not told["is_whole_history"] else None)
    if told["is_whole_history"]:
        screen.blank()
        screen.line("--around SEQ tells every step near one of these, with the states after it")


def _step(screen: Screen, step: Mapping[str, Any], asked: int | None) -> None:
    """Write an event, what came of it, and the states after it."""
    style = "bold" if step["seq"] == asked else ""
    text = f"{step['seq']} {clock(step['ts'])} {step['what']}{doubt(step['evidence'])}{source(step)}"
    screen.line(text, style, indent=0, hanging=4)
    for came in step["came_of_it"]:
        screen.line(f"-> {came}", indent=4, hanging=3)
    for state in step["states"]:
        screen.line(state, indent=4, hanging=4)


def _other_incarnations(screen: Screen, told: Mapping[str, Any]) -> None:
    if told["other_incarnations"]:
        name = f"{told['topic']}-{told['partition']}"
        others = ", ".join(f"{name}#{one}" for one in told["other_incarnations"])
        screen.line(f"The topic was deleted and created again; its other lives: {others}", indent=2, hanging=2)


def record(screen: Screen, told: Mapping[str, Any]) -> None:
    """Write the fate of each record that was at an offset."""
    slots = told["slots"]
    name = f"{place(told)}@{told['offset']}"
    several = f": {len(slots)} records in turn, of different leader epochs" if len(slots) > 1 else ""
    screen.line(f"{name}{several}", "bold")
    _other_incarnations(screen, told)
    if told["start"] is not None and told["offset"] < told["start"]:
        screen.line(f"The log begins at {told['start']} by now.", indent=2)
    if not slots:
        screen.line("No row tells of a record here, though logs reached beyond this offset.", indent=2, hanging=2)
    for slot in slots:
        epoch = "an unknown leader epoch" if slot["leader_epoch"] is None else f"leader epoch {slot['leader_epoch']}"
        screen.blank()
        screen.line(f"In {epoch}: {slot['fate']['sentence']}", FATE_STYLES[slot["fate"]["word"]], hanging=2)
        for line in _record_lines(slot, told["removed_by_policy"] if slot["fate"]["word"] == "removed" else ()):
            screen.line(line, indent=2, hanging=4)


def _record_lines(slot: Mapping[str, Any], removed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what happened to a record, in order."""
    told = [
        *((one, _appended(one)) for one in slot["appends"]),
        *((one, _taken(one)) for one in slot["taken"]),
        *_learnt(slot),
        *((one, _committed(one)) for one in (slot["committed"],) if one),
        *((one, _answered(one)) for one in slot["answers"]),
        *((one, _read(one)) for one in slot["reads"][:SHOWN]),
        *((one, _taken_away(one)) for one in slot["cut"]),
        *((one, _removed(one)) for one in removed),
    ]
    lines = [
        f"{clock(one['ts'])} {what}{doubt(one['evidence'])}{source(one) if 'source' in one else ''}"
        for one, what in sorted(told, key=lambda pair: pair[0]["seq"])
    ]
    left_out = slot["reads_left_out"] + max(0, len(slot["reads"]) - SHOWN)
    if left_out:
        lines.append(f"and {left_out:,} more reads")
    if not slot["answers"] and not any(one["is_control"] for one in slot["appends"]):
        lines.append("no answer to its producer is in the logs")
    if slot["committed"] is None:
        lines.append("no row tells that it was committed")
    return lines


def _learnt(slot: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Return when a leader first learnt of each other replica that it has the record."""
    heard: set[int] = set()
    for one in slot["known_to_leader"]:
        if one["broker"] not in heard:
            yield one, f"broker {one['leader']} learns that broker {one['broker']} has it"
        heard.add(one["broker"])


def _taken(one: Mapping[str, Any]) -> str:
    return f"taken by broker {one['broker']}" + ("" if one["step"] == "follower_append" else f" ({one['step']})")


def _committed(one: Mapping[str, Any]) -> str:
    return "committed" + ("" if one["by"] is None else f", as broker {one['by']} has it")


def _read(one: Mapping[str, Any]) -> str:
    return f"read by {one['client_id'] or 'a client without a name'} from broker {one['broker']}"


def _taken_away(one: Mapping[str, Any]) -> str:
    why = CUT_BY.get(one["cause"], one["cause"].replace("_", " "))
    before = "unknown" if one["leo_before"] is None else one["leo_before"]
    return f"cut by broker {one['broker']}: log end {before} to {one['leo_after']} ({why})"


def _removed(one: Mapping[str, Any]) -> str:
    why = one["cause"].replace("_", " ")
    return f"removed from broker {one['broker']}'s log, which begins at {one['log_start_offset']} ({why})"


def _appended(one: Mapping[str, Any]) -> str:
    batch = offsets_words(one["base_offset"], one["next_offset"])
    sure = doubt(one["next_offset_evidence"]) if one["next_offset_evidence"] in {"bounded", "unknown"} else ""
    if one["is_control"]:
        return f"appended by broker {one['broker']}: a transaction marker ({one['transaction'] or 'unknown'})"
    of = f" for {one['client_id'] or 'a client without a name'}, {acks_words(one['acks'])}" if one["source"] else ""
    within = f", in a transaction that ended in {one['transaction']}" if one["transaction"] else ""
    return f"appended by broker {one['broker']}{of}{within} (batch: {batch}{sure})"


def _answered(one: Mapping[str, Any]) -> str:
    client = one["client_id"] or "a client without a name"
    again = ", a retry that had been appended before" if one["duplicate"] else ""
    if one["error_code"] is None:
        return f"answered to {client} in a way that no line tells"
    if one["error_code"]:
        return f"answered to {client}: {error_words(one['error_code'])}{again}"
    late = ", which may have given up" if one["unconfirmed"] else ""
    if one["acks"] == 0:
        return f"not to be answered to {client} (acks=0)"
    return f"acknowledged to {client} ({acks_words(one['acks'])}){late}{again}"


def broker(screen: Screen, told: Mapping[str, Any]) -> None:
    """Write what is known of a broker."""
    screen.line(f"broker {told['broker_id']}", "bold")
    led_last = told["partitions_led_at_the_end"]
    screen.line(f"leads {led_last} partition{'' if led_last == 1 else 's'} when the recording ends", indent=2)
    if told["incidents"]:
        screen.heading("Its part in incidents")
        for one in told["incidents"]:
            text = f"{one['incident_id'][:8]} {one['severity']} {place(one)} {one['mechanism']}: {one['part']}"
            screen.line(f"{text}, {moment(one['lost_ts'])}{doubt(one['evidence'])}", indent=2, hanging=2)
    screen.heading("Logs of it")
    for one in told["coverage"]:
        missing = "" if one["lines_missing"] is None else f", at least {one['lines_missing']:,} missing"
        why = "" if one["reason"] is None else f": {one['reason']}"
        span = f"{moment(one['start_ts'])} to {clock(one['end_ts'])}"
        text = f"{one['source'].replace('_', ' ')} {one['state']}, {span}, {one['lines']:,} lines{missing}{why}"
        screen.line(text, indent=2, hanging=4)
    if not told["coverage"]:
        screen.line("none: what others tell of it is all there is", indent=2)
    screen.heading("Its comings and goings")
    _some(screen, [f"{moment(one['ts'])} {_life(one)}{source(one)}" for one in told["life"]])
    screen.heading("What it led")
    _some(screen, [_led(one) for one in told["led"]], told["led_left_out"])
    screen.heading("When it was out of the ISR")
    gone = [
        f"{place(one)}: {clock(one['left_ts'])} to {clock(one['back_ts'])}, {one['out_ms'] / 1000:,.1f} s: "
        f"{(one['left_reason'] or 'unknown why').replace('_', ' ')}; back: "
        f"{(one['back_reason'] or 'unknown why').replace('_', ' ')}{doubt(one['evidence'])}"
        if one["out_ms"] is not None
        else f"{place(one)}: {clock(one['left_ts'])} to {clock(one['back_ts'])}{doubt(one['evidence'])}"
        for one in told["out_of_isr"]
    ]
    out = [f"{place(one)}: since {moment(one['left_ts'])}, and not back" for one in told["out_at_the_end"]]
    _some(screen, [*gone, *out], told["out_of_isr_left_out"])
    screen.heading("What it cut from its logs")
    _some(screen, [_cut(one) for one in told["cut"]], told["cut_left_out"])


def _some(screen: Screen, lines: Sequence[str], left_out: int = 0) -> None:
    """Write some lines, and how many there are besides."""
    for line in lines[:SHOWN]:
        screen.line(line, indent=2, hanging=4)
    more = max(0, len(lines) - SHOWN) + left_out
    if more:
        screen.line(f"and {more:,} more; --json has up to 200 of each kind", indent=2)
    if not lines:
        screen.line("nothing", indent=2)


def _life(one: Mapping[str, Any]) -> str:
    return f"{one['what']} ({one['logs']:,})" if one["logs"] > 1 else str(one["what"])


def _led(one: Mapping[str, Any]) -> str:
    end = "the end" if one["end_ts"] is None else clock(one["end_ts"])
    start = "" if one["start_offset"] is None else f" from offset {one['start_offset']}"
    why = f" ({one['election']}: {one['trigger']})" if one["trigger"] else f" ({one['election']})"
    span = f"{moment(one['start_ts'])} to {end}"
    return f"{place(one)} epoch {one['leader_epoch']}{start}: {span}{why}{doubt(one['evidence'])}"


def _cut(one: Mapping[str, Any]) -> str:
    before = "unknown" if one["leo_before"] is None else one["leo_before"]
    removed = one["records_removed"]
    count = "" if removed is None else f", {removed:,} record{'' if removed == 1 else 's'}"
    what = f"{before} to {one['leo_after']}{count}"
    return f"{moment(one['ts'])} {place(one)}: {what} ({CUT_BY[one['cause']]}){doubt(one['evidence'])}"
