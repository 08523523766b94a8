"""Followers' fetches of one tenure: each follower's own order, as operations for the merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replay.chains import role_operations
from replay.drafts import Draft, Operation
from replay.encoding import OFFSET_OUT_OF_RANGE
from replay.isr_requests import Joins, with_expansions
from replay.merge import OP_CONTROL, OP_FETCH, OP_READ, OP_UPDATE
from replay.partition_facts import Fetch, PartitionFacts, was_accepted
from replay.profile import profile_named
from replay.spine import Tenure, micros
from replay.windows import (
    STAMP_EARLY_US,
    STAMP_LATE_US,
    Phases,
    Window,
    completion_window,
    line_window,
    local_window,
    phases,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.isr_requests import Change
    from replay.rows import Row

TIMING = ("queue_us", "local_us", "remote_us", "throttle_us", "response_queue_us", "send_us")

ASKED = (
    "max_wait_ms",
    "min_bytes",
    "isolation_level",
    "client_id",
    "request_bytes",
    "request_forced",
    "preferred_read_replica",
    "last_stable_offset",
    "log_start_offset",
    "error_code",
    *TIMING,
)  # what a fetch asked for, what its whole answer says, and where its time went
TAKEN = ("last_fetched_epoch", "follower_log_start_offset", "error_code")  # what the leader notes of a follower

APPLIED = ("log_start_offset",)  # what a follower takes over from the answer


def follower_chains(facts: PartitionFacts, tenure: Tenure, joins: Joins) -> Iterator[Iterator[Operation]]:
    """Each follower's fetches from this leader, in its order, and what its own lines tell between them."""
    followers = facts.followers(tenure)
    silent = {broker for broker, epoch in facts.cuts if epoch == tenure.epoch} - followers
    for replica in sorted(followers | silent):
        yield follower_chain(facts, tenure, replica, joins.get(replica, {}))


def follower_chain(
    facts: PartitionFacts, tenure: Tenure, replica: int, joins: dict[int, list[Change]]
) -> Iterator[Operation]:
    """One follower's chain. `joins`: by place of its fetch, what the leader asked for then."""
    fetches = facts.fetches_of(replica, tenure)
    waiting = role_operations(facts, tenure, replica)
    places = places_among([fetch.row for fetch in fetches], waiting)
    told = {row["offset"] for row in facts.cuts.get((replica, tenure.epoch), ())}
    for place, fetch in enumerate(fetches):
        while places and places[0] <= place:
            yield waiting.pop(0)
            places.pop(0)
        if not place and not told:
            yield from untold_cut(facts, tenure, fetch)
        yield from with_expansions(tenure, fetch_operations(tenure, fetch, told), joins.get(place, ()))
    yield from waiting


def untold_cut(facts: PartitionFacts, tenure: Tenure, fetch: Fetch) -> list[Operation]:
    """Up to 2.7 a follower has cut its log before it first fetches from a new leader: to where that fetch begins.

    Only where its own log is not at hand, whose lines would tell. A log that was no longer is not cut by it.
    """
    row, before = fetch.row, fetch.before
    profile = profile_named(facts.kafka_version, facts.inter_broker_protocol)
    if profile.truncate_on_fetch or facts.has_own_log(row["replica_id"]) or row["error_code"]:
        return []
    if before is not None and before["fetch_offset"] > row["fetch_offset"]:
        return []  # told by the two fetches
    cut = {
        "broker_id": row["replica_id"],
        "replica_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "truncate_to": row["fetch_offset"],
        "cause": "high_watermark" if profile.truncate_to_hw else "leader_epoch",
        "evidence": "bounded",
    }
    at = local_window(phases(row))
    window = Window(at.lo, at.lo, at.hi)
    return [Operation(OP_CONTROL, window, [Draft("truncation", row, window, cut)])]


def places_among(fetches: list[Row], waiting: list[Operation]) -> list[int]:
    """Before which of its fetches a follower's own lines stand, rising.

    Its clock is not the leader's: so a restart stands where it fetches on a new connection, from the end that it stated
    if that line is there, and a cut before the first fetch under a new leader, whatever the times. By time where
    nothing else tells.
    """
    taken = [phases(row).taken for row in fetches]
    begins = [k for k, row in enumerate(fetches) if not k or row["connection"] != fetches[k - 1]["connection"]]
    places: list[int] = []
    for operation in waiting:
        first, at = operation.drafts[0], operation.window.est
        place = next((k for k, us in enumerate(taken) if us >= at), len(fetches))
        if first.kind == "log_load":
            fitting = [k for k in begins if fetches[k]["fetch_offset"] == first.fields["leo"]]
            fitting = fitting or (begins if place < len(fetches) else [])
            place = min(fitting, key=lambda k: abs(taken[k] - at), default=place)
        elif not any(places):
            place = 0
        places.append(max(place, *places[-1:], 0))
        if begins:  # on the leader's clock
            k = places[-1]
            low, high = taken[k - 1] if k else at, taken[k] if k < len(taken) else at
            if not low <= at <= high:
                operation.window = line_window(min(max(at, low), high))
    return places


def fetch_operations(tenure: Tenure, fetch: Fetch, told: set[int]) -> list[Operation]:
    """One follower fetch: parked, answered, refused or unlisted. `told`: offsets to which its own lines say it cut."""
    row, before, after = fetch.row, fetch.before, fetch.after
    at = phases(row)
    local = local_window(at)
    common = {
        "broker_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "replica_id": row["replica_id"],
        "fetch_offset": row["fetch_offset"],
        "evidence": "observed",
    }
    cut = [] if row["fetch_offset"] in told else cut_before(common, row, before, local, follows=fetch.follows)
    ahead = [Operation(OP_CONTROL, Window(local.lo, local.lo, local.hi), cut)] if cut else []
    if row["run_count"] is not None:
        return [*ahead, unlisted(common, row, at)]
    if row["error_code"] and row["remote_us"]:  # read well and parked, then the role was lost, or the epoch fenced
        parked = Draft("fetch_update", row, local, {**common, "error_code": 0}, TAKEN)
        ahead.append(Operation(OP_UPDATE, local, [parked], offset=row["fetch_offset"], exact=True))
        local = completion_window(at)
    if row["error_code"] or row["diverging_epoch"] is not None:
        return [*ahead, refused(common, fetch, local)]
    return [*ahead, *answered(common, row, after, adjoins=fetch.same_tenure and fetch.goes_on)]


def run_window(row: Row, at: Phases) -> Window:
    """From the first of a run of fetches to the last."""
    return Window(at.taken - STAMP_LATE_US, at.taken, max(micros(row["run_until"]), at.taken) + STAMP_EARLY_US)


def run_fields(row: Row) -> dict[str, Any]:
    """How many fetches a run is of, and until when; its HW is the one last sent."""
    return {
        "implied": True,
        "run_count": row["run_count"],
        "run_until": micros(row["run_until"]),
        "run_gap_us": row["run_gap_us"],
        "run_timeouts": row["run_timeouts"],
        "evidence": "derived",
    }


def unlisted(common: dict[str, Any], row: Row, at: Phases) -> Operation:
    """A run of fetches that list the partition on neither side: the follower was there, at its cached offset."""
    window = run_window(row, at)
    draft = Draft("fetch_update", row, window, {**common, **run_fields(row)}, (*TAKEN, *ASKED))
    return Operation(OP_UPDATE, window, [draft], offset=row["fetch_offset"])


def left_out_chain(facts: PartitionFacts, tenure: Tenure) -> list[Operation]:
    """Requests in which a follower left the partition out though it went on fetching it: its replication quota.

    Known only where the topic lists throttled replicas. A follower that has nothing else to ask for sends no request at
    all. An error, a divergence or a new leader also take a partition out of a session; then the follower does not go on
    where it was.
    """
    chain: list[Operation] = []
    if "follower" not in facts.throttled:
        return chain
    for row in sorted(
        facts.left_out.get((tenure.leader, tenure.epoch), ()), key=lambda r: (phases(r).taken, r["fact_id"])
    ):
        at = phases(row)
        later = (f for f in facts.fetches_of(row["replica_id"], tenure) if phases(f.row).taken > at.taken)
        back = next(later, None)
        if back is None or back.row["fetch_offset"] < row["fetch_offset"] or not was_accepted(back.row):
            continue
        window = run_window(row, at)
        fields = {
            "broker_id": tenure.leader,
            "leader_epoch": tenure.epoch,
            "replica_id": row["replica_id"],
            "fetch_offset": back.row["fetch_offset"],
            **run_fields(row),
            "implied": False,
            "evidence": "bounded",
        }
        chain.append(Operation(OP_CONTROL, window, [Draft("fetch_left_out", row, window, fields, ASKED)]))
    return chain


def answered(common: dict[str, Any], row: Row, after: int | None, *, adjoins: bool) -> list[Operation]:
    """A fetch answered without error: at once (read, then update), or parked first and read again on completion.

    `after`: the LEO that is known next; `adjoins`: by the very next fetch.
    """
    at = phases(row)
    offset, handed, delayed = row["fetch_offset"], row["bytes"] or 0, bool(row["remote_us"])
    local, completion = local_window(at), completion_window(at)
    window = completion if delayed else local
    moved = bool(handed) and after is not None and after > offset
    seen = (after if moved and adjoins else -1) if handed else offset
    limited = handed * 2 >= (row["partition_max_bytes"] or 2**31)
    exact = seen is not None and seen >= 0 and not limited
    shape = {"bytes": handed, "response_hw": row["hw"], "implied": bool(row["hw_implied"]), "delayed": delayed}
    drafts = [Draft("fetch_read", row, window, {**common, **shape}, ASKED)]
    if row["in_response"] and not (handed and after == offset):
        applied = {
            **common,
            "next_offset": after if moved else None,
            "next_offset_evidence": None if not moved else "derived" if adjoins else "bounded",
            "bytes": handed,
            "response_hw": row["hw"],
            "evidence": "derived" if after is not None else "bounded",
        }
        drafts.append(Draft("fetch_apply", row, Window(at.completed, at.stamp, at.stamp + 1000), applied, APPLIED))
    taken = Draft("fetch_update", row, local, common, TAKEN)
    saw = {"offset": offset, "seen": -1 if seen is None else seen, "hw": -1 if row["hw"] is None else row["hw"]}
    if delayed:
        parked = Operation(OP_UPDATE, local, [taken], offset=offset, exact=True)
        return [parked, Operation(OP_READ, completion, drafts, exact=exact, **saw)]
    return [Operation(OP_FETCH, local, [drafts[0], taken, *drafts[1:]], exact=exact, **saw)]


def refused(common: dict[str, Any], fetch: Fetch, window: Window) -> Operation:
    """A fetch answered with an error or a diverging epoch: no state of the leader moves; the follower may cut."""
    row, after = fetch.row, fetch.after
    epoch, end = row["diverging_epoch"], row["diverging_end_offset"]
    diverging = {"diverging_epoch": epoch, "diverging_end_offset": end}
    update = {**common, "delayed": bool(row["remote_us"]), **diverging}
    drafts = [Draft("fetch_update", row, window, update, (*TAKEN, *ASKED))]
    if epoch is not None:
        cut = {
            **common,
            "broker_id": common["replica_id"],
            "replica_id": common["broker_id"],
            "diverging_epoch": epoch,
            "diverging_end_offset": end,
            "truncate_to": after if after is not None and after <= row["fetch_offset"] else None,
            "cause": "diverging_fetch",
            "evidence": "derived" if after is None else "observed" if fetch.goes_on else "bounded",
        }
        drafts.append(Draft("truncation", row, window, cut))
    return Operation(OP_READ, window, drafts)


def cut_before(common: dict[str, Any], row: Row, before: Row | None, window: Window, *, follows: bool) -> list[Draft]:
    """A follower that fetches below where it fetched before has cut its log without a diverging answer.

    Within one epoch, or down to nothing, it may rather have come back with less, or with a log made anew.
    """
    if before is None or before["fetch_offset"] <= row["fetch_offset"] or before["diverging_epoch"] is not None:
        return []
    place = ("broker_id", "current_leader_epoch")
    came_back = before["connection"] != row["connection"] and (
        not row["fetch_offset"] or all(before[name] == row[name] for name in place)
    )
    cause = "out_of_range" if before["error_code"] == OFFSET_OUT_OF_RANGE else "leader_epoch"
    cut = {
        **common,
        "broker_id": common["replica_id"],
        "replica_id": common["broker_id"],
        "truncate_to": row["fetch_offset"],
        "cause": cause,
        "evidence": "derived" if follows and not came_back else "bounded",
    }
    return [Draft("truncation", row, window, cut)]
