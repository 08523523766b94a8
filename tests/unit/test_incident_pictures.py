"""The pictures of an incident: they say what the tables say, whatever the names, and however many rows there are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from facts_builder import History
from histories_of_losses import acks_one_failure, alone, replicated, tail, taken_over
from without_spark import tables_of

from pipelines.page.colours import COLOURS
from pipelines.page.drawing import fit, svg_of
from pipelines.page.incident_pictures import pictures_of
from pipelines.page.marks import MOST_ROWS
from pipelines.page.messages import story_of
from pipelines.page.partition_rows import READINGS, PartitionRows, window_of
from pipelines.page.picture import MOST_MARKS, Picture

if TYPE_CHECKING:
    from collections.abc import Iterator

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</svg><script>alert(1)</script>&\"'\x00\x1b[31m\u202e\ufffe" + "x" * 500
# What has no place in a page whose policy allows nothing, or would reach out of it.
ALIVE = re.compile(
    r"<(script|style|image|foreignObject|iframe|a)\b|\s(on\w+|style|href|xlink:href)=|https?://(?!www\.w3\.org)"
)


def unclean() -> History:
    """Broker 1 is alone in the ISR, acknowledges with acks=all, and broker 2 is elected all the same."""
    history = replicated()
    alone(history)
    return taken_over(tail(history, acks=-1), recovering=True)


def read(history: History) -> tuple[dict[str, Any], PartitionRows]:
    events = history.events()
    tables = {**tables_of(events), "replication_events": events}
    (incident,) = tables["data_loss_incidents"].to_pylist()
    return incident, PartitionRows({name: tables[name] for name in READINGS if name in tables})


@pytest.fixture(scope="module")
def lost() -> tuple[dict[str, Any], PartitionRows]:
    return read(unclean())


@pytest.fixture(scope="module")
def drawn(lost: tuple[dict[str, Any], PartitionRows]) -> dict[str, Picture]:
    return by_kind(*lost)


def by_kind(incident: dict[str, Any], rows: PartitionRows) -> dict[str, Picture]:
    return {picture.key.split("-")[0]: picture for picture in pictures_of(incident, rows)}


def values_of(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield from part.get("data", {}).get("values", ())
        for one in part.values():
            yield from values_of(one)
    elif isinstance(part, list):
        for one in part:
            yield from values_of(one)


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own


def labels_of(picture: Picture) -> list[str]:
    return list(dict.fromkeys(one["lane"] for one in values_of(picture.spec) if "lane" in one))


def test_an_incident_has_its_three_pictures_and_each_is_one_image_with_a_title_and_a_description(
    drawn: dict[str, Picture],
) -> None:
    assert list(drawn) == ["timeline", "messages", "slots"]
    ids: list[str] = []
    for picture in drawn.values():
        root = parsed(svg_of(picture))
        named = {element.attrib["id"]: element for element in root.iter() if "id" in element.attrib}
        title, description = root.attrib["aria-labelledby"].split()
        assert root.attrib["role"] == "img"
        assert (named[title].text, named[description].text) == (picture.title, picture.caption)
        assert root.attrib["viewBox"]
        assert re.fullmatch(r"[A-Za-z0-9-]+", picture.key)
        assert all(len(row) == len(picture.columns) for row in picture.rows)
        ids += named
    assert len(ids) == len(set(ids))  # so that they can stand on one page


def test_a_picture_holds_nothing_that_a_strict_policy_forbids_and_leaves_every_colour_to_the_page(
    drawn: dict[str, Picture],
) -> None:
    for picture in drawn.values():
        svg = svg_of(picture)
        assert not ALIVE.search(svg)
        colours = {
            element.attrib[what]
            for element in parsed(svg).iter()
            for what in ("fill", "stroke")
            if what in element.attrib
        }
        left = {one for one in colours if one not in {"none", "transparent"}}
        assert left
        assert left <= {f"var(--{name}, {shades.light})" for name, shades in COLOURS.items()}


def test_the_same_tables_give_the_same_bytes_whatever_was_drawn_before(
    lost: tuple[dict[str, Any], PartitionRows], drawn: dict[str, Picture]
) -> None:
    once = [svg_of(picture) for picture in drawn.values()]
    again = [svg_of(picture) for picture in reversed(pictures_of(*lost))]
    assert once == again[::-1]


def test_the_counts_along_the_offsets_are_those_of_the_incident(
    lost: tuple[dict[str, Any], PartitionRows], drawn: dict[str, Picture]
) -> None:
    incident, _ = lost
    assert (incident["records"], incident["acked_all"], incident["committed"]) == (3, 3, 3)
    assert labels_of(drawn["slots"])[:3] == ["lost: 3", "acknowledged, acks=all: 3", "committed: 3"]
    places = {one["lane"]: (one["at"], one["to"]) for one in values_of(drawn["slots"].spec) if "to" in one}
    assert places["lost: 3"] == places["acknowledged, acks=all: 3"] == (2, 5)
    assert ["lost", "3", "2 to 4 (leader epoch 0)"] in [list(row) for row in drawn["slots"].rows]


def test_acknowledged_by_the_leader_alone_is_another_lane_than_by_all() -> None:
    incident, rows = read(acks_one_failure())
    assert incident["acked_one"] > 0
    assert f"acknowledged, acks=1: {incident['acked_one']}" in labels_of(by_kind(incident, rows)["slots"])


def test_the_messages_tell_the_last_acknowledgement_the_doom_and_the_cut_in_this_order(
    lost: tuple[dict[str, Any], PartitionRows],
) -> None:
    steps = story_of(*lost)
    words = [step.words for step in steps]
    doom = [place for place, step in enumerate(steps) if step.is_doom]
    acknowledged = words.index("4 acknowledged (lost)")
    (cut,) = (place for place, step in enumerate(steps) if step.what == "cut")
    assert [steps[place].what for place in doom] == ["elected"]
    assert "unclean" in words[doom[0]]
    assert acknowledged < doom[0] < cut
    assert words[cut] == "cuts its log to 2"
    assert ("fetch", 2, 1) in [(step.what, step.sender, step.receiver) for step in steps[: doom[0]]]


def test_a_fetch_comes_before_its_answer_and_the_answer_goes_to_who_asked(
    lost: tuple[dict[str, Any], PartitionRows],
) -> None:
    steps = [step for step in story_of(*lost) if step.what in {"fetch", "answer"}]
    asked = [(step.sender, step.receiver) for step in steps if step.what == "fetch"]
    answers = [(place, step) for place, step in enumerate(steps) if step.what == "answer"]
    assert answers
    for place, step in answers:
        before = [(one.sender, one.receiver) for one in steps[:place] if one.what == "fetch"]
        assert (step.receiver, step.sender) in before
    assert asked


def test_the_timeline_shades_what_is_lost_from_its_append_to_its_cut(
    lost: tuple[dict[str, Any], PartitionRows], drawn: dict[str, Picture]
) -> None:
    incident, _ = lost
    (box,) = (one for one in values_of(drawn["timeline"].spec) if "until" in one)
    assert (box["from"], box["to"]) == (incident["first_offset"], incident["last_offset"] + 1)
    assert box["until"] == incident["truncated_ts"].timestamp() * 1000
    told = [one["told"] for one in values_of(drawn["timeline"].spec) if "told" in one]
    assert any(": broker 2 elected, leader epoch 1 (unclean)" in one for one in told)
    assert any(one.startswith("broker 1: leader from") for one in told)
    assert any(one.startswith("broker 2: fenced from") for one in told)


def test_names_from_logs_are_only_text_and_never_end_the_process_that_draws(
    lost: tuple[dict[str, Any], PartitionRows],
) -> None:
    """The library ends the process at a character that XML cannot hold, so nothing of that kind may reach it."""
    assert fit({"a": ["\x00\x1b\ufffe\ud800"]}) == {"a": ["\\x00\\x1b\\ufffe\\ud800"]}
    incident, rows = lost
    for picture in pictures_of({**incident, "topic": HOSTILE, "incident_id": HOSTILE}, rows):
        spec = {**picture.spec, "title": HOSTILE}
        named = Picture(picture.key, picture.title, picture.caption, spec, picture.columns, picture.rows)
        svg = svg_of(named)
        assert not ALIVE.search(svg)
        assert parsed(svg).tag == f"{SVG}svg"
        assert len(picture.title) < 150
        assert re.fullmatch(r"[A-Za-z0-9-]+", picture.key)


def test_what_is_not_known_looks_so(lost: tuple[dict[str, Any], PartitionRows]) -> None:
    incident, rows = lost
    unknown = dict.fromkeys(
        (
            "last_offset",
            "records",
            "acked_all",
            "acked_one",
            "unacked",
            "acked_possible",
            "acked_unconfirmed",
            "consumed",
        )
    )
    ranges = [{"leader_epoch": 0, "first_offset": 2, "last_offset": None}]
    pictures = by_kind({**incident, **unknown, "ranges": ranges, "evidence": "bounded"}, rows)
    assert labels_of(pictures["slots"])[:2] == ["lost: not known", "acknowledged: not known"]
    bars = [one["mark"] for one in pictures["slots"].spec["layer"] if one["mark"]["type"] == "bar"]
    assert all("strokeDash" in mark for mark in bars[:2])
    assert "nobody knows how far" in " ".join(" ".join(row) for row in pictures["slots"].rows)
    words = [one.get("what") for one in values_of(pictures["timeline"].spec)]
    assert "lost: 2 and on, nobody knows how far" in words
    for picture in pictures.values():
        svg_of(picture)


def many(count: int, incident: dict[str, Any]) -> pa.Table:
    """So many movements of broker 1's log end, with one cut in their middle."""
    start, end = window_of(incident)
    step = (end - start) / (count + 1)
    rows = [
        {
            "seq": place, "ts": start + place * step, "broker_id": 1, "observer": "local", "leo_before": None,
            "leo": 10_000 + place if place != count // 2 else 7, "step": "leader_append", "evidence": "observed",
        }
        for place in range(count)
    ]  # fmt: skip
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("leo_before", pa.int64())])
    table = pa.Table.from_pylist(rows)
    for field in schema:
        table = table.set_column(table.column_names.index(field.name), field, table.column(field.name).cast(field.type))
    return table


def test_of_very_many_rows_few_are_drawn_and_it_is_said_but_no_step_back_is_lost(
    lost: tuple[dict[str, Any], PartitionRows],
) -> None:
    incident, rows = lost
    pictures = by_kind(incident, PartitionRows({**rows.tables, "leo_timeline": many(50_000, incident)}))
    timeline = pictures["timeline"]
    ends = [one["to"] for one in values_of(timeline.spec) if "to" in one and "at" in one]
    assert sum(1 for _ in values_of(timeline.spec)) <= MOST_MARKS
    assert 7 in ends
    assert "points of 49,936;" in (timeline.left_out or "")  # those within the time looked at


def flapping(incident: dict[str, Any], times: int) -> dict[str, pa.Table]:
    """So many leaders, one after the other, in the seconds around the loss."""
    start, end = window_of(incident)
    step = (end - start) / (times + 1)
    moments = [start + place * step for place in range(times)]
    led = [
        {
            "leader_epoch": place, "leader_id": 1 + place % 2, "start_ts": time, "end_ts": time + step,
            "start_offset": 2, "election": "clean", "trigger": "t", "evidence": "observed",
        }
        for place, time in enumerate(moments)
    ]  # fmt: skip
    isr = [
        {
            "seq": place, "ts": time, "leader_id": 1 + place % 2, "leader_epoch": place, "isr": [1 + place % 2],
            "isr_before": [2 - place % 2], "state": "committed", "change": "election", "evidence": "observed",
        }
        for place, time in enumerate(moments)
    ]  # fmt: skip
    return {"leadership_timeline": pa.Table.from_pylist(led), "isr_timeline": pa.Table.from_pylist(isr)}


def test_with_leaders_that_change_all_the_time_pictures_and_tables_stay_within_their_bounds(
    lost: tuple[dict[str, Any], PartitionRows],
) -> None:
    incident, rows = lost
    pictures = by_kind(incident, PartitionRows({**rows.tables, **flapping(incident, 600)}))
    for picture in pictures.values():
        assert sum(1 for _ in values_of(picture.spec)) <= MOST_MARKS
        assert len(picture.rows) <= MOST_ROWS
    assert "no room" in (pictures["timeline"].left_out or "")
    assert f"first {MOST_ROWS}" in (pictures["timeline"].left_out or "")


def test_without_rows_only_the_slots_are_drawn_and_they_come_from_the_incident(
    lost: tuple[dict[str, Any], PartitionRows],
) -> None:
    incident, _ = lost
    pictures = by_kind(incident, PartitionRows({}))
    assert list(pictures) == ["slots"]
    assert "0 of 3" in (pictures["slots"].left_out or "")  # the acknowledgements have no place


def test_the_time_looked_at_is_bounded_and_what_lies_outside_is_said(
    lost: tuple[dict[str, Any], PartitionRows],
) -> None:
    incident, rows = lost
    later = {**incident, "truncated_ts": incident["lost_ts"] + timedelta(days=2)}
    later["chain"] = [*incident["chain"], {"seq": 9, "ts": later["truncated_ts"], "what": "broker 1 cut its log"}]
    start, end = window_of(later)
    assert end - start < timedelta(hours=1)
    assert "minutes around the loss" in (by_kind(later, rows)["timeline"].left_out or "")
    naive = {**incident, "lost_ts": incident["lost_ts"].replace(tzinfo=None)}  # as Spark gives it
    assert window_of(naive) == window_of(incident)
    assert window_of(incident)[0].tzinfo == UTC
    assert isinstance(start, datetime)


def test_what_an_old_leader_acknowledged_after_an_election_it_did_not_hear_of_stands_below_the_doom(
    lost: tuple[dict[str, Any], PartitionRows],
) -> None:
    """In the replay's order it stands before it, since nothing on that broker tells of the election."""
    incident, rows = lost
    table = rows.tables["replication_events"]
    later = incident["lost_ts"] + timedelta(milliseconds=1100)
    times = [
        later
        if row["kind"] in {"append", "ack"} and row["leader_epoch"] == 0 and row["base_offset"] == 4
        else row["ts"]
        for row in table.select(["kind", "leader_epoch", "base_offset", "ts"]).to_pylist()
    ]
    place = table.column_names.index("ts")
    moved = table.set_column(place, table.schema.field(place), pa.array(times, table.schema.field(place).type))
    steps = story_of(incident, PartitionRows({**rows.tables, "replication_events": moved}))
    words = [step.words for step in steps]
    (doom,) = (place for place, step in enumerate(steps) if step.is_doom)
    assert words.index("produce 2, acks=all (lost)") < doom < words.index("4 acknowledged (lost)")


def test_a_partition_with_one_replica_that_comes_back_with_less_is_doomed_as_it_starts() -> None:
    history = History()
    history.decide(0, 1, [1], replicas=[1])
    history.role(10, 1, "leader", 0, offset=0, hw=0)
    for base in range(3):
        history.produce(100 + base, 1, base)
    history.decide(900, -1, [1])
    history.add("log_load", 950, broker_id=1, offset=1, hw=1, name="loaded", source_file="server-1.log")
    history.decide(1000, 1, [1])
    history.role(1010, 1, "leader", 2, offset=1, hw=1)
    history.produce(1020, 1, 1)
    incident, rows = read(history)
    assert incident["mechanism"] == "last_replica_standing"
    pictures = by_kind(incident, rows)
    assert list(pictures) == ["timeline", "messages", "slots"]
    assert [step.what for step in story_of(incident, rows) if step.is_doom] == ["started"]
