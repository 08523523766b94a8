"""The facts of requests about transactions: partitions that were added, markers, and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.lines.rows import Shape
from pipelines.parse.requests import transaction_shapes
from pipelines.parse.requests.request_facts import PARTITION, WHOLE, Rows, api, whole_line

if TYPE_CHECKING:
    from pipelines.lines.rows import FactSink, Line
    from pipelines.parse.requests.request_facts import AnyCompleted
    from pipelines.parse.requests.request_shapes import Completed

TRANSACTION = Shape(
    "transaction",
    (*PARTITION, "name", "transactional_id", "producer_id", "producer_epoch", "error_code"),
    shared=WHOLE,
)


def markers(
    sink: FactSink,
    line: Line,
    completed: Completed[transaction_shapes.MarkersRequest, transaction_shapes.MarkersResponse],
) -> None:
    """Add a row for each marker and partition: what the coordinator wants written, and the outcome."""
    request, response = completed.request, completed.response
    errors: dict[tuple[object, ...], int] = {}
    if not isinstance(response, str):
        for told in response.markers or response.transaction_markers:
            for answers in told.topics:
                for part in answers.partitions:
                    index = part.partition if part.partition_index is None else part.partition_index
                    errors[told.producer_id, answers.name or answers.topic, index] = part.error_code
    rows: Rows = []
    for marker in request.markers or request.transaction_markers:
        name = "marker_commit" if marker.transaction_result else "marker_abort"
        whose = (marker.producer_id, marker.producer_epoch)
        for topic in marker.topics:
            for index in topic.partition_indexes or topic.partitions:
                key = (marker.producer_id, topic.name or topic.topic, index)
                rows.append((key, (key[1], None, index, name, None, *whose, errors.get(key))))
    _add_transaction(sink, line, completed, rows)


def added_partitions(
    sink: FactSink,
    line: Line,
    completed: Completed[transaction_shapes.AddPartitionsRequest, transaction_shapes.AddPartitionsResponse],
) -> None:
    """Add a row for each partition that is added to a transaction, with the transaction's owner."""
    request, response = completed.request, completed.response
    whole = request.v3_and_below_transactional_id or request.transactional_id
    asked = list(request.transactions)
    if whole is not None:
        old = bool(request.v3_and_below_transactional_id)
        producer, epoch, topics = (
            (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, request.v3_and_below_topics)
            if old
            else (request.producer_id, request.producer_epoch, request.topics)
        )
        asked.append(transaction_shapes.AddedTransaction(whole, producer, epoch, topics))
    errors: dict[tuple[object, ...], int | None] = {}
    top = None
    if not isinstance(response, str):
        top = response.error_code or None
        told = [(one.transactional_id, one.topic_results) for one in response.results_by_transaction]
        told.append((whole or "", response.results_by_topic_v3_and_below or response.results))
        for transaction, topics_told in told:
            for results in topics_told:
                for part in results.results_by_partition or results.results:
                    error = part.error_code if part.partition_error_code is None else part.partition_error_code
                    errors[transaction, results.name, part.partition_index] = error
    rows: Rows = []
    for one in asked:
        for topic in one.topics:
            for index in topic.partitions:
                key = (one.transactional_id, topic.name, index)
                whose = (one.transactional_id, one.producer_id, one.producer_epoch)
                rows.append((key, (topic.name, None, index, "added", *whose, errors.get(key, top))))
    _add_transaction(sink, line, completed, rows)


def ended_transaction(
    sink: FactSink,
    line: Line,
    completed: Completed[transaction_shapes.EndTxnRequest, transaction_shapes.EndTxnResponse],
) -> None:
    """Add a row that says how a transaction ended."""
    request, response = completed.request, completed.response
    error = None if isinstance(response, str) else response.error_code
    name = "end_commit" if request.committed else "end_abort"
    values = (name, request.transactional_id, request.producer_id, request.producer_epoch, error)
    _add_transaction(sink, line, completed, [((), (None, None, None, *values))])


def _add_transaction(sink: FactSink, line: Line, completed: AnyCompleted, rows: Rows) -> None:
    if rows:
        sink.add_rows(TRANSACTION, line, whole_line(completed), rows)
    else:
        api(sink, line, completed)
