"""Requests to delete records (DeleteRecords) as events, each where its leader took it up.

A request that was taken shows that the high watermark had reached its offset by then, and one for all that is committed
(-1) what the high watermark was: the leader's own line about its new log start tells, or the answer. What the topic's
cleanup policy was decides whether a leader deletes at all; it comes with the event.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from replay.engine.stamps import STAMP_EARLY_US, STAMP_LATE_US
from replay.evidence.request_times import TIMING, local_window, phases
from replay.evidence.tenures import micros
from replay.order.front import OP_ACK, OP_READ, OP_REFUSED
from replay.order.operations import Draft, Operation
from replay.order.refusals import by_role
from replay.protocol.deletion import AT_HIGH_WATERMARK, DELETING_ANSWERS, POLICY_VIOLATION
from replay.protocol.produce import NO_ERROR, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

CLEANUP_SETTING: Final = "cleanup.policy"
DEFAULT_POLICY: Final = "delete"
BY_REQUEST: Final = ("client delete records request", None)  # as the leader says it from 2.7 on, and before
NOT_OF_THE_PARTITION: Final = (None, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED)
COPIED: Final = ("error_code", "client_id", "max_wait_ms", "low_watermark", *TIMING)


def deletions_by_tenure(facts: PartitionFacts) -> dict[int, list[Row]]:
    """Return every answered request, by the leader epoch in which its broker then had a role.

    An answer that the topic is unknown to the broker's metadata cache, or that the client may not delete, says nothing
    of the partition.
    """
    asked = [row for row in facts.by_kind["delete_records"] if row["error_code"] not in NOT_OF_THE_PARTITION]
    return by_role(facts, asked)


def deletion_chain(facts: PartitionFacts, tenure: Tenure, rows: list[Row]) -> list[Operation]:
    """Return a tenure's requests as operations, in the order in which they were handled."""
    policies = policies_of(facts) if rows else ([], [])
    out = []
    for row in sorted(rows, key=lambda one: (phases(one).taken, one["fact_id"])):
        at = phases(row)
        window = local_window(at)
        asked, error = row["offset"], row["error_code"]
        moved_to, evidence = None, "observed"
        if error in DELETING_ANSWERS:
            moved_to, evidence = (asked, evidence) if asked != AT_HIGH_WATERMARK else stated_start(facts, row)
        fields = {
            "broker_id": row["broker_id"],
            "leader_epoch": tenure.epoch,
            "requested_offset": asked,
            "log_start_offset": moved_to,
            "cause": policy_at(policies, at.taken, error),
            "evidence": evidence,
        }
        drafts = [Draft("delete_records", row, window, fields, COPIED)]
        if error not in DELETING_ANSWERS:
            out.append(Operation(OP_REFUSED, window, drafts))
        elif asked == AT_HIGH_WATERMARK and moved_to is not None:
            out.append(Operation(OP_READ, window, drafts, hw=moved_to))
        else:
            out.append(Operation(OP_ACK, window, drafts, hw=asked))
    return out


def stated_start(facts: PartitionFacts, row: Row) -> tuple[int | None, str]:
    """Return to where a request for all that is committed moved the log start, and how that is known; None: it is not.

    The leader's own line is written while the request is handled. A line is missing where the log start was there
    already; then it follows from the answer (`derived`), if it is one without an error: all live replicas had the same
    log start. Such an answer cannot be compared with the low watermark that it itself gave.
    """
    at, broker = phases(row), row["broker_id"]
    lines = [
        line["log_start_offset"]
        for line in facts.by_kind["log_start_change"]
        if line["broker_id"] == broker
        and line["name"] in BY_REQUEST
        and at.taken - STAMP_LATE_US <= micros(line["ts"]) <= at.local + STAMP_EARLY_US
    ]
    if len(lines) == 1:
        return int(lines[0]), "observed"
    answered = row["low_watermark"]
    tells = row["error_code"] == NO_ERROR and answered is not None and answered >= 0
    return (int(answered), "derived") if tells else (None, "observed")


def policies_of(facts: PartitionFacts) -> tuple[list[int], list[str | None]]:
    """Return since when which cleanup policy of the topic holds, as sources state it, by time.

    A topic that was seen from its making on, and for which nothing is stated, has Kafka's default.
    """
    rows = [*facts.cluster, *facts.by_kind["config_change"]]
    told = [(micros(row["ts"]), row["value"]) for row in rows if is_policy(row)]
    told.sort(key=lambda one: one[0])
    opening = DEFAULT_POLICY if facts.was_seen_made() else None
    return [us for us, _ in told], [opening, *(words_of(value) for _, value in told)]


def is_policy(row: Row) -> bool:
    """Whether the row states, or takes back, the topic's cleanup policy."""
    return bool(
        row["kind"] == "config_change"
        and row["name"] == CLEANUP_SETTING
        and row["topic"] is not None
        and row["ts"] is not None
    )


def words_of(value: str | None) -> str:
    """Return a policy as the events name it; a setting that was taken back leaves the default."""
    if value is None:
        return DEFAULT_POLICY
    named = sorted(word for word in (part.strip() for part in value.split(",")) if word)
    return ",".join(named) or "none"


def policy_at(policies: tuple[list[int], list[str | None]], us: int, error: int) -> str | None:
    """Return the policy in force; None: unknown. A refusal before any is stated shows that brokers have their own."""
    times, values = policies
    place = bisect_right(times, us)
    return values[place] if place or error != POLICY_VIOLATION else None
