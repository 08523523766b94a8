"""The slots of an incident: along the offsets, what was acknowledged, committed and read of what is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.page.marks import UNSURE, WIDTH, bounded_table, colour, count, key_of, layer, name_of, offsets, sentences
from pipelines.page.messages import is_lost
from pipelines.page.partition_rows import microseconds
from pipelines.page.picture import Picture

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pipelines.page.partition_rows import PartitionRows

    Row = Mapping[str, Any]
    Run = tuple[int, int]  # first offset, and the one after the last

MOST_RUNS: Final = 150  # of one lane
LANE: Final = 26
SHOWN_OF_OPEN_END: Final = 20  # offsets, where nobody knows how far the loss goes and nothing else is known beyond
_CAPTION: Final = (
    "Offsets run to the right. The first bar is what is lost; each bar below it says what was true of those "
    "records, with how many. "
    "A bar with a dashed rim is possible, bounded or not known. A slot is a leader epoch and an offset: "
    "offsets that were written again hold "
    "other records now, so a consumer that comes back there reads on without noticing."
)


class Lane(NamedTuple):
    """A lane: what it says, how many the incident's row counts, and where they are as far as known."""

    words: str
    counted: int | None
    runs: Sequence[Run]
    look: str  # a colour of the page
    is_unsure: bool = False

    @property
    def label(self) -> str:
        """Return the lane's name with its count."""
        return f"{self.words}: {'not known' if self.counted is None else format(self.counted, ',')}"


def slot_strip(incident: Row, rows: PartitionRows) -> Picture | None:
    """Return the picture of the lost slots; None: the incident names no range."""
    ranges = incident["ranges"] or ()
    if not ranges:
        return None
    far = _far_end(incident, rows)
    lost = [(one["first_offset"], far if one["last_offset"] is None else one["last_offset"] + 1) for one in ranges]
    lanes = [lane for lane in _lanes(incident, rows, lost) if lane.counted != 0]
    low, high = min(first for first, _ in lost), max(following for _, following in lost)
    margin = max(3, (high - low) // 10)
    domain = [max(0, low - margin), high + margin]
    cut = {
        lane.words: [run for run in (_clipped(one, domain) for one in lane.runs) if run[0] < run[1]] for lane in lanes
    }
    layers = [_bars(lane, cut[lane.words][:MOST_RUNS], domain, [one.label for one in lanes]) for lane in lanes]
    edge = [{"at": low, "lane": lanes[0].label}]
    height = LANE * len(lanes)
    rule = layer(
        "rule",
        edge,
        {"x": _x(domain), "y": {"value": 0}, "y2": {"value": height}},
        color=colour("lost"),
        strokeDash=[2, 3],
    )
    table, more = bounded_table(
        [[lane.words, _number(lane.counted), where] for lane in lanes for where in _where(lane, incident)]
    )
    too_many = [lane.words for lane in lanes if len(cut[lane.words]) > MOST_RUNS]
    return Picture(
        key=key_of(incident, "slots"),
        title=f"{name_of(incident)}: the lost offsets",
        caption=_CAPTION,
        spec={"width": WIDTH - 230, "height": height, "layer": [*layers, rule]},
        columns=("What", "Records", "Offsets"),
        rows=table,
        left_out=sentences(
            f"Of {', '.join(too_many)} the first {MOST_RUNS} runs are drawn." if too_many else None,
            _without_place(lanes),
            _beyond_sure(lanes),
            f"{count(incident['aborted'], 'record')} of the acknowledged were of aborted transactions, and "
            "promised to nobody."
            if incident["aborted"]
            else None,
            more,
        ),
    )


def _lanes(incident: Row, rows: PartitionRows, lost: Sequence[Run]) -> list[Lane]:
    """Return the lanes; those of which the incident counts none are dropped later."""
    told = {name: _merged(_inside(runs, lost)) for name, runs in _answers(incident, rows).items()}
    is_open = incident["records"] is None or incident["evidence"] in UNSURE
    answered = [run for name in ("all", "one", "failed", "unconfirmed", "saved") for run in told.get(name, ())]
    unanswered = _without(lost, answered)
    possible = incident["acked_possible"]
    made = [Lane("lost", incident["records"], lost, "lost", is_open)]
    if incident["acked_all"] is None and incident["acked_one"] is None:
        made.append(Lane("acknowledged", None, lost, "safe", is_unsure=True))
    made += [
        Lane("acknowledged, acks=all", incident["acked_all"] or 0, told.get("all", ()), "safe"),
        Lane("acknowledged, acks=1", incident["acked_one"] or 0, told.get("one", ()), "safe"),
        Lane("possibly acknowledged", possible or 0, unanswered, "safe", is_unsure=True),
        Lane(
            "answered as it stood still",
            incident["acked_unconfirmed"] or 0,
            told.get("unconfirmed", ()),
            "risk",
            is_unsure=True,
        ),
        Lane(
            "never acknowledged",
            incident["unacked"] or 0,
            [*told.get("failed", ()), *(() if possible else unanswered)],
            "faint",
        ),
        Lane("of these, with an error", incident["failed_appended"] or 0, told.get("failed", ()), "faint"),
        Lane("committed", incident["committed"] or 0, _first_of(lost, incident["committed"] or 0), "accent"),
        Lane("read by consumers", incident["consumed"] or 0, _inside(_read(incident, rows), lost), "risk"),
    ]
    saved = told.get("saved", ())
    made.append(Lane("kept: retried elsewhere", sum(b - a for a, b in saved), saved, "calm"))
    again = _merged(_written_again(incident, rows))
    within = _inside(again, [(min(a for a, _ in lost), max(b for _, b in lost))])
    made.append(Lane("written again since", sum(b - a for a, b in within), within, "calm"))
    return made


def _answers(incident: Row, rows: PartitionRows) -> dict[str, list[Run]]:
    """Return which offsets of lost slots were answered how, by the acknowledgements that the recording has."""
    found: dict[str, list[Run]] = {}
    for row in rows.of("replication_events"):
        if row["kind"] != "ack" or row["base_offset"] is None:
            continue
        run = (row["base_offset"], row["base_offset"] + 1 if row["next_offset"] is None else row["next_offset"])
        if is_lost(row, incident):
            found.setdefault(_answer(row), []).append(run)
        elif row["duplicate"] and row["error_code"] == 0 and row["broker_id"] != incident["losing_broker_id"]:
            found.setdefault("saved", []).append(run)
    return found


def _answer(row: Row) -> str:
    if row["error_code"] is None or row["acks"] == 0:
        return "none"
    if row["error_code"] != 0:
        return "failed"
    if row["unconfirmed"]:
        return "unconfirmed"
    return "all" if row["acks"] == -1 else "one"


def _read(incident: Row, rows: PartitionRows) -> list[Run]:
    return [
        (row["first_offset"], row["last_offset"] + 1)
        for row in rows.of("consumer_effects")
        if row["effect"] == "read_then_lost"
        and row["incident_id"] == incident["incident_id"]
        and row["last_offset"] is not None
    ]


def _written_again(incident: Row, rows: PartitionRows) -> list[Run]:
    epoch = incident["new_leader_epoch"]
    return [
        (row["base_offset"], row["next_offset"])
        for row in rows.of("replication_events")
        if row["kind"] == "append"
        and epoch is not None
        and (row["leader_epoch"] or 0) >= epoch
        and row["base_offset"] is not None
        and row["next_offset"] is not None
    ]


def _far_end(incident: Row, rows: PartitionRows) -> int:
    """Return up to where an open end is drawn: as far as the losing broker's log is known to have reached."""
    loss = microseconds(incident["lost_ts"])
    reached = [
        row["leo"]
        for row in rows.of("leo_timeline")
        if row["broker_id"] == incident["losing_broker_id"]
        and row["observer"] == "local"
        and (loss is None or row["ts"] is None or row["ts"] <= loss)
    ]
    return (
        max(reached, default=0)
        if max(reached, default=0) > incident["first_offset"]
        else incident["first_offset"] + SHOWN_OF_OPEN_END
    )


def _merged(runs: Iterable[Run]) -> list[Run]:
    made: list[Run] = []
    for first, following in sorted(runs):
        if made and first <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], following))
        else:
            made.append((first, following))
    return made


def _inside(runs: Iterable[Run], within: Sequence[Run]) -> list[Run]:
    both = [(max(a, c), min(b, d)) for a, b in runs for c, d in within]
    return _merged(one for one in both if one[0] < one[1])


def _without(runs: Sequence[Run], taken: Iterable[Run]) -> list[Run]:
    """Return what of the runs is in none of those taken."""
    left = []
    away = _merged(taken)
    for first, following in _merged(runs):
        at = first
        for a, b in away:
            if b > at and a < following:
                left.append((at, max(at, a)))
                at = max(at, b)
        left.append((at, following))
    return [one for one in left if one[0] < one[1]]


def _first_of(runs: Sequence[Run], number: int) -> list[Run]:
    """Return the first slots, so many: what is committed lies below a high watermark."""
    made = []
    for first, following in sorted(runs):
        part = min(number, following - first)
        if part > 0:
            made.append((first, first + part))
        number -= part
    return made


def _clipped(run: Run, domain: Sequence[int]) -> Run:
    return max(run[0], domain[0]), min(run[1], domain[1])


def _x(domain: Sequence[int]) -> dict[str, Any]:
    axis = {"title": "offset", "format": "d", "tickMinStep": 1, "labelOverlap": True, "tickCount": 8}
    return {
        "field": "at",
        "type": "quantitative",
        "scale": {"domain": list(domain), "nice": False, "zero": False},
        "axis": axis,
    }


def _bars(lane: Lane, runs: Sequence[Run], domain: Sequence[int], labels: Sequence[str]) -> dict[str, Any]:
    axis = {
        "title": None,
        "labelColor": colour("ink"),
        "domain": False,
        "ticks": False,
        "labelPadding": 8,
        "labelLimit": 220,
        "minExtent": 228,
        "grid": False,
    }
    values = [
        {
            "at": first,
            "to": following,
            "lane": lane.label,
            "told": f"{lane.words}: offsets {offsets(first, following - 1)}",
        }
        for first, following in runs
    ]
    encoding = {
        "x": _x(domain),
        "x2": {"field": "to"},
        "y": {"field": "lane", "type": "nominal", "sort": None, "scale": {"domain": list(labels)}, "axis": axis},
    }
    rim = {"strokeDash": [3, 2], "fillOpacity": 0.2} if lane.is_unsure else {"fillOpacity": 0.75}
    thick = {"band": 0.62 if lane.words != "lost" else 0.8}
    return layer(
        "bar", values, encoding, height=thick, color=colour(lane.look), stroke=colour(lane.look), strokeWidth=1, **rim
    )


def _where(lane: Lane, incident: Row) -> list[str]:
    if lane.words == "lost":
        return [
            f"{offsets(one['first_offset'], one['last_offset'])} (leader epoch {one['leader_epoch']})"
            for one in incident["ranges"]
        ]
    known = [offsets(first, following - 1) for first, following in lane.runs]
    if lane.is_unsure:
        return [f"among {', '.join(known[:5])}" if known else "not known"]
    return known or ["not known"]


def _number(counted: int | None) -> str:
    return "not known" if counted is None else f"{counted:,}"


def _without_place(lanes: Sequence[Lane]) -> str | None:
    """Say of which lanes the picture does not show as many as are counted."""
    told = [
        f"{lane.words} ({sum(b - a for a, b in lane.runs):,} of {lane.counted:,})"
        for lane in lanes
        if not lane.is_unsure and lane.counted is not None and sum(b - a for a, b in lane.runs) < lane.counted
    ]
    return (
        "Not all have a place, as the recording or the time looked at does not say which offsets they are: "
        f"{'; '.join(told)}."
        if told
        else None
    )


def _beyond_sure(lanes: Sequence[Lane]) -> str | None:
    """Say of which lanes more is drawn than is sure: a reader may have had more than what it surely had."""
    told = [
        f"{lane.words}: at least {lane.counted:,}, perhaps {placed:,}, as drawn"
        for lane in lanes
        for placed in [sum(b - a for a, b in lane.runs)]
        if not lane.is_unsure and lane.counted is not None and placed > lane.counted
    ]
    return f"Not all that is drawn is sure ({'; '.join(told)})." if told else None
