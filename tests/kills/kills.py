"""A campaign: runs that are killed or refused room at random moments, and drivers that get in each other's way.

    python tests/kills/kills.py --kills 50 --refusals 14 --drivers 10 --seed 7

The job works off a recording by spark-submit, until its driver, its JVM or a Python worker is killed at some moment of
some step, or all of it is ended by SIGTERM. A refusal takes room or permission away from the warehouse instead: then
the job must say so in one sentence. The next run on the same warehouse is disturbed as well, and so on, while the logs
grow and are rolled. After some of them a run may come to its end; of its Python workers some are killed as well, and
their tasks are tried again, as on a cluster. Then every table must be that of one run that nobody disturbed, and
nothing may be staged any more.

To fill a disk takes the right to mount one, and to refuse root a folder takes `setpriv`; what cannot be done is said.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from compared import differences, staged, tables_of
from disturbed import BY_SPARK, Job, lay_out, step_seconds

from pipelines.warehouse.commit_point import WRITTEN

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "killed"
OTHER: Final = "other"
STEPS: Final = ("parse", "order", "replay", "write", "validate", "report")
IN_PYTHON: Final = ("parse", "order", "replay")  # steps in which Python workers are at work
PLACES: Final = ("start", *STEPS)
VICTIMS: Final = ("driver", "jvm", "worker", "term")
REFUSALS: Final = ("disk", "permission")
REFUSED: Final = {"disk": (1, "a disk is full"), "permission": (2, "a permission is missing")}
UNMADE: Final = (1, "a folder cannot be made")  # of this Java does not say why
SPARKS_SHARE: Final = 0.5
RUN_EVERY: Final = 5  # of this many times drivers go on to the end; the others end with what is read and ordered
ENDS_WELL: Final = (0, 3)  # 3: so few lines may break an expectation
TRIES: Final = 2  # to disturb a step: it may not come, where nothing is new
DISK: Final = "256m"


@dataclass(frozen=True, slots=True)
class Moment:
    """When a run is disturbed, and how; a step "start": before it begins."""

    how: str
    step: str
    tried: int = 0


class Campaign:
    """A warehouse that nobody disturbed, and what is compared with it."""

    def __init__(self, home: Path, lines: int, chance: random.Random) -> None:
        """Make it, or take the one that is there."""
        self.home, self.chance, self.faults = home, chance, 0
        self.equal: Counter[str] = Counter()  # what was followed by equal tables
        self.folders = [lay_out(home / f"arrived-{part}" / NAME, part, lines) for part in range(1, 5)]
        untouched, told = home / "untouched", home / "seconds.json"
        for place in (home / "compiling", untouched) if not told.exists() else ():
            job = Job(self.folders[-1], place, NAME)
            if job.wait() not in ENDS_WELL:
                raise SystemExit(f"an undisturbed run failed: {job.said}\n{job.log.read_text()}")
            if place == untouched:  # no later run waits for rules to be compiled
                told.write_text(json.dumps(step_seconds(job.log)))
        self.tables = tables_of(untouched, NAME)
        self.by_any_name = tables_of(untouched, NAME, by_any_name=True)
        self.seconds: dict[str, float] = json.loads(told.read_text())
        print(f"undisturbed: {self.seconds}, {sum(map(Counter.total, self.tables.values()))} rows", flush=True)

    def expect(self, what: str, faults: Sequence[str] = ()) -> None:
        """Say what came of it."""
        self.faults += bool(faults)
        said = f"{time.strftime('%H:%M:%S')} {'FAULT' if faults else 'good '} {what}"
        print(said, *faults, sep="\n      ", flush=True)

    def fresh(self) -> Path:
        """A place for a warehouse, on a small disk of its own if there may be one."""
        disk = self.home / "disk"
        disk.mkdir(exist_ok=True)
        shutil.rmtree(disk / "warehouse", ignore_errors=True)
        if not disk.is_mount():
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tidemark-kills", str(disk)]
            with suppress(FileNotFoundError):
                subprocess.run(mount, check=False, capture_output=True)
        return disk / "warehouse"

    def end(self) -> None:
        """Leave no disk behind."""
        if (self.home / "disk").is_mount():
            subprocess.run(["umount", "-l", str(self.home / "disk")], check=True)

    def keep(self, warehouse: Path) -> None:
        """Keep a warehouse to look at, if the folder is kept."""
        if warehouse.exists():
            shutil.copytree(warehouse, self.home / f"fault-{time.strftime('%H%M%S')}")

    def chain(self, moments: Sequence[Moment]) -> list[Moment]:
        """Disturb one run after the other on the same warehouse, while logs grow; then let one come to its end.

        Return the moments that did not come.
        """
        warehouse, missed, done = self.fresh(), [], []
        parts = sorted(self.chance.randrange(len(self.folders)) for _ in moments)
        for moment, part in zip(moments, parts, strict=True):
            if (what := self.disturb(moment, part, warehouse)) is None:
                missed.append(Moment(moment.how, moment.step, moment.tried + 1))
            else:
                done.append(what)
        began = time.monotonic()
        last = Job(self.folders[-1], warehouse, NAME, "--wait", "300", *self.whose_work(), tries=4)
        lost = [f"worker in {step} of the last run" for step in IN_PYTHON if self.lose_worker(last, step)]
        ended = last.wait()
        done += lost
        faults = [] if ended in ENDS_WELL else [f"the next run ended with {ended}: {last.said} {last.log}"]
        faults = faults or differences(self.tables, tables_of(warehouse, NAME))
        faults += [f"staged: {path}" for path in staged(warehouse)[:3]]
        self.equal.update([] if faults else done)
        what = f"after {', '.join(done)}: ended with {ended} in {time.monotonic() - began:.0f} s"
        self.expect(f"{what}, {last.failed_tasks} tasks failed", faults)
        if faults:
            self.keep(warehouse)
        else:
            last.log.unlink()
        return [moment for moment in missed if moment.tried < TRIES]

    def lose_worker(self, job: Job, step: str) -> bool:
        """Kill a Python worker of a run that may try its tasks again; False: there was none."""
        delay = self.chance.uniform(0, self.seconds[step])
        return job.until(step) and job.lives_for(delay) and job.steps[-1] == step and job.kill("worker")

    def disturb(self, moment: Moment, part: int, warehouse: Path) -> str | None:
        """Disturb a run somewhere; return what it met and where, None: it did not come to that."""
        refusal = Refusal(moment.how, warehouse) if moment.how in REFUSALS else None
        there = refusal is not None and moment.step == "start" and refusal.begin()
        flags = ("--wait", "300", *self.whose_work(always=moment.how == "worker"))
        job = Job(self.folders[part], warehouse, NAME, *flags, is_bound=moment.how == "permission")
        delay, found = self.chance.uniform(0, self.seconds.get(moment.step, 0.0)), "start"
        if moment.step != "start" and job.until(moment.step) and job.lives_for(delay):
            found = job.steps[-1]
            there = refusal.begin() if refusal else job.kill(moment.how)
        code = job.wait()
        if refusal:
            refusal.end()
        what = f"{moment.how} in {found}"
        said = f"  {what} (for {moment.step} + {delay:.1f} s) of part {part + 1}: ended with {code}"
        if not there:
            self.expect(f"{said}, undisturbed")
            return None
        faults, goes_on = [], code in ENDS_WELL
        if moment.how == "term" and code != 128 + 15 and not goes_on:
            faults.append(f"SIGTERM ended it with {code}: {job.said} {job.log}")
        if refusal and not goes_on:
            faults += refused(moment.how, code, job)
        self.expect(said + (f": {job.error}" if refusal else ""), faults)
        if not faults:
            job.log.unlink()
        return f"{what}, went on" if goes_on else what

    def whose_work(self, *, always: bool = False) -> Sequence[str]:
        """Flags by which Spark works on the recording, always or every other time, and not the driver alone."""
        return BY_SPARK if self.chance.random() < SPARKS_SHARE or always else ()

    def drive(self, number: int) -> None:
        """Two drivers on one recording, of which one waits, and a third on another recording of the warehouse."""
        warehouse, kind = self.fresh(), "ingest" if number % RUN_EVERY else "run"
        whose = [(NAME, ("--wait", "1200")), (NAME, ()), (OTHER, ())]
        self.chance.shuffle(whose)
        jobs = []
        for name, flags in whose:
            jobs.append((name, flags, Job(self.folders[-1], warehouse, name, *flags, job=kind)))
            time.sleep(self.chance.choice((0, 0, 1, 3)))
        codes = {f"{name} {' '.join(flags)}".strip(): job.wait() for name, flags, job in jobs}
        faults = [] if codes.pop(NAME) in {*ENDS_WELL, 5} else [f"refused otherwise: {codes}"]
        faults += [f"{what} ended with {code}" for what, code in codes.items() if code not in ENDS_WELL]
        for _, flags, job in jobs:
            held = job.process.returncode == 5
            if held and (flags or "is being worked on by run" not in job.error or "\n" in job.error):
                faults.append(f"refused in these words: {job.error}")
            faults += [f"{job.error} {job.log}"] if job.process.returncode not in {*ENDS_WELL, 5} else []
        wanted = {name: rows for name, rows in self.by_any_name.items() if kind == "run" or name in WRITTEN[kind]}
        for name in (NAME, OTHER) if not faults else ():
            differ = differences(wanted, tables_of(warehouse, name, by_any_name=True))
            faults += [f"{name}: {line}" for line in differ]
        faults += [f"staged: {path}" for path in staged(warehouse)[:3]]
        met = "one was refused" if any(job.process.returncode == 5 for _, _, job in jobs) else "one after the other"
        self.equal[f"drivers ({kind}): {met}, beside another recording"] += not faults
        order = ", ".join(f"{name} {' '.join(flags)}".strip() for name, flags, _ in jobs)
        codes_in_order = [job.process.returncode for _, _, job in jobs]
        self.expect(f"drivers {number} ({kind}): {order}: {codes_in_order}, {met}", faults)
        if faults:
            self.keep(warehouse)

    def tell(self) -> None:
        """Say what was equal so far."""
        print("equal so far:", json.dumps(dict(sorted(self.equal.items()))), flush=True)


class Refusal:
    """A warehouse that may not grow, or may not be written to, from `begin` to `end`."""

    def __init__(self, how: str, warehouse: Path) -> None:
        """Nothing is refused yet."""
        self.how, self.warehouse, self.filling = how, warehouse, warehouse.parent / "filling"

    def begin(self) -> bool:
        """Refuse; False: here that cannot be done."""
        if self.how == "disk":
            if not self.warehouse.parent.is_mount():
                return False
            with suppress(OSError), self.filling.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
            return True
        if os.geteuid() == 0 and shutil.which("setpriv") is None:
            return False
        self.warehouse.mkdir(exist_ok=True)
        self._let(0o555)
        return True

    def end(self) -> None:
        """Allow it again."""
        self.filling.unlink(missing_ok=True)
        if self.warehouse.exists():
            self._let(0o755)

    def _let(self, mode: int) -> None:
        for folder, _, _ in list(os.walk(self.warehouse)):
            with suppress(FileNotFoundError):  # the job is at work there
                Path(folder).chmod(mode)


def refused(how: str, code: int, job: Job) -> list[str]:
    """What is wrong with how a job ended that was refused something."""
    for wanted, words in (REFUSED[how], UNMADE):
        if code == wanted and job.error.startswith(words) and "\n" not in job.error:
            return []
    return [f"{how}: ended with {code} and the words {job.error!r} {job.log}"]


def main() -> int:
    """Run the campaign; the exit code is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--refusals", type=int, default=2)
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first of each")
    parser.add_argument("--chain", type=int, default=6, help="kills, and one refusal, before a run may come to its end")
    parser.add_argument("--drivers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=400, help="of each log")
    parser.add_argument("--home", type=Path, help="a folder to keep: a second campaign takes its undisturbed run")
    args: Any = parser.parse_args()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    chance = random.Random(args.seed)  # noqa: S311 - moments, not secrets
    numbers = range(args.first, args.first + args.kills)
    kills = deque(Moment(VICTIMS[(n + n // len(STEPS)) % len(VICTIMS)], STEPS[n % len(STEPS)]) for n in numbers)
    numbers = range(args.first, args.first + args.refusals)
    refusals = deque(Moment(REFUSALS[n % len(REFUSALS)], PLACES[n % len(PLACES)]) for n in numbers)
    with tempfile.TemporaryDirectory(prefix="tidemark-kills-") as folder:
        home = args.home or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        campaign = Campaign(home, args.lines, chance)
        try:
            while kills or refusals:
                taken = [queue.popleft() for queue in (*[kills] * args.chain, refusals) if queue]
                missed = campaign.chain(sorted(taken, key=lambda moment: PLACES.index(moment.step)))
                kills.extend(moment for moment in missed if moment.how in VICTIMS)
                refusals.extend(moment for moment in missed if moment.how in REFUSALS)
                campaign.tell()
            for number in range(args.first, args.first + args.drivers):
                campaign.drive(number)
        finally:
            campaign.tell()
            campaign.end()
    print(f"{args.kills} kills, {args.refusals} refusals, {args.drivers} times drivers: {campaign.faults} faults")
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main())
