"""Request log lines to facts, one per partition: `Completed request:{...}`, JSON since Kafka 2.8, text before.

The line is written when the response is sent; what it says happened earlier is for the order stage to place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pipelines.parse import request_shapes as shapes
from pipelines.parse import request_text
from pipelines.parse.rows import FactId, FactSink, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREFIX = "Completed request:"
_KEY = re.compile(r'"requestApiKey":(-?\d+)')
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

API = Shape("api", _WHOLE)
PRODUCE = Shape(
    "produce",
    (*_WHOLE, *_PARTITION, "acks", "transactional_id", "bytes", "error_code", "base_offset", "log_start_offset"),
)
FETCH = Shape(
    "fetch",
    (
        *_WHOLE,
        "replica_id",
        "replica_epoch",
        "max_wait_ms",
        "min_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "response_session_id",
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
)
EPOCH_END_OFFSET = Shape(
    "epoch_end_offset",
    (
        *_WHOLE,
        *_PARTITION,
        "replica_id",
        "current_leader_epoch",
        "last_fetched_epoch",
        "error_code",
        "leader_epoch",
        "offset",
    ),
)
ISR_REQUEST = Shape(
    "isr_request",
    (
        *_WHOLE,
        *_PARTITION,
        "replica_id",
        "broker_epoch",
        "leader_epoch",
        "partition_epoch",
        "isr",
        "leader_recovery_state",
        "error_code",
    ),
)
LEADER_AND_ISR = Shape(
    "leader_and_isr",
    (
        *_WHOLE,
        *_PARTITION,
        "leader_id",
        "leader_epoch",
        "partition_epoch",
        "isr",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "leader_recovery_state",
        "error_code",
    ),
)
TOPIC_SEEN = Shape("topic_change", ("topic", "topic_id"), (("name", "metadata_response"),))
CLUSTER_SEEN = Shape("broker_lifecycle", ("value",), (("name", "cluster_id"),))


class Context(NamedTuple):
    """What the rows of one line share."""

    sink: FactSink
    identity: FactId
    line: int
    ts: int
    level: str

    def add(self, shape: Shape, values: tuple[Any, ...], *discriminators: object) -> None:
        """Add one row of the line."""
        self.sink.add(shape, self.identity.row(*discriminators), self.line, self.ts, values, self.level)


class RequestLog:
    """Parses the request lines of one file; remembers which topic ids the file has named already."""

    def __init__(self) -> None:
        """Start with no topics named."""
        self._named: set[tuple[str, ...]] = set()
        self._kinds: dict[int, tuple[msgspec.json.Decoder[Any], Callable[[Context, Any], None]]] = {
            0: (_decoder(shapes.ProduceRequest, shapes.ProduceResponse), _produce),
            1: (_decoder(shapes.FetchRequest, shapes.FetchResponse), _fetch),
            3: (_decoder(msgspec.Raw, shapes.MetadataResponse), self._metadata),
            4: (_decoder(shapes.LeaderAndIsrRequest, shapes.LeaderAndIsrResponse), _leader_and_isr),
            23: (_decoder(shapes.EpochRequest, shapes.EpochResponse), _epoch_end_offset),
            56: (_decoder(shapes.IsrRequest, shapes.IsrResponse), _isr_request),
        }
        self._others = (msgspec.json.Decoder(shapes.Times), _api)

    def parse(self, text: str, context: Context) -> str | None:
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
            make(context, completed)
        except (OverflowError, ValueError):
            return "request line with times that cannot be"
        return None

    def _of_json(self, body: str) -> tuple[Callable[[Context, Any], None], Any]:
        """What makes the line's facts, and the line read (JSON)."""
        key = _KEY.search(body, 0, 200)
        decoder, make = self._kinds.get(int(key[1]), self._others) if key else self._others
        return make, decoder.decode(body)

    def _of_text(self, body: str) -> tuple[Callable[[Context, Any], None], Any]:
        """What makes the line's facts, and the line read (text)."""
        key, completed = request_text.read(body)
        return self._kinds.get(key, self._others)[1], completed

    def _metadata(self, context: Context, completed: shapes.Completed[Any, shapes.MetadataResponse]) -> None:
        _api(context, completed)
        response = completed.response
        if isinstance(response, str):
            return
        if response.cluster_id and ("", response.cluster_id) not in self._named:
            self._named.add(("", response.cluster_id))
            context.add(CLUSTER_SEEN, (response.cluster_id,), "cluster")
        for topic in response.topics:
            if topic.error_code or not topic.name or not topic.topic_id or topic.topic_id == NO_TOPIC_ID:
                continue
            if (topic.name, topic.topic_id) not in self._named:
                self._named.add((topic.name, topic.topic_id))
                context.add(TOPIC_SEEN, (topic.name, topic.topic_id), "topic", topic.name, topic.topic_id)


def _decoder(request: type, response: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shapes.Completed[request, response])  # type: ignore[valid-type]


def _us(milliseconds: float) -> int:
    return round(milliseconds * 1000)


def _whole(completed: _AnyCompleted) -> tuple[Any, ...]:
    header = completed.request_header
    return (
        completed.connection,
        header.correlation_id,
        header.client_id,
        header.request_api_key,
        header.request_api_version,
        _us(completed.total_time_ms),
        _us(completed.request_queue_time_ms),
        _us(completed.local_time_ms),
        _us(completed.remote_time_ms),
        _us(completed.throttle_time_ms),
        _us(completed.response_queue_time_ms),
        _us(completed.send_time_ms),
    )


def _topic_id(topic: shapes.ProduceTopic | shapes.IsrTopic) -> str | None:
    return None if topic.topic_id == NO_TOPIC_ID else topic.topic_id


def _api(context: Context, completed: _AnyCompleted) -> None:
    context.add(API, _whole(completed))


def _produce(context: Context, completed: shapes.Completed[shapes.ProduceRequest, shapes.ProduceResponse]) -> None:
    whole = _whole(completed)
    request, response = completed.request, completed.response
    answers: dict[tuple[str | None, str | None, int], shapes.ProduceAnswer] = {}
    if not isinstance(response, str):
        answers = {(t.name, t.topic_id, p.index): p for t in response.responses for p in t.partition_responses}
    listed = False
    for topic in request.topic_data:
        for part in topic.partition_data:
            listed = True
            answer = answers.get((topic.name, topic.topic_id, part.index))
            outcome = (None, None, None)
            if answer is not None:
                outcome = (answer.error_code, answer.base_offset, answer.log_start_offset)  # type: ignore[assignment]
            context.add(
                PRODUCE,
                (
                    *whole,
                    topic.name,
                    _topic_id(topic),
                    part.index,
                    request.acks,
                    request.transactional_id,
                    part.records_size_in_bytes,
                    *outcome,
                ),
                topic.name or topic.topic_id,
                part.index,
            )
    if not listed:
        context.add(API, whole)


_Key = tuple[str | None, str | None, int | None]


def _fetch_answers(response: shapes.FetchResponse | str) -> Iterator[tuple[_Key, shapes.FetchAnswer]]:
    if isinstance(response, str):
        return
    for topic in response.responses:
        for part in topic.partitions or topic.partition_responses:
            index = part.partition if part.partition_index is None else part.partition_index
            yield (topic.topic, topic.topic_id, index), part


def _fetch(context: Context, completed: shapes.Completed[shapes.FetchRequest, shapes.FetchResponse]) -> None:
    request, response = completed.request, completed.response
    replica, replica_epoch = request.replica_id, None
    if request.replica_state is not None:
        replica, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
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
    answers = dict(_fetch_answers(response))
    rows: list[tuple[_Key, shapes.FetchPartition | None, shapes.FetchAnswer | None]] = []
    for topic in request.topics:
        for part in topic.partitions:
            key: _Key = (topic.topic, topic.topic_id, part.partition)
            rows.append((key, part, answers.pop(key, None)))
    rows.extend((key, None, answer) for key, answer in answers.items())
    for key, asked, answered in rows:
        context.add(FETCH, (*whole, *_named(key), *_fetch_row(asked, answered, error)), "listed", *key)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            key = (forgotten.topic, forgotten.topic_id, index)
            values = (*whole, *_named(key), False, False, True, *(None,) * 5, error, *(None,) * 7)
            context.add(FETCH, values, "forgotten", *key)
    if not rows:
        values = (*whole, None, None, None, False, False, False, *(None,) * 5, error, *(None,) * 7)
        context.add(FETCH, values)


def _named(key: _Key) -> _Key:
    return (key[0], None if key[1] == NO_TOPIC_ID else key[1], key[2])


def _fetch_row(
    asked: shapes.FetchPartition | None, answered: shapes.FetchAnswer | None, error: int | None
) -> tuple[Any, ...]:
    """The columns of FETCH from `in_request` on."""
    request: tuple[Any, ...] = (None,) * 5
    response: tuple[Any, ...] = (error, *(None,) * 7)
    if asked is not None:
        request = (
            asked.fetch_offset,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
            asked.partition_max_bytes,
        )
    if answered is not None:
        diverging = answered.diverging_epoch
        size = answered.records_size_in_bytes
        response = (
            answered.error_code,
            answered.high_watermark,
            answered.last_stable_offset,
            answered.log_start_offset,
            answered.preferred_read_replica,
            answered.record_set_size_in_bytes if size is None else size,
            None if diverging is None else diverging.epoch,
            None if diverging is None else diverging.end_offset,
        )
    return (asked is not None, answered is not None, False, *request, *response)


def _epoch_end_offset(context: Context, completed: shapes.Completed[shapes.EpochRequest, shapes.EpochResponse]) -> None:
    whole = _whole(completed)
    request, response = completed.request, completed.response
    answers: dict[tuple[str, int], shapes.EpochAnswer] = {}
    if not isinstance(response, str):
        answers = {(t.topic, p.partition): p for t in response.topics for p in t.partitions}
    replica = -1 if request.replica_id is None else request.replica_id
    for topic in request.topics:
        for part in topic.partitions:
            answer = answers.get((topic.topic, part.partition))
            outcome = (
                (None, None, None) if answer is None else (answer.error_code, answer.leader_epoch, answer.end_offset)
            )
            context.add(
                EPOCH_END_OFFSET,
                (
                    *whole,
                    topic.topic,
                    None,
                    part.partition,
                    replica,
                    part.current_leader_epoch,
                    part.leader_epoch,
                    *outcome,
                ),
                topic.topic,
                part.partition,
            )


def _isr_request(context: Context, completed: shapes.Completed[shapes.IsrRequest, shapes.IsrResponse]) -> None:
    whole = _whole(completed)
    request, response = completed.request, completed.response
    top, answers = None, {}
    if not isinstance(response, str):
        top = response.error_code
        answers = {
            (t.topic_name or t.name or t.topic_id, p.partition_index): p.error_code
            for t in response.topics
            for p in t.partitions
        }
    for topic in request.topics:
        name = topic.topic_name or topic.name
        for part in topic.partitions:
            isr = part.new_isr
            if part.new_isr_with_epochs is not None:
                isr = [member.broker_id for member in part.new_isr_with_epochs]
            epoch = part.current_isr_version if part.partition_epoch is None else part.partition_epoch
            values = (
                *whole,
                name,
                _topic_id(topic),
                part.partition_index,
                request.broker_id,
                request.broker_epoch,
                part.leader_epoch,
                epoch,
                isr,
                part.leader_recovery_state,
                top or answers.get((name or topic.topic_id, part.partition_index), top),
            )
            context.add(ISR_REQUEST, values, name or topic.topic_id, part.partition_index)


def _leader_and_isr(
    context: Context, completed: shapes.Completed[shapes.LeaderAndIsrRequest, shapes.LeaderAndIsrResponse]
) -> None:
    whole = _whole(completed)
    request, response = completed.request, completed.response
    error = None if isinstance(response, str) else response.error_code
    states = [(t.topic_name, t.topic_id, state) for t in request.topic_states for state in t.partition_states]
    states += [(state.topic_name or "", None, state) for state in request.ungrouped_partition_states]
    for name, topic_id, state in states:
        values = (
            *whole,
            name,
            None if topic_id == NO_TOPIC_ID else topic_id,
            state.partition_index,
            state.leader,
            state.leader_epoch,
            state.zk_version if state.partition_epoch is None else state.partition_epoch,
            state.isr,
            state.replicas,
            state.adding_replicas,
            state.removing_replicas,
            state.leader_recovery_state,
            error,
        )
        context.add(LEADER_AND_ISR, values, name, state.partition_index)
    if not states:
        context.add(API, whole)
