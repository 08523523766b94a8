"""A recording whose logs grow, and the job as a process that can be killed."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY: Final = Path(__file__).parent.parent.parent
RECORDING: Final = REPOSITORY / "tests" / "recordings" / "last-replica"
# Flags of a run that is to be Spark's, with Python workers to kill, though its recording is small.
BY_SPARK: Final = ("--settings", str(Path(__file__).with_name("by_spark.toml")))
ROLLED: Final = 4  # the last part
# The data are small and the processes short: to make and compile code costs more than it saves.
JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Xms1g "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
FLAGS: Final = (
    "--driver-memory", "2g", "--conf", "spark.sql.shuffle.partitions=2",
    "--conf", f"spark.driver.extraJavaOptions={JAVA}",
    "--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "--conf", "spark.sql.adaptive.enabled=false", "--conf", "spark.ui.enabled=false",
)  # fmt: skip
# Root may write everywhere; without this right it is asked like anybody else.
BOUND: Final = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")


def lay_out(folder: Path, part: int, lines: int) -> Path:
    """The first lines of each log: one, two or three sixths of them, the last one torn, or all, rolled."""
    for log in sorted((RECORDING / "logs").glob("node-*/*.gz")):
        every = gzip.decompress(log.read_bytes()).splitlines(keepends=True)[:lines]
        target = folder / log.parent.relative_to(RECORDING)
        target.mkdir(parents=True, exist_ok=True)
        name, middle = log.name.removesuffix(".gz"), len(every) // 2
        if part < ROLLED:
            (target / name).write_bytes(b"".join(every[: middle * part // (ROLLED - 1)])[:-9])
        else:
            (target / f"{name}.1").write_bytes(b"".join(every[: middle + 5]))
            (target / name).write_bytes(b"".join(every[middle + 5 :]))
    for path in ("MANIFEST.json", "cluster-metadata.dump.txt.gz"):
        shutil.copy(RECORDING / path, folder)
    return folder


def events(log: Path) -> Iterator[dict[str, Any]]:
    """What a job has logged so far, but for what others say there."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{") and line.endswith("}"):
            yield json.loads(line)


def step_seconds(log: Path) -> dict[str, float]:
    """How long each step took."""
    return {told["step"]: told["seconds"] for told in events(log) if told["event"] == "step_ended"}


class Job:
    """One start of a job."""

    def __init__(
        self,
        recording: Path,
        warehouse: Path,
        name: str,
        *flags: str,
        job: str = "run",
        is_bound: bool = False,  # it may do no more than who owns its files
        tries: int = 1,  # how often a task is tried, as on a cluster
    ) -> None:
        """It runs from now on."""
        handle, path = tempfile.mkstemp(prefix="tidemark-kills-", suffix=".log")
        self.log, self.said = Path(path), ""
        given = ["--recording", str(recording), "--recording-id", name, "--warehouse", str(warehouse), *flags]
        spark = ["--master", f"local[2,{tries}]", *FLAGS]
        command = [str(REPOSITORY / "spark-submit.sh"), job, *given, "--log-format", "json", "--json", "--", *spark]
        before = BOUND if is_bound and os.geteuid() == 0 and shutil.which(BOUND[0]) else ()
        with os.fdopen(handle, "wb") as log:
            self.process = subprocess.Popen([*before, *command], stdout=subprocess.PIPE, stderr=log, text=True)

    def wait(self) -> int:
        """Its exit code; then it has said what came of it."""
        self.said, _ = self.process.communicate()
        return self.process.returncode

    @property
    def error(self) -> str:
        """The sentence with which it failed; empty: none."""
        told = self.said[self.said.find("{") :]  # before it the JVM may have logged something of its own
        try:
            outcome = json.loads(told)
        except ValueError:
            return f"no JSON: {self.said[-600:]}"
        return str(outcome.get("error") or next((one["error"] for one in outcome["recordings"] if "error" in one), ""))

    @property
    def failed_tasks(self) -> int:
        """How many tasks failed, by its own count."""
        return sum(map(int, re.findall(r'"failed_tasks": (\d+)', self.said)))

    @property
    def steps(self) -> list[str]:
        """The steps that have begun."""
        return re.findall(r'"event": "step_started".*"step": "(\w+)"', self.log.read_text(errors="replace"))

    def until(self, step: str) -> bool:
        """Until a step has begun; False: the job is over."""
        while self.process.poll() is None:
            if step in self.steps:
                return True
            time.sleep(0.05)
        return False

    def lives_for(self, seconds: float) -> bool:
        """Until some time has passed; False: the job is over."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self, victim: str) -> bool:
        """Kill one process; False: there is none of this kind any more."""
        jvm = self.process.pid
        every = list(processes())
        children = [one for one in every if one.parent == jvm]
        drivers = [one.pid for one in children if "jobs/run.py" in one.command]
        daemons = [one.pid for one in children if "daemon" in one.command]
        workers = [one.pid for one in sorted(every, key=lambda one: one.state != "R") if one.parent in daemons]
        found = {"driver": drivers, "jvm": [jvm], "term": [jvm], "worker": workers or daemons}[victim]
        if not found or self.process.poll() is not None:
            return False
        try:
            os.kill(found[0], signal.SIGTERM if victim == "term" else signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


class Process(NamedTuple):
    """A process; its state is R if it has something to do."""

    pid: int
    parent: int
    state: str
    command: str


def processes() -> Iterator[Process]:
    """All processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue
        yield Process(int(folder.name), int(parent), state, command)
