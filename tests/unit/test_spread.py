"""Groups go to tasks by their size."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.spark.spread import placed, rooms

SIZES = st.lists(st.integers(1, 10**6), min_size=1, max_size=60)


def named(sizes: list[int]) -> list[tuple[int, tuple[str]]]:
    return [(size, (f"g{k:03}",)) for k, size in enumerate(sizes)]


def loads(sizes: list[int], tasks: int) -> list[float]:
    """Rows by task, those of small groups as even as their buckets."""
    chosen, others = placed(named(sizes), tasks)
    by_name = {group: size for size, group in named(sizes)}
    left = sum(sizes) - sum(by_name[group] for group, _ in chosen)
    share = Counter(others)
    found = [left * share[task] / len(others) for task in range(tasks)]
    for group, task in chosen:
        found[task] += by_name[group]
    return found


def test_two_hot_partitions_never_share_a_task_while_another_is_free() -> None:
    chosen, others = placed(named([900, 800, *[1] * 300]), 3)
    assert dict(chosen) == {("g000",): 0, ("g001",): 1}
    assert set(others) == {2}


def test_the_biggest_starts_first() -> None:
    chosen, _ = placed(named([5, 400, 300, 5, 350]), 3)
    assert dict(chosen) == {("g001",): 0, ("g004",): 1, ("g002",): 2}


def test_one_hot_partition_has_a_task_to_itself() -> None:
    chosen, others = placed(named([9000, *[1] * 1000]), 8)
    assert chosen == [(("g000",), 0)]
    assert set(others) == set(range(1, 8))
    assert max(Counter(others).values()) - min(Counter(others).values()) <= 1


def test_small_groups_are_left_to_the_hash() -> None:
    chosen, others = placed(named([10] * 1000), 4)
    assert chosen == []
    assert Counter(others) == dict.fromkeys(range(4), 64)


def test_one_task_takes_everything() -> None:
    chosen, others = placed(named([5, 4]), 1)
    assert {task for _, task in chosen} == {0}
    assert set(others) == {0}
    assert placed([], 1) == ([], [0] * 64)


@given(SIZES, st.integers(1, 12))
def test_no_task_has_more_than_the_biggest_group_and_an_even_share(sizes: list[int], tasks: int) -> None:
    bound = max(sizes) + sum(sizes) / tasks
    assert max(loads(sizes, tasks)) <= bound + sum(sizes) / 64 / tasks  # a bucket is not divided


@given(SIZES, st.integers(1, 12))
def test_every_task_is_one_that_there_is_and_big_groups_are_few(sizes: list[int], tasks: int) -> None:
    chosen, others = placed(named(sizes), tasks)
    assert {task for _, task in chosen} | set(others) <= set(range(tasks))
    assert len(chosen) <= 2 * tasks


@pytest.mark.parametrize(
    ("before", "rows", "taken"), [([4, 2, 0], 0, [0, 0, 0]), ([4, 2, 0], 3, [0, 0.5, 2.5]), ([0, 0], 5, [2.5, 2.5])]
)
def test_what_is_left_fills_up_from_below(before: list[int], rows: int, taken: list[float]) -> None:
    assert rooms(before, rows) == pytest.approx(taken)
