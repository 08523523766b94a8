"""Facts of the fetches and produces in a block of lines, column by column, without an object for any line or row.

It makes what `request_facts.fetch` and `produce` make of the same lines. Lines that are not as Kafka writes them are
left to those, and so is a block with a number that does not fit its column (`DoesNotFitError`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.lines.layout import last_part
from pipelines.lines.rows import ID_BYTES, TYPES, Identity, line_head
from pipelines.lines.writers import own_address
from pipelines.parse.requests import request_shapes as shapes
from pipelines.parse.requests import scanned_rows as rows
from pipelines.parse.requests.request_facts import FETCH, PRODUCE
from pipelines.parse.requests.scanner import NULL, WIDTH, Records, scan
from pipelines.parse.requests.shape_tables import NUMBER_RECORD, Shape, shape_of
from replay.protocol.produce import REQUEST_TIMED_OUT

if TYPE_CHECKING:
    from pipelines.lines import rows as fact_rows
    from replay.arrays.ints import Ints
    from replay.arrays.peeks import Bytes

LEVELS: Final = ("DEBUG", "TRACE", "INFO")
LOGGER: Final = "kafka.request.logger"
TAIL: Final = f" ({LOGGER})"
_LAST_PART: Final = last_part(LOGGER)
_MARK: Final = "Completed request:"
_BYTES_A_RECORD: Final = 64  # nearly all records take more, of which there are several to a line
_BYTES_A_TEXT: Final = 96  # what tells a row from others of its line: mostly an id and a partition
_MOST_ROOM: Final = 1 << 20
_MOST_TEXT: Final = 1 << 30

# Columns of facts, and the fields that they come from.
_TIMES: Final = {
    "total_us": "total_time_ms",
    "queue_us": "request_queue_time_ms",
    "local_us": "local_time_ms",
    "remote_us": "remote_time_ms",
    "throttle_us": "throttle_time_ms",
    "response_queue_us": "response_queue_time_ms",
    "send_us": "send_time_ms",
}
_ASKED: Final = {
    "fetch_offset": "fetch_offset",
    "current_leader_epoch": "current_leader_epoch",
    "last_fetched_epoch": "last_fetched_epoch",
    "follower_log_start_offset": "log_start_offset",
    "partition_max_bytes": "partition_max_bytes",
}
_ANSWERED: Final = {
    "error_code": "error_code",
    "hw": "high_watermark",
    "last_stable_offset": "last_stable_offset",
    "log_start_offset": "log_start_offset",
    "preferred_read_replica": "preferred_read_replica",
}


class DoesNotFitError(ValueError):
    """The block holds what only the usual parser reads."""


class Head(NamedTuple):
    """How a line begins after its stamp."""

    level: str
    api: int
    text: int  # where the text begins that is hashed


class Api(NamedTuple):
    """How the lines of one sort of request become facts."""

    facts: fact_rows.Shape
    shape: Shape
    slots: Ints
    words: Bytes  # what the rows of a line are told apart by


class Scan(NamedTuple):
    """What was read of a block's lines of one sort, row by row."""

    facts: fact_rows.Shape
    taken: Ints  # the numbers of all lines that were read, within the block
    lines: Ints  # of each row the number of its line, in ascending order
    heads: Ints  # of each row how its line begins (`heads`)
    ids: list[bytes]
    columns: dict[str, pa.Array]
    fetched: set[tuple[str, int]]  # by followers: own address of the server, follower


@cache
def heads() -> tuple[list[Head], rows.Heads]:
    """Return all beginnings of lines that are read, also as bytes."""
    known = [
        (f" {level} ", f'{{"isForwarded":{forwarded},"requestHeader":{{"requestApiKey":{api},', level, api)
        for level in LEVELS
        for forwarded in ("false", "true")
        for api in (1, 0)
    ]
    texts = [f"{before}{_MARK}{body}".encode() for before, body, _, _ in known]
    table = np.zeros((len(texts), max(map(len, texts))), np.uint8)
    for number, text in enumerate(texts):
        table[number, : len(text)] = np.frombuffer(text, np.uint8)
    found = [Head(level, api, len(before)) for before, _, level, api in known]
    json = [len(before) + len(_MARK) for before, *_ in known]
    tail = np.frombuffer(TAIL.encode(), np.uint8)
    return found, rows.Heads(table, np.array([len(text) for text in texts]), np.array(json), tail)


def _words(*known: str) -> Bytes:
    table = np.zeros((2, 16), np.uint8)
    for number, word in enumerate(known):
        table[number, : len(word)] = np.frombuffer(word.encode(), np.uint8)
    return table


@cache
def apis() -> dict[int, Api]:
    """Return what is read, by the number of the request's kind."""
    produce = shape_of(shapes.Completed[shapes.ProduceRequest, shapes.ProduceResponse])
    fetch = shape_of(shapes.Completed[shapes.FetchRequest, shapes.FetchResponse])
    given = {
        0: (produce, {
            rows.REQUEST: ("Completed", "request"), rows.RESPONSE: ("Completed", "response"),
            rows.TOPICS: ("ProduceRequest", "topic_data"), rows.TOPIC_PARTS: ("ProduceTopic", "partition_data"),
            rows.TOPIC_NAME: ("ProduceTopic", "name"), rows.TOPIC_ID: ("ProduceTopic", "topic_id"),
            rows.PART: ("ProduceData", "index"), rows.ANSWERS: ("ProduceResponse", "responses"),
            rows.ANSWER_PARTS: ("ProduceAnswers", "partition_responses"), rows.ANSWER_NAME: ("ProduceAnswers", "name"),
            rows.ANSWER_ID: ("ProduceAnswers", "topic_id"), rows.TOLD_PART: ("ProduceAnswer", "index"),
        }),
        1: (fetch, {
            rows.REQUEST: ("Completed", "request"), rows.RESPONSE: ("Completed", "response"),
            rows.TOPICS: ("FetchRequest", "topics"), rows.FORGOTTEN: ("FetchRequest", "forgotten_topics_data"),
            rows.TOPIC_PARTS: ("FetchTopic", "partitions"), rows.TOPIC_NAME: ("FetchTopic", "topic"),
            rows.TOPIC_ID: ("FetchTopic", "topic_id"), rows.PART: ("FetchPartition", "partition"),
            rows.GONE_PARTS: ("ForgottenTopic", "partitions"), rows.GONE_NAME: ("ForgottenTopic", "topic"),
            rows.GONE_ID: ("ForgottenTopic", "topic_id"), rows.ANSWERS: ("FetchResponse", "responses"),
            rows.ANSWER_PARTS: ("FetchAnswers", "partitions"),
            rows.ANSWER_PARTS_BEFORE: ("FetchAnswers", "partition_responses"),
            rows.ANSWER_NAME: ("FetchAnswers", "topic"), rows.ANSWER_ID: ("FetchAnswers", "topic_id"),
            rows.TOLD_PART: ("FetchAnswer", "partition_index"), rows.TOLD_PART_BEFORE: ("FetchAnswer", "partition"),
        }),
    }  # fmt: skip
    words = {0: _words("("), 1: _words("('listed', ", "('forgotten', ")}
    found = {}
    for number, facts in ((0, PRODUCE), (1, FETCH)):
        shape, places = given[number]
        slots = np.full(rows.SLOTS, -1, np.int64)
        for place, name in places.items():
            slots[place] = shape.slot(*name)
        found[number] = Api(facts, shape, slots, words[number])
    return found


class _Records:
    """The records of one block, by class."""

    def __init__(self, shape: Shape, read: Records) -> None:
        self._shape, self._counts = shape, read.counts
        widths = shape.tables.types[:, WIDTH].tolist()
        self._of = [
            read.out[base : base + (read.room + 1) * width].reshape(read.room + 1, width)
            for base, width in zip(read.bases.tolist(), widths, strict=True)
        ]
        for one in self._of:
            one[read.room] = NULL  # place -1: what is not there

    def of(self, name: str) -> Ints:
        """Return all records of a class; there are none of one that such lines do not have."""
        number = self._shape.names.get(name)
        return np.zeros((1, 2), np.int64) if number is None else self._of[number]

    def count(self, name: str) -> int:
        """Return their number."""
        number = self._shape.names.get(name)
        return 0 if number is None else int(self._counts[number])

    def values(self, places: Ints, of: str, *fields: str) -> tuple[Ints, ...]:
        """Return fields of records."""
        records = self.of(of)
        return tuple(records[places, self._shape.slot(of, field)] for field in fields)

    def texts(self, places: Ints, of: str, field: str) -> tuple[Ints, Ints]:
        """Return where texts begin and end."""
        records, slot = self.of(of), self._shape.slot(of, field)
        return records[places, slot], records[places, slot + 1]


class RequestScanner:
    """Reads blocks of one file; keeps the room that it needs for them."""

    def __init__(self) -> None:
        """Take no room yet."""
        self._out = np.empty(0, np.int64)

    def find(self, block: Bytes, starts: Ints, ends: Ints) -> Ints:
        """Return the lines that may be read, a row each (`scanned_rows.FOUND`)."""
        out = np.empty((len(starts), rows.FOUND), np.int64)
        return out[: rows.find(block, starts, ends, heads()[1], out)]

    def read(self, number: int, data: bytes, block: Bytes, found: Ints, local: Ints, broker: int | None) -> Scan | None:
        """Return the facts of the lines of one kind of request; None if there are none. `local`: printed times."""
        api = apis()[number]
        records, read = self._scanned(api.shape, block, found)
        made, texts, taken = _rows(api, records, block, len(read))
        of = made[rows.OF]
        if not len(of):
            return None
        values = _whole(records, of) | (_fetch if number else _produce)(records, of, made)
        columns = {name: _numbers(name, column) for name, column in values.items()}
        for name, (begins, ends) in (_whole_texts(records, of) | _own_texts(number, records, of, made)).items():
            columns[name] = _texts(block, begins, ends)
        first = np.flatnonzero(np.diff(of, prepend=-1))
        fetched: set[tuple[str, int]] = set()
        if number:
            columns |= _flags(made)
            fetched = _fetched(columns, first)
        else:
            columns["request_timed_out"] = _timed_out(values["error_code"], of)
        lines, row_lines = read[of[first]], read[of]
        ids = _ids(
            data, _begun(found[lines], local[lines], broker), first.tolist(), texts, made[rows.TEXT_END].tolist()
        )
        numbers, heads_of = found[:, rows.LINE], found[:, rows.HEAD]
        return Scan(api.facts, numbers[read[taken]], numbers[row_lines], heads_of[row_lines], ids, columns, fetched)

    def _scanned(self, shape: Shape, block: Bytes, found: Ints) -> tuple[_Records, Ints]:
        """Return the records of all lines that can be read, and which of `found` those are."""
        room = len(found) + len(block) // _BYTES_A_RECORD
        if room > _MOST_ROOM:
            raise DoesNotFitError
        ends = np.cumsum(shape.tables.types[:, WIDTH] * (room + 1))
        if len(self._out) < ends[-1]:
            self._out = np.empty(ends[-1] * 5 // 4, np.int64)  # blocks are not all of one size
        records = Records(self._out, np.concatenate(([0], ends[:-1])), np.zeros(len(ends), np.int64), room)
        is_read = np.zeros(len(found), np.uint8)
        begins, stops = (np.ascontiguousarray(found[:, column]) for column in (rows.BEGIN, rows.END))
        scan(block, begins, stops, shape.tables, records, is_read)
        return _Records(shape, records), np.flatnonzero(is_read)


def _rows(api: Api, records: _Records, block: Bytes, count: int) -> tuple[Ints, bytes, Ints]:
    """Return rows by columns (`scanned_rows.ROW`), what tells them from others of a line, and which lines have some."""
    request, topic, asked, answers, told = (
        ("FetchRequest", "FetchTopic", "FetchPartition", "FetchAnswers", "FetchAnswer")
        if api.facts is FETCH
        else ("ProduceRequest", "ProduceTopic", "ProduceData", "ProduceAnswers", "ProduceAnswer")
    )
    response = "FetchResponse" if api.facts is FETCH else "ProduceResponse"
    answered = records.count(told)
    most = count + records.count(asked) + answered + records.count(NUMBER_RECORD)
    out, texts = np.empty((most, rows.ROW), np.int64), np.empty(most * _BYTES_A_TEXT + len(block), np.uint8)
    is_taken, scratch = np.zeros(count, np.uint8), np.empty((3, answered + 1), np.int64)
    classes = ("Completed", request, topic, asked, "ForgottenTopic", NUMBER_RECORD, response, answers, told)
    read = rows.Read(*(records.of(name) for name in classes))
    made = rows.rows_of(block, read, api.slots, api.words, count, rows.Made(out, texts, is_taken, scratch))
    if made < 0:
        raise DoesNotFitError
    by_column = np.ascontiguousarray(out[:made].T)
    written = by_column[rows.TEXT_END, -1] if made else 0
    return by_column, texts[:written].tobytes(), np.flatnonzero(is_taken)


def _whole(records: _Records, of: Ints) -> dict[str, Ints]:
    """Return what the lines say about their requests as a whole, as `request_facts.whole_line` does."""
    (header,) = records.values(of, "Completed", "request_header")
    names = ("request_api_key", "request_api_version", "correlation_id")
    found = zip(("api_key", "api_version", "correlation_id"), records.values(header, "Header", *names), strict=True)
    times = zip(_TIMES, records.values(of, "Completed", *_TIMES.values()), strict=True)
    return {**dict(found), **dict(times)}


def _whole_texts(records: _Records, of: Ints) -> dict[str, tuple[Ints, Ints]]:
    (header,) = records.values(of, "Completed", "request_header")
    return {
        "connection": records.texts(of, "Completed", "connection"),
        "client_id": records.texts(header, "Header", "client_id"),
    }


def _own_texts(number: int, records: _Records, of: Ints, made: Ints) -> dict[str, tuple[Ints, Ints]]:
    found = {
        "topic": (made[rows.NAME], made[rows.NAME_END]),
        "topic_id": (made[rows.ID], made[rows.ID_END]),
    }
    (request,) = records.values(of, "Completed", "request")
    if number:
        begins, ends = records.texts(request, "FetchRequest", "rack_id")
        found["rack"] = (np.where(begins == ends, -1, begins), np.where(begins == ends, -1, ends))
    else:
        found["transactional_id"] = records.texts(request, "ProduceRequest", "transactional_id")
    return found


def _produce(records: _Records, of: Ints, made: Ints) -> dict[str, Ints]:
    """Return the columns of numbers of `request_facts.PRODUCE`."""
    (request,) = records.values(of, "Completed", "request")
    names = ("error_code", "base_offset", "log_start_offset")
    answer = records.values(made[rows.TOLD], "ProduceAnswer", *names)
    acks, wait = records.values(request, "ProduceRequest", "acks", "timeout_ms")
    (size,) = records.values(made[rows.ASKED], "ProduceData", "records_size_in_bytes")
    asked = {"partition": made[rows.PARTITION], "acks": acks, "max_wait_ms": wait, "bytes": size}
    return asked | dict(zip(names, answer, strict=True))


def _fetch(records: _Records, of: Ints, made: Ints) -> dict[str, Ints]:
    """Return the columns of numbers of `request_facts.FETCH`."""
    request, response = records.values(of, "Completed", "request", "response")
    names = ("max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch", "replica_id")
    *whole, replica = records.values(request, "FetchRequest", *names)
    (state,) = records.values(request, "FetchRequest", "replica_state")
    of_state, epoch = records.values(state, "ReplicaState", "replica_id", "replica_epoch")
    replica = np.where(state >= 0, of_state, replica)
    error, session = records.values(response, "FetchResponse", "error_code", "session_id")
    asked, told = made[rows.ASKED], made[rows.TOLD]
    answers = records.values(told, "FetchAnswer", *_ANSWERED.values())
    answer = dict(zip(_ANSWERED, answers, strict=True))
    size, size_before, diverging = records.values(
        told, "FetchAnswer", "records_size_in_bytes", "record_set_size_in_bytes", "diverging_epoch"
    )
    answer["error_code"] = np.where(told >= 0, answer["error_code"], error)
    ends = records.values(np.where(told >= 0, diverging, -1), "Diverging", "epoch", "end_offset")
    return {
        **dict(zip(names, whole, strict=False)),
        "replica_id": np.where(replica == NULL, -1, replica),
        "replica_epoch": epoch,
        "response_session_id": session,
        "partition": made[rows.PARTITION],
        **dict(zip(_ASKED, records.values(asked, "FetchPartition", *_ASKED.values()), strict=True)),
        **answer,
        "bytes": np.where(size == NULL, size_before, size),
        "bytes_listed_before": _listed_before(records, of, told),
        **dict(zip(("diverging_epoch", "diverging_end_offset"), ends, strict=True)),
    }


def _listed_before(records: _Records, of: Ints, told: Ints) -> Ints:
    """Return for each row the bytes of the partitions that the answer lists before its own; NULL: it is not listed.

    The records of one answer are in the order in which it lists them. `of`: the line of each row, ascending.
    """
    every = np.arange(records.count("FetchAnswer"))
    size, size_before = records.values(every, "FetchAnswer", "records_size_in_bytes", "record_set_size_in_bytes")
    size = np.where(size == NULL, size_before, size)
    handed = np.append(0, np.cumsum(np.where(size == NULL, 0, size)))
    listed = np.where(told >= 0, told, len(every))
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    first = np.repeat(np.minimum.reduceat(listed, begins), np.diff(np.append(begins, len(of))))
    return np.where(told >= 0, handed[listed] - handed[first], NULL)


def _flags(made: Ints) -> dict[str, pa.Array]:
    listed = made[rows.SORT] == rows.LISTED
    return {
        "in_request": pa.array(listed & (made[rows.ASKED] >= 0)),
        "in_response": pa.array(listed & (made[rows.TOLD] >= 0)),
        "forgotten": pa.array(made[rows.SORT] == rows.GONE),
    }


def _timed_out(errors: Ints, of: Ints) -> pa.Array:
    """Return whether the time of a row's produce was up: that another row of its line says so counts, too."""
    late = np.isin(of, of[errors == REQUEST_TIMED_OUT])
    return pa.array(late, mask=~late)


def _fetched(columns: dict[str, pa.Array], first: Ints) -> set[tuple[str, int]]:
    """Return which followers fetched at which of the server's addresses; `first`: a row of each line."""
    followers = columns["replica_id"].to_numpy()[first]
    told = columns["connection"].take(pa.array(first[followers >= 0])).dictionary_encode()
    pairs = np.unique(told.indices.to_numpy().astype(np.int64) << 32 | followers[followers >= 0]).tolist()
    connections = told.dictionary.to_pylist()
    return {(own_address(connections[pair >> 32]), pair & 0xFFFFFFFF) for pair in pairs}


def _numbers(name: str, values: Ints) -> pa.Array:
    """Return a column; DoesNotFitError if a number is too large for it."""
    kind, is_null = TYPES[name], values == NULL
    mask = is_null if is_null.any() else None
    if pa.types.is_int64(kind):
        return pa.array(values, mask=mask)
    small = values.astype(np.int32)
    if not ((small == values) | is_null).all():
        raise DoesNotFitError
    return pa.array(small, mask=mask)


def _texts(block: Bytes, begins: Ints, ends: Ints) -> pa.Array:
    """Return a column of texts that stand in a block; those that begin at -1 are null."""
    lengths = np.maximum(ends - begins, 0)
    places = np.zeros(len(begins) + 1, np.int64)
    np.cumsum(lengths, out=places[1:])
    if places[-1] > _MOST_TEXT:
        raise DoesNotFitError
    out = np.empty(places[-1], np.uint8)
    rows.copied(block, begins, ends, places, out)
    is_null = begins < 0
    known = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    starts = pa.py_buffer(places.astype(np.int32))
    return pa.StringArray.from_buffers(len(begins), starts, pa.py_buffer(out), known)


def _begun(found: Ints, local: Ints, broker: int | None) -> list[tuple[bytes, int, int]]:
    """Return what identities of facts begin with: a head, and from where to where the line's text stands behind it."""
    known, table = heads()
    of = found[:, rows.HEAD]
    texts = found[:, rows.BEGIN] - table.json[of] + np.array([head.text for head in known])[of]
    values = zip(local.tolist(), of.tolist(), texts.tolist(), found[:, rows.END].tolist(), strict=True)
    return [
        (line_head(broker, time, known[head].level, _LAST_PART).encode(), begin, end)
        for time, head, begin, end in values
    ]


def _ids(
    data: bytes, lines: list[tuple[bytes, int, int]], first: list[int], texts: bytes, ends: list[int]
) -> list[bytes]:
    """Return the identity of each row. `first`: the first row of each line; `ends`: of each row's own text."""
    out: list[bytes] = []
    begin = 0
    for (head, start, stop), row, after in zip(lines, first, [*first[1:], len(ends)], strict=True):
        if after - row == 1:
            out.append(Identity(head + data[start:stop] + texts[begin : ends[row]], digest_size=ID_BYTES).digest())
        else:
            line = Identity(head + data[start:stop], digest_size=ID_BYTES)
            for end in ends[row:after]:
                one = line.copy()
                one.update(texts[begin:end])
                out.append(one.digest())
                begin = end
        begin = ends[after - 1]
    return out
