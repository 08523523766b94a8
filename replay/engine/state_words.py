"""A partition's state in words, one line per broker: what a story shows after an event, and a debugging aid.

    A leads 1: leo 3 hw 2 isr A,B [B 2 C ?] (0: 0-1; 1: 2)
    B follows 1: leo 2 hw 2 (0: 0-1)

A line starts with the broker's role and leader epoch, LEO and HW, and its log start unless that is 0. A leader adds its
ISR (`+C`: requested to join and not answered yet; `pending`: another change is), its record of each follower's LEO
(`?`: unknown), and its low watermark if its log no longer starts at 0. The offsets that the log holds of each epoch are
in parentheses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.protocol.high_watermark import leader_low_watermark
from replay.protocol.state import ROLE_FOLLOWER, ROLE_LEADER, ROLE_NONE, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    Records = Callable[[int, int, int], str]  # what stands for broker b's records from `first` up to `end`

ROLE_WORDS = {ROLE_NONE: "has no role", ROLE_FOLLOWER: "follows", ROLE_LEADER: "leads"}


def as_offsets(_b: int, first: int, end: int) -> str:
    """`3-7`, `3`; empty if there are none."""
    if first >= end:
        return ""
    return str(first) if first == end - 1 else f"{first}-{end - 1}"


def partition_in_words(
    s: State, names: Sequence[object], *, down: Collection[int] = (), records: Records = as_offsets
) -> list[str]:
    """The state of each assigned broker, in the order of `names`; of all brokers if no assignment is known.

    `down`: brokers that do not run, which the state does not show. `records`: how a log's records are shown.
    """
    assigned = int(s.partition[0].assigned)
    shown = [b for b in range(len(names)) if not assigned or assigned & (1 << b)]
    return [broker_in_words(s, b, names, is_down=b in down, records=records) for b in shown]


def broker_in_words(
    s: State, b: int, names: Sequence[object], *, is_down: bool = False, records: Records = as_offsets
) -> str:
    """One broker's state."""
    parts = [f"{names[b]} {role_in_words(s, b, is_down=is_down)}: leo {s.leo[b]} hw {s.hw[b]}"]
    if s.log_start[b]:
        parts.append(f"start {s.log_start[b]}")
    if s.role[b] == ROLE_LEADER and not is_down:
        parts += leadership_in_words(s, b, names)
    log = log_in_words(s, b, records)
    return " ".join([*parts, f"({log})"] if log else parts)


def role_in_words(s: State, b: int, *, is_down: bool = False) -> str:
    """`leads 4`, `follows 4`, `has no role`, `is down`."""
    if is_down:
        return "is down"
    word = ROLE_WORDS[int(s.role[b])]
    return word if s.role[b] == ROLE_NONE else f"{word} {s.epoch[b]}"


def leadership_in_words(s: State, b: int, names: Sequence[object]) -> list[str]:
    """What only leader b has: its ISR, its record of the followers' LEOs, its low watermark."""
    asked = int(s.maximal_isr[b]) & ~int(s.isr[b])
    pending = f"+{listed(asked, names)}" if asked else " pending" if s.pending[b] else ""
    parts = [f"isr {listed(int(s.isr[b]), names)}{pending}"]
    others = [r for r in range(len(names)) if r != b and s.partition[0].assigned & (1 << r)]
    if others:
        remote = (f"{names[r]} {s.remote_leo[b, r] if s.remote_leo[b, r] >= 0 else '?'}" for r in others)
        parts.append(f"[{' '.join(remote)}]")
    if s.log_start[b]:
        parts.append(f"low watermark {leader_low_watermark(s, b)}")
    return parts


def log_in_words(s: State, b: int, records: Records = as_offsets) -> str:
    """What b's log holds of each leader epoch, as far as its epoch cache reaches: `0: 0-1; 1: 2-6`."""
    spans = []
    n = int(s.cache_len[b])
    for k in range(n):
        first = max(int(s.cache_start[b, k]), int(s.log_start[b]))
        end = int(s.leo[b]) if k == n - 1 else int(s.cache_start[b, k + 1])
        held = records(b, first, end)
        if held:
            spans.append(f"{s.cache_epoch[b, k]}: {held}")
    return "; ".join(spans)


def listed(mask: int, names: Sequence[object]) -> str:
    """The brokers of a bit mask: `A,C`."""
    return ",".join(str(name) for b, name in enumerate(names) if mask & (1 << b))
