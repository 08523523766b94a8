"""`isr_timeline` and `isr_flaps` of one partition: why each replica left and joined, and how each request ended.

The fold reports that the ISR changed and how far each mover was behind, as its leader knew it. This module adds, for
those few rows, the preceding fetches, what was requested and how that ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replay.arrays.ints import NEVER
from replay.arrays.records import fields_of
from replay.engine import codes as c
from replay.engine.emit import MoverRow
from replay.protocol.isr import (
    BELOW_EPOCH_START,
    BELOW_HW,
    FENCED,
    IN_FLIGHT,
    NEVER_FETCHED,
    NOT_ASSIGNED,
    STALE_EPOCH,
    STOPPING,
)
from replay.protocol.state import UNSET
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replay.arrays.ints import Flags, Ints
    from replay.arrays.records import Records
    from replay.engine.emit import IsrRow
    from replay.engine.events import EventBatch, Events

BLOCKS = (  # the condition that became true last: a fetch can only have moved the offsets, so these come first
    (NEVER_FETCHED, "first_fetch"),
    (BELOW_HW, "leo_reached_hw"),
    (BELOW_EPOCH_START, "epoch_start_reached"),
    (STALE_EPOCH, "fetched_since_registration"),
    (FENCED, "unfenced"),
    (STOPPING, "shutdown_over"),
    (NOT_ASSIGNED, "assigned"),
    (IN_FLIGHT, "change_was_in_flight"),
)
BY_CONTROLLER = {"fenced": "fenced", "controlled_shutdown": "stopped", "reassignment": "reassigning"}
TOLD_KINDS = ("isr_request", "broker_change", "partition_change")
FETCH_COLUMNS = ("seq", "ts", "broker_id", "replica_id", "error_code", "run_count", "run_until")


def is_follower_fetch(batch: EventBatch) -> Flags:
    """Which events are followers' fetches."""
    found: Flags = batch.events.kinds == c.FETCH_UPDATE
    return found


def is_request(batch: EventBatch) -> Flags:
    """Which events show that there is a log of the requests that the broker handled."""
    found: Flags = is_follower_fetch(batch) | np.isin(batch.events.kinds, (c.ACK, c.FETCH_READ))
    return found


ISR_NUMBERS = ("seq", "ts", "epoch", "partition_epoch", "state", "under_min", "evidence")


class RecentFetches:
    """Follower fetches within the last lag time: what a leader saw of each replica before the ISR changed."""

    def __init__(self) -> None:
        """Start empty."""
        self.batches: list[dict[str, Ints]] = []  # one column per name, in the order in which they came
        self.last: dict[tuple[int, int], int] = {}  # of dropped batches: time of each replica's last fetch
        self.heard: dict[int, int] = {}  # broker -> seq of the first request that it is known to have handled

    def add(self, events: Events) -> None:
        """Take in the fetches among events."""
        handled = events.among(is_request, ("seq", "broker_id"))
        if len(handled):
            brokers, first = np.unique(handled.numbers("broker_id", UNSET), return_index=True)
            seqs = handled.numbers("seq", 0)[first]
            for broker, seq in zip(brokers.tolist(), seqs.tolist(), strict=True):
                self.heard.setdefault(broker, seq)
        mine = events.among(is_follower_fetch, FETCH_COLUMNS)
        if len(mine):
            seen = {name: mine.numbers(name, UNSET if name == "run_until" else 0) for name in FETCH_COLUMNS}
            seen["end"] = np.maximum(seen["ts"], seen["run_until"])
            self.batches.append(seen)

    def forget(self, lag_us: int) -> None:
        """Drop batches too old for any later row to ask for, but keep each replica's last fetch."""
        newest = max((int(seen["end"].max()) for seen in self.batches), default=0)
        kept = []
        for seen in self.batches:
            if int(seen["end"].max()) >= newest - 4 * lag_us:
                kept.append(seen)
                continue
            pairs = np.stack([seen["broker_id"], seen["replica_id"]], axis=1)
            for pair in np.unique(pairs, axis=0).tolist():
                end = int(seen["end"][(pairs == pair).all(axis=1)].max())
                self.last[pair[0], pair[1]] = max(self.last.get((pair[0], pair[1]), 0), end)
        self.batches = kept

    def is_heard(self, leader: int, seq: int) -> bool:
        """Whether a request of the leader is known up to row `seq`: otherwise its log of them may be missing."""
        return self.heard.get(leader, NEVER) <= seq

    def of(self, pair: tuple[int, int], seq: int, ts: int) -> dict[str, Ints]:
        """What is kept of the fetches of (leader, replica) before row `seq` at `ts`."""
        found = []
        for seen in self.batches:
            mine = (seen["broker_id"] == pair[0]) & (seen["replica_id"] == pair[1])
            found.append(mine & (seen["seq"] < seq) & (seen["ts"] <= ts))
        none = [np.zeros(0, np.int64)]
        return {
            name: np.concatenate(none + [seen[name][mine] for seen, mine in zip(self.batches, found, strict=True)])
            for name in FETCH_COLUMNS
        }

    def before(self, seq: int, ts: int, pair: tuple[int, int], lag_us: int) -> tuple[int, int, int | None]:
        """(fetches, refused ones, time of the last) of (leader, replica) in the lag time before row `seq` at `ts`.

        A run of unlisted fetches counts with the part of it that lies in the lag time.
        """
        seen = self.of(pair, seq, ts)
        begin = seen["ts"]
        is_run = seen["run_until"] != UNSET
        end = np.where(is_run, np.minimum(np.maximum(seen["run_until"], begin), ts), begin)
        last = max([int(end.max())] if len(end) else [], default=self.last.get(pair, 0))
        length = np.maximum(np.where(is_run, seen["run_until"] - begin, 0), 1)
        inside = np.maximum(end - np.maximum(begin, ts - lag_us), 0)
        whole = (begin > ts - lag_us).astype(np.int64)
        count = np.where(is_run, np.ceil(seen["run_count"] * np.minimum(inside / length, 1)).astype(np.int64), whole)
        refused = np.where(seen["error_code"] > 0, count, 0)
        return int(count.sum()), int(refused.sum()), last or None


class IsrRows:
    """The rows of one partition's ISR, added as they come and completed later."""

    def __init__(self) -> None:
        """Start empty."""
        self.fetches = RecentFetches()
        self.rows: list[dict[str, Any]] = []
        self.pending: dict[str, Any] | None = None  # the request in flight
        self.asked: dict[str, Any] | None = None  # the last request, whatever became of it
        self.flaps: list[dict[str, Any]] = []
        self.left: dict[int, dict[str, Any]] = {}
        self.times: dict[int, int] = {}
        self.away: dict[int, str] = {}  # brokers that are not alive, or about to go, and why
        self.live: frozenset[int] | None = None  # who could lead at the last decision; None: unknown

    def add(
        self,
        events: Events,
        told: list[dict[str, Any]],
        rows: list[dict[str, Any]],
        moves: list[dict[str, Any]],
        lag_us: int,
    ) -> None:
        """Take in events, those of `TOLD_KINDS` among them, and the fold's rows: in seq order, numbers throughout."""
        self.fetches.add(events)
        by_row: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for move in moves:
            by_row.setdefault((move["seq"], move["state"]), []).append(move)
        steps = [(row["seq"], 1, row) for row in rows] + [(event["seq"], 0, event) for event in told]
        for _, is_row, item in sorted(steps, key=lambda step: step[:2]):
            if is_row:
                self.add_row(item, by_row.get((item["seq"], item["state_code"]), []), lag_us)
            elif item["kind"] == "isr_request":
                self.note_request(item)
            else:
                self.note_who_is_away(item)
        self.fetches.forget(lag_us)

    def note_who_is_away(self, event: dict[str, Any]) -> None:
        """Note a broker that goes or comes back; a KRaft controller's decision shows whose log directory is lost."""
        broker = event["broker_id"]
        if event["kind"] == "partition_change":
            known = event["live"] is not None and event["metadata_offset"] is not None
            self.live = frozenset(event["live"]) if known else None
        elif event["fenced"]:
            self.away[broker] = "broker_away" if event["metadata_offset"] is None else "fenced"
        elif event["in_controlled_shutdown"]:
            self.away[broker] = "stopped"
        elif event["fenced"] is False:
            self.away.pop(broker, None)

    def note_request(self, event: dict[str, Any]) -> None:
        """Note what the leader requested, or learned about a request, according to a source."""
        held = self.pending
        if event["cause"].startswith("pending_"):
            self.throttled, self.stood_still_us = event["throttled"] or [], event["stood_still_us"] or 0
            self.noted = event["seq"]
            if held is not None and same_request(held, event):
                held["evidence"], held["asked_seq"] = "observed", event["seq"]
        elif held is not None and event["cause"] in ("reset", "refused", "retried"):
            held["error_code"] = event["error_code"]
            if event["cause"] != "retried":
                held["outcome"] = "rejected"
                self.pending = None

    throttled: Sequence[int] = ()
    stood_still_us: int = 0
    noted: int = -1  # seq of the newest request

    def add_row(self, row: dict[str, Any], moves: list[dict[str, Any]], lag_us: int) -> None:
        """Complete one row: whom it moved and why, and which request it begins or ends."""
        committed = row["state"] == "committed"
        self.settle(row)
        movers = [self.mover(row, move, lag_us) for move in moves] if row["isr_before"] else []
        row["movers"] = movers or None
        told = max(movers, key=lambda m: (m["ms_since_caught_up"] or 0, -m["broker_id"]), default=None)
        for name in ("leo_gap", "ms_since_caught_up", "remote_leo", "fetches_in_lag_time", "last_fetch_ts", "reason"):
            row[name] = told[name] if told is not None else None
        row.setdefault("outcome", None)
        row.setdefault("error_code", None)
        if committed:
            for mover in movers:
                self.note_flap(row, mover)
        else:
            row["asked_seq"] = self.noted if self.noted == row["seq"] else None  # `round_trips` asks for it
            self.pending = self.asked = row
        self.rows.append(row)

    def settle(self, row: dict[str, Any]) -> None:
        """Set the outcome of the request in flight, now that another row follows it."""
        held = self.pending
        if held is None:
            return
        if row["leader_epoch"] > held["leader_epoch"]:
            held["outcome"] = "new_leader_epoch"
        elif row["state"] == "committed" and row["isr"] == held["isr"]:
            held["outcome"] = "committed"
        else:
            held["outcome"] = "superseded"
        self.pending = None

    def mover(self, row: dict[str, Any], move: dict[str, Any], lag_us: int) -> dict[str, Any]:
        """One replica that joined or left: how far it was behind, what it had fetched, and why it moved."""
        replica, leader = move["replica"], move["leader"]
        count, refused, last = 0, 0, None
        if leader is not None and leader != replica:
            count, refused, last = self.fetches.before(row["seq"], row["ts"], (leader, replica), lag_us)
        is_told = leader is not None and leader != replica and self.fetches.is_heard(leader, row["seq"])
        known = (count, refused) if is_told else None
        return {
            "broker_id": replica,
            "joined": move["joined"],
            "reason": self.why_joined(row, move) if move["joined"] else self.why_left(row, move, known, lag_us),
            "remote_leo": move["remote"],
            "leo_gap": move["gap"],
            "ms_since_caught_up": None if move["us"] is None else move["us"] // 1000,
            "fetches_in_lag_time": None if known is None else count,
            "last_fetch_ts": last,
        }

    def asked_before(self, row: dict[str, Any], replica: int) -> dict[str, Any] | None:
        """The replica's entry in the request that a committed row grants; None if there is none."""
        held = self.asked
        if held is None or held["leader_epoch"] != row["leader_epoch"] or held["isr"] != row["isr"]:
            return None
        return next((mover for mover in held["movers"] or () if mover["broker_id"] == replica), None)

    def why_left(self, row: dict[str, Any], move: dict[str, Any], fetched: tuple[int, int] | None, lag_us: int) -> str:
        """Reason of a removal, from the closed list in `schemas.tables`.

        A leader that stood still finds every replica late; that is the reason if they would not have been late
        otherwise.
        """
        replica = move["replica"]
        if row["state"] == "committed":
            if row["change"] in BY_CONTROLLER:
                return BY_CONTROLLER[row["change"]]
            before = self.asked_before(row, replica)
            if before is not None:
                return str(before["reason"])
            absent = self.live is not None and replica not in self.live
            if absent or row["change"] != "shrink":
                return self.away.get(replica, "log_directory" if absent else "left_by_controller")
        elif self.stood_still_us and (move["us"] or 0) - self.stood_still_us <= lag_us:
            return "leader_stood_still"
        elif replica in self.throttled:
            return "throttled"
        if fetched is None:
            return "unknown"
        count, refused = fetched
        if not count:
            return "no_fetches"
        return "fetch_errors" if 2 * refused >= count else "fetching_but_behind"

    def why_joined(self, row: dict[str, Any], move: dict[str, Any]) -> str:
        """Which condition of an expansion became true last."""
        if row["state"] == "committed":
            before = self.asked_before(row, move["replica"])
            if before is not None:
                return str(before["reason"])
            return "unknown" if row["change"] == "expand" else "by_controller"
        return next((word for bit, word in BLOCKS if move["blocked"] & bit), "asked_again")

    def note_flap(self, row: dict[str, Any], mover: dict[str, Any]) -> None:
        """Note a removal, or complete it to a flap when the replica is back."""
        replica = mover["broker_id"]
        if not mover["joined"]:
            self.left[replica] = {"row": row, "mover": mover}
            return
        gone = self.left.pop(replica, None)
        if gone is None:
            return
        self.times[replica] = self.times.get(replica, 0) + 1
        out_us = row["ts"] - gone["row"]["ts"]
        is_told = out_us >= 0  # else the clocks of two brokers disagree by more than it was out
        self.flaps.append(
            {
                "seq": gone["row"]["seq"],
                "broker_id": replica,
                "leader_id": gone["row"]["leader_id"],
                "leader_epoch": gone["row"]["leader_epoch"],
                "left_ts": gone["row"]["ts"],
                "back_ts": row["ts"],
                "back_seq": row["seq"],
                "back_leader_id": row["leader_id"],
                "out_ms": out_us // 1000 if is_told else None,
                "times": self.times[replica],
                "left_reason": gone["mover"]["reason"],
                "back_reason": mover["reason"],
                "evidence": row["evidence"] if is_told else max(row["evidence"], "bounded", key=EVIDENCE.index),
            }
        )


def same_request(row: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether a pending row is what an event of the leader requests."""
    return (
        row["state"] == event["cause"]
        and row["leader_epoch"] == event["leader_epoch"]
        and sorted(row["isr"]) == sorted(event["isr"] or [])
    )


def movers_of(found: Records[MoverRow], brokers: Sequence[int]) -> list[dict[str, Any]]:
    """The moved replicas, with broker ids and nulls."""
    out = []
    for values in zip(*(found[name].tolist() for name in fields_of(MoverRow)), strict=True):
        move = dict(zip(fields_of(MoverRow), values, strict=True))
        out.append(
            {
                **{name: None if move[name] == UNSET else move[name] for name in ("remote", "gap", "us")},
                "seq": move["seq"],
                "state": move["state"],
                "replica": brokers[move["replica"]],
                "joined": bool(move["joined"]),
                "leader": brokers[move["leader"]] if move["leader"] >= 0 else None,
                "blocked": move["blocked"],
            }
        )
    return out


def rows_told(at: Records[IsrRow], brokers: Sequence[int], changes: Mapping[int, str]) -> list[dict[str, Any]]:
    """Turn the fold's rows into what `IsrRows` takes: broker ids for indices, words for codes.

    `changes`: seq of a decision -> what it changed.
    """
    leaders = [brokers[b] if b >= 0 else None for b in at["leader"].tolist()]
    isrs, befores = ([members_of(mask, brokers) for mask in at[name].tolist()] for name in ("isr", "isr_before"))
    found = []
    for k, (seq, ts, epoch, partition_epoch, state, under, evidence) in enumerate(
        zip(*(at[n].tolist() for n in ISR_NUMBERS), strict=True)
    ):
        moved = set(isrs[k] or ()) ^ set(befores[k] or isrs[k] or ())
        change = changes.get(seq) if state == c.ISR_COMMITTED else ("", "expand", "shrink")[state]
        found.append(
            {
                "seq": seq,
                "ts": ts,
                "leader_id": leaders[k],
                "leader_epoch": epoch,
                "partition_epoch": partition_epoch if partition_epoch >= 0 else None,
                "isr": isrs[k],
                "isr_before": befores[k],
                "state": c.ISR_STATES[state],
                "state_code": state,
                "change": change or "other",
                "broker_id": min(moved) if len(moved) == 1 else None,
                "under_min_isr": None if under < 0 else bool(under),
                "evidence": EVIDENCE[evidence],
            }
        )
    return found


def members_of(mask: int, brokers: Sequence[int]) -> list[int] | None:
    """The broker ids of a bit mask, sorted; UNSET as null."""
    return None if mask == UNSET else sorted(b for k, b in enumerate(brokers) if mask & (1 << k))
