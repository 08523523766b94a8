"""What followers hand out to consumers is held against the high watermark that the replay has of them."""

from __future__ import annotations

from typing import Any

import pytest
from facts_builder import History
from without_spark import tables_of

from pipelines.spark.saved_states import bytes_of, state_of
from replay.arrays.ints import NEVER
from replay.arrays.records import blank
from replay.tables import follower_reads
from replay.tables.follower_reads import FollowerReads, Read, Reader, Taken

ROUNDS = 16  # of 400 ms, so that some reads settle as the follower goes on


def served(behind: int = 0, *, offset: int = -1, by: int = 2) -> History:
    """2 follows 1: in round k it fetches from k, is told the HW k, and 0.1 s later serves a consumer.

    `behind`: how far the HW that it then states is from k; `offset`: where the consumer reads, from k too; `by`: who
    serves it.
    """
    history = History()
    history.decide(0, 1, [1, 2], replicas=[1, 2])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    history.role(11, 2, "follower", 0, offset=0, hw=0)
    for k in range(ROUNDS):
        ms = 1000 + 400 * k
        history.produce(ms, 1, k, acks=1)
        history.fetch(ms + 50, 1, 2, k, bytes=100, hw=k)
        if k > 2:
            fields = {"connection": "c2", "client_id": "billing", "current_leader_epoch": 0}
            history.fetch(ms + 150, by, -1, k + offset, bytes=100, hw=k + behind, **fields)
    return history


def found(history: History) -> tuple[int, int, str | None]:
    """How many answers were compared and how many agree, and the first that does not; however many events at a time."""
    events = history.events()
    seen = []
    for size in (3, 1000):
        rows = {row["check"]: row for row in tables_of(events, size)["conformance"].to_pylist()}
        row = rows.get("follower_read")
        seen.append((0, 0, None) if row is None else (row["compared"], row["matched"], row["note"]))
    assert seen[0] == seen[1]
    return seen[0]


def test_a_follower_states_the_hw_that_it_has() -> None:
    assert found(served()) == (ROUNDS - 3, ROUNDS - 3, None)


def test_as_long_as_it_may_not_have_taken_an_answer_it_may_state_the_hw_of_before() -> None:
    """Nothing tells that it has, until its next fetch comes."""
    assert found(served(-1, offset=-2)) == (ROUNDS - 3, ROUNDS - 3, None)


@pytest.mark.parametrize("behind", [-2, 1])
def test_an_hw_that_it_no_longer_or_not_yet_had_differs(behind: int) -> None:
    compared, matched, note = found(served(behind, offset=-3))
    assert (compared, matched) == (ROUNDS - 3, 0)
    assert note == f"broker 2 states {3 + behind} and hands out records up to 1, and its HW was 2 to 3"


def test_records_beyond_its_hw_differ() -> None:
    compared, matched, note = found(served(offset=0))
    assert (compared, matched) == (ROUNDS - 3, 1)  # what the last answer handed out no later fetch shows
    assert note == "broker 2 states 3 and hands out records up to 4, and its HW was 2 to 3"


@pytest.mark.parametrize(("certain", "compared"), [((1, 1), 1), ((0, 1), 0), ((1, 0), 0)])
def test_an_answer_is_not_compared_where_it_is_not_certain_what_the_follower_had(
    certain: tuple[int, int], compared: int
) -> None:
    taken = blank(2, Taken)
    for name, values in (("seq", (1, 3)), ("lo", (10, 10)), ("hi", (10, NEVER)), ("until", (1, NEVER)), ("hw", (5, 6))):
        taken[name] = values
    taken["certain"] = certain
    read: Any = blank(1, Read)
    read["seq"], read["lo"], read["hi"], read["hw"], read["due"] = 4, 1_000_000, 1_000_000, 6, NEVER
    reads = FollowerReads()
    reads.compare(taken, read[0], 2)
    assert (reads.tally.compared, reads.tally.matched) == (compared, compared)


def test_an_answer_of_a_follower_of_which_nothing_is_known_is_not_compared() -> None:
    read: Any = blank(1, Read, NEVER)
    reads = FollowerReads()
    reads.compare(blank(0, Taken), read[0], 2)
    assert reads.tally.compared == 0


def test_what_the_leader_serves_is_compared_with_its_own_hw() -> None:
    assert found(served(by=1)) == (0, 0, None)


def test_a_read_that_began_long_before_its_followers_latest_fetch_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_reads, "HORIZON_US", -1_000_000)  # each began less than a second behind it
    assert found(served()) == (0, 0, None)


def test_what_no_read_can_be_held_against_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []

    def forget(reader: Reader) -> None:
        forgetting(reader)
        kept.append(len(reader.taken))

    forgetting = follower_reads.forget
    monkeypatch.setattr(follower_reads, "forget", forget)
    assert found(served())[0] == ROUNDS - 3
    assert max(kept) == ROUNDS
    kept.clear()
    monkeypatch.setattr(follower_reads, "HORIZON_US", 1_000_000)
    monkeypatch.setattr(follower_reads, "KEPT_US", 500_000)
    assert found(served()) == (ROUNDS - 3, ROUNDS - 3, None)
    assert kept[-1] < ROUNDS // 2


def test_what_is_known_of_a_follower_goes_from_run_to_run() -> None:
    reads: Any = FollowerReads()
    reads.readers[1].clock = 5
    again = state_of(bytes_of({"reads": reads}))["reads"]
    assert again.readers[1].clock == 5
    assert again.readers[0].clock == 0
