"""Every comparison of `conformance` that differs, one by one, with what the log says, what was derived, and why.

`PYTHONPATH=. python tests/unit/differences.py WAREHOUSE > docs/differences.md` makes the page anew, of the tables
of all recordings. Each reason was found by looking at the lines; it stands in `data/differences.toml` under the line
that differs. A difference that is not there is shown without one, and those that are gone are named on stderr.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from replay.engine import codes as c
from replay.protocol.state import NONE
from replay.tables.conformance import Conformance
from replay.tables.partitions import replayed
from schemas.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.arrays.records import Records
    from replay.engine.emit import CheckRow

REASONS: Final = Path(__file__).parent / "data" / "differences.toml"
PLACE: Final = ("topic", "incarnation", "partition")
NEAR: Final = 200  # events before or behind, among which one shows why
AT_ONCE: Final = 20_000


@dataclass(frozen=True)
class Difference:
    """One comparison that differs."""

    recording: str
    check: str
    partition: str  # topic-partition
    seq: int
    line: str  # file:line that states the value
    stated: str
    derived: str
    shown_by: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it, whatever number its event has."""
        return self.recording, self.check, self.partition, self.line


def differences_of(recording: str, events: pa.Table) -> Iterator[Difference]:
    """Yield those of a recording, from its `replication_events`."""
    events = events.sort_by([(name, "ascending") for name in (*PLACE, "seq")])
    places = list(zip(*(events[name].to_pylist() for name in PLACE), strict=True))
    begins = [k for k, place in enumerate(places) if not k or place != places[k - 1]]
    for begin, end in zip(begins, [*begins[1:], len(places)], strict=True):
        yield from of_partition(recording, events.slice(begin, end - begin).combine_chunks())


def of_partition(recording: str, events: pa.Table) -> Iterator[Difference]:
    """Yield those of one incarnation of a partition, by seq."""
    found: list[tuple[int, int, int | None, int, int]] = []
    add = Conformance.add

    def listing(self: Conformance, rows: Records[CheckRow], brokers: Sequence[int]) -> None:
        for row in rows[(rows["computed"] != rows["stated"]) | (rows["check"] == c.CHECK_RULE)]:
            broker = None if row["broker"] < 0 else brokers[int(row["broker"])]
            found.append((int(row["seq"]), int(row["check"]), broker, int(row["computed"]), int(row["stated"])))
        add(self, rows, brokers)

    with mock.patch.object(Conformance, "add", listing):
        tables = list(replayed(events.to_batches(AT_ONCE)))
    counted = [row for name, rows in tables if name == "conformance" for row in rows.to_pylist()]
    missing = sum(row["compared"] - row["matched"] for row in counted) - len(found)
    if missing:
        raise ValueError(f"{recording}: {missing} differences are of checks that are summed up elsewhere")
    for seq, check, broker, computed, stated in sorted(found):
        near = events.slice(max(seq - NEAR, 0), 2 * NEAR).to_pylist()
        event = next(row for row in near if row["seq"] == seq)
        name = c.CHECKS[check]
        yield Difference(
            recording,
            name,
            f"{event['topic']}-{event['partition']}",
            seq,
            f"{event['source_file']}:{event['source_line']}",
            value_of(check, stated),
            value_of(check, computed),
            shown_by(near, event, broker, (computed, stated)) if name in HW_CHECKS else "",
        )


HW_CHECKS: Final = ("response_hw", "leader_hw_line", "leader_hw_by_lines")
WAITS: Final = ("at once", "waited", "waited in full")


def value_of(check: int, value: int) -> str:
    """A compared value in words."""
    if check == c.CHECK_FETCH_COMPLETION:
        return WAITS[value]
    if check == c.CHECK_EXPANSION:
        return "no replica asked for" if value == NONE else "the replica is asked for"
    return str(value)


def shown_by(near: list[dict[str, Any]], event: dict[str, Any], broker: int | None, hw: tuple[int, int]) -> str:
    """The fetch or decision that gives the stated HW on the other side of the line, if one is near, and its time."""
    computed, stated = hw
    behind = stated > computed
    rows = [row for row in near if (row["seq"] > event["seq"]) == behind and row["broker_id"] == broker]
    for row in rows if behind else reversed(rows):
        if row["kind"] == "fetch_update" and (row["fetch_offset"] or 0) >= stated + (not behind):
            what = f"fetch of {row['replica_id']} at {row['fetch_offset']}"
        elif row["kind"] == "isr_request" and row["cause"] == "committed":
            what = f"ISR {row['isr']}"
        else:
            continue
        apart = round((row["ts"] - event["ts"]).total_seconds() * 1000)
        begins, ends = (round((row[name] - event["ts"]).total_seconds() * 1000) for name in ("ts_lo", "ts_hi"))
        return f"{what}, {apart:+} ms ({begins:+} to {ends:+}), taken {'behind' if behind else 'before'}"
    return "nothing near"


def reasons() -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str, str, str], dict[str, Any]]]:
    """The causes, and the reason of each difference, as they were found."""
    told = tomllib.loads(REASONS.read_text())
    each = {(row["recording"], row["check"], row["partition"], row["line"]): row for row in told["difference"]}
    return told["cause"], each


def page(found: Sequence[Difference]) -> str:
    """The page."""
    causes, each = reasons()
    of_cause: dict[str, list[Difference]] = defaultdict(list)
    for one in found:
        of_cause[each[one.key]["cause"] if one.key in each else ""].append(one)
    lines = [INTRODUCTION.format(count=len(found), recordings=len({one.recording for one in found}))]
    for name, cause in causes.items():
        rows = of_cause.pop(name, [])
        if rows:
            lines += [f"\n## {cause['title']} ({len(rows)})\n", cause["why"].strip(), "", *table(rows, each)]
    for rows in of_cause.values():
        lines += [f"\n## Not explained ({len(rows)})\n", *table(rows, each)]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Difference], each: dict[tuple[str, str, str, str], dict[str, Any]]) -> list[str]:
    """Rows of Markdown."""
    out = [
        "| recording | check | partition | seq, line | stated | derived | on the other side | why |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        why = each.get(one.key, {}).get("why", "")
        cells = (
            one.recording, f"`{one.check}`", one.partition, f"{one.seq}, `{one.line}`", one.stated, one.derived,
            one.shown_by, why,
        )  # fmt: skip
        out.append(f"| {' | '.join(printable(cell).replace('|', '&#124;') for cell in cells)} |")
    return out


INTRODUCTION: Final = """\
# Differences, one by one

<!-- Made by `PYTHONPATH=. python tests/unit/differences.py WAREHOUSE > docs/differences.md` of the tables of all
recordings; the reasons stand in tests/unit/data/differences.toml. -->

`conformance` compares what was computed with what brokers stated ([quality.md](quality.md)). These are all comparisons
that differ in the 29 recordings of real clusters: {count}, in {recordings} of them. Each was looked at by hand: its
line, the requests around it, and the rules. `seq` is the event in `replication_events`; *stated* is what its line says,
*derived* what the replay computed there. *On the other side* is the fetch nearest to the line that would give the
stated value if it came on the line's other side: when it was taken by the best estimate, counted from the line, and the
time in which it can have been."""


def main(warehouse: str) -> None:
    """Print the page."""
    events = DeltaTable(f"{warehouse}/replication_events").to_pyarrow_dataset()
    recordings = sorted(pc.unique(DeltaTable(f"{warehouse}/runs").to_pyarrow_table()["recording_id"]).to_pylist())
    found = [
        one
        for recording in recordings
        for one in differences_of(recording, events.to_table(filter=pc.field("recording_id") == recording))
    ]
    gone = set(reasons()[1]) - {one.key for one in found}
    for key in sorted(gone):
        sys.stderr.write(f"differs no more: {' '.join(key)}\n")
    sys.stdout.write(page(found))


if __name__ == "__main__":
    main(sys.argv[1])
