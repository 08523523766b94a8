"""Spans in which a partition was one failure away from a loss: rows of `partition_risk`.

The controller's decisions and min.insync.replicas begin and end a span. What was acknowledged during it is counted from
the answers. What only the leader had is its LEO minus the furthest offset from which a follower has fetched in its
epoch, or minus its own start offset in that epoch, which others may have reached. A topic with one replica is at risk
by choice and has no spans. As long as nothing is known of a partition, its brokers may have been off; such silences do
not count as time at risk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from replay.evidence.tenures import micros
from replay.losses.slots import spans_of
from replay.protocol.state import BOUNDED, ROLE_LEADER
from schemas.model import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.arrays.ints import Ints
    from replay.arrays.records import Records
    from replay.engine.emit import LeoRow
    from replay.losses.story import Row
    from replay.protocol.state import State

LEADERLESS, ISR_ONE, UNDER_MIN_ISR, BY_ONE = "leaderless", "isr_one", "under_min_isr", "acknowledged_by_one"


@dataclass(slots=True)
class Decided:
    """The state of the partition: the controller's last decision, and the setting in force."""

    leader: int | None = None
    epoch: int = -1
    isr: list[int] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    min_isr: int | None = None
    deleted: bool = False

    @property
    def needed(self) -> int | None:
        """min.insync.replicas, at most the number of replicas; None if unknown."""
        return None if self.min_isr is None else min(self.min_isr, len(self.replicas))

    def states(self) -> list[str]:
        """Which risks exist now."""
        if self.deleted or self.epoch < 0:
            return []
        if self.leader is None:
            return [LEADERLESS]
        alone = [ISR_ONE] if len(self.isr) == 1 < len(self.replicas) else []
        return alone + ([UNDER_MIN_ISR] if len(self.isr) < (self.needed or 0) else [])


INTERNAL = ("first_alone", "next_epoch", "silent_us")
SILENT_US = 600_000_000  # after a longer silence about the partition, its brokers may have been off


class RiskSpans:
    """The spans of one partition, as its events come."""

    def __init__(self) -> None:
        """Start with nothing at risk and nothing decided."""
        self.now = Decided()
        self.open: dict[str, dict[str, Any]] = {}
        self.rows: list[dict[str, Any]] = []
        self.appended = False  # whether any append is known
        # the furthest offset that a follower has, or the leader began with; None: unknown
        self.covered: int | None = None
        self.leo = 0  # the leader's LEO
        self.told_us = 0  # when anything was last reported

    def pass_time(self, stamps: Ints) -> None:
        """Note that something was reported at each of these times (microseconds); long silences are no time at risk."""
        told = np.maximum.accumulate(np.concatenate([[self.told_us], stamps]))
        if self.open:
            for place in np.flatnonzero(np.diff(told) > SILENT_US).tolist():
                for span in self.open.values():
                    span["silent_us"] += int(told[place + 1] - max(told[place], span["start_ts"]))
        self.told_us = int(told[-1])

    def decide(self, event: Row, s: State, brokers: Sequence[int]) -> None:
        """Apply a decision, a setting or the topic's removal; `s` is the state before it."""
        self.pass_time(np.array([micros(event["ts"])]))
        before = self.now
        now = Decided(before.leader, before.epoch, before.isr, before.replicas, before.min_isr)
        if event["kind"] == "config_change":
            if event["min_insync_replicas"] is not None:
                now.min_isr = event["min_insync_replicas"] or None
        elif event["kind"] == "topic_change":
            now.deleted = event["cause"] == "remove"
        else:
            leader = event["leader_id"]
            now.leader = leader if leader is not None and leader >= 0 else None
            now.epoch = event["leader_epoch"] if event["leader_epoch"] is not None else before.epoch
            now.isr = sorted(event["isr"]) if event["isr"] is not None else before.isr
            now.replicas = event["replicas"] or before.replicas
        self.now = now
        states = now.states()
        anew = now.epoch != before.epoch
        for state in [one for one in self.open if one not in states or (anew and one != LEADERLESS)]:
            self.close(state, event, ending(before, now, event))
        if states and not self.open:
            self.look(s, brokers)
        for state in states:
            if state not in self.open:
                self.begin(state, event)

    def begin(self, state: str, event: Row) -> None:
        """Begin a span; what only the leader has already counts from the start."""
        ahead = 0 if self.covered is None else max(self.leo - self.covered, 0)
        self.open[state] = {
            "seq": event["seq"],
            "state": state,
            "start_ts": micros(event["ts"]),
            "end_ts": None,
            "seconds": None,
            "end_seq": None,
            "ended_by": None,
            "leader_id": self.now.leader,
            "leader_epoch": self.now.epoch,
            "isr": self.now.isr,
            "min_isr": self.now.needed,
            "acked_all": 0,
            "acked_one": 0,
            "records_at_risk": ahead,
            "first_alone": None,
            "next_epoch": None,
            "silent_us": 0,
            "evidence": event["evidence"],
        }

    def look(self, s: State, brokers: Sequence[int]) -> None:
        """Note the leader's LEO and what it knows its followers to have, once it has taken up the epoch."""
        self.covered = None
        if self.now.leader not in brokers:
            return
        b = brokers.index(self.now.leader)
        if s.role[b] != ROLE_LEADER or s.epoch[b] != self.now.epoch:
            return
        starts = [span.first for span in spans_of(s, b) if span.epoch == self.now.epoch]
        if not starts and s.leo_evidence[b] >= BOUNDED:
            return  # where its log ends is unknown until its first append
        others = [int(s.remote_leo[b, r]) for r in range(len(brokers)) if r != b]
        self.covered, self.leo = max([*(starts or [int(s.leo[b])]), *others]), int(s.leo[b])

    def advance(self, at: Records[LeoRow], s: State, brokers: Sequence[int]) -> None:
        """Apply LEO moves up to the state `s`, all under one decision."""
        if not self.open or self.now.leader is None:
            return
        if self.covered is None:
            self.look(s, brokers)
            return
        mine = at["epoch"] == self.now.epoch
        own = mine & (at["observer"] == 0) & (at["broker"] == brokers.index(self.now.leader))
        told = mine & (at["observer"] == 1)
        if not (own | told).any():
            return
        leo = np.maximum.accumulate(np.where(own, np.maximum(at["leo"], self.leo), self.leo))
        covered = np.maximum.accumulate(np.where(told, np.maximum(at["leo"], self.covered), self.covered))
        most = int((leo - covered).max())
        for span in self.open.values():
            span["records_at_risk"] = max(span["records_at_risk"], most)
        self.leo, self.covered = max(self.leo, int(leo[-1])), max(self.covered, int(covered[-1]))

    def ack(self, row: Row) -> None:
        """Count an `ack` event in the open spans if the epoch's leader answered without error."""
        if not self.open or row["error_code"] != 0 or row["duplicate"] or row["leader_epoch"] != self.now.epoch:
            return
        if row["acks"] not in (-1, 1) or row["next_offset"] is None:
            return
        count = row["next_offset"] - row["base_offset"]
        for span in self.open.values():
            span["acked_all" if row["acks"] == -1 else "acked_one"] += count
        alone = self.open.get(ISR_ONE)
        if alone is not None and row["acks"] == -1 and alone["first_alone"] is None:
            alone["first_alone"] = (row["seq"], micros(row["ts"]), row["evidence"])

    def close(self, state: str, event: Row, how: str) -> None:
        """End a span."""
        span = self.open.pop(state)
        end = max(micros(event["ts"]), span["start_ts"])
        weaker = max(span["evidence"], event["evidence"], key=EVIDENCE.index)
        ended = {"end_ts": end, "end_seq": event["seq"], "ended_by": how, "next_epoch": self.now.epoch}
        self.add({**span, **ended, "evidence": weaker})

    def add(self, span: dict[str, Any]) -> None:
        """Add rows for a span: itself, and the part since one replica first acknowledged an acks=all batch alone."""
        spans = [span]
        if span["first_alone"] is not None:
            seq, ts, evidence = span["first_alone"]
            weaker = max(span["evidence"], evidence, key=EVIDENCE.index)
            spans.append({**span, "state": BY_ONE, "seq": seq, "start_ts": ts, "evidence": weaker})
        for one in spans:
            if one["end_ts"] is not None:
                one["end_ts"] = max(one["end_ts"], one["start_ts"])
                one["seconds"] = max(one["end_ts"] - one["start_ts"] - one["silent_us"], 0) / 1e6
            if one["silent_us"]:
                one["evidence"] = max(one["evidence"], "bounded", key=EVIDENCE.index)
            self.rows.append(one)

    def finish(self, incidents: Iterable[dict[str, Any]], *, produced: bool) -> list[dict[str, Any]]:
        """All rows, in order. `produced`: whether any produce line was seen, so that answers are known."""
        for state in list(self.open):
            self.add(self.open.pop(state))
        lost = {row["new_leader_epoch"]: row["incident_id"] for row in incidents}
        by_old: dict[int, str] = {}
        for row in incidents:
            by_old.setdefault(row["old_leader_epoch"], row["incident_id"])
        out = []
        for row in sorted(self.rows, key=lambda row: (row["seq"], row["state"])):
            led = row["leader_id"] is not None
            ended = row["ended_by"] in ("leader_lost", "leader_changed", "elected")
            answers = {} if produced else {"acked_all": None, "acked_one": None}
            at_risk = row["records_at_risk"] if led and self.appended else None
            found = by_old.get(row["leader_epoch"]) if led else lost.get(row["next_epoch"])
            more = {"records_at_risk": at_risk, "incident_id": found if ended else None}
            out.append({name: value for name, value in {**row, **answers, **more}.items() if name not in INTERNAL})
        return out


def ending(before: Decided, now: Decided, event: Row) -> str:
    """What ended a span that existed before the event."""
    if now.deleted:
        return "topic_deleted"
    if event["kind"] == "config_change":
        return "min_isr_lowered"
    if now.epoch == before.epoch:
        return "expanded" if len(now.isr) > len(before.isr) else "other"
    if before.leader is None:
        return "elected" if now.leader is not None else "other"
    if now.leader is None:
        return "leader_lost"
    return "leader_changed" if now.leader != before.leader else "elected"
