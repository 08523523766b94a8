"""The submit script says what is missing in one sentence, and shows help without a JVM."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def submit(
    script: Path, *arguments: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    env = {**{k: v for k, v in os.environ.items() if k != "JAVA_HOME"}, **environment}
    return subprocess.run([script, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(repository: Path, tmp_path: Path) -> Path:
    """The script and the jobs in a folder with a space in its name, and no environment."""
    folder = tmp_path / "a checkout"
    for name in ("jobs", "schemas", "conf"):
        shutil.copytree(repository / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("spark-submit.sh", "requirements.lock"):
        shutil.copy(repository / name, folder / name)
    return folder


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",)])
def test_without_a_job_it_helps(repository: Path, arguments: tuple[str, ...]) -> None:
    result = submit(repository / "spark-submit.sh", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert "./spark-submit.sh demo" in result.stdout


@pytest.mark.parametrize("job", ["demo", "inspect", "run", "ingest", "replay", "validate", "report"])
def test_help_of_a_job_needs_neither_java_nor_an_environment(checkout: Path, tmp_path: Path, job: str) -> None:
    no_java = str(program(tmp_path / "java/bin", "java", "exit 9").parent.parent)
    result = submit(checkout / "spark-submit.sh", job, "--help", cwd=tmp_path, JAVA_HOME=no_java)
    assert result.returncode == 0, result.stderr
    assert f"usage: ./spark-submit.sh {job}" in result.stdout
    assert "examples:" in result.stdout
    assert not (checkout / ".venv").exists()


def test_an_unknown_job_is_bad_usage(repository: Path) -> None:
    result = submit(repository / "spark-submit.sh", "rnu")
    assert result.returncode == 2
    assert result.stderr.startswith("tidemark: there is no job 'rnu': demo, inspect, run")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "25"])
def test_a_wrong_java_is_one_sentence(checkout: Path, tmp_path: Path, version: str) -> None:
    home = program(tmp_path / "java/bin", "java", f"echo 'openjdk version \"{version}\" 2024-01-01' >&2").parent.parent
    result = submit(checkout / "spark-submit.sh", "demo", JAVA_HOME=str(home))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "a JDK 17 or 21 is needed" in result.stderr


def test_no_java_is_one_sentence(checkout: Path, tmp_path: Path) -> None:
    result = submit(checkout / "spark-submit.sh", "demo", JAVA_HOME=str(tmp_path / "nothing"))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "install a JDK 17 or 21" in result.stderr


def test_a_wrong_python_is_one_sentence(checkout: Path, tmp_path: Path) -> None:
    java = program(tmp_path / "java/bin", "java", "echo 'openjdk version \"17.0.9\"' >&2")
    old = program(tmp_path / "old", "python", '[ "$1" = --version ] && echo Python 3.9.2 || exit 1')
    home = str(java.parent.parent)
    result = submit(checkout / "spark-submit.sh", "demo", JAVA_HOME=home, TIDEMARK_PYTHON=str(old))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "Python 3.11 to 3.14 is needed" in result.stderr
    assert "Python 3.9.2" in result.stderr


def test_a_folder_that_is_not_ours_is_left_alone(checkout: Path, tmp_path: Path) -> None:
    java = program(tmp_path / "java/bin", "java", "echo 'openjdk version \"21\"' >&2")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    environment = {"JAVA_HOME": str(java.parent.parent), "TIDEMARK_VENV": str(tmp_path / "mine")}
    result = submit(checkout / "spark-submit.sh", "demo", **environment)
    assert result.returncode == 2
    assert "Tidemark did not make it" in result.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"
