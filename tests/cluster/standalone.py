"""A Spark standalone cluster on this machine: a master and workers of one core each.

Nothing of Tidemark is in their environment. Everything lies under one directory and listens on the loopback. None of
its processes outlives the `with` block.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from cluster import Process
from ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEMORY = "1200m"
# What a node has: programs of the system, Java among them. Spark's own variables must not come from whoever runs this.
NODE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
QUIET_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Standalone:
    """Starts with `start`; afterwards `master` is where to submit to."""

    def __init__(self, home: Path, spark_home: Path, workers: int = 2) -> None:
        """Spark as it is installed in `spark_home`; logs and work directories under `home`."""
        self.home = home
        self._spark_class = spark_home / "bin" / "spark-class"
        self._workers = workers
        self._stack = ExitStack()
        self.master = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Master first, then all workers; until each is registered."""
        (port,) = free_ports(1)
        self.master = f"spark://127.0.0.1:{port}"
        at = ("--host", "127.0.0.1", "--webui-port", "0")
        master = self._start("master", "org.apache.spark.deploy.master.Master", *at, "--port", str(port))
        master.until(lambda: "I have been elected leader" in self.log("master"), "a master")
        for number in range(self._workers):
            name = f"worker-{number}"
            size = ("--cores", "1", "--memory", MEMORY, "--work-dir", str(self.home / name / "apps"))
            self._start(name, "org.apache.spark.deploy.worker.Worker", *at, *size, self.master)
        master.until(lambda: self.log("master").count("Registering worker") == self._workers, "all workers")

    def log(self, name: str) -> str:
        """What a daemon wrote."""
        path = (self.home / name / "output").with_suffix(".err")
        return path.read_text() if path.exists() else ""

    def executors(self) -> list[Path]:
        """The directories that executors ran in, over all workers."""
        return sorted(path.parent for path in self.home.glob("worker-*/apps/app-*/*/stderr"))

    def logs(self) -> Iterator[tuple[Path, str]]:
        """Everything that was written, for whoever has to find out why."""
        for path in sorted([*self.home.glob("*/output*"), *self.home.glob("worker-*/apps/app-*/*/std*")]):
            yield path, path.read_text(errors="replace")

    def _start(self, name: str, main: str, *arguments: str) -> Process:
        folder = self.home / name
        folder.mkdir(parents=True)
        environment = {
            "PATH": NODE_PATH,
            "HOME": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_CONF_DIR": str(folder),  # nothing is in it
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUIET_JVM,
            **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
        }
        process = Process([str(self._spark_class), main, *arguments], folder / "output", environment)
        self._stack.callback(process.kill)
        return process
