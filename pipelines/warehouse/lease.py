"""Who may write: one driver at a time on each recording.

A lease is a folder of numbered files; who made the one with the highest number holds it. All that is asked of a store
is that it makes a file only if there is none. A number is never used twice, so a driver that was held up can always
see that another one has followed it. The holder renews its file; once that is too old, or the holder's processes are
gone from this machine, the next driver makes the next number. Ages are differences of the store's own clock.

The file also says which runs before did not come to their end, for as long as nobody has mended what they left.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from schemas.errors import HeldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RENEWED_EVERY_S: Final = 20.0
ENDS_AFTER_S: Final = 180.0  # without renewal: longer than a store is away, or a driver stands still, as a rule
LOOK_AGAIN_S: Final = 2.0
UNKNOWN: Final = "unknown"  # a run whose file could not be read


class LeaseFiles(Protocol):
    """The folder of one lease."""

    def names(self) -> list[str]:
        """Return the names of its files; none if it does not exist."""

    def create(self, name: str, content: bytes) -> bool:
        """Make a file; False if there is one of that name, or another driver made it at the same time."""

    def overwrite(self, name: str, content: bytes) -> None:
        """Write a file anew."""

    def read(self, name: str) -> tuple[bytes, float] | None:
        """Return what a file holds, and when it was written by the store's clock; None: there is none."""

    def delete(self, name: str) -> None:
        """Delete a file, if there is one."""

    def now(self) -> float:
        """Return the time by the store's clock."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease: a run, and where its processes can be looked for."""

    run_id: str
    host: str
    machine: str  # process ids mean the same for everybody who says the same here
    processes: dict[str, str]  # by process id, when it started

    @classmethod
    def here(cls, run_id: str, pids: Iterable[int] = ()) -> Holder:
        """Return this process, and other processes of this machine that write for it."""
        every = {os.getpid(), *pids}
        return cls(run_id, platform.node(), _machine(), {str(pid): _started(pid) or "" for pid in sorted(every)})

    @property
    def is_gone(self) -> bool:
        """Whether all of its processes have ended for certain; of another machine nobody can tell."""
        if not self.machine or self.machine != _machine():
            return False
        return all(_started(int(pid)) != started for pid, started in self.processes.items())


@dataclass(frozen=True, slots=True)
class LeaseNote:
    """What a lease's file says."""

    holder: Holder
    started: str
    renewed: str
    unfinished: tuple[str, ...] = ()  # runs that wrote and did not come to their end, with this one while it writes
    ended: str | None = None  # when it was given back

    def content(self) -> bytes:
        """Return it as the file holds it."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def of(cls, content: bytes) -> LeaseNote:
        """Read it; what cannot be read was cut off when its writer died, or is being written."""
        try:
            told = json.loads(content)
            return cls(Holder(**told.pop("holder")), **{**told, "unfinished": tuple(told["unfinished"])})
        except (ValueError, TypeError, KeyError):
            return cls(Holder(UNKNOWN, UNKNOWN, "", {}), UNKNOWN, UNKNOWN, (UNKNOWN,))


@dataclass(slots=True)
class Lease:
    """A lease that is held from `take` to `give_back`."""

    files: LeaseFiles
    what: str  # the recording, in words
    holder: Holder
    on_lost: Callable[[], object] = lambda: None
    before: tuple[str, ...] = ()  # runs that did not come to their end, and whose rows nobody has mended yet
    has_mended: bool = False  # whether this holder has done so; it says so itself
    _number: int = 0
    _started: str = ""
    _renewed: float = 0.0
    _is_lost: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def take(self, wait: float = 0.0, waits: Callable[[str], object] = lambda _: None) -> None:
        """Take it; HeldError if another driver holds it for longer than we `wait`, which `waits` is told."""
        until = time.monotonic() + wait
        has_told = False
        while not self._taken(is_last=time.monotonic() >= until, waits=None if has_told else waits):
            has_told = True
            time.sleep(min(LOOK_AGAIN_S, max(0.05, until - time.monotonic())))
        threading.Thread(target=self._keep, name="tidemark-lease", daemon=True).start()

    def check(self) -> None:
        """HeldError if another driver has taken it over: then nothing may be written any more."""
        if time.monotonic() - self._renewed > ENDS_AFTER_S / 2:
            self._renew()
        if not self._is_mine():
            self._is_lost = True
            message = (
                f"{self.what} was taken over by another run, since this one (run {self.holder.run_id}) had not renewed "
                f"its lease for {ENDS_AFTER_S:.0f} seconds; nothing more is written"
            )
            raise HeldError(message)

    def give_back(self, *, finished: bool) -> None:
        """End it. `finished`: this holder came to its end, so it left nothing half done."""
        self._over.set()
        left = () if self.has_mended else self.before
        with self._writing, suppress(Exception):  # a store that is away: then it ends by itself
            if self._is_mine():
                self._write(left if finished else (*left, self.holder.run_id), ended=_now())
        self._number = 0

    def _taken(self, *, is_last: bool, waits: Callable[[str], object] | None) -> bool:
        """Take it if nobody holds it; `is_last`: HeldError if somebody does."""
        last = max(self._numbers(), default=0)
        found = self.files.read(str(last)) if last else None
        if last and found is None:
            return False  # somebody made a newer one
        told = None
        if found is not None:
            told = LeaseNote.of(found[0])
            if (sentence := self._held(told, found[1])) is not None:
                if is_last:
                    raise HeldError(sentence)
                if waits:
                    waits(sentence)
                return False
        before = told.unfinished if told else ()
        self._started = _now()
        mine = LeaseNote(self.holder, self._started, self._started, (*before, self.holder.run_id))
        if not self.files.create(str(last + 1), mine.content()):
            return False
        self._number, self.before, self._renewed = last + 1, before, time.monotonic()
        numbers = self._numbers()
        if max(numbers, default=0) != self._number:  # it was made long before, by who has ended since
            self.files.delete(str(self._number))
            return False
        for number in numbers:
            if number < self._number:
                self.files.delete(str(number))
        return True

    def _held(self, told: LeaseNote, written: float) -> str | None:
        """Say that a driver holds it; None: it was given back, or its driver is dead."""
        if told.ended or told.holder.is_gone or self.files.now() - written > ENDS_AFTER_S:
            return None
        pids = ", ".join(told.holder.processes)
        ends = datetime.fromtimestamp(written + ENDS_AFTER_S, UTC)
        return (
            f"{self.what} is being worked on by run {told.holder.run_id} (host {told.holder.host}, process {pids}) "
            f"since {told.started}; its lease ends at {ends:%Y-%m-%d %H:%M:%S} UTC unless it is renewed until then "
            "(--wait SECONDS waits for its end)"
        )

    def _numbers(self) -> list[int]:
        return [int(name) for name in self.files.names() if name.isdecimal()]

    def _is_mine(self) -> bool:
        return not self._is_lost and max(self._numbers(), default=0) == self._number

    def _renew(self) -> None:
        with self._writing:
            if not self._over.is_set():
                self._write((*self.before, self.holder.run_id))
                self._renewed = time.monotonic()

    def _write(self, unfinished: tuple[str, ...], ended: str | None = None) -> None:
        told = LeaseNote(self.holder, self._started, _now(), unfinished, ended)
        self.files.overwrite(str(self._number), told.content())

    def _keep(self) -> None:
        """Renew it, again and again; a store that is away is asked again."""
        while not self._over.wait(RENEWED_EVERY_S):
            with suppress(Exception):
                self._renew()
                if not self._over.is_set() and not self._is_mine():
                    self._is_lost = True
                    self.on_lost()
                    return


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _machine() -> str:
    """Return what names the processes of this machine: containers have process ids of their own."""
    with suppress(OSError):
        booted = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{booted} {Path('/proc/self/ns/pid').readlink()}"
    return "" if Path("/proc").exists() else platform.node()


def _started(pid: int) -> str | None:
    """Return when a process started, so that one with a number that was used before is not taken for it; None: gone."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return "there"
    state, *rest = said.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else rest[18]
