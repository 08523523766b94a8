"""Reads what the pictures of an incident are made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pipelines.page.partition_rows import READINGS, PartitionRows, window_of
from pipelines.warehouse.contract import sql_string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.page.partition_rows import Reading
    from pipelines.stages.questions import Ask

MOST_ROWS: Final = 50_000  # of a table; of more, those nearest to the loss


def rows_of(incident: Mapping[str, Any], ask: Ask) -> tuple[PartitionRows, list[str]]:
    """Return the rows, and the tables of which only those nearest to the loss are among them."""
    tables = {name: ask.arrow(_question(name, reading, incident), name) for name, reading in READINGS.items()}
    return PartitionRows(tables), [name for name, rows in tables.items() if len(rows) >= MOST_ROWS]


def _question(name: str, reading: Reading, incident: Mapping[str, Any]) -> str:
    conditions = []
    if reading.of_partition:
        conditions += [
            f"topic = {_text(incident['topic'])}",
            f"incarnation = {int(incident['incarnation'])}",
            f"`partition` = {int(incident['partition'])}",
        ]
    if reading.kinds:
        conditions.append(f"kind IN ({', '.join(map(sql_string, reading.kinds))})")
    nearest = ""
    if reading.time is not None:
        start, end = (_us(one) for one in window_of(incident))
        conditions.append(f"unix_micros({reading.time}) BETWEEN {start} AND {end}")
        loss = end if incident["lost_ts"] is None else _us(incident["lost_ts"])
        nearest = f" ORDER BY abs(unix_micros({reading.time}) - {loss}), seq"
    columns = ", ".join(f"`{column}`" for column in reading.columns)
    return f"SELECT {columns} FROM {{{name}}} WHERE {' AND '.join(conditions) or 'true'}{nearest} LIMIT {MOST_ROWS}"


def _text(value: str) -> str:
    """Return a name from a log as SQL; braces would name a table."""
    return sql_string(value).replace("{", "{{").replace("}", "}}")


def _us(value: datetime) -> int:
    at = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
