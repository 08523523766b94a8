"""Makes the incident page of a run, beside its report, and says where it lies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pipelines.page.drawing import svg_of
from pipelines.page.incident_pictures import pictures_of
from pipelines.recording.names import inside
from pipelines.recording.quoting import quotes_of
from pipelines.spark.beside import Beside
from pipelines.stages.cluster_parts import parts_of, quality_of
from pipelines.stages.incident_rows import MOST_ROWS, rows_of
from pipelines.stages.page_contents import MOST_PICTURED, contents_of, places_quoted
from pipelines.stages.questions import Questions
from replay.losses.sentences import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from pipelines.page.picture import Picture
    from pipelines.recording.recording import Recording
    from pipelines.stages.questions import Ask
    from pipelines.warehouse.delta_io import Warehouse

DRAWER: Final = Beside()


def is_there(warehouse: Warehouse, recording_id: str) -> bool:
    """Whether a run before has written the page."""
    return warehouse.text_of(_file(recording_id)) is not None


def path_of(warehouse: Warehouse, recording_id: str) -> str:
    """Return where the page lies."""
    return inside(warehouse.path, _file(recording_id))


@dataclass(frozen=True, slots=True)
class Begun:
    """The pictures of a page that are being drawn by a process of its own."""

    pictures: dict[str, list[Picture]] = field(default_factory=dict)  # by incident
    drawings: dict[str, Future[str]] = field(default_factory=dict)  # by picture

    def draw(self, pictures: Iterable[Picture]) -> None:
        """Have pictures drawn that are not yet."""
        for picture in pictures:
            if picture.key not in self.drawings:
                self.drawings[picture.key] = DRAWER(svg_of, picture)

    def drawing(self, picture: Picture) -> str:
        """Return the drawing of a picture. RuntimeError if it could not be drawn."""
        try:
            return self.drawings[picture.key].result()
        except Exception as error:
            message = f"the picture {picture.key} could not be drawn: {error!r:.300}"
            raise RuntimeError(message) from error

    def pictures_of(self, incident: Mapping[str, Any], ask: Ask) -> list[Picture]:
        """Return an incident's pictures, which are then being drawn."""
        name = incident["incident_id"]
        if name not in self.pictures:
            self.pictures[name] = pictures(incident, ask)
            self.draw(self.pictures[name])
        return self.pictures[name]


def begin(warehouse: Warehouse, recording_id: str, incidents: Iterable[Mapping[str, Any]]) -> Begun:
    """Have the pictures drawn of these incidents, worst first, of which the page will show some."""
    begun, ask = Begun(), Questions(warehouse, recording_id)
    for incident in islice(incidents, MOST_PICTURED):
        begun.pictures_of(incident, ask)
    return begun


def write(
    warehouse: Warehouse, findings: Mapping[str, Any], recording: Recording | None, begun: Begun | None = None
) -> None:
    """Write the page.

    `recording`: its files as this run has read them, None: they are not at hand. `begun`: what is being drawn already.
    """
    from pipelines.page.page_file import html_of  # noqa: PLC0415 - templates are wanted nowhere else

    recording_id = findings["recording_id"]
    ask, begun = Questions(warehouse, recording_id), Begun() if begun is None else begun
    parts = []
    for part in (*parts_of(findings, ask), quality_of(findings, ask, findings["expectations"].get("run_id"))):
        begun.draw(part.pictures)
        parts.append(part)
    quotes = None if recording is None else quotes_of(recording.sources, places_quoted(findings))
    docs = None if findings["expectations"]["checked"] is None else docs_of(recording_id)
    contents = contents_of(findings, parts, lambda incident: begun.pictures_of(incident, ask), quotes, docs)
    page = html_of(contents, begun.drawing)
    warehouse.write(_file(recording_id), page.encode())


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
