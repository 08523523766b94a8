"""Which fetches led a leader to ask for a replica to join the ISR, and what the leader had learnt by then.

A leader asks only while it handles a fetch of the replica (Partition.maybeExpandIsr). What it logs of that, or else
what the controller decides, shows that there was such a fetch, also where the request log does not list it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from replay.engine.stamps import STAMP_EARLY_US, STAMP_LATE_US
from replay.evidence.request_times import DECISION_LATE_US, Window, phases
from replay.evidence.tenures import micros
from replay.order.isr_requests import IsrChange, Joins, changes_of, expand_draft
from replay.order.operations import Draft, Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure


def learnt_before(row: Row, joins: Joins, usual: Window) -> Window:
    """Return when the leader learnt that a broker is unfenced: before it first asked for that broker to join."""
    if row["fenced"] is not False:
        return usual
    return known_when_asked(itertools.chain.from_iterable(joins.get(row["subject_broker_id"], {}).values()), row, usual)


def known_when_asked(changes: Iterable[IsrChange], row: Row, usual: Window) -> Window:
    """Return when the leader learnt of a decision that it knew when it asked for any of the later changes."""
    decided = micros(row["ts"])
    asked = [change.us - 2 * STAMP_LATE_US for change in changes if change.us >= decided]  # before the fetch's window
    latest = max(min([usual.hi, *asked]), decided)
    return Window(usual.lo, min(usual.est, latest), latest)


def expansions_of(facts: PartitionFacts, tenure: Tenure) -> Joins:
    """Return which fetches made the leader ask for a replica to join: it logs this while it handles such a fetch."""
    out: Joins = {}
    asked = [change for change in changes_of(facts, tenure) if not change.shrinks]
    for change in asked:
        if change.replica is None:
            continue
        near = [
            (distance, place)
            for place, fetch in enumerate(facts.fetches_of(change.replica, tenure))
            if (distance := distance_of(fetch.row, change.us)) is not None
        ]
        if near:
            out.setdefault(change.replica, {}).setdefault(min(near)[1], []).append(change)
    for place, change in granted_expansions(facts, tenure, asked):
        if change.replica is not None:
            out.setdefault(change.replica, {}).setdefault(place, []).append(change)
    return out


def granted_expansions(
    facts: PartitionFacts, tenure: Tenure, asked: Sequence[IsrChange]
) -> Iterator[tuple[int, IsrChange]]:
    """Find the fetches that led to expansions of which only the controller's decisions tell.

    At INFO a leader does not log that it asks. It does so only when the replica fetches, so its last fetch before the
    decision had been handled by then. Of unlisted ones the leader took one between then and the replica's unfencing; it
    is placed right before the decision.
    """
    if not tenure.decisions or facts.decisions[-1].place < 0:
        return
    for before, decision in itertools.pairwise(tenure.decisions):
        joining = set(decision.isr) - set(before.isr)
        if len(joining) != 1 or set(before.isr) - set(decision.isr):
            continue
        (replica,) = joining
        isr = sorted(decision.isr)
        since, until = before.us - DECISION_LATE_US, decision.us + DECISION_LATE_US
        if any(change.isr == isr and since <= change.us <= until for change in asked):
            continue
        fetches = facts.fetches_of(replica, tenure)
        place = bisect_right(fetches, decision.us, key=lambda fetch: phases(fetch.row).taken) - 1
        if place < 0:
            continue
        row = fetches[place].row
        us = phases(row).taken
        if row["run_until"] is not None:
            us = max(min(micros(row["run_until"]), decision.us - STAMP_EARLY_US), us)
        yield place, IsrChange(decision.row, us, shrinks=False, isr=isr, replica=replica, by_line=False, granted=True)


def distance_of(row: Row, us: int) -> int | None:
    """Return how far from `us` a fetch, or a run of unlisted ones, was handled; None: it cannot have been then."""
    at = phases(row)
    until = at.local if row["run_until"] is None else max(micros(row["run_until"]), at.local)
    if not at.taken - STAMP_LATE_US <= us <= until + STAMP_EARLY_US:
        return None
    away: int = max(at.local - us, us - until, 0) if row["run_until"] is not None else abs(at.local - us)
    return away


def with_expansions(tenure: Tenure, operations: list[Operation], changes: Sequence[IsrChange]) -> list[Operation]:
    """Insert requested expansions right behind the fetch that led to them; a run of unlisted fetches is split there.

    The line about the request says when the leader took the fetch, whatever other lines about its offset may say.
    """
    last = operations[-1].drafts[0]
    if changes and last.kind == "fetch_update" and last.fields.get("run_count") is not None:
        return [*operations[:-1], *split_run(tenure, operations[-1], sorted(changes, key=attrgetter("us")))]
    changes = [change for change in changes if not change.granted]
    if not changes:
        return operations
    for op in operations:
        for place, draft in enumerate(op.drafts):
            if draft.kind == "fetch_update":
                told = max(min(change.us for change in changes), op.window.lo)
                op.window = Window(op.window.lo, told - 1, told + STAMP_EARLY_US)
                op.drafts[place + 1 : place + 1] = [expand_draft(tenure, change) for change in changes]
                op.updates += len(changes) if op.updates else 0
                return operations
    return operations


def split_run(tenure: Tenure, run: Operation, changes: Sequence[IsrChange]) -> list[Operation]:
    """Split a run of unlisted fetches so that each fetch that led to a request begins a part of its own.

    The leader considers a replica only when it fetches, so the request's log line proves a fetch at that moment.
    """
    whole, fields = run.drafts[0], run.drafts[0].fields
    start, until, count = whole.window.est, fields["run_until"], fields["run_count"]
    until, timeouts, before = max(until, start), fields["run_timeouts"] or 0, 0
    begins = [start, *(min(max(change.us, start), until) for change in changes)]
    ends = [*(max(b - 1, a) for a, b in itertools.pairwise(begins)), until]
    out: list[Operation] = []
    left = count
    for k, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        parts_after = len(begins) - k - 1
        share = round(count * (end - begin) / max(until - start, 1))
        mine = left if not parts_after else min(max(share, 1), max(left - parts_after, 1))
        left = max(left - mine, 1)
        window = Window(run.window.lo if not k else begin - STAMP_EARLY_US, begin, end + STAMP_EARLY_US)
        # Timed-out fetches are shared out in proportion to the fetches, so no part gets more of them than fetches.
        waited = timeouts * (before + mine) // count - timeouts * before // count
        before += mine
        part = {**fields, "run_count": mine, "run_until": end, "run_timeouts": waited}
        draft = Draft("fetch_update", whole.row, window, part, whole.copied)
        is_told = k > 0 and not changes[k - 1].granted
        drafts = [draft, expand_draft(tenure, changes[k - 1])] if is_told else [draft]
        out.append(Operation(run.type, window, drafts, offset=run.offset))
    return out
