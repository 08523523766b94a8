"""The invariants of KIP-320's specification after every event of the bundled recordings (`kip320` says which they are).

Real clusters break one of them, and only by what the specification has no step for: an unclean election takes a leader
from outside the controller's ISR. From then on the deposed leader still thinks that it leads, with an HW of what the
new ISR never had (StrongIsr), until it stops or learns of its successor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kip320 import STRONG_ISR, seen_in
from without_spark import events_and_tables_of

if TYPE_CHECKING:
    from pathlib import Path


class Breach(NamedTuple):
    """From which event on an invariant did not hold, and which one ended that."""

    invariant: str
    begun_by: str
    election: str | None
    ended_by: str


UNCLEAN = Breach(STRONG_ISR, "partition_change", "unclean", "log_load")  # the old leader was dead, and came back
BREACHES = {  # recording -> partition -> its breaches; every other partition has none
    "last-replica": {},
    "unclean-election": {"payments-0": [UNCLEAN], "payments-1": [UNCLEAN]},
    "reassignment": {},
    "min-isr-refused-zookeeper": {},
}


def breaches_in(events: pa.Table) -> list[Breach]:
    """The breaches of a partition, in the order in which they ended; one that does not end has no end."""
    open_since: dict[str, int] = {}
    found: list[Breach] = []

    def named(seq: int) -> dict[str, str]:
        row: dict[str, str] = events.filter(pc.equal(events["seq"], seq)).select(["kind", "election"]).to_pylist()[0]
        return row

    for seen in seen_in(events):
        for name in seen.ends:
            begin = named(open_since.pop(name))
            found.append(Breach(name, begin["kind"], begin["election"], named(seen.seq)["kind"]))
        open_since |= dict.fromkeys(seen.begins, seen.seq)
    return found + [Breach(name, *named(seq).values(), "") for name, seq in open_since.items()]


@pytest.mark.parametrize("name", BREACHES)
def test_recordings_break_what_unclean_elections_break_and_nothing_else(name: str, recordings: Path) -> None:
    found, asked = {}, 0
    for events, _ in events_and_tables_of(recordings / name):
        breaches = breaches_in(events)
        asked += len(events)
        if breaches:
            found[f"{events['topic'][0].as_py()}-{events['partition'][0].as_py()}"] = breaches
    assert asked > 10_000
    assert found == BREACHES[name]
