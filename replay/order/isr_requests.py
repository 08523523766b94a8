"""Changes of the ISR that a leader requested and their outcome, from its own log lines or from the controller's.

A change takes these steps: the leader logs that it shrinks the ISR (2.2+ with each replica's LEO) or asks to expand
it, sends the request, and gets an answer or logs that the request was rejected. Each step becomes an `isr_request`
event. What a line states of an out-of-sync replica becomes an `observation` event, which the engine's own view is
compared with.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from replay.arrays.ints import NEVER
from replay.engine.codes import (
    ANSWERED,
    FENCED_LEADER_EPOCH,
    INELIGIBLE_REPLICA,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    NEW_LEADER_ELECTED,
    OPERATION_NOT_ATTEMPTED,
    UNKNOWN_TOPIC_ID,
)
from replay.engine.stamps import STAMP_EARLY_US
from replay.evidence.active_controllers import ActiveControllers
from replay.evidence.broker_pauses import between
from replay.evidence.clock_steps import SET_BACK
from replay.evidence.expiry_runs import run_before
from replay.evidence.request_times import DECISION_LATE_US, Window, decision_window, line_window, phases
from replay.evidence.tenures import ISR_TAKEN_OVER, micros
from replay.order.front import OP_CONTROL
from replay.order.operations import Draft, Operation
from replay.protocol.produce import UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Tenure

SAME_CHANGE_US: Final = 2_000_000  # a leader that shrinks writes two lines, well apart on a loaded host
RESET_ERRORS: Final = frozenset({OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA})
FINAL_ERRORS: Final = frozenset(
    {
        UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_REQUEST,
        FENCED_LEADER_EPOCH,
        INVALID_UPDATE_VERSION,
        UNKNOWN_TOPIC_ID,
        NEW_LEADER_ELECTED,
    }
)


@dataclass(slots=True)
class IsrChange:
    """One change of the ISR that a leader asked for."""

    row: Row
    us: int  # when, by the leader's clock; for a request, when the controller received it
    shrinks: bool
    isr: list[int]  # the ISR that was asked for
    replica: int | None  # the replica that is to join
    by_line: bool
    epochs: list[int] | None = None  # the members' broker epochs, in the order of `isr`, if a request names them
    granted: bool = False  # no line tells that the leader asked, but the controller let the replica join


Joins = dict[int, dict[int, list[IsrChange]]]  # replica -> place of its fetch -> what the leader asked for then


def outcome_of(error: int) -> str:
    """Return what a rejection does to the pending change, as in Partition.handleAlterPartitionError."""
    if error in RESET_ERRORS:
        return "reset"
    return "refused" if error in FINAL_ERRORS else "retried"


def leader_lines(facts: PartitionFacts, tenure: Tenure) -> list[Row]:
    """Return the leader's own log lines about its ISR in this tenure, in the order it wrote them."""
    return facts.turns.isr_updates.get((tenure.leader, tenure.epoch), [])


def asked_by_line(lines: Sequence[Row]) -> list[IsrChange]:
    """Return changes according to the leader's log lines. Of the two lines about one change only the first counts."""
    out: list[IsrChange] = []
    for row in lines:
        if row["name"] not in ("shrink", "pending_shrink", "expand", "pending_expand") or row["isr"] is None:
            continue
        us, shrinks = micros(row["ts"]), row["name"].endswith("shrink")
        before = out[-1] if out else None
        second = row["name"].startswith("pending_") and before is not None and not before.row["name"].startswith("pend")
        if second and before and sorted(before.isr) == sorted(row["isr"]) and us - before.us <= SAME_CHANGE_US:
            continue
        out.append(IsrChange(row, us, shrinks, sorted(row["isr"]), row["replica_id"], by_line=True))
    return out


def asked_by_request(facts: PartitionFacts, tenure: Tenure) -> list[IsrChange]:
    """Return changes according to the AlterPartition requests that the controller got from this leader, in order."""
    out: list[IsrChange] = []
    held = {d.partition_epoch: d.isr for d in tenure.decisions}
    for row in requests_of(facts, tenure):
        before = held.get(row["partition_epoch"])
        if before is None or row["isr"] is None:
            continue
        joining = sorted(set(row["isr"]) - set(before))
        shrinks = bool(set(before) - set(row["isr"]))
        replica = joining[0] if len(joining) == 1 else None
        change = IsrChange(row, phases(row).taken, shrinks, sorted(row["isr"]), replica, by_line=False)
        change.epochs = epochs_named(row)
        out.append(change)
    return out


def epochs_named(row: Row) -> list[int] | None:
    """Return the broker epochs that a request names (3.5+, KIP-903), in the order of its members' ids."""
    epochs: list[int] | None = row["isr_broker_epochs"]
    return None if epochs is None else [epoch for _, epoch in sorted(zip(row["isr"], epochs, strict=True))]


def epochs_asked(requests: Iterable[Row], change: IsrChange) -> list[int] | None:
    """Return the broker epochs in the request that carried the change of which a leader's line tells.

    It is the one for the same ISR that the controller received nearest to the line; repeated, it names the same ones.
    """
    near = [
        (abs(phases(row).taken - change.us), row["fact_id"], row)
        for row in requests
        if row["isr"] is not None and sorted(row["isr"]) == change.isr
    ]
    away, _, row = min(near, key=itemgetter(0, 1), default=(NEVER, "", None))
    return None if row is None or away > SAME_CHANGE_US else epochs_named(row)


def requests_of(facts: PartitionFacts, tenure: Tenure) -> list[Row]:
    """Return the AlterPartition (AlterIsr) requests of this tenure's leader in the controller's order."""
    return facts.turns.isr_requests.get((tenure.leader, tenure.epoch), [])


def changes_of(facts: PartitionFacts, tenure: Tenure) -> list[IsrChange]:
    """Return the changes that the leader asked for, from its lines; shrinks from its requests if no line tells any."""
    lines = asked_by_line(leader_lines(facts, tenure))
    requests = requests_of(facts, tenure)
    for change in lines:
        change.epochs = epochs_asked(requests, change)
    told = {change.shrinks for change in lines}
    return lines + [c for c in asked_by_request(facts, tenure) if c.shrinks not in told and c.shrinks]


def learnt_awake(facts: PartitionFacts, tenure: Tenure, decided: int) -> Window:
    """Return when the leader learnt of a decision: as usual, or after its standstill if it stood still at that time."""
    usual = decision_window(decided)
    for before, after in between(facts.standstills.get(tenure.leader, ()), usual.est, usual.est):
        if before <= usual.est < after:
            late = decision_window(after)
            return Window(usual.lo, late.est, late.hi)
    return usual


def common_fields(tenure: Tenure) -> dict[str, Any]:
    """Return the fields that all events of the leader about its ISR share."""
    return {"broker_id": tenure.leader, "leader_epoch": tenure.epoch, "evidence": "observed"}


def request_operations(facts: PartitionFacts, tenure: Tenure, joins: Joins) -> list[Operation]:
    """Return requested shrinks, expansions without a known fetch, rejections and repeated metadata, by time."""
    used = {id(change.row) for places in joins.values() for changes in places.values() for change in changes}
    out = [
        shrink_operation(facts, tenure, change) if change.shrinks else expand_operation(tenure, change)
        for change in changes_of(facts, tenure)
        if id(change.row) not in used
    ]
    lines = leader_lines(facts, tenure)
    told = [(row, error) for row in lines if (error := error_of_line(row)) is not None]
    told += untold_errors(facts, tenure, {outcome_of(error) == "refused" for _, error in told})
    out += [rejection(tenure, row, error) for row, error in told]
    out += [again(tenure, row) for row in repeated_commits(lines)]
    asked = requests_of(facts, tenure)
    if asked:
        controllers = ActiveControllers(facts.cluster)
        out += [answered(tenure, row, controllers.at(phases(row).taken)) for row in asked]
    return sorted(out, key=place_of)


def untold_errors(facts: PartitionFacts, tenure: Tenure, told: set[bool]) -> list[tuple[Row, int]]:
    """Return the refused requests about which no line of the leader can be expected, with their errors.

    It writes a line about a final refusal at DEBUG, about any other above that. `told`: whether a line tells of either.
    """
    errors = ((row, row["error_code"]) for row in requests_of(facts, tenure))
    return [(row, error) for row, error in errors if error and (outcome_of(error) == "refused") not in told]


def commit_lines(lines: Iterable[Row]) -> dict[int | None, list[Row]]:
    """Return the lines in which the leader adopted each partition epoch: from the answer, or from the metadata."""
    out: dict[int | None, list[Row]] = {}
    for row in lines:
        if row["name"] in ISR_TAKEN_OVER and row["partition_epoch"] is not None:
            out.setdefault(row["partition_epoch"], []).append(row)
    return out


def repeated_commits(lines: Sequence[Row]) -> list[Row]:
    """Return lines that adopt a partition epoch again: metadata arrives after the answer (Partition.makeLeader)."""
    return [row for rows in commit_lines(lines).values() for row in rows[1:]]


def again(tenure: Tenure, row: Row) -> Operation:
    """Make the operation for a repeated committed state: it ends any pending change, though nothing was decided."""
    window = line_window(micros(row["ts"]))
    fields = {
        **common_fields(tenure),
        "partition_epoch": row["partition_epoch"],
        "isr": sorted(row["isr"]),
        "cause": "committed",
        "state": row["name"],
    }
    return Operation(OP_CONTROL, window, [Draft("isr_request", row, window, fields)])


def interleaved(decided: list[Operation], told: list[Operation]) -> list[Operation]:
    """Merge decisions, in metadata order, and the leader's own lines into one chain.

    Each keeps its own order; between them the time decides, and at equal times the earlier line comes first.
    """
    out: list[Operation] = []
    waiting = deque(told)
    for op in decided:
        while waiting and place_of(waiting[0]) < place_of(op):
            out.append(waiting.popleft())
        out.append(op)
    return [*out, *waiting]


def place_of(op: Operation) -> tuple[int, int]:
    """Return the sort key of an operation of the control chain on the leader: best time, then line."""
    return op.window.est, op.drafts[-1].line or 0


def error_of_line(row: Row) -> int | None:
    """Return the error code of a line about a failed update; None: no such line, or only its answer was late."""
    if row["name"] == "zookeeper_conflict":
        return RESET_BY_ZOOKEEPER
    error: int | None = row["error_code"] if row["name"] in ("failed", "removed_from_replicas") else None
    return error


RESET_BY_ZOOKEEPER: Final = 55  # the ISR stays as it was, as if nothing had been attempted


def rejection(tenure: Tenure, row: Row, error: int) -> Operation:
    """Make the operation for a rejected update, at the time the leader learns of it."""
    by_line = row["kind"] == "isr_update"
    window = line_window(micros(row["ts"])) if by_line else decision_window(micros(row["ts"]))
    lost = row["name"] == "zookeeper_conflict"
    fields = {
        **common_fields(tenure),
        "cause": outcome_of(error),
        "error_code": error,
        "replica_id": row["replica_id"] if by_line else None,
        "isr": held_isr(tenure, window.est) if lost else None,
        "partition_epoch": row["partition_epoch"] if lost else None,
    }
    return Operation(OP_CONTROL, window, [Draft("isr_request", row, window, fields)])


def answered(tenure: Tenure, row: Row, active: int | None) -> Operation:
    """Make the operation for a request that a node answered: which node was the active controller then, if known."""
    window = decision_window(micros(row["ts"]))
    told = {"controller_id": row["broker_id"], "active_controller_id": active, "error_code": row["error_code"]}
    fields = {**common_fields(tenure), **told, "broker_epoch": row["broker_epoch"], "cause": ANSWERED}
    return Operation(OP_CONTROL, window, [Draft("observation", row, window, fields)])


def held_isr(tenure: Tenure, us: int) -> list[int] | None:
    """Return the ISR last committed before `us`: it stays when an update of ZooKeeper is lost to a conflict."""
    found = [d.isr for d in tenure.decisions if d.us <= us]
    return list(found[-1]) if found else None


def shrink_operation(facts: PartitionFacts, tenure: Tenure, change: IsrChange) -> Operation:
    """Make the operation for a requested shrink: what the leader states of each replica, then the request."""
    row = change.row
    window = line_window(change.us) if change.by_line else Window(change.us - DECISION_LATE_US, change.us, change.us)
    drafts = [
        Draft(
            "observation",
            row,
            window,
            {
                **common_fields(tenure),
                "replica_id": broker,
                "fetch_offset": end,
                "cause": "out_of_sync",
            },
        )
        for broker, end in out_of_sync(row)
    ]
    states_leos = bool(drafts)
    throttled = [r for r in change_members(tenure, change) if left_out_by_quota(facts, tenure, r, change.us)]
    fields = {
        **common_fields(tenure),
        "cause": "pending_shrink",
        "isr": change.isr,
        "isr_broker_epochs": change.epochs,
        "leo": row["offset"] if states_leos else None,
        "throttled": throttled or None,
        "stood_still_us": stood_still(facts, tenure.leader, change.us),
        "since_expiry_run_us": since_expiry_run(facts, tenure.leader, change),
    }
    drafts.append(Draft("isr_request", row, window, fields))
    return Operation(OP_CONTROL, window, drafts, offset=row["offset"] or 0 if states_leos else 0)


def out_of_sync(row: Row) -> list[tuple[int, int]]:
    """Return the replicas that a leader's line calls out of sync, each with its LEO; the line says `2:40 3:38`."""
    if row["name"] != "shrink":
        return []
    pairs = (pair.split(":") for pair in (row["value"] or "").split())
    return [(int(broker), int(end)) for broker, end in pairs]


def stood_still(facts: PartitionFacts, broker: int, us: int) -> int | None:
    """Return the length of the broker's last standstill if it ended within the lag time before `us`, else None."""
    spans = [
        after - before
        for before, after in between(facts.standstills.get(broker, ()), us - facts.lag_us, us + STAMP_EARLY_US)
        if after <= us + STAMP_EARLY_US
    ]
    return spans[-1] if spans else None


def since_expiry_run(facts: PartitionFacts, broker: int, change: IsrChange) -> int | None:
    """Return how long before a shrink the leader's expiry task is known to have run; None: that is not known.

    Another line of the same run does not count. Where a clock was set back, the two times do not belong together.
    """
    run = None if change.row[SET_BACK] else run_before(facts.expiry, broker, change.us, facts.lag_us // 4)
    return None if run is None else change.us - run


def change_members(tenure: Tenure, change: IsrChange) -> list[int]:
    """Return the replicas that are to leave: members of any ISR of this tenure that the change leaves out."""
    return sorted({b for d in tenure.decisions for b in d.isr} - set(change.isr) - {tenure.leader})


def left_out_by_quota(facts: PartitionFacts, tenure: Tenure, replica: int, us: int) -> bool:
    """Whether the follower is throttled and its own last word is that it left the partition out of its fetches."""
    return replica in facts.throttled_at(us) and facts.turns.left_out_at(replica, tenure.leader, us)


def expand_operation(tenure: Tenure, change: IsrChange) -> Operation:
    """Make the operation for a requested expansion whose fetch is not known."""
    window = line_window(change.us)
    return Operation(OP_CONTROL, window, [expand_draft(tenure, change)])


def expand_draft(tenure: Tenure, change: IsrChange) -> Draft:
    """Make the event for a requested expansion."""
    fields = {
        **common_fields(tenure),
        "cause": "pending_expand",
        "isr": change.isr,
        "isr_broker_epochs": change.epochs,
        "replica_id": change.replica,
    }
    return Draft("isr_request", change.row, line_window(change.us), fields)
