"""Makes the incident page of a run, beside its report, and says where it lies."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pipelines.page.incident_pictures import pictures_of
from pipelines.recording.names import inside
from pipelines.recording.quoting import quotes_of
from pipelines.stages.cluster_parts import parts_of, quality_of
from pipelines.stages.incident_rows import MOST_ROWS, rows_of
from pipelines.stages.page_contents import contents_of, places_quoted
from pipelines.stages.questions import Questions
from replay.losses.sentences import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.page.picture import Picture
    from pipelines.recording.recording import Recording
    from pipelines.stages.questions import Ask
    from pipelines.warehouse.delta_io import Warehouse


def is_there(warehouse: Warehouse, recording_id: str) -> bool:
    """Whether a run before has written the page."""
    return warehouse.text_of(_file(recording_id)) is not None


def path_of(warehouse: Warehouse, recording_id: str) -> str:
    """Return where the page lies."""
    return inside(warehouse.path, _file(recording_id))


def write(warehouse: Warehouse, findings: Mapping[str, Any], recording: Recording | None) -> None:
    """Write the page; `recording`: its files as this run has read them, None: they are not at hand."""
    from pipelines.page.page_file import html_of  # noqa: PLC0415 - templates are wanted nowhere else

    recording_id = findings["recording_id"]
    ask = Questions(warehouse, recording_id)
    quotes = None if recording is None else quotes_of(recording.sources, places_quoted(findings))
    parts = [*parts_of(findings, ask), quality_of(findings, ask, findings["expectations"].get("run_id"))]
    docs = None if findings["expectations"]["checked"] is None else docs_of(recording_id)
    contents = contents_of(findings, parts, lambda incident: pictures(incident, ask), quotes, docs)
    warehouse.write(_file(recording_id), html_of(contents).encode())


def write_why_not(warehouse: Warehouse, recording_id: str, sentence: str) -> None:
    """Write in place of the page why there is none: one of an earlier run would tell of other tables."""
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>No page</title><p>{escape(sentence)}</p></html>'
    )
    warehouse.write(_file(recording_id), text.encode())


def pictures(incident: Mapping[str, Any], ask: Ask) -> list[Picture]:
    """Return an incident's pictures; they say if they are made of a part of the rows."""
    rows, cut = rows_of(incident, ask)
    drawn = pictures_of(incident, rows)
    if not cut:
        return drawn
    said = f"Of {listed(cut)} it knows the {MOST_ROWS:,} rows nearest to the loss."
    return [replace(one, left_out=f"{one.left_out} {said}" if one.left_out else said) for one in drawn]


def docs_of(recording_id: str) -> str:
    """Return the address of Data Docs as seen from the page: a folder's name is quoted, so its address is twice."""
    return f"../_data_docs/{quote(quote(recording_id, safe=''), safe='')}/index.html"


def _file(recording_id: str) -> str:
    return f"reports/{recording_id}.html"
