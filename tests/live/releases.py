"""The releases that brokers are started of, and where their tools come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import Release
from jars import UnreachableError, class_path

# Brokers: the release that brings their tools, and kafka-dump-log's class in it. The last is the newest.
_TOOLS = {
    "3.9.1": ("4.3.1", "org.apache.kafka.tools.DumpLogSegments"),
    "4.1.0": ("4.1.0", "kafka.tools.DumpLogSegments"),
    "4.4.0": ("4.3.1", "org.apache.kafka.tools.DumpLogSegments"),
}
RELEASES = tuple(_TOOLS)


def release(kafka: str) -> Release:
    """Its jars, fetched if they are not kept.

    Raises:
        UnreachableError: one is missing and cannot be fetched.
    """
    tools, dump_log = _TOOLS[kafka]
    jars = [class_path(Path(__file__).with_name(f"kafka-{version}.sha256")) for version in (kafka, tools)]
    return Release(kafka, *jars, dump_log)


def release_or_skip(kafka: str) -> Release:
    """The same; the test is skipped where the jars cannot be had."""
    try:
        return release(kafka)
    except UnreachableError as error:
        pytest.skip(f"Kafka's jars are not in the cache, and Maven Central cannot be reached: {error}")
