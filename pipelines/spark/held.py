"""Work on few rows, which the driver does itself: no task, no worker and no shuffle, but the same functions.

Spark plans, compiles, starts workers and stages for half a minute what these functions do in two or three seconds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from replay.arrays.columns import completed_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

# Up to so many facts the driver works on them: it needs up to 11 kB for each, and few cores.
DRIVER_FACTS: Final = 350_000
LOG_BYTES: Final = 1_000  # of a fact in the logs, about
MOST_BYTES: Final = 4_000  # of a fact in memory, and more than any has


def driver_facts(settings: Mapping[str, Any]) -> int:
    """Return up to how many facts the driver works on them itself; 0: Spark does everything."""
    found = settings.get("driver_facts")
    return DRIVER_FACTS if found is None else int(found)


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of several kinds in the driver's memory, as `staging.Staged` has them in files."""

    tables: Mapping[str, Sequence[pa.Table]]

    @classmethod
    def of(cls, told: Iterable[tuple[str, pa.Table]]) -> Held:
        """Collect rows as they are made, each table with its kind."""
        found: defaultdict[str, list[pa.Table]] = defaultdict(list)
        for kind, rows in told:
            if len(rows):
                found[kind].append(rows)
        return cls(found)

    def rows(self, kind: str, schema: pa.Schema) -> pa.Table:
        """Return the rows of one kind with these columns, which are null where a table lacks them."""
        some = [completed_to(rows, schema) for rows in self.tables.get(kind, ())]
        return pa.concat_tables(some) if some else schema.empty_table()

    def streams(self, kind: str) -> list[Path]:  # noqa: ARG002 - as of `staging.Staged`
        """Return no files, since there are none."""
        return []

    @property
    def kinds(self) -> set[str]:
        """The kinds of rows that there are."""
        return set(self.tables)
