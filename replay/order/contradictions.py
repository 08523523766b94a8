"""Lines of one partition that cannot all be true: an altered digit, another broker's file, a clock that ran wild.

Each law here holds in every supported Kafka version, whatever the order of threads and log lines: times are compared
only if one request was answered before the other arrived, on one broker's clock and in one file's order. Lines that
break a law are neither corrected nor dropped, because nothing says which of them is wrong. Findings about the leader
epochs of such lines are `bounded` at best (`doubts`), and `conformance` counts the lines (`lines_agree`).

What the model leaves out: offsets that rise too fast for the bytes returned, because compaction leaves holes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.engine.codes import CONTRADICTED, ENDS_OF_A_WAIT, LEADER_UNKNOWN
from replay.engine.stamps import STAMP_LATE_US
from replay.evidence.epochs import was_accepted
from replay.evidence.request_columns import RequestColumns, places_by
from replay.evidence.request_times import line_window, phases
from replay.evidence.roles import moment
from replay.order.operations import Draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.arrays.ints import Flags, Ints
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.rows import Row

# Errors with which a produce may be answered although it was appended (DelayedProduce).
FAILED_AFTER_APPEND = (0, *ENDS_OF_A_WAIT)
APART_US = 4 * STAMP_LATE_US  # requests so far apart cannot have been swapped by the log thread
HEARD_US = 10_000_000  # by so much later everybody has heard of a decision, whatever the clocks
MOST_RECORDS_A_BYTE = 150  # gzip compresses a thousand bytes into one, and a record has at least seven
Reached = tuple[list["Row"], "Ints", "Ints"]  # lines, when each was answered, and the offset that each states
Appended = dict[tuple[int, int], Reached]  # by leader and leader epoch


class Contradiction(NamedTuple):
    """A line that another one contradicts, and why."""

    row: Row
    epochs: tuple[int, ...]  # leader epochs that it may be about
    text: str
    lines_may_lack: bool = False  # whether a missing line, of a restart or a truncation, would explain both


class OrderedFetches:
    """The followers' fetches of a partition as columns, in the order of their connections."""

    def __init__(self, rows: list[Row]) -> None:
        """`rows`: fetches by replicas, in the same columns."""
        told = RequestColumns(rows)
        columns, places, connection, at = told.columns, told.places, told.connections, told.at
        number, broker = told.stated("correlation_id", 0), told.stated("broker_id", 0)
        order = np.lexsort((number, connection, broker))
        self.rows = [rows[k] for k in order.tolist()]
        self.broker, self.connection, self.number = broker[order], connection[order], number[order]
        self.taken, self.stamp = at.taken[order], at.stamp[order]

        def column(name: str, missing: int = -1) -> Ints:
            return columns.numbers(name, places, missing)[order]

        self.replica, self.offset = column("replica_id"), column("fetch_offset")
        self.epoch, self.hw, self.bytes = column("current_leader_epoch"), column("hw"), column("bytes")
        self.line = column("source_line")
        self.waited = (column("remote_us", 0) > 0) & (column("request_bytes") == 0)
        self.accepted: Flags = (column("error_code", 0) == 0) & ~columns.known("diverging_epoch", places)[order]
        self.runs: Flags = columns.known("run_count", places)[order]

    def then(self) -> tuple[Ints, Ints]:
        """Pairs of fetches, by place: an accepted one, and the next one that its sender sent in the same epoch."""
        a = np.arange(len(self.rows) - 1)
        b = a + 1
        follows = (
            (self.broker[a] == self.broker[b])
            & (self.connection[a] == self.connection[b])
            & (self.number[a] + 1 == self.number[b])
            & (self.replica[a] == self.replica[b])
            & (self.epoch[a] == self.epoch[b])
            & self.accepted[a]
            & (self.offset[a] >= 0)
            & (self.offset[b] >= 0)
            & ~self.runs[a]
        )
        return a[follows], b[follows]


def contradictions(facts: PartitionFacts) -> list[Contradiction]:
    """Lines of the partition that cannot all be true, in no particular order."""
    appended = appends_by_tenure(facts)
    found = [*leaders_differ(facts), *roles_fall(facts), *answers_break(facts)]
    found += [*roles_deny_fetches(facts, appended), *batches_swell(facts, appended)]
    fetches = facts.by_kind["fetch"]
    by_replicas = np.flatnonzero(RequestColumns(fetches).stated("replica_id") >= 0).tolist()
    if by_replicas:
        told = OrderedFetches([fetches[k] for k in by_replicas])
        found += [
            *epochs_fall(told),
            *positions_jump(facts, told),
            *hws_fall(told),
            *logs_shrink(facts, told, appended),
        ]
    return found


def leaders_differ(facts: PartitionFacts) -> Iterator[Contradiction]:
    """An epoch has one leader: the one decided on, which says so itself and serves the epoch's fetches."""
    decided = {d.leader_epoch: d.leader for d in facts.decisions if d.elects and d.row["kind"] != "role_change"}
    by_version = {d.partition_epoch: d.leader_epoch for d in facts.decisions if d.partition_epoch is not None}
    claims: dict[int, dict[int, Row]] = defaultdict(dict)
    for row in facts.by_kind["role_change"]:
        epoch, version = row["leader_epoch"], row["partition_epoch"]
        if epoch is None or row["name"] != "leader":
            continue
        claims[epoch].setdefault(row["broker_id"], row)
        if by_version.get(version, epoch) != epoch:
            text = f"broker {row['broker_id']} leads epoch {epoch} with partition epoch {version}"
            yield Contradiction(row, (epoch, by_version[version]), f"{text}, decided for epoch {by_version[version]}")
    fetches = facts.by_kind["fetch"]
    columns = RequestColumns(fetches)
    epochs, brokers = columns.now("current_leader_epoch"), columns.stated("broker_id")
    which = np.flatnonzero((epochs >= 0) & columns.without_error & (columns.stated("replica_id") >= 0))
    for (of, broker), places in places_by(epochs[which], brokers[which]):
        claims[of].setdefault(broker, fetches[which[places[0]]])
    yield from epochs_ahead(facts, claims)
    for epoch, told in sorted(claims.items()):
        leader = decided.get(epoch, -1 if epoch in decided else None)
        for broker, row in sorted(told.items()):
            if (leader is not None and broker != leader) or (leader is None and len(told) > 1):
                other = "nobody" if leader == -1 else f"broker {next(b for b in (leader, *told) if b != broker)}"
                yield Contradiction(
                    row, (epoch,), f"broker {broker} acts as leader of epoch {epoch}, and so does {other}"
                )


def epochs_ahead(facts: PartitionFacts, claims: dict[int, dict[int, Row]]) -> Iterator[Contradiction]:
    """Nobody acts in an epoch before it is decided: long after, no older epoch is the newest decided or taken up."""
    decided = Since((d.us, d.leader_epoch) for d in facts.decisions if d.row["kind"] != "role_change")
    times: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for line in facts.role_lines.values():
        times[line["broker_id"]].append((moment(line), line["leader_epoch"]))
    roles = {broker: Since(told) for broker, told in times.items()}
    for epoch, claimed in claims.items():
        for broker, row in claimed.items():
            heard = moment(row) + HEARD_US
            sources = (decided, roles.get(broker, NOBODY))
            newest = max(one.newest(heard) for one in sources)
            if 0 <= newest < epoch:
                text = f"broker {broker} acts in epoch {epoch}, and later epoch {newest} is the newest"
                yield Contradiction(row, (epoch, *{e for one in sources for e in one.epochs(heard)}), text)


class Since:
    """Leader epochs by when they were reported."""

    def __init__(self, told: Iterable[tuple[int, int]]) -> None:
        """`told`: (time in microseconds, leader epoch)."""
        self.told = sorted(told)
        self.most = list(accumulate((epoch for _, epoch in reversed(self.told)), max))[::-1]

    def newest(self, us: int) -> int:
        """The highest epoch reported after `us`; -1 if there is none."""
        place = bisect_right(self.told, us, key=lambda one: one[0])
        return self.most[place] if place < len(self.most) else -1

    def epochs(self, us: int) -> list[int]:
        """The epochs reported after `us`."""
        return [epoch for _, epoch in self.told[bisect_right(self.told, us, key=lambda one: one[0]) :]]


NOBODY = Since(())


def roles_fall(facts: PartitionFacts) -> Iterator[Contradiction]:
    """A broker takes up roles in rising epochs: it refuses older ones."""
    own: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in facts.by_kind["role_change"]:
        if row["leader_epoch"] is not None:
            own[row["broker_id"], row["source_file"]].append(row)
    for (broker, _), rows in sorted(own.items()):
        rows.sort(key=lambda r: r["source_line"])
        for before, after in pairwise(rows):
            first, then = before["leader_epoch"], after["leader_epoch"]
            if then < first:
                text = f"broker {broker} takes up a role in epoch {then} after one in epoch {first}"
                yield Contradiction(after, (first, then), text)


def answers_break(facts: PartitionFacts) -> Iterator[Contradiction]:
    """An error returns no records, and only some errors follow an append; an answer without error has an offset."""
    produces, fetches = facts.by_kind["produce"], facts.by_kind["fetch"]
    told = RequestColumns(produces)
    error, base = told.stated("error_code"), told.stated("base_offset")
    wrong = np.where(base >= 0, ~np.isin(error, FAILED_AFTER_APPEND), (error == 0) & (told.stated("acks") != 0))
    for k in np.flatnonzero(wrong & told.known("error_code") & told.known("base_offset")).tolist():
        text = f"a produce is answered with error {error[k]} and base offset {base[k]}"
        yield Contradiction(produces[k], epochs_around(facts, produces[k]), text)
    told = RequestColumns(fetches)
    error, returned = told.stated("error_code", 0), told.stated("bytes", 0)
    for k in np.flatnonzero((error != 0) & (returned > 0)).tolist():
        text = f"a fetch is answered with error {error[k]} and {returned[k]} bytes"
        yield Contradiction(fetches[k], epochs_around(facts, fetches[k]), text)


def epochs_fall(told: OrderedFetches) -> Iterator[Contradiction]:
    """A follower fetches in rising leader epochs."""
    same = (np.diff(told.connection) == 0) & (np.diff(told.broker) == 0) & (np.diff(told.replica) == 0)
    fell = same & (told.epoch[:-1] >= 0) & (told.epoch[1:] >= 0) & (np.diff(told.epoch) < 0)
    for k in np.flatnonzero(fell).tolist():
        before, after = int(told.epoch[k]), int(told.epoch[k + 1])
        text = f"broker {told.replica[k]} asks in epoch {after} after it had asked in epoch {before}"
        yield Contradiction(told.rows[k], (after, before), text)


def batches_swell(facts: PartitionFacts, appended: Appended) -> Iterator[Contradiction]:
    """A batch reaches up to the next one, and holds no more records than its bytes can, however well compressed."""
    for (broker, epoch), (rows, _, _) in appended.items():
        told = RequestColumns(rows)
        order = np.lexsort((told.stated("source_line"), told.stated("base_offset")))
        base, held = told.stated("base_offset")[order], told.stated("bytes")[order][:-1]
        swells = (held >= 0) & (np.diff(base) > held * MOST_RECORDS_A_BYTE)
        for k in np.flatnonzero(swells).tolist():
            one, other = rows[order[k]], rows[order[k + 1]]
            since, until = sorted((phases(one).taken, phases(other).stamp))
            if not facts.missing.any_in(broker, since, until):
                text = f"{held[k]} bytes at offset {base[k]} would hold {base[k + 1] - base[k]} records"
                yield Contradiction(other, (epoch,), text)


def positions_jump(facts: PartitionFacts, told: OrderedFetches) -> Iterator[Contradiction]:
    """A follower fetches from the end of its log: never from below, nor from further on than it received."""
    before, after = told.then()
    fell = told.offset[after] < told.offset[before]
    rose = (told.offset[after] > told.offset[before]) & (told.bytes[before] == 0)
    for k in np.flatnonzero(fell | rose).tolist():
        a, b = told.rows[before[k]], told.rows[after[k]]
        replica, epoch = b["replica_id"], b["current_leader_epoch"]
        if fell[k] and facts.cuts.get((replica, epoch)):
            continue
        got = "" if fell[k] else " and an empty answer"
        text = f"broker {replica} asks for offset {b['fetch_offset']} after {a['fetch_offset']}{got}"
        yield Contradiction(b, (epoch,), text)


def hws_fall(told: OrderedFetches) -> Iterator[Contradiction]:
    """A leader's HW never falls within its epoch: later answers state at least what earlier ones did."""
    for group in groups_of(told, told.accepted & (told.hw >= 0) & (told.epoch >= 0)):
        rows = [told.rows[k] for k in group.tolist()]
        for a, b in overtaken((rows, told.stamp[group], told.hw[group]), told, group, told.hw[group]):
            text = f"broker {b['broker_id']} answers with HW {b['hw']} after it had answered with {a['hw']}"
            yield Contradiction(b, (b["current_leader_epoch"],), text)


def logs_shrink(facts: PartitionFacts, told: OrderedFetches, appended: Appended) -> Iterator[Contradiction]:
    """A leader's log does not shrink: if a fetch waited in vain at its end, the log never was longer before."""
    for group in groups_of(told, told.accepted & (told.offset >= 0) & (told.epoch >= 0)):
        ends = group[told.waited[group] & ~told.runs[group] & (not facts.throttled)]
        key = (int(told.broker[group[0]]), int(told.epoch[group[0]]))
        mine = [told.rows[k] for k in group.tolist()]
        reached = [
            (mine, told.stamp[group], np.maximum(told.offset[group], told.hw[group])),
            appended.get(key, ([], np.zeros(0, np.int64), np.zeros(0, np.int64))),
        ]
        for rows, stamp, log_end in reached:
            for earlier, later in overtaken((rows, stamp, log_end), told, ends, told.offset[ends]):
                broker, offset = later["broker_id"], later["fetch_offset"]
                text = f"broker {broker} has nothing beyond offset {offset}, where it had more before"
                yield Contradiction(earlier, (key[1],), text)


def appends_by_tenure(facts: PartitionFacts) -> Appended:
    """(leader, leader epoch) -> its produces, when each was answered, and how far its log reached by then."""
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in facts.by_kind["produce"]:
        if row["base_offset"] is not None and row["base_offset"] >= 0 and not row["error_code"]:
            epoch = facts.epoch_at(row["broker_id"], phases(row).local)
            if epoch is not None:
                found[row["broker_id"], epoch].append(row)
    return {
        key: (
            rows,
            np.array([phases(row).stamp for row in rows], np.int64),
            np.array([row["base_offset"] + 1 for row in rows], np.int64),
        )
        for key, rows in found.items()
    }


def groups_of(told: OrderedFetches, which: Flags) -> list[Ints]:
    """Places of fetches by broker and leader epoch."""
    places = np.flatnonzero(which)
    if not len(places):
        return []
    keys = np.stack([told.broker[places], told.epoch[places]])
    order = np.lexsort(keys)
    cut = np.flatnonzero(np.any(np.diff(keys[:, order], axis=1) != 0, axis=0)) + 1
    return np.split(places[order], cut)


def overtaken(earlier: Reached, told: OrderedFetches, group: Ints, numbers: Ints) -> Iterator[tuple[Row, Row]]:
    """A line answered before a fetch of `group` arrived that states more than the fetch's entry in `numbers`.

    At most one such pair is returned: it suffices to doubt the epoch.
    """
    rows, stamp, stated = earlier
    order = np.argsort(stamp, kind="stable")
    highest = np.maximum.accumulate(stated[order])
    before = np.searchsorted(stamp[order], told.taken[group] - APART_US, side="left")
    wrong = before > 0
    wrong[wrong] &= highest[before[wrong] - 1] > numbers[wrong]
    for k in np.flatnonzero(wrong).tolist():
        one = rows[int(order[int(np.argmax(stated[order[: before[k]]]))])]
        other = told.rows[group[k]]
        if one["source_file"] != other["source_file"] or one["source_line"] < other["source_line"]:
            yield one, other
            return


def roles_deny_fetches(facts: PartitionFacts, appended: Appended) -> Iterator[Contradiction]:
    """A broker that takes up a role has the log that it had, unless truncated or restarted; its HW lies within it."""
    reached: dict[int, dict[int, int]] = defaultdict(dict)
    for (broker, epoch), (_, _, ends) in sorted(appended.items(), key=lambda one: one[0]):
        reached[broker][epoch] = int(ends.max())
    lines: dict[int, list[Row]] = defaultdict(list)
    for (broker, epoch), row in facts.role_lines.items():
        load = facts.loads.get((broker, epoch))
        if row["offset"] is not None and load is None:
            lines[broker].append(row)
        elif load is not None and load["offset"] is not None and row["offset"] < load["offset"]:
            at = f"at offset {row['offset']}, and had loaded a log up to {load['offset']}"
            yield Contradiction(row, (epoch,), f"broker {broker} takes up its role {at}")
    for broker, rows in sorted(lines.items()):
        mine = reached.get(broker, {})
        epochs = list(mine)
        for line in sorted(rows, key=lambda r: r["leader_epoch"]):
            epoch, offset = line["leader_epoch"], line["offset"]
            if line["hw"] is not None and line["hw"] > offset:
                text = f"broker {broker} takes up its role with HW {line['hw']} beyond its log's end {offset}"
                yield Contradiction(line, (epoch,), text)
            led = bisect_left(epochs, epoch)
            had, since = last_position(facts, line, (epochs[led - 1], mine[epochs[led - 1]]) if led else (-1, -1))
            if offset < had:
                text = f"broker {broker} takes up its role in epoch {epoch} at offset {offset}, and had {had} before"
                yield Contradiction(line, (since, epoch), text, lines_may_lack=True)


def last_position(facts: PartitionFacts, line: Row, appended: tuple[int, int]) -> tuple[int, int]:
    """The end of a broker's log in its last role before a role's `line`, and that role's epoch; -1 if unknown.

    A broker that begins to follow writes its line while an answer of its last leader may still be about to be appended,
    so its very last fetch may be later than the line. `appended`: the last earlier epoch in which it led and appended,
    and how far; -1: none.
    """
    broker, epoch = line["broker_id"], line["leader_epoch"]
    fetches, (led, reached) = facts.sequence_of(broker), appended
    place = bisect_left(fetches, epoch, key=lambda fetch: fetch.row["current_leader_epoch"]) - 1
    since = max(led, fetches[place].row["current_leader_epoch"]) if place >= 0 else led
    if not facts.turns.was_whole(broker, since, epoch):
        return -1, since
    if since == led and led >= 0:
        return reached, led
    if line["name"] == "follower":
        place -= 1
    last = fetches[place] if place >= 0 else None
    if last is None or not was_accepted(last.row) or not last.goes_on or last.row["current_leader_epoch"] != since:
        return -1, since
    return last.row["fetch_offset"] or -1, since


def epochs_around(facts: PartitionFacts, row: Row) -> tuple[int, ...]:
    """Leader epochs that a request may belong to."""
    named = row["current_leader_epoch"]
    if named is not None and named >= 0:
        return (named,)
    epoch = facts.epoch_at(row["broker_id"], phases(row).local)
    return () if epoch is None else (epoch,)


def contradiction_drafts(facts: PartitionFacts) -> list[Draft]:
    """An observation per contradiction and epoch, placed before anything of the partition is replayed."""
    drafts = []
    for found in sorted(contradictions(facts), key=lambda one: (one.row["fact_id"], one.text)):
        at = moment(found.row)
        epochs: list[int | None] = [*sorted(set(found.epochs))]
        for epoch in epochs or [None]:
            fields = {
                "broker_id": found.row["broker_id"],
                "leader_epoch": epoch,
                "cause": CONTRADICTED,
                "note": found.text,
                "evidence": "bounded" if found.lines_may_lack else "unknown",
            }
            drafts.append(Draft("observation", found.row, line_window(at), fields))
    return drafts


def unled_drafts(facts: PartitionFacts) -> list[Draft]:
    """An observation for the last epoch in brokers' lines if its leader is unknown."""
    last = max((tenure.epoch for tenure in facts.tenures), default=-1)
    beyond = [row for (_, epoch), row in facts.role_lines.items() if epoch > last]
    if not beyond:
        return []
    row = max(beyond, key=lambda row: (row["leader_epoch"], row["fact_id"]))
    fields = {"broker_id": row["broker_id"], "leader_epoch": row["leader_epoch"], "cause": LEADER_UNKNOWN}
    return [Draft("observation", row, line_window(moment(row)), {**fields, "evidence": "observed"})]
