"""What the tables of a release are, as JSON: `python -m schemas.release > tests/testdata/schemas-VERSION.json`.

The file stays as it is when the schemas go on. Tests make a warehouse from it, as that release left it, and bring it up
to date; and they say which change of a schema would leave such a warehouse behind.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from schemas.dictionary import type_name
from schemas.tables import TABLES


def release() -> dict[str, Any]:
    """Every table with what a warehouse has of it: columns, comments, closed lists and checks."""
    return {
        table.name: {
            "comment": table.comment,
            "key": table.key,
            "checks": table.checks,
            "columns": {
                column.name: {
                    "type": type_name(column.type),
                    "nullable": column.nullable,
                    "values": column.values,
                    "comment": column.comment,
                }
                for column in table.columns
            },
        }
        for table in TABLES.values()
    }


def as_text(tables: dict[str, Any]) -> str:
    """Those tables as JSON with a line per column."""
    texts = []
    for name, table in tables.items():
        rest = [f" {json.dumps(part)}: {json.dumps(table[part])}," for part in ("comment", "key", "checks")]
        columns = [f"  {json.dumps(column)}: {json.dumps(told)}" for column, told in table["columns"].items()]
        texts.append("\n".join([f"{json.dumps(name)}: {{", *rest, ' "columns": {', ",\n".join(columns), " }", "}"]))
    return "{\n" + ",\n".join(texts) + "\n}\n"


if __name__ == "__main__":
    sys.stdout.write(as_text(release()))
