"""The fate of a record: every slot (leader epoch, offset) at its offset, from its append to its end.

Which slot a replica has at the offset is followed through the order: a leader appends one, a follower takes that of the
leader it fetches from, a cut or a loaded log takes it away. What no row tells is left open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pipelines.lookup.event_words import acks_words, error_words, source_words
from pipelines.lookup.places import shown
from pipelines.lookup.reading import Row, count, rows
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipelines.lookup.places import Place
    from pipelines.lookup.reading import Tables

READS = 20  # reads of a slot that are told
SURE = ("observed", "derived")
EARLIER = None  # epoch of a slot whose append no row tells


@dataclass(slots=True)
class Slot:
    """One leader epoch's record at the offset."""

    leader_epoch: int | None
    appends: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)  # by followers
    known_to_leader: list[dict[str, Any]] = field(default_factory=list)
    committed: dict[str, Any] | None = None
    reads: list[dict[str, Any]] = field(default_factory=list)
    reads_left_out: int = 0
    cut: list[dict[str, Any]] = field(default_factory=list)
    dumped: list[dict[str, Any]] = field(default_factory=list)  # who has it on disk at the end, as dumps state
    incidents: list[dict[str, Any]] = field(default_factory=list)
    held_by: list[int] = field(default_factory=list)  # when the recording ends


@dataclass(slots=True)
class Fate:
    """What is found at one offset, row by row in order."""

    offset: int
    leaders: dict[int, int | None]  # by leader epoch
    appended: frozenset[int] = frozenset()  # leader epochs in which a record was appended here
    slots: dict[int | None, Slot] = field(default_factory=dict)
    held: dict[int, int | None] = field(default_factory=dict)  # broker: epoch of the slot that it has; absent: none

    def slot(self, epoch: int | None) -> Slot:
        """Return the slot of an epoch."""
        return self.slots.setdefault(epoch, Slot(epoch))

    def held_by(self, broker: int | None) -> Slot:
        """Return the slot that a broker has at this place; one of an unknown epoch if no row told."""
        return self.slot(self.held.get(broker, EARLIER) if broker is not None else EARLIER)

    def take(self, table: str, row: Row) -> None:
        """Let a row count."""
        if table == "events":
            self._take_event(row)
        elif table == "leo":
            self._take_leo(row)
        elif table == "hw":
            told = self.held_by(row["broker_id"])
            if told.committed is None:
                told.committed = {**_stamp(row), "by": row["cause_broker_id"], "leader": row["broker_id"]}
        elif table == "cuts":
            told = self.held_by(row["broker_id"])
            names = ("leo_before", "leo_after", "cause")
            told.cut.append({**_stamp(row), **{name: row[name] for name in names}, "broker": row["broker_id"]})
            self.held.pop(row["broker_id"], None)

    def _take_event(self, row: Row) -> None:
        kind, broker = row["kind"], row["broker_id"]
        if kind == "append":
            self._take_append(row)
        elif kind == "ack":
            slot = self.held_by(broker) if row["duplicate"] else self.slot(row["leader_epoch"])
            names = ("acks", "error_code", "client_id", "duplicate", "unconfirmed")
            slot.answers.append({**_stamp(row), **{name: row[name] for name in names}, "broker": broker})
        elif kind == "consumer_read":
            slot = self.held_by(broker)
            if len(slot.reads) < READS:
                slot.reads.append({**_stamp(row), "client_id": row["client_id"], "broker": broker})
            else:
                slot.reads_left_out += 1
        elif kind == "log_dump":
            told = {**_stamp(row), "broker": broker, "cause": row["cause"]}
            self.slot(row["leader_epoch"]).dumped.append(told)

    def _take_append(self, row: Row) -> None:
        broker = row["broker_id"]
        if row["duplicate"]:
            return  # answered from the producer's state: its answer says so
        names = ("base_offset", "next_offset", "next_offset_evidence", "client_id", "acks", "is_control", "transaction")
        told = {**_stamp(row), **{name: row[name] for name in names}, "broker": broker}
        self.slot(row["leader_epoch"]).appends.append(told)
        self.held[broker] = row["leader_epoch"]

    def _take_leo(self, row: Row) -> None:
        broker, epoch = row["broker_id"], row["leader_epoch"]
        above = row["leo"] > self.offset
        if row["observer"] == "leader":
            leader = self.leaders.get(epoch)
            if above and leader is not None:
                self.held_by(leader).known_to_leader.append(
                    {**_stamp(row), "broker": broker, "leader": leader, "leader_epoch": epoch}
                )
        elif not above:
            lost = self.held.pop(broker, EARLIER)
            if row["step"] != "truncate" and lost in self.slots:  # what a cut took is told by its own table
                told = {**_stamp(row), "leo_before": row["leo_before"], "leo_after": row["leo"], "cause": row["step"]}
                self.slot(lost).cut.append({**told, "broker": broker})
        elif row["step"] != "leader_append":
            self.held[broker] = self._served_in(epoch)
            self.slot(self.held[broker]).taken.append({**_stamp(row), "broker": broker, "step": row["step"]})

    def _served_in(self, epoch: int | None) -> int | None:
        """Return the epoch of the slot that the leader of an epoch serves; None: no row told what it has here.

        A leader has one record here all through its epoch, so that one which it appends then is the one that it serves,
        even where the order has the follower's row, whose time is bounded, before the append.
        """
        if epoch in self.appended:
            return epoch
        leader = self.leaders.get(epoch) if epoch is not None else None
        return EARLIER if leader is None else self.held.get(leader, EARLIER)


def record(tables: Tables, place: Place, offset: int) -> dict[str, Any]:
    """Return what became of the record at an offset; InputError if no log ever reached that far."""
    bounds = _bounds(tables, place)
    if bounds["end"] is not None and offset >= bounds["end"] and not _of_unknown_end(tables, place, offset):
        message = (
            f"{shown(place.name)} never had an offset {offset} as far as the tables tell: the highest log end is "
            f"{bounds['end']}, so its last record was at {bounds['end'] - 1}"
        )
        raise InputError(message)
    about = sorted(_rows_about(tables, place, offset), key=lambda one: (one[1]["seq"], ORDER[one[0]]))
    fate = Fate(offset, _leaders(tables, place), frozenset(_epochs_of_appends(about)))
    for table, row in about:
        fate.take(table, row)
    for row in rows(tables, "data_loss_incidents", place.condition):
        _take_incident(fate, row)
    for broker, epoch in fate.held.items():
        fate.slot(epoch).held_by.append(broker)
    _at_the_end(fate)
    removed = _removed(tables, place, offset)
    gone = {one["broker"] for one in removed}
    for slot in fate.slots.values():  # a file may still be there, whose records the log no longer has
        slot.held_by = sorted(set(slot.held_by) - gone)
    known = [one for one in fate.slots.values() if _is_told(one)]
    slots = sorted(known, key=lambda one: (one.leader_epoch is None, one.leader_epoch or 0))
    told = [
        {**{name: getattr(one, name) for name in Slot.__slots__}, "fate": fate_of(one, offset, removed)}
        for one in slots
    ]
    return {**place.as_dict(), "offset": offset, **bounds, "removed_by_policy": removed, "slots": told}


ORDER = {"cuts": 0, "events": 1, "leo": 2, "hw": 3}


def _is_told(slot: Slot) -> bool:
    return any(
        (slot.appends, slot.answers, slot.taken, slot.committed, slot.cut, slot.dumped, slot.incidents, slot.reads)
    )


def fate_of(slot: Slot, offset: int, removed: list[dict[str, Any]]) -> dict[str, str]:
    """Return what became of a slot, as a word and as a sentence, and no more than its rows tell."""
    word, said = _fate(slot, offset, is_removed=bool(removed))
    return {"word": word, "sentence": f"{said}; {_best_answer(slot)}"}


def _fate(slot: Slot, offset: int, *, is_removed: bool) -> tuple[str, str]:  # noqa: PLR0911 - decided one by one
    if slot.incidents:
        one = slot.incidents[0]
        sure = "" if one["evidence"] in SURE else f" ({one['evidence']})"
        return "lost", f"lost{sure}: incident {one['incident_id']}, {one['mechanism']}"
    if slot.appends and all(one["next_offset"] is None and one["base_offset"] < offset for one in slot.appends):
        base = slot.appends[-1]["base_offset"]
        return "unknown", f"unknown: it may be in the batch that begins at {base}, of which no line tells where it ends"
    dumped = sorted({one["broker"] for one in slot.dumped} & set(slot.held_by))
    if dumped:
        return "kept", f"kept: at the end the dumped log of {_brokers(dumped)} covers it"
    if slot.held_by:
        return "kept", f"kept as far as the logs tell: in the log of {_brokers(slot.held_by)} at the end"
    if is_removed and not slot.cut:
        return "removed", "removed by retention or DeleteRecords, which is no loss"
    if slot.cut:
        nothing = "nothing shows that it was acknowledged, committed or read"
        return "cut", f"cut from every log that is known to have had it, and in no incident: {nothing}"
    return "unknown", "unknown: no row tells who has it"


def _best_answer(slot: Slot) -> str:  # noqa: PLR0911 - decided one by one
    """Return what its producer was told, at best."""
    if any(one["is_control"] for one in slot.appends):
        return "a transaction marker, which is answered to no producer"
    good = [one for one in slot.answers if one["error_code"] == 0 and not one["unconfirmed"]]
    if good:
        best = next((one for one in good if one["acks"] == -1), good[0])
        if best["acks"] == 0:
            return "its producer asked for no answer (acks=0)"
        return f"acknowledged ({acks_words(best['acks'])})"
    if any(one["unconfirmed"] for one in slot.answers):
        return "answered only to a client that may have given up"
    refused = next((one for one in slot.answers if one["error_code"]), None)
    if refused:
        return f"answered with {error_words(refused['error_code'])}, so not acknowledged"
    if slot.appends or slot.answers:
        return "whether it was acknowledged is unknown: no answer is in the logs"
    return "who produced it is unknown: no line tells of its append"


def _brokers(ids: list[int]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(map(str, ids))}"


def _take_incident(fate: Fate, row: Row) -> None:
    for lost in row["ranges"] or ():
        last = lost["last_offset"]
        if lost["first_offset"] <= fate.offset and (last is None or fate.offset <= last):
            names = ("incident_id", "severity", "mechanism", "lost_ts", "evidence")
            told = {**{name: row[name] for name in names}, "is_open_end": last is None}
            fate.slot(lost["leader_epoch"]).incidents.append(told)


def _at_the_end(fate: Fate) -> None:
    """A dump says for sure whose record a broker has: an unknown epoch then is the dump's."""
    for slot in [one for one in fate.slots.values() if one.dumped]:
        for one in slot.dumped:
            broker = one["broker"]
            for other in fate.slots.values():
                if broker in other.held_by and other is not slot:
                    other.held_by.remove(broker)
            if broker not in slot.held_by:
                slot.held_by.append(broker)
    unknown = fate.slots.get(EARLIER)
    dumped = [one for one in fate.slots.values() if one.dumped]
    if unknown is not None and len(dumped) == 1 and not unknown.held_by and not dumped[0].appends:
        (known,) = dumped  # one record, told by two kinds of rows
        for name in ("answers", "taken", "known_to_leader", "reads", "cut"):
            getattr(known, name)[:0] = getattr(unknown, name)
        known.committed = known.committed or unknown.committed
        known.reads_left_out += unknown.reads_left_out
        del fate.slots[EARLIER]


def _rows_about(tables: Tables, place: Place, offset: int) -> Iterable[tuple[str, Row]]:
    """Return the rows that tell of an offset, each with the kind of its table."""
    base, end, at = pc.field("base_offset"), pc.field("next_offset"), pc.field("fetch_offset")
    kind = pc.field("kind")
    written = kind.isin(["append", "ack", "log_dump"]) & (base <= offset) & (end > offset)
    read = (kind == "consumer_read") & (at <= offset) & (end > offset)
    for row in rows(tables, "replication_events", place.condition & (written | read)):
        yield "events", row
    for row in _of_unknown_end(tables, place, offset):
        yield "events", row
    before, after = pc.field("leo_before"), pc.field("leo")
    up = ((before <= offset) | before.is_null()) & (after > offset)
    down = ((before > offset) | before.is_null()) & (after <= offset)
    for row in rows(tables, "leo_timeline", place.condition & (up | down)):
        yield "leo", row
    before, after = pc.field("hw_before"), pc.field("hw")
    up = ((before <= offset) | before.is_null()) & (after > offset)
    for row in rows(tables, "hw_timeline", place.condition & up & (pc.field("role") == "leader")):
        yield "hw", row
    before, after = pc.field("leo_before"), pc.field("leo_after")
    for row in rows(tables, "log_truncations", place.condition & (before > offset) & (after <= offset)):
        yield "cuts", row


def _epochs_of_appends(about: Iterable[tuple[str, Row]]) -> Iterator[int]:
    """Return the leader epochs in which a batch was appended that surely covers the offset."""
    for table, row in about:
        is_append = table == "events" and row["kind"] == "append" and not row["duplicate"]
        if is_append and row["next_offset"] is not None and row["leader_epoch"] is not None:
            yield row["leader_epoch"]


def _of_unknown_end(tables: Tables, place: Place, offset: int) -> list[Row]:
    """Return the newest append of each epoch before an offset, and its answer, where no row says how far they reach."""
    base, end = pc.field("base_offset"), pc.field("next_offset")
    where = place.condition & pc.field("kind").isin(["append", "ack"]) & (base <= offset) & end.is_null()
    found: dict[tuple[Any, Any], Row] = {}
    for row in rows(tables, "replication_events", where):
        key = (row["kind"], row["leader_epoch"])
        if key not in found or row["base_offset"] >= found[key]["base_offset"]:
            found[key] = row
    kept = []
    for row in found.values():
        later = place.condition & (pc.field("kind") == "append") & (base > row["base_offset"]) & (base <= offset)
        if not count(tables, "replication_events", later & (pc.field("leader_epoch") == row["leader_epoch"])):
            kept.append(row)
    return kept


def _leaders(tables: Tables, place: Place) -> dict[int, int | None]:
    told = rows(tables, "leadership_timeline", place.condition, ("leader_epoch", "leader_id"), order=("leader_epoch",))
    return {row["leader_epoch"]: row["leader_id"] for row in told}


def _bounds(tables: Tables, place: Place) -> dict[str, int | None]:
    """Return the highest log end that any row tells of, and the latest log start."""
    ends = [
        tables.dataset(name).to_table(columns=[column], filter=place.condition)[column]
        for name, column in (("leo_timeline", "leo"), ("leo_timeline", "leo_before"))
    ]
    known = place.condition & pc.field("kind").isin(["append", "log_dump", "role_change", "log_load"])
    stated = tables.dataset("replication_events").to_table(columns=["next_offset", "leo"], filter=known)
    found = [pc.max(column).as_py() for column in (*ends, stated["next_offset"], stated["leo"])]
    starts = rows(tables, "log_start_timeline", place.condition, ("seq", "log_start_offset"))
    start = max((row["log_start_offset"] for row in starts), default=None)
    return {"end": max((one for one in found if one is not None), default=None), "start": start}


def _removed(tables: Tables, place: Place, offset: int) -> list[dict[str, Any]]:
    """Return which logs came to begin after an offset, by policy."""
    gone = (pc.field("log_start_before") <= offset) & (pc.field("log_start_offset") > offset)
    return [
        {**_stamp(row), "broker": row["broker_id"], "log_start_offset": row["log_start_offset"], "cause": row["cause"]}
        for row in rows(tables, "log_start_timeline", place.condition & gone)
    ]


def _stamp(row: Row) -> dict[str, Any]:
    source = {"source": source_words(row)} if "source_file" in row else {}
    return {"seq": row["seq"], "ts": row["ts"], "evidence": row["evidence"], **source}
