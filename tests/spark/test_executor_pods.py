"""What Spark makes of the manifests: the pods that it would ask Kubernetes for, and the entry point that they run.

There is no Kubernetes here. The pod is built by Spark's own code, from the flags and the template of the manifests.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pyspark.java_gateway import launch_gateway
from scratch_tools import programs_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark

CLAIM = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data"
FLAGS = (
    "--master", "k8s://https://kubernetes.default.svc", "--conf", "spark.kubernetes.container.image=tidemark:test",
    "--conf", f"{CLAIM}.options.claimName=logs", "--conf", f"{CLAIM}.mount.path=/data",
)  # fmt: skip
WHERE = ("--recording", "/data/prod", "--warehouse", "/data/lake")
OF_THE_DRIVER = {
    "spark.driver.host": "10.0.0.7", "spark.driver.port": "7078", "spark.kubernetes.driver.pod.name": "driver",
    "spark.app.name": "tidemark run", "spark.app.id": "spark-1",
}  # fmt: skip


@pytest.fixture(scope="module")
def template_and_pod(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The template of the manifests, and the pod of the first executor."""
    command = [repository / "spark-submit.sh", "run", *WHERE, "--dry-run", "--", *FLAGS]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    documents = {document["kind"]: document for document in yaml.safe_load_all(printed) if document}
    template = documents["ConfigMap"]["data"]["executor.yaml"]
    path = tmp_path_factory.mktemp("etc") / "executor.yaml"
    path.write_text(template)
    (driver,) = documents["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    pairs = zip(driver["args"], driver["args"][1:], strict=False)
    settings = dict(value.split("=", 1) for flag, value in pairs if flag == "--conf")
    settings |= {"spark.kubernetes.executor.podTemplateFile": str(path), **OF_THE_DRIVER}
    gateway = launch_gateway()
    try:
        yield yaml.safe_load(template), executor_pod(gateway.jvm, settings)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()


def executor_pod(jvm: Any, settings: dict[str, str]) -> dict[str, Any]:
    """As Spark's allocator of pods makes it."""

    def companion(name: str) -> Any:
        return getattr(getattr(jvm, f"org.apache.spark.{name}$"), "MODULE$")

    conf = jvm.org.apache.spark.SparkConf(False)  # noqa: FBT003 - Java's
    for key, value in settings.items():
        conf.set(key, value)
    nothing = jvm.scala.Option.apply(None)
    metadata = jvm.io.fabric8.kubernetes.api.model.ObjectMetaBuilder().withName("driver").withUid("1-2-3").build()
    driver = jvm.io.fabric8.kubernetes.api.model.PodBuilder().withMetadata(metadata).build()
    profile = companion("resource.ResourceProfile").getOrCreateDefaultProfile(conf)
    of_executor = companion("deploy.k8s.KubernetesConf").createExecutorConf(
        conf, "1", "spark-1", jvm.scala.Option.apply(driver), profile.id()
    )
    security = jvm.org.apache.spark.SecurityManager(
        conf, nothing, companion("internal.config.package").AUTH_SECRET_FILE()
    )
    client = jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()
    builder = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    made = builder.buildFromFeatures(of_executor, security, client, profile).pod()
    as_json = jvm.io.fabric8.kubernetes.client.utils.Serialization.asJson
    pod = json.loads(as_json(made.pod()))
    pod["spec"]["containers"] = [json.loads(as_json(made.container()))]
    client.close()
    return pod  # type: ignore[no-any-return]


def test_the_pod_is_what_the_template_says_and_what_spark_adds(
    template_and_pod: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    template, pod = template_and_pod
    for key in ("securityContext", "automountServiceAccountToken", "terminationGracePeriodSeconds"):
        assert pod["spec"][key] == template["spec"][key]
    assert template["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
    (container,), (wanted,) = pod["spec"]["containers"], template["spec"]["containers"]
    for key in ("name", "securityContext", "envFrom"):
        assert container[key] == wanted[key]
    assert (container["image"], container["args"]) == ("tidemark:test", ["executor"])
    assert "command" not in container  # the image's entry point
    requests = container["resources"]["requests"]
    assert requests == {"cpu": "2", "memory": f"{2048 + 2048}Mi", "ephemeral-storage": "10Gi"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    claims = {volume["name"]: volume.get("persistentVolumeClaim") for volume in pod["spec"]["volumes"]}
    assert mounts["data"] == "/data"
    assert claims["data"]["claimName"] == "logs"


def test_the_pod_goes_with_the_driver(template_and_pod: tuple[dict[str, Any], dict[str, Any]]) -> None:
    _, pod = template_and_pod
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "driver", "1-2-3")


def test_kubernetes_takes_the_pod(template_and_pod: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path) -> None:
    _, pod = template_and_pod
    validate = programs_of("kubernetes-validate==1.37.0", "setuptools<81") / "kubernetes-validate"
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    ended = subprocess.run([validate, "--strict", tmp_path / "pod.yaml"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_entry_point_starts_an_executor_from_the_environment_of_its_pod(
    template_and_pod: tuple[dict[str, Any], dict[str, Any]], repository: Path, tmp_path: Path
) -> None:
    _, pod = template_and_pod
    (container,) = pod["spec"]["containers"]
    fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
    environment = {one: os.environ[one] for one in ("PATH", "HOME", "JAVA_HOME", "TIDEMARK_VENV") if one in os.environ}
    for one in container["env"]:
        field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        environment[one["name"]] = fields[field] if field else one.get("value", "")
    environment |= {"SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1", "SPARK_EXECUTOR_MEMORY": "300m"}
    environment |= {"SPARK_LOCAL_DIRS": str(tmp_path)}
    ended = subprocess.run(
        [repository / "spark-submit.sh", *container["args"]],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 1  # nobody listens there; but everything before that has been right
    assert "Connection refused: /127.0.0.1:1" in ended.stderr
