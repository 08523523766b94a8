"""What consumers saw of a loss: rows of `consumer_effects`.

An answer with records hands out the offsets from the fetch on; how far is told by where the consumer fetches next, and
bounded by the answer's high watermark. Reads are kept as runs per client id, broker and leader epoch; of very many the
time of each read is kept only as long as a replica lacks what was read: nothing else is likely to be lost. What the
model leaves out: groups (no fetch names one), and consumers of one client id in one partition, which are told as one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from replay.encoding import CONSUMER, OFFSET_OUT_OF_RANGE
from replay.incidents import BATCHES_KEPT
from replay.slots import Slots, common
from replay.state import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from replay.findings import Finding
    from replay.state import Ints

COLUMNS = (
    "kind", "seq", "ts", "broker_id", "leader_id", "leader_epoch", "client_id", "fetch_offset", "next_offset", "bytes",
    "response_hw", "error_code", "run_count", "diverging_end_offset",
)  # fmt: skip
Event = dict[str, Any]


class Reader(NamedTuple):
    """Who read, from whom, under which leader epoch."""

    client: str
    broker: int
    epoch: int


class Mark(NamedTuple):
    """A read that brought its run up to `end`."""

    end: int
    ts: int
    seq: int


@dataclass(slots=True)
class Run:
    """Offsets [first, end) that a reader was handed one after another."""

    first: int
    end: int
    marks: list[Mark]
    sure: bool  # whether each read's end follows from the next fetch
    known_from: int  # below it the marks are gone

    def prune(self, floor: int) -> None:
        """Forget when the offsets below `floor` were read."""
        gone = bisect_right(self.marks, floor, key=lambda mark: mark.end)
        if gone > 1:
            self.known_from = self.marks[gone - 2].end
            self.marks = self.marks[gone - 1 :]

    def reads_of(self, first: int, end: int) -> list[Mark]:
        """The reads that handed out [first, end), where their times are still known."""
        if first < self.known_from:
            return []
        begin = bisect_right(self.marks, first, key=lambda mark: mark.end)
        last = bisect_right(self.marks, end - 1, key=lambda mark: mark.end)
        return self.marks[begin : last + 1]


@dataclass(slots=True)
class ConsumerEffects:
    """Consumers of one partition, as its events come."""

    runs: dict[Reader, list[Run]] = field(default_factory=dict)
    resumed: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)  # per client: epoch, offset, time
    positions: dict[str, int] = field(default_factory=dict)  # per client: where it reads next, at least
    last: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # per effect and client: its last row
    rows: list[dict[str, Any]] = field(default_factory=list)

    def take_all(self, batch: pa.Table, fetches: pa.Table, leo: Ints) -> None:
        """Events of a batch, its fetches, and the LEO of who answered each."""
        asked = pc.and_(
            pc.equal(batch.column("kind"), "epoch_end_offset"), pc.equal(batch.column("replica_id"), CONSUMER)
        )
        mine = pc.equal(fetches.column("replica_id"), CONSUMER)
        reads = list(zip(rows_of(fetches, mine), leo[mine.to_numpy()].tolist(), strict=True))
        events = [*reads, *((row, NONE) for row in rows_of(batch, asked))]
        for event, held in sorted(events, key=lambda one: one[0]["seq"]):
            if event["kind"] == "epoch_end_offset":
                self.ask(event)
            else:
                self.read(event, held)

    def prune(self, epoch: int, floor: int) -> None:
        """What lies below `floor` every replica has, as the leader of `epoch` has it."""
        if sum(len(run.marks) for runs in self.runs.values() for run in runs) <= BATCHES_KEPT:
            return
        for reader, runs in self.runs.items():
            if reader.epoch == epoch:
                runs[-1].prune(floor)

    def ask(self, event: Event) -> None:
        """A consumer was told where the epoch of its position ends."""
        end, client = event["diverging_end_offset"], event["client_id"] or ""
        position = self.positions.get(client)
        if not event["error_code"] and end is not None and position is not None and 0 <= end < position:
            self.tell("truncation_detected", event, position, end=end, evidence="derived")

    def read(self, event: Event, leo: int) -> None:
        """A consumer's fetch was answered, or a run of them; `leo`: of the broker that answered, -1 unknown."""
        client, offset = event["client_id"] or "", event["fetch_offset"]
        if offset is None:
            return
        if event["error_code"]:
            if event["error_code"] == OFFSET_OUT_OF_RANGE:
                self.tell("out_of_range", event, offset, end=leo if leo >= 0 else None, evidence="observed")
            return
        met = self.resumed.setdefault(client, [])
        if not met or met[-1][0] < event["leader_epoch"]:
            met.append((event["leader_epoch"], offset, event["ts"]))
        end = offset
        if event["bytes"]:
            after, hw = event["next_offset"], event["response_hw"]
            end = offset + 1 if after is None else min(after, hw) if hw is not None and hw > offset else after
            reader = Reader(client, event["broker_id"], event["leader_epoch"])
            self.hand_out(reader, (offset, end), event, sure=after is not None)
        self.positions[client] = end
        if event["leader_id"] is not None:
            self.tell("read_from_follower", event, offset, end=end, evidence="observed")

    def hand_out(self, reader: Reader, span: tuple[int, int], event: Event, *, sure: bool) -> None:
        """Offsets [first, end) went to the reader."""
        first, end = span
        runs = self.runs.setdefault(reader, [])
        if not runs or not runs[-1].first <= first <= runs[-1].end:
            runs.append(Run(first, first, [], sure=True, known_from=first))
        run = runs[-1]
        if end > run.end:
            run.end = end
            run.marks.append(Mark(end, event["ts"], event["seq"]))
            run.sure = run.sure and sure

    def tell(self, effect: str, event: Event, offset: int, *, evidence: str, end: int | None = None) -> None:
        """A row, or one more fetch in the last row of this effect and client; `end`: of a read, else of the log."""
        client, reads = event["client_id"] or "", effect == "read_from_follower"
        count = event["run_count"] or 1
        row = self.last.get((effect, client))
        same = row is not None and (row["broker_id"], row["leader_epoch"]) == (
            event["broker_id"],
            event["leader_epoch"],
        )
        if row is not None and same and (row["end"] if reads else row["first_offset"]) == offset:
            row["fetches"] += count
            row["last_ts"] = event["ts"]
            row["end"] = end if reads else None
            return
        row = {
            "seq": event["seq"],
            "effect": effect,
            "client_id": client,
            "broker_id": event["broker_id"],
            "leader_epoch": event["leader_epoch"],
            "first_offset": offset,
            "end": end if reads else None,
            "log_end": None if reads else end,
            "fetches": count,
            "first_ts": event["ts"],
            "last_ts": event["ts"],
            "evidence": evidence,
        }
        self.last[effect, client] = row
        self.rows.append(row)

    def finish(self, found: Sequence[tuple[Finding, str | None]], now: Sequence[Slots]) -> list[dict[str, Any]]:
        """All rows. `found`: the losses and their incidents; `now`: what the partition's log holds at the end."""
        rows = [*self.rows, *(row for finding, incident in found for row in self.lost_reads(finding, incident, now))]
        out = []
        for row in sorted(rows, key=lambda one: (one["seq"], one["effect"], one["first_offset"])):
            end = row.pop("end")
            some = end is not None and end > row["first_offset"]
            row["last_offset"] = end - 1 if some else None
            row["records"] = end - row["first_offset"] if some else None
            if row["effect"] in ("out_of_range", "truncation_detected"):
                row["incident_id"] = incident_behind(row, found)
            out.append(row)
        return out

    def lost_reads(self, finding: Finding, incident: str | None, now: Sequence[Slots]) -> Iterator[dict[str, Any]]:
        """Runs of one reader among the lost slots: read under an epoch that had them, before another replaced them."""
        new = finding.decision["leader_epoch"]
        for reader, runs in self.runs.items():
            slots = [one for one in finding.lost if one.epoch <= reader.epoch < new]
            for run in runs:
                for one in common([Slots(s.epoch, run.first, run.end) for s in slots], slots):
                    reads = run.reads_of(one.first, one.end)
                    replaced = (span.epoch for span in now if span.first <= one.first < span.end)
                    resumed = (met for met in self.resumed.get(reader.client, ()) if met[0] >= new)
                    _, offset, ts = next(resumed, (None, None, None))
                    yield {
                        "seq": reads[0].seq if reads else finding.heir.seq,
                        "effect": "read_then_lost",
                        "client_id": reader.client,
                        "broker_id": reader.broker,
                        "leader_epoch": reader.epoch,
                        "first_offset": one.first,
                        "end": one.end,
                        "fetches": len(reads) or None,
                        "first_ts": reads[0].ts if reads else None,
                        "last_ts": reads[-1].ts if reads else None,
                        "slot_epoch": one.epoch,
                        "incident_id": incident,
                        "replaced_by_epoch": next(replaced, None),
                        "resumed_offset": offset,
                        "resumed_ts": ts,
                        "evidence": "derived" if run.sure and finding.stated else "bounded",
                    }


def rows_of(events: pa.Table, which: pa.ChunkedArray) -> list[Event]:
    """Some of the events as dicts, times in microseconds."""
    some = events.filter(which).select(COLUMNS)
    place = some.column_names.index("ts")
    found: list[Event] = some.set_column(place, "ts", some.column(place).cast(pa.int64())).to_pylist()
    return found


def incident_behind(row: dict[str, Any], found: Iterable[tuple[Finding, str | None]]) -> str | None:
    """The last loss before a reset that took what lay at the position or before."""
    before = [
        (finding.decision["leader_epoch"], incident)
        for finding, incident in found
        if finding.decision["leader_epoch"] <= row["leader_epoch"] and finding.lost[0].first <= row["first_offset"]
    ]
    return max(before, key=lambda one: one[0])[1] if before else None
