"""Pictures of how far the tables can be trusted: what equals the brokers' own lines, and which expectations hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipelines.page.lanes import MOST_LANES, PADDING, colours, lane, left_out
from pipelines.page.picture import Picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, Any]


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
        "encoding": lane(names),
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.7}},
                "encoding": {
                    "x": {"field": "share", "type": "quantitative", "title": "equal",
                          "axis": {"format": ".0%", "tickCount": 5}, "scale": {"domain": [0, 1]}},
                    "color": colours("equal", {"all equal": "calm", "some differ": "risk"}),
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
        left_out=left_out(len(compared) - len(shown), "check", "conformance"),
    )


def expectations(rows: Sequence[Row]) -> Picture:
    """Return how many expectations hold and do not hold, by table; `rows`: table, held, warnings, errors."""
    shown = sorted(rows, key=lambda row: (-row["errors"], -row["warnings"], row["table"]))[:MOST_LANES]
    return Picture(
        key="expectations-picture",
        title="Expectations on the tables",
        caption="What must hold of the tables whatever the recording, checked after each run.",
        spec=_holding({row["table"]: row for row in shown}),
        columns=("Table", "Hold", "Do not hold: warnings", "Do not hold: errors"),
        rows=[
            (row["table"], f"{row['held']:,}", f"{row['warnings']:,}", f"{row['errors']:,}")
            for row in sorted(rows, key=lambda row: row["table"])
        ],
        left_out=left_out(len(rows) - len(shown), "table", "expectation_results"),
    )


def trend(history: Sequence[Row]) -> Picture:
    """Return how many expectations held in run after run; `history`: as `quality_history` returns it."""
    shown = history[-MOST_LANES:]
    return Picture(
        key="quality-trend-picture",
        title="Expectations, run after run",
        caption="How many expectations held in each run that validated the recording, newest first. A later version of "
        "Tidemark, or a file of your own, may check more.",
        spec=_holding({_run_of(row): _counted(row) for row in shown[::-1]}),
        columns=("Run", "Hold", "Do not hold: warnings", "Do not hold: errors", "Newly failed", "Mended"),
        rows=[
            (
                _run_of(row),
                *(f"{count:,}" for count in _counted(row).values()),
                *("" if row[name] is None else ", ".join(row[name]) for name in ("newly_failed", "mended")),
            )
            for row in shown[::-1]
        ],
        left_out=left_out(len(history) - len(shown), "run", "expectation_results"),
    )


_SAID: Final = {"held": "hold", "warnings": "do not hold (warning)", "errors": "do not hold (error)"}


def _holding(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return a lane for each name, with how many expectations hold and do not."""
    values = [
        {"who": who, "state": words, "count": row[name], "order": at, "told": f"{who}: {row[name]:,} {words}"}
        for who, row in rows.items()
        for at, (name, words) in enumerate(_SAID.items())
        if row[name]
    ]
    return {
        "width": 420,
        "padding": PADDING,
        "height": {"step": 20},
        "data": {"values": values},
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {
            **lane(rows),
            "x": {"field": "count", "type": "quantitative", "title": "expectations", "axis": {"tickMinStep": 1}},
            "order": {"field": "order"},
            "color": colours("state", dict(zip(_SAID.values(), ("calm", "risk", "lost"), strict=True))),
            "description": {"field": "told"},
        },
    }


def _counted(row: Row) -> dict[str, int]:
    """Return how many expectations of a run held and did not, by the names of `_SAID`."""
    return dict(zip(_SAID, (row["held"], row["failed_warnings"], row["failed_errors"]), strict=True))


def _run_of(row: Row) -> str:
    """Return a run by when it began; the run that goes on has not said so yet."""
    return "this run" if row["started_ts"] is None else f"{row['started_ts']:%Y-%m-%d %H:%M:%S} ({row['run_id'][:8]})"


def _check_name(check: Row) -> str:
    return str(check["check"]).replace("_", " ")


def _first_difference(check: Row) -> str:
    first = check["first"]
    if first is None:
        return ""
    note = f": {first['note']}" if first["note"] else ""
    return f"{first['topic']}-{first['partition']} seq {first['first_mismatch_seq']}{note}"
