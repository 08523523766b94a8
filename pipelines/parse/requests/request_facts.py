"""The facts of a request and its response, one per partition: produce, fetch, epoch ends, ISR changes, leaders.

Requests about transactions are in `transaction_facts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipelines.lines.rows import Shape
from pipelines.lines.writers import own_address
from pipelines.parse.requests import request_shapes as shapes
from replay.evidence.request_times import TIMING
from replay.protocol.produce import REQUEST_TIMED_OUT

if TYPE_CHECKING:
    from pipelines.lines.rows import FactSink, Line

AnyCompleted = shapes.Completed[Any, Any] | shapes.Times
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"

WHOLE = (
    "connection",
    "correlation_id",
    "client_id",
    "api_key",
    "api_version",
    "total_us",
    *TIMING,
)
PARTITION = ("topic", "topic_id", "partition")

API = Shape("api", (), shared=WHOLE)
PRODUCE = Shape(
    "produce",
    (*PARTITION, "bytes", "error_code", "base_offset", "log_start_offset"),
    shared=(*WHOLE, "acks", "max_wait_ms", "transactional_id", "request_timed_out"),
)
FETCH = Shape(
    "fetch",
    (
        *PARTITION,
        "in_request",
        "in_response",
        "bytes_listed_before",
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
        *WHOLE,
        "replica_id",
        "replica_epoch",
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "response_session_id",
        "rack",
    ),
)
EPOCH_END_OFFSET = Shape(
    "epoch_end_offset",
    (*PARTITION, "current_leader_epoch", "last_fetched_epoch", "error_code", "leader_epoch", "offset"),
    shared=(*WHOLE, "replica_id"),
)
ISR_REQUEST = Shape(
    "isr_request",
    (*PARTITION, "leader_epoch", "partition_epoch", "isr", "isr_broker_epochs", "leader_recovery_state", "error_code"),
    shared=(*WHOLE, "replica_id", "broker_epoch"),
)
LEADER_AND_ISR = Shape(
    "leader_and_isr",
    (
        *PARTITION,
        "leader_id",
        "leader_epoch",
        "partition_epoch",
        "isr",
        "replicas",
        "adding_replicas",
        "removing_replicas",
        "leader_recovery_state",
    ),
    shared=(*WHOLE, "error_code"),
)


def whole_line(completed: AnyCompleted) -> tuple[Any, ...]:
    """Return what the line says about the request as a whole: the columns of WHOLE."""
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


def known_id(topic_id: str | None) -> str | None:
    """Return the topic id; None for the id that stands for no topic."""
    return None if topic_id == NO_TOPIC_ID else topic_id


def api(sink: FactSink, line: Line, completed: AnyCompleted) -> None:
    """Add one row: such a request was made."""
    sink.add_rows(API, line, whole_line(completed), ITSELF)


ITSELF: Final = (((), ()),)  # one row, about the line as a whole
Rows = list[tuple[tuple[object, ...], tuple[Any, ...]]]
_UNANSWERED: Final = shapes.ProduceAnswer(None, None, None)  # type: ignore[arg-type]


def produce(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.ProduceRequest, shapes.ProduceResponse]
) -> None:
    """Add a row for each partition that the request has records for."""
    whole = whole_line(completed)
    request, response = completed.request, completed.response
    answers: dict[tuple[str | None, str | None, int], shapes.ProduceAnswer] = {}
    if not isinstance(response, str):
        answers = {(t.name, t.topic_id, p.index): p for t in response.responses for p in t.partition_responses}
    rows: Rows = []
    for topic in request.topic_data:
        name, topic_id = topic.name, topic.topic_id
        known = known_id(topic_id)
        for part in topic.partition_data:
            index = part.index
            answer = answers.get((name, topic_id, index), _UNANSWERED)
            told = (answer.error_code, answer.base_offset, answer.log_start_offset)
            rows.append(((name or topic_id, index), (name, known, index, part.records_size_in_bytes, *told)))
    if rows:
        late = any(answer.error_code == REQUEST_TIMED_OUT for answer in answers.values()) or None
        asked = (request.acks, request.timeout_ms, request.transactional_id, late)
        sink.add_rows(PRODUCE, line, (*whole, *asked), rows)
    else:
        sink.add_rows(API, line, whole, ITSELF)


_Key = tuple[str | None, str | None, int | None]


def _fetch_answers(response: shapes.FetchResponse | str) -> dict[_Key, tuple[shapes.FetchAnswer, int]]:
    """Return what each partition was answered, and the bytes of those listed before it."""
    found: dict[_Key, tuple[shapes.FetchAnswer, int]] = {}
    before = 0
    if not isinstance(response, str):
        for topic in response.responses:
            name, topic_id = topic.topic, topic.topic_id
            for part in topic.partitions or topic.partition_responses:
                key = (name, topic_id, part.partition if part.partition_index is None else part.partition_index)
                found[key] = part, found[key][1] if key in found else before
                before += _size(part) or 0
    return found


def _size(answer: shapes.FetchAnswer) -> int | None:
    size = answer.records_size_in_bytes
    return answer.record_set_size_in_bytes if size is None else size


def fetch(sink: FactSink, line: Line, completed: shapes.Completed[shapes.FetchRequest, shapes.FetchResponse]) -> None:
    """Add a row for each partition that the fetch or its answer lists, or that it forgets; else one row."""
    request, response = completed.request, completed.response
    replica, replica_epoch = request.replica_id, None
    if request.replica_state is not None:
        replica, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    if replica is not None and replica >= 0:
        sink.counts.fetched.add((own_address(completed.connection), replica))
    error, session = (None, None) if isinstance(response, str) else (response.error_code, response.session_id)
    whole = (
        *whole_line(completed),
        -1 if replica is None else replica,
        replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        session,
        request.rack_id or None,
    )
    answers = _fetch_answers(response)
    rows: Rows = []
    unanswered = (error, *(None,) * 7)
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        known = known_id(topic_id)
        for part in topic.partitions:
            index = part.partition
            answer, before = answers.pop((name, topic_id, index), _UNLISTED)
            asked = (
                part.fetch_offset,
                part.current_leader_epoch,
                part.last_fetched_epoch,
                part.log_start_offset,
                part.partition_max_bytes,
            )
            told = unanswered if answer is None else _told(answer)
            values = (name, known, index, True, answer is not None, before, False, *asked, *told)
            rows.append((("listed", name, topic_id, index), values))
    for (topic_name, topic_id, partition), (answer, before) in answers.items():
        values = (topic_name, known_id(topic_id), partition, False, True, before, False, *_NOT_ASKED, *_told(answer))
        rows.append((("listed", topic_name, topic_id, partition), values))
    listed = bool(rows)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            named = (forgotten.topic, known_id(forgotten.topic_id), index)
            key = ("forgotten", forgotten.topic, forgotten.topic_id, index)
            rows.append((key, (*named, False, False, None, True, *_NOT_ASKED, *unanswered)))
    if not listed:
        rows.append(((), (None, None, None, False, False, None, False, *_NOT_ASKED, *unanswered)))
    sink.add_rows(FETCH, line, whole, rows)


_NOT_ASKED: Final = (None,) * 5
_UNLISTED: Final = (None, None)


def _told(answer: shapes.FetchAnswer) -> tuple[Any, ...]:
    """Return the columns of FETCH from `error_code` on."""
    diverging = answer.diverging_epoch
    return (
        answer.error_code,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        answer.preferred_read_replica,
        _size(answer),
        None if diverging is None else diverging.epoch,
        None if diverging is None else diverging.end_offset,
    )


_NO_END: Final = shapes.EpochAnswer(None, None, None, None)  # type: ignore[arg-type]


def epoch_end_offset(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.EpochRequest, shapes.EpochResponse]
) -> None:
    """Add a row for each partition whose end of an epoch was asked for."""
    request, response = completed.request, completed.response
    answers: dict[tuple[str, int], shapes.EpochAnswer] = {}
    if not isinstance(response, str):
        answers = {(t.topic, p.partition): p for t in response.topics for p in t.partitions}
    rows: Rows = []
    for topic in request.topics:
        for part in topic.partitions:
            key = (topic.topic, part.partition)
            answer = answers.get(key, _NO_END)
            told = (answer.error_code, answer.leader_epoch, answer.end_offset)
            rows.append((key, (key[0], None, key[1], part.current_leader_epoch, part.leader_epoch, *told)))
    replica = -1 if request.replica_id is None else request.replica_id
    sink.add_rows(EPOCH_END_OFFSET, line, (*whole_line(completed), replica), rows)


def isr_request(sink: FactSink, line: Line, completed: shapes.Completed[shapes.IsrRequest, shapes.IsrResponse]) -> None:
    """Add a row for each partition whose ISR a leader asks to change."""
    request, response = completed.request, completed.response
    top, answers = None, {}
    if not isinstance(response, str):
        top = response.error_code
        answers = {
            (t.topic_name or t.name or t.topic_id, p.partition_index): p.error_code
            for t in response.topics
            for p in t.partitions
        }
    rows: Rows = []
    for topic in request.topics:
        name = topic.topic_name or topic.name
        for part in topic.partitions:
            isr, epochs = part.new_isr, None
            if part.new_isr_with_epochs is not None:
                isr = [member.broker_id for member in part.new_isr_with_epochs]
                epochs = [member.broker_epoch for member in part.new_isr_with_epochs]
            epoch = part.current_isr_version if part.partition_epoch is None else part.partition_epoch
            key = (name or topic.topic_id, part.partition_index)
            values = (
                name,
                known_id(topic.topic_id),
                part.partition_index,
                part.leader_epoch,
                epoch,
                isr,
                epochs,
                part.leader_recovery_state,
                top or answers.get(key, top),
            )
            rows.append((key, values))
    sink.add_rows(ISR_REQUEST, line, (*whole_line(completed), request.broker_id, request.broker_epoch), rows)


def leader_and_isr(
    sink: FactSink, line: Line, completed: shapes.Completed[shapes.LeaderAndIsrRequest, shapes.LeaderAndIsrResponse]
) -> None:
    """Add a row for each partition whose state the controller sends."""
    whole = whole_line(completed)
    request, response = completed.request, completed.response
    error = None if isinstance(response, str) else response.error_code
    states = [(t.topic_name, t.topic_id, state) for t in request.topic_states for state in t.partition_states]
    states += [(state.topic_name or "", None, state) for state in request.ungrouped_partition_states]
    rows: Rows = [
        (
            (name, state.partition_index),
            (
                name,
                known_id(topic_id),
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
        sink.add_rows(API, line, whole, ITSELF)
