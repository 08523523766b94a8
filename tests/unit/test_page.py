"""The incident page as text: what it says, what it leaves out, and what hostile names cannot do."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from pages import HOSTILE, QUOTE, Tables, findings, incident, page_of, tables

from pipelines.page import cluster_pictures, page_file
from pipelines.page.page_file import MOST_BYTES
from pipelines.page.picture import MOST_MARKS
from pipelines.recording.quoting import place_of, quotes_of
from pipelines.recording.recording import Source
from pipelines.stages.incident_page import docs_of
from pipelines.stages.page_contents import MOST_TOLD, figures_of, second_sentence
from replay.losses.explanations import would_have_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Elements(HTMLParser):
    """Names and attributes of the elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def hostile() -> str:
    told = findings(incident(0, HOSTILE), name=HOSTILE)
    return page_of(told, tables(HOSTILE), {(f"logs/{HOSTILE}/server.log", 17): QUOTE})


def test_the_page_says_what_was_lost_how_and_what_would_have_kept_it() -> None:
    page = page_of(findings(incident()), tables(), {("logs/orders/server.log", 17): "the line itself"}, is_drawn=False)
    text = " ".join(" ".join(Elements(page).text).split())
    for said in (
        "7 acknowledged records lost.",
        "Unclean election: a replica outside the ISR became leader.",
        "Would have kept them: unclean.leader.election.enable=false.",
        "up to 2 more possible",
        "acknowledged with acks=all 7 up to 2",
        "the partition would have waited without a leader",
        "logs/orders/server.log:17 the line itself",
    ):
        assert said in text, said


def test_hostile_names_make_no_elements_and_no_attributes(hostile: str) -> None:
    elements = Elements(hostile).found
    assert sum(tag == "script" for tag, _ in elements) == 1
    assert not [tag for tag, _ in elements if tag in {"img", "iframe", "object", "embed", "link", "base", "form"}]
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on") or name == "style"]
    addresses = [attributes["href"] or "" for _, attributes in elements if "href" in attributes]
    assert all(address.startswith(("#", "../_data_docs/")) for address in addresses)
    assert "{{7*7}}" in hostile
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", hostile)


def test_every_id_is_there_once_and_every_link_within_the_page_has_its_end(hostile: str) -> None:
    elements = Elements(hostile).found
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    ends = {(attributes["href"] or "")[1:] for _, attributes in elements if (attributes.get("href") or "")[:1] == "#"}
    named = {name for _, one in elements for name in (one.get("aria-labelledby") or "").split()}
    assert ends | named <= set(ids)


def test_of_hundreds_of_incidents_the_worst_have_sections_and_all_have_rows() -> None:
    many = [incident(number, "a topic " + "with a long name " * 12) for number in range(600)]
    page = page_of(findings(*many), tables(), {}, is_drawn=False)
    assert len(page.encode()) <= MOST_BYTES
    assert page.count('<article class="incident"') == MOST_TOLD
    assert page.count('<span class="badge bounded">') == 600 + MOST_TOLD
    assert f"The worst {MOST_TOLD} of 600 incidents have a section." in page


def test_of_what_has_no_room_the_page_shows_the_worst_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [incident(number) for number in range(40)]
    asked = tables()
    whole = page_of(findings(*many), asked, {}, is_drawn=False)
    for share, said in ((0.9, "incidents have a section"), (0.5, "incidents have a row")):
        monkeypatch.setattr(page_file, "MOST_BYTES", int(len(whole) * share))
        page = page_of(findings(*many), asked, {}, is_drawn=False)
        assert len(page) <= len(whole) * share
        assert re.search(f"So that the page stays small, only the worst \\d+ {said}", page)


def test_without_the_files_at_hand_the_page_says_that_it_does_not_quote() -> None:
    assert "Source lines are named, not quoted" in page_of(findings(incident()), tables(), is_drawn=False)
    assert "Source lines are named, not quoted" not in page_of(findings(incident()), tables(), {}, is_drawn=False)


def test_where_nothing_was_lost_the_page_says_what_that_rests_on() -> None:
    page = page_of(findings(), tables(), is_drawn=False)
    assert "Nothing acknowledged was lost." in page
    assert "This rests on logs of 1 broker, from 2024-05-01 03:00:00.000 UTC to 2024-05-01 03:01:00.000 UTC" in page
    assert "<article" not in page


def test_a_count_that_no_log_tells_looks_unknown() -> None:
    unknown = dict.fromkeys(("acked_all", "acked_one", "acked_possible", "acked_all_possible", "acked_one_possible",
                             "unacked", "consumed", "consumers", "producers"))  # fmt: skip
    page = page_of(findings(incident(**unknown)), tables(), {}, is_drawn=False)
    assert page.count("unknown: no log tells") == 4


def test_at_least_stands_only_where_there_may_be_more() -> None:
    def beside(**columns: object) -> dict[str, str | None]:
        told = incident(**{"records": 5, "committed": 5, "consumed": 4, "evidence": "derived", **columns})
        return {figure.label: figure.beside for figure in figures_of(findings(told))}

    assert beside()["Committed, and gone"] is None
    assert beside()["Read by consumers, and gone"] == "at least"
    assert beside(evidence="bounded")["Committed, and gone"] == "at least"
    assert beside(last_offset=None)["Committed, and gone"] == "at least"


def test_settings_are_said_in_the_order_in_which_they_are_listed_and_what_refuses_says_so() -> None:
    thin = "min.insync.replicas=2"
    refused = " (by refusing them in time instead of acknowledging them)"
    assert would_have_kept(["a=1", thin], "them") == f"Would have kept them: a=1 or {thin}{refused}."
    assert would_have_kept(["acks=all", "a=1", thin], "them") == (
        f"Would have kept them: acks=all with {thin}{refused} or a=1."
    )
    assert would_have_kept(["acks=all"], "it") == "Would have kept it: acks=all."


def test_the_same_tables_make_the_same_page(hostile: str) -> None:
    told = findings(incident(0, HOSTILE), name=HOSTILE)
    assert page_of(told, tables(HOSTILE), {(f"logs/{HOSTILE}/server.log", 17): QUOTE}) == hostile


def test_the_second_sentence_names_a_setting_only_for_the_incidents_that_it_would_have_prevented() -> None:
    one, other = incident(), incident(1, mechanism="acks_one_planned_move", prevention=["acks=all"])
    assert second_sentence(findings(one, other, one)).endswith(
        "Would have kept them: unclean.leader.election.enable=false (2 incidents); acks=all (1 incident)."
    )
    assert "differs from one to the next" in second_sentence(findings(one, incident(1, prevention=[])))
    first = "unclean.leader.election.enable=false"
    many = [incident(number, prevention=[first, f"another {number}"]) for number in range(4)]
    assert f"The most direct setting that would have kept them is {first}" in second_sentence(findings(*many))
    assert "kept" not in second_sentence(findings(incident(prevention=[])))


def _marks(spec: Mapping[str, Any]) -> Iterator[int]:
    own = len(spec.get("data", {}).get("values", ()))
    layers = spec.get("layer", ())
    yield own * max(1, sum("data" not in one for one in layers))
    for one in layers:
        yield from _marks({"data": one["data"]} if "data" in one else {})


def test_pictures_have_no_more_marks_than_allowed_and_say_what_they_leave_out() -> None:
    span = (0, 3_600_000_000)
    many = [
        {
            "topic": "t",
            "incarnation": 0,
            "partition": n,
            "state": "isr_one",
            "start_us": 0,
            "end_us": 10 + n,
            "seconds": 1.0,
        }
        for n in range(900)
    ]
    risk = cluster_pictures.at_risk(many, {"isr_one": "alone"}, span, list(range(500)), 5000)
    brokers = [
        {"broker_id": broker, "slot": slot, "flaps": 1, "out_ms": 5, "longest_ms": 5}
        for broker in range(100)
        for slot in range(cluster_pictures.SLOTS)
    ]
    flaps = cluster_pictures.flaps(brokers, 60_000_000, span, [])
    covered = [
        {
            "broker_id": n,
            "source": "server_log",
            "start_us": 0,
            "end_us": 9,
            "state": "missing",
            "reason": "gone",
            "lines_missing": None,
        }
        for n in range(1000)
    ]
    for picture in (risk, flaps, cluster_pictures.coverage(covered, span, [])):
        assert sum(_marks(picture.spec)) <= MOST_MARKS
        assert picture.left_out
        assert picture.rows


@pytest.mark.parametrize(("seconds", "slot"), [(30, 1), (100, 5), (3600, 300), (86_400, 1800), (40 * 86_400, 86_400)])
def test_time_is_cut_into_slots_that_people_know(seconds: int, slot: int) -> None:
    assert cluster_pictures.slot_us(0, seconds * 1_000_000) == slot * 1_000_000


def test_lines_are_quoted_from_their_files_as_far_as_the_budget_goes(tmp_path: Path) -> None:
    near, far = tmp_path / "near.log", tmp_path / "far.log"
    near.write_text("one\ntwo\n" + "x" * 3000 + "\n")
    far.write_text("y" * 999 + "\n" + "z\n" * 9)
    sources = [Source(str(one), one.name, 1, one.stat().st_size) for one in (far, near)]
    wanted = [("near.log", 2), ("near.log", 3), ("near.log", 9), ("far.log", 8), ("gone.log", 1)]
    found = quotes_of(sources, wanted)
    assert found["near.log", 2] == "two"
    assert found["near.log", 3].endswith("… (1,800 more)")
    assert found["far.log", 8] == "z"
    assert set(found) == {("near.log", 2), ("near.log", 3), ("far.log", 8)}
    assert ("near.log", 2) not in quotes_of(sources, wanted, 500)


def test_a_file_that_is_gone_is_not_quoted(tmp_path: Path) -> None:
    assert not quotes_of([Source(str(tmp_path / "a.log"), "a.log", 1, 3)], [("a.log", 1)])


@pytest.mark.parametrize(("source", "place"), [("a:b.log:7", ("a:b.log", 7)), ("a.log", None), (":7", None)])
def test_a_place_is_a_file_and_a_line(source: str, place: tuple[str, int] | None) -> None:
    assert place_of(source) == place


def test_data_docs_are_found_whatever_the_recording_is_called() -> None:
    assert docs_of("a b#1") == "../_data_docs/a%2520b%25231/index.html"


def test_a_table_without_rows_makes_a_sentence_and_no_picture() -> None:
    page = page_of({**findings(), "at_risk": [], "conformance": []}, Tables())
    assert "No replica left an ISR and came back." in page
    assert "No acks=all produce is in the logs." in page
