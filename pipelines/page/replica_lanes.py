"""What each broker was to a partition, span by span: leader, in the ISR, out, fenced; and where nothing is logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.page.partition_rows import PartitionRows

    Row = Mapping[str, Any]

LEADER: Final = "leader"
IN_ISR: Final = "in ISR"
OUT: Final = "out of ISR"
FENCED: Final = "fenced"
NOT_KNOWN: Final = "not known"


class Span(NamedTuple):
    """What a broker was for a time, in microseconds."""

    state: str
    start: int
    end: int


class Silence(NamedTuple):
    """A time from which no request log of a broker says anything, or not all."""

    start: int
    end: int
    state: str  # as in coverage
    reason: str


def brokers_of(rows: PartitionRows, incident: Row) -> list[int]:
    """Return the brokers that hold the partition, or are said to have held it."""
    found = {row["broker_id"] for row in rows.of("leo_timeline") if row["observer"] == "local"}
    for row in rows.of("isr_timeline"):
        found.update(row["isr"] or ())
    found.update(row["leader_id"] for row in rows.of("leadership_timeline"))
    found.update(incident[name] for name in ("losing_broker_id", "old_leader_id", "new_leader_id"))
    return sorted(one for one in found if one is not None and one >= 0)


def most_telling(brokers: Sequence[int], incident: Row, most: int) -> list[int]:
    """Return those brokers that matter most to the loss, at most so many, by their ids."""
    first = [incident["losing_broker_id"], incident["new_leader_id"], incident["old_leader_id"]]
    wanted = [one for one in dict.fromkeys(first) if one in brokers]
    return sorted([*wanted, *(one for one in brokers if one not in wanted)][:most])


def lane_of(broker: int, rows: PartitionRows, start: int, end: int) -> list[Span]:
    """Return what the broker was from start to end; where no row tells it is not known."""
    isr = [
        (row["ts"], broker in (row["isr"] or ()))
        for row in rows.of("isr_timeline")
        if row["state"] == "committed" and row["ts"] is not None
    ]
    led = [
        (row["start_ts"], row["leader_id"] == broker)
        for row in rows.of("leadership_timeline")
        if row["start_ts"] is not None
    ]
    fenced = _fenced(broker, rows)
    times = sorted({start, *(time for time, _ in (*isr, *led, *fenced) if start < time < end)})
    spans: list[Span] = []
    for time, until in zip(times, [*times[1:], end], strict=True):
        state = _state(_last(isr, time), _last(led, time), _last(fenced, time))
        if spans and spans[-1].state == state:
            spans[-1] = spans[-1]._replace(end=until)
        else:
            spans.append(Span(state, time, until))
    return spans


Part = TypeVar("Part", Span, Silence)


def longest(parts: Sequence[Part], most: int) -> list[Part]:
    """Return the longest parts, at most so many, in their order."""
    kept = sorted(parts, key=lambda one: (one.start - one.end, one.start))[:most]
    return sorted(kept, key=lambda one: (one.start, one.end))


def state_at(broker: int, rows: PartitionRows, seq: int, time: int) -> str:
    """Return what the broker was at a place in the replay's order; whether it was fenced, by the controller's time."""
    committed = [row for row in rows.of("isr_timeline") if row["state"] == "committed" and row["seq"] <= seq]
    fenced = [(when, is_so) for when, is_so in _fenced(broker, rows) if when <= time]
    if not committed:
        return NOT_KNOWN
    return _state(broker in (committed[-1]["isr"] or ()), committed[-1]["leader_id"] == broker, _last(fenced, time))


def silences_of(broker: int, rows: PartitionRows, start: int, end: int) -> list[Silence]:
    """Return where the broker's request log has holes."""
    return [
        Silence(max(row["start_ts"], start), min(row["end_ts"], end), row["state"], row["reason"] or "")
        for row in rows.of("coverage")
        if row["broker_id"] == broker
        and row["source"] == "request_log"
        and row["state"] != "logged"
        and row["start_ts"] < end
        and row["end_ts"] > start
    ]


def _fenced(broker: int, rows: PartitionRows) -> list[tuple[int, bool]]:
    found = [
        (row["ts"], bool(row["fenced"]))
        for row in rows.of("replication_events")
        if row["kind"] == "broker_change" and row["broker_id"] == broker and row["fenced"] is not None
    ]
    return sorted(found, key=lambda one: one[0])


def _state(in_isr: bool | None, led: bool | None, fenced: bool | None) -> str:  # noqa: FBT001 - what is known of each
    if led:  # a leader that is fenced is none any longer from the next decision on
        return LEADER
    if fenced:
        return FENCED
    if in_isr is None:
        return NOT_KNOWN
    return IN_ISR if in_isr else OUT


def _last(told: Sequence[tuple[int, bool]], time: int) -> bool | None:
    """Return what was said last until then; of several at one time, the last."""
    known = [said for when, said in told if when <= time]
    return known[-1] if known else None
