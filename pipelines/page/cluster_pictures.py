"""Pictures of the whole cluster: who left the ISR, what was at risk, what commits waited for, what the logs cover."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pipelines.page.colours import COLOURS
from pipelines.page.picture import Picture
from schemas.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

WIDTH: Final = 760
MOST_LANES: Final = 24  # partitions, or logs, in one picture
MOST_BROKERS: Final = 18
MOST_SPANS: Final = 600
MOST_MOMENTS: Final = 60  # of losses, drawn into other pictures
# Around a picture: browsers' letters may be wider than those it was measured with.
PADDING: Final = {"left": 36, "right": 36, "top": 5, "bottom": 5}
SLOTS: Final = 48  # into which a recording's time is cut, at most
SLOT_WIDTHS_S: Final = (1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 86_400)
LATENCIES_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)  # the upper ends of the classes

RISK_COLOURS: Final = {
    "leaderless": "lost", "acknowledged_by_one": "risk", "under_min_isr": "calm", "isr_one": "pale",
}  # fmt: skip
COVERAGE_COLOURS: Final = {"logged": "calm", "lossy": "risk", "missing": "lost", "silent": "pale"}
COVERAGE_WORDS: Final = {
    "logged": "logged",
    "lossy": "lines are missing",
    "missing": "no log",
    "silent": "no lines, nothing shows why",
}
COMMIT_WORDS: Final = {
    "append": "nobody: the append alone",
    "isr_change": "a change of the ISR",
    "role": "its leader's taking up the role",
    "statement": "not known: a line states it",
    "fetch": "a fetch",
}
LOGS: Final = {"request_log": "request log", "server_log": "server log", "metadata": "metadata log"}


def slot_us(start_us: int, end_us: int) -> int:
    """Return the width of the slots into which a recording's time is cut."""
    fitting = (width * 1_000_000 for width in SLOT_WIDTHS_S if width * 1_000_000 * SLOTS >= end_us - start_us)
    return next(fitting, -(-(end_us - start_us) // SLOTS // 86_400_000_000) * 86_400_000_000)


def moment(us: int | None) -> str:
    """Return a time in UTC, in words."""
    return "not known" if us is None else f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def seconds(value: float | None) -> str:
    """Return a length of time."""
    return "open" if value is None else f"{value:,.1f} s"


def flaps(rows: Sequence[Row], slot: int, span: tuple[int, int], losses: Sequence[int]) -> Picture:
    """Return who left the ISR and came back: by broker and slot of time."""
    brokers = sorted({row["broker_id"] for row in rows})
    worst = sorted(brokers, key=lambda one: -sum(row["flaps"] for row in rows if row["broker_id"] == one))
    shown = set(worst[:MOST_BROKERS])
    values = [
        {
            "who": f"broker {row['broker_id']}",
            "start": row["slot"] * slot / 1000,
            "end": (row["slot"] + 1) * slot / 1000,
            "flaps": row["flaps"],
            "told": f"Broker {row['broker_id']}, from {moment(row['slot'] * slot)}: out of an ISR and back "
            f"{_times(row['flaps'])}, out for {seconds((row['out_ms'] or 0) / 1000)} in all",
        }
        for row in rows
        if row["broker_id"] in shown
    ]
    most = max((row["flaps"] for row in rows), default=1)
    layers = [
        {
            "mark": {"type": "bar", "height": {"band": 0.8}, "cornerRadius": 2, "color": COLOURS["risk"].light},
            "encoding": {
                **_lane([f"broker {one}" for one in brokers if one in shown]),
                **_from_to(span),
                "fillOpacity": _shade("flaps", most),
                "description": {"field": "told"},
            },
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 4, "aria": False},
            "encoding": {
                **_lane([f"broker {one}" for one in brokers if one in shown]),
                "x": {"field": "start", "type": "temporal"}, "text": {"field": "flaps"},
            },
        },
    ]  # fmt: skip
    return Picture(
        key="flaps",
        title="Who left the ISR and came back",
        caption=f"Each box is a broker within {_width_words(slot)}; its number says how many times it left the ISR of "
        f"a partition and came back to it.{_losses_words(losses)}",
        spec=_spec(values, layers, losses),
        columns=("Broker", "From (UTC)", "Times out and back", "Out in all", "Longest"),
        rows=[
            (
                f"broker {row['broker_id']}",
                moment(row["slot"] * slot),
                f"{row['flaps']:,}",
                seconds((row["out_ms"] or 0) / 1000),
                seconds((row["longest_ms"] or 0) / 1000),
            )
            for row in rows
        ],
        left_out=_left_out(len(brokers) - len(shown), "broker", "isr_flaps"),
    )


def at_risk(
    rows: Sequence[Row], words: Mapping[str, str], span: tuple[int, int], losses: Sequence[int], every: int
) -> Picture:
    """Return when which partition had too few replicas, or no leader; `rows` are the longest of `every` span."""
    total: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        total[_place(row)] += (row["end_us"] or span[1]) - (row["start_us"] or span[0])
    places = sorted(sorted(total, key=lambda place: (-total[place], place))[:MOST_LANES])
    shown = [row for row in rows if _place(row) in places][:MOST_SPANS]
    values = [
        {
            "who": _place(row),
            "state": words[row["state"]],
            "start": (row["start_us"] or span[0]) / 1000,
            "end": (row["end_us"] or span[1]) / 1000,
            "told": f"{_place(row)}: {words[row['state']]}, from {moment(row['start_us'])}, {seconds(row['seconds'])}",
        }
        for row in shown
    ]
    states = [state for state in RISK_COLOURS if any(row["state"] == state for row in shown)]
    layers = [
        {
            "mark": {"type": "bar", "cornerRadius": 1},
            "encoding": {
                **_lane(places),
                "yOffset": {"field": "state", "type": "nominal", "sort": [words[state] for state in states]},
                **_from_to(span),
                "color": _colours("state", {words[state]: RISK_COLOURS[state] for state in states}),
                "description": {"field": "told"},
            },
        }
    ]
    left = [
        said
        for said in (
            _left_out(len(total) - len(places), "partition", "partition_risk"),
            _left_out(every - len(shown), "span", "partition_risk") if every > len(rows) else None,
        )
        if said
    ]
    return Picture(
        key="at-risk",
        title="When partitions were at risk",
        caption="A bar is a time in which the partition had no leader, or in which one broker's failure would have "
        f"taken records along.{_losses_words(losses)}",
        spec=_spec(values, layers, losses, step=8 * max(len(states), 2) + 8),
        columns=("Partition", "State", "From (UTC)", "To (UTC)", "How long"),
        rows=[
            (
                _place(row),
                words[row["state"]],
                moment(row["start_us"]),
                "the end of the recording" if row["end_us"] is None else moment(row["end_us"]),
                seconds(row["seconds"]),
            )
            for row in shown
        ],
        left_out=" ".join(left) or None,
    )


def commit_latency(rows: Sequence[Row]) -> Picture:
    """Return how long acks=all batches took to be committed, by whom they waited for last."""
    counts: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        counts[_waited_for(row)][_class_of(row["ms_class"])] += row["batches"]
    every = sorted(counts, key=lambda who: (-sum(counts[who].values()), who))
    shown = sorted(every[:MOST_LANES])
    names = [_class_name(at) for at in range(len(LATENCIES_MS) + 1)]
    values = [
        {
            "who": who,
            "class": names[at],
            "batches": batches,
            "share": batches / sum(counts[who].values()),
            "told": f"{who}: {batches:,} batches committed {names[at]} after the append",
        }
        for who in shown
        for at, batches in sorted(counts[who].items())
    ]
    spec = {
        "width": {"step": 60},
        "padding": PADDING,
        "height": {"step": 30},
        "data": {"values": values},
        "encoding": {
            **_lane(shown),
            "x": {"field": "class", "type": "ordinal", "sort": names, "title": "committed how long after the append",
                  "scale": {"domain": names}, "axis": {"labelAngle": 0, "grid": False}},
        },
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 2, "color": COLOURS["calm"].light},
                "encoding": {
                    "fillOpacity": _shade("share", 1),
                    "description": {"field": "told"},
                },
            },
            {"mark": {"type": "text", "aria": False}, "encoding": {"text": {"field": "batches", "format": ","}}},
        ],
    }  # fmt: skip
    return Picture(
        key="commit-latency",
        title="How long commits took, and whom they waited for",
        caption="Each line is who was waited for last: the replica whose fetch committed the batches, or what else "
        "did. The numbers are batches of acks=all produces; the darker, the larger the share of its line.",
        spec=spec,
        columns=("Waited for", *names),
        rows=[(who, *(f"{counts[who].get(at, 0):,}" for at in range(len(names)))) for who in shown],
        left_out=_left_out(len(every) - len(shown), "line", "commit_latency"),
    )


def coverage(rows: Sequence[Row], span: tuple[int, int], losses: Sequence[int]) -> Picture:
    """Return which broker's logs cover which time, and where lines are missing."""
    lanes = sorted({_log_key(row) for row in rows})
    kept = set(lanes[: 3 * MOST_LANES])
    shown = [row for row in rows if _log_key(row) in kept]
    shown = sorted(shown, key=lambda row: row["state"] == "logged")[:MOST_SPANS]
    values = [
        {
            "who": _log_name(row),
            "state": COVERAGE_WORDS[row["state"]],
            "start": row["start_us"] / 1000,
            "end": row["end_us"] / 1000,
            "told": f"{_log_name(row)}: {COVERAGE_WORDS[row['state']]} from {moment(row['start_us'])} "
            f"to {moment(row['end_us'])}",
        }
        for row in shown
    ]
    states = [state for state in COVERAGE_COLOURS if any(row["state"] == state for row in shown)]
    names = list(dict.fromkeys(_log_name(row) for row in sorted(rows, key=_log_key) if _log_key(row) in kept))
    layers = [
        {
            "mark": {"type": "bar", "height": {"band": 0.7}, "minBandSize": 3},
            "encoding": {
                **_lane(names),
                **_from_to(span),
                "color": _colours("state", {COVERAGE_WORDS[state]: COVERAGE_COLOURS[state] for state in states}),
                "description": {"field": "told"},
            },
        }
    ]
    return Picture(
        key="coverage-picture",
        title="What the logs cover",
        caption="A line for each log of each broker. Where one is missing, or lacks lines, what it would have told is "
        f"not known.{_losses_words(losses)}",
        spec=_spec(values, layers, losses, step=20),
        columns=("Log", "State", "From (UTC)", "To (UTC)", "Lines missing", "What tells"),
        rows=[
            (
                _log_name(row),
                COVERAGE_WORDS[row["state"]],
                moment(row["start_us"]),
                moment(row["end_us"]),
                "" if row["lines_missing"] is None else f"at least {row['lines_missing']:,}",
                row["reason"] or "",
            )
            for row in sorted(shown, key=lambda row: (_log_key(row), row["start_us"]))
        ],
        left_out=_left_out(len(rows) - len(shown), "span", "coverage"),
    )


def conformance(checks: Sequence[Row]) -> Picture:
    """Return how much of what was computed is equal to what the brokers reported."""
    compared = [check for check in checks if check["compared"]]
    shown = compared[:MOST_LANES]
    names = [_check_name(check) for check in shown]
    values = [
        {
            "who": _check_name(check),
            "share": check["matched"] / check["compared"],
            "equal": "all equal" if check["matched"] == check["compared"] else "some differ",
            "numbers": f"{check['matched']:,} of {check['compared']:,}",
            "told": f"{_check_name(check)}: {check['matched']:,} of {check['compared']:,} equal",
        }
        for check in shown
    ]
    spec = {
        "width": 420,
        "padding": PADDING,
        "height": {"step": 22},
        "data": {"values": values},
        "encoding": _lane(names),
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.7}},
                "encoding": {
                    "x": {"field": "share", "type": "quantitative", "title": "equal",
                          "axis": {"format": ".0%", "tickCount": 5}, "scale": {"domain": [0, 1]}},
                    "color": _colours("equal", {"all equal": "calm", "some differ": "risk"}),
                    "description": {"field": "told"},
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "aria": False},
                "encoding": {"x": {"datum": 1}, "text": {"field": "numbers"}},
            },
        ],
    }  # fmt: skip
    return Picture(
        key="conformance-picture",
        title="What was computed, against what the brokers reported",
        caption="Tidemark computes from the protocol what brokers also write to their logs. Where both are there, they "
        "are compared: the more of it is equal, the more the rest can be trusted.",
        spec=spec,
        columns=("Check", "Compared", "Equal", "Partitions that differ", "First that differs"),
        rows=[
            (
                _check_name(check),
                f"{check['compared']:,}",
                f"{check['matched']:,}",
                f"{check['partitions_differing']:,}",
                _first_difference(check),
            )
            for check in checks
        ],
        left_out=_left_out(len(compared) - len(shown), "check", "conformance"),
    )


def expectations(rows: Sequence[Row]) -> Picture:
    """Return how many expectations hold and do not hold, by table; `rows`: table, held, warnings, errors."""
    said = {"held": "hold", "warnings": "do not hold (warning)", "errors": "do not hold (error)"}
    shown = sorted(rows, key=lambda row: (-row["errors"], -row["warnings"], row["table"]))[:MOST_LANES]
    values = [
        {
            "who": row["table"],
            "state": words,
            "count": row[name],
            "order": at,
            "told": f"{row['table']}: {row[name]:,} {words}",
        }
        for row in shown
        for at, (name, words) in enumerate(said.items())
        if row[name]
    ]
    spec = {
        "width": 420,
        "padding": PADDING,
        "height": {"step": 20},
        "data": {"values": values},
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {
            **_lane([row["table"] for row in shown]),
            "x": {"field": "count", "type": "quantitative", "title": "expectations", "axis": {"tickMinStep": 1}},
            "order": {"field": "order"},
            "color": _colours("state", dict(zip(said.values(), ("calm", "risk", "lost"), strict=True))),
            "description": {"field": "told"},
        },
    }
    return Picture(
        key="expectations-picture",
        title="Expectations on the tables",
        caption="What must hold of the tables whatever the recording, checked after each run.",
        spec=spec,
        columns=("Table", "Hold", "Do not hold: warnings", "Do not hold: errors"),
        rows=[
            (row["table"], f"{row['held']:,}", f"{row['warnings']:,}", f"{row['errors']:,}")
            for row in sorted(rows, key=lambda row: row["table"])
        ],
        left_out=_left_out(len(rows) - len(shown), "table", "expectation_results"),
    )


def _spec(values: Sequence[Row], layers: list[dict[str, Any]], losses: Sequence[int], step: int = 26) -> dict[str, Any]:
    """Return a picture of lanes over time, with a line for each of the first losses."""
    moments = [{"at": us / 1000, "told": f"a loss at {moment(us)}"} for us in sorted(set(losses))[:MOST_MOMENTS]]
    rule = {
        "data": {"values": moments},
        "mark": {"type": "rule", "color": COLOURS["lost"].light, "strokeDash": [4, 3], "strokeWidth": 1.5},
        "encoding": {"x": {"field": "at", "type": "temporal"}, "description": {"field": "told"}},
    }
    return {
        "width": WIDTH,
        "height": {"step": step, "for": "position"},
        "padding": PADDING,
        "data": {"values": list(values)},
        "layer": [*layers, *([rule] if moments else [])],
    }


def _lane(names: Iterable[str]) -> dict[str, Any]:
    axis = {"title": None, "domain": False, "ticks": False, "grid": False}
    return {"y": {"field": "who", "type": "nominal", "sort": list(names), "axis": axis}}


def _from_to(span: tuple[int, int]) -> dict[str, Any]:
    scale = {"type": "utc", "domain": [span[0] / 1000, span[1] / 1000], "clamp": True, "nice": False}
    day = 86_400_000_000
    form = "%H:%M:%S" if span[1] - span[0] < day // 8 else "%H:%M" if span[1] - span[0] < day else "%b %d %H:%M"
    axis = {"title": None, "format": form, "tickCount": 8, "grid": True, "labelOverlap": True}
    return {"x": {"field": "start", "type": "temporal", "scale": scale, "axis": axis}, "x2": {"field": "end"}}


def _shade(field: str, most: float) -> dict[str, Any]:
    """Return how strongly something is filled; a page in the dark can change the colour, and it stays right."""
    scale = {"domain": [0, most], "range": [0.08, 0.7]}
    return {"field": field, "type": "quantitative", "legend": None, "scale": scale}


def _colours(field: str, names: Mapping[str, str]) -> dict[str, Any]:
    scale = {"domain": list(names), "range": [COLOURS[name].light for name in names.values()]}
    return {
        "field": field,
        "type": "nominal",
        "scale": scale,
        "legend": {"title": None, "columnPadding": 44, "columns": 2},
    }


def _place(row: Row) -> str:
    lived = f" (incarnation {row['incarnation']})" if row["incarnation"] else ""
    return printable(f"{row['topic']}-{row['partition']}{lived}")


def _log_key(row: Row) -> tuple[Any, ...]:
    return (row["broker_id"] is None, row["broker_id"] or 0, row["source"])


def _log_name(row: Row) -> str:
    log = LOGS[row["source"]]
    return log if row["broker_id"] is None else f"broker {row['broker_id']}, {log}"


def _check_name(check: Row) -> str:
    return str(check["check"]).replace("_", " ")


def _first_difference(check: Row) -> str:
    first = check["first"]
    if first is None:
        return ""
    note = f": {first['note']}" if first["note"] else ""
    return f"{first['topic']}-{first['partition']} seq {first['first_mismatch_seq']}{note}"


def _waited_for(row: Row) -> str:
    if row["last_replica_id"] is not None:
        return f"broker {row['last_replica_id']}'s fetch"
    return "not while its leader led" if row["committed_by"] is None else COMMIT_WORDS[row["committed_by"]]


def _class_of(ms_class: int | None) -> int:
    return len(LATENCIES_MS) if ms_class is None else LATENCIES_MS.index(ms_class)


def _class_name(at: int) -> str:
    def spoken(ms: int) -> str:
        return f"{ms} ms" if ms < 1000 else f"{ms // 1000} s"

    return f"≤ {spoken(LATENCIES_MS[at])}" if at < len(LATENCIES_MS) else "later"


def _width_words(slot: int) -> str:
    width = slot // 1_000_000
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if width >= unit and not width % unit:
            return f"one {name}" if width == unit else f"{width // unit} {name}s"
    return f"{width} seconds"


def _losses_words(losses: Sequence[int]) -> str:
    return " A dashed red line is a loss." if losses else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _left_out(count: int, noun: str, table: str) -> str | None:
    if count <= 0:
        return None
    return f"{count:,} more {noun}{'' if count == 1 else 's'} are not drawn: see {table}."
