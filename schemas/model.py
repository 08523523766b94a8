"""What a table is: columns with a type, a sentence, a unit and how their values may be known; keys; checks.

Arrow is the one source of types: Spark, Delta, Great Expectations and the docs are all derived from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

INT32 = pa.int32()
INT64 = pa.int64()
FLOAT64 = pa.float64()
STRING = pa.string()
BOOL = pa.bool_()
TIMESTAMP = pa.timestamp("us", tz="UTC")
INT_LIST = pa.list_(INT32)
LONG_LIST = pa.list_(INT64)
STRING_LIST = pa.list_(STRING)

EVIDENCE = ("observed", "derived", "bounded", "unknown")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `comment` is a full sentence for an analyst; `unit` is null where the type says it all."""

    name: str
    type: pa.DataType
    comment: str
    nullable: bool = True
    unit: str | None = None
    values: tuple[str, ...] = ()  # a closed list of the values it may take, empty: open
    # SQL for its value in rows that were written before there was such a column; one that is never null needs it.
    before: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table: `key` is unique within a partition, or within a recording for rows that are not a partition's.

    `checks` are SQL conditions that every row meets; `questions` are those that an analyst starts from, each with the
    Spark SQL that answers it.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    checks: dict[str, str] = field(default_factory=dict)
    questions: tuple[tuple[str, str], ...] = ()

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema, with comments as field metadata."""
        return pa.schema([pa.field(c.name, c.type, c.nullable, metadata={"comment": c.comment}) for c in self.columns])

    def column(self, name: str) -> Column:
        """The column of that name; KeyError where there is none."""
        for c in self.columns:
            if c.name == name:
                return c
        raise KeyError(name)


def required(name: str, type_: pa.DataType, comment: str, **rest: object) -> Column:
    """A column that is never null."""
    return Column(name, type_, comment, nullable=False, **rest)  # type: ignore[arg-type]


PARTITION_KEY: tuple[Column, ...] = (
    required("recording_id", STRING, "The growing body of evidence about one cluster that this row was made from."),
    required("topic", STRING, "Topic name; the topic id's text where no source names the topic."),
    Column("topic_id", STRING, "Topic id as Kafka prints it; null where no source tells it."),
    required("incarnation", INT32, "0, then one more each time a topic of that name is created again."),
    required("partition", INT32, "Partition number."),
)

EVIDENCE_COLUMN = required(
    "evidence",
    STRING,
    "How the row is known: observed (a source states it), derived (follows with no freedom left), "
    "bounded (known within an interval, or the cautious end of it), unknown.",
    values=EVIDENCE,
)

SEQ = required("seq", INT64, "Place in the partition's replay order; joins replication_events.")
TS = Column("ts", TIMESTAMP, "When it happened, on the acting broker's clock; null: no source tells a time.")
WINDOW = Column(
    "window",
    TIMESTAMP,
    "Start of the window (an hour of event time, or as set) that the replay had reached; never falls with seq. Null: "
    "the row was written before there were windows.",
)
