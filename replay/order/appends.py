"""A tenure's batches: which produces were appended, and at which offsets.

A produce line has no record count, and its answer states only the base offset: a batch ends where the next one begins.
Its end is taken from the best evidence available: segment dumps, the next base offset, offsets from which followers
fetched (they fetch whole batches), the leader's LEO when next stated. A batch that evidence shows but no line reports
is inserted. Transaction markers have no base offset at all (`markers`). `batch_ends` decides whether a batch certainly
reaches its end: behind the last batch with a line there may be others whose lines were lost with the broker.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.ints import NEVER
from replay.engine.codes import ENDS_OF_A_WAIT
from replay.evidence.batch_ends import MARKER_BYTES, Extents
from replay.evidence.broker_pauses import between
from replay.evidence.client_quotas import NO_LIMIT
from replay.evidence.leader_lines import append_lines, as_told, is_within
from replay.evidence.markers import MARKER_NAMES, Markers, may_be_marked, outcome_of, producer_of
from replay.evidence.request_times import TIMING, Window, done_window, line_window, local_window, phases, phases_at
from replay.evidence.rows import places_of
from replay.evidence.tenures import micros
from replay.evidence.unheard_answers import arrived_unseen, unconfirmed
from replay.order.front import OP_ACK, OP_APPEND
from replay.order.operation_blocks import Block, chosen, drafts_at, operations_of
from replay.order.operations import Draft, Operation
from replay.protocol.produce import NOT_ENOUGH_REPLICAS_AFTER_APPEND

if TYPE_CHECKING:
    from replay.arrays.ints import Ints
    from replay.evidence.client_quotas import ClientQuotas
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.request_times import Phases
    from replay.evidence.rows import FactColumns, Row
    from replay.evidence.tenures import Tenure

PRODUCED = ("bytes", "acks", "error_code", "client_id")  # copied from the produce to its append and its answer
WAITED = ("max_wait_ms", "request_timed_out")  # copied to the answer only


@dataclass(slots=True)
class LogBatch:
    """One appended batch [base, end), with its produce or its marker; with neither, it was inserted."""

    base: int
    end: int
    evidence: str  # of the end
    row: Row | None
    marker: Row | None = None
    named: bool = True  # whether the marker is certainly this one

    @property
    def bytes(self) -> int | None:
        """Its size; None if unknown."""
        if self.marker is not None:
            return MARKER_BYTES
        size: int | None = None if self.row is None else self.row["bytes"]
        return size


def was_appended(row: Row) -> bool:
    """Whether the produce reached the log: it succeeded, had no answer (acks=0), or failed only after waiting.

    An answer states a base offset only if the batch was appended, whatever became of it afterwards.
    """
    error, base = row["error_code"], row["base_offset"]
    if error in (None, 0) or (base is not None and base >= 0):
        return True
    waited = row["acks"] == -1 and bool(row["remote_us"])
    return error == NOT_ENOUGH_REPLICAS_AFTER_APPEND or (waited and error in ENDS_OF_A_WAIT)


def produces_by_tenure(facts: PartitionFacts) -> dict[int, list[Row]]:
    """Every produce that was appended or answered, by the leader epoch of its broker, if that is certain."""
    out: dict[int, list[Row]] = defaultdict(list)
    for row, (epoch, sure) in zip(facts.by_kind["produce"], facts.places, strict=True):
        if epoch is not None and sure and was_appended(row):
            out[epoch].append(row)
    return {epoch: in_order(rows) for epoch, rows in out.items()}


def markers_by_tenure(facts: PartitionFacts) -> dict[int, list[Row]]:
    """Every transaction marker that was or may have been appended, by the leader epoch of its broker."""
    out: dict[int, list[Row]] = defaultdict(list)
    for row in facts.by_kind["transaction"]:
        epoch = facts.epoch_at(row["broker_id"], phases(row).local) if row["name"] in MARKER_NAMES else None
        if epoch is not None and may_be_marked(row):
            out[epoch].append(row)
    return {epoch: in_order(rows) for epoch, rows in out.items()}


def in_order(rows: list[Row]) -> list[Row]:
    """Requests in the order in which they were handled."""
    return sorted(rows, key=lambda r: (phases(r).local, r["connection"] or "", r["correlation_id"] or 0))


class Appended(NamedTuple):
    """A tenure's batches in offset order, produces that appended nothing new, and evidence that none is missing."""

    batches: list[LogBatch]
    duplicates: list[LogBatch]
    extents: Extents
    lines: dict[int, Row]  # the leader's own lines, by base offset
    apart: Ints | None  # see `Markers.parted`


def batches_of(facts: PartitionFacts, tenure: Tenure, produces: list[Row], marked: list[Row]) -> Appended:
    """What a tenure appended. `marked`: its transaction markers."""
    start = facts.starts.get(tenure.epoch)
    placed: dict[int, Row] = {}
    duplicates: list[LogBatch] = []
    floating: list[Row] = []
    for row in produces:
        base = row["base_offset"]
        if base is None or base < 0:
            floating.append(row)
        elif base in placed or (start is not None and base < start[0]):
            duplicates.append(LogBatch(base, base + 1, "bounded", row))
        else:
            placed[base] = row
    lines = append_lines(facts, tenure, placed)
    told = {base: line["last_offset"] + 1 for base, line in lines.items()}
    stated = told | facts.segments.get(tenure.epoch, {})
    edges = known_edges(facts, tenure, placed, stated)
    extents = Extents(facts, tenure, placed)
    batches, apart = lay_out(facts, tenure, (placed, floating, marked), edges, (stated, lines), extents)
    extents.control = [batch.base for batch in batches if batch.marker is not None]
    for batch in batches:
        if not extents.is_heard or (batch.evidence == "derived" and not extents.is_whole(batch.base, batch.end)):
            batch.evidence = "bounded"
    return Appended(batches, duplicates, extents, lines, apart)


def append_chain(
    facts: PartitionFacts, tenure: Tenure, appended: Appended
) -> tuple[list[Operation | Block], list[Block]]:
    """The tenure's appends in offset order, and the answers to its produces."""
    batches, duplicates, extents, lines, _ = appended
    inserted = inserted_batches(tenure, batches, extents, lines)
    if not duplicates and all(batch.row is None for batch in batches):
        return inserted, []
    appends, acks = produced_batches(facts, tenure, (batches, duplicates), lines)
    return [*inserted, appends], [acks]


def inserted_batches(
    tenure: Tenure, batches: list[LogBatch], extents: Extents, lines: dict[int, Row]
) -> list[Operation | Block]:
    """Markers, and batches without a produce, which may have come at any time up to the fetch that shows them.

    `lines`: the leader's own lines by base offset; they state the time.
    """
    out: list[Operation | Block] = []
    before: Window | None = None
    for place, batch in enumerate(batches):
        if batch.row is not None:
            before = local_window(phases(batch.row))
            continue
        if batch.marker is not None:
            line = lines.get(batch.base)
            before = local_window(phases(batch.marker)) if line is None else line_window(micros(line["ts"]))
            fields = append_fields(tenure, batch.base, batch.end, batch.evidence)
            fields |= {"is_control": True, "bytes": MARKER_BYTES, "error_code": batch.marker["error_code"]}
            fields["transaction"] = MARKER_NAMES[batch.marker["name"]]
            fields["producer_id"] = batch.marker["producer_id"] if batch.named else None
            draft = Draft("append", batch.marker, before, fields)
            out.append(Operation(OP_APPEND, before, [draft], offset=batch.end, place=place))
            continue
        shown = extents.fetched_by(batch.end)
        earliest = before.lo if before else (tenure.decisions[0].us if tenure.decisions else 0)
        latest = shown if shown is not None else before.hi if before else earliest
        before = Window(min(earliest, latest), latest, latest)
        if batch.base in lines:
            before = line_window(micros(lines[batch.base]["ts"]))
        is_timed = shown is not None or batch.base in lines  # otherwise it is unknown which ISR it met
        fields = append_fields(tenure, batch.base, batch.end, batch.evidence)
        fields["evidence"] = "derived" if is_timed else "bounded"
        draft = Draft("append", None, before, fields)
        out.append(Operation(OP_APPEND, before, [draft], offset=batch.end, place=place))
    return out


def append_fields(tenure: Tenure, base: Any, end: Any, evidence: Any) -> dict[str, Any]:  # noqa: ANN401 - one, or columns
    """The fields of an append of [base, end), shared by the answer to its produce."""
    return {
        "broker_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "base_offset": base,
        "next_offset": end,
        "next_offset_evidence": evidence,
        "duplicate": False,
        "evidence": "observed",
    }


def produced_batches(
    facts: PartitionFacts, tenure: Tenure, appended: tuple[list[LogBatch], list[LogBatch]], lines: dict[int, Row]
) -> tuple[Block, Block]:
    """Appends by produces, and the answers to them.

    acks=all is answered once the HW has passed the batch, acks=1 as soon as it is appended; a retry waits for the HW,
    too. `appended`: batches, and retries of some of them; `lines`: the leader's own lines, by base offset.
    """
    batches, duplicates = appended
    found = [(place, batch) for place, batch in enumerate(batches) if batch.row is not None]
    told = [*(batch for _, batch in found), *duplicates]
    rows = [batch.row for batch in told if batch.row is not None]
    columns, places = rows[0].columns, places_of(rows)
    base, end = (np.array([getattr(batch, name) for batch in told], np.int64) for name in ("base", "end"))
    fields = append_fields(tenure, base, end, [batch.evidence for batch in told])
    at = phases_at(columns, places)
    repeats = np.arange(len(told)) >= len(found)
    local = as_told(
        local_window(at), [None if again else lines.get(b.base) for b, again in zip(told, repeats, strict=True)]
    )
    window = done_window(columns.numbers("remote_us", places) != 0, at)
    held_up, again = unconfirmed(facts, rows), facts.sent_again(tenure, rows)
    again |= arrived_unseen(facts, tenure.leader, rows)
    sure = np.where(held_up, facts.has_own_log(tenure.leader), ~again)
    said_too = {"duplicate": repeats, "unconfirmed": held_up | again, "evidence": chosen(sure, "observed", "bounded")}
    answered = Window(window.lo, at.stamp, at.stamp + 1000)
    said_too |= {"stood_still_us": still_beyond_timeout(facts, tenure.leader, columns, places, at)}
    if facts.client_quotas.limits(tenure.leader):
        said_too["client_quota"] = rates_of(facts.client_quotas, tenure.leader, columns.chosen("client_id", places), at)
    copied = (*PRODUCED, *WAITED, *TIMING)
    answers = drafts_at(columns, places, answered, "ack", fields | said_too, copied)

    acks, error = columns.numbers("acks", places), columns.numbers("error_code", places)
    known = columns.known("error_code", places)
    waits = (acks == -1) & known & (error == 0)
    at_once = ~repeats & ~waits & known & ((acks != 0) | ~columns.known("acks", places))
    events = 1 + at_once[~repeats]
    first = np.cumsum(events) - events
    names = columns.chosen("transactional_id", places).to_pylist()
    ended = [
        outcome_of(facts.outcomes, name, tenure.epoch, us) or ("open" if name else None)
        for name, us in zip(names, at.local.tolist(), strict=True)
    ]
    said = fields | {"transaction": pa.array(ended, pa.string())}
    if facts.producers:
        ids = [producer_of(facts.producers, *one) for one in zip(names, at.stamp.tolist(), strict=True)]
        said["producer_id"] = pa.array(ids, pa.int64())
    events_of = drafts_at(columns, places, local, "append", said, PRODUCED).only(~repeats)
    appends = Block(
        np.array([place for place, _ in found], np.int64),
        operations_of(
            Window(*(times[~repeats] for times in local)),
            type=OP_APPEND,
            first=first,
            count=events,
            offset=end[~repeats],
        ),
        [events_of.numbered(first), answers.only(at_once).numbered(first[at_once[~repeats]] + 1)],
    )
    later = waits | repeats
    times = Window(*(one[later] for one in window))
    numbers = np.arange(len(times.est))
    order = np.empty(len(numbers), np.int64)
    order[np.lexsort((base[later], times.est))] = numbers
    needed = np.where(waits, end, 0)[later]
    answer = operations_of(times, type=OP_ACK, first=numbers, count=1, hw=needed)
    return appends, Block(order, answer, [answers.only(later).numbered(numbers)])


def rates_of(quotas: ClientQuotas, leader: int, clients: pa.Array, at: Phases) -> pa.Array:
    """The rate to which a leader limited the client of each produce as it answered; null: none is known."""
    asked = zip(clients.to_pylist(), at.completed.tolist(), strict=True)
    rates = np.array([quotas.rate(leader, client or "", us) for client, us in asked], np.int64)
    return pa.array(rates, mask=rates == NO_LIMIT)


def still_beyond_timeout(
    facts: PartitionFacts, leader: int, columns: FactColumns, places: Ints, at: Phases
) -> pa.Array:
    """For how long the leader stood still while a produce waited longer than it would; null: it did not, or neither.

    What would have ended the wait at its timeout stood still, too.
    """
    allowed, waited = columns.numbers("max_wait_ms", places) * 1000, columns.numbers("remote_us", places)
    spans = facts.standstills.get(leader, ())
    out = np.zeros(len(places), np.int64)
    for k in np.flatnonzero(columns.known("max_wait_ms", places) & (waited > allowed)).tolist() if spans else ():
        out[k] = sum(after - before for before, after in between(spans, int(at.local[k]), int(at.stamp[k])))
    return pa.array(out, mask=out == 0)


def known_edges(facts: PartitionFacts, tenure: Tenure, placed: dict[int, Row], stated: dict[int, int]) -> list[int]:
    """Offsets at which a batch of this tenure is known to begin or end, rising. `stated`: base -> end of batches."""
    start = facts.starts.get(tenure.epoch)
    edges = set(facts.edges.get(tenure.epoch, ()))
    if start is not None:
        edges = {edge for edge in edges if edge >= start[0]} | {start[0]}
    for base, end in stated.items():
        edges |= {base, end}
    leo = facts.turns.stated_after(tenure)
    if leo is not None and leo >= max(edges, default=0):
        edges.add(leo)  # if lower, its log was truncated before it stated this
    reached = max([*edges, *placed], default=0)
    opened = facts.open_bases
    edges |= {*opened[bisect_right(opened, min(edges, default=reached)) : bisect_left(opened, reached)]}
    return sorted(edges)


def lay_out(
    facts: PartitionFacts,
    tenure: Tenure,
    lines: tuple[dict[int, Row], list[Row], list[Row]],
    edges: list[int],
    told: tuple[dict[int, int], dict[int, Row]],
    extents: Extents,
) -> tuple[list[LogBatch], Ints | None]:
    """Base offsets and edges -> batches without holes, from the tenure's start to its last known end.

    Also says where its markers are apart (`Markers.parted`).

    `lines`: produces with a base offset, those without, and markers; `told`: ends that sources state, and the leader's
    own lines, by base offset.
    """
    placed, floating, marked = lines
    stated, own_lines = told
    marks = sorted({*placed, *edges})
    if not marks:
        return [], None
    start = facts.starts.get(tenure.epoch)
    first = start[0] if start is not None else min(placed, default=marks[0])
    marks = [m for m in marks if m >= first]
    until = next_times(placed, marks)
    waiting = deque(floating)
    # Where only a coordinator writes, as to `__consumer_offsets`, no line tells of batches among which they may stand.
    markers = Markers(marked if placed or stated or floating else [], marks, placed, stated, extents)
    batches: list[LogBatch] = []
    for place, base in enumerate(marks):
        after = marks[place + 1] if place + 1 < len(marks) else None
        row = placed.get(base)
        if row is None and after is None:
            break
        control, maybe, named = markers.at(base)
        if row is None and after is not None and len(control) == after - base:
            batches += control_batches(base, control, named=named)
            continue
        if row is None:
            row = (
                next_floating(waiting, until[place]) if base not in own_lines else floating_at(waiting, own_lines[base])
            )
        if after is None:
            batches.append(LogBatch(base, stated.get(base, base + 1), "observed" if base in stated else "bounded", row))
        elif base in stated:
            batches.append(LogBatch(base, after, "observed", row))
        elif row is None or not (control or maybe):
            batches += split(base, after, row, waiting, until=until[place])
        else:
            end = max(after - len(control), base + 1)
            own = split(base, end, row, waiting, until=until[place])
            for batch in own if maybe else ():
                batch.evidence = "bounded"
            batches += [*own, *control_batches(end, control, named=named)]
    return batches, markers.apart


def control_batches(base: int, markers: list[Row], *, named: bool) -> list[LogBatch]:
    """Markers one after the other, from `base` on."""
    return [LogBatch(at, at + 1, "derived", None, marker, named) for at, marker in enumerate(markers, base)]


def next_times(placed: dict[int, Row], marks: list[int]) -> list[int]:
    """For each mark, when the next produce with a known base was handled."""
    out = [NEVER] * len(marks)
    for place in range(len(marks) - 2, -1, -1):
        after = placed.get(marks[place + 1])
        out[place] = phases(after).local if after is not None else out[place + 1]
    return out


def next_floating(waiting: deque[Row], until: int) -> Row | None:
    """The next unplaced produce (acks=0, or failed after appending) if its time fits a hole; else None."""
    if waiting and phases(waiting[0]).local <= until:
        return waiting.popleft()
    return None


def floating_at(waiting: deque[Row], line: Row) -> Row | None:
    """The unplaced produce, by time, that the leader's line about an append belongs to; else None."""
    found = next((k for k, row in enumerate(waiting) if is_within(line, row)), None)
    if found is None:
        return None
    row = waiting[found]
    del waiting[found]
    return row


def split(base: int, after: int, row: Row | None, waiting: deque[Row], *, until: int) -> list[LogBatch]:
    """[base, after) as one batch, or as several if unplaced produces fall into it."""
    inside: list[Row] = []
    while waiting and phases(waiting[0]).local < until and len(inside) < after - base - 1:
        inside.append(waiting.popleft())
    if not inside:
        return [LogBatch(base, after, "derived", row)]
    rows = sorted([row, *inside] if row is not None else inside, key=lambda r: phases(r).local)
    total = after - base
    evidence = "derived" if total == len(rows) else "bounded"
    weights = [max(r["bytes"] or 1, 1) for r in rows]
    out, at, used = [], base, 0
    for k, one in enumerate(rows):
        used += weights[k]
        left = len(rows) - k - 1
        end = after if not left else max(at + 1, min(base + round(total * used / sum(weights)), after - left))
        out.append(LogBatch(at, end, evidence, one))
        at = end
    return out
