"""A partition's states from whatever is available: records of the metadata log, its snapshots, brokers' lines.

Each state has a key: leader epoch and partition epoch. A record of the log wins, because it shows when the state was
decided; a broker's line wins over a snapshot, which only shows that the state had been reached by its end.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replay.evidence.controller_lines import with_controllers
from replay.evidence.metadata_log import Base, ChangeRun, StateWitness, standing
from replay.evidence.request_columns import RequestColumns, places_by
from replay.evidence.tenures import Decision, decision_of, ints, line_decisions, opening_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.evidence.metadata_log import Parts
    from replay.evidence.rows import Row

Key = tuple[int, int]
FULL = "PARTITION_RECORD"


class Aligned(NamedTuple):
    """A run of change records whose position among the partition's states is known."""

    run: ChangeRun
    base: Base
    known: dict[int, Decision]  # complete states from other sources, by how many records lead to them
    sure: bool  # whether anything shows that no record is missing before it

    @property
    def last(self) -> Base:
        """Leader epoch and partition epoch after all its records."""
        return self.after(len(self.run.records))

    @property
    def opening(self) -> Decision | None:
        """The state of the partition's first record, if the run begins with it."""
        first = self.known.get(0)
        whole = first is not None and first.row["record_type"] == FULL and not first.row["in_snapshot"]
        return first if whole else None

    def after(self, k: int) -> Base:
        """Leader epoch and partition epoch after k records."""
        version = None if self.base.version is None else self.base.version + k
        return Base(self.base.epoch + self.run.elected[k], version)

    def covers(self, decision: Decision) -> bool:
        """Whether the run's records, or the partition's first record before them, include that decision."""
        since = 0 if self.opening is not None else 1
        if decision.partition_epoch is None or self.base.version is None:
            return self.base.epoch + since <= decision.leader_epoch <= self.last.epoch
        return self.base.version + since <= decision.partition_epoch <= (self.last.version or 0)


def states_of(rows: list[Row], parts: Parts, fetches: list[Row]) -> tuple[list[Decision], list[Row]]:
    """A partition's facts -> its states in order, and the records of the log that were set aside.

    `fetches`: those among `rows`.
    """
    told = standing((r for r in rows if r["kind"] == "partition_change" and r["metadata_offset"] is not None), parts)
    lines = with_controllers(line_decisions(rows), rows)
    if not told.rows:
        return as_begun(lines), told.aside
    snapshots = [opening_of(row, evidence="bounded") for row in told.rows if row["in_snapshot"]]
    heard = sorted([*map(witness_of, lines), *fetched_epochs(fetches)], key=lambda one: (one.epoch, one.us))
    spare = replicas_heard((*lines, *snapshots), told.rows, rows, fetches)
    runs: list[Aligned] = []
    states: dict[Key, Decision] = {}
    last: Decision | None = None
    for records, extent in runs_of([row for row in told.rows if not row["in_snapshot"]], parts):
        found = aligned(records, extent, snapshots, lines, heard, runs[-1].last if runs else None)
        if found is None:
            continue
        if last is not None and found.base == runs[-1].last:
            found.known.setdefault(0, last)
        of_run = decided(found, heard, spare)
        last = of_run[-1] if of_run else last
        states.update((key_of(d), d) for d in of_run)
        runs.append(found)
    for decision in (*lines, *snapshots):
        if not any(one.covers(decision) for one in runs) and (
            decision.row["metadata_offset"] is not None or may_add(decision, runs, parts)
        ):
            states.setdefault(key_of(decision), decision)
    return as_begun([states[key] for key in sorted(states)]), told.aside


def replicas_heard(
    states: Iterable[Decision], records: Iterable[Row], rows: Iterable[Row], fetches: Sequence[Row]
) -> tuple[int, ...]:
    """Every broker that was seen to be a replica of the partition, for when no record lists the replicas."""
    found = {b for state in states for b in (*state.replicas, *state.isr)}
    found |= {b for row in records for b in ints(row["isr"])}
    found |= {row["broker_id"] for row in rows if row["kind"] == "role_change" and row["broker_id"] is not None}
    found |= {replica for replica in np.unique(RequestColumns(fetches).stated("replica_id")).tolist() if replica >= 0}
    return tuple(sorted(found))


def as_begun(states: list[Decision]) -> list[Decision]:
    """Mark states that begin a leader epoch, and set their places; a first known state stands in for the beginning."""
    place = -1
    epoch: int | None = None
    for decision in states:
        begins = epoch != decision.leader_epoch
        if begins and not decision.elects:
            decision.evidence = "bounded"
        decision.elects = begins
        epoch = decision.leader_epoch
        offset = decision.row["metadata_offset"]
        place = decision.place = place if offset is None else offset
    return states


def key_of(decision: Decision) -> Key:
    """Sort key of a partition's states."""
    return decision.leader_epoch, -1 if decision.partition_epoch is None else decision.partition_epoch


def may_add(line: Decision, runs: Sequence[Aligned], parts: Parts) -> bool:
    """Whether a state known only from a broker's line may be one that the dumps lack.

    A state behind all that the dumps hold counts only if it was reported after they end.
    """
    if not runs or key_of(line) <= (runs[-1].last.epoch, runs[-1].last.version or 0):
        return True
    return parts.last_us is not None and line.us > parts.last_us


def fetched_epochs(fetches: list[Row]) -> list[StateWitness]:
    """Leader epochs that fetches name: a broker that serves a fetch of epoch e without error leads e."""
    told = RequestColumns(fetches)
    epoch, broker = told.stated("current_leader_epoch"), told.stated("broker_id")
    which = np.flatnonzero((epoch >= 0) & told.without_error & (told.stated("replica_id") >= 0))
    at = told.at.taken[which]
    return [
        StateWitness(of, None, leader, None, int(at[places].min()))
        for (of, leader), places in places_by(epoch[which], broker[which])
    ]


def witness_of(decision: Decision) -> StateWitness:
    """A state from a broker's line, as a witness."""
    isr = frozenset(ints(decision.row["isr"])) if decision.row["isr"] is not None else None
    return StateWitness(decision.leader_epoch, decision.partition_epoch, decision.leader, isr, decision.us)


def runs_of(records: list[Row], parts: Parts) -> Iterable[tuple[list[Row], tuple[int, int]]]:
    """Gapless runs of records; the partition's first record begins a run of its own."""
    for extent, group in groupby(records, key=lambda row: parts.extent_at(row["metadata_offset"])):
        run: list[Row] = []
        for row in group:
            if row["record_type"] == FULL and run:
                yield run, (extent[0], row["metadata_offset"])
                run = []
            run.append(row)
        yield run, extent


def aligned(
    records: list[Row],
    extent: tuple[int, int],
    snapshots: Sequence[Decision],
    lines: Sequence[Decision],
    heard: Sequence[StateWitness],
    unmoved: Base | None,
) -> Aligned | None:
    """A run with its position among the states; None if unknown."""
    known: dict[int, Decision] = {}
    if records[0]["record_type"] == FULL:
        opening = opening_of(records[0])
        run, known[0] = ChangeRun(records[1:], extent), opening
        base, sure = Base(opening.leader_epoch, opening.partition_epoch), True
    else:
        run = ChangeRun(records, extent)
        known |= {run.place(d.place): d for d in snapshots if run.holds(d.place)}
        if known:
            k, state = next(iter(known.items()))
            version = None if state.partition_epoch is None else state.partition_epoch - k
            base, sure = Base(state.leader_epoch - run.elected[k], version), True
        else:
            found = run.aligned(heard, unmoved)
            if found is None:
                return None
            base, sure = found
    out = Aligned(run, base, known, sure)
    places = {tuple(out.after(k)): k for k in range(len(run.records) + 1)}
    for line in lines:
        k = places.get((line.leader_epoch, line.partition_epoch), -1)
        if k >= 0 and line.row["isr"] is not None:
            known.setdefault(k, line)
    return out


def decided(found: Aligned, heard: Sequence[StateWitness], spare: tuple[int, ...]) -> list[Decision]:
    """The states that a run's records lead to. `spare`: the replicas, if no record lists them."""
    run, known = found.run, found.known
    count = len(run.records)
    leaders = {told.epoch: told.leader for told in heard}
    listed: dict[str, list[Any]] = {
        name: filled(
            [None, *(row[column] for row in run.records)], [getattr(known.get(k), name, None) for k in range(count + 1)]
        )
        for name, column in COLUMNS.items()
    }
    out = [found.opening] if found.opening is not None else []
    before = known.get(0)
    for k, row in enumerate(run.records, start=1):
        at = found.after(k)
        leader = listed["leader"][k] if listed["leader"][k] is not None else leaders.get(at.epoch)
        if leader is None:
            continue
        isr, replicas = listed["isr"][k], listed["replicas"][k] or spare
        decision = decision_of(
            row,
            before,
            leader=leader,
            epoch=at.epoch,
            version=at.version,
            isr=isr if isr is not None else replicas,
            replicas=replicas,
        )
        decision.adding, decision.removing = listed["adding"][k] or (), listed["removing"][k] or ()
        if isr is None or not found.sure:
            decision.evidence = "bounded"
        out.append(decision)
        before = decision
    return out


COLUMNS = {
    "leader": "leader_id",
    "isr": "isr",
    "replicas": "replicas",
    "adding": "adding_replicas",
    "removing": "removing_replicas",
}


def filled(listed: list[Any], known: list[Any]) -> list[Any]:
    """A field after each record: as listed, else as before; if unknown, as after, unless the next record lists it."""
    out: list[Any] = []
    for k, (value, told) in enumerate(zip(listed, known, strict=True)):
        out.append(value if value is not None else out[-1] if k and out[-1] is not None else told)
    for k in range(len(out) - 2, -1, -1):
        if out[k] is None and listed[k + 1] is None:
            out[k] = out[k + 1]
    return out
