"""Facts as rows: places in the columns of their kind; a column that a fact does not have reads as null.

A partition may have millions of facts, so no fact is an object of its own except for its place. The columns stay in
Arrow as they came; a column is converted when a rule first reads it. Times are microseconds.
"""

from __future__ import annotations

from array import array
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence

    from replay.arrays.ints import Flags, Ints

METADATA_LOG = "__cluster_metadata"
METADATA_TOPIC = (METADATA_LOG, "AAAAAAAAAAAAAAAAAAAAAQ")  # name and id; Raft replicates it, by rules other than these
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")  # coordinators append to them
ORDER = ["kind", "ts", "fact_id"]  # the order in which facts are laid out
FEW = 20_000  # rows of a column of which it does not matter that it is held twice
UNIQUE = "fact_id"  # the one text column that has as many values as rows
PLACE = attrgetter("place")


class FactColumns(dict[str, "MutableSequence[Any]"]):
    """The columns of all facts of one kind: Python values by name, read from the Arrow table on first use."""

    __slots__ = ("length", "read", "table")

    def __init__(self, table: pa.Table) -> None:
        """`table`: in one chunk."""
        super().__init__()
        self.table = table
        self.length = len(table)
        self.read: dict[str, tuple[Ints, Flags]] = {}  # columns of numbers that were read as a whole

    def __missing__(self, name: str) -> MutableSequence[Any]:
        """Convert a column on first use; one that no fact of this kind fills is null throughout."""
        place = self.table.schema.get_field_index(name)
        column = values_of(self.table.column(place), name) if place >= 0 else [None] * self.length
        self[name] = column
        return column

    def take(self, name: str, places: Ints, kind: pa.DataType) -> pa.Array:
        """The column's values at some places, as one Arrow chunk of type `kind`."""
        found = self.chosen(name, places)
        return found if found.type == kind else found.cast(kind)

    def numbers(self, name: str, places: Ints, missing: int = 0) -> Ints:
        """Values at some places as integers, from whole numbers, booleans or times (in us); null as `missing`."""
        if self.length > FEW or self.table.schema.get_field_index(name) < 0:
            return numbers(self.chosen(name, places), missing)
        if name not in self.read:
            column = self.table.column(name).chunk(0)
            self.read[name] = numbers(column), column.is_valid().to_numpy(zero_copy_only=False)
        values, known = self.read[name]
        return np.where(known[places], values[places], missing)

    def known(self, name: str, places: Ints) -> Flags:
        """Which of the column's values at some places are not null."""
        found: Flags = self.chosen(name, places).is_valid().to_numpy(zero_copy_only=False)
        return found

    def chosen(self, name: str, places: Ints) -> pa.Array:
        """The column's values at some places, in their own type."""
        place = self.table.schema.get_field_index(name)
        if place < 0:
            return pa.array([self[name][k] for k in places.tolist()])
        return self.table.column(place).chunk(0).take(pa.array(places))


class Row:
    """One fact; a missing column is null."""

    __slots__ = ("columns", "place")

    def __init__(self, fields: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **more: Any) -> None:  # noqa: ANN401
        """A standalone row with these values."""
        self.columns = FactColumns(NO_TABLE)
        self.columns.length = 1
        self.columns.update({name: [value] for name, value in {**dict(fields), **more}.items()})
        self.place = 0

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a column may be of any type
        """Value of a column."""
        return self.columns[name][self.place]

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Record a value that the fact itself does not state."""
        if value is None and not isinstance(self.columns[name], list):
            self.columns[name] = list(self.columns[name])  # until now the column held only numbers
        self.columns[name][self.place] = value

    @property
    def stands_alone(self) -> bool:
        """Whether it was made by a rule, so that no table has it."""
        return self.columns.table is NO_TABLE

    @classmethod
    def at(cls, columns: FactColumns, place: int) -> Row:
        """The fact at that place."""
        row = cls.__new__(cls)
        row.columns, row.place = columns, place
        return row

    def but(self, **changed: Any) -> Row:  # noqa: ANN401
        """A copy of the fact with some values changed."""
        row = Row(changed)
        of = {*self.columns, *self.columns.table.column_names} - changed.keys()
        row.columns.update({name: [self[name]] for name in of})
        return row


NO_TABLE = pa.table({})
NO_COLUMNS = FactColumns(NO_TABLE)  # stands for the columns of any row that stands alone


def standing_together(rows: Sequence[Row], names: Iterable[str]) -> FactColumns:
    """Some columns of rows that stand alone, one after the other."""
    found = FactColumns(NO_TABLE)
    found.length = len(rows)
    found.update({name: [row[name] for row in rows] for name in names})
    return found


def values_of(column: pa.ChunkedArray, name: str = "") -> MutableSequence[Any]:
    """A column as Python values: non-null whole numbers packed, equal text shared, times in microseconds."""
    values = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_integer(values.type) or pa.types.is_timestamp(values.type):
        told = numbers(values)
        if not values.null_count:
            return array("q", told.tobytes())
        found = told.astype(object)
        found[values.is_null().to_numpy(zero_copy_only=False)] = None
        return list(found.tolist())
    if pa.types.is_string(values.type) and name != UNIQUE:
        encoded = values.dictionary_encode()
        words = [*encoded.dictionary.to_pylist(), None]
        return [words[k] for k in encoded.indices.fill_null(len(words) - 1).to_numpy().tolist()]
    if pa.types.is_string(values.type) or pa.types.is_boolean(values.type):
        return list(values.to_numpy(zero_copy_only=False).tolist())
    return list(values.to_pylist())


def rows_of_partitions(tables: Sequence[pa.Table]) -> list[list[Row]]:
    """The facts of some partitions as rows, each partition's as `rows_of_facts` has them, in columns that they share.

    Rows are sorted by time because rules read them in that order: what is read together is then adjacent in memory,
    too. They are sorted by fact id as well, so the result does not depend on the order of the facts.
    """
    found: list[list[Row]] = [[] for _ in tables]
    facts = pa.concat_tables(tables, promote_options="default")
    if not len(facts):
        return found
    of = pa.array(np.repeat(np.arange(len(tables)), [len(one) for one in tables]))
    kind, *within = (facts[name] for name in ORDER)
    keys = pa.table([kind, of, *within], [ORDER[0], "of", *ORDER[1:]])
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])
    facts, of = used_columns(facts).take(order).combine_chunks(), of.take(order).to_numpy()
    encoded = facts.column("kind").combine_chunks().dictionary_encode()
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    bounds = np.searchsorted(codes, np.arange(len(encoded.dictionary) + 1))
    for first, last in pairwise(bounds.tolist()):
        columns = FactColumns(used_columns(facts.slice(first, last - first)))
        for place, partition in enumerate(of[first:last].tolist()):
            found[partition].append(Row.at(columns, place))
    return found


def used_columns(facts: pa.Table) -> pa.Table:
    """The table without columns that are null throughout."""
    return facts.select([name for name in facts.column_names if facts.column(name).null_count < len(facts)])


def rows_of_facts(facts: pa.Table) -> list[Row]:
    """A table of facts as rows, by kind, and within each by time and fact id."""
    (rows,) = rows_of_partitions([facts])
    return rows


def place_in_log(row: Row) -> tuple[Any, str, int]:
    """Sort key of lines: by time, and in the order of their log where they share a millisecond."""
    return row["ts"], row["source_file"], row["source_line"]


def is_by_replica(fetch: Row) -> bool:
    """Whether a fetch is a follower's: consumers have no broker id."""
    replica: int | None = fetch["replica_id"]
    return replica is not None and replica >= 0


def places_of(rows: Sequence[Row]) -> Ints:
    """Places of rows that belong to the same columns."""
    return np.fromiter(map(PLACE, rows), np.int64, len(rows))


def stretches_by_kind(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Rows that follow each other in the same columns, with their kind: one of them tells it of all."""
    for _, stretch in groupby(rows, lambda row: id(row.columns)):
        mine = list(stretch)
        yield mine[0]["kind"], mine
