"""Recordings that lie elsewhere than on this machine: how stores are named, asked, and told who asks."""

from __future__ import annotations

import pytest
from pyarrow import fs
from pyspark import SparkConf

from pipelines.recording.listing import filesystem
from pipelines.recording.recording import discover
from pipelines.spark import session
from schemas.errors import InputError


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in session.S3_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_bucket_may_be_named_as_hadoop_names_it(scheme: str) -> None:
    system, path = filesystem(f"{scheme}://lake/recordings/one?region=eu-central-1")
    assert isinstance(system, fs.S3FileSystem)
    assert (system.region, path) == ("eu-central-1", "lake/recordings/one")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_store_that_does_not_answer_is_told_in_one_sentence(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(InputError, match=rf"^{scheme}://lake/one: cannot be read: [^\n\x1b]*onnect[^\n\x1b]*$"):
        discover(f"{scheme}://lake/one")


def test_a_name_node_that_does_not_answer_is_told_in_one_sentence() -> None:
    with pytest.raises(InputError, match=r"^hdfs://127\.0\.0\.1:1/one: cannot be read: [^\n\x1b]*refused[^\n\x1b]*$"):
        discover("hdfs://127.0.0.1:1/one")


def test_executors_are_told_where_s3_is_and_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_PROFILE", "a file of this machine")
    assert session.for_executors() == {
        "spark.executorEnv.AWS_ACCESS_KEY_ID": "somebody",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "something",
        "spark.executorEnv.AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }


def test_what_spark_submit_was_told_of_executors_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SparkConf(loadDefaults=False).set("spark.executorEnv.AWS_ACCESS_KEY_ID", "somebody else")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(session, "SparkConf", lambda: told)
    assert session.for_executors() == {"spark.executorEnv.AWS_SECRET_ACCESS_KEY": "something"}
