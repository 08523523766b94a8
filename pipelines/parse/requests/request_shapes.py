"""What Tidemark reads of each request and response, by the names that Kafka 2.8 to 4.x print; all else is skipped.

A field that a version names differently stands twice (`partition` and `partition_index`); absent means the default.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

Request = TypeVar("Request")
Response = TypeVar("Response")


class Body(msgspec.Struct, rename="camel", gc=False):
    """Base of all: camel case in the log."""


class Header(Body):
    """requestHeader."""

    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None = None


class Completed(Body, Generic[Request, Response]):
    """One `Completed request:` line; the response is an empty text where none was sent."""

    request_header: Header
    request: Request
    response: Response | str
    connection: str
    total_time_ms: float
    request_queue_time_ms: float = 0.0
    local_time_ms: float = 0.0
    remote_time_ms: float = 0.0
    throttle_time_ms: float = 0.0
    response_queue_time_ms: float = 0.0
    send_time_ms: float = 0.0


class Times(Body):
    """A line of a request whose bodies do not matter."""

    request_header: Header
    connection: str
    total_time_ms: float
    request_queue_time_ms: float = 0.0
    local_time_ms: float = 0.0
    remote_time_ms: float = 0.0
    throttle_time_ms: float = 0.0
    response_queue_time_ms: float = 0.0
    send_time_ms: float = 0.0


# -- produce


class ProduceData(Body):
    """One partition's records."""

    index: int
    records_size_in_bytes: int | None = None


class ProduceTopic(Body):
    """One topic of a produce."""

    partition_data: list[ProduceData]
    name: str | None = None
    topic_id: str | None = None


class ProduceRequest(Body):
    """Produce, v3 on."""

    acks: int
    topic_data: list[ProduceTopic]
    timeout_ms: int | None = None
    transactional_id: str | None = None


class ProduceAnswer(Body):
    """One partition's answer."""

    index: int
    error_code: int
    base_offset: int
    log_start_offset: int | None = None


class ProduceAnswers(Body):
    """One topic's answers."""

    partition_responses: list[ProduceAnswer]
    name: str | None = None
    topic_id: str | None = None


class ProduceResponse(Body):
    """Answer of a produce."""

    responses: list[ProduceAnswers]


# -- fetch


class ReplicaState(Body):
    """Who fetches, v15 on."""

    replica_id: int = -1
    replica_epoch: int = -1


class FetchPartition(Body):
    """One partition that the fetch adds or changes."""

    partition: int
    fetch_offset: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int | None = None
    partition_max_bytes: int | None = None


class FetchTopic(Body):
    """One topic of a fetch."""

    partitions: list[FetchPartition]
    topic: str | None = None
    topic_id: str | None = None


class ForgottenTopic(Body):
    """Partitions taken out of the session."""

    partitions: list[int]
    topic: str | None = None
    topic_id: str | None = None


class FetchRequest(Body):
    """Fetch."""

    topics: list[FetchTopic]
    replica_id: int | None = None
    replica_state: ReplicaState | None = None
    max_wait_ms: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics_data: list[ForgottenTopic] = []
    rack_id: str | None = None


class Diverging(Body):
    """Where the logs part."""

    epoch: int = -1
    end_offset: int = -1


class FetchAnswer(Body):
    """One partition's answer; 2.8 says `partition` and `recordSetSizeInBytes`."""

    error_code: int
    high_watermark: int
    partition_index: int | None = None
    partition: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    preferred_read_replica: int | None = None
    records_size_in_bytes: int | None = None
    record_set_size_in_bytes: int | None = None
    diverging_epoch: Diverging | None = None


class FetchAnswers(Body):
    """One topic's answers; 2.8 says `partitionResponses`."""

    partitions: list[FetchAnswer] = []
    partition_responses: list[FetchAnswer] = []
    topic: str | None = None
    topic_id: str | None = None


class FetchResponse(Body):
    """Answer of a fetch."""

    responses: list[FetchAnswers]
    error_code: int = 0
    session_id: int = 0


# -- OffsetForLeaderEpoch


class EpochPartition(Body):
    """Which epoch's end is asked for."""

    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


class EpochTopic(Body):
    """One topic of it."""

    topic: str
    partitions: list[EpochPartition]


class EpochRequest(Body):
    """OffsetForLeaderEpoch."""

    topics: list[EpochTopic]
    replica_id: int | None = None


class EpochAnswer(Body):
    """Where that epoch ends."""

    partition: int
    error_code: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


class EpochAnswers(Body):
    """One topic's answers."""

    topic: str
    partitions: list[EpochAnswer]


class EpochResponse(Body):
    """Answer of OffsetForLeaderEpoch."""

    topics: list[EpochAnswers]


# -- AlterPartition; its name was AlterIsr before 3.2


class NewIsrMember(Body):
    """A member of the ISR asked for, v3 on."""

    broker_id: int
    broker_epoch: int = -1


class IsrPartition(Body):
    """The ISR that a leader asks for."""

    partition_index: int
    leader_epoch: int
    new_isr: list[int] | None = None
    new_isr_with_epochs: list[NewIsrMember] | None = None
    leader_recovery_state: int | None = None
    partition_epoch: int | None = None
    current_isr_version: int | None = None


class IsrTopic(Body):
    """One topic of it; the name before v2, the id after."""

    partitions: list[IsrPartition]
    topic_name: str | None = None
    name: str | None = None
    topic_id: str | None = None


class IsrRequest(Body):
    """AlterPartition."""

    broker_id: int
    topics: list[IsrTopic]
    broker_epoch: int = -1


class IsrAnswer(Body):
    """The controller's answer for one partition."""

    partition_index: int
    error_code: int = 0


class IsrAnswers(Body):
    """One topic's answers."""

    partitions: list[IsrAnswer]
    topic_name: str | None = None
    name: str | None = None
    topic_id: str | None = None


class IsrResponse(Body):
    """Answer of AlterPartition."""

    topics: list[IsrAnswers] = []
    error_code: int = 0


# -- LeaderAndIsr, with ZooKeeper


class LeaderState(Body):
    """What a partition is told to be."""

    partition_index: int
    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    zk_version: int | None = None
    partition_epoch: int | None = None
    topic_name: str | None = None
    adding_replicas: list[int] = []
    removing_replicas: list[int] = []
    leader_recovery_state: int | None = None


class LeaderTopic(Body):
    """One topic of it, v2 on."""

    topic_name: str
    partition_states: list[LeaderState]
    topic_id: str | None = None


class LeaderAndIsrRequest(Body):
    """LeaderAndIsr."""

    controller_id: int
    topic_states: list[LeaderTopic] = []
    ungrouped_partition_states: list[LeaderState] = []


class LeaderAndIsrResponse(Body):
    """Answer of LeaderAndIsr."""

    error_code: int = 0


# -- Metadata


class MetadataTopic(Body):
    """A topic's name and id."""

    error_code: int = 0
    name: str | None = None
    topic_id: str | None = None


class MetadataResponse(Body):
    """Answer of Metadata."""

    topics: list[MetadataTopic] = []
    cluster_id: str | None = None
