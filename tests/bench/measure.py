"""What a piece of work costs: wall time, CPU seconds and peak memory of the JVM and of Python's workers.

Contenders are measured side by side: one after the other, again and again, the first round apart; what counts is the
median of the rounds and the ratio of medians. Times of one run are never compared with those of another.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MB = 1 << 20
BETWEEN_S = 0.2


@dataclass(slots=True)
class Cost:
    """One round of one contender."""

    wall: float
    jvm_cpu: float
    python_cpu: float  # of Spark's workers, or of this process where the work is done here
    jvm_peak: float  # MB
    python_peak: float  # MB, of the largest worker

    @property
    def cpu(self) -> float:
        """All CPU seconds."""
        return self.jvm_cpu + self.python_cpu


@dataclass(slots=True)
class Process:
    """A process as /proc tells of it."""

    pid: int
    parent: int
    name: str
    cpu: float  # its own
    memory: float  # MB


def processes() -> dict[int, Process]:
    """Everything that runs."""
    found = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            text = (place / "stat").read_text()
        except OSError:
            continue  # it has just ended
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        cpu = sum(map(int, rest[11:13])) / TICKS
        found[int(place.name)] = Process(int(place.name), int(rest[1]), name, cpu, int(rest[21]) * PAGE / MB)
    return found


def descendants(everything: dict[int, Process], root: int) -> list[Process]:
    """A process and all below it."""
    children: dict[int, list[Process]] = {}
    for one in everything.values():
        children.setdefault(one.parent, []).append(one)
    out, ask = [], [everything[root]]
    while ask:
        out.append(ask.pop())
        ask += children.get(out[-1].pid, [])
    return out


def session_root(everything: dict[int, Process]) -> int:
    """The process that all of Spark is below: spark-submit's JVM starts the driver, or the driver starts the JVM."""
    own = everything[os.getpid()]
    return own.parent if "java" in everything[own.parent].name else own.pid


class Meter:
    """Looks at the session's processes from now until it is asked; one that ends counts as it was last seen."""

    def __init__(self) -> None:
        """From now on."""
        self.cpu: dict[int, tuple[str, float]] = {}  # by process: kind, CPU seconds so far
        self.peak = {"java": 0.0, "python": 0.0}
        self.going = True
        self.look()
        self.before, self.start = dict(self.cpu), time.perf_counter()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def look(self) -> None:
        """Note CPU and memory of every process there is."""
        own, everything = os.getpid(), processes()
        for one in descendants(everything, session_root(everything)):
            kind = "python" if "python" in one.name else "java"  # a fork of the JVM is called after its thread
            self.cpu[one.pid] = kind, one.cpu
            if one.pid != own:
                self.peak[kind] = max(self.peak[kind], one.memory)

    def run(self) -> None:
        """Look again and again."""
        while self.going:
            self.look()
            time.sleep(BETWEEN_S)

    def cost(self) -> Cost:
        """What was spent since it was made: the end of it."""
        wall = time.perf_counter() - self.start
        self.going = False
        self.thread.join()
        self.look()
        spent = {"java": 0.0, "python": 0.0}
        for pid, (kind, cpu) in self.cpu.items():
            spent[kind] += cpu - self.before.get(pid, (kind, 0.0))[1]
        return Cost(wall, spent["java"], spent["python"], self.peak["java"], self.peak["python"])


def cost_of(work: Callable[[], object]) -> Cost:
    """What `work` costs, once."""
    meter = Meter()
    work()
    return meter.cost()


def median(costs: Iterable[Cost]) -> Cost:
    """The median of each figure, of the memory the largest."""
    all_of = list(costs)
    middle = {
        name: statistics.median(getattr(one, name) for one in all_of) for name in ("wall", "jvm_cpu", "python_cpu")
    }
    peaks = {name: max(getattr(one, name) for one in all_of) for name in ("jvm_peak", "python_peak")}
    return Cost(**middle, **peaks)


def side_by_side(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, Cost]:
    """Each contender once for warming up, then `rounds` times in turns: its medians."""
    seen: dict[str, list[Cost]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, work in contenders.items():
            cost = cost_of(work)
            if number:
                seen[name].append(cost)
    return {name: median(costs) for name, costs in seen.items()}
