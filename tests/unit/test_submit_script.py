"""The submit script says what is missing in one sentence, and shows help without a JVM."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from typing import IO, TYPE_CHECKING, Any

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


@pytest.mark.parametrize(
    "job",
    [
        *("demo", "collect", "inspect", "run", "ingest", "replay", "validate", "report", "maintain", "views"),
        *("show", "completion"),
    ],
)
def test_help_of_a_job_needs_neither_java_nor_an_environment(checkout: Path, tmp_path: Path, job: str) -> None:
    no_java = str(program(tmp_path / "java/bin", "java", "exit 9").parent.parent)
    result = submit(checkout / "spark-submit.sh", job, "--help", cwd=tmp_path, JAVA_HOME=no_java)
    assert result.returncode == 0, result.stderr
    assert f"usage: ./spark-submit.sh {job}" in result.stdout
    assert "examples:" in result.stdout
    assert not (checkout / ".venv").exists()


def test_help_of_what_show_shows_is_its_own(checkout: Path, tmp_path: Path) -> None:
    result = submit(checkout / "spark-submit.sh", "show", "record", "--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "usage: ./spark-submit.sh show record" in result.stdout


def test_an_unknown_job_is_bad_usage(repository: Path) -> None:
    result = submit(repository / "spark-submit.sh", "rnu")
    assert result.returncode == 2
    assert result.stderr.startswith("tidemark: there is no job 'rnu': demo, collect, inspect, run")
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


def test_a_dry_run_for_a_cluster_prints_the_exact_command_and_starts_no_driver_there(
    repository: Path, tmp_path: Path
) -> None:
    arguments = ("--recording", "a tape", "--warehouse", "hdfs://lake/$HOME", "--dry-run")
    flags = ("--master", "yarn", "--deploy-mode", "cluster", "--conf", "spark.app.name=it's one")
    result = submit(repository / "spark-submit.sh", "run", *arguments, "--", *flags, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "")
    *_, told = result.stderr.splitlines()
    command = shlex.split(told.removeprefix("tidemark: would run: "))
    assert command[0].endswith("/bin/spark-submit")
    assert command[-len(arguments) - 1 :] == [str(repository / "jobs" / "run.py"), *arguments]
    assert command[-len(arguments) - 1 - len(flags) : -len(arguments) - 1] == list(flags)
    assert "#environment,file:" in command[command.index("--archives") + 1]


def failure(text: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(text)
    assert (told["recordings"], told["error"], told["exit_code"]) == ([], told["failure"]["message"], 2)
    return dict(told["failure"])


def test_what_is_missing_is_json_if_json_is_asked_for(checkout: Path, tmp_path: Path) -> None:
    home = program(tmp_path / 'the "java" home/bin', "java", "echo 'openjdk version \"11.0.1\"' >&2").parent.parent
    result = submit(checkout / "spark-submit.sh", "run", "--json", JAVA_HOME=str(home))
    assert result.returncode == 2
    assert failure(result.stdout)["message"].startswith(f"a JDK 17 or 21 is needed, and {home}/bin/java is 11")
    assert failure(submit(checkout / "spark-submit.sh", "rnu", "--json").stdout)["kind"] == "setup"
    java = program(tmp_path / "java17/bin", "java", "echo 'openjdk version \"17.0.9\"' >&2").parent.parent
    environment = {"JAVA_HOME": str(java), "TIDEMARK_PYTHON": "no-such-python"}
    result = submit(checkout / "spark-submit.sh", "run", "--json", **environment)
    assert "no Python found" in failure(result.stdout)["message"]


def may_be_removed(lock: IO[str]) -> bool:
    """Whether no job holds the environment."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


def wait_for(condition: Path) -> None:
    end = time.monotonic() + 60
    while not condition.exists():
        assert time.monotonic() < end, condition
        time.sleep(0.05)


def test_an_environment_is_not_renewed_while_a_job_runs_in_it(checkout: Path, tmp_path: Path) -> None:
    java = program(tmp_path / "java/bin", "java", "echo 'openjdk version \"17.0.9\"' >&2").parent.parent
    old = checkout / ".venv"
    old.mkdir()
    (old / "tidemark").touch()
    (old / "tidemark-requirements.lock").write_text("of another lock file")
    no_venv = f'[ "$1 $2" = "-m venv" ] && exit 1; exec "{sys.executable}" "$@"'
    python = str(program(tmp_path / "python", "python", no_venv))
    env = {**os.environ, "JAVA_HOME": str(java), "TIDEMARK_PYTHON": python, "TIDEMARK_IVY": str(tmp_path / "ivy")}
    said = tmp_path / "said"
    with (checkout / ".venv.in-use").open("w") as lock, said.open("w") as out:
        fcntl.flock(lock, fcntl.LOCK_SH)
        starting = subprocess.Popen([checkout / "spark-submit.sh", "demo"], env=env, stderr=out, stdout=out)
        end = time.monotonic() + 60
        while "waiting for their end" not in said.read_text():
            assert time.monotonic() < end, said.read_text()
            time.sleep(0.05)
        assert (old / "tidemark-requirements.lock").read_text() == "of another lock file"
        fcntl.flock(lock, fcntl.LOCK_UN)
        starting.wait(timeout=120)
    assert not (old / "tidemark-requirements.lock").exists()
    assert "could not make a virtual environment" in said.read_text()  # it went on, as far as this test lets it


def test_a_job_holds_its_environment_until_it_ends(checkout: Path, tmp_path: Path) -> None:
    go_on, began = tmp_path / "go-on", tmp_path / "began"
    spark = f"touch '{began}'; while [ ! -e '{go_on}' ]; do sleep 0.05; done"
    version = "echo 'openjdk version \"17.0.9\"' >&2"
    java = program(
        tmp_path / "java/bin", "java", f'if [ "$1" = -version ]; then {version}; else {spark}; fi'
    ).parent.parent
    program(checkout / ".venv/bin", "python", f'exec "{sys.executable}" "$@"')
    lock_file = (checkout / "requirements.lock").read_bytes()
    (checkout / ".venv/tidemark-requirements.lock").write_text(hashlib.sha256(lock_file).hexdigest())
    packages = checkout / ".venv/lib/python3/site-packages"
    packages.mkdir(parents=True)
    (packages / "tidemark.pth").write_text(f"{checkout}\n")
    (tmp_path / "ivy/jars").mkdir(parents=True)
    (tmp_path / "ivy/jars/a.jar").write_text("a jar")
    (checkout / "conf/jars.sha256").write_text(f"{hashlib.sha256(b'a jar').hexdigest()}  a.jar\n")
    (checkout / "replay").mkdir()
    env = {**os.environ, "JAVA_HOME": str(java), "TIDEMARK_IVY": str(tmp_path / "ivy")}
    running = subprocess.Popen([checkout / "spark-submit.sh", "demo"], env=env, stderr=subprocess.DEVNULL)
    wait_for(began)
    with (checkout / ".venv.in-use").open() as lock:
        assert not may_be_removed(lock)
        go_on.touch()
        running.wait(timeout=60)
        assert may_be_removed(lock)


def test_what_draws_pictures_is_shipped_only_where_the_driver_is(repository: Path, tmp_path: Path) -> None:
    """The function as it stands in the script, on a small environment."""
    packages = tmp_path / "env" / "lib" / "site-packages"
    for name in ("vl_convert/vl_convert.so", "vl_convert_python-1.dist-info/METADATA", "jinja2/core.py"):
        (packages / name).parent.mkdir(parents=True)
        (packages / name).write_text("it")
    program(tmp_path / "env" / "bin", "python", f"case $2 in *purelib*) echo {packages} ;; *) echo 3 ;; esac")
    script = (repository / "spark-submit.sh").read_text()
    parts = [
        part
        for name in ("sha256", "archive_of", "pack_environment")
        for part in re.findall(rf"^{name}\(\) {{.*?}}$", script, re.MULTILINE | re.DOTALL)
    ]
    for mode, is_there in (("client", False), ("cluster", True)):
        setting = f"set -euo pipefail; here={repository} venv={tmp_path}/env cache={tmp_path}/cache; say() {{ :; }}"
        text = "\n".join((setting, *parts, f"pack_environment {mode}"))
        archive = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout
        with tarfile.open(archive) as packed:
            names = packed.getnames()
        assert any("jinja2/core.py" in name for name in names)
        assert any("vl_convert" in name for name in names) == is_there


def test_templates_of_the_page_are_shipped_with_our_own_packages(repository: Path) -> None:
    script = (repository / "spark-submit.sh").read_text()
    assert "-path '*/templates/*'" in script.split("pack_tidemark() {")[1].split("\n}")[0]
    templates = repository / "pipelines" / "page" / "templates"
    assert {one.name for one in templates.iterdir()} == {"page.html", "page.css", "page.js"}
