"""Where rows that break a rule stand: their partition and seq, and the line of a file that they were read from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pipelines.expectations.rules import PLACE
from pipelines.warehouse.contract import sql_string
from schemas.runs import PLACES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAMES: Final = tuple(field.name for field in PLACES.value_type)


def places_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the place of each row that has one; what it does not tell is null."""
    found = ({name: told.get(name) for name in _NAMES} for told in map(_told, rows))
    return [place for place in found if place["topic"] is not None or place["source_file"] is not None]


def _told(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what tells a row's place: itself, the first row of a group, or the row that was set aside."""
    if isinstance(row.get("place"), dict):
        told: dict[str, Any] = row["place"]
        return told
    if isinstance(row.get("row"), str):
        try:
            aside = json.loads(row["row"])
        except ValueError:
            return row
        return aside if isinstance(aside, dict) else row
    return row


def lines_asked(places: Sequence[Mapping[str, Any]], events: str) -> str | None:
    """Return the query for the events that stand at these places; None: there is nothing to look up.

    `events`: the view of replication_events.
    """
    asked = {tuple(place[name] for name in PLACE) for place in places if place["source_file"] is None}
    known = sorted((key for key in asked if None not in key), key=str)
    if not known:
        return None
    any_of = " OR ".join(
        f"(topic = {sql_string(str(topic))} AND incarnation = {int(incarnation)} "
        f"AND partition = {int(partition)} AND seq = {int(seq)})"
        for topic, incarnation, partition, seq in known
    )
    return f"SELECT {', '.join((*PLACE, 'source_file', 'source_line'))} FROM {events} WHERE {any_of}"


def with_lines(places: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the places with the lines that their events were read from."""
    lines = {tuple(event[name] for name in PLACE): event for event in events}
    told = []
    for place in places:
        event = lines.get(tuple(place[name] for name in PLACE)) if place["source_file"] is None else None
        line = {name: event[name] for name in ("source_file", "source_line")} if event else {}
        told.append({**place, **line})
    return told


def in_words(place: Mapping[str, Any]) -> str:
    """Return a place for people."""
    line = "" if place["source_file"] is None else place["source_file"]
    if line and place["source_line"] is not None:
        line += f":{place['source_line']}"
    if place["topic"] is None:
        return line
    where = f"{place['topic']}-{place['partition']}"
    where += f" (incarnation {place['incarnation']})" if place["incarnation"] else ""
    where += "" if place["seq"] is None else f" seq {place['seq']}"
    return f"{where} [{line}]" if line else where
