"""Counts the records of the metadata log, over all facts of a recording, that never took effect.

A controller that is cut off keeps writing to its own log until it hears of its successor, which has other records at
the same offsets (`replay.evidence.metadata_log`). The few facts about the dumps' parts tell which records these are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replay.evidence.metadata_log import PART, Parts
from replay.evidence.rows import rows_of_facts

if TYPE_CHECKING:
    from pipelines.stages.questions import Ask

_OF_PARTS: Final = "kind, fact_id, name, ts, metadata_offset, last_offset, controller_epoch, in_snapshot"


def records_set_aside(ask: Ask) -> int:
    """Return how many records of the metadata log a deposed controller wrote that never reached anybody else."""
    parts = ask.arrow(f"SELECT {_OF_PARTS} FROM {{facts}} WHERE kind = '{PART}'", "facts")
    deposed = Parts(rows_of_facts(parts)).deposed()
    if not deposed:
        return 0
    behind = (f"(controller_epoch = {epoch} AND metadata_offset >= {begin})" for epoch, begin in deposed.items())
    (told,) = ask(
        f"""SELECT count(*) AS records FROM (SELECT DISTINCT controller_epoch, metadata_offset FROM {{facts}}
            WHERE kind <> '{PART}' AND NOT coalesce(in_snapshot, false) AND ({" OR ".join(behind)}))""",
        "facts",
    )
    return int(told["records"])


def sentences(records: int) -> list[str]:
    """Describe these records for the report."""
    if not records:
        return []
    some = "1 record" if records == 1 else f"{records:,} records"
    was = "was" if records == 1 else "were"
    why = "controllers wrote them that were deposed before a majority had them"
    return [f"{some} of the metadata log {was} set aside: {why}."]
