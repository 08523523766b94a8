"""What every test may use: where things are, and one Spark session for all tests that need one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pipelines.stages.run import Run

REPOSITORY = Path(__file__).parent.parent

# As spark-submit.sh sets them, for `pytest` by itself.
os.environ.setdefault("SPARK_CONF_DIR", str(REPOSITORY / "conf"))
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")


# The same examples in every run; `--hypothesis-profile=histories` looks for new ones.
slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("steady", derandomize=True, max_examples=60, database=None, **slow)
settings.register_profile("histories", max_examples=2000, database=None, **slow)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="write what tests/testdata tells anew")


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def recordings() -> Path:
    return REPOSITORY / "tests" / "recordings"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pipelines.spark.session import spark_session  # noqa: PLC0415 - tests without Spark do not pay for it

    session = spark_session(
        "tidemark tests",
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            # Short jobs: to compile well does not pay. The first flag alone would leave a fifth of the room for
            # compiled code; once it is full, nothing is compiled any more, and most of the tests take far longer.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def first(spark: SparkSession, recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The whole job on one recording, locally: what other runs of it are compared with."""
    from whole_run import NAME, STAGES, run  # noqa: PLC0415 - as above

    return run(spark, recordings / NAME, tmp_path_factory.mktemp("a warehouse"), STAGES)
