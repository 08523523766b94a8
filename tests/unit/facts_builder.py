"""Builds small histories by hand: facts of one partition as rows, with only the columns that matter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from replay.evidence.client_quotas import client_quotas_in
from replay.evidence.client_requests import STATED
from replay.evidence.clock_steps import steadied
from replay.evidence.coverage import Heard, heard_of
from replay.evidence.expiry_runs import first_shrinks, marks_of, shrinks_in
from replay.evidence.incarnations import Lives, starts_of_brokers
from replay.evidence.missing_lines import MissingLines, missing_requests
from replay.evidence.partition_facts import PartitionFacts
from replay.evidence.rows import Row, rows_of_facts
from replay.evidence.session_lines import SESSION_SCHEMA
from replay.order.order import ordered
from schemas.facts import FACTS

if TYPE_CHECKING:
    from collections.abc import Iterable

START = datetime(2024, 5, 1, 3, 0, tzinfo=UTC)
TOPIC, PARTITION = "orders", 0
Second = tuple[str, int, int, int]  # in which something was heard: source, first, last, lines
KEY = {"recording_id": "small", "topic": TOPIC, "topic_id": None, "incarnation": 0, "partition": PARTITION}


def at(ms: float) -> datetime:
    """Return a time of the history, `ms` milliseconds from its start."""
    return START + timedelta(milliseconds=ms)


class History:
    """Facts in the order in which they are added; each gets its own line and id."""

    def __init__(self) -> None:
        """Start an empty history."""
        self.rows: list[dict[str, Any]] = []
        self.correlations: dict[str, int] = {}

    def add(self, kind: str, ms: float, **fields: Any) -> dict[str, Any]:
        """Add one fact; it is about the partition unless `fields` say otherwise."""
        line = len(self.rows) + 1
        row = {
            "recording_id": "small",
            "fact_id": f"f{line:04}",
            "kind": kind,
            "source_file": "request.log",
            "source_line": line,
            "ts": at(ms),
            "topic": TOPIC,
            "partition": PARTITION,
            **fields,
        }
        self.rows.append(row)
        return row

    def request(self, kind: str, ms: float, connection: str, **fields: Any) -> dict[str, Any]:
        """Add one line of a request log, answered at `ms`, with the next correlation id of its connection."""
        self.correlations[connection] = self.correlations.get(connection, -1) + 1
        durations = {f"{name}_us": 0 for name in ("total", "queue", "local", "remote")}
        fields = {"error_code": 0, **durations, **fields}
        return self.add(kind, ms, connection=connection, correlation_id=self.correlations[connection], **fields)

    def decide(self, ms: float, leader: int | None, isr: list[int] | None = None, **fields: Any) -> None:
        """Add a partition record (the first) or a change record of the metadata log; `leader` None: not named."""
        before = [row for row in self.rows if row["kind"] == "partition_change"]
        first = {"leader_epoch": 0, "partition_epoch": 0, "replicas": [1, 2, 3]} if not before else {}
        record = "PARTITION_CHANGE_RECORD" if before else "PARTITION_RECORD"
        place = {"metadata_offset": 100 + len(self.rows), "record_type": record}
        self.add("partition_change", ms, leader_id=leader, isr=isr, **{**place, **first, **fields})

    def fence(self, ms: float, broker: int, **fields: Any) -> None:
        """Add a registration change: fenced, unless `fields` say otherwise."""
        where = {"metadata_offset": 100 + len(self.rows), "record_type": "BROKER_REGISTRATION_CHANGE_RECORD"}
        about = {"topic": None, "partition": None, "subject_broker_id": broker, "fenced": True}
        self.add("broker_change", ms, **{**about, **where, **fields})

    def produce(self, ms: float, broker: int, base: int, **fields: Any) -> dict[str, Any]:
        """Add a produce to `broker`, answered with `base`."""
        fields = {"acks": -1, "bytes": 100, "client_id": "shop", **fields}
        return self.request("produce", ms, f"p{broker}", broker_id=broker, base_offset=base, **fields)

    def fetch(self, ms: float, broker: int, replica: int, offset: int | None, **fields: Any) -> dict[str, Any]:
        """Add a fetch from `broker`, listed on both sides, without a session; `replica` -1: a consumer."""
        fields = {
            "session_epoch": -1,
            "session_id": 0,
            "response_session_id": 0,
            "in_request": True,
            "in_response": True,
            "current_leader_epoch": 0 if replica >= 0 else -1,
            "last_fetched_epoch": fields.get("current_leader_epoch", 0) if replica >= 0 and offset else -1,
            "partition_max_bytes": 1 << 20,
            "bytes": 0,
            "hw": None,
            **fields,
        }
        return self.request(
            "fetch", ms, fields.pop("connection", f"r{replica}-{broker}"), broker_id=broker, replica_id=replica,
            fetch_offset=offset, **fields,
        )  # fmt: skip

    def role(self, ms: float, broker: int, name: str, epoch: int, **fields: Any) -> None:
        """Add a broker's line about its role; `fields` may hold `offset` (its LEO) and `hw`."""
        fields = {"source_file": f"server-{broker}.log", "offset": None, "hw": None, **fields}
        self.add("role_change", ms, broker_id=broker, name=name, leader_epoch=epoch, **fields)

    def table(self, kind: str | None = None) -> pa.Table:
        """Return the facts, or those of one kind, as the parse stage returns them."""
        return pa.Table.from_pylist([r for r in self.rows if kind in (None, r["kind"])], schema=SESSION_SCHEMA)

    def facts(self, rows: list[dict[str, Any]] | None = None, **settings: Any) -> PartitionFacts:
        """The partition's facts as the order stage gets them, of its one life; fetches stand for themselves."""
        (facts,) = self.lives(rows, **settings)
        return facts

    def lives(self, rows: list[dict[str, Any]] | None = None, **settings: Any) -> list[PartitionFacts]:
        """Return the facts of each incarnation, as the order stage separates them if it has no topic ids."""
        told = self.rows if rows is None else rows
        facts = steadied(pa.Table.from_pylist(told, schema=SESSION_SCHEMA))
        found = rows_of_facts(facts)
        own, cluster = (
            [row for row in found if (row["partition"] is None) == is_cluster] for is_cluster in (False, True)
        )
        lives = Lives(own, starts_of_brokers(cluster))
        expiry = marks_of(first_shrinks(shrinks_in(facts)), cluster, settings.get("standstills", {}))
        return [
            PartitionFacts(
                topic=TOPIC,
                incarnation=life,
                partition=PARTITION,
                rows=[row for row in own if lives.of(row) == life],
                cluster=cluster,
                missing=gaps_in(found),
                expiry=expiry,
                client_quotas=client_quotas_in(cluster),
                **{"kafka_version": "4.1.0", "topic_id": None, **settings},
            )
            for life in range(lives.count)
        ]

    def events(self, rows: list[dict[str, Any]] | None = None, **settings: Any) -> pa.Table:
        """Return the history in replay order, incarnation by incarnation."""
        return pa.concat_tables([piece for facts in self.lives(rows, **settings) for piece in ordered(facts)])


def gaps_in(facts: Iterable[Row]) -> MissingLines:
    """Return what is missing among the request lines behind these facts."""
    schema = pa.schema([FACTS.arrow_schema.field(name) for name in STATED])
    rows = [{name: row[name] for name in schema.names} for row in facts]
    return missing_requests(pa.Table.from_pylist(rows, schema=schema))


def by_source(seconds: Iterable[Second]) -> dict[str, Heard]:
    """Return by source what was heard of a broker."""
    sources, *columns = zip(*seconds, strict=True)
    told = dict(zip(Heard._fields, (pa.array(column, pa.int64()) for column in columns), strict=True))
    return heard_of(pa.table({"source": pa.chunked_array([pa.array(sources)]), **told}))


def of_kind(events: pa.Table, *kinds: str) -> list[Row]:
    """Return the events of these kinds, in order."""
    return [Row(row) for row in events.to_pylist() if row["kind"] in kinds]
