"""Runs of one recording on clusters and stores that the tests start themselves, one run each for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hadoop import MiniHadoop
from pyarrow import fs
from s3_server import IDENTITY, SECRET, S3Server
from standalone import Standalone
from submitting import HADOOP, SPARK_HOME, Submitted, jars_or_skip, python_tasks, show, submit
from whole_run import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipelines.stages.run import Run

SIZE = ["--driver-memory", "1g", "--executor-memory", "1g"]


@pytest.fixture(scope="session")
def on_standalone(first: Run, recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """A standalone cluster; recording and warehouse are in a bucket, and only the driver is told of their server."""
    del first  # after the local run: what that has compiled is shipped
    home = tmp_path_factory.mktemp("cluster")
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": home.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.executorEnv.PYTHONPYCACHEPREFIX": str(home / "imported"),
        "spark.executorEnv.NUMBA_DEBUG_CACHE": "1",
        "spark.executorEnv.PYTHONUNBUFFERED": "1",  # what numba says is lost with a worker otherwise
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    jars = jars_or_skip("s3proxy-4.1.0.sha256")
    with S3Server(home, jars) as server, Standalone(home, SPARK_HOME) as cluster:
        try:
            server.start("lake")
            store = fs.S3FileSystem(access_key=IDENTITY, secret_key=SECRET, endpoint_override=server.endpoint)
            copied = f"lake/recordings/{NAME}"
            here = fs.LocalFileSystem()
            fs.copy_files(str(recordings / NAME), copied, source_filesystem=here, destination_filesystem=store)
            cluster.start()
            flags = ["--master", cluster.master, *SIZE, "--packages", f"org.apache.hadoop:hadoop-aws:{HADOOP}"]
            said = submit(home, (f"s3a://{copied}", "s3a://lake/tables"), flags, settings, server.environment)
        except BaseException:
            show(cluster.logs())
            raise
        executors = {str(folder): (folder / "stderr").read_text(errors="replace") for folder in cluster.executors()}
    imported = [str(path).removeprefix(str(home / "imported")) for path in (home / "imported").rglob("*.pyc")]
    return Submitted(str(server.buckets / "lake" / "tables"), said, executors, imported, python_tasks(home))


@pytest.fixture(scope="session")
def hadoop(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHadoop]:
    """HDFS with the recording on it."""
    home = tmp_path_factory.mktemp("hadoop")
    with MiniHadoop(home, jars_or_skip(f"hadoop-{HADOOP}.sha256"), SPARK_HOME) as cluster:
        try:
            cluster.start(megabytes=4096)
            cluster.shell("-mkdir", "-p", "/recordings", "/user/root")
            cluster.shell("-put", str(recordings / NAME), "/recordings/")
        except BaseException:
            show(cluster.logs())
            raise
        yield cluster


@pytest.fixture(scope="session")
def on_yarn(first: Run, hadoop: MiniHadoop, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """An executor in a container of YARN; recording and warehouse on HDFS, from where the tables are copied."""
    del first
    home = tmp_path_factory.mktemp("yarn")
    settings = {"spark.yarn.jars": f"local:{SPARK_HOME}/jars/*", "spark.executor.memoryOverhead": "1g"}
    flags = ["--master", "yarn", "--deploy-mode", "client", "--num-executors", "1", "--executor-cores", "2", *SIZE]
    where = (f"{hadoop.root}/recordings/{NAME}", f"{hadoop.root}/tables")
    try:
        said = submit(home, where, flags, settings, hadoop.environment)
    except BaseException:
        show(hadoop.logs())
        raise
    hadoop.shell("-get", "/tables", str(home / "tables"))
    return Submitted(str(home / "tables"), said)
