"""The timeline of an incident: what each broker was, how far its log and its high watermark reached, what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipelines.page import replica_lanes as lanes
from pipelines.page.flags import flags_of, placed
from pipelines.page.marks import (
    LETTER,
    UNSURE,
    WIDTH,
    bounded_table,
    clock,
    colour,
    count,
    day,
    key_of,
    layer,
    name_of,
    offsets,
    sentences,
)
from pipelines.page.messages import is_lost
from pipelines.page.partition_rows import MOST_TIME, microseconds, window_of
from pipelines.page.picture import MOST_MARKS, Picture
from pipelines.page.step_lines import Line, thinned
from pipelines.page.timeline_scene import LOOKS, PANEL, SILENT, STRIP, Scene, heading, legend, x_of, y_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.page.partition_rows import PartitionRows

    Row = Mapping[str, Any]

MOST_BROKERS: Final = 7
LEAST_SEEN: Final = 8  # offsets that a loss is taken to have at least when the scale is chosen
MOST_TIMES: Final = 6  # how many times as many offsets as are lost are shown at most
MOST_SPANS: Final = 40  # of one broker's lane, the longest
MOST_SILENCES: Final = 15
MOST_CUTS: Final = 15  # of one broker, those that cut most
MOST_ACKS: Final = 120  # of all acknowledgements of lost records
POINTS: Final = MOST_MARKS - 900  # of all lines together; the rest is for everything else
_CAPTION: Final = (
    "Time runs to the right, each time by the clock of its own broker. Each broker has a bar that says what "
    "it was, and below it two "
    "lines: the thick one is the end of its log (LEO), the thin dashed one its high watermark (HW), as far as "
    "consumers may read. "
    "The shaded box is what was lost: it begins when the losing broker appended it and ends where that broker "
    "cut its log. "
    "On the other brokers the dotted red line is the first lost offset: a log that ends at or below it when "
    "that broker leads has none of them. "
    "Dotted and lighter lines are bounded or not known; a thin line of dots under a bar: no request log there."
    " A line that leaves its panel goes on beyond it."
)


def timeline(incident: Row, rows: PartitionRows) -> Picture | None:
    """Return the timeline; None: no replica's log end is known near the loss."""
    start, end = (microseconds(one) or 0 for one in window_of(incident))
    everyone = lanes.brokers_of(rows, incident)
    shown = lanes.most_telling(everyone, incident, MOST_BROKERS)
    lines = _lines(rows, shown, start, end)
    short_spans = sum(max(0, len(lanes.lane_of(one, rows, start, end)) - MOST_SPANS) for one in shown)
    if start >= end or not any(one.points for one in lines):
        return None
    drawn, dropped = thinned(lines, POINTS)
    ends = [value for line in drawn for _, value, _ in line.points]
    flags, unlabelled = placed(flags_of(incident, rows, start, end), start, end)
    low, high = (
        min(*ends, incident["first_offset"]),
        max(*ends, (incident["last_offset"] or incident["first_offset"]) + 1),
    )
    low, high = _near(incident, low, max(high, low + 1))
    scene = Scene(start, end, low, high, flags)
    acks = [time for time in _acks(incident, rows) if start <= time <= end]
    few = acks if len(acks) <= MOST_ACKS else [acks[place * len(acks) // MOST_ACKS] for place in range(MOST_ACKS)]
    panels = [_panel(broker, incident, rows, scene, drawn, few, is_last=broker == shown[-1]) for broker in shown]
    table, more = bounded_table(_table(incident, rows, shown, scene))
    spec = {
        "vconcat": [heading(scene), *panels, legend()],
        "spacing": 12,
        "resolve": {"scale": {"x": "shared"}},
        "config": {"concat": {"spacing": 12}},
    }
    return Picture(
        key=key_of(incident, "timeline"),
        title=f"{name_of(incident)}: what each broker had, and when",
        caption=_CAPTION,
        spec=spec,
        columns=("Time (UTC)", "Broker", "What"),
        rows=table,
        left_out=sentences(
            f"Of {count(len(everyone), 'broker')} {len(shown)} are shown." if len(shown) < len(everyone) else None,
            f"The lines are drawn through {count(dropped[1], 'point')} of {dropped[0]:,}; no step back is left out."
            if dropped[1] < dropped[0]
            else None,
            f"Of {count(len(acks), 'acknowledgement')} of lost records {len(few)} are marked."
            if len(few) < len(acks)
            else None,
            ""
            f"{count(unlabelled, 'further election or change of the ISR', 'further elections and changes of the ISR')}"
            " had no room; the table has them."
            if unlabelled
            else None,
            f"{count(short_spans, 'short span')} of the bars left out; the table has them." if short_spans else None,
            _beyond(incident, start, end),
            more,
        ),
    )


def _near(incident: Row, low: int, high: int) -> tuple[int, int]:
    """Return the offsets that the panels show: not so many that what is lost cannot be seen among them."""
    first, last = incident["first_offset"], incident["last_offset"]
    if last is None:
        return low, high
    lost = max(last + 1 - first, LEAST_SEEN)
    if high - low <= MOST_TIMES * lost:
        return low, high
    half = MOST_TIMES * lost // 2
    return max(low, first - half), min(high, last + 1 + half)


def _beyond(incident: Row, start: int, end: int) -> str | None:
    links = [microseconds(link["ts"]) for link in incident["chain"] or ()]
    outside = [one for one in links if one is not None and not start <= one <= end]
    minutes = int(MOST_TIME.total_seconds() // 60)
    return (
        f"It shows {minutes} minutes around the loss; what led to it or came of it further away is in the chain."
        if outside
        else None
    )


def _lines(rows: PartitionRows, shown: Sequence[int], start: int, end: int) -> list[Line]:
    leos = [row for row in rows.of("leo_timeline") if row["observer"] == "local"]
    made = []
    for what, source in (("leo", leos), ("hw", rows.of("hw_timeline"))):
        for broker in shown:
            own = [
                row
                for row in source
                if row["broker_id"] == broker and row["ts"] is not None and start <= row["ts"] <= end
            ]
            points = [(row["ts"], row[what], row["evidence"] in UNSURE) for row in own]
            before = own[0].get(f"{what}_before") if own else None
            if before is not None and before >= 0:
                points.insert(0, (start, before, own[0]["evidence"] in UNSURE))
            made.append(Line(broker, what, points))
    return made


def _acks(incident: Row, rows: PartitionRows) -> list[int]:
    """Return when lost records were acknowledged."""
    return [
        row["ts"]
        for row in rows.of("replication_events")
        if row["kind"] == "ack"
        and row["error_code"] == 0
        and is_lost(row, incident)
        and row["acks"] != 0
        and not row["unconfirmed"]
    ]


def _panel(  # noqa: PLR0913 - a panel is made of all of them
    broker: int,
    incident: Row,
    rows: PartitionRows,
    scene: Scene,
    lines: Sequence[Line],
    acks: Sequence[int],
    *,
    is_last: bool,
) -> dict[str, Any]:
    """Return a broker's view: its lane, its lines, and what is lost."""
    box, words = _lost(broker, incident, rows, scene)
    layers = [
        *box,
        *_flag_rules(scene),
        *(one for line in lines if line.broker == broker for one in _line(line, scene)),
        _cover(scene),
        *_lane(broker, rows, scene),
        *_cuts(broker, rows, scene),
        *words,
    ]
    if broker == incident["losing_broker_id"] and acks:
        marks = [{"at": time / 1000} for time in acks]
        layers.append(
            layer(
                "rule",
                marks,
                {"x": x_of(scene), "y": {"value": PANEL + 1}, "y2": {"value": PANEL - 6}},
                color=colour("safe"),
                strokeWidth=1.5,
            )
        )
    axis = {
        "title": "time of day, UTC, on " + day(scene.start),
        "format": "%H:%M:%S" if scene.end - scene.start > 6_000_000 else "%H:%M:%S.%L",
        "labelOverlap": "greedy",
        "labelSeparation": 10,
        "grid": False,
        "tickCount": 8 if scene.end - scene.start > 6_000_000 else 5,
    }
    anchor = layer(
        "rule",
        [{"at": scene.start / 1000, "y": scene.low}],
        {
            "x": {**x_of(scene), "axis": axis if is_last else None},
            "y": {
                "field": "y",
                "type": "quantitative",
                "scale": scene.offset(),
                "axis": {
                    "title": f"broker {broker}",
                    "titleFontWeight": "bold",
                    "titleColor": colour("ink"),
                    "tickCount": 3,
                    "format": "d",
                    "tickMinStep": 1,
                },
            },
        },
        opacity=0,
    )
    return {"width": WIDTH, "height": PANEL, "layer": [anchor, *layers]}


# Filled, outlined or dashed: the kinds of lanes differ without their colours, too.
_LANES: Final[Mapping[str, Mapping[str, Any]]] = {
    lanes.LEADER: {"fill": "calm", "fillOpacity": 0.45, "stroke": "calm"},
    lanes.IN_ISR: {"fill": "pale", "fillOpacity": 0.35, "stroke": "pale"},
    lanes.OUT: {"fill": "card", "fillOpacity": 0, "stroke": "risk", "strokeDash": [4, 3]},
    lanes.FENCED: {"fill": "faint", "fillOpacity": 0.35, "stroke": "faint"},
    lanes.NOT_KNOWN: {"fill": "card", "fillOpacity": 0, "stroke": "faint", "strokeDash": [1, 3]},
}


def _lane(broker: int, rows: PartitionRows, scene: Scene) -> list[dict[str, Any]]:
    """Return a broker's bar, with words in those parts that have room, and where its request log says nothing."""
    made = []
    spans = lanes.longest(lanes.lane_of(broker, rows, scene.start, scene.end), MOST_SPANS)
    x = {"x": x_of(scene), "x2": {"field": "to"}}
    for state, look in _LANES.items():
        values = [
            {
                "at": one.start / 1000,
                "to": one.end / 1000,
                "told": f"broker {broker}: {state} from {clock(one.start)} to {clock(one.end)}",
            }
            for one in spans
            if one.state == state
        ]
        if values:
            how = {name: colour(value) if name in {"fill", "stroke"} else value for name, value in look.items()}
            made.append(layer("rect", values, {**x, "y": {"value": 0}, "y2": {"value": STRIP}}, strokeWidth=1, **how))
    words = [
        {"at": one.start / 1000, "what": one.state}
        for one in spans
        if (one.end - one.start) / (scene.end - scene.start) * WIDTH > len(one.state) * LETTER + 8
    ]
    if words:
        made.append(
            layer(
                "text",
                words,
                {"x": x_of(scene), "y": {"value": STRIP / 2 + 1}, "text": {"field": "what"}},
                align="left",
                dx=5,
                baseline="middle",
                fontSize=11,
            )
        )
    holes = [
        {
            "at": one.start / 1000,
            "to": one.end / 1000,
            "told": f"broker {broker}, request log {one.state} from {clock(one.start)} to {clock(one.end)}: "
            f"{one.reason}",
        }
        for one in lanes.longest(lanes.silences_of(broker, rows, scene.start, scene.end), MOST_SILENCES)
    ]
    if holes:
        made.append(layer("rule", holes, {**x, "y": {"value": STRIP + 5}}, **SILENT))
    return made


def _cover(scene: Scene) -> dict[str, Any]:
    """Return what keeps lines that leave the panel out of the lane."""
    whole = [{"at": scene.start / 1000, "to": scene.end / 1000}]
    place = {"x": x_of(scene), "x2": {"field": "to"}, "y": {"value": 0}, "y2": {"value": STRIP + 9}}
    return layer("rect", whole, place, color=colour("card"), opacity=1)


def _flag_rules(scene: Scene) -> list[dict[str, Any]]:
    values = [{"at": flag.time / 1000} for flag in scene.flags]
    return [layer("rule", values, {"x": x_of(scene)}, color=colour("faint"), strokeDash=[2, 2])] if values else []


def _line(line: Line, scene: Scene) -> list[dict[str, Any]]:
    """Return a line of steps: what is sure drawn through, what is bounded or not known in dots."""
    look = LOOKS[line.what]
    made = []
    for values, is_unsure in line.stretches(scene.end):
        unsure = {"strokeDash": [1, 3], "opacity": 0.55} if is_unsure else {}
        encoding = {"x": x_of(scene), "y": y_of(scene, "to")}
        made.append(
            layer(
                "line",
                [{"at": time / 1000, "to": value} for time, value in values],
                encoding,
                interpolate="step-after",
                clip=True,
                **{**look, **unsure},
            )
        )
    return made


def _cuts(broker: int, rows: PartitionRows, scene: Scene) -> list[dict[str, Any]]:
    own = [
        row
        for row in rows.of("log_truncations")
        if row["broker_id"] == broker
        and row["ts"] is not None
        and scene.start <= row["ts"] <= scene.end
        and scene.low <= row["leo_after"] <= scene.high
    ]
    values = [
        {
            "at": row["ts"] / 1000,
            "to": row["leo_after"],
            "told": f"{clock(row['ts'])}: broker {broker} cut its log from {_or(row['leo_before'])} "
            f"to {row['leo_after']} ({row['cause'].replace('_', ' ')})",
        }
        for row in sorted(own, key=lambda row: (row["leo_after"] - (row["leo_before"] or 0), row["ts"]))[:MOST_CUTS]
    ]
    if not values:
        return []
    look = {"shape": "triangle-down", "filled": True, "size": 110, "color": colour("lost"), "opacity": 1}
    return [layer("point", values, {"x": x_of(scene), "y": y_of(scene, "to")}, **look)]


def _or(value: int | None) -> str:
    return "an end not known" if value is None else str(value)


def _lost(
    broker: int, incident: Row, rows: PartitionRows, scene: Scene
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the box of what is lost on the broker that had it, or its lower edge on the others; and its words."""
    first = incident["first_offset"]
    if broker != incident["losing_broker_id"]:
        values = [{"to": first}]
        return [
            layer("rule", values, {"y": y_of(scene, "to")}, color=colour("lost"), strokeDash=[1, 3], strokeWidth=1.5)
        ], []
    appended = [
        row["ts"]
        for row in rows.of("leo_timeline")
        if row["broker_id"] == broker
        and row["observer"] == "local"
        and row["ts"] is not None
        and row["leo"] > first
        and scene.start <= row["ts"] <= scene.end
    ]
    start = min(appended, default=scene.start)
    cut = microseconds(incident["truncated_ts"]) or microseconds(incident["lost_ts"])
    until = min(max(cut or scene.end, start), scene.end)
    boxes = [
        {
            "at": start / 1000,
            "until": until / 1000,
            "from": one["first_offset"],
            "to": scene.high if one["last_offset"] is None else one["last_offset"] + 1,
            "told": f"lost: offsets {offsets(one['first_offset'], one['last_offset'])} "
            f"of leader epoch {one['leader_epoch']}",
        }
        for one in incident["ranges"]
    ]
    open_end = incident["last_offset"] is None or incident["records"] is None or incident["evidence"] in UNSURE
    how = {"strokeDash": [3, 3]} if open_end else {}
    encoding = {"x": x_of(scene), "x2": {"field": "until"}, "y": y_of(scene, "from"), "y2": {"field": "to"}}
    words = f"lost: {offsets(first, incident['last_offset'])}" + (
        "" if incident["records"] is None else f" ({count(incident['records'], 'record')})"
    )
    at, align, dx = (
        (start, "left", 5)
        if (scene.end - start) / (scene.end - scene.start) * WIDTH > len(words) * LETTER + 10
        else (until, "right", -5)
    )
    text = [{"at": at / 1000, "what": words}]
    return [
        layer(
            "rect", boxes, encoding, color=colour("lost"), fillOpacity=0.18, stroke=colour("lost"), strokeWidth=1, **how
        ),
    ], [
        layer(
            "text",
            text,
            {"x": x_of(scene), "y": {"value": STRIP + 19}, "text": {"field": "what"}},
            align=align,
            dx=dx,
            fontWeight="bold",
            color=colour("lost"),
            baseline="middle",
            **rim,
        )
        for rim in ({"stroke": colour("card"), "strokeWidth": 3, "strokeJoin": "round"}, {})
    ]


def _table(incident: Row, rows: PartitionRows, shown: Sequence[int], scene: Scene) -> list[list[str]]:
    told = [
        (flag.time, str(flag.broker) if flag.broker is not None else "", flag.told)
        for flag in flags_of(incident, rows, scene.start, scene.end)
    ]
    for broker in shown:
        told += [
            (one.start, str(broker), f"{one.state} until {clock(one.end)}")
            for one in lanes.lane_of(broker, rows, scene.start, scene.end)
        ]
        told += [
            (hole.start, str(broker), f"request log {hole.state} until {clock(hole.end)}: {hole.reason}")
            for hole in lanes.silences_of(broker, rows, scene.start, scene.end)
        ]
    return [[clock(time), broker, what] for time, broker, what in sorted(told)]
