"""What a run is restricted to: topics, a span of time. Rows of everything else stay as they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pipelines.warehouse.commit_point import complete_runs
from pipelines.warehouse.contract import sql_string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.warehouse.delta_io import Warehouse
    from schemas.model import Table

_TIME_COLUMNS: Final = ("ts", "lost_ts", "start_ts")  # the first of them that a table has is the time of its rows
SETTINGS: Final = ("topics", "from", "to")


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Patterns that match whole topic names (none: all topics), and times as SQL text."""

    topics: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Narrowing:
        """Read it from the settings of a run."""
        topics, since, until = (settings.get(name) for name in SETTINGS)
        return cls(tuple(topics or ()), since, until)

    def __bool__(self) -> bool:
        """Whether there is any restriction."""
        return bool(self.topics or self.since or self.until)

    @property
    def of_topics(self) -> str | None:
        """The condition that a row's topic is included; None: all are."""
        pattern = "|".join(f"^(?:{topic})$" for topic in self.topics)
        return f"topic RLIKE {sql_string(pattern)}" if pattern else None

    def condition(self, table: Table) -> str | None:
        """Return the condition that a row of a table is included; rows without a time are. None: all rows are."""
        names = {column.name for column in table.columns}
        happened = next((name for name in _TIME_COLUMNS if name in names), None)
        met = [self.of_topics] if self.of_topics and "topic" in names else []
        if happened is not None and self.since:
            over = "end_ts" if "end_ts" in names else happened
            met.append(f"({over} IS NULL OR {over} >= TIMESTAMP {sql_string(self.since)})")
        if happened is not None and self.until:
            met.append(f"({happened} IS NULL OR {happened} <= TIMESTAMP {sql_string(self.until)})")
        return " AND ".join(met) or None

    @property
    def words(self) -> str:
        """The restriction in words for people."""
        topics = [f"topics like {', '.join(self.topics)}"] if self.topics else []
        since = [f"from {self.since}"] if self.since else []
        until = [f"to {self.until}"] if self.until else []
        return " ".join((*topics, *since, *until))


def of_last_replay(warehouse: Warehouse, recording_id: str) -> Narrowing:
    """Return what the recording's tables cover: everything if any run was unrestricted, else the last run's part."""
    runs = complete_runs(warehouse, recording_id, "stages", "configuration", "finished")
    of_replays = [row for row in runs if "replay" in row["stages"]]
    latest = [
        Narrowing.of(json.loads(row["configuration"])) for row in sorted(of_replays, key=lambda row: row["finished"])
    ]
    return Narrowing() if not all(latest) or not latest else latest[-1]
