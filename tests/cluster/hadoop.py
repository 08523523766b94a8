"""Hadoop on this machine: HDFS with a name node and a data node, YARN with a node, all in one JVM.

It is the cluster that Hadoop's own tests run on, of the version whose client Spark brings. Everything lies under one
directory and listens on the loopback. Neither it nor what it started outlives the `with` block.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cluster import JAVA, JVM, Process
from ports import free_ports
from standalone import NODE_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START_S: Final = 300  # ten on a machine that does nothing else
SCHEDULERS: Final = "org.apache.hadoop.yarn.server.resourcemanager.scheduler"
HISTORY: Final = tuple(f"mapreduce.jobhistory.{one}address" for one in ("", "admin.", "webapp."))
SITE: Final = "<configuration>{}</configuration>\n"
PROPERTY: Final = "<property><name>{}</name><value>{}</value></property>"
LOGGING: Final = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n
"""


class MiniHadoop:
    """Starts with `start`; `configuration` is then the folder that HADOOP_CONF_DIR names."""

    def __init__(self, home: Path, class_path: str, spark_home: Path) -> None:
        """Its own jars, and those that Spark brings of Hadoop."""
        self.home = home
        self.configuration = home / "conf"
        self.root = ""
        self._class_path = os.pathsep.join((class_path, str(spark_home / "jars" / "*")))
        self._process: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()  # with its containers, which a kill would leave behind

    def start(self, megabytes: int) -> None:
        """Until HDFS and YARN serve; containers have so much memory in all."""
        names, manager, scheduler, tracker, admin, web, *history = free_ports(9)
        self.root = f"hdfs://localhost:{names}"
        clients = {
            "yarn.resourcemanager.address": f"127.0.0.1:{manager}",
            "yarn.resourcemanager.scheduler.address": f"127.0.0.1:{scheduler}",
        }
        servers = {
            **clients,
            "yarn.minicluster.fixed.ports": "true",
            "yarn.resourcemanager.resource-tracker.address": f"127.0.0.1:{tracker}",
            "yarn.resourcemanager.admin.address": f"127.0.0.1:{admin}",
            "yarn.resourcemanager.webapp.address": f"127.0.0.1:{web}",
            # Of a history that nobody asks for; with fixed ports it would have those of every such cluster.
            **dict(zip(HISTORY, (f"127.0.0.1:{port}" for port in history), strict=True)),
            # The other one wants a file that names its queues.
            "yarn.resourcemanager.scheduler.class": f"{SCHEDULERS}.fifo.FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.minicluster.yarn.nodemanager.resource.memory-mb": str(megabytes),
            "yarn.nodemanager.vmem-check-enabled": "false",
            # A disk that is nearly full is this machine's business.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.nodemanager.delete.debug-delay-sec": "3600",  # logs of containers stay
        }
        self.configuration.mkdir(parents=True)
        (self.configuration / "core-site.xml").write_text(site({"fs.defaultFS": self.root}))
        (self.configuration / "hdfs-site.xml").write_text(site({"dfs.replication": "1"}))
        (self.configuration / "yarn-site.xml").write_text(site(clients))
        logging = self.home / "log4j2.properties"
        logging.write_text(LOGGING)
        details = self.home / "details.json"
        options = [f"-Dtest.build.data={self.home / 'target'}", f"-Dlog4j2.configurationFile={logging}"]
        # As Hadoop's own scripts open it, for YARN's pages.
        java = [
            JAVA,
            "-Xmx512m",
            *JVM,
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            *options,
            "-cp",
            self._class_path,
        ]
        flags = ["-format", "-nnport", str(names), "-rmport", str(manager), "-writeDetails", str(details)]
        for key, value in servers.items():
            flags += ["-D", f"{key}={value}"]
        self._process = Process(
            [*java, "org.apache.hadoop.mapreduce.MiniHadoopClusterManager", *flags],
            self.home / "hadoop.out",
            {"PATH": NODE_PATH, "HOME": str(self.home), "JAVA_HOME": java_home(), "HADOOP_USER_NAME": "root"},
            self.home,
        )
        self._process.until(details.exists, "a Hadoop cluster", START_S)

    def shell(self, *arguments: str) -> None:
        """Hadoop's `hadoop fs`."""
        path = os.pathsep.join((str(self.configuration), self._class_path))
        command = [JAVA, "-Xmx256m", *JVM, "-cp", path, "org.apache.hadoop.fs.FsShell", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    @property
    def environment(self) -> Mapping[str, str]:
        """What the documentation tells a user to export."""
        return {**os.environ, "HADOOP_CONF_DIR": str(self.configuration), "HADOOP_USER_NAME": "root"}

    def logs(self) -> Iterator[tuple[Path, str]]:
        """What it and its containers wrote."""
        for path in sorted([*self.home.glob("hadoop.*"), *self.home.rglob("container_*/std*")]):
            yield path, path.read_text(errors="replace")


def site(properties: Mapping[str, str]) -> str:
    """A file of Hadoop's configuration."""
    return SITE.format("".join(PROPERTY.format(*one) for one in properties.items()))


def java_home() -> str:
    """Of the Java that the tests run with: containers start what stands in it."""
    return os.environ.get("JAVA_HOME") or str(Path(shutil.which(JAVA) or JAVA).resolve().parent.parent)
