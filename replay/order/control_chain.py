"""Roles, decisions and brokers' own lines of one tenure, each in its own order, as operations for the merge."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from replay.arrays.ints import NEVER
from replay.engine.codes import LEADER_UNAVAILABLE, STORAGE_FAILED
from replay.evidence.min_isr import ROLE_TAKES_US
from replay.evidence.request_columns import RequestColumns
from replay.evidence.request_times import Window, decision_window, line_window, phases
from replay.evidence.roles import moment
from replay.evidence.served_epochs import is_told
from replay.evidence.tenure_index import among, least_after
from replay.evidence.tenures import Decision, Tenure, micros
from replay.order.front import OP_CONTROL, OP_WITNESS
from replay.order.isr_joins import known_when_asked, learnt_before
from replay.order.isr_requests import Joins, interleaved, learnt_awake, place_of, request_operations
from replay.order.operations import Draft, Operation
from replay.order.settings_events import broker_draft, min_isr_draft, quotas_between, segment_bytes_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row


def role_drafts(facts: PartitionFacts, tenure: Tenure) -> list[Draft]:
    """The electing decision, the leader taking up its role, then each follower that is known to have followed."""
    isr = list(tenure.decisions[0].isr) if tenure.decisions else sorted(facts.followers(tenure) | {tenure.leader})
    drafts = [decision_draft(d) for d in tenure.decisions[:1]] or [assumed_decision(facts, tenure, isr)]
    if tenure.leader >= 0:
        drafts += role_of(facts, tenure, tenure.leader, "leader", isr)
    lines = facts.turns.followers.get(tenure.epoch, set())
    for broker in sorted((lines | facts.followers(tenure)) - {tenure.leader}):
        if not is_told_late(facts, tenure, broker):
            drafts += role_of(facts, tenure, broker, "follower", None)
    return drafts


def is_told_late(facts: PartitionFacts, tenure: Tenure, broker: int) -> bool:
    """Whether a follower's first fetches from this leader name an older epoch: it takes its role up between them."""
    fetches = facts.fetches_of(broker, tenure)
    return bool(fetches) and not is_told(fetches[0].row)


def assumed_decision(facts: PartitionFacts, tenure: Tenure, isr: list[int]) -> Draft:
    """A decision assumed if no source has the controller's; whoever fetches from the leader counts as an ISR member."""
    at = begun_us(facts, tenure)
    outside = last_isr_without(facts, tenure)
    only = "only fetches and followers name this leader epoch"
    fields = {
        "leader_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "isr": isr,
        "replicas": isr,
        "recovering": False,
        "change": "other",
        "election": "clean" if outside is None else "unclean",
        "trigger": only if outside is None else f"broker {tenure.leader} was outside the last ISR {list(outside)}",
        "evidence": "bounded",
    }
    return Draft("partition_change", None, Window(at, at, at), fields)


def last_isr_without(facts: PartitionFacts, tenure: Tenure) -> tuple[int, ...] | None:
    """The last ISR of the previous epoch, if it rules out this leader, by the previous leader's own log; else None.

    Only a leader adds members to its ISR, and logs it. None if that leader's log is not available, or if the new leader
    was in the ISR.
    """
    before = [d for d in facts.turns.decisions.get(tenure.epoch - 1, ()) if d.leader >= 0]
    if not before or not facts.has_own_log(before[-1].leader) or before[-1].row["broker_id"] != before[-1].leader:
        return None
    return before[-1].isr if tenure.leader not in before[-1].isr else None


def role_of(facts: PartitionFacts, tenure: Tenure, broker: int, role: str, isr: list[int] | None) -> list[Draft]:
    """A broker takes up a role, after loading its log if it had just started."""
    line, load = facts.role_lines.get((broker, tenure.epoch)), facts.loads.get((broker, tenure.epoch))
    if line is not None and line["name"] == role:
        drafts = line_role(tenure, broker, line, load, isr)
        drafts[-1].fields |= step_fields(facts, (broker, tenure.epoch), 0)
        if role == "leader" and line["offset"] is None:
            drafts[-1].fields |= leader_start(facts, tenure)
        if load is None and role == "follower" and was_written_before_its_end(facts, tenure, broker, line):
            drafts[-1].fields |= {"leo": None, "hw": None}
        return drafts
    at = tenure.decisions[0].us if tenure.decisions else begun_us(facts, tenure)
    start = leader_start(facts, tenure) if role == "leader" else {"leo": None, "evidence": "bounded"}
    fields = {"role": role, "hw": None, "isr": isr, **start}
    taken_up = Draft("role_change", None, decision_window(at), {**role_key(tenure, broker), **fields})
    return [*load_drafts(broker, load), taken_up]


def leader_start(facts: PartitionFacts, tenure: Tenure) -> dict[str, Any]:
    """Where a leader's log ends when it begins to lead and its own line does not say: its LEO, or a lower bound.

    If no append of the epoch is known, the first HW that the leader states before anybody fetches from it lies within
    the log with which it began: a leader's HW is never beyond its log (UnifiedLog.maybeIncrementHighWatermark).
    """
    if tenure.epoch in facts.starts:
        leo, evidence = facts.starts[tenure.epoch]
        return {"leo": leo, "evidence": evidence}
    fetched = first_fetch_us(facts, tenure)
    stated = min(facts.hw_lines.get(tenure.epoch, ()), key=lambda row: (row["ts"], row["hw"]), default=None)
    least = stated["hw"] if stated is not None and (fetched is None or micros(stated["ts"]) < fetched) else None
    return {"leo": None, "next_offset": least, "evidence": "bounded"}


def was_written_before_its_end(facts: PartitionFacts, tenure: Tenure, broker: int, line: Row) -> bool:
    """Whether a follower's line about its new role states an LEO from before its last fetches in the older role.

    The line is written before the fetcher is removed (ReplicaManager.applyLocalFollowersDelta), so an answer may still
    be appended. Becoming a follower does not truncate a log: if the broker next states what it had reached, nothing was
    truncated.
    """
    sequence = facts.sequence_of(broker)
    place = bisect_left(sequence, tenure.epoch, key=lambda fetch: fetch.row["current_leader_epoch"])
    before = sequence[place - 1].row if place else None
    if before is None or line["offset"] is None or before["fetch_offset"] <= line["offset"]:
        return False
    following = sequence[place].row if place < len(sequence) else None
    epoch = facts.turns.role_after(broker, tenure.epoch)
    if following is not None and (epoch is None or following["current_leader_epoch"] < epoch):
        after = following["fetch_offset"]
    elif epoch is not None:
        after = (facts.loads.get((broker, epoch)) or facts.role_lines[broker, epoch])["offset"]
    else:
        after = facts.turns.ends.get(broker)
    if after is None:  # its log is not stated again
        return bool(abs(phases(before).taken - moment(line)) <= ROLE_TAKES_US)
    return bool(after >= before["fetch_offset"])


def role_key(tenure: Tenure, broker: int) -> dict[str, Any]:
    """The fields that every role change of a tenure has."""
    return {"broker_id": broker, "leader_epoch": tenure.epoch, "leader_id": tenure.leader}


def line_role(tenure: Tenure, broker: int, line: Row, load: Row | None, isr: list[int] | None) -> list[Draft]:
    """A role as the broker's own line states it, after the load of its log if there was one."""
    fields = {"role": line["name"], "leo": line["offset"], "hw": line["hw"], "isr": isr, "evidence": "observed"}
    if tenure.leader < 0 and line["correlation_id"] is not None:  # of a LeaderAndIsr request: ZooKeeper
        fields["cause"] = LEADER_UNAVAILABLE
    taken_up = Draft("role_change", line, line_window(moment(line)), {**role_key(tenure, broker), **fields})
    return [*load_drafts(broker, load), taken_up]


def step_fields(facts: PartitionFacts, role: tuple[int, int], place: int) -> dict[str, Any]:
    """When a broker stopped and started its fetcher, as columns of the event of its role; empty if no line tells.

    `place`: how often it had come back to the role before.
    """
    steps = facts.steps.get(role, {}).get(place)
    if steps is None:
        return {}
    begins = steps.started["fetch_offset"]
    return {
        "fetcher_stopped_ts": None if steps.stopped is None else moment(steps.stopped),
        "fetcher_started_ts": moment(steps.started),
        "fetcher_offset": steps.started["offset"] if begins is None else begins,
    }


def load_drafts(broker: int, load: Row | None) -> list[Draft]:
    """The load of a broker's log, if there was one."""
    if load is None:
        return []
    stated = {"leo": load["offset"], "hw": load["hw"], "cause": load["cause"]}
    fields = {"broker_id": broker, **stated, "evidence": "observed"}
    return [Draft("log_load", load, line_window(micros(load["ts"])), fields)]


def role_operations(facts: PartitionFacts, tenure: Tenure, replica: int) -> list[Operation]:
    """Operations for a follower's own lines within the tenure: truncations, and restarts in the same epoch.

    A truncation after a diverging answer belongs to the fetch that received the answer; so do offsets without a line.
    """
    diverged = any(f.row["diverging_epoch"] is not None for f in facts.fetches_of(replica, tenure))
    cuts = [
        row for row in facts.cuts.get((replica, tenure.epoch), ()) if not diverged or row["cause"] != "leader_epoch"
    ]
    out = []
    if is_told_late(facts, tenure, replica) and (replica, tenure.epoch) in facts.role_lines:
        drafts = role_of(facts, tenure, replica, "follower", None)
        out.append(Operation(OP_CONTROL, drafts[0].window, drafts))
    out += [cut_line(tenure, replica, row) for row in cuts if not row["rejoined"]]
    rejoins = facts.rejoins.get((replica, tenure.epoch), [])
    for place, (load, line) in enumerate(rejoins, start=1):
        if line["name"] == "follower":
            window = line_window(moment(line))
            drafts = line_role(tenure, replica, line, load, None)
            drafts[-1].fields |= step_fields(facts, (replica, tenure.epoch), place)
            out.append(Operation(OP_CONTROL, window, drafts))
            out += [cut_line(tenure, replica, row) for row in cuts if row["rejoined"] == place]
    return out


def first_fetch_us(facts: PartitionFacts, tenure: Tenure) -> int | None:
    """When the tenure's first follower fetch was taken up; None if there is none."""
    fetches = facts.follower_fetches.get((tenure.leader, tenure.epoch), ())
    return int(RequestColumns(fetches).at.taken.min()) if fetches else None


def begun_us(facts: PartitionFacts, tenure: Tenure) -> int:
    """When a tenure without a decision begins: its first fetch, else its first role line; 0 if there is neither."""
    first = first_fetch_us(facts, tenure)
    return facts.turns.first_moment.get(tenure.epoch, 0) if first is None else first


def decision_draft(decision: Decision) -> Draft:
    """The controller's decision as an event; with ZooKeeper and KRaft alike, its time is on the controller's clock."""
    return Draft(
        "partition_change",
        decision.row,
        line_window(decision.us),
        {
            "leader_id": decision.leader,
            "leader_epoch": decision.leader_epoch,
            "partition_epoch": decision.partition_epoch,
            "isr": list(decision.isr),
            "replicas": list(decision.replicas),
            "adding_replicas": list(decision.adding),
            "removing_replicas": list(decision.removing),
            "elr": None if decision.elr is None else list(decision.elr),
            "recovering": decision.recovering,
            "change": decision.change,
            "election": decision.election,
            "trigger": decision.trigger,
            "metadata_offset": decision.row["metadata_offset"],
            "evidence": decision.evidence,
            **({} if decision.asked_for is None else {"asked_for": decision.asked_for}),
            **ballot_fields(decision),
        },
    )


def ballot_fields(decision: Decision) -> dict[str, Any]:
    """The ballot of a decision as columns of its event; empty if it is unknown who was alive."""
    if decision.vote is None:
        return {}
    ballot, choice = decision.vote.ballot, decision.vote.choice
    return {
        "candidates": list(choice.candidates),
        "live": None if ballot.unknown else sorted(ballot.live),
        "in_sync": list(ballot.in_sync),
        "rule": choice.rule,
        "predicted_leader_id": choice.leader,
        "predicted_isr": None if choice.isr is None else sorted(choice.isr),
    }


def control_chain(facts: PartitionFacts, tenure: Tenure, joins: Joins) -> list[Operation]:
    """Later decisions of the tenure, fencing and shutdowns during it, and settings, in metadata order.

    The ISR changes that the leader requested are inserted by time.
    """
    taken_over = facts.turns.isr_lines(tenure.leader)
    items: list[tuple[int, int, Operation]] = []
    first, last = metadata_span(facts, tenure)
    changes = changes_between(facts, first, last)
    fencings = fencings_of(tenure.decisions[1:], changes)
    granted = [one for places in joins.values() for asked in places.values() for one in asked if one.granted]
    for decision, brought in zip(tenure.decisions[1:], fencings, strict=True):
        told = taken_over.get(decision.partition_epoch) if decision.partition_epoch is not None else None
        if told is not None:
            window = line_window(micros(told["ts"]))
        else:
            window = known_when_asked(granted, decision.row, learnt_awake(facts, tenure, decision.us))
        drafts = [decision_draft(decision), *map(broker_draft, brought)]
        if tenure.leader >= 0:
            fields = {
                "broker_id": tenure.leader,
                "leader_epoch": tenure.epoch,
                "partition_epoch": decision.partition_epoch,
                "isr": list(decision.isr),
                "cause": "committed",
                "state": None if told is None else told["name"],
                "evidence": "observed" if told is not None else "bounded",
            }
            drafts.append(Draft("isr_request", told, window, fields))
        items.append((decision.place, 1, Operation(OP_CONTROL, window, drafts)))
    came_with = {id(row) for brought in fencings for row in brought}
    for row in changes:
        if id(row) in came_with:
            continue
        window = learnt_before(row, joins, learnt_awake(facts, tenure, micros(row["ts"])))
        items.append((row["metadata_offset"], 0, Operation(OP_CONTROL, window, [broker_draft(row)])))
    offsets, changed = facts.turns.min_isr_offsets
    for row, value in among(offsets, changed, first + 1, last):
        settled = Operation(OP_CONTROL, decision_window(micros(row["ts"])), [min_isr_draft(row, value)])
        items.append((row["metadata_offset"], 0, settled))
    for draft in segment_bytes_between(facts, first, last):
        settled = Operation(OP_CONTROL, decision_window(draft.window.est), [draft])
        items.append((draft.fields["metadata_offset"], 0, settled))
    lines = []
    for draft in quotas_between(facts, (first, last), time_span(facts, tenure)):
        place, at = draft.fields["metadata_offset"], draft.window.est
        if place is None:
            lines.append(Operation(OP_CONTROL, line_window(at), [draft]))
        else:
            items.append((place, 0, Operation(OP_CONTROL, decision_window(at), [draft])))
    times, changed = facts.turns.min_isr_times
    for row, value in among(times, changed, *time_span(facts, tenure)):  # after the decisions before it
        at = micros(row["ts"])
        place = sum(decision.us <= at for decision in tenure.decisions[1:]) - 1
        items.append((place, 2, Operation(OP_CONTROL, decision_window(at), [min_isr_draft(row, value)])))
    decided = [op for _, _, op in sorted(items, key=lambda item: item[:2])]
    lines += request_operations(facts, tenure, joins) if tenure.leader >= 0 else []
    return interleaved(decided, sorted(lines, key=place_of))


def changes_between(facts: PartitionFacts, first: int, last: int) -> Sequence[Row]:
    """Registrations and fencing between two metadata offsets, by offset; without those in a snapshot at the first."""
    changes = facts.broker_changes()
    begin, end = (bisect_left(changes, offset, key=lambda row: row["metadata_offset"]) for offset in (first, last))
    return [row for row in changes[begin:end] if first + bool(row["in_snapshot"]) <= row["metadata_offset"]]


def fencings_of(decisions: Sequence[Decision], changes: Sequence[Row]) -> list[list[Row]]:
    """For each decision, the fencings that caused it: those after it in the same batch of the metadata log.

    A broker applies the whole batch to its metadata cache before its partitions (BrokerMetadataPublisher). When the
    leader learns of the smaller ISR, it already knows that the removed replica is fenced, and its HW no longer waits
    for it (handleBrokerFenced).
    """
    offsets = [row["metadata_offset"] for row in changes]
    out: list[list[Row]] = []
    end = NEVER
    for decision in reversed(decisions):
        offset = decision.row["metadata_offset"]
        behind = [] if offset is None else among(offsets, changes, offset + 1, end)
        out.append([row for row in behind if row["fenced"] and row["ts"] == decision.row["ts"]])
        end = min(end, decision.place)
    return out[::-1]


def metadata_span(facts: PartitionFacts, tenure: Tenure) -> tuple[int, int]:
    """Metadata offsets from the tenure's first decision to the next tenure's; empty if there is no metadata."""
    if not tenure.decisions or facts.decisions[-1].place < 0:
        return 0, 0
    return tenure.decisions[0].place, least_after(facts.turns.places, tenure.epoch)


def time_span(facts: PartitionFacts, tenure: Tenure) -> tuple[int, int]:
    """From when until when (microseconds) the tenure was the controller's last decision; the first begins at 0."""
    since = tenure.decisions[0].us if tenure.decisions and tenure is not facts.tenures[0] else 0
    return since, least_after(facts.turns.begun, tenure.epoch)


def witness_chain(facts: PartitionFacts, tenure: Tenure, computed: dict[str, int]) -> list[Operation]:
    """The leader's own lines about its HW (DEBUG): each states the HW from then on.

    The HW never falls within a tenure, so where two threads wrote their lines in the other order the values tell.
    `computed`: the engine's HW at each line, in the order of the leader's lines alone (`line_order`).
    """
    rows = sorted(facts.hw_lines.get(tenure.epoch, ()), key=lambda r: (r["hw"], r["ts"]))
    return [
        Operation(
            OP_WITNESS,
            window := line_window(micros(row["ts"])),
            [
                Draft(
                    "observation",
                    row,
                    window,
                    {
                        "broker_id": tenure.leader,
                        "leader_epoch": tenure.epoch,
                        "hw": row["hw"],
                        "hw_by_lines": computed.get(row["fact_id"]),
                        "cause": "high_watermark_updated",
                        "evidence": "observed",
                    },
                )
            ],
            hw=row["hw"],
        )
        for row in rows
    ]


def storage_chain(facts: PartitionFacts, tenure: Tenure) -> list[Operation]:
    """Brokers' lines about a failed log directory. They move no offset, but explain a loss."""
    return [
        Operation(
            OP_CONTROL,
            window := line_window(micros(row["ts"])),
            [
                Draft(
                    "observation",
                    row,
                    window,
                    {
                        "broker_id": row["broker_id"],
                        "leader_epoch": tenure.epoch,
                        "cause": STORAGE_FAILED,
                        "evidence": "observed",
                    },
                )
            ],
        )
        for row in facts.storage_failures.get(tenure.epoch, ())
    ]


def log_start_chains(facts: PartitionFacts, tenure: Tenure) -> list[list[Operation]]:
    """Brokers' lines about new log starts, each broker's in order."""
    out = []
    for broker, rows in facts.turns.log_starts.get(tenure.epoch, ()):
        chain = []
        for row in rows:
            fields = {
                "broker_id": broker,
                "leader_epoch": tenure.epoch,
                "log_start_offset": row["log_start_offset"],
                "cause": (row["name"] or "").replace(" ", "_") or None,
                "evidence": "observed",
            }
            window = line_window(micros(row["ts"]))
            chain.append(Operation(OP_CONTROL, window, [Draft("log_start_change", row, window, fields)]))
        out.append(chain)
    return out


def cut_line(tenure: Tenure, broker: int, row: Row) -> Operation:
    """A truncation that the follower's own line states."""
    window = line_window(micros(row["ts"]))
    fields = {
        "broker_id": broker,
        "replica_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "truncate_to": row["offset"],
        "cause": row["cause"],
        "evidence": "observed",
    }
    return Operation(OP_CONTROL, window, [Draft("truncation", row, window, fields)])
