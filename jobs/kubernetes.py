"""Kubernetes manifests of a job: its driver as a CronJob, and what Spark makes the executors from.

The text is `conf/kubernetes/manifests.yaml`, with the words after its dollar signs filled in. What is filled in is
JSON, which YAML reads as it is, so nothing that a flag says can become anything but a value.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FOLDER: Final = Path(__file__).parent.parent / "conf" / "kubernetes"
IN_IMAGE: Final = "/opt/tidemark"
IMAGE: Final = "spark.kubernetes.container.image"
NAMESPACE: Final = "spark.kubernetes.namespace"
DEFAULTS: Final = {
    NAMESPACE: "default",
    "spark.driver.memory": "2g",
    "spark.driver.memoryOverhead": "4g",  # its Python works on all but large recordings itself
    "spark.executor.instances": "2",
    "spark.executor.cores": "2",
    "spark.executor.memory": "2g",
    "spark.executor.memoryOverhead": "2g",  # Python workers, one for each core, are not in the JVM's memory
}
# Kubernetes fills in the two names in parentheses. The driver is the CronJob's own pod: executors go when it goes.
OF_THE_POD: Final = {
    "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
    "spark.driver.host": "$(POD_IP)",
    "spark.kubernetes.executor.podTemplateFile": "/etc/tidemark/executor.yaml",
}
SCHEDULES: Final = {"maintain": "35 2 * * 0"}  # of jobs that are not started every hour
_FLAGS: Final = {
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
    "--driver-memory": "spark.driver.memory",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
}
_CLAIM: Final = re.compile(r"spark\.kubernetes\.executor\.volumes\.persistentVolumeClaim\.([a-z0-9-]+)\.(.+)")
# As Spark itself hides them in what it prints, except where a name in a Secret is meant.
_CREDENTIAL: Final = re.compile(r"(?i)secret|password|token|access[.]?key")
_BY_REFERENCE: Final = re.compile(r"spark\.kubernetes\.(?:driver|executor)\.secret|\.(?:provider|file|class)$")
_MEBIBYTES: Final = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}
_MEMORY: Final = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_DRIVER_MEMORY: Final = ("spark.driver.memory", "spark.driver.memoryOverhead")
_LONGEST_NAME: Final = 52  # of a CronJob: Kubernetes appends the time to it


@dataclass(frozen=True)
class Scheduled:
    """A job as Kubernetes is to run it."""

    name: str
    job: str
    arguments: Sequence[str]
    paths: Sequence[str]  # what the job reads and writes
    flags: Sequence[str]  # for spark-submit, as they were given

    def command(self) -> list[str]:
        """What the container runs, behind the image's entry point."""
        given = settings_of(self.flags)
        added = {**{key: value for key, value in DEFAULTS.items() if key not in given}, **OF_THE_POD}
        conf = [part for key, value in added.items() for part in ("--conf", f"{key}={value}")]
        # `$(NAME)` would be a variable to Kubernetes, and with two dollars is itself.
        arguments, flags = ([part.replace("$(", "$$(") for part in parts] for parts in (self.arguments, self.flags))
        return [self.job, *arguments, "--", *conf, *flags]

    def manifests(self) -> str:
        """All manifests, as a stream of YAML documents. Raises InputError for flags that cannot work there."""
        given = {**DEFAULTS, **settings_of(self.flags)}
        _check(given)
        claims = _claims(given)
        _check_paths(self.paths, [mount["mountPath"] for mount, _ in claims])
        labels = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/instance": self.name}
        words: dict[str, Any] = {
            "name": self.name, "namespace": given[NAMESPACE], "labels": labels, "image": given[IMAGE],
            "memory": f"{sum(_mebibytes(name, given[name]) for name in _DRIVER_MEMORY)}Mi",
            "schedule": SCHEDULES.get(self.job, "5 * * * *"),
        }  # fmt: skip
        lists: dict[str, Sequence[Any]] = {
            "args": self.command(),
            "mounts": [mount for mount, _ in claims],
            "volumes": [volume for _, volume in claims],
        }
        filled = {word: json.dumps(value) for word, value in words.items()}
        filled |= {word: _items(values, 16 if word != "volumes" else 12) for word, values in lists.items()}
        text = (FOLDER / "manifests.yaml").read_text(encoding="utf-8")
        return "".join(f"{line}\n" for line in string.Template(text).substitute(filled).splitlines() if line.strip())


def settings_of(flags: Sequence[str]) -> dict[str, str]:
    """Spark's settings among flags of spark-submit; as there, the last word counts."""
    found = {}
    parts = iter(flags)
    for part in parts:
        flag, equals, value = part.partition("=")
        if flag in {"--conf", "-c", *_FLAGS}:
            value = value if equals else next(parts, "")
            key, _, value = (_FLAGS.get(flag, "") + "=" + value).lstrip("=").partition("=")
            found[key.strip()] = value.strip()
    return found


def name_of(job: str, recordings: Sequence[str]) -> str:
    """A name that Kubernetes allows: the job, and the recording if it is a single one."""
    told = "-".join(["tidemark", *([] if job == "run" else [job]), *(recordings if len(recordings) == 1 else [])])
    name = re.sub(r"[^a-z0-9]+", "-", told.lower()).strip("-")
    if name == told and len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 7].rstrip('-')}-{hashlib.sha256(told.encode()).hexdigest()[:6]}"


def _check(given: Mapping[str, str]) -> None:
    if not given.get(IMAGE):
        message = f"name the image that the nodes pull: --conf {IMAGE}=REGISTRY/tidemark:TAG"
        raise InputError(message)
    if given.get("spark.submit.deployMode") == "cluster":
        message = "the pod of the CronJob is the driver itself: leave out --deploy-mode cluster"
        raise InputError(message)
    for key in given:
        if _CREDENTIAL.search(key) and not _BY_REFERENCE.search(key):
            message = (
                f"{key} would stand in the manifest for all to read: put it into the Secret `tidemark`, whose keys are "
                "environment variables of driver and executors (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ...)"
            )
            raise InputError(message)


def _check_paths(paths: Iterable[str], mounted: Sequence[str]) -> None:
    below = tuple(f"{path.rstrip('/')}/" for path in (*mounted, IN_IMAGE))
    for path in paths:
        if "://" not in path and not f"{path}/".startswith(below):
            claim = "--conf spark.kubernetes.executor.volumes.persistentVolumeClaim.data"
            message = (
                f"{path} is neither a URI nor on a volume that driver and executors mount: "
                f"add {claim}.options.claimName=CLAIM {claim}.mount.path=/FOLDER"
            )
            raise InputError(message)


def _claims(given: Mapping[str, str]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Mounts and volumes of the driver: Spark mounts the same for executors, from the same flags."""
    told: dict[str, dict[str, str]] = {}
    for key, value in given.items():
        if match := _CLAIM.fullmatch(key):
            told.setdefault(match[1], {})[match[2]] = value
    found = []
    for name, options in told.items():
        if not {"mount.path", "options.claimName"} <= options.keys():
            message = f"the volume `{name}` needs both options.claimName and mount.path"
            raise InputError(message)
        read_only = options.get("mount.readOnly", "false") == "true"
        mount = {"name": name, "mountPath": options["mount.path"], "readOnly": read_only}
        if "mount.subPath" in options:
            mount["subPath"] = options["mount.subPath"]
        claim = {"claimName": options["options.claimName"], "readOnly": read_only}
        found.append((mount, {"name": name, "persistentVolumeClaim": claim}))
    return found


def _mebibytes(name: str, told: str) -> int:
    """How much memory a setting asks for."""
    match = _MEMORY.fullmatch(told)
    if not match:
        message = f"{name} is {told!r}, and should be a size as 2g or 2048m"
        raise InputError(message)
    return round(int(match[1]) * _MEBIBYTES[match[2].lower() or "m"])


def _items(values: Sequence[Any], indent: int) -> str:
    """Items of a YAML list, one a line."""
    return f"\n{' ' * indent}".join(f"- {json.dumps(value)}" for value in values)
