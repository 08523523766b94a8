"""Pseudonyms in request lines, JSON and text. Only what Tidemark reads stays; of all other requests the bodies go.

Nothing is searched for: each text of a body is replaced unless its field is known to name no one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pipelines.parse.requests import request_text
from pipelines.parse.requests.request_log import PREFIX, RequestLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.collecting.pseudonyms import Pseudonyms

_TOPIC: Final = re.compile(rf"\b(topic|topic_name|name)=({request_text.TOPIC})(?=[,}}])")
_SIZED: Final = re.compile(rf"({request_text.TOPIC})(-\d{{1,10}}=\d{{1,10}})(?=[,\]])")
_LISTED_BROKER: Final = re.compile(r"\{node_id=(\d{1,9}),host=([^,=]{0,255}),port=(\d{1,5})")
_CLUSTER: Final = re.compile(r"\],(cluster_id=[\w-]+,controller_id=-?\d+),topics=\[")
_RECORDS: Final = re.compile(r"(,record_set=\w+\(size=\d+), [^{}]*\)")  # behind the size, a file's path
_THROTTLE: Final = re.compile(r"^\{throttle_time_ms=(\d+),|,throttle_time_ms=(\d+)\}$")
_END: Final = re.compile(r",securityProtocol:(\w*),principal:(.*?),listener:([^,]*).*", re.DOTALL)
_UNREADABLE: Final = {"{": PREFIX + "{", "R": f"{PREFIX}{request_text.HEADER}"}
_AS_IT_IS: Final = {
    "requestApiKeyName", "securityProtocol", "softwareVersion", "topicId", "clusterId", "replicaDirectoryId",
}  # fmt: skip


class RequestLines:
    """Replaces names in request lines."""

    def __init__(self, names: Pseudonyms) -> None:
        """Say how each field is replaced."""
        self._names = names
        self._read = RequestLog().keys_read
        self._fields: dict[str, Callable[[str], str]] = {
            "clientId": names.client,
            "connection": names.connection,
            "host": names.host,
            "hostName": names.host,
            "listener": names.listener,
            "name": names.topic,
            "principal": names.principal,
            "softwareName": names.software,
            "topic": names.topic,
            "topicName": names.topic,
            "transactionalId": names.client,
            "v3AndBelowTransactionalId": names.client,
            **dict.fromkeys(_AS_IT_IS, str),
        }

    def line(self, text: str) -> str:
        """Return the text of a request line with pseudonyms; of one that cannot be read, only how it begins."""
        body = text[len(PREFIX) :]
        try:
            if body.startswith("{"):
                return PREFIX + self._json(body)
            if body.startswith(request_text.HEADER):
                return PREFIX + self._text(body)
        except (msgspec.MsgspecError, RecursionError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return _UNREADABLE.get(body[:1], PREFIX)

    def _json(self, body: str) -> str:
        line: dict[str, Any] = msgspec.json.decode(body)
        key = line["requestHeader"]["requestApiKey"]
        if key not in self._read:
            line |= {name: "" if line.get(name) == "" else {} for name in ("request", "response") if name in line}
        return msgspec.json.encode(self._walked(line, "")).decode()

    def _walked(self, value: Any, field: str) -> Any:  # noqa: ANN401 - as JSON has it
        if isinstance(value, dict):
            return {name: self._walked(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._walked(inner, field) for inner in value]
        if isinstance(value, str) and value:
            replace = self._fields.get(field)
            return self._names.word("x", value) if replace is None else replace(value)
        return value

    def _text(self, body: str) -> str:
        """Replace names in the form of 2.4 to 2.7, cut up as its parser cuts it."""
        parts = request_text.cut(body)
        request, response = ("{}", _only_throttle(parts.response))
        if request_text.is_read(parts.api):
            request, response = self._bodies(parts.api, parts.request, parts.response)
        client = "null" if parts.client == "null" else self._names.client(parts.client)
        end = _END.fullmatch(parts.end)
        ending = ""
        if end is not None:
            principal, listener = self._names.principal(end[2]), self._names.listener(end[3])
            ending = f",securityProtocol:{end[1]},principal:{principal},listener:{listener}"
        return (
            f"{request_text.HEADER}apiKey={parts.api}, apiVersion={parts.version}, clientId={client}, "
            f"correlationId={parts.correlation}) -- {request},response:{response}"
            f" from connection {self._names.connection(parts.connection)}{parts.times}{ending or ',securityProtocol:'}"
        )

    def _bodies(self, api: str, request: str, response: str) -> tuple[str, str]:
        if api == "METADATA":
            return "{}", self._metadata(response)
        if api == "PRODUCE":
            request = _SIZED.sub(lambda found: self._names.topic(found[1]) + found[2], request)
            return request, self._topics(request_text.MESSAGES.sub("", response))
        for name in ("rack_id", "live_leaders"):  # what stands behind them is not read
            head, mark, _ = request.partition(f",{name}=")
            request = f"{head}{mark}}}" if mark else head
        return self._topics(request), self._topics(_RECORDS.sub(r"\1, -)", response))

    def _topics(self, body: str) -> str:
        if not self._names.redacts_topics:
            return body
        return _TOPIC.sub(lambda found: f"{found[1]}={self._names.topic(found[2])}", body)

    def _metadata(self, response: str) -> str:
        """Keep the addresses of brokers, which tell their lines apart, and the cluster's id."""
        brokers = ",".join(
            f"{{node_id={node},host={self._names.host(host)},port={port},rack=null}}"
            for node, host, port in _LISTED_BROKER.findall(response)
        )
        cluster = _CLUSTER.search(response)
        told = cluster[1] if cluster is not None else "cluster_id=null,controller_id=-1"
        throttle = _THROTTLE.search(response)
        begin = f"throttle_time_ms={throttle[1] or throttle[2]}," if throttle is not None else ""
        return f"{{{begin}brokers=[{brokers}],{told},topics=[]}}" if response else ""


def _only_throttle(response: str) -> str:
    found = _THROTTLE.search(response)
    return f"{{throttle_time_ms={found[1] or found[2]},}}" if found is not None else "{}" if response else ""
