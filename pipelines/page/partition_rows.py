"""Which rows of the tables an incident's pictures are made of, and how they look to those who draw them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_TIME: Final = timedelta(minutes=15)  # before and after the loss that is looked at, at most
MARGIN: Final = timedelta(seconds=1)  # at least so much before the story begins, and after it ends


class Reading(NamedTuple):
    """What to read of a table: which columns, and of which rows."""

    columns: tuple[str, ...]
    of_partition: bool = True  # rows of the incident's topic, incarnation and partition only; else of its recording
    time: str | None = None  # the column that has to lie within `window_of` the incident; null is left out
    kinds: tuple[str, ...] = ()  # if any: the values of `kind` that are wanted


READINGS: Final[Mapping[str, Reading]] = {
    "leo_timeline": Reading(
        ("seq", "ts", "broker_id", "observer", "leo_before", "leo", "step", "evidence"), time="ts"
    ),
    "hw_timeline": Reading(("seq", "ts", "broker_id", "role", "hw_before", "hw", "step", "evidence"), time="ts"),
    "isr_timeline": Reading(
        ("seq", "ts", "leader_id", "leader_epoch", "isr", "isr_before", "state", "change", "evidence")
    ),
    "leadership_timeline": Reading(
        ("leader_epoch", "leader_id", "start_ts", "end_ts", "start_offset", "election", "trigger", "evidence")
    ),
    "log_truncations": Reading(("seq", "ts", "broker_id", "leo_before", "leo_after", "cause", "evidence")),
    "coverage": Reading(
        ("broker_id", "source", "start_ts", "end_ts", "state", "reason", "lines_missing"), of_partition=False
    ),
    "consumer_effects": Reading(
        ("effect", "client_id", "first_offset", "last_offset", "records", "incident_id", "evidence")
    ),
    "replication_events": Reading(
        (
            "seq", "ts", "kind", "request_id", "broker_id", "replica_id", "leader_epoch", "evidence", "base_offset",
            "next_offset", "fetch_offset", "response_hw", "acks", "error_code", "client_id", "duplicate", "unconfirmed",
            "diverging_end_offset", "leader_id", "isr", "election", "role", "leo", "truncate_to", "fenced", "run_count",
        ),
        time="ts",
        kinds=(
            "append", "ack", "fetch_update", "fetch_read", "fetch_apply", "partition_change", "broker_change",
            "role_change", "log_load", "truncation",
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows that `READINGS` asks for, by table; a table that is not there counts as empty.

    Whoever reads them takes of each table the columns named there, the rows of the incident's recording and, unless it
    says otherwise, of its topic, incarnation and partition, and of those with a time the ones within `window_of`.
    Their order does not matter.
    """

    tables: Mapping[str, pa.Table]
    _read: dict[str, list[dict[str, Any]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of(self, name: str) -> list[dict[str, Any]]:
        """Return a table's rows in the order of the replay, with times as microseconds since 1970 in UTC."""
        if name not in self._read:
            table = self.tables.get(name)
            self._read[name] = [] if table is None else _rows(name, table)
        return self._read[name]


def window_of(incident: Mapping[str, Any]) -> tuple[datetime, datetime]:
    """Return from when to when an incident's pictures look, in UTC: from what led to it to what came of it."""
    links = [link["ts"] for link in incident["chain"] or ()]
    told = [incident[name] for name in ("lost_ts", "truncated_ts", "first_ack_ts", "last_ack_ts")]
    times = sorted(_in_utc(one) for one in (*links, *told) if one is not None)
    if not times:
        return datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)
    loss = _in_utc(incident["lost_ts"]) if incident["lost_ts"] is not None else times[-1]
    first, last = max(times[0], loss - MOST_TIME), min(times[-1], loss + MOST_TIME)
    margin = max(MARGIN, (last - first) / 12)
    return first - margin, last + margin


def microseconds(value: object) -> int | None:
    """Return a time of an incident's row as microseconds since 1970."""
    if not isinstance(value, datetime):
        return None
    return (_in_utc(value) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _in_utc(value: datetime) -> datetime:
    """Return a time as Spark or Arrow gives it, both of which mean UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _rows(name: str, table: pa.Table) -> list[dict[str, Any]]:
    reading = READINGS[name]
    plain = _with_integers(table.select([column for column in reading.columns if column in table.column_names]))
    if reading.kinds:
        plain = plain.filter(pc.is_in(plain.column("kind"), pa.array(reading.kinds, pa.string())))
    order = next(
        column for column in ("seq", "leader_epoch", "start_ts", "first_offset") if column in plain.column_names
    )
    rows: list[dict[str, Any]] = plain.sort_by(order).to_pylist()
    return rows


def _with_integers(table: pa.Table) -> pa.Table:
    for place, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            as_us = table.column(place).cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            table = table.set_column(place, column.name, as_us)
    return table
