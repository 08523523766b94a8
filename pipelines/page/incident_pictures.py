"""The pictures of one incident: what happened when, who told whom what, and which offsets are gone.

For the stage that makes the page: read what `partition_rows.READINGS` says into a `PartitionRows`, and hand it over
with the incident's row as a dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.page.incident_timeline import timeline
from pipelines.page.slot_strip import slot_strip
from pipelines.page.space_time import space_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.page.partition_rows import PartitionRows
    from pipelines.page.picture import Picture


def pictures_of(incident: Mapping[str, Any], rows: PartitionRows) -> list[Picture]:
    """Return the pictures that the rows can show, those that say most first."""
    drawn = (timeline(incident, rows), space_time(incident, rows), slot_strip(incident, rows))
    return [picture for picture in drawn if picture is not None]
