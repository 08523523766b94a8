"""Rows of a recording's tables as dicts, of which the store reads no more than a condition leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from schemas.errors import InputError
from schemas.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import pyarrow.dataset as ds

Row = dict[str, Any]
_FIRST_SPAN: Final = 4_096  # how far back the newest rows are looked for at first; then ever further
_WIDER: Final = 8


class Tables(Protocol):
    """One recording's tables in versions that belong together, as `tidemark.snapshot` finds them."""

    @property
    def recording_id(self) -> str:
        """The recording."""

    def dataset(self, table: str) -> ds.Dataset:
        """Return the recording's rows of a table, read when they are asked for."""


def recordings_in(warehouse: str, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the recordings that have runs in a warehouse; InputError if it is none."""
    options = None if storage_options is None else dict(storage_options)
    try:
        runs = DeltaTable(f"{warehouse.rstrip('/')}/runs", storage_options=options)
    except TableNotFoundError:
        message = "there are no tables of Tidemark: ./spark-submit.sh run --recording DIR --warehouse DIR makes them"
        raise InputError(message, source=warehouse) from None
    except DeltaError as error:
        raise InputError(" ".join(str(error).split()), source=warehouse) from error
    return sorted({str(one["recording_id"]) for one in runs.partitions()})


def rows(
    tables: Tables,
    name: str,
    where: pc.Expression | None = None,
    columns: Sequence[str] = (),
    order: Sequence[str] = ("seq",),
) -> list[Row]:
    """Return the rows that meet a condition, in order. What a table of an older release lacks is null."""
    try:
        data = tables.dataset(name)
    except KeyError:  # the run was made before there was such a table
        return []
    schema = TABLES[name].arrow_schema
    wanted = [field for field in schema if field.name in columns or not columns]
    there = set(data.schema.names)
    found = data.to_table(columns=[field.name for field in wanted if field.name in there], filter=where)
    for field in wanted:
        if field.name not in there:
            found = found.append_column(field, pa.nulls(len(found), field.type))
    by = [(column, "ascending") for column in order if column in found.column_names]
    told: list[Row] = (found.sort_by(by) if by else found).to_pylist()
    return told


def count(tables: Tables, name: str, where: pc.Expression) -> int:
    """Return how many rows meet a condition."""
    return int(tables.dataset(name).count_rows(filter=where))


def newest(
    read: Callable[[pc.Expression], list[Row]],
    key: Callable[[Row], Hashable],
    expected: set[Hashable],
    upto: int,
) -> dict[Hashable, Row]:
    """Return the last row of each key up to a place in the order.

    `read` gives the rows that meet a condition on `seq`. They are looked for backwards, in ever longer spans, until all
    expected keys are found or the order begins: what happened lately to a long partition is found without reading it.
    """
    found: dict[Hashable, Row] = {}
    high, span = upto, _FIRST_SPAN
    while high >= 0:
        seq = pc.field("seq")
        for row in reversed(read((seq > high - span) & (seq <= high))):
            found.setdefault(key(row), row)
        if expected <= set(found):
            break
        high, span = high - span, span * _WIDER
    return found
