"""The whole job as a user starts it, on a Spark cluster of two workers; `test_places` compares its tables.

The nodes have Spark, Java and the base Python, and nothing of Tidemark: what they run is what the script ships.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from submitting import Submitted

pytestmark = pytest.mark.spark

ROOMS = {"schemas", "replay", "pipelines"}  # that executors import; jobs are the driver's
COMPILED = re.compile(r"\[cache\] data (loaded from|saved to) '([^']+)'")


@pytest.fixture(scope="module")
def submitted(on_standalone: Submitted) -> Submitted:
    return on_standalone


def test_every_worker_ran_python(submitted: Submitted) -> None:
    assert len({re.search(r"/(worker-\d)/", folder)[1] for folder in submitted.executors}) == 2  # type: ignore[index]
    assert len(submitted.executors) == len(submitted.python_tasks) == 2
    assert min(submitted.python_tasks.values()) > 0


def test_executors_import_what_was_shipped_and_not_this_checkout(submitted: Submitted) -> None:
    own = [path for path in submitted.imported if "/site-packages/" not in path]
    ours = [path for path in own if not ROOMS.isdisjoint(path.split("/")[:-1])]
    for folder in submitted.executors:
        assert any(path.startswith(f"{folder}/tidemark/pipelines/") for path in ours)
        assert any(path.startswith(f"{folder}/environment/lib/") for path in submitted.imported)
    shipped = tuple(f"{folder}/tidemark/" for folder in submitted.executors)
    assert [path for path in ours if not path.startswith(shipped)] == []


def test_compiled_rules_are_kept_beside_what_was_shipped(submitted: Submitted, repository: Path) -> None:
    said = [(folder, *found) for folder, text in submitted.executors.items() for found in COMPILED.findall(text)]
    assert any("/kernel.fold-" in path for _, _, path in said)
    beside = re.compile(r"/tidemark/replay/\w+/__pycache__/")
    assert [path for folder, _, path in said if not beside.match(path.removeprefix(folder))] == []
    if list((repository / "replay").rglob("kernel.fold-*.nbi")):  # compiled here: shipped with the sources
        assert [path for _, what, path in said if what == "saved to"] == []


def test_driver_on_a_standalone_cluster_is_refused_in_one_sentence(repository: Path, tmp_path: Path) -> None:
    flags = ("--master", "spark://127.0.0.1:1", "--deploy-mode", "cluster")
    where = ("--recording", str(tmp_path), "--warehouse", str(tmp_path))
    done = subprocess.run(
        [repository / "spark-submit.sh", "run", *where, "--", *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tidemark: a standalone cluster starts no Python drivers")
    assert done.stderr.count("\n") == 1
