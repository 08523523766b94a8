"""What a run was told to look at: topics, a span of time. It leaves the rows of everything else as they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from pipelines.warehouse.delta_io import sql_string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.warehouse.delta_io import Warehouse
    from schemas.model import Table

_TIME_COLUMNS: Final = ("ts", "lost_ts", "start_ts")  # the first of them that a table has says when a row happened
SETTINGS: Final = ("topics", "from", "to")


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Topics whose whole name matches a pattern, none: all; and times, in words of SQL."""

    topics: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Narrowing:
        """As the settings of a run say."""
        topics, since, until = (settings.get(name) for name in SETTINGS)
        return cls(tuple(topics or ()), since, until)

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return bool(self.topics or self.since or self.until)

    @property
    def of_topics(self) -> str | None:
        """The condition that the topic is one of them; None: all are."""
        pattern = "|".join(f"^(?:{topic})$" for topic in self.topics)
        return f"topic RLIKE {sql_string(pattern)}" if pattern else None

    def condition(self, table: Table) -> str | None:
        """The condition on rows of a table that lie in it; rows without a time do. None: all of them do."""
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
        """The same for people."""
        topics = [f"topics like {', '.join(self.topics)}"] if self.topics else []
        since = [f"from {self.since}"] if self.since else []
        until = [f"to {self.until}"] if self.until else []
        return " ".join((*topics, *since, *until))


def of_last_replay(warehouse: Warehouse, recording_id: str) -> Narrowing:
    """What the recording's tables tell of: all of it, if any run looked at all; else what the last one looked at."""
    runs = warehouse.read("runs", recording_id).where(
        F.array_contains("stages", "replay") & (F.col("status") != "failed")
    )
    asked = F.coalesce(*(F.get_json_object("configuration", f"$.{name}") for name in SETTINGS))
    latest = runs.orderBy(asked.isNull().desc(), F.desc("finished")).select("configuration").head()
    return Narrowing.of(json.loads(latest.configuration)) if latest else Narrowing()
