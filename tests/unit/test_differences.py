"""The page of differences: it lists what differs, and every reason that was found, and no other."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
from differences import Difference, differences_of, page, reasons
from test_halves_of_fetches import AT_ONCE, answered_beyond_what_was_read, led

if TYPE_CHECKING:
    from pathlib import Path

    from facts_builder import History


def recorded(history: History) -> pa.Table:
    """The events of a history as a warehouse has them."""
    events = history.events()
    return events.add_column(0, "recording_id", pa.array(["small"] * len(events)))


def test_a_difference_is_listed_with_its_line_and_what_stands_near() -> None:
    history = led()
    for replica in (2, 3):
        history.fetch(150, 1, replica, 2, hw=5, request_bytes=70, **AT_ONCE)  # no order makes it 5
    first, second = (one for one in differences_of("small", recorded(history)) if one.check == "response_hw")
    assert (first.check, first.partition, first.stated) == ("response_hw", "orders-0", "5")
    assert {first.line, second.line} == {"request.log:11", "request.log:12"}
    assert "Not explained (2)" in page([first, second])


def test_what_is_shown_beside_a_line_is_the_fetch_on_its_other_side() -> None:
    (found,) = differences_of("small", recorded(answered_beyond_what_was_read()))
    assert found.shown_by.startswith("fetch of 2 at 2")
    assert found.shown_by.endswith("taken behind")


def test_the_page_has_each_reason_once_under_its_cause(repository: Path) -> None:
    causes, each = reasons()
    told = (repository / "docs" / "differences.md").read_text()
    assert "Not explained" not in told
    rows = [line for line in told.splitlines() if re.match(r"\| [a-z]", line) and not line.startswith("| recording |")]
    assert sorted(row.rstrip(" |").rpartition(" | ")[2] for row in rows) == sorted(row["why"] for row in each.values())
    titles = {cause["title"]: Counter(row["cause"] for row in each.values())[name] for name, cause in causes.items()}
    assert dict(re.findall(r"^## (.*) \((\d+)\)$", told, re.MULTILINE)) == {k: str(v) for k, v in titles.items()}


def test_the_page_about_quality_counts_the_same_differences(repository: Path) -> None:
    causes, each = reasons()
    told = (repository / "docs" / "quality.md").read_text()
    for check, count in Counter(row["check"] for row in each.values()).items():
        assert re.search(rf"\| `{check}` \| {count} of ", told), check
    for name, cause in causes.items():
        count = sum(row["cause"] == name for row in each.values())
        assert re.search(rf"\| {cause['title'].lower()} \|.*\| {count} \|", told.lower()), name


def test_a_difference_without_a_reason_stands_alone() -> None:
    one = Difference("r", "response_hw", "t|\n-0", 1, "f:1", "1", "2", "")
    assert "| t&#124;\\x0a-0 |" in page([one])
