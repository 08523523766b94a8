"""Pictures are drawn by another process as this one would draw them, and what ends that process ends nothing else."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from pipelines.page.drawing import svg_of
from pipelines.page.drawn_beside import Drawer
from pipelines.page.picture import Picture

if TYPE_CHECKING:
    from collections.abc import Iterator


def picture(key: str, mark: str = "bar") -> Picture:
    spec = {"mark": mark, "data": {"values": [{"a": 1, "b": 2}]}, "encoding": {"x": {"field": "a"}}}
    return Picture(key, "A title", "A caption", spec, ("a",), (("1",),))


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    made = Drawer()
    yield made
    made.end()


def test_pictures_are_those_that_this_process_would_draw(drawer: Drawer) -> None:
    asked = [picture("one"), picture("two", "point")]
    drawings = [drawer(one) for one in asked]
    assert [drawing.result() for drawing in drawings] == [svg_of(one) for one in asked]


def test_a_picture_that_cannot_be_drawn_says_why_and_the_next_one_is_drawn(drawer: Drawer) -> None:
    bad, good = drawer(picture("bad", "no such mark")), drawer(picture("good"))
    with pytest.raises(RuntimeError, match="the picture bad could not be drawn"):
        bad.result()
    assert "A title" in good.result()


def test_the_end_of_the_process_is_told_and_the_next_picture_gets_another(drawer: Drawer) -> None:
    drawer(picture("first")).result()
    assert drawer._process is not None
    os.kill(drawer._process.pid, signal.SIGKILL)
    with pytest.raises(ChildProcessError, match="the process that draws ended at the picture second"):
        drawer(picture("second")).result()
    assert "A caption" in drawer(picture("third")).result()
