"""The cookbook: questions as queries that every engine takes, and what they answer on a bundled recording.

`PYTHONPATH=. python tests/unit/cookbook.py > docs/cookbook.md` brings the page up to date.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from without_spark import tables_of_recording

from pipelines.warehouse.engines import in_duckdb
from schemas.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY: Final = Path(__file__).parent.parent.parent
QUERIES: Final = REPOSITORY / "docs" / "queries"
SHOWN_ON: Final = "unclean-election"  # the bundled recording that answers most of the questions with rows
ROWS: Final = 10  # of an answer that the page shows
LEFT_OUT: Final = ("recording_id", "incarnation")  # the same in every row of that recording
PARTS: Final = ("question", "read", "parameters")

_INTRODUCTION: Final = """\
# Cookbook

<!-- Made by `PYTHONPATH=. python tests/unit/cookbook.py > docs/cookbook.md`; a test compares them. -->

The questions that analysts and operators ask, each as one query: a file in [queries/](queries) that Spark SQL, DuckDB
and Polars take as it stands, and to which all three give the same answer, which a test compares row by row. Below each
stands what it answers on `tests/recordings/{recording}`, a real cluster that lost records in an unclean election (the
recording of `./spark-submit.sh demo`). The answers there leave out `recording_id` and `incarnation`, which are the same
in every row, and all rows after the first {rows}.

What to run them with, from this folder in `.venv/bin/python`, which has all that they need:

```python
import tidemark  # DuckDB or Polars, without a JVM

tables = tidemark.snapshot("WAREHOUSE", "RECORDING")  # versions of all tables that belong together
query = open("docs/queries/q01-acknowledged-and-gone.sql").read()
tables.duckdb().sql(query)
tables.polars().execute(query).collect()
```

```
./spark-submit.sh views --warehouse DIR --database tidemark --run -- --conf spark.sql.catalogImplementation=hive
spark-sql --database tidemark -f docs/queries/q01-acknowledged-and-gone.sql
```

The first command registers tables and views in a Spark catalog, such as a Hive metastore; without `--run` it prints the
statements, and with `--dialect duckdb` those for DuckDB's own client. A catalog shows each table as it stands, so while
a run goes on its tables may be of different runs; `tidemark.snapshot` reads those that belong together. A warehouse may
hold several recordings: every query keeps them apart, and `recording_id` is the first column of every answer.

An answer is what the evidence forces and no more: null means that nothing tells, never zero
([evidence.md](evidence.md)). Every table and column is in [tables.md](tables.md). The queries also read these views,
which have no nested columns and so suit BI tools:

| view | one row is | why there is such a view |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Query:
    """One file of the cookbook."""

    name: str
    question: str
    read: str
    parameters: str | None
    sql: str  # without the header


def queries() -> list[Query]:
    """All of them: the numbered questions, then those of operators."""
    return [_query(path) for path in sorted(QUERIES.glob("*.sql"), key=lambda path: (path.name[0] != "q", path.name))]


def _query(path: Path) -> Query:
    lines = path.read_text(encoding="utf-8").splitlines()
    header = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
    parts: dict[str, str] = {}
    for line in header:
        name, colon, text = line.partition(": ")
        if colon and name in PARTS:
            parts[name] = text
        else:
            last = next(reversed(parts))
            parts[last] = f"{parts[last]} {line.strip()}"
    sql = "\n".join(lines[len(header) :])
    return Query(path.stem, parts["question"], parts["read"], parts.get("parameters"), sql)


def page() -> str:
    """The whole page."""
    views = [f"| `{view.name}` | {view.comment} | {view.reason} |" for view in VIEWS.values()]
    db = in_duckdb(tables_of_recording(REPOSITORY / "tests" / "recordings" / SHOWN_ON))
    sections = [_section(one, db.sql(one.sql).to_arrow_table()) for one in queries()]
    return "\n".join([_INTRODUCTION.format(recording=SHOWN_ON, rows=ROWS) + "\n".join(views), *sections])


def _section(query: Query, answer: pa.Table) -> str:
    lines = [f"\n## {query.question}\n", f"{query.read}\n"]
    lines += [f"Parameters: {query.parameters}\n"] if query.parameters else []
    lines += [f"[{query.name}.sql](queries/{query.name}.sql)\n", "```sql", query.sql, "```\n"]
    return "\n".join(lines + _table(answer))


def _table(answer: pa.Table) -> list[str]:
    if not len(answer):
        return ["No rows."]
    names = [name for name in answer.column_names if name not in LEFT_OUT]
    rows = [[_cell(row[name]) for name in names] for row in answer.slice(0, ROWS).to_pylist()]
    lines = [_line(names), _line(["---"] * len(names)), *map(_line, rows)]
    more = len(answer) - ROWS
    return [*lines, f"\n{more} more row{'s' * (more > 1)}."] if more > 0 else lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.3f} s"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def plain(value: Any) -> Any:
    """The value as Python has it, whichever engine it comes from: engines differ in types of sums and durations."""
    if isinstance(value, pa.MonthDayNano):
        return timedelta(days=value.days, microseconds=value.nanoseconds / 1000)
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 6)
    return value


if __name__ == "__main__":
    sys.stdout.write(page())
