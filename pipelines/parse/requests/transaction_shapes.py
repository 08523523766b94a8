"""What Tidemark reads of requests about transactions, as `request_shapes` does for all others."""

from __future__ import annotations

import msgspec


class TransactionBody(msgspec.Struct, rename="camel", gc=False):
    """Base of all, like `request_shapes.Body`; a base from elsewhere hides from ruff that lists may be defaults."""


class MarkerTopic(TransactionBody):
    """Partitions of one topic that get a marker; 2.4 to 2.6 say `topic` and `partitions`."""

    name: str | None = None
    topic: str | None = None
    partition_indexes: list[int] = []
    partitions: list[int] = []


class Marker(TransactionBody):
    """How a producer's transaction ended."""

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: list[MarkerTopic]


class MarkersRequest(TransactionBody):
    """WriteTxnMarkers; 2.4 to 2.6 say `transaction_markers`."""

    markers: list[Marker] = []
    transaction_markers: list[Marker] = []


class MarkerAnswer(TransactionBody):
    """What became of the marker in one partition."""

    error_code: int
    partition_index: int | None = None
    partition: int | None = None


class MarkerAnswers(TransactionBody):
    """One topic's answers."""

    partitions: list[MarkerAnswer]
    name: str | None = None
    topic: str | None = None


class MarkedProducer(TransactionBody):
    """One producer's answers."""

    producer_id: int
    topics: list[MarkerAnswers]


class MarkersResponse(TransactionBody):
    """Answer of WriteTxnMarkers."""

    markers: list[MarkedProducer] = []
    transaction_markers: list[MarkedProducer] = []


class AddedTopic(TransactionBody):
    """Partitions of one topic that a transaction takes in."""

    name: str
    partitions: list[int]


class AddedTransaction(TransactionBody):
    """One transaction that a broker asks for, v4 on."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topics: list[AddedTopic]


class AddPartitionsRequest(TransactionBody):
    """AddPartitionsToTxn; its fields of before v4 got another name with 3.5."""

    transactions: list[AddedTransaction] = []
    v3_and_below_transactional_id: str | None = None
    v3_and_below_producer_id: int = -1
    v3_and_below_producer_epoch: int = -1
    v3_and_below_topics: list[AddedTopic] = []
    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    topics: list[AddedTopic] = []


class AddedResult(TransactionBody):
    """The coordinator's answer for one partition; 2.8 to 3.4 say `errorCode`."""

    partition_index: int
    partition_error_code: int | None = None
    error_code: int | None = None


class AddedResults(TransactionBody):
    """One topic's answers."""

    name: str
    results_by_partition: list[AddedResult] = []
    results: list[AddedResult] = []


class AddedInTransaction(TransactionBody):
    """One transaction's answers, v4 on."""

    transactional_id: str
    topic_results: list[AddedResults] = []


class AddPartitionsResponse(TransactionBody):
    """Answer of AddPartitionsToTxn."""

    error_code: int = 0
    results_by_transaction: list[AddedInTransaction] = []
    results_by_topic_v3_and_below: list[AddedResults] = []
    results: list[AddedResults] = []


class EndTxnRequest(TransactionBody):
    """EndTxn."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(TransactionBody):
    """Answer of EndTxn."""

    error_code: int = 0
