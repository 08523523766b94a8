"""docs/losing-records.md explains every mechanism, and its diagrams say in words what they show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from draw import WIDTH, drawn
from stories import STORIES, Story

from schemas.incidents import MECHANISMS

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "losing-records.md").read_text()
SVG = "{http://www.w3.org/2000/svg}"
# An average letter of a common font is half as wide as it is high; the widest common one needs a fifth more.
WIDE = 0.62
DRAWN = drawn()


def parsed(name: str) -> ET.Element:
    return ET.fromstring(DRAWN[name])  # noqa: S314 - we drew it


def width_of(text: ET.Element) -> float:
    return len(text.text or "") * WIDE * (12.5 if "soft" in text.get("class", "") else 14)


def test_the_files_are_what_is_drawn() -> None:
    kept = {path.name: path.read_text() for path in (DOCS / "diagrams").glob("*.svg")}
    assert kept == DRAWN, "draw them again: python docs/diagrams/draw.py"


@pytest.mark.parametrize("name", DRAWN)
def test_a_diagram_says_in_words_what_it_shows(name: str) -> None:
    svg = parsed(name)
    told = svg.findtext(f"{SVG}desc") or ""
    assert svg.get("role") == "img"
    assert svg.findtext(f"{SVG}title")
    shown = [text.text or "" for text in svg.iter(f"{SVG}text")]
    words = {word for text in shown for word in re.findall(r"\b[mn]\d\b|HW|LEO|ISR", text)} - {"HW"}
    assert not words - set(re.findall(r"\w+", told))
    alternative = re.search(rf"!\[([^]]+)\]\(diagrams/{re.escape(name)}\)", PAGE)
    assert alternative
    assert "says the same" in alternative[1]


@pytest.mark.parametrize("name", DRAWN)
def test_no_text_leaves_its_diagram(name: str) -> None:
    for text in parsed(name).iter(f"{SVG}text"):
        looks, width = text.get("class", "").split(), width_of(text)
        left = float(text.get("x", 0)) - width * (0.5 if "middle" in looks else "end" in looks)
        assert left >= 0, text.text
        assert left + width <= WIDTH, text.text


def test_every_mechanism_is_explained_and_only_these() -> None:
    headings = " ".join(re.findall(r"^## .*$", PAGE, re.MULTILINE))
    explained = set(re.findall(r"`(\w+)`", headings)) | {"eligible_leader_regressed"}
    assert explained == set(MECHANISMS) - {"other"}
    assert "That is `eligible_leader_regressed`" in PAGE


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_in_a_story_nobody_knows_of_more_than_was_committed_and_somebody_loses(story: Story) -> None:
    for moment in story.moments:
        leaders = [broker for broker in moment.brokers if broker.role == "leader"]
        assert len(leaders) <= 1
        for broker in moment.brokers:
            kept = [record for record in broker.log.split() if not record.endswith("!")]
            assert broker.hw is None or broker.hw <= len(kept)
            assert broker.hw is None or not leaders or leaders[0].hw is None or broker.hw <= leaders[0].hw
        for leader in leaders:
            in_sync = [b for b in moment.brokers if b.in_isr and not b.is_away]
            assert leader in in_sync
            # All in the ISR have what is committed: but for the fault that the story is about, in its own moment.
            assert story.name in {"hw-truncation", "stale-isr-rejoin"} or all(
                leader.hw <= len(b.log.replace("!", "").split()) for b in in_sync
            )
    first, last = story.moments[0], story.moments[-1]
    had = {record for broker in first.brokers + story.moments[1].brokers for record in broker.log.split()}
    led = next(broker for broker in last.brokers if broker.role == "leader")
    assert {record.rstrip("!") for record in had} - set(led.log.split())
