"""A campaign: runs that are killed at random moments, and drivers that get in each other's way.

    python tests/kills/kills.py --kills 50 --drivers 10 --seed 7

The job works off a recording by spark-submit, until its driver, its JVM or a Python worker is killed at some moment of
some step, or all of it is ended by SIGTERM. The next run of the same warehouse is killed as well, and so on, while the
logs grow and are rolled. After some kills a run may come to its end. Then every table must be that of one run that
nobody disturbed, and nothing may be staged any more.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

REPOSITORY: Final = Path(__file__).parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from deltalake import DeltaTable  # noqa: E402 - as below

import tidemark  # noqa: E402 - as a script it is not on the path
from schemas.tables import TABLES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDING: Final = REPOSITORY / "tests" / "recordings" / "last-replica"
NAME: Final = "killed"
STEPS: Final = ("parse", "order", "replay", "write", "validate", "report")
VICTIMS: Final = ("driver", "jvm", "worker", "term")
HALVES: Final = 2
ENDS_WELL: Final = (0, 3)  # 3: so few lines may break an expectation
# What belongs to one run: its name, its times, and how what it read was divided.
OF_A_RUN: Final = {"run_id", "seen", "modified", "counts", "resume"}
FLAGS: Final = (
    "--master", "local[2]", "--driver-memory", "2g", "--conf", "spark.sql.shuffle.partitions=2",
    "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "--conf", "spark.ui.enabled=false",
)  # fmt: skip


def lay_out(folder: Path, half: int, lines: int) -> Path:
    """The first lines of each log: half of them, the last one torn, or all, rolled."""
    for log in sorted((RECORDING / "logs").glob("node-*/*.gz")):
        every = gzip.decompress(log.read_bytes()).splitlines(keepends=True)[:lines]
        target = folder / log.parent.relative_to(RECORDING)
        target.mkdir(parents=True, exist_ok=True)
        name, middle = log.name.removesuffix(".gz"), len(every) // 2
        if half == 1:
            (target / name).write_bytes(b"".join(every[:middle])[:-9])
        else:
            (target / f"{name}.1").write_bytes(b"".join(every[: middle + 5]))
            (target / name).write_bytes(b"".join(every[middle + 5 :]))
    for path in ("MANIFEST.json", "cluster-metadata.dump.txt.gz"):
        shutil.copy(RECORDING / path, folder)
    return folder


class Job:
    """One start of the job."""

    def __init__(self, recording: Path, warehouse: Path, name: str = NAME, flags: tuple[str, ...] = ()) -> None:
        """It runs from now on."""
        self.log = Path(tempfile.mkstemp(prefix="tidemark-kills-", suffix=".log")[1])
        given = ["--recording", str(recording), "--recording-id", name, "--warehouse", str(warehouse)]
        command = [
            REPOSITORY / "spark-submit.sh",
            "run",
            *given,
            "--log-format",
            "json",
            "--json",
            *flags,
            "--",
            *FLAGS,
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.said = ""

    def wait(self) -> int:
        """Its exit code, and what it said."""
        self.said, _ = self.process.communicate()
        return self.process.returncode

    def until(self, step: str) -> bool:
        """Until a step has begun; False: the job is over."""
        while self.process.poll() is None:
            if '"event": "step_started", ' in (said := self.log.read_text()) and f'"step": "{step}"' in said:
                return True
            time.sleep(0.05)
        return False

    def kill(self, victim: str) -> bool:
        """Kill one process; False: there is none of this kind."""
        jvm = self.process.pid
        drivers = [pid for pid, parent, command in processes() if parent == jvm and "jobs/run.py" in command]
        daemons = [pid for pid, parent, command in processes() if parent == jvm and "daemon" in command]
        workers = [pid for pid, parent, _ in processes() if parent in daemons] or daemons
        found = {"driver": drivers, "jvm": [jvm], "term": [jvm], "worker": workers}[victim]
        for pid in found[:1]:
            os.kill(pid, signal.SIGTERM if victim == "term" else signal.SIGKILL)
        return bool(found)


def processes() -> Iterator[tuple[int, int, str]]:
    """Process id, parent and command line of all processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(folder.name), parent, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue


def tables_of(warehouse: Path, name: str = NAME) -> dict[str, Counter[str]]:
    """The rows of all tables as their readers see them, without what belongs to one run."""
    found = tidemark.snapshot(str(warehouse), name)
    return {table: rows_of(found, table) for table in TABLES if table != "runs"}


def rows_of(found: tidemark.Snapshot, table: str) -> Counter[str]:
    """A table's rows, and how often each stands there."""
    rows = found.arrow(table).to_pylist()
    if table == "expectation_results":  # which each run that came to its end adds to, and no other
        ended = {
            row["run_id"] for row in DeltaTable(found.path("runs")).to_pyarrow_table(columns=["run_id"]).to_pylist()
        }
        kept = max((row["run_id"] for row in rows), default=None)
        rows = [row for row in rows if row["run_id"] == kept or row["run_id"] not in ended]
    shown = [{key: value for key, value in row.items() if key not in OF_A_RUN} for row in rows]
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in shown)


def differences(one: dict[str, Counter[str]], other: dict[str, Counter[str]]) -> list[str]:
    """What differs, a line for each table."""
    return [
        f"{table}: {(one[table] - other[table]).total()} rows too many, {(other[table] - one[table]).total()} missing, "
        f"as {next(iter((one[table] - other[table]) | (other[table] - one[table])))[:600]}"
        for table in one
        if one[table] != other[table]
    ]


def staged(warehouse: Path) -> list[str]:
    """What is still staged."""
    return [str(path) for path in (warehouse / "_staging").rglob("*") if path.is_file()]


class Campaign:
    """A warehouse that nobody disturbed, and what is compared with it."""

    def __init__(self, home: Path, lines: int, chance: random.Random) -> None:
        """Make it."""
        self.home, self.chance, self.faults = home, chance, 0
        self.folders = [lay_out(home / f"half-{half}" / NAME, half, lines) for half in (1, HALVES)]
        untouched = home / "untouched"
        job = Job(self.folders[-1], untouched)
        if job.wait() not in ENDS_WELL:
            raise SystemExit(f"an undisturbed run failed: {job.said}\n{job.log.read_text()}")
        self.tables = tables_of(untouched)
        told = job.said[job.said.index("{") :]  # before it the JVM may have logged something of its own
        self.seconds: dict[str, float] = json.loads(told)["recordings"][0]["durations"]
        print(f"undisturbed: {self.seconds}", flush=True)

    def expect(self, what: str, faults: list[str]) -> None:
        """Say what came of it."""
        self.faults += bool(faults)
        print(
            f"{time.strftime('%H:%M:%S')} {'FAULT' if faults else 'good '} {what}", *faults, sep="\n      ", flush=True
        )

    def fresh(self) -> Path:
        """A place for a warehouse."""
        warehouse = self.home / "disturbed"
        shutil.rmtree(warehouse, ignore_errors=True)
        return warehouse

    def chain(self, kills: list[int]) -> None:
        """Kill one run after the other on the same warehouse, while logs grow; then let one come to its end."""
        warehouse = self.fresh()
        halves = sorted(self.chance.randrange(HALVES) for _ in kills)
        for number, half in zip(kills, halves, strict=True):
            self.kill(number, half, warehouse)
        again = Job(self.folders[-1], warehouse, flags=("--wait", "300"))
        ended = again.wait()
        faults = [] if ended in ENDS_WELL else [f"the next run ended with {ended}: {again.said}"]
        faults += differences(tables_of(warehouse), self.tables) if not faults else []
        faults += [f"staged: {path}" for path in staged(warehouse)[:3]]
        self.expect(f"after the kills {kills}, {halves.count(0)} of them before the logs were rolled", faults)

    def kill(self, number: int, half: int, warehouse: Path) -> None:
        """Kill a run somewhere."""
        step, victim = STEPS[number % len(STEPS)], VICTIMS[(number + number // len(STEPS)) % len(VICTIMS)]
        delay = self.chance.uniform(0, self.seconds.get(step, 1.0))
        job = Job(self.folders[half], warehouse, flags=("--wait", "300"))
        there = job.until(step)
        time.sleep(delay)
        killed = there and job.kill(victim)
        code = job.wait()
        faults = []
        if victim == "term" and killed and code not in {143, *ENDS_WELL}:
            faults.append(f"SIGTERM ended it with {code}: {job.said} {job.log.read_text()[-2000:]}")
        what = f"kill {number}: {victim} in {step} after {delay:.1f} s of half {half + 1}: ended with {code}"
        self.expect(what if killed else f"{what} (nothing to kill)", faults)

    def drive_one(self, number: int) -> None:
        """Two drivers on one recording: one is refused; if it waits, it comes after the other."""
        for flags in ((), ("--wait", "900")):
            warehouse = self.fresh()
            jobs = [Job(self.folders[-1], warehouse, flags=flags) for _ in range(2)]
            codes = sorted(job.wait() for job in jobs)
            faults = [] if codes == ([0, 0] if flags else [0, 5]) else [job.said[-600:] for job in jobs]
            faults += differences(tables_of(warehouse), self.tables)
            self.expect(f"{number}: two drivers on one recording {' '.join(flags)}: ended with {codes}", faults)

    def drive_two(self, number: int) -> None:
        """Two drivers on two recordings of one warehouse."""
        warehouse, names = self.fresh(), (NAME, "other")
        jobs = [Job(self.folders[-1], warehouse, name) for name in names]
        codes = [job.wait() for job in jobs]
        faults = [] if codes == [0, 0] else [job.said[-600:] for job in jobs]
        if not faults:
            faults = differences(tables_of(warehouse), self.tables)
            counts = [{table: rows.total() for table, rows in tables_of(warehouse, name).items()} for name in names]
            faults += [] if counts[0] == counts[1] else [str(counts)]
        self.expect(f"{number}: two drivers on two recordings: ended with {codes}", faults)


def main() -> int:
    """Run the campaign; the exit code is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first kill")
    parser.add_argument("--chain", type=int, default=4, help="kills before a run may come to its end")
    parser.add_argument("--drivers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=400, help="of each log")
    args: Any = parser.parse_args()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with tempfile.TemporaryDirectory(prefix="tidemark-kills-") as home:
        campaign = Campaign(Path(home), args.lines, random.Random(args.seed))  # noqa: S311 - moments, not secrets
        numbers = list(range(args.first, args.first + args.kills))
        for begin in range(0, len(numbers), args.chain):
            campaign.chain(numbers[begin : begin + args.chain])
        for number in range(args.drivers):
            campaign.drive_one(number)
            campaign.drive_two(number)
    print(f"{args.kills} kills, {args.drivers} times two drivers: {campaign.faults} faults")
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main())
