"""Which messages and moments tell how an incident's records came to be lost, in the order of the replay."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.page.marks import UNSURE, brokers, count, offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipelines.page.partition_rows import PartitionRows

    Row = Mapping[str, Any]

PRODUCER: Final = -2  # the column of whoever produced
MOST_STEPS: Final = 32
MOST_OTHER_CUTS: Final = 3  # of replicas that did not lose what was acknowledged
MOST_DECISIONS: Final = 10  # of the controller and about brokers, nearest to the loss
_FETCHES: Final = ("fetch_update", "fetch_read", "fetch_apply")
LOOSE: Final = ("fenced", "unfenced", "registered", "started")
_DECIDED: Final = ("elected", "isr")
_OF_OTHERS: Final = (*_DECIDED, "fenced", "unfenced", "registered")  # decided by the controller, of a broker
# In which turn those are put in their places that may stand where their time puts them.
_TURNS: Final = {"elected": 0, "isr": 0, "role": 1, "fenced": 2, "unfenced": 2, "registered": 2, "started": 3}
_FAR_US: Final = 1_000_000  # clocks of brokers are not as far from each other
_SKIPPED: Final = {
    "append": "append",
    "fetch_update": "fetch",
    "partition_change": "decision",
    "broker_change": "change of a broker",
}


class Step(NamedTuple):
    """A message from one column to another, or a moment of one; and what is left out before it."""

    seq: int
    time: int
    what: str  # produce, ack, fetch, answer, elected, isr, fenced, unfenced, cut, started
    sender: int
    receiver: int | None  # None: it stays where it is
    words: str
    evidence: str
    is_doom: bool = False  # from here on nobody who leads has the lost records
    skipped: str = ""

    @property
    def is_unsure(self) -> bool:
        """Whether it is bounded or not known."""
        return self.evidence in UNSURE


def is_lost(row: Row, incident: Row) -> bool:
    """Return whether any offset of a batch is of the lost slots."""
    base, following = row["base_offset"], row["next_offset"]
    return base is not None and any(
        row["leader_epoch"] == one["leader_epoch"]
        and (one["last_offset"] is None or base <= one["last_offset"])
        and (following if following is not None else base + 1) > one["first_offset"]
        for one in incident["ranges"]
    )


def story_of(incident: Row, rows: PartitionRows) -> list[Step]:
    """Return the steps, at most `MOST_STEPS`, each with what happened between it and the one before."""
    events = rows.of("replication_events")
    elected = next((at for at, row in enumerate(events) if _is_election(row, incident)), None)
    middle = len(events) if elected is None else elected
    doom = elected
    if incident["losing_broker_id"] == incident["new_leader_id"]:
        restarted = _restart(events, incident, middle)
        doom = elected if restarted is None else restarted
    wanted: dict[int, None] = {}
    for places in (_decisive(events, incident, middle), _fetches(events, incident, middle), _decisions(events, middle)):
        wanted.update(dict.fromkeys(places))
    kept = sorted(list(wanted)[:MOST_STEPS])
    led = {row["leader_epoch"]: row for row in rows.of("leadership_timeline")}
    ends = _ends_of_requests(events)
    again = _fenced_again(events)
    made = []
    for at in kept:
        row = events[at]
        step = _step(row, incident, led, is_doom=at == doom)
        if step is not None and at in again:
            step = step._replace(what="registered", words="registers, still fenced")
        if step is not None:
            # A leader reads before it notes how far the follower is; the fetch still comes before its answer.
            first, last = ends.get(row["request_id"], (at, at)) if row["kind"] in _FETCHES else (at, at)
            made.append((first if step.what == "fetch" else last, step.what == "answer", at, step))
    ordered = [(at, step) for _, _, at, step in sorted(made)]
    return _with_gaps(_floated(ordered), events)


def _fenced_again(events: Sequence[Row]) -> set[int]:
    """Return where brokers that were fenced already are said to be so: they start, and register anew."""
    fenced: dict[int, bool] = {}
    found = set()
    changes = [at for at, row in enumerate(events) if row["kind"] == "broker_change" and row["fenced"] is not None]
    for at in sorted(changes, key=lambda one: events[one]["ts"]):
        broker = events[at]["broker_id"]
        if events[at]["fenced"] and fenced.get(broker):
            found.add(at)
        fenced[broker] = events[at]["fenced"]
    return found


def _ends_of_requests(events: Sequence[Row]) -> dict[str, tuple[int, int]]:
    ends: dict[str, tuple[int, int]] = {}
    for at, row in enumerate(events):
        if row["request_id"] and row["kind"] in _FETCHES:
            ends[row["request_id"]] = (ends.get(row["request_id"], (at, at))[0], at)
    return ends


def _floated(ordered: Sequence[tuple[int, Step]]) -> list[tuple[int, Step]]:
    """Return the steps with those moved to their time that the order of the replay leaves loose.

    A broker that is fenced or starts is in no order with the messages of others. So it stands where its time puts it:
    among the controller's decisions, or after what its own log says before. A decision of which an old leader did not
    hear for long, paused or cut off, stands where it was made: what that leader acknowledged afterwards was gone.
    """
    loose = [one for place, one in enumerate(ordered) if _is_loose(one[1], ordered[:place])]
    placed = [one for one in ordered if one not in loose]
    for at, step in sorted(loose, key=lambda one: (_TURNS[one[1].what], one[0])):
        fixed = [place for place, other in enumerate(placed) if _stays_before(step, at, *other)]
        place = max(fixed, default=-1) + 1
        while place < len(placed):
            if placed[place][1].time >= step.time or _stays_after(step, placed[place][1]):
                break
            place += 1
        placed.insert(place, (at, step))
    return placed


def _is_loose(step: Step, before: Sequence[tuple[int, Step]]) -> bool:
    """Return whether a step stands where its time puts it: a decision only if it is far from there."""
    if step.what in LOOSE:
        return True
    return step.what in _TURNS and any(other.time > step.time + _FAR_US for _, other in before)


def _stays_before(step: Step, at: int, other_at: int, other: Step) -> bool:
    """Return whether another step is surely before it."""
    if step.what == "started":
        return other.what not in _OF_OTHERS and step.sender in (other.sender, other.receiver) and other_at < at
    if step.what == "role":
        return other.what == "elected" and other.sender == step.sender and other_at < at
    return other.what in _DECIDED and other.time < step.time


def _stays_after(step: Step, other: Step) -> bool:
    if step.what == "started":
        return other.what not in _OF_OTHERS and step.sender in (other.sender, other.receiver)
    return step.what != "role" and other.what in _DECIDED


def _with_gaps(ordered: Sequence[tuple[int, Step]], events: Sequence[Row]) -> list[Step]:
    """Return the steps, each with what is left out before it."""
    steps: list[Step] = []
    before, drawn = -1, {at for at, _ in ordered}
    for at, step in ordered:
        skipped = (
            [row for place, row in enumerate(events[before + 1 : at], before + 1) if place not in drawn]
            if steps
            else []
        )
        steps.append(step._replace(skipped=_between(skipped, steps, step)))
        before = max(before, at)
    return steps


def _restart(events: Sequence[Row], incident: Row, middle: int) -> int | None:
    """Return where the losing broker loaded its log last before it led again: what it lacked then is gone."""
    broker = incident["losing_broker_id"]
    took = (at for at in range(middle, len(events)) if events[at]["kind"] == "role_change")
    until = next((at for at in took if events[at]["broker_id"] == broker), middle)
    found = (at for at in range(min(until, len(events))) if events[at]["kind"] == "log_load")
    found = (at for at in found if events[at]["broker_id"] == broker)
    return max(found, default=None)


def _is_election(row: Row, incident: Row) -> bool:
    return (
        row["kind"] == "partition_change"
        and incident["new_leader_epoch"] is not None
        and row["leader_epoch"] == incident["new_leader_epoch"]
    )


def _decisive(events: Sequence[Row], incident: Row, middle: int) -> Iterator[int]:
    """Yield the election, the cut, and the first and the last lost batch with its acknowledgement."""
    if middle < len(events):
        yield middle
        yield from [at for at in [_restart(events, incident, middle)] if at is not None]
        took = (at for at in range(middle, len(events)) if events[at]["kind"] == "role_change")
        yield from (at for at in list(took)[:1] if events[at]["role"] == "leader")
    cuts = [
        at
        for at, row in enumerate(events)
        if row["kind"] == "truncation" and row["broker_id"] == incident["losing_broker_id"]
    ]
    others = [at for at, row in enumerate(events) if row["kind"] == "truncation" and at not in cuts]
    yield from sorted(others, key=lambda at: abs(at - middle))[:MOST_OTHER_CUTS]
    for cut in [at for at in cuts if at >= min(middle, len(events) - 1)][:1]:
        yield cut
        asked = events[cut]["request_id"]
        yield from (at for at in range(max(0, cut - 200), cut) if asked and events[at]["request_id"] == asked)
    acked = [
        at
        for at, row in enumerate(events)
        if row["kind"] == "ack" and row["error_code"] == 0 and is_lost(row, incident)
    ]
    appended = {row["request_id"]: at for at, row in enumerate(events) if row["kind"] == "append" and row["request_id"]}
    for at in [acked[-1], acked[0]] if acked else []:
        yield at
        if events[at]["request_id"] in appended:
            yield appended[events[at]["request_id"]]
    if not acked:
        lost = [at for at, row in enumerate(events) if row["kind"] == "append" and is_lost(row, incident)]
        yield from lost[-1:]


def _fetches(events: Sequence[Row], incident: Row, middle: int) -> Iterator[int]:
    """Yield the last fetch of each other replica before the loss, and the first one from the new leader after it."""
    parts: dict[str, list[int]] = {}
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    for at, row in enumerate(events):
        if row["kind"] in {"fetch_update", "fetch_read", "fetch_apply"} and row["request_id"]:
            parts.setdefault(row["request_id"], []).append(at)
        if row["kind"] == "fetch_update" and row["error_code"] in (0, None):
            if at < middle and row["broker_id"] == incident["losing_broker_id"]:
                last[row["replica_id"]] = at
            elif at > middle and row["broker_id"] == incident["new_leader_id"]:
                first.setdefault(row["replica_id"], at)
    for at in [*last.values(), *first.values()]:
        yield at
        answer = [one for one in parts.get(events[at]["request_id"] or "", ()) if events[one]["kind"] == "fetch_apply"]
        read = [one for one in parts.get(events[at]["request_id"] or "", ()) if events[one]["kind"] == "fetch_read"]
        yield from (answer or read)[:1]


def _decisions(events: Sequence[Row], middle: int) -> list[int]:
    places = [
        at for at, row in enumerate(events)
        if row["kind"] in {"partition_change", "log_load"}
        or (row["kind"] == "broker_change" and row["fenced"] is not None)
    ]  # fmt: skip
    return sorted(places, key=lambda at: abs(at - middle))[:MOST_DECISIONS]


def _between(skipped: Sequence[Row], steps: Sequence[Step], step: Step) -> str:
    """Say how long nothing is drawn for, and what happened in between."""
    if not steps:
        return ""
    counted = Counter(row["kind"] for row in skipped if row["kind"] in _SKIPPED)
    told = [
        count(counted[kind], word, {"fetch": "fetches", "change of a broker": "changes of brokers"}.get(word))
        for kind, word in _SKIPPED.items()
        if counted[kind]
    ]
    passed = (step.time - max(one.time for one in steps)) / 1_000_000
    if not told and passed < 1:
        return ""
    return (
        f"{passed:,.1f} s later" + (f"; not drawn: {', '.join(told)}" if told else "")
        if passed >= 0.1
        else f"not drawn: {', '.join(told)}"
    )


def _step(row: Row, incident: Row, led: Mapping[int, Row], *, is_doom: bool) -> Step | None:
    """Return an event as a step; None: it says nothing that can be drawn."""
    kind, broker = row["kind"], row["broker_id"]
    made = {
        "append": _produce,
        "ack": _produce,
        "fetch_update": _fetch,
        "fetch_read": _answer,
        "fetch_apply": _answer,
    }.get(kind)
    if made is not None:
        return made(row, incident)
    if kind == "partition_change":
        return _decision(row, led, is_doom=is_doom)
    start, end = "" if row["leo"] is None else f" from offset {row['leo']}", row["leo"]
    words = {
        "truncation": ("cut", f"cuts its log to {row['truncate_to']}"),
        "broker_change": ("fenced", "fenced: dead to the controller")
        if row["fenced"]
        else ("unfenced", "back: no longer fenced"),
        "role_change": ("role", f"leads epoch {row['leader_epoch']}{start}"),
        "log_load": ("started", "starts" + ("" if end is None else f": its log ends at {end}")),
    }[kind]  # fmt: skip
    return (
        None
        if broker is None
        else Step(row["seq"], row["ts"], words[0], broker, None, words[1], row["evidence"], is_doom=is_doom)
    )


def _produce(row: Row, incident: Row) -> Step:
    base, following = row["base_offset"], row["next_offset"]
    which = "?" if base is None else offsets(base, base if following is None else following - 1)
    acks = {-1: "all", 1: "1", 0: "0"}.get(row["acks"], "?")
    lost = " (lost)" if is_lost(row, incident) else ""
    if row["kind"] == "append":
        return Step(
            row["seq"],
            row["ts"],
            "produce",
            PRODUCER,
            row["broker_id"],
            f"produce {which}, acks={acks}{lost}",
            row["evidence"],
        )
    good = row["error_code"] == 0
    words = (
        f"{which} acknowledged"
        if good
        else f"{which}: no answer known"
        if row["error_code"] is None
        else f"{which}: error {row['error_code']}"
    )
    return Step(
        row["seq"], row["ts"], "ack", row["broker_id"], PRODUCER, words + (lost if good else ""), row["evidence"]
    )


def _fetch(row: Row, incident: Row) -> Step:  # noqa: ARG001 - as the others
    words = "fetch" if row["fetch_offset"] is None else f"fetch from {row['fetch_offset']}"
    end = row["diverging_end_offset"]
    return Step(
        row["seq"],
        row["ts"],
        "fetch",
        row["replica_id"],
        row["broker_id"],
        words + ("" if end is None else f": diverges at {end}"),
        row["evidence"],
    )


def _answer(row: Row, incident: Row) -> Step:  # noqa: ARG001 - as the others
    is_apply = row["kind"] == "fetch_apply"
    sender, receiver = row["broker_id"], row["replica_id"]
    parts = [f"log to {row['next_offset']}"] if is_apply and row["next_offset"] is not None else []
    parts += [] if row["response_hw"] is None else [f"HW {row['response_hw']}"]
    return Step(
        row["seq"],
        row["ts"],
        "answer",
        sender,
        receiver,
        "answer: " + (", ".join(parts) or "nothing said"),
        row["evidence"],
    )


def _decision(row: Row, led: Mapping[int, Row], *, is_doom: bool) -> Step | None:
    epoch = led.get(row["leader_epoch"])
    where = row["leader_id"] if row["leader_id"] is not None and row["leader_id"] >= 0 else None
    if epoch is not None and epoch["start_ts"] == row["ts"]:
        how = epoch["election"].replace("_", " ")
        who = "no leader" if where is None else f"elected leader of epoch {row['leader_epoch']}"
        at = where if where is not None else next(iter(row["isr"] or ()), None)
        if at is None:
            return None
        return Step(
            row["seq"],
            row["ts"],
            "elected",
            at,
            None,
            f"{who} ({how}), ISR {brokers(row['isr'] or ())}",
            row["evidence"],
            is_doom=is_doom,
        )
    if where is None:
        return None
    return Step(
        row["seq"],
        row["ts"],
        "isr",
        where,
        None,
        f"ISR is now {brokers(row['isr'] or ())}",
        row["evidence"],
        is_doom=is_doom,
    )
