"""docs/where-to-see.md: each place in a recording of this repository shows a row of the table that the page names."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.compute as pc
import pytest
from without_spark import tables_of_recording

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "where-to-see.md"
RECORDINGS = ROOT / "tests" / "recordings"
PLACE = re.compile(r"\| `(?P<recording>[\w-]+)` \| (?P<topic>[\w-]+)-(?P<partition>\d+), (?P<seq>\d+) \|")


def places() -> list[tuple[str, str, int, int, tuple[str, ...]]]:
    """Recording, topic, partition, seq (of leaders: epoch), and the tables that the section is about."""
    found: list[tuple[str, str, int, int, tuple[str, ...]]] = []
    tables: tuple[str, ...] = ()
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            tables = tuple(re.findall(r"`(\w+)`", line))
        told = PLACE.match(line)
        if told and (RECORDINGS / told["recording"]).is_dir():
            found.append((told["recording"], told["topic"], int(told["partition"]), int(told["seq"]), tables))
    return found


def test_the_page_has_places_in_both_recordings() -> None:
    assert {place[0] for place in places()} == {"last-replica", "unclean-election"}


@pytest.mark.parametrize("place", places(), ids=lambda place: "-".join(map(str, place[:4])))
def test_a_place_on_the_page_is_a_row_of_the_table(place: tuple[str, str, int, int, tuple[str, ...]]) -> None:
    recording, topic, partition, seq, tables = place
    found = [tables_of_recording(RECORDINGS / recording)[name] for name in tables]
    column = "leader_epoch" if tables == ("leadership_timeline",) else "seq"
    where = (pc.field("topic") == topic) & (pc.field("partition") == partition) & (pc.field(column) == seq)
    assert sum(len(rows.filter(where)) for rows in found if column in rows.column_names) > 0
