"""Random histories of a cluster of any Kafka version: the storyteller's cluster, with a controller that decides.

`golden_story` plays the network and asks the engine's rules wherever a broker decides; here a controller is added, and
brokers learn of what it decides one by one. Elections are clean and files intact. An action that cannot happen now is
passed over, so any list of actions is a history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from golden_story import Story

from replay.engine import codes as c
from replay.protocol.isr import NOTHING_PENDING
from replay.protocol.log import diverging_target, end_offset_for
from replay.protocol.profile import profile_named
from replay.protocol.state import NONE, ROLE_FOLLOWER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NAMES = ("A", "B", "C")
ACTIONS = (
    *("append",) * 5, *("append_all",) * 3, *("fetch",) * 24, *("lose_answer",) * 2, *("learn",) * 12, "shrink",
    *("decide",) * 5, *("hear",) * 5, "kill", *("start",) * 3, *("prefer",) * 2,
)  # fmt: skip


@dataclass
class RandomStory(Story):
    """A story whose next event is drawn by lot; `watch` is shown the story after each event of the engine."""

    watch: Callable[[RandomStory], None] = lambda _: None
    leader: int = 0  # the controller's
    epoch: int = 0
    members: int = 0b111
    told: dict[int, int] = field(default_factory=dict)  # the epoch that each broker was told of
    truncating: set[int] = field(default_factory=set)  # followers that have to ask where their last epoch ends
    wanted: dict[int, int] = field(default_factory=dict)  # leader -> the ISR that it asks for
    granted: dict[int, int] = field(default_factory=dict)  # leader -> the ISR that was decided, until it hears of it

    def begin(self) -> None:
        self.brokers(" ".join(NAMES))
        for b in range(len(NAMES)):
            self.learn(b)

    def apply(self, kind: int, **fields: int) -> None:
        super().apply(kind, **fields)
        assert not self.said or not self.said[-1].startswith("the engine objects"), self.said
        self.watch(self)

    def refusal(self, b: int, r: int) -> int:
        """Before KIP-320 a leader does not ask in which epoch a fetch believes."""
        if self.leads(b) and not self.profile.fetch_names_epoch and self.state.leo[r] <= self.state.leo[b]:
            return 0
        return super().refusal(b, r)

    # -- the controller

    def elect(self, leader: int) -> None:
        """The ISR of an election: its live members."""
        live = self.members & ~sum(1 << b for b in self.down)
        self.leader, self.epoch = leader, self.epoch + 1
        self.members = live or self.members
        self.granted.clear()

    def first_live(self) -> int:
        return next((b for b in range(len(NAMES)) if self.members & (1 << b) and b not in self.down), NONE)

    def is_current(self, b: int) -> bool:
        """Whether b leads in the controller's epoch too."""
        return self.leads(b) and b == self.leader and int(self.state.epoch[b]) == self.epoch

    # -- actions

    def learn(self, b: int) -> None:
        """A broker is told of the newest epoch."""
        if b in self.down or self.leader == NONE or self.told.get(b, -1) >= self.epoch:
            return
        self.told[b] = self.epoch
        self.wanted.pop(b, None)
        self.granted.pop(b, None)
        if b == self.leader:
            self.become_leader(NAMES[b], str(self.epoch), self.named(self.members))
        else:
            self.become_follower(NAMES[b], NAMES[self.leader], str(self.epoch))
            if not self.profile.truncate_on_fetch and not self.profile.truncate_to_hw:
                self.truncating.add(b)

    def named(self, mask: int) -> str:
        return " ".join(name for k, name in enumerate(NAMES) if mask & (1 << k))

    def append_some(self, b: int, acks: str) -> None:
        if self.leads(b):
            self.append(NAMES[b], f"m{self.now}", acks)

    def fetch_some(self, r: int, mishap: str) -> None:
        """A follower fetches, after it has found out where to truncate."""
        s = self.state
        if r in self.down or s.role[r] != ROLE_FOLLOWER:
            return
        b = int(s.follows[r])
        if r in self.truncating:
            if self.leads(b) and s.epoch[b] == s.epoch[r]:
                self.find_end(r, b)
            return
        before = int(s.isr[b])
        self.fetch(NAMES[r], mishap)
        if not self.leads(b) or s.isr[b] == before or self.profile.isr_change_pending:
            return
        if self.is_current(b):
            self.members = int(s.isr[b])
        else:  # the conditional update lost
            epoch = int(s.epoch[b])
            self.apply(c.ISR_REQUEST, broker=b, isr_request=c.REQUEST_RESET, leader_epoch=epoch, isr=before)

    def find_end(self, r: int, b: int) -> None:
        last = self.last_epoch(r)
        end = end_offset_for(self.state, self.profile, b, last) if last != NONE else (NONE, NONE)
        _, done = diverging_target(self.state, self.profile, r, *(int(value) for value in end))
        self.ask_epoch_end(NAMES[r])
        if done:
            self.truncating.discard(r)

    def shrink(self, b: int) -> None:
        """The expiry task takes one out; which one is no matter to the invariants."""
        s = self.state
        others = [r for r in range(len(NAMES)) if s.isr[b] & (1 << r) and r != b]
        if not self.leads(b) or not others or s.pending[b] != NOTHING_PENDING:
            return
        isr = int(s.isr[b]) & ~(1 << others[self.now // 1000 % len(others)])
        if self.profile.isr_change_pending:
            self.wanted[b] = isr
            self.ask_isr(NAMES[b], self.named(isr))
        elif self.is_current(b):
            self.members = isr
            self.commit_isr(NAMES[b], self.named(isr))

    def decide(self) -> None:
        """The controller grants what the leader that it knows asks for."""
        b = self.leader
        if b != NONE and self.is_current(b) and self.state.pending[b] != NOTHING_PENDING and b not in self.granted:
            isr = self.wanted.pop(b, int(self.state.maximal_isr[b]))
            self.members = self.granted[b] = isr

    def hear(self) -> None:
        """A leader hears of the ISR that was granted."""
        for b in [b for b in self.granted if self.leads(b)]:
            self.commit_isr(NAMES[b], self.named(self.granted.pop(b)))

    def kill(self, b: int) -> None:
        if b in self.down:
            return
        self.die(NAMES[b])
        self.register(NAMES[b], "fenced")
        self.wanted.pop(b, None)
        self.granted.pop(b, None)
        if b == self.leader:
            self.elect(self.first_live())

    def start_again(self, b: int) -> None:
        """Back with all of its log, and with the HW of its checkpoint, which trails."""
        if b not in self.down:
            return
        s = self.state
        self.start(NAMES[b], str(int(s.leo[b])), str(max(min(int(s.hw[b]), int(s.leo[b])) - self.now // 1000 % 2, 0)))
        self.register(NAMES[b], "unfenced")
        self.told[b] = -1
        self.truncating.discard(b)
        if self.leader == NONE:
            self.elect(self.first_live())

    def prefer(self, b: int) -> None:
        """A planned change of leader within the ISR."""
        if self.leader not in {NONE, b} and self.members & (1 << b) and b not in self.down:
            self.elect(b)

    def do(self, action: str, b: int) -> None:
        """One action, and what it completes."""
        acts: dict[str, Callable[[], None]] = {
            "append": lambda: self.append_some(b, "1"),
            "append_all": lambda: self.append_some(b, "all"),
            "fetch": lambda: self.fetch_some(b, ""),
            "lose_answer": lambda: self.fetch_some(b, "the answer is lost"),
            "start": lambda: self.start_again(b),
            "decide": self.decide,
            "hear": self.hear,
        }
        acts.get(action, lambda: getattr(self, action)(b))()
        self.complete()
        self.said.clear()
        self.now += 1000


def random_story(version: str, actions: Iterable[tuple[str, int]], watch: Callable[[RandomStory], None]) -> None:
    """Carry out a history under the rules of a version."""
    story = RandomStory(profile_named(version, None), watch=watch)
    story.begin()
    for action, b in actions:
        story.do(action, b)
