"""What followers' own lines say of their fetchers: failed requests, leaders that are not alive, threads that ended.

No leader's line tells of these. They move no offset, but say why a follower did not fetch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from replay.engine.codes import (
    FETCH_FAILED,
    LEADER_NOT_ALIVE,
    LEADER_UNAVAILABLE,
    RECORDS_CORRUPT,
    SHUTTING_DOWN,
    THREAD_ENDED,
    TRUNCATION_FAILED,
    TRUNCATION_FORBIDDEN,
    UNEXPECTED_ERROR,
)
from replay.evidence.request_times import line_window, phases
from replay.evidence.roles import BATCH_START, moment
from replay.evidence.tenures import micros
from replay.order.control_chain import time_span
from replay.order.front import OP_CONTROL
from replay.order.operations import Draft, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

CAUSES: Final = {  # name of a fact `fetcher` -> cause of the event
    "request_failed": FETCH_FAILED,
    "not_started": LEADER_NOT_ALIVE,
    "not_added": SHUTTING_DOWN,
    "unexpected_error": UNEXPECTED_ERROR,
    "corrupt_records": RECORDS_CORRUPT,
    "truncation_failed": TRUNCATION_FAILED,
    "truncation_forbidden": TRUNCATION_FORBIDDEN,
}
FETCHER: Final = re.compile(r"\[ReplicaFetcher(?: replicaId=\d+, leaderId=\d+, fetcherId=(\d+)|Thread-(\d+)-\d+)\]")
CLIENT: Final = re.compile(r"broker-\d+-fetcher-(\d+)")  # client id of a replica's fetches


def fetcher_operations(facts: PartitionFacts, tenure: Tenure, replica: int) -> list[Operation]:
    """What a replica's lines say of its fetcher in a tenure, in the order of its clock."""
    lines = [row for row in facts.fetcher_lines.get((replica, tenure.epoch), ()) if row["name"] in CAUSES]
    told = [(moment(row), row, cause_of(row), "observed") for row in lines]
    told += [(micros(row["ts"]), row, THREAD_ENDED, how) for row, how in thread_ends(facts, tenure, replica)]
    return [
        Operation(
            OP_CONTROL,
            window := line_window(at),
            [Draft("observation", row, window, fields_of(tenure, replica, row, cause, evidence))],
        )
        for at, row, cause, evidence in sorted(told, key=lambda one: (one[0], one[1]["fact_id"]))
    ]


def batch_starts(facts: PartitionFacts, tenure: Tenure, replica: int) -> dict[int, int]:
    """End of the replica's empty log -> first offset of the batch with which the log began instead, by its lines."""
    lines = facts.fetcher_lines.get((replica, tenure.epoch), ())
    return {row["log_start_offset"]: row["offset"] for row in lines if row["name"] == BATCH_START}


def cause_of(row: Row) -> str:
    """The cause of the event that a line is: only ZooKeeper's brokers name the request that told them of the leader."""
    is_zookeeper = row["name"] == "not_started" and row["correlation_id"] is not None
    name: str = row["name"]
    return LEADER_UNAVAILABLE if is_zookeeper else CAUSES[name]


def fields_of(tenure: Tenure, replica: int, row: Row, cause: str, evidence: str) -> dict[str, Any]:
    """The fields of the event."""
    leader = tenure.leader if row["leader_id"] is None else row["leader_id"]
    return {
        "broker_id": replica,
        "leader_id": leader,
        "leader_epoch": tenure.epoch,
        "cause": cause,
        "evidence": evidence,
    }


def thread_ends(facts: PartitionFacts, tenure: Tenure, replica: int) -> Iterator[tuple[Row, str]]:
    """Lines that say that a thread ended by which the replica fetched the partition in this tenure; how that is known.

    The line names no partition. A broker may have several threads for a leader (num.replica.fetchers), of which each
    partition has one: the line names its thread, and the client id of the replica's fetches theirs. Without either it
    is not certain that it was this partition's.
    """
    since, until = time_span(facts, tenure)
    for row in facts.turns.thread_ends:
        at = micros(row["ts"])
        if row["broker_id"] == replica and row["leader_id"] == tenure.leader and since <= at < until:
            ended, mine = fetcher_named(row["text"]), fetcher_at(facts, tenure, replica, at)
            if ended is None or mine is None:
                yield row, "bounded"
            elif ended == mine:
                yield row, "derived"


def fetcher_named(text: str | None) -> int | None:
    """The number of the fetcher whose thread writes a line, among those for its leader; None: the line has no name."""
    found = FETCHER.match(text or "")
    return int(found[1] or found[2]) if found else None


def fetcher_at(facts: PartitionFacts, tenure: Tenure, replica: int, us: int) -> int | None:
    """The number of the fetcher that fetched the partition last before a moment, or first behind it; None: unknown."""
    fetches = [fetch.row for fetch in facts.fetches_of(replica, tenure)]
    behind = next((k for k, row in enumerate(fetches) if phases(row).taken > us), len(fetches))
    for row in [*fetches[:behind][::-1], *fetches[behind:]]:
        found = CLIENT.fullmatch(row["client_id"] or "")
        if found:
            return int(found[1])
    return None


def places_by_time(fetches: Sequence[Row], operations: Sequence[Operation]) -> list[int]:
    """Before which of its fetches each of a follower's lines stands: the first that its leader took up after it."""
    taken = [phases(row).taken for row in fetches]
    return [next((k for k, us in enumerate(taken) if us >= one.window.est), len(taken)) for one in operations]
