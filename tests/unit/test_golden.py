"""The stories in tests/testdata, told by the engine, as they stand there. `--rewrite-golden` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_story import render

STORIES = sorted((Path(__file__).parent.parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_engine_tells_the_story_as_it_is_written(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text()
    told = render(written)
    if request.config.getoption("--rewrite-golden"):
        path.write_text(told)
        return
    assert told == written


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_no_event_of_a_story_needs_a_correction(path: Path) -> None:
    assert "the engine objects" not in path.read_text()


def test_there_are_stories() -> None:
    assert len(STORIES) > 20


def test_line_that_is_not_in_the_language_is_refused() -> None:
    with pytest.raises(ValueError, match="not in the language"):
        render("version 4.1.0\nbrokers A B\nA hopes\n")
