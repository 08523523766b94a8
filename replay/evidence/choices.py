"""Which facts a question is about, defined once: as a filter of an Arrow table, and as a condition in SQL.

Spark applies the condition where the facts are stored, so that few are transferred; the filter does the same for a
table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Choice:
    """Facts of some kinds and names, with some columns filled and others empty; anything unspecified is ignored."""

    kinds: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # none of these kinds
    names: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """The SQL condition."""
        said = [
            *(f"{column} IS NOT NULL" for column in self.filled),
            *(f"{column} IS NULL" for column in self.empty),
            *([f"kind IN ({listed(self.kinds)})"] if self.kinds else []),
            *([f"kind NOT IN ({listed(self.others)})"] if self.others else []),
            *([f"name IN ({listed(self.names)})"] if self.names else []),
        ]
        return " AND ".join(said)

    @property
    def columns(self) -> list[str]:
        """The columns that are looked at."""
        of_words = {"kind": (*self.kinds, *self.others), "name": self.names}
        return [*self.filled, *self.empty, *(name for name, words in of_words.items() if words)]

    @property
    def expression(self) -> pc.Expression:
        """The condition as Arrow takes it where it reads files."""
        said = [
            *(pc.field(column).is_valid() for column in self.filled),
            *(pc.field(column).is_null() for column in self.empty),
            *([pc.field("kind").isin(self.kinds)] if self.kinds else []),
            *([~pc.field("kind").isin(self.others)] if self.others else []),
            *([pc.field("name").isin(self.names)] if self.names else []),
        ]
        return reduce(and_, said)

    def mask(self, facts: pa.Table) -> pa.ChunkedArray:
        """Which of the facts are chosen; a column that is to be empty may be missing."""
        said = [
            *(pc.is_valid(facts[column]) for column in self.filled),
            *(pc.is_null(facts[column]) for column in self.empty if column in facts.column_names),
            *([pc.is_in(facts["kind"], pa.array(self.kinds))] if self.kinds else []),
            *([pc.invert(pc.is_in(facts["kind"], pa.array(self.others)))] if self.others else []),
            *([pc.is_in(facts["name"], pa.array(self.names))] if self.names else []),
        ]
        return reduce(pc.and_, said)

    def of(self, facts: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """The facts that are chosen, or these columns of them: of a hundred, each is copied."""
        wanted = facts if columns is None else facts.select(list(columns))
        return wanted.filter(self.mask(facts))


FETCHES: Final = Choice(kinds=("fetch",))


def any_of(choices: Iterable[Choice], facts: pa.Table) -> pa.Table:
    """The facts that at least one of the choices selects."""
    return facts.filter(any_mask(choices, facts))


def any_mask(choices: Iterable[Choice], facts: pa.Table) -> pa.ChunkedArray:
    """Which of the facts at least one of the choices selects."""
    return reduce(pc.or_, (one.mask(facts) for one in choices))


def any_sql(choices: Iterable[Choice]) -> str:
    """The SQL condition that at least one of the choices selects a fact."""
    return " OR ".join(f"({one.sql})" for one in choices)


def listed(words: Iterable[str]) -> str:
    """Our own words as an SQL list."""
    return ", ".join(f"'{word}'" for word in words)
