"""Short stories of the protocol, told in a small language and carried out by the engine: `render` adds the state.

A story is a text: `#` comments, events at the margin, and below each event, indented, what came of it and the state
after it. The storyteller plays only the network (who gets which answer, and which of them is lost) and asks the
engine's own rules wherever a broker decides: every move of a state is `apply`; whether a fetch is parked, what
completes it, and what commits a batch of acks=all is what the engine's purgatory says.

    version 2.3.1 [protocol 0.10.2]   begins a cluster; then `brokers A B C`, optionally `min isr 2`, `lag 10 s`
    A leads 0, isr A B                B follows A in 0              assigned A B C
    A appends m0 m1 [acks all]        B fetches [and the read fails | and the answer is lost]
    500 ms pass                       B asks where its epoch ends   A deletes records up to 2
    A asks for isr A B                A commits isr A B             C is fenced | unfenced | stopping | registered
    B dies                            B starts [with leo 1] [hw 0]

The state after an event is shown as `replay.engine.state_words` has it, records by the names that the story gave them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from small_partition import event

from replay.arrays.records import blank
from replay.engine import apply as engine
from replay.engine import codes as c
from replay.engine import completions as w
from replay.engine.moves import Moves, new_moves
from replay.engine.purgatory import (
    BY_APPEND,
    BY_FETCH,
    BY_ISR,
    BY_ROLE,
    N_OPEN,
    OpenBatch,
    Purgatory,
    new_purgatory,
    note_round,
    watch,
    with_room,
)
from replay.engine.state_words import partition_in_words
from replay.protocol.deletion import DELETES, OFFSET_OUT_OF_RANGE, deletion_guard
from replay.protocol.log import diverging_target, end_offset_for
from replay.protocol.produce import ACKS_ALL, NOT_ENOUGH_REPLICAS, produce_guard
from replay.protocol.profile import Profile, profile_named
from replay.protocol.state import DERIVED, NONE, ROLE_FOLLOWER, ROLE_LEADER, UNSET, State, new_state
from replay.protocol.steps import answered_hw

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
COMPLETED = {  # what ends a wait, or makes that there is none; records that are there need no word
    w.BYTES: "waited until there were records",
    w.HW_MOVED: "waited until there was a hw that it had not been told",
    w.TIMEOUT: "waited until its time was up",
    w.TRUNCATED_LEADER: "waited until its leader's log ended before its offset",
    w.HW_NOT_TOLD: "need not wait: there is a hw that it has not been told",
}
COMMITTED = {
    BY_FETCH: "by a fetch of {}",
    BY_APPEND: "by an append",
    BY_ISR: "by a change of the ISR",
    BY_ROLE: "as its leader takes up its role",
}


@dataclass
class Fetch:
    """A follower's fetch that its leader has taken."""

    leader: int
    replica: int
    offset: int
    taken: int
    lost: bool  # whether its answer will be


@dataclass
class Story:
    """A small cluster in the making."""

    profile: Profile
    names: list[str] = field(default_factory=list)
    state: State = field(default_factory=lambda: new_state(0, min_isr=1, lag_us=0))
    logs: list[list[str]] = field(default_factory=list)  # every broker's records, from offset 0 on
    purgatory: Purgatory = field(default_factory=lambda: new_purgatory(0))
    moves: Moves = field(default_factory=new_moves)
    parked: dict[int, Fetch] = field(default_factory=dict)
    waiting: list[tuple[int, int, str]] = field(default_factory=list)  # leader, end of the batch, records (acks=all)
    down: set[int] = field(default_factory=set)
    epochs: dict[int, int] = field(default_factory=dict)  # broker epochs, of those that registered in the story
    now: int = 1_000_000_000
    said: list[str] = field(default_factory=list)

    # -- what events are made of

    def broker(self, name: str) -> int:
        return self.names.index(name)

    def mask(self, names: str) -> int:
        return sum(1 << self.broker(name) for name in re.findall(r"\w+", names))

    def apply(self, kind: int, **fields: int) -> None:
        """One event meets the engine. A story holds nothing that the engine would have to correct."""
        s, e = self.state, event(kind, ts=self.now, **fields)
        verdict = engine.apply(s, self.profile, e, self.moves)
        self.purgatory = with_room(self.purgatory, len(self.names), 1)
        watch(self.purgatory, s, self.profile, e, self.moves)
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
        if acks == "all" and produce_guard(s, self.profile, b, ACKS_ALL) == NOT_ENOUGH_REPLICAS:
            self.said.append("refused: fewer in sync than min.insync.replicas")
            return
        self.logs[b] += records.split()
        epoch, base = int(s.epoch[b]), int(s.leo[b])
        end = base + len(records.split())
        self.apply(
            c.APPEND,
            broker=b,
            leader_epoch=epoch,
            next_offset=end,
            base_offset=base,
            acks={"all": -1, "1": 1}.get(acks, 0),
        )
        if acks == "1":
            self.said.append(f"{records}: acknowledged")
        elif acks == "all":
            self.waiting.append((b, end, records))

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
        place["replica_epoch"] = self.epochs.get(r, UNSET)
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
        fetch = Fetch(b, r, offset, self.now, lost=mishap == "the answer is lost")
        at_once, hw_read = self.completed(fetch), int(s.hw[b])
        self.apply(c.FETCH_UPDATE, **place)
        if at_once:
            self.answer(fetch, answered_hw(self.profile, hw_read, int(s.hw[b])))
        elif self.completed(fetch):
            self.answer(fetch, int(s.hw[b]))
        else:
            self.parked[r] = fetch
            self.said.append(f"{name} waits: nothing beyond {offset}")

    def completed(self, fetch: Fetch) -> bool:
        """Whether the purgatory lets a fetch go by now, for anything that this partition tells for sure."""
        s, b, r = self.state, fetch.leader, fetch.replica
        asked = blank(1, w.Asked)[0]
        asked.is_follower, asked.offset, asked.preferred_replica, asked.run_count = 1, fetch.offset, NONE, UNSET
        asked.bytes = asked.request_bytes = max(int(s.leo[b]) - fetch.offset, 0)  # a byte for each record
        asked.max_wait_us, asked.min_bytes, asked.ts = FETCH_WAIT_US, 1, self.now
        asked.wait_us = self.now - fetch.taken
        held = with_room(self.purgatory, len(self.names), 1)
        note_round(held, s, event(c.FETCH_READ, broker=b, replica=r))
        reason, known = w.completion(self.profile, asked, held.rounds[0])
        if known > DERIVED:
            return False
        if reason in COMPLETED:
            self.said.append(f"{self.names[r]} {COMPLETED[reason]}")
        return True

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
        """Whether r's fetch names an epoch that its leader lacks, or of which it says that it ends earlier."""
        s, p, last = self.state, self.profile, self.last_epoch(r)
        epoch, end = end_offset_for(s, p, b, last)
        return bool(p.truncate_on_fetch and last != NONE and (epoch < last or end < s.leo[r]))

    def last_epoch(self, b: int) -> int:
        n = int(self.state.cache_len[b])
        return int(self.state.cache_epoch[b, n - 1]) if n else NONE

    def answer(self, fetch: Fetch, hw: int) -> None:
        """Steps 7 to 9: records up to the leader's LEO and an HW on their way to the follower."""
        s, b, r = self.state, fetch.leader, fetch.replica
        first = int(s.leo[r])
        sent = self.logs[b][first : int(s.leo[b])]
        self.said.append(f"{self.names[b]} answers {self.names[r]}: {' '.join(sent) or 'nothing new'}, hw {hw}")
        if fetch.lost:
            self.said.append("lost on the way")
            return
        self.logs[r] += sent
        self.apply(
            c.FETCH_APPLY, broker=b, replica=r, leader_epoch=int(s.epoch[b]), next_offset=first + len(sent), hw=hw,
            log_start_offset=int(s.log_start[b]),
        )  # fmt: skip

    def complete(self) -> None:
        """Parked fetches that the last event has completed are read again and answered."""
        for r in sorted(self.parked):
            if self.completed(self.parked[r]):
                fetch = self.parked.pop(r)
                self.answer(fetch, int(self.state.hw[fetch.leader]))

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

    def delete_records(self, name: str, offset: str) -> None:
        b = self.broker(name)
        if deletion_guard(self.state, self.profile, b, int(offset), DELETES) == OFFSET_OUT_OF_RANGE:
            self.said.append("refused: beyond the HW")
            return
        epoch = int(self.state.epoch[b])
        self.apply(c.DELETE_RECORDS, broker=b, leader_epoch=epoch, error_code=0, requested_offset=int(offset))

    def ask_isr(self, name: str, isr: str) -> None:
        b = self.broker(name)
        grows = self.mask(isr) & ~int(self.state.isr[b])
        value = c.ISR_PENDING_EXPAND if grows else c.ISR_PENDING_SHRINK
        fields = {"leader_epoch": int(self.state.epoch[b]), "isr": self.mask(isr)}
        self.apply(c.ISR_REQUEST, broker=b, isr_request=value, **fields)

    def commit_isr(self, name: str, isr: str) -> None:
        b = self.broker(name)
        fields = {"leader_epoch": int(self.state.epoch[b]), "isr": self.mask(isr)}
        self.apply(c.ISR_REQUEST, broker=b, isr_request=c.ISR_COMMITTED, **fields)

    def register(self, name: str, what: str) -> None:
        b = self.broker(name)
        if what == "registered":
            self.epochs[b] = self.now // MS
            self.apply(c.BROKER_CHANGE, broker=b, broker_epoch=self.epochs[b], fenced=1)
            return
        value = {"fenced": {"fenced": 1}, "unfenced": {"fenced": 0}, "stopping": {"in_controlled_shutdown": 1}}[what]
        self.apply(c.BROKER_CHANGE, broker=b, **value)

    def die(self, name: str) -> None:
        self.leave(self.broker(name))
        self.down.add(self.broker(name))

    def start(self, name: str, leo: str, hw: str) -> None:
        b = self.broker(name)
        self.down.discard(b)
        self.apply(c.LOG_LOAD, broker=b, leo=int(leo) if leo else UNSET, hw=int(hw) if hw else UNSET)

    # -- the state in words

    def acknowledge(self) -> None:
        """Producers with acks=all hear of the batches that the purgatory finds committed."""
        for waiting in list(self.waiting):
            leader, end, records = waiting
            batch = self.open_batch(leader, end)
            if batch.commit_seq != UNSET:
                self.waiting.remove(waiting)
                cause = COMMITTED[int(batch.cause)].format(self.names[int(batch.replica)])
                self.said += [f"{records}: committed {cause}", f"{records}: acknowledged"]
                self.apply(c.ACK, broker=leader, leader_epoch=int(batch.epoch), next_offset=end, acks=-1)

    def open_batch(self, leader: int, end: int) -> OpenBatch:
        """The purgatory's row of a batch that is not answered."""
        rows = self.purgatory.open[: int(self.purgatory.filled[N_OPEN])]
        return rows[(rows["broker"] == leader) & (rows["end"] == end)][0]

    def records(self, b: int, first: int, end: int) -> str:
        """Records of b's log by the names that the story gave them."""
        return " ".join(self.logs[b][first:end])

    def told(self) -> list[str]:
        """What the last event came to, and the state after it."""
        self.complete()
        self.acknowledge()
        lines = [f"    -> {line}" for line in self.said]
        self.said = []
        states = partition_in_words(self.state, self.names, down=self.down, records=self.records)
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
    (r"(\w+) is (fenced|unfenced|stopping|registered)", Story.register),
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
