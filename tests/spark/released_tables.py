"""The tables of earlier releases, as tests/testdata/schemas-*.json keep them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from schemas.model import Column, Table

if TYPE_CHECKING:
    from pathlib import Path


def released(path: Path) -> dict[str, Table]:
    """Every table of a release; needs a Spark session for its words for types."""
    told = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: Table(
            name,
            table["comment"],
            tuple(
                Column(
                    column,
                    to_arrow_type(T._parse_datatype_string(of["type"])),
                    of["comment"],
                    nullable=of["nullable"],
                    values=tuple(of["values"]),
                )
                for column, of in table["columns"].items()
            ),
            tuple(table["key"]),
            table["checks"],
        )
        for name, table in told.items()
    }
