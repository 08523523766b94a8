"""Followers' fetches of one tenure, each follower's in its own order, as operations for the merge.

Successful fetches and runs of unlisted ones are by far the most frequent, so they are made as columns (`Block`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.records import together
from replay.engine.codes import OFFSET_MOVED_TO_TIERED_STORAGE
from replay.engine.stamps import STAMP_EARLY_US
from replay.evidence.epochs import was_accepted
from replay.evidence.leader_lines import as_recorded
from replay.evidence.request_times import (
    TIMING,
    Window,
    completion_window,
    line_window,
    local_window,
    phases,
    phases_at,
    run_window,
)
from replay.evidence.rows import places_of
from replay.evidence.served_epochs import is_told
from replay.order.carried_reads import carried_from, carried_to
from replay.order.control_chain import role_operations
from replay.order.fetcher_lines import batch_starts, fetcher_operations, places_by_time
from replay.order.front import OP_CONTROL, OP_FETCH, OP_READ, OP_UPDATE
from replay.order.isr_joins import with_expansions
from replay.order.operation_blocks import EVENT_SCHEMA, Block, Drafts, chosen, drafts_at, operations_of
from replay.order.operations import Draft, Operation
from replay.protocol.deletion import OFFSET_OUT_OF_RANGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.arrays.ints import Flags, Ints
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import FactColumns, Row
    from replay.evidence.tenures import Tenure
    from replay.evidence.views import Fetch
    from replay.order.isr_requests import IsrChange, Joins
    from replay.order.operations import Copied

ASKED = (  # what a fetch asked for, what its whole answer says, and where its time went
    "max_wait_ms", "min_bytes", "max_bytes", "partition_max_bytes", "isolation_level", "client_id", "request_bytes",
    "bytes_before", "request_forced", "preferred_read_replica", "last_stable_offset", "log_start_offset", "error_code",
    "bytes_listed_before", *TIMING,
)  # fmt: skip
TAKEN = ("last_fetched_epoch", "follower_log_start_offset", "replica_epoch", "error_code")  # noted of a follower
APPLIED = ("log_start_offset",)  # what a follower takes over from the answer
RUN = ("run_count", "run_until", "run_gap_us", "run_timeouts")  # how many fetches are in a run, and until when


class Fetches(NamedTuple):
    """Some of one fetcher's fetches in a tenure, as columns."""

    place: Ints  # in its chain
    columns: FactColumns
    rows: Ints  # places in these columns
    after: Ints  # the next known LEO
    known: Flags  # whether one is known
    adjoins: Flags  # whether the very next fetch states it

    def only(self, which: Flags | Ints) -> Fetches:
        """Some of the fetches."""
        return Fetches(
            self.place[which],
            self.columns,
            self.rows[which],
            self.after[which],
            self.known[which],
            self.adjoins[which],
        )

    def numbers(self, name: str, missing: int = 0) -> Ints:
        """A column of whole numbers, null as `missing`."""
        return self.columns.numbers(name, self.rows, missing)

    def repeated(self, name: str, column: str) -> pa.Array:
        """A column of the facts, in the type of an event's column."""
        return self.columns.take(name, self.rows, EVENT_SCHEMA.field(column).type)

    def drafts(self, kind: str, window: Window, fields: dict[str, Any], copied: Copied, numbers: Ints) -> Drafts:
        """One event per fetch."""
        return drafts_at(self.columns, self.rows, window, kind, fields, copied).numbered(numbers)

    def as_runs(self) -> tuple[Window, dict[str, Any]]:
        """The windows of runs of unlisted fetches, and the fields of their events; the HW is the one last sent."""
        window = run_window(phases_at(self.columns, self.rows), self.numbers("run_until"))
        return window, {**{name: self.repeated(name, name) for name in RUN}, "implied": True, "evidence": "derived"}

    def common(self, tenure: Tenure, replica: int) -> dict[str, Any]:
        """Fields that their events have in common."""
        return common_fields(tenure, replica, self.repeated("fetch_offset", "fetch_offset"))


def columns_of(fetches: list[Fetch]) -> Fetches:
    """Fetches of one replica, at least one, as columns."""
    return Fetches(
        np.arange(len(fetches)),
        fetches[0].row.columns,
        places_of([fetch.row for fetch in fetches]),
        np.array([-1 if fetch.after is None else fetch.after for fetch in fetches], np.int64),
        np.array([fetch.after is not None for fetch in fetches], np.bool_),
        np.array([fetch.same_tenure and fetch.goes_on for fetch in fetches], np.bool_),
    )


def follower_chains(facts: PartitionFacts, tenure: Tenure, joins: Joins) -> Iterator[Iterator[Operation | Block]]:
    """Each follower's fetches from this leader in order, with what its own lines report in between."""
    followers = facts.followers(tenure)
    silent = facts.turns.cutting.get(tenure.epoch, set()) | facts.turns.saying.get(tenure.epoch, set())
    for replica in sorted(followers | silent):
        yield follower_chain(facts, tenure, replica, joins.get(replica, {}))


def follower_chain(
    facts: PartitionFacts, tenure: Tenure, replica: int, joins: dict[int, list[IsrChange]]
) -> Iterator[Operation | Block]:
    """One follower's chain. `joins`: place of a fetch -> the ISR changes that the leader requested then."""
    fetches = facts.fetches_of(replica, tenure)
    carried = carried_from(facts, tenure, replica)
    if carried is not None:
        yield from at_place(later_half(tenure, replica, carried), -1)
    waiting = role_operations(facts, tenure, replica)
    for place, operation in zip(places_among([fetch.row for fetch in fetches], waiting), waiting, strict=True):
        yield from at_place([operation], place)
    said = fetcher_operations(facts, tenure, replica)
    for place, operation in zip(places_by_time([fetch.row for fetch in fetches], said), said, strict=True):
        yield from at_place([operation], place)
    if not fetches:
        return
    told = {row["offset"] for row in facts.cuts.get((replica, tenure.epoch), ())}
    yield from [] if told else untold_cut(facts, tenure, fetches[0])
    every = columns_of(fetches)
    before = [fetch.row if fetch.before is None else fetch.before for fetch in fetches]
    earlier, offset = places_of(before), every.numbers("fetch_offset")
    fell = every.columns.numbers("fetch_offset", earlier) > offset
    for place in np.flatnonzero(fell).tolist():
        if fetches[place].row["fetch_offset"] not in told:
            yield from at_place(cut_before(tenure, fetches[place]), place)
    moved = every.columns.numbers("error_code", earlier) == OFFSET_MOVED_TO_TIERED_STORAGE
    for place in np.flatnonzero(moved & (every.columns.numbers("fetch_offset", earlier) < offset)).tolist():
        yield from at_place(restart_in_tier(facts, tenure, fetches[place]), place)
    runs = every.numbers("run_count") > 0
    refused = ~runs & ((every.numbers("error_code") != 0) | every.columns.known("diverging_epoch", every.rows))
    joining = np.isin(every.place, list(joins))
    is_carried = (every.place == len(fetches) - 1) & (carried_to(facts, tenure, replica) is not None)
    alone = joining | is_carried
    for place in np.flatnonzero(refused).tolist():
        operations = refused_operations(tenure, fetches[place])
        yield from at_place(with_expansions(tenure, operations, joins.get(place, ())), place)
    told_at = handled_at(facts, tenure, replica, every, refused)
    answers = partial(answered, handled=told_at, begins=batch_starts(facts, tenure, replica))
    for form, which in ((unlisted, runs), (answers, ~runs & ~refused)):
        for place in np.flatnonzero(which & alone).tolist():
            operations = form(tenure, replica, every.only(np.array([place]))).operations()
            operations = operations[:1] if is_carried[place] else operations
            yield from at_place(with_expansions(tenure, operations, joins.get(place, ())), place)
        if np.any(which & ~alone):
            yield form(tenure, replica, every.only(which & ~alone))


def later_half(tenure: Tenure, replica: int, fetch: Fetch) -> list[Operation]:
    """The read of a parked fetch that came in the tenure before."""
    one = columns_of([fetch])
    block = answered(tenure, replica, one, local_window(phases_at(one.columns, one.rows)), {})
    return block.operations()[1:]


def at_place(operations: Iterable[Operation], place: int) -> Iterator[Operation]:
    """The operations, with their place in the chain set."""
    for operation in operations:
        operation.place = place
        yield operation


def untold_cut(facts: PartitionFacts, tenure: Tenure, fetch: Fetch) -> list[Operation]:
    """The truncation by which a follower up to 2.7 cut its log before its first fetch from a new leader.

    It truncates to that fetch's offset. Only made up if the follower's own log is not available, whose lines would
    report it. A log that was no longer than that is not changed by it.
    """
    row, before = fetch.row, fetch.before
    profile = facts.profile_in(tenure.epoch, row["replica_id"])
    if profile.truncate_on_fetch or facts.has_own_log(row["replica_id"]) or row["error_code"]:
        return []
    if before is not None and before["fetch_offset"] > row["fetch_offset"]:
        return []  # the two fetches show it
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
    """Before which of its fetches each of a follower's own lines stands, rising.

    Its clock is not the leader's, so evidence goes before time: a restart stands where the follower fetches on a new
    connection, from the end that it stated if there is such a line; a late role stands where a fetch first names its
    epoch; a truncation stands before the first fetch under a new leader. Without such evidence, time decides.
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
        elif first.kind == "role_change":
            answered_later = (k for k, row in enumerate(fetches) if is_told(row) or phases(row).stamp > at)
            place = next(answered_later, len(fetches))
        elif not any(places):
            place = 0
        places.append(max(place, *places[-1:], 0))
        if begins:  # on the leader's clock
            k = places[-1]
            low, high = taken[k - 1] if k else at, taken[k] if k < len(taken) else at
            if not low <= at <= high:
                operation.window = line_window(min(max(at, low), high))
    return places


def common_fields(tenure: Tenure, replica: int, offset: Any) -> dict[str, Any]:  # noqa: ANN401 - one or a column
    """Fields of every event of a fetch."""
    return {
        "broker_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "replica_id": replica,
        "fetch_offset": offset,
        "evidence": "observed",
    }


def refused_operations(tenure: Tenure, fetch: Fetch) -> list[Operation]:
    """A fetch that was refused; if it waited before, it had been accepted."""
    row = fetch.row
    common = common_fields(tenure, row["replica_id"], row["fetch_offset"])
    at = phases(row)
    local = local_window(at)
    if not (row["error_code"] and row["remote_us"]):
        return [refused(common, fetch, local)]
    # read and parked, then the role was lost, or the epoch fenced
    parked = Draft("fetch_update", row, local, {**common, "error_code": 0}, TAKEN)
    taken = Operation(OP_UPDATE, local, [parked], offset=row["fetch_offset"], exact=True)
    return [taken, refused(common, fetch, completion_window(at))]


def unlisted(tenure: Tenure, replica: int, runs: Fetches) -> Block:
    """Runs of fetches that list the partition on neither side: the follower was there, at its cached offset."""
    count = len(runs.place)
    window, told = runs.as_runs()
    fields = runs.common(tenure, replica) | told
    return Block(
        runs.place,
        operations_of(window, type=OP_UPDATE, first=np.arange(count), count=1, offset=runs.numbers("fetch_offset")),
        [runs.drafts("fetch_update", window, fields, (*TAKEN, *ASKED), np.arange(count))],
    )


def left_out_chain(facts: PartitionFacts, tenure: Tenure) -> list[Operation]:
    """Requests in which a follower left the partition out but went on fetching it: its replication quota.

    Known only if the topic lists throttled replicas. A follower that has nothing else to fetch sends no request at all.
    An error, a divergence or a new leader also removes a partition from a session, but then the follower does not
    continue where it was.
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
        window = run_window(at, row["run_until"])
        fields = {
            "broker_id": tenure.leader,
            "leader_epoch": tenure.epoch,
            "replica_id": row["replica_id"],
            "fetch_offset": back.row["fetch_offset"],
            **{name: row[name] for name in RUN},
            "implied": False,
            "evidence": "bounded",
        }
        chain.append(Operation(OP_CONTROL, window, [Draft("fetch_left_out", row, window, fields, ASKED)]))
    return chain


def handled_at(facts: PartitionFacts, tenure: Tenure, replica: int, every: Fetches, refused: Flags) -> Window:
    """When each of a follower's fetches of a tenure was handled, with the leader's own lines about them.

    A fetch that was refused leaves no line, except for one that was parked first.
    """
    local = local_window(phases_at(every.columns, every.rows))
    lines = facts.recorded(tenure.leader).get(replica)
    if lines is None:
        return local
    since, until = facts.led(tenure)
    if since < until:
        offsets, times = lines
        mine = (times >= since - STAMP_EARLY_US) & (times <= until)
        lines = offsets[mine], times[mine]
    handled = np.maximum(every.numbers("run_count"), 1)
    handled[refused & (every.numbers("remote_us") == 0)] = 0
    return as_recorded(local, every.numbers("fetch_offset"), handled, lines)


def answered(tenure: Tenure, replica: int, fetches: Fetches, handled: Window, begins: dict[int, int]) -> Block:
    """Fetches answered without error: at once (read, then update), or parked first and read again on completion.

    `handled`: when each fetch of the tenure was handled, by its place. `begins`: see `batch_starts`.
    """
    at = phases_at(fetches.columns, fetches.rows)
    local = Window(*(one[fetches.place] for one in handled))
    offset, handed, after = fetches.numbers("fetch_offset"), fetches.numbers("bytes"), fetches.after
    delayed = fetches.numbers("remote_us") != 0
    window = Window(*(np.where(delayed, a, b) for a, b in zip(completion_window(at), local, strict=True)))
    soonest = (
        local.est + at.completed - at.taken - STAMP_EARLY_US
    )  # the leader's line about it may show how late it was
    window = window._replace(lo=np.minimum(window.lo, soonest))
    moved = (handed != 0) & fetches.known & (after > offset)
    applies = (fetches.numbers("in_response") != 0) & ~((handed != 0) & fetches.known & (after == offset))
    # drafts: the update, the read (it comes first if the fetch was not parked), what the follower does with the answer
    first = np.cumsum(2 + applies) - (2 + applies)
    common = fetches.common(tenure, replica)
    shape = {"bytes": handed, "response_hw": fetches.repeated("hw", "response_hw")}
    end = {
        "next_offset": pa.array(after, mask=~moved),
        "next_offset_evidence": chosen(fetches.adjoins, "derived", "bounded", ~moved),
    }
    read = {**common, **shape, **end, "implied": fetches.numbers("hw_implied") != 0, "delayed": delayed}
    applied = {**common, **shape, **end, "evidence": chosen(fetches.known, "derived", "bounded")}
    if begins:
        base = np.array([begins.get(one, -1) for one in offset.tolist()], np.int64)
        applied["base_offset"] = pa.array(base, mask=(base < 0) | (handed == 0))
    received = Window(at.completed, at.stamp, at.stamp + 1000)
    drafts = [
        fetches.drafts("fetch_update", local, common, TAKEN, first),
        fetches.drafts("fetch_read", window, read, ASKED, first + 1),
        fetches.drafts("fetch_apply", received, applied, APPLIED, first + 2).only(applies),
    ]
    is_told = (handed == 0) | (moved & fetches.adjoins)  # else there was a record at the offset at least
    seen = np.where(is_told, np.where(handed != 0, after, offset), offset + 1)
    most = fetches.numbers("partition_max_bytes")
    limited, hw = handed * 2 >= np.where(most == 0, 2**31, most), fetches.numbers("hw", -1)
    parked = operations_of(local, type=OP_UPDATE, first=first, count=1, offset=offset, exact=1)
    answers = operations_of(
        window,
        type=np.where(delayed, OP_READ, OP_FETCH),
        first=first + delayed,
        count=1 + ~delayed + applies,
        offset=offset,
        seen=seen,
        hw=hw,
        exact=is_told & ~limited & (hw <= seen),  # the log ends beyond the HW: what was sent ended with a segment
        updates=~delayed,
        handled=at.local,
    )
    return Block(np.concatenate([fetches.place[delayed], fetches.place]), together([parked[delayed], answers]), drafts)


def refused(common: dict[str, Any], fetch: Fetch, window: Window) -> Operation:
    """A fetch answered with an error or a diverging epoch: the leader is unchanged; the follower may truncate."""
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


def cut_before(tenure: Tenure, fetch: Fetch) -> list[Operation]:
    """A follower that fetches from below its previous fetch has truncated its log without a diverging answer.

    Within one epoch, or down to offset 0, it may instead have come back with less, or with a log created anew.
    """
    row, before = fetch.row, fetch.before
    if before is None or before["diverging_epoch"] is not None:
        return []
    place = ("broker_id", "current_leader_epoch")
    came_back = before["connection"] != row["connection"] and (
        not row["fetch_offset"] or all(before[name] == row[name] for name in place)
    )
    cut = {
        "broker_id": row["replica_id"],
        "replica_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "fetch_offset": row["fetch_offset"],
        "truncate_to": row["fetch_offset"],
        "cause": "out_of_range" if before["error_code"] == OFFSET_OUT_OF_RANGE else "leader_epoch",
        "evidence": "derived" if fetch.follows and not came_back else "bounded",
    }
    at = local_window(phases(row))
    return [Operation(OP_CONTROL, Window(at.lo, at.lo, at.hi), [Draft("truncation", row, at, cut)])]


def restart_in_tier(facts: PartitionFacts, tenure: Tenure, fetch: Fetch) -> list[Operation]:
    """A follower that was told that its leader has the records in the remote tier alone, and now fetches behind them.

    It has taken its epochs from the tier and begun its log anew there (3.5+, KIP-405).
    """
    row = fetch.row
    if not facts.profile_in(tenure.epoch, row["replica_id"]).builds_tier_state:
        return []
    restart = {
        "broker_id": row["replica_id"],
        "replica_id": tenure.leader,
        "leader_epoch": tenure.epoch,
        "fetch_offset": row["fetch_offset"],
        "truncate_to": row["fetch_offset"],
        "cause": "tiered_storage",
        "evidence": "derived" if fetch.follows else "bounded",
    }
    at = local_window(phases(row))
    window = Window(at.lo, at.lo, at.hi)
    return [Operation(OP_CONTROL, window, [Draft("truncation", row, window, restart)])]
