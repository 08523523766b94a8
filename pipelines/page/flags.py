"""The moments of an incident that its timeline names: elections, changes of the ISR, cuts, the last acknowledgement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.page.marks import LETTER, WIDTH, brokers, clock, short
from pipelines.page.partition_rows import microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.page.partition_rows import PartitionRows

    Row = Mapping[str, Any]

MOST_ROWS: Final = 7  # of words above the picture
SOON: Final = 10  # pixels within which two changes of the ISR are told as one


class Flag(NamedTuple):
    """A moment: when, in a few words, and in full; smaller ranks matter more."""

    time: int
    rank: int
    words: str
    told: str
    broker: int | None = None
    row: int = 0
    is_left: bool = False


def flags_of(incident: Row, rows: PartitionRows, start: int, end: int) -> list[Flag]:
    """Return the moments between start and end, in their order."""
    found = [*_elections(incident, rows), *_isr_changes(rows), *_cuts(incident, rows), *_acknowledgements(incident)]
    return sorted(flag for flag in found if start <= flag.time <= end)


def placed(flags: Sequence[Flag], start: int, end: int) -> tuple[list[Flag], int]:
    """Return the moments whose words have room, each with its row, and how many have none; what matters goes first."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MOST_ROWS)]
    shown: list[Flag] = []
    for flag in sorted(flags, key=lambda one: (one.rank, one.time, one.words)):
        at = (flag.time - start) / max(1, end - start) * WIDTH
        long = len(flag.words) * LETTER + 16
        is_left = at + long > WIDTH
        span = (at - long, at + 5) if is_left else (at - 5, at + long)
        if span[0] < -40:
            continue
        row = next(
            (place for place, spans in enumerate(taken) if all(span[1] < a or span[0] > b for a, b in spans)), None
        )
        if row is None:
            continue
        taken[row].append(span)
        shown.append(flag._replace(row=row, is_left=is_left))
    rows = {row: place for place, row in enumerate(sorted({flag.row for flag in shown}))}
    return sorted(flag._replace(row=rows[flag.row]) for flag in shown), len(flags) - len(shown)


def _elections(incident: Row, rows: PartitionRows) -> list[Flag]:
    made = []
    for row in rows.of("leadership_timeline"):
        if row["start_ts"] is None:
            continue
        is_it = row["leader_epoch"] == incident["new_leader_epoch"]
        who = "no leader" if row["leader_id"] is None or row["leader_id"] < 0 else f"broker {row['leader_id']} elected"
        how = row["election"].replace("_", " ")
        why = short(row["trigger"] or "nothing tells why", 200)
        told = f"{clock(row['start_ts'])}: {who}, leader epoch {row['leader_epoch']} ({how}): {why}"
        made.append(
            Flag(
                row["start_ts"],
                0 if is_it else 4,
                f"{who} ({how}), epoch {row['leader_epoch']}",
                told,
                row["leader_id"],
            )
        )
    return made


def _isr_changes(rows: PartitionRows) -> list[Flag]:
    began = {row["leader_epoch"]: row["start_ts"] for row in rows.of("leadership_timeline")}
    committed = [row for row in rows.of("isr_timeline") if row["state"] == "committed" and row["ts"] is not None]
    return [
        Flag(row["ts"], 3 if len(row["isr"]) == 1 else 5, f"ISR {brokers(row['isr'])}",
             f"{clock(row['ts'])}: ISR {brokers(row['isr_before'] or ())} becomes {brokers(row['isr'])} "
             f"({row['change'].replace('_', ' ')})")
        for row in committed
        if row["isr"] != row["isr_before"] and row["ts"] != began.get(row["leader_epoch"])
    ]  # fmt: skip


def _cuts(incident: Row, rows: PartitionRows) -> list[Flag]:
    made = []
    for row in rows.of("log_truncations"):
        if row["ts"] is not None:
            is_it = row["broker_id"] == incident["losing_broker_id"] and row["leo_after"] <= incident["first_offset"]
            before = "?" if row["leo_before"] is None else row["leo_before"]
            words = f"broker {row['broker_id']} cuts {before} → {row['leo_after']}"
            why = row["cause"].replace("_", " ")
            told = (
                f"{clock(row['ts'])}: broker {row['broker_id']} cut its log from {before} to {row['leo_after']} ({why})"
            )
            made.append(Flag(row["ts"], 1 if is_it else 4, words, told, row["broker_id"]))
    return made


def _acknowledgements(incident: Row) -> list[Flag]:
    first, last = microseconds(incident["first_ack_ts"]), microseconds(incident["last_ack_ts"])
    made = []
    if last is not None:
        made.append(
            Flag(
                last,
                2,
                "last acknowledgement of a lost record",
                f"{clock(last)}: a lost record is acknowledged for the last time",
                incident["losing_broker_id"],
            )
        )
    if first is not None and first != last:
        made.append(
            Flag(
                first,
                3,
                "first lost record acknowledged",
                f"{clock(first)}: a lost record is acknowledged for the first time",
                incident["losing_broker_id"],
            )
        )
    return made
