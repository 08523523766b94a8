"""Request log lines to facts, one per partition: `Completed request:{...}`, JSON since Kafka 2.8, text before.

The line is written when the response is sent; what it says happened earlier is for the order stage to place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from pipelines.lines.rows import FactSink, Line, Shape
from pipelines.parse.requests import deletion_facts, request_facts, request_text, transaction_facts, transaction_shapes
from pipelines.parse.requests import request_shapes as shapes

PREFIX = "Completed request:"
_KEY = re.compile(r'"requestApiKey":(-?\d+)')
_Make = Callable[[FactSink, Line, Any], None]
TOPIC_SEEN = Shape("topic_change", ("topic", "topic_id"), (("name", "metadata_response"),))
CLUSTER_SEEN = Shape("broker_lifecycle", ("value",), (("name", "cluster_id"),))


class RequestLog:
    """Parses the request lines of one file; remembers which topic ids the file has stated already."""

    def __init__(self, named: set[tuple[str, ...]] | None = None) -> None:
        """`named`: the topics and clusters that earlier lines of the file have named; those that follow are added."""
        self._named: set[tuple[str, ...]] = set() if named is None else named
        self._kinds: dict[int, tuple[msgspec.json.Decoder[Any], _Make]] = {
            0: (_decoder(shapes.ProduceRequest, shapes.ProduceResponse), request_facts.produce),
            1: (_decoder(shapes.FetchRequest, shapes.FetchResponse), request_facts.fetch),
            3: (_decoder(msgspec.Raw, shapes.MetadataResponse), self._metadata),
            4: (_decoder(shapes.LeaderAndIsrRequest, shapes.LeaderAndIsrResponse), request_facts.leader_and_isr),
            21: (
                _decoder(deletion_facts.DeletionRequest, deletion_facts.DeletionResponse),
                deletion_facts.deleted_records,
            ),
            23: (_decoder(shapes.EpochRequest, shapes.EpochResponse), request_facts.epoch_end_offset),
            24: (
                _decoder(transaction_shapes.AddPartitionsRequest, transaction_shapes.AddPartitionsResponse),
                transaction_facts.added_partitions,
            ),
            26: (
                _decoder(transaction_shapes.EndTxnRequest, transaction_shapes.EndTxnResponse),
                transaction_facts.ended_transaction,
            ),
            27: (
                _decoder(transaction_shapes.MarkersRequest, transaction_shapes.MarkersResponse),
                transaction_facts.markers,
            ),
            56: (_decoder(shapes.IsrRequest, shapes.IsrResponse), request_facts.isr_request),
        }
        self._others = (msgspec.json.Decoder(shapes.Times), request_facts.api)

    @property
    def keys_read(self) -> frozenset[int]:
        """The APIs whose requests and answers are read, not only their headers."""
        return frozenset(self._kinds)

    def parse(self, text: str, sink: FactSink, line: Line) -> str | None:
        """Add the line's facts; return the reason if it is rejected, else None."""
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
        """Return the function that makes the line's facts, and the decoded line (JSON form)."""
        key = _KEY.search(body, 0, 200)
        decoder, make = self._kinds.get(int(key[1]), self._others) if key else self._others
        return make, decoder.decode(body)

    def _of_text(self, body: str) -> tuple[_Make, Any]:
        """Return the function that makes the line's facts, and the decoded line (text form)."""
        key, completed = request_text.read(body)
        kinds = {} if isinstance(completed, shapes.Times) else self._kinds
        return kinds.get(key, self._others)[1], completed

    def _metadata(self, sink: FactSink, line: Line, completed: shapes.Completed[Any, shapes.MetadataResponse]) -> None:
        request_facts.api(sink, line, completed)
        response = completed.response
        if isinstance(response, str):
            return
        if response.cluster_id and ("", response.cluster_id) not in self._named:
            self._named.add(("", response.cluster_id))
            sink.add_rows(CLUSTER_SEEN, line, (), [(("cluster",), (response.cluster_id,))])
        for topic in response.topics:
            if topic.error_code or not topic.name or not topic.topic_id or topic.topic_id == request_facts.NO_TOPIC_ID:
                continue
            if (topic.name, topic.topic_id) not in self._named:
                named = (topic.name, topic.topic_id)
                self._named.add(named)
                sink.add_rows(TOPIC_SEEN, line, (), [(("topic", *named), named)])


def _decoder(request: type, response: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shapes.Completed[request, response])  # type: ignore[valid-type]
