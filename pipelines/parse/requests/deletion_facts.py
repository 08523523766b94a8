"""DeleteRecords: what Tidemark reads of the request and its answer, and the facts that it makes of them.

The text form of 2.4 and 2.5 names the fields otherwise (`topic`, `partition`, `timeout`) than 2.6, 2.7 and JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pipelines.lines.rows import Shape
from pipelines.parse.requests.request_facts import PARTITION, WHOLE, Rows, api, whole_line

if TYPE_CHECKING:
    from pipelines.lines.rows import FactSink, Line
    from pipelines.parse.requests.request_shapes import Completed

DELETE_RECORDS = Shape(
    "delete_records", (*PARTITION, "offset", "error_code", "low_watermark"), shared=(*WHOLE, "max_wait_ms")
)


class DeletionBody(msgspec.Struct, rename="camel", gc=False):
    """Base of all, like `request_shapes.Body`; a base from elsewhere hides from ruff that lists may be defaults."""


class DeletedPartition(DeletionBody):
    """Before which offset records are to go; -1: the high watermark."""

    offset: int
    partition_index: int | None = None
    partition: int | None = None


class DeletedTopic(DeletionBody):
    """Partitions of one topic."""

    partitions: list[DeletedPartition]
    name: str | None = None
    topic: str | None = None


class DeletionRequest(DeletionBody):
    """DeleteRecords."""

    topics: list[DeletedTopic] = []
    timeout_ms: int | None = None
    timeout: int | None = None


class DeletionAnswer(DeletionBody):
    """What became of one partition's records."""

    low_watermark: int
    error_code: int
    partition_index: int | None = None
    partition: int | None = None


class DeletionAnswers(DeletionBody):
    """One topic's answers."""

    partitions: list[DeletionAnswer] = []
    name: str | None = None
    topic: str | None = None


class DeletionResponse(DeletionBody):
    """Answer of DeleteRecords."""

    topics: list[DeletionAnswers] = []


def deleted_records(sink: FactSink, line: Line, completed: Completed[DeletionRequest, DeletionResponse]) -> None:
    """Add a row for each partition whose records are to go."""
    request, response = completed.request, completed.response
    answers: dict[tuple[str | None, int | None], DeletionAnswer] = {}
    if not isinstance(response, str):
        for told in response.topics:
            for answer in told.partitions:
                index = answer.partition if answer.partition_index is None else answer.partition_index
                answers[told.name or told.topic, index] = answer
    rows: Rows = []
    for topic in request.topics:
        for part in topic.partitions:
            key = (topic.name or topic.topic, part.partition if part.partition_index is None else part.partition_index)
            found = answers.get(key)
            outcome = (None, None) if found is None else (found.error_code, found.low_watermark)
            rows.append((key, (key[0], None, key[1], part.offset, *outcome)))
    if rows:
        wait = request.timeout if request.timeout_ms is None else request.timeout_ms
        sink.add_rows(DELETE_RECORDS, line, (*whole_line(completed), wait), rows)
    else:
        api(sink, line, completed)
