"""A whole run as a user submits it: by the script, to some cluster, with flags for Spark after `--`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
import pytest
from jars import UnreachableError, class_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SPARK_HOME: Final = Path(pyspark.__file__).parent
(_CLIENT,) = (SPARK_HOME / "jars").glob("hadoop-client-api-*.jar")
HADOOP: Final = _CLIENT.stem.removeprefix("hadoop-client-api-")  # the version that Spark brings
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"  # as of the tests' own session
SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.sql.shuffle.partitions": "4",
}
BY_SPARK: Final = "driver_facts = 0\n"  # settings: the recording is small, and its work goes to executors all the same


@dataclass(frozen=True)
class Submitted:
    """A run on the cluster, its end and its traces."""

    warehouse: str  # as this machine sees it
    said: str
    executors: dict[str, str] = field(default_factory=dict)  # directory -> what it wrote
    imported: list[str] = field(default_factory=list)  # modules, by what their executors' Python wrote of them
    python_tasks: Counter[str] = field(default_factory=Counter)  # by executor


def submit(
    home: Path,
    where: tuple[str, str],
    flags: list[str],
    settings: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run the recording into the warehouse, from `home`, and return what was printed; it must end well."""
    script = Path(__file__).parent.parent.parent / "spark-submit.sh"
    recording, warehouse = where
    by_spark = home / "settings.toml"
    by_spark.write_text(BY_SPARK)
    said = ["--recording", recording, "--warehouse", warehouse, "--settings", str(by_spark)]
    given = [part for key, value in {**SETTINGS, **settings}.items() for part in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [script, "run", *said, "--", *given, *flags],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def jars_or_skip(name: str) -> str:
    """The class path of the jars that this file lists; the test is skipped where they cannot be had."""
    try:
        return class_path(Path(__file__).with_name(name))
    except UnreachableError as error:
        pytest.skip(f"no jars of {name}: {error}")


def show(logs: Iterator[tuple[Path, str]]) -> None:
    """Print what processes wrote, for whoever has to find out why a run failed."""
    for path, text in logs:
        sys.stderr.write(f"--- {path}\n{text[-5000:]}\n")


def python_tasks(home: Path) -> Counter[str]:
    """How many tasks that ran Python each executor ended, by Spark's own log of the run."""
    (log,) = home.glob("app-*")
    ended = [event for event in map(json.loads, log.open()) if event["Event"] == "SparkListenerTaskEnd"]
    return Counter(
        event["Task Info"]["Executor ID"]
        for event in ended
        if any("Python workers" in str(metric.get("Name")) for metric in event["Task Info"]["Accumulables"])
    )
