"""min.insync.replicas of a partition over time: the topic's setting, else the cluster's default, else the brokers'."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replay.evidence.controller_view import MIN_ISR_SETTING
from replay.evidence.tenures import micros
from replay.protocol.state import MIN_ISR_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.evidence.rows import Row
    from replay.evidence.tenures import Decision

ROLE_TAKES_US = 1_000_000  # the longest time that a broker takes to carry out a decision, as far as its times show


class MinIsr(NamedTuple):
    """The value when the first decision is made (None: unknown), and each change after it."""

    opening: int | None
    changes: list[tuple[Row, int]]


def min_isr_of(rows: Iterable[Row], decisions: Sequence[Decision], own: int | None, *, is_whole: bool) -> MinIsr:
    """min.insync.replicas in metadata order. `own`: the brokers' default.

    Without metadata, the values that brokers state for the topic when they create its log or learn of a change, by
    time. If the topic's configuration is not available from its beginning (`is_whole`), it may have a setting that no
    source states.
    """
    mine = [r for r in rows if r["kind"] == "config_change" and r["name"] == MIN_ISR_SETTING]
    told = sorted((r for r in mine if r["metadata_offset"] is not None), key=lambda r: r["metadata_offset"])
    own = own if is_whole else None
    if not told:
        return stated_min_isr([r for r in mine if r["topic"] is not None and r["ts"] is not None], decisions, own)
    first, changes = own, []
    topic, cluster = None, None
    for row in told:
        if row["topic"] is None and row["subject_broker_id"] is not None:
            continue  # one broker's own
        if row["topic"] is not None:
            topic = number_in(row)
        else:
            cluster = number_in(row)
        now = topic if topic is not None else cluster if is_whole and cluster is not None else own
        if not decisions or row["metadata_offset"] <= decisions[0].place or row["ts"] == decisions[0].row["ts"]:
            first = now
        else:
            changes.append((row, now or MIN_ISR_UNKNOWN))
    return MinIsr(first, changes)


def stated_min_isr(stated: Iterable[Row], decisions: Sequence[Decision], own: int | None) -> MinIsr:
    """Values and when they begin, as brokers' lines state them; what held before the first line is unknown.

    A log is created when its broker takes up its first role, so the value in that line holds from the first decision
    on.
    """
    opening = decisions[0].us if decisions else None
    first, changes = own, []
    now: int | None = None
    for row in sorted(stated, key=lambda r: (micros(r["ts"]), r["source_file"], r["source_line"])):
        value = number_in(row)
        if value is None or value == now:
            continue
        if opening is None or micros(row["ts"]) <= opening + ROLE_TAKES_US:
            first = value
        elif value != first or now is not None:
            changes.append((row, value))
        now = value
    return MinIsr(first, changes)


def number_in(row: Row) -> int | None:
    """The value of a setting as a number; None: it was removed, or is no number."""
    return int(row["value"]) if (row["value"] or "").isdigit() else None
