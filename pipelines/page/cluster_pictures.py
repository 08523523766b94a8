"""Pictures of the whole cluster: who left the ISR, what was at risk, what commits waited for, what the logs cover."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from pipelines.page.colours import COLOURS
from pipelines.page.lanes import (
    MOST_LANES,
    PADDING,
    colours,
    from_to,
    lane,
    left_out,
    losses_words,
    moment,
    seconds,
    shade,
    spec_of,
    times,
)
from pipelines.page.picture import Picture
from schemas.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, Any]

MOST_BROKERS: Final = 18
MOST_SPANS: Final = 600
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
            f"{times(row['flaps'])}, out for {seconds((row['out_ms'] or 0) / 1000)} in all",
        }
        for row in rows
        if row["broker_id"] in shown
    ]
    most = max((row["flaps"] for row in rows), default=1)
    layers = [
        {
            "mark": {"type": "bar", "height": {"band": 0.8}, "cornerRadius": 2, "color": COLOURS["risk"].light},
            "encoding": {
                **lane([f"broker {one}" for one in brokers if one in shown]),
                **from_to(span),
                "fillOpacity": shade("flaps", most),
                "description": {"field": "told"},
            },
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 4, "aria": False},
            "encoding": {
                **lane([f"broker {one}" for one in brokers if one in shown]),
                "x": {"field": "start", "type": "temporal"}, "text": {"field": "flaps"},
            },
        },
    ]  # fmt: skip
    return Picture(
        key="flaps",
        title="Who left the ISR and came back",
        caption=f"Each box is a broker within {_width_words(slot)}; its number says how many times it left the ISR of "
        f"a partition and came back to it.{losses_words(losses)}",
        spec=spec_of(values, layers, losses),
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
        left_out=left_out(len(brokers) - len(shown), "broker", "isr_flaps"),
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
                **lane(places),
                "yOffset": {"field": "state", "type": "nominal", "sort": [words[state] for state in states]},
                **from_to(span),
                "color": colours("state", {words[state]: RISK_COLOURS[state] for state in states}),
                "description": {"field": "told"},
            },
        }
    ]
    left = [
        said
        for said in (
            left_out(len(total) - len(places), "partition", "partition_risk"),
            left_out(every - len(shown), "span", "partition_risk") if every > len(rows) else None,
        )
        if said
    ]
    return Picture(
        key="at-risk",
        title="When partitions were at risk",
        caption="A bar is a time in which the partition had no leader, or in which one broker's failure would have "
        f"taken records along.{losses_words(losses)}",
        spec=spec_of(values, layers, losses, step=8 * max(len(states), 2) + 8),
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
            **lane(shown),
            "x": {"field": "class", "type": "ordinal", "sort": names, "title": "committed how long after the append",
                  "scale": {"domain": names}, "axis": {"labelAngle": 0, "grid": False}},
        },
        "layer": [
            {
                "mark": {"type": "rect", "cornerRadius": 2, "color": COLOURS["calm"].light},
                "encoding": {
                    "fillOpacity": shade("share", 1),
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
        left_out=left_out(len(every) - len(shown), "line", "commit_latency"),
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
                **lane(names),
                **from_to(span),
                "color": colours("state", {COVERAGE_WORDS[state]: COVERAGE_COLOURS[state] for state in states}),
                "description": {"field": "told"},
            },
        }
    ]
    return Picture(
        key="coverage-picture",
        title="What the logs cover",
        caption="A line for each log of each broker. Where one is missing, or lacks lines, what it would have told is "
        f"not known.{losses_words(losses)}",
        spec=spec_of(values, layers, losses, step=20),
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
        left_out=left_out(len(rows) - len(shown), "span", "coverage"),
    )


def _place(row: Row) -> str:
    lived = f" (incarnation {row['incarnation']})" if row["incarnation"] else ""
    return printable(f"{row['topic']}-{row['partition']}{lived}")


def _log_key(row: Row) -> tuple[Any, ...]:
    return (row["broker_id"] is None, row["broker_id"] or 0, row["source"])


def _log_name(row: Row) -> str:
    log = LOGS[row["source"]]
    return log if row["broker_id"] is None else f"broker {row['broker_id']}, {log}"


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
