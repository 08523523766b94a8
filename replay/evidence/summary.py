"""What facts tell of the whole recording, summed up so that it can be put together from pieces of the facts.

The facts may be cut into pieces anywhere, and the pieces put together in any order: the result tells the same. So
whoever has the facts in one table sums up one piece. Rows are per broker and stretch of time, or per connection; only
clients' requests have a row for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from replay.evidence.choices import Choice
from replay.evidence.client_requests import (
    REQUEST_SCHEMA,
    USER_SCHEMA,
    requests_in,
    requests_together,
    users_in,
    users_together,
)
from replay.evidence.expiry_runs import SHRINK_SCHEMA, first_shrinks, shrinks_in
from replay.evidence.heard import HEARD_SCHEMA, SPAN_SCHEMA, heard_in, heard_together, spans_in, spans_together
from replay.evidence.sources import BROKER_SCHEMA, brokers_together, own_logs
from replay.evidence.standstills import PIECE_SCHEMA, pieces_of, pieces_together
from schemas.model import INT64, STRING, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

NAMING: Final = Choice(  # brokers' lines that state a topic's name and id
    kinds=("topic_change", "role_change", "leader_and_isr"), filled=("topic", "topic_id"), empty=("metadata_offset",)
)
NAMED_SCHEMA: Final = pa.schema([pa.field("topic", STRING), pa.field("topic_id", STRING), pa.field("ts", TIMESTAMP)])
SUMMED: Final = (  # columns of the facts that are looked at
    "kind", "name", "broker_id", "source_file", "source_line", "ts", "ts_error_us", "topic", "topic_id",
    "metadata_offset", "connection", "correlation_id", "client_id", "api_key", "total_us", "queue_us", "replica_id",
    "replicas", "isr",
)  # fmt: skip
COUNT_SCHEMA: Final = pa.schema([pa.field("facts", INT64)])


class Summary(NamedTuple):
    """What some facts tell of the recording, a table for each question (`PARTS`)."""

    counts: pa.Table
    spans: pa.Table
    heard: pa.Table
    requests: pa.Table
    users: pa.Table
    pieces: pa.Table
    shrinks: pa.Table
    named: pa.Table
    own_logs: pa.Table


class Part(NamedTuple):
    """A question: what facts tell, and how rows about several pieces of them become fewer."""

    schema: pa.Schema
    told: Callable[[pa.Table], pa.Table]
    together: Callable[[pa.Table], pa.Table]


def counts_in(facts: pa.Table) -> pa.Table:
    """How many facts there are."""
    return pa.table([[len(facts)]], schema=COUNT_SCHEMA)


def counts_together(counts: pa.Table) -> pa.Table:
    """The same of several pieces."""
    return pa.table([[pc.sum(counts["facts"]).as_py() or 0]], schema=COUNT_SCHEMA)


def names_in(facts: pa.Table) -> pa.Table:
    """Topics and their ids, as brokers' lines state them."""
    return NAMING.of(facts, NAMED_SCHEMA.names)


def names_together(named: pa.Table) -> pa.Table:
    """Each pair once, with the time of the first statement."""
    pair = NAMED_SCHEMA.names[:2]
    return named.group_by(pair).aggregate([("ts", "min")]).rename_columns(NAMED_SCHEMA.names)


PARTS: Final[Mapping[str, Part]] = {
    "counts": Part(COUNT_SCHEMA, counts_in, counts_together),
    "spans": Part(SPAN_SCHEMA, spans_in, spans_together),
    "heard": Part(HEARD_SCHEMA, heard_in, heard_together),
    "requests": Part(REQUEST_SCHEMA, requests_in, requests_together),
    "users": Part(USER_SCHEMA, users_in, users_together),
    "pieces": Part(PIECE_SCHEMA, pieces_of, pieces_together),
    "shrinks": Part(SHRINK_SCHEMA, shrinks_in, first_shrinks),
    "named": Part(NAMED_SCHEMA, names_in, names_together),
    "own_logs": Part(BROKER_SCHEMA, own_logs, brokers_together),
}


def summary_of(facts: pa.Table) -> Summary:
    """Sum up facts, of which these columns are looked at: `SUMMED`."""
    facts = facts.select(SUMMED)  # each filter copies what there is
    return Summary(**{name: part.together(part.told(facts)) for name, part in PARTS.items()})


def put_together(summaries: Iterable[Summary]) -> Summary:
    """Return the summary of all the facts that are summed up in these, which may be none."""
    given = [*summaries]
    found = {}
    for name, part in PARTS.items():
        tables = [getattr(one, name) for one in given]
        found[name] = part.together(pa.concat_tables([part.schema.empty_table(), *tables]))
    return Summary(**found)
