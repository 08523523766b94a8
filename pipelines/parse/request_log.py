"""Request log lines to facts, one per partition: `Completed request:{...}`, JSON since Kafka 2.8, text before.

The line is written when the response is sent; what it says happened earlier is for the order stage to place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from pipelines.parse import request_shapes as shapes
from pipelines.parse import request_text
from pipelines.parse.rows import FactSink, Line, Shape
from pipelines.parse.writers import own_address

PREFIX = "Completed request:"
_KEY = re.compile(r'"requestApiKey":(-?\d+)')
_Make = Callable[[FactSink, Line, Any], None]
_AnyCompleted = shapes.Completed[Any, Any] | shapes.Times
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"

_WHOLE = (
    "connection",
    "correlation_id",
    "client_id",
    "api_key",
    "api_version",
    "total_us",
    "queue_us",
    "local_us",
    "remote_us",
    "throttle_us",
    "response_queue_us",
    "send_us",
)
_PARTITION = ("topic", "topic_id", "partition")

API = Shape("api", (), shared=_WHOLE)
PRODUCE = Shape(
    "produce",
    (*_PARTITION, "bytes", "error_code", "base_offset", "log_start_offset"),
    shared=(*_WHOLE, "acks", "transactional_id"),
)
FETCH = Shape(
    "fetch",
    (
        *_PARTITION,
        "in_request",
        "in_response",
        "forgotten",
        "fetch_offset",
        "current_leader_epoch",
        "last_fetched_epoch",
        "follower_log_start_offset",
        "partition_max_bytes",
        "error_code",
        "hw",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "bytes",
        "diverging_epoch",
        "diverging_end_offset",
    ),
    shared=(
        *_WHOLE,
        "replica_id",
        "replica_epoch",
        "max_wait_ms",
        "min_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "response_session_id",
    ),
)
EPOCH_END_OFFSET = Shape(
    "epoch_end_offset",
    (*_PARTITION, "current_leader_epoch", "last_fetched_epoch", "error_code", "leader_epoch", "offset"),
    shared=(*_WHOLE, "replica_id"),
)
ISR_REQUEST = Shape(
    "isr_request",
    (*_PARTITION, "leader_epoch", "partition_epoch", "isr", "leader_recovery_state", "error_code"),
    shared=(*_WHOLE, "replica_id", "broker_epoch"),
)
LEADER_AND_ISR = Shape(
    "leader_and_isr",
    (
        *_PARTITION,
        "leader_id",
        "leader_epoch",
        "partition_epoch",
        "isr",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "leader_recovery_state",
    ),
    shared=(*_WHOLE, "error_code"),
)
TRANSACTION = Shape(
    "transaction",
    (*_PARTITION, "name", "transactional_id", "producer_id", "producer_epoch", "error_code"),
    shared=_WHOLE,
)
TOPIC_SEEN = Shape("topic_change", ("topic", "topic_id"), (("name", "metadata_response"),))
CLUSTER_SEEN = Shape("broker_lifecycle", ("value",), (("name", "cluster_id"),))


class RequestLog:
    """Parses the request lines of one file; remembers which topic ids the file has named already."""

    def __init__(self) -> None:
        """Start with no topics named."""
        self._named: set[tuple[str, ...]] = set()
        self._kinds: dict[int, tuple[msgspec.json.Decoder[Any], _Make]] = {
            0: (_decoder(shapes.ProduceRequest, shapes.ProduceResponse), _produce),
            1: (_decoder(shapes.FetchRequest, shapes.FetchResponse), _fetch),
            3: (_decoder(msgspec.Raw, shapes.MetadataResponse), self._metadata),
            4: (_decoder(shapes.LeaderAndIsrRequest, shapes.LeaderAndIsrResponse), _leader_and_isr),
            23: (_decoder(shapes.EpochRequest, shapes.EpochResponse), _epoch_end_offset),
            24: (_decoder(shapes.AddPartitionsRequest, shapes.AddPartitionsResponse), _added_partitions),
            26: (_decoder(shapes.EndTxnRequest, shapes.EndTxnResponse), _ended_transaction),
            27: (_decoder(shapes.MarkersRequest, shapes.MarkersResponse), _markers),
            56: (_decoder(shapes.IsrRequest, shapes.IsrResponse), _isr_request),
        }
        self._others = (msgspec.json.Decoder(shapes.Times), _api)

    def parse(self, text: str, sink: FactSink, line: Line) -> str | None:
        """Add the line's facts; say why it was rejected, or None."""
        body = text[len(PREFIX) :]
        if not body.startswith(("{", request_text.HEADER)):
            return "request line without a JSON object"
        try:
            make, completed = self._of_json(body) if body[0] == "{" else self._of_text(body)
        except request_text.RefusedError as error:
            return f"request line in the text form of Kafka 2.4 to 2.7 with {error}"
        except (msgspec.ValidationError, msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            form = "JSON" if body[0] == "{" else "text"
            return f"request line is not the {form} that Kafka writes: {error}"[:300]
        try:
            make(sink, line, completed)
        except (OverflowError, ValueError):
            return "request line with times that cannot be"
        return None

    def _of_json(self, body: str) -> tuple[_Make, Any]:
        """What makes the line's facts, and the line read (JSON)."""
        key = _KEY.search(body, 0, 200)
        decoder, make = self._kinds.get(int(key[1]), self._others) if key else self._others
        return make, decoder.decode(body)

    def _of_text(self, body: str) -> tuple[_Make, Any]:
        """What makes the line's facts, and the line read (text)."""
        key, completed = request_text.read(body)
        kinds = {} if isinstance(completed, shapes.Times) else self._kinds
        return kinds.get(key, self._others)[1], completed

    def _metadata(self, sink: FactSink, line: Line, completed: shapes.Completed[Any, shapes.MetadataResponse]) -> None:
        _api(sink, line, completed)
        response = completed.response
        if isinstance(response, str):
            return
        if response.cluster_id and ("", response.cluster_id) not in self._named:
            self._named.add(("", response.cluster_id))
            sink.add_rows(CLUSTER_SEEN, line, (), [(("cluster",), (response.cluster_id,))])
        for topic in response.topics:
            if topic.error_code or not topic.name or not topic.topic_id or topic.topic_id == NO_TOPIC_ID:
                continue
            if (topic.name, topic.topic_id) not in self._named:
                named = (topic.name, topic.topic_id)
                self._named.add(named)
                sink.add_rows(TOPIC_SEEN, line, (), [(("topic", *named), named)])


def _decoder(request: type, response: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shapes.Completed[request, response])  # type: ignore[valid-type]


def _whole(completed: _AnyCompleted) -> tuple[Any, ...]:
    header = completed.request_header
    return (
        completed.connection,
        header.correlation_id,
        header.client_id,
        header.request_api_key,
        header.request_api_version,
        round(completed.total_time_ms * 1000),
        round(completed.request_queue_time_ms * 1000),
        round(completed.local_time_ms * 1000),
        round(completed.remote_time_ms * 1000),
        round(completed.throttle_time_ms * 1000),
        round(completed.response_queue_time_ms * 1000),
        round(completed.send_time_ms * 1000),
    )


def _known(topic_id: str | None) -> str | None:
    return None if topic_id == NO_TOPIC_ID else topic_id


def _api(sink: FactSink, line: Line, completed: _AnyCompleted) -> None:
    sink.add_rows(API, line, _whole(completed), _ITSELF)


_ITSELF: Final = (((), ()),)  # one row, of what the whole line says
_Rows = list[tuple[tuple[object, ...], tuple[Any, ...]]]
_UNANSWERED: Final = shapes.ProduceAnswer(None, None, None)  # type: ignore[arg-type]


def _produce(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.ProduceRequest, shapes.ProduceResponse]
) -> None:
    whole = _whole(completed)
    request, response = completed.request, completed.response
    answers: dict[tuple[str | None, str | None, int], shapes.ProduceAnswer] = {}
    if not isinstance(response, str):
        answers = {(t.name, t.topic_id, p.index): p for t in response.responses for p in t.partition_responses}
    rows: _Rows = []
    for topic in request.topic_data:
        name, topic_id = topic.name, topic.topic_id
        known = _known(topic_id)
        for part in topic.partition_data:
            index = part.index
            answer = answers.get((name, topic_id, index), _UNANSWERED)
            told = (answer.error_code, answer.base_offset, answer.log_start_offset)
            rows.append(((name or topic_id, index), (name, known, index, part.records_size_in_bytes, *told)))
    if rows:
        sink.add_rows(PRODUCE, line, (*whole, request.acks, request.transactional_id), rows)
    else:
        sink.add_rows(API, line, whole, _ITSELF)


_Key = tuple[str | None, str | None, int | None]


def _fetch_answers(response: shapes.FetchResponse | str) -> dict[_Key, shapes.FetchAnswer]:
    found: dict[_Key, shapes.FetchAnswer] = {}
    if not isinstance(response, str):
        for topic in response.responses:
            name, topic_id = topic.topic, topic.topic_id
            for part in topic.partitions or topic.partition_responses:
                found[name, topic_id, part.partition if part.partition_index is None else part.partition_index] = part
    return found


def _fetch(sink: FactSink, line: Line, completed: shapes.Completed[shapes.FetchRequest, shapes.FetchResponse]) -> None:
    request, response = completed.request, completed.response
    replica, replica_epoch = request.replica_id, None
    if request.replica_state is not None:
        replica, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    if replica is not None and replica >= 0:
        sink.counts.fetched.add((own_address(completed.connection), replica))
    error, session = (None, None) if isinstance(response, str) else (response.error_code, response.session_id)
    whole = (
        *_whole(completed),
        -1 if replica is None else replica,
        replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        session,
    )
    answers = _fetch_answers(response)
    rows: _Rows = []
    unanswered = (error, *(None,) * 7)
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        known = _known(topic_id)
        for part in topic.partitions:
            index = part.partition
            answer = answers.pop((name, topic_id, index), None)
            asked = (
                part.fetch_offset,
                part.current_leader_epoch,
                part.last_fetched_epoch,
                part.log_start_offset,
                part.partition_max_bytes,
            )
            told = unanswered if answer is None else _told(answer)
            values = (name, known, index, True, answer is not None, False, *asked, *told)
            rows.append((("listed", name, topic_id, index), values))
    for (topic_name, topic_id, partition), answer in answers.items():
        values = (topic_name, _known(topic_id), partition, False, True, False, *_NOT_ASKED, *_told(answer))
        rows.append((("listed", topic_name, topic_id, partition), values))
    listed = bool(rows)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            named = (forgotten.topic, _known(forgotten.topic_id), index)
            key = ("forgotten", forgotten.topic, forgotten.topic_id, index)
            rows.append((key, (*named, False, False, True, *_NOT_ASKED, *unanswered)))
    if not listed:
        rows.append(((), (None, None, None, False, False, False, *_NOT_ASKED, *unanswered)))
    sink.add_rows(FETCH, line, whole, rows)


_NOT_ASKED: Final = (None,) * 5


def _told(answer: shapes.FetchAnswer) -> tuple[Any, ...]:
    """The columns of FETCH from `error_code` on."""
    diverging, size = answer.diverging_epoch, answer.records_size_in_bytes
    return (
        answer.error_code,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        answer.preferred_read_replica,
        answer.record_set_size_in_bytes if size is None else size,
        None if diverging is None else diverging.epoch,
        None if diverging is None else diverging.end_offset,
    )


_NO_END: Final = shapes.EpochAnswer(None, None, None, None)  # type: ignore[arg-type]


def _epoch_end_offset(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.EpochRequest, shapes.EpochResponse]
) -> None:
    request, response = completed.request, completed.response
    answers: dict[tuple[str, int], shapes.EpochAnswer] = {}
    if not isinstance(response, str):
        answers = {(t.topic, p.partition): p for t in response.topics for p in t.partitions}
    rows: _Rows = []
    for topic in request.topics:
        for part in topic.partitions:
            key = (topic.topic, part.partition)
            answer = answers.get(key, _NO_END)
            told = (answer.error_code, answer.leader_epoch, answer.end_offset)
            rows.append((key, (key[0], None, key[1], part.current_leader_epoch, part.leader_epoch, *told)))
    replica = -1 if request.replica_id is None else request.replica_id
    sink.add_rows(EPOCH_END_OFFSET, line, (*_whole(completed), replica), rows)


def _isr_request(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.IsrRequest, shapes.IsrResponse]
) -> None:
    request, response = completed.request, completed.response
    top, answers = None, {}
    if not isinstance(response, str):
        top = response.error_code
        answers = {
            (t.topic_name or t.name or t.topic_id, p.partition_index): p.error_code
            for t in response.topics
            for p in t.partitions
        }
    rows: _Rows = []
    for topic in request.topics:
        name = topic.topic_name or topic.name
        for part in topic.partitions:
            isr = part.new_isr
            if part.new_isr_with_epochs is not None:
                isr = [member.broker_id for member in part.new_isr_with_epochs]
            epoch = part.current_isr_version if part.partition_epoch is None else part.partition_epoch
            key = (name or topic.topic_id, part.partition_index)
            values = (
                name,
                _known(topic.topic_id),
                part.partition_index,
                part.leader_epoch,
                epoch,
                isr,
                part.leader_recovery_state,
                top or answers.get(key, top),
            )
            rows.append((key, values))
    sink.add_rows(ISR_REQUEST, line, (*_whole(completed), request.broker_id, request.broker_epoch), rows)


def _leader_and_isr(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.LeaderAndIsrRequest, shapes.LeaderAndIsrResponse]
) -> None:
    whole = _whole(completed)
    request, response = completed.request, completed.response
    error = None if isinstance(response, str) else response.error_code
    states = [(t.topic_name, t.topic_id, state) for t in request.topic_states for state in t.partition_states]
    states += [(state.topic_name or "", None, state) for state in request.ungrouped_partition_states]
    rows: _Rows = [
        (
            (name, state.partition_index),
            (
                name,
                _known(topic_id),
                state.partition_index,
                state.leader,
                state.leader_epoch,
                state.zk_version if state.partition_epoch is None else state.partition_epoch,
                state.isr,
                state.replicas,
                state.adding_replicas,
                state.removing_replicas,
                state.leader_recovery_state,
            ),
        )
        for name, topic_id, state in states
    ]
    if rows:
        sink.add_rows(LEADER_AND_ISR, line, (*whole, error), rows)
    else:
        sink.add_rows(API, line, whole, _ITSELF)


def _markers(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.MarkersRequest, shapes.MarkersResponse]
) -> None:
    """A row for each marker and partition: what the coordinator wants written, and what became of it."""
    request, response = completed.request, completed.response
    errors: dict[tuple[object, ...], int] = {}
    if not isinstance(response, str):
        for told in response.markers or response.transaction_markers:
            for answers in told.topics:
                for part in answers.partitions:
                    index = part.partition if part.partition_index is None else part.partition_index
                    errors[told.producer_id, answers.name or answers.topic, index] = part.error_code
    rows: _Rows = []
    for marker in request.markers or request.transaction_markers:
        name = "marker_commit" if marker.transaction_result else "marker_abort"
        whose = (marker.producer_id, marker.producer_epoch)
        for topic in marker.topics:
            for index in topic.partition_indexes or topic.partitions:
                key = (marker.producer_id, topic.name or topic.topic, index)
                rows.append((key, (key[1], None, index, name, None, *whose, errors.get(key))))
    _add_transaction(sink, line, completed, rows)


def _added_partitions(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.AddPartitionsRequest, shapes.AddPartitionsResponse]
) -> None:
    """A row for each partition that a transaction takes in, which also says whose transaction it is."""
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
        asked.append(shapes.AddedTransaction(whole, producer, epoch, topics))
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
    rows: _Rows = []
    for one in asked:
        for topic in one.topics:
            for index in topic.partitions:
                key = (one.transactional_id, topic.name, index)
                whose = (one.transactional_id, one.producer_id, one.producer_epoch)
                rows.append((key, (topic.name, None, index, "added", *whose, errors.get(key, top))))
    _add_transaction(sink, line, completed, rows)


def _ended_transaction(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.EndTxnRequest, shapes.EndTxnResponse]
) -> None:
    request, response = completed.request, completed.response
    error = None if isinstance(response, str) else response.error_code
    name = "end_commit" if request.committed else "end_abort"
    values = (name, request.transactional_id, request.producer_id, request.producer_epoch, error)
    _add_transaction(sink, line, completed, [((), (None, None, None, *values))])


def _add_transaction(sink: FactSink, line: Line, completed: _AnyCompleted, rows: _Rows) -> None:
    if rows:
        sink.add_rows(TRANSACTION, line, _whole(completed), rows)
    else:
        _api(sink, line, completed)
