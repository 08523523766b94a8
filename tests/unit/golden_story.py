"""Short stories of the protocol, told in a small language and carried out by the engine: `render` adds the state.

A story is a text: `#` comments, events at the margin, and below each event, indented, what came of it and the state
after it. The storyteller plays only the network (who gets which answer, when a fetch is parked, which client hears of
its batch) and asks the engine's own rules wherever a broker decides; every move of a state is the engine's `apply`.

    version 2.3.1 [protocol 0.10.2]   begins a cluster; then `brokers A B C`, optionally `min isr 2`, `lag 10 s`
    A leads 0, isr A B                B follows A in 0              assigned A B C
    A appends m0 m1 [acks all]        B fetches [and the read fails | and the answer is lost]
    500 ms pass                       B asks where its epoch ends   A deletes records up to 2
    A asks for isr A B                A commits isr A B             C is fenced | unfenced | stopping
    B dies                            B starts [with leo 1] [hw 0]

State of a broker: role and leader epoch, LEO, HW, log start where it is not 0, its log as `epoch: records`. A leader
adds its ISR (`+C`: asked in and not answered) and its record of each follower's LEO (`?` unknown).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from small_partition import event

from replay.engine import apply as engine
from replay.engine import codes as c
from replay.engine.moves import new_moves
from replay.protocol.high_watermark import is_under_min_isr, leader_low_watermark
from replay.protocol.log import diverges, diverging_target, end_offset_for
from replay.protocol.profile import Profile, profile_named
from replay.protocol.state import NONE, ROLE_FOLLOWER, ROLE_LEADER, ROLE_NONE, UNSET, State, new_state
from replay.protocol.steps import answered_hw, leader_owes_hw

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1000
FETCH_WAIT_US = 500 * MS
WIDTH = 118
STORAGE_ERROR, OUT_OF_RANGE, NOT_LEADER, FENCED, UNKNOWN_EPOCH = 56, 1, 6, 74, 76
WHY = {
    STORAGE_ERROR: "the read fails",
    OUT_OF_RANGE: "offset out of range",
    NOT_LEADER: "not the leader",
    FENCED: "leader epoch is older than the leader's",
    UNKNOWN_EPOCH: "leader epoch is newer than the leader's",
}


@dataclass
class Parked:
    """A fetch that waits for bytes."""

    leader: int
    offset: int
    until: int
    lost: bool  # whether its answer will be


@dataclass
class Story:
    """A small cluster in the making."""

    profile: Profile
    names: list[str] = field(default_factory=list)
    state: State = field(default_factory=lambda: new_state(0, min_isr=1, lag_us=0))
    logs: list[list[str]] = field(default_factory=list)  # every broker's records, from offset 0 on
    parked: dict[int, Parked] = field(default_factory=dict)
    waiting: list[tuple[int, int, str]] = field(default_factory=list)  # leader, HW needed, records (acks=all)
    down: set[int] = field(default_factory=set)
    now: int = 1_000_000_000
    said: list[str] = field(default_factory=list)

    # -- what events are made of

    def broker(self, name: str) -> int:
        return self.names.index(name)

    def mask(self, names: str) -> int:
        return sum(1 << self.broker(name) for name in re.findall(r"\w+", names))

    def listed(self, mask: int) -> str:
        return ",".join(name for b, name in enumerate(self.names) if mask & (1 << b))

    def apply(self, kind: int, **fields: int) -> None:
        """One event meets the engine. A story holds nothing that the engine would have to correct."""
        verdict = engine.apply(self.state, self.profile, event(kind, ts=self.now, **fields), new_moves())
        if verdict != c.OK:
            self.said.append("the engine objects: " + ("", "state corrected", "rule broken")[verdict])
        for b, log in enumerate(self.logs):
            del log[int(self.state.leo[b]) :]

    def leads(self, b: int) -> bool:
        return bool(self.state.role[b] == ROLE_LEADER) and b not in self.down

    # -- events

    def brokers(self, names: str) -> None:
        self.names = names.split()
        self.logs = [[] for _ in self.names]
        self.state = new_state(len(self.names), min_isr=1, lag_us=30_000 * MS)
        self.assigned(names)

    def assigned(self, names: str) -> None:
        self.apply(c.PARTITION_CHANGE, replicas=self.mask(names))

    def minimum(self, count: str) -> None:
        self.apply(c.CONFIG_CHANGE, min_insync_replicas=int(count))

    def lag(self, seconds: str) -> None:
        self.apply(c.CONFIG_CHANGE, replica_lag_us=int(seconds) * 1000 * MS)

    def become_leader(self, name: str, epoch: str, isr: str) -> None:
        b = self.broker(name)
        if not self.leads(b):
            self.leave(b)
        self.apply(c.ROLE_CHANGE, broker=b, leader=b, leader_epoch=int(epoch), role=ROLE_LEADER, isr=self.mask(isr))

    def become_follower(self, name: str, leader: str, epoch: str) -> None:
        b, before = self.broker(name), int(self.state.leo[self.broker(name)])
        self.leave(b)
        self.apply(c.ROLE_CHANGE, broker=b, leader=self.broker(leader), leader_epoch=int(epoch), role=ROLE_FOLLOWER)
        if self.state.leo[b] < before:
            self.said.append(f"{name} cuts its log to its HW: {before} to {self.state.leo[b]}")

    def leave(self, b: int) -> None:
        """Whatever waits at b or for b's old role is over."""
        self.parked = {r: p for r, p in self.parked.items() if b not in (r, p.leader)}
        for leader, _, records in self.waiting:
            if leader == b:
                self.said.append(f"{records}: never acknowledged")
        self.waiting = [w for w in self.waiting if w[0] != b]

    def append(self, name: str, records: str, acks: str) -> None:
        b, s = self.broker(name), self.state
        if acks == "all" and is_under_min_isr(s, b):
            self.said.append("refused: fewer in sync than min.insync.replicas")
            return
        self.logs[b] += records.split()
        epoch, end = int(s.epoch[b]), int(s.leo[b]) + len(records.split())
        self.apply(c.APPEND, broker=b, leader_epoch=epoch, next_offset=end)
        if acks == "1":
            self.said.append(f"{records}: acknowledged")
        elif acks == "all":
            self.waiting.append((b, end, records))
        for r in sorted(self.parked):
            if self.parked[r].leader == b:
                self.complete(r)

    def fetch(self, name: str, mishap: str) -> None:
        """A follower's fetch reaches its leader: refused, answered at once, or parked."""
        s, r = self.state, self.broker(name)
        b, offset = int(s.follows[r]), int(s.leo[r])
        if b in self.down:
            self.said.append("nobody answers")
            return
        self.parked.pop(r, None)
        error = STORAGE_ERROR if mishap == "the read fails" else self.refusal(b, r)
        place = {"broker": b, "replica": r, "leader_epoch": int(s.epoch[b]), "fetch_offset": offset}
        place["follower_log_start_offset"] = int(s.log_start[r])
        if error:
            self.apply(c.FETCH_UPDATE, **place, error_code=error)
            self.said.append(f"{self.names[b]} refuses: {WHY[error]}")
            if error == OUT_OF_RANGE:
                self.reset(r, b)
            return
        if self.logs_part(b, r):
            end = end_offset_for(s, self.profile, b, self.last_epoch(r))
            self.apply(c.FETCH_UPDATE, **place, diverging_epoch=end[0], diverging_end_offset=end[1])
            self.cut(r, b, end, c.CAUSE_DIVERGING)
            return
        lost = mishap == "the answer is lost"
        records, hw_read, owed = int(s.leo[b]) - offset, int(s.hw[b]), leader_owes_hw(s, self.profile, b, r)
        self.apply(c.FETCH_UPDATE, **place)
        if records or owed:
            self.answer(r, b, answered_hw(self.profile, hw_read, int(s.hw[b])), lost=lost)
        elif leader_owes_hw(s, self.profile, b, r):
            self.answer(r, b, int(s.hw[b]), lost=lost)
        else:
            self.parked[r] = Parked(b, offset, self.now + FETCH_WAIT_US, lost)
            self.said.append(f"{name} waits: nothing beyond {offset}")

    def refusal(self, b: int, r: int) -> int:
        """Error that leader b answers to r's fetch; 0 none."""
        s = self.state
        if not self.leads(b):
            return NOT_LEADER
        if s.epoch[r] != s.epoch[b]:
            return FENCED if s.epoch[r] < s.epoch[b] else UNKNOWN_EPOCH
        if s.log_start[b] <= s.leo[r] and self.logs_part(b, r):
            return 0
        return 0 if s.log_start[b] <= s.leo[r] <= s.leo[b] else OUT_OF_RANGE

    def logs_part(self, b: int, r: int) -> bool:
        """Whether r's fetch names an epoch of which its leader says that it ends earlier."""
        last, p = self.last_epoch(r), self.profile
        return bool(p.truncate_on_fetch) and last != NONE and diverges(self.state, p, b, last, int(self.state.leo[r]))

    def last_epoch(self, b: int) -> int:
        n = int(self.state.cache_len[b])
        return int(self.state.cache_epoch[b, n - 1]) if n else NONE

    def answer(self, r: int, b: int, hw: int, *, lost: bool) -> None:
        """Steps 7 to 9: records up to b's LEO and an HW on their way to r."""
        s, first = self.state, int(self.state.leo[r])
        sent = self.logs[b][first : int(s.leo[b])]
        self.said.append(f"{self.names[b]} answers {self.names[r]}: {' '.join(sent) or 'nothing new'}, hw {hw}")
        if lost:
            self.said.append("lost on the way")
            return
        self.logs[r] += sent
        self.apply(
            c.FETCH_APPLY, broker=b, replica=r, leader_epoch=int(s.epoch[b]), next_offset=first + len(sent), hw=hw,
            log_start_offset=int(s.log_start[b]),
        )  # fmt: skip

    def complete(self, r: int) -> None:
        """A parked fetch is read again and answered."""
        parked = self.parked.pop(r)
        self.answer(r, parked.leader, int(self.state.hw[parked.leader]), lost=parked.lost)

    def reset(self, r: int, b: int) -> None:
        """Out of range: the follower asks for its leader's end, then for its start."""
        s = self.state
        target = int(s.leo[b]) if s.leo[b] < s.leo[r] else max(int(s.log_start[b]), int(s.leo[r]))
        before = int(s.leo[r])
        if target > before:
            self.logs[r] = self.logs[b][:target]
        self.apply(c.TRUNCATION, broker=r, leader_epoch=int(s.epoch[r]), truncate_to=target, cause=c.CAUSE_OUT_OF_RANGE)
        what = "drops its log and starts" if target > before else "cuts its log" if target < before else "stays"
        self.said.append(f"{self.names[r]} {what} at {target}")

    def ask_epoch_end(self, name: str) -> None:
        """OffsetsForLeaderEpoch (0.11+): where does my last epoch end in your log?"""
        s, r = self.state, self.broker(name)
        b, last = int(s.follows[r]), self.last_epoch(r)
        end = end_offset_for(s, self.profile, b, last) if last != NONE else (NONE, NONE)
        self.cut(r, b, end, c.CAUSE_LEADER_EPOCH)

    def cut(self, r: int, b: int, end: tuple[int, int], cause: int) -> None:
        """The follower is told where an epoch ends in its leader's log."""
        s, before = self.state, int(self.state.leo[r])
        epoch, offset = (int(v) for v in end)
        _, done = diverging_target(s, self.profile, r, epoch, offset)
        told = f"epoch {epoch} ends at {offset}" if self.profile.epoch_end_names_epoch else f"it ends at {offset}"
        self.said.append(f"{self.names[b]} says: {told if offset != NONE else 'unknown'}")
        self.apply(
            c.TRUNCATION,
            broker=r,
            leader_epoch=int(s.epoch[r]),
            diverging_epoch=epoch,
            diverging_end_offset=offset,
            cause=cause,
        )
        what = f"cuts its log: {before} to {s.leo[r]}" if s.leo[r] < before else "cuts nothing"
        again = "" if done or cause == c.CAUSE_DIVERGING else ", and asks again"
        self.said.append(f"{self.names[r]} {what}{again}")

    def pass_time(self, count: str, unit: str) -> None:
        self.now += int(count) * MS * (1000 if unit == "s" else 1)
        for r in sorted(self.parked):
            if self.parked[r].until <= self.now:
                self.complete(r)

    def delete_records(self, name: str, offset: str) -> None:
        b = self.broker(name)
        if int(offset) > self.state.hw[b]:
            self.said.append("refused: beyond the HW")
            return
        self.apply(c.LOG_START_CHANGE, broker=b, log_start_offset=int(offset))

    def ask_isr(self, name: str, isr: str) -> None:
        b = self.broker(name)
        grows = self.mask(isr) & ~int(self.state.isr[b])
        value = c.ISR_PENDING_EXPAND if grows else c.ISR_PENDING_SHRINK
        self.apply(
            c.ISR_REQUEST, broker=b, leader_epoch=int(self.state.epoch[b]), isr=self.mask(isr), isr_request=value
        )

    def commit_isr(self, name: str, isr: str) -> None:
        b = self.broker(name)
        fields = {"leader_epoch": int(self.state.epoch[b]), "isr": self.mask(isr)}
        self.apply(c.ISR_REQUEST, broker=b, isr_request=c.ISR_COMMITTED, **fields)

    def register(self, name: str, what: str) -> None:
        value = {"fenced": {"fenced": 1}, "unfenced": {"fenced": 0}, "stopping": {"in_controlled_shutdown": 1}}[what]
        self.apply(c.BROKER_CHANGE, broker=self.broker(name), **value)

    def die(self, name: str) -> None:
        self.leave(self.broker(name))
        self.down.add(self.broker(name))

    def start(self, name: str, leo: str, hw: str) -> None:
        b = self.broker(name)
        self.down.discard(b)
        self.apply(c.LOG_LOAD, broker=b, leo=int(leo) if leo else UNSET, hw=int(hw) if hw else UNSET)

    # -- the state in words

    def acknowledge(self) -> None:
        """Producers with acks=all hear of it once the leader's HW has passed their records."""
        for waiting in list(self.waiting):
            leader, needed, records = waiting
            if self.state.hw[leader] >= needed:
                self.waiting.remove(waiting)
                self.said.append(f"{records}: acknowledged")

    def log_of(self, b: int) -> str:
        s, spans = self.state, []
        n = int(s.cache_len[b])
        for k in range(n):
            first = int(s.cache_start[b, k])
            end = int(s.leo[b]) if k == n - 1 else int(s.cache_start[b, k + 1])
            records = " ".join(self.logs[b][max(first, int(s.log_start[b])) : end])
            spans.append(f"{s.cache_epoch[b, k]}: {records}" if records else "")
        return "; ".join(span for span in spans if span)

    def broker_state(self, b: int) -> str:
        s, name = self.state, self.names[b]
        if b in self.down:
            role = "is down"
        else:
            word = {ROLE_NONE: "has no role", ROLE_FOLLOWER: "follows", ROLE_LEADER: "leads"}[int(s.role[b])]
            role = word if s.role[b] == ROLE_NONE else f"{word} {s.epoch[b]}"
        parts = [f"{name} {role}: leo {s.leo[b]} hw {s.hw[b]}"]
        if s.log_start[b]:
            parts.append(f"start {s.log_start[b]}")
        if self.leads(b):
            asked = int(s.maximal_isr[b]) & ~int(s.isr[b])
            pending = f"+{self.listed(asked)}" if asked else " pending" if s.pending[b] else ""
            parts.append(f"isr {self.listed(int(s.isr[b]))}{pending}")
            others = [r for r in range(len(self.names)) if r != b and s.partition[0].assigned & (1 << r)]
            remote = [f"{self.names[r]} {s.remote_leo[b, r] if s.remote_leo[b, r] >= 0 else '?'}" for r in others]
            parts.append(f"[{' '.join(remote)}]" if remote else "")
            if s.log_start[b]:
                parts.append(f"low watermark {leader_low_watermark(s, b)}")
        log = self.log_of(b)
        return " ".join(part for part in [*parts, f"({log})" if log else ""] if part)

    def told(self) -> list[str]:
        """What the last event came to, and the state after it."""
        self.acknowledge()
        lines = [f"    -> {line}" for line in self.said]
        self.said = []
        states = [self.broker_state(b) for b in range(len(self.names)) if self.state.partition[0].assigned & (1 << b)]
        one = "    " + "   ".join(states)
        return [*lines, one] if len(one) <= WIDTH else [*lines, *(f"    {state}" for state in states)]


LANGUAGE: list[tuple[str, Callable[..., None]]] = [
    (r"brokers (.+)", Story.brokers),
    (r"assigned (.+)", Story.assigned),
    (r"min isr (\d+)", Story.minimum),
    (r"lag (\d+) s", Story.lag),
    (r"(\w+) leads (\d+), isr (.+)", Story.become_leader),
    (r"(\w+) follows (\w+) in (\d+)", Story.become_follower),
    (r"(\w+) appends ([\w ]+?)(?: acks (all|0|1))?", Story.append),
    (r"(\w+) fetches(?: and (the read fails|the answer is lost))?", Story.fetch),
    (r"(\w+) asks where its epoch ends", Story.ask_epoch_end),
    (r"(\d+) (ms|s) pass", Story.pass_time),
    (r"(\w+) deletes records up to (\d+)", Story.delete_records),
    (r"(\w+) asks for isr (.+)", Story.ask_isr),
    (r"(\w+) commits isr (.+)", Story.commit_isr),
    (r"(\w+) is (fenced|unfenced|stopping)", Story.register),
    (r"(\w+) dies", Story.die),
    (r"(\w+) starts(?: with leo (\d+))?(?: hw (\d+))?", Story.start),
]
SETTINGS = (Story.minimum, Story.lag, Story.brokers)


def render(text: str) -> str:
    """A story with every outcome and state told anew by the engine."""
    out: list[str] = []
    story: Story | None = None
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        out.append(line)
        if not line or line.startswith("#"):
            continue
        version = re.fullmatch(r"version (\S+)(?: protocol (\S+))?", line)
        if version:
            story = Story(profile_named(version[1], version[2]))
            continue
        if story is None:
            raise ValueError("a story begins with its version")
        for pattern, event_of in LANGUAGE:
            found = re.fullmatch(pattern, line)
            if found:
                event_of(story, *(part or "" for part in found.groups()))
                story.now += MS
                if event_of not in SETTINGS:
                    out += story.told()
                break
        else:
            raise ValueError(f"not in the language: {line}")
    return "\n".join(out) + "\n"
