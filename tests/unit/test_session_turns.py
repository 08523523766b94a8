"""In which order a leader read the partitions of a fetch: what its session's lines tell, and nothing that is not so."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from facts_builder import at
from hypothesis import given
from hypothesis import strategies as st

from pipelines.intake.collect import collect
from pipelines.recording.recording import discover
from replay.evidence.sessions import SESSION_SCHEMA, SessionLines, rebuild_sessions

if TYPE_CHECKING:
    from pathlib import Path

NEW, OLD = 13, 12  # versions of a fetch: of leaders from 3.1 on, and of any
COLUMNS = (
    "fact_id", "ts", "kind", "topic", "partition", "broker_id", "replica_id", "connection", "correlation_id",
    "api_version", "session_id", "session_epoch", "response_session_id", "in_request", "in_response", "forgotten",
    "bytes", "bytes_listed_before",
)  # fmt: skip
SCHEMA = pa.schema([SESSION_SCHEMA.field(name) for name in COLUMNS])
PARTITIONS = range(4)


class Leader:
    """A leader's session, whose cached partitions are a list; its lines as facts, each with its true bytes before."""

    def __init__(self, *, by_records: bool = True, version: int = NEW) -> None:
        self.by_records, self.version = by_records, version
        self.cached: list[int] = []
        self.facts: list[dict[str, Any]] = []
        self.truth: list[int] = []
        self.epoch = -1

    def answer(self, handed: dict[int, int], asks: tuple[int, ...] = (), forgets: tuple[int, ...] = ()) -> None:
        """One line: `handed` has the bytes of the partitions that its answer lists. The first asks for all in order."""
        self.epoch += 1
        self.cached += [one for one in asks if one not in self.cached]
        self.cached = [one for one in self.cached if one not in forgets]
        handed = {one: size for one, size in handed.items() if one in self.cached}
        before = {}
        for one in self.cached:
            before[one] = sum(handed.get(other, 0) for other in self.cached[: self.cached.index(one)])
        if self.epoch:
            moved = [one for one in self.cached if one in handed and (handed[one] > 0 or not self.by_records)]
            self.cached = [one for one in self.cached if one not in moved] + moved
        listed: list[int | None] = sorted({*handed, *(one for one in asks if one not in forgets), *forgets})
        for one in [*listed] or [None]:
            self.facts.append(
                {
                    "fact_id": f"{(len(self.facts) * 7919) % 10007:05}", "ts": at(100 * self.epoch), "kind": "fetch",
                    "topic": "t", "partition": one, "broker_id": 1, "replica_id": 2, "connection": "c",
                    "correlation_id": self.epoch, "api_version": self.version, "session_id": 7 if self.epoch else 0,
                    "session_epoch": self.epoch, "response_session_id": 7, "in_request": one in asks,
                    "in_response": one in handed, "forgotten": one in forgets, "bytes": handed.get(one),
                    "bytes_listed_before": before[one] if one in handed else None,
                }
            )  # fmt: skip
            self.truth.append(-1 if one is None or one in forgets else before[one])

    def told(self, since: int = 0) -> list[tuple[dict[str, Any], int, int]]:
        """The facts of the lines from some epoch on, what is told of each, -1 nothing, and what is so."""
        every = zip(self.facts, self.truth, strict=True)
        some = sorted((one for one in every if one[0]["session_epoch"] >= since), key=lambda one: one[0]["fact_id"])
        facts, truth = [fact for fact, _ in some], [true for _, true in some]
        lines = SessionLines(pa.Table.from_pylist(facts, SCHEMA))
        return [*zip(facts, lines.before.tolist(), truth, strict=True)]

    def last(self, since: int = 0) -> dict[int, int | None]:
        """What is told of the partitions in the last line."""
        mine = ((fact, told) for fact, told, _ in self.told(since) if fact["session_epoch"] == self.epoch)
        return {fact["partition"]: None if told < 0 else told for fact, told in mine}


def opened(**fields: Any) -> Leader:
    """A session with partitions 0, 1 and 2, all without records."""
    leader = Leader(**fields)
    leader.answer({0: 0, 1: 0, 2: 0}, asks=(0, 1, 2))
    return leader


def test_what_the_first_request_lists_has_an_order_that_the_session_does_not_tell() -> None:
    leader = opened()
    leader.answer({0: 10, 1: 20})
    assert leader.last() == {0: None, 1: None}


def test_records_in_the_first_answer_of_a_session_bring_nothing_to_its_end() -> None:
    leader = Leader()
    leader.answer({0: 0, 1: 5, 2: 0}, asks=(0, 1, 2))
    leader.answer({0: 1, 1: 2})
    assert leader.last() == {0: None, 1: None}


def test_a_partition_without_records_of_others_has_none_before_it() -> None:
    leader = opened()
    leader.answer({0: 10, 1: 0})
    assert leader.last() == {0: 0, 1: None}


def test_a_partition_with_records_comes_to_the_end() -> None:
    leader = opened()
    leader.answer({1: 20})
    leader.answer({0: 1, 1: 2, 2: 0})
    assert leader.last() == {0: 0, 1: 1, 2: None}


def test_partitions_that_come_to_the_end_together_stay_as_they_were_among_themselves() -> None:
    leader = opened()
    leader.answer({2: 1})
    leader.answer({1: 1})
    for _ in range(3):
        leader.answer({0: 1, 1: 2, 2: 4})
    assert leader.last() == {0: 0, 2: 1, 1: 5}


def test_a_partition_that_a_later_request_adds_is_the_last_one() -> None:
    leader = opened()
    leader.answer({0: 1, 3: 2}, asks=(3,))
    assert leader.last() == {0: 0, 3: 1}


def test_a_partition_that_was_forgotten_comes_back_at_the_end() -> None:
    leader = opened()
    leader.answer({1: 1})
    leader.answer({}, forgets=(0,))
    leader.answer({0: 1, 1: 2}, asks=(0,))
    assert leader.last() == {1: 0, 0: 2}


@pytest.mark.parametrize(
    ("by_records", "version", "told"),
    [(True, NEW, {0: 4, 1: 0}), (False, OLD, {0: None, 1: None}), (True, OLD, {0: None, 1: None})],
    ids=["3.1 or later", "up to 2.8", "3.0"],
)
def test_up_to_2_8_a_partition_comes_to_the_end_without_records_too(
    *, by_records: bool, version: int, told: dict[int, int | None]
) -> None:
    leader = opened(by_records=by_records, version=version)
    leader.answer({1: 1})
    leader.answer({0: 1})
    leader.answer({1: 0})
    leader.answer({0: 2, 1: 4})
    assert leader.last() == told


def test_what_both_rules_leave_the_same_is_known_of_older_leaders() -> None:
    leader = opened(by_records=False, version=OLD)
    leader.answer({1: 1})
    leader.answer({0: 1})
    leader.answer({0: 2, 1: 4})
    assert leader.last() == {1: 0, 0: 4}


def test_behind_a_missing_line_nothing_is_known_until_a_partition_comes_to_the_end_again() -> None:
    leader = opened()
    leader.answer({1: 1})
    leader.answer({0: 1, 1: 2}, asks=(0, 1))
    assert leader.last(since=2) == {0: None, 1: None}
    leader.answer({1: 1})
    leader.answer({0: 1, 1: 2})
    assert leader.last(since=2) == {0: 0, 1: 1}


def test_what_is_first_asked_for_behind_a_missing_line_may_be_new_or_from_before() -> None:
    leader = opened()
    leader.answer({0: 1})
    leader.answer({1: 1})
    leader.answer({0: 1, 1: 2}, asks=(0,))
    assert leader.last(since=2) == {0: None, 1: None}


def test_an_answer_that_is_not_told_is_as_good_as_missing() -> None:
    leader = opened()
    leader.answer({1: 1})
    leader.answer({})
    leader.facts[-1]["response_session_id"] = None
    leader.answer({0: 1, 1: 2})
    assert leader.last() == {0: None, 1: None}


def test_rows_of_a_rebuilt_session_have_what_was_read_before_them_and_runs_have_nothing() -> None:
    leader = opened()
    leader.answer({1: 20})
    leader.answer({0: 1, 1: 2})
    rows = pa.concat_tables(rebuild_sessions(pa.Table.from_pylist(leader.facts, SCHEMA))).to_pylist()
    found = {(row["session_epoch"], row["partition"]): row["bytes_before"] for row in rows if not row["run_count"]}
    assert found == {(0, 0): 0, (0, 1): 0, (0, 2): 0, (1, 1): 0, (2, 0): 0, (2, 1): 1}
    listed = {(row["session_epoch"], row["partition"]): row["bytes_listed_before"] for row in rows}
    assert listed == {(0, 0): 0, (0, 1): 0, (0, 2): 0, (1, 1): 0, (2, 0): 0, (2, 1): 1, **dict.fromkeys(runs_in(rows))}
    assert {row["bytes_before"] for row in rows if row["run_count"]} == {None}


def runs_in(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The rows of unlisted fetches."""
    return [(row["session_epoch"], row["partition"]) for row in rows if row["run_count"]]


SIZES = st.dictionaries(st.sampled_from(PARTITIONS), st.sampled_from([0, 1, 2, 4, 8]), max_size=4)
SOME = st.lists(st.sampled_from(PARTITIONS), max_size=2, unique=True)


@given(
    lines=st.lists(st.tuples(SIZES, SOME, st.sampled_from([[], [], [0], [1]])), max_size=20),
    leads=st.sampled_from([(True, NEW), (True, OLD), (False, OLD)]),
    since=st.integers(0, 6),
)
def test_nothing_is_told_that_is_not_so(
    lines: list[tuple[dict[int, int], list[int], list[int]]], leads: tuple[bool, int], since: int
) -> None:
    leader = Leader(by_records=leads[0], version=leads[1])
    leader.answer({0: 1, 1: 0, 2: 2}, asks=(2, 0, 1))
    for handed, asks, forgets in lines:
        leader.answer(handed, (*asks,), tuple(one for one in forgets if one not in asks))
    assert [(told, true) for _, told, true in leader.told(since) if told not in {-1, true}] == []


def compared(root: Path) -> tuple[int, int]:
    """How often it is told what an answer of several partitions holds before one of them, and how often that is so.

    An answer lists what it holds in the order in which it was read; here the line itself is asked.
    """
    facts = collect(discover(root)).facts
    fetches = facts.filter(pc.equal(facts["kind"], "fetch")).sort_by("fact_id")
    known = matched = 0
    for broker in pc.unique(fetches["broker_id"]):
        mine = fetches.filter(pc.equal(fetches["broker_id"], broker)).combine_chunks()
        before = pa.array(SessionLines(mine).before)
        told = mine.append_column("before", before).filter(pc.and_(mine["in_response"], pc.greater_equal(before, 0)))
        by_line: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for row in told.select(["source_file", "source_line", "topic", "topic_id", "partition", "before"]).to_pylist():
            by_line[row["source_file"], row["source_line"]].append(row)
        for file in {file for file, _ in by_line}:
            with gzip.open(root / file, "rt") as lines:
                for number, line in enumerate(lines, 1):
                    rows = by_line.get((file, number), ())
                    so = before_in(line) if rows else {}
                    for row in rows if len(so) > 1 else ():
                        known += 1
                        matched += so[row["topic_id"] or row["topic"], row["partition"]] == row["before"]
    return known, matched


def before_in(line: str) -> dict[tuple[str, int], int]:
    """What an answer holds before each partition with or without records, by its line."""
    found, handed = {}, 0
    answer, _ = json.JSONDecoder().raw_decode(line, line.index("{", line.index('"response":')))
    for topic in answer["responses"]:
        for one in topic.get("partitions") or topic["partitionResponses"]:
            place = one["partition"] if "partition" in one else one["partitionIndex"]
            found[topic.get("topicId") or topic["topic"], place] = handed
            handed += one["recordSetSizeInBytes"] if "recordSetSizeInBytes" in one else one["recordsSizeInBytes"]
    return found


@pytest.mark.parametrize(("name", "least"), [("unclean-election", 800), ("min-isr-refused-zookeeper", 800)])
def test_the_lines_of_recordings_list_the_partitions_in_this_order(name: str, least: int, recordings: Path) -> None:
    known, matched = compared(recordings / name)
    assert matched == known >= least
