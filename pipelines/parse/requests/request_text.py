"""Request log lines in the text form of Kafka 2.4 to 2.7, read into the same shapes as the JSON form.

These releases share one form: `RequestChannel.Request.updateRequestMetrics` prints the header, the request, the
response and the times; bodies are `Struct.toString`, which does not quote texts. So nothing ambiguous is read: free
texts (client and rack ids, messages, hosts, file names) are cut out at marks that occur once, the rest must be names,
numbers and legal topic names, and any other line is refused with the reason.

What the form does not contain is null: a produce's transactional id; its sizes if the logger was at DEBUG (only the
number of partitions is printed, and the answer tells which); topic ids, which requests did not have by then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pipelines.parse.requests import deletion_facts, transaction_shapes
from pipelines.parse.requests import request_shapes as shapes

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = "RequestHeader("

# ApiKeys of 2.7.2, in the order of their numbers
_KEY_NAMES = (
    "PRODUCE FETCH LIST_OFFSETS METADATA LEADER_AND_ISR STOP_REPLICA UPDATE_METADATA CONTROLLED_SHUTDOWN "
    "OFFSET_COMMIT OFFSET_FETCH FIND_COORDINATOR JOIN_GROUP HEARTBEAT LEAVE_GROUP SYNC_GROUP DESCRIBE_GROUPS "
    "LIST_GROUPS SASL_HANDSHAKE API_VERSIONS CREATE_TOPICS DELETE_TOPICS DELETE_RECORDS INIT_PRODUCER_ID "
    "OFFSET_FOR_LEADER_EPOCH ADD_PARTITIONS_TO_TXN ADD_OFFSETS_TO_TXN END_TXN WRITE_TXN_MARKERS "
    "TXN_OFFSET_COMMIT DESCRIBE_ACLS CREATE_ACLS DELETE_ACLS DESCRIBE_CONFIGS ALTER_CONFIGS "
    "ALTER_REPLICA_LOG_DIRS DESCRIBE_LOG_DIRS SASL_AUTHENTICATE CREATE_PARTITIONS CREATE_DELEGATION_TOKEN "
    "RENEW_DELEGATION_TOKEN EXPIRE_DELEGATION_TOKEN DESCRIBE_DELEGATION_TOKEN DELETE_GROUPS ELECT_LEADERS "
    "INCREMENTAL_ALTER_CONFIGS ALTER_PARTITION_REASSIGNMENTS LIST_PARTITION_REASSIGNMENTS OFFSET_DELETE "
    "DESCRIBE_CLIENT_QUOTAS ALTER_CLIENT_QUOTAS DESCRIBE_USER_SCRAM_CREDENTIALS ALTER_USER_SCRAM_CREDENTIALS "
    "VOTE BEGIN_QUORUM_EPOCH END_QUORUM_EPOCH DESCRIBE_QUORUM ALTER_ISR UPDATE_FEATURES"
)
KEYS = {name: number for number, name in enumerate(_KEY_NAMES.split())}

_HEADER = re.compile(
    r"RequestHeader\(apiKey=(\w+), apiVersion=(\d{1,5}), clientId=(.*?), correlationId=(-?\d{1,10})\) -- "
)
_PROTOCOL = ",securityProtocol:"
_TIME = r"(\d+(?:\.\d+)?(?:E-?\d+)?)"
_TIMES = re.compile(
    r" from connection (\S+);totalTime:" + _TIME + ",requestQueueTime:" + _TIME + ",localTime:" + _TIME
    + ",remoteTime:" + _TIME + ",throttleTime:" + _TIME + ",responseQueueTime:" + _TIME + ",sendTime:" + _TIME
    + _PROTOCOL
)  # fmt: skip
_RESPONSE = ",response:"
THROTTLE = 4  # place of throttleTime among the times
_THROTTLED = re.compile(r"^\{throttle_time_ms=(\d+),|,throttle_time_ms=(\d+)\}$")

TOPIC = r"[A-Za-z0-9._-]+"
_NAMED = re.compile(rf"\b(topic|topic_name|name)=({TOPIC})(?=[,}}])")
_NAME = re.compile(
    r"(?<![a-z_])([a-z_]+)="
)  # begun nowhere else, or a long word would be gone through from each letter
_PRODUCE = re.compile(
    rf"\{{acks=(-?\d{{1,5}}),timeout=(-?\d{{1,10}}),(?:partitionSizes=\[((?:{TOPIC}-\d{{1,10}}=\d{{1,10}}(?:,(?!\])|(?=\])))*)\]|"
    r"numPartitions=(\d+))\}"
)
_SIZE = re.compile(rf"({TOPIC})-(\d+)=(\d+)")
MESSAGES = re.compile(
    r",record_errors=.*?(?=\}(?:,\{partition=\d|\]\}(?:,\{topic=|\],throttle_time_ms=\d+\}$)))", re.DOTALL
)
_RECORDS = re.compile(r"\}?,record_set=(?:null|\w+\(size=(\d+), [^{}]*\))(?=\}|,_tagged_fields=)")
_CURRENT_LEADER = re.compile(r"(?:, )?1=\{leader_id=-?\d+,leader_epoch=-?\d+\}(?=\}[},])")
_DIVERGING = re.compile(r",_tagged_fields=\{0=\{(epoch=-?\d+,end_offset=-?\d+)\}\}")
_CLUSTER = re.compile(r"\],cluster_id=(?!null,)([\w-]+),controller_id=-?\d+,topics=\[")


class RefusedError(ValueError):
    """The line cannot be read unambiguously."""


class TextRequest(NamedTuple):
    """A decoded line: its api key, and what the decoder of the JSON form would have returned."""

    key: int
    completed: shapes.Completed[Any, Any] | shapes.Times


class Cut(NamedTuple):
    """A line cut at the marks that occur once in it."""

    api: str
    version: str
    client: str
    correlation: str
    request: str
    response: str
    connection: str
    times: str  # from the mark of the first to the end of the last
    spent: tuple[str, ...]
    end: str  # who sent the request, and how


def cut(body: str) -> Cut:
    """Cut what follows `Completed request:`; raises RefusedError if a mark is missing, or may be part of a text."""
    header = _HEADER.match(body)
    if header is None or body.count(", correlationId=") != 1:
        raise RefusedError("no header, or a client id that looks like one")
    if header[1] not in KEYS:
        raise RefusedError("a request that no Kafka up to 2.7 knows")
    times = _TIMES.search(body, header.end())
    if times is None or body.count(";totalTime:", header.end()) != 1:
        raise RefusedError("no times, or a text that looks like them")
    bodies = body[header.end() : times.start()]
    request, response_mark, response = bodies.partition(_RESPONSE)
    if not response_mark or _RESPONSE in response:
        raise RefusedError("no response, or a text that looks like one")
    api, version, client, correlation = header.groups()
    end = times.end() - len(_PROTOCOL)
    spent = times.groups()[1:]
    return Cut(
        api, version, client, correlation, request, response, times[1], body[times.end(1) : end], spent, body[end:]
    )


def read(body: str) -> TextRequest:
    """Read what follows `Completed request:`; raises RefusedError, and msgspec's errors for a malformed body."""
    line = cut(body)
    key = KEYS[line.api]
    whole = shapes.Header(key, int(line.version), int(line.correlation), None if line.client == "null" else line.client)
    spent = [float(value) for value in line.spent]
    spent[THROTTLE] = throttle_of(line.response)
    read_bodies = _BODIES.get(key)
    if read_bodies is None:
        return TextRequest(key, shapes.Times(whole, line.connection, *spent))
    bodies = read_bodies(line.request, line.response)
    return TextRequest(key, shapes.Completed(whole, *bodies, line.connection, *spent))


def is_read(api: str) -> bool:
    """Whether the bodies of such a request are read, by the name of its kind."""
    return KEYS[api] in _BODIES


def throttle_of(response: str) -> float:
    """Return the throttle time that the answer states, in milliseconds; 0 if it states none.

    `throttleTime` among the times has that meaning only from 2.6 on. Up to 2.5 it is how long the answer took to be
    made and sent (RequestChannel.updateRequestMetrics: response complete minus remote complete), which is never 0.
    """
    told = _THROTTLED.search(response)
    return float(told[1] or told[2]) if told is not None else 0.0


class _Names(dict[str, str]):
    """Names of fields in the JSON form, quoted and with the colon."""

    def __missing__(self, name: str) -> str:
        first, *others = name.split("_")
        self[name] = found = f'"{first}{"".join(part.title() for part in others)}":'
        return found


_COMMON = _Names({"max_wait_time": '"maxWaitMs":', "record_set": '"recordSetSizeInBytes":'})
_ANSWERED = _Names({"topic": '"name":', "partition": '"index":'})  # of a produce


def _json(text: str, names: _Names = _COMMON) -> str:
    """Return a struct as JSON; its only texts must be topic names."""
    text = text.replace(",_tagged_fields={}", "")
    return _NAME.sub(lambda found: names[found[1]], _NAMED.sub(r'\1="\2"', text))


def _without_end(request: str, name: str) -> str:
    """Return the request up to a field with free text, behind which nothing is needed."""
    found = request.find(f",{name}=")
    return request if found < 0 else request[:found] + "}"


_produce_response = msgspec.json.Decoder(shapes.ProduceResponse)
_fetch_request = msgspec.json.Decoder(shapes.FetchRequest)
_fetch_response = msgspec.json.Decoder(shapes.FetchResponse)
_leader_request = msgspec.json.Decoder(shapes.LeaderAndIsrRequest)
_leader_response = msgspec.json.Decoder(shapes.LeaderAndIsrResponse)
_epoch_request = msgspec.json.Decoder(shapes.EpochRequest)
_epoch_response = msgspec.json.Decoder(shapes.EpochResponse)
_isr_request = msgspec.json.Decoder(shapes.IsrRequest)
_isr_response = msgspec.json.Decoder(shapes.IsrResponse)
_markers_request = msgspec.json.Decoder(transaction_shapes.MarkersRequest)
_markers_response = msgspec.json.Decoder(transaction_shapes.MarkersResponse)
_deletion_request = msgspec.json.Decoder(deletion_facts.DeletionRequest)
_deletion_response = msgspec.json.Decoder(deletion_facts.DeletionResponse)

_Bodies = tuple[Any, Any]


def _produce(request: str, response: str) -> _Bodies:
    """Decode a produce: `ProduceRequest.toString` names partitions with sizes at TRACE, and counts them at DEBUG."""
    said = _PRODUCE.fullmatch(request)
    if said is None:
        raise RefusedError("not a produce request")
    answer: shapes.ProduceResponse | str = ""
    if response:
        answer = _produce_response.decode(_json(MESSAGES.sub("", response), _ANSWERED))
    if said[4] is None:
        topics = [
            shapes.ProduceTopic([shapes.ProduceData(int(index), int(size))], topic)
            for topic, index, size in _SIZE.findall(said[3])
        ]
    elif isinstance(answer, str):
        topics = []
    else:
        topics = [
            shapes.ProduceTopic([shapes.ProduceData(part.index) for part in topic.partition_responses], topic.name)
            for topic in answer.responses
        ]
    return shapes.ProduceRequest(int(said[1]), topics, int(said[2])), answer


def _fetch(request: str, response: str) -> _Bodies:
    asked = _fetch_request.decode(_json(_without_end(request, "rack_id")))
    if not response:
        return asked, ""
    sized = _RECORDS.sub(lambda found: f",record_set={found[1] or 'null'}", response)
    flat = sized.replace("{partition_header={", "{").replace(",_tagged_fields={}", "")
    return asked, _fetch_response.decode(_json(_DIVERGING.sub(r",diverging_epoch={\1}", _CURRENT_LEADER.sub("", flat))))


def _metadata(request: str, response: str) -> _Bodies:
    """Read only the cluster id: all else that facts use of metadata is topic ids, which do not occur yet."""
    del request
    named = _CLUSTER.findall(response)
    return None, shapes.MetadataResponse(cluster_id=named[0] if len(named) == 1 else None)


def _leader_and_isr(request: str, response: str) -> _Bodies:
    asked = _leader_request.decode(_json(_without_end(request, "live_leaders")))
    return asked, _leader_response.decode(_json(response)) if response else ""


def _epoch_end_offset(request: str, response: str) -> _Bodies:
    return _epoch_request.decode(_json(request)), _epoch_response.decode(_json(response)) if response else ""


def _isr(request: str, response: str) -> _Bodies:
    return _isr_request.decode(_json(request)), _isr_response.decode(_json(response)) if response else ""


def _markers(request: str, response: str) -> _Bodies:
    return _markers_request.decode(_json(request)), _markers_response.decode(_json(response)) if response else ""


def _deletion(request: str, response: str) -> _Bodies:
    return _deletion_request.decode(_json(request)), _deletion_response.decode(_json(response)) if response else ""


_BODIES: dict[int, Callable[[str, str], _Bodies]] = {
    0: _produce,
    1: _fetch,
    3: _metadata,
    4: _leader_and_isr,
    21: _deletion,
    23: _epoch_end_offset,
    27: _markers,
    56: _isr,
}
