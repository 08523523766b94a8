"""Other processes call functions as this one would, and what ends such a process ends nothing else."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from pipelines.page.drawing import svg_of
from pipelines.page.picture import Picture
from pipelines.spark.beside import Beside
from pipelines.stages.incident_page import Begun

if TYPE_CHECKING:
    from collections.abc import Iterator


def picture(key: str, mark: str = "bar") -> Picture:
    spec = {"mark": mark, "data": {"values": [{"a": 1, "b": 2}]}, "encoding": {"x": {"field": "a"}}}
    return Picture(key, "A title", "A caption", spec, ("a",), (("1",),))


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.end()


def test_results_are_those_that_this_process_would_have(beside: Beside) -> None:
    asked = [picture("one"), picture("two", "point")]
    drawings = [beside(svg_of, one) for one in asked]
    assert [drawing.result() for drawing in drawings] == [svg_of(one) for one in asked]


def test_what_a_function_raises_is_raised_and_the_next_one_is_called(beside: Beside) -> None:
    bad, good = beside(int, "no number"), beside(int, "7")
    with pytest.raises(ValueError, match="no number"):
        bad.result()
    assert good.result() == 7


def test_what_cannot_be_handed_over_is_told(beside: Beside) -> None:
    with pytest.raises(RuntimeError, match="pickle"):
        beside(eval, "lambda: 1").result()
    assert beside(len, "four").result() == 4


def test_what_a_function_prints_is_no_result(beside: Beside) -> None:
    assert beside(print, "printed").result() is None
    assert beside(os.system, "echo printed").result() == 0
    assert beside(len, "four").result() == 4


def test_the_end_of_a_process_is_told_and_the_next_call_gets_another(beside: Beside) -> None:
    first = beside(os.getpid).result()
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ChildProcessError, match="the process that was to call getpid ended with exit code -9"):
        beside(os.getpid).result()
    assert beside(os.getpid).result() not in {first, os.getpid()}


def test_so_many_processes_work_at_once_and_end_together() -> None:
    two = Beside(2)
    asked = [two(time.sleep, 0.5), two(time.sleep, 0.5)]
    assert [one.result() for one in asked] == [None, None]
    numbers = [process.pid for process in two._every]
    assert len(set(numbers)) == 2
    two.end()
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_a_picture_that_cannot_be_drawn_says_which_it_is_and_why() -> None:
    begun = Begun()
    begun.draw([picture("bad", "no such mark"), picture("good")])
    with pytest.raises(RuntimeError, match=r"the picture bad could not be drawn: ValueError"):
        begun.drawing(picture("bad"))
    assert "A title" in begun.drawing(picture("good"))
