"""An S3 server on this machine: S3Proxy, with a folder behind it in which an object is a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from cluster import JAVA, JVM, Process
from ports import free_ports, is_open

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY: Final = "tidemark"
SECRET: Final = "not-a-secret"  # noqa: S105 - of a server that lives for a test, on the loopback
LOGGING: Final = '<configuration><root level="WARN"/></configuration>'


class S3Server:
    """Starts with `start`; `environment` is then all that a client must be told."""

    def __init__(self, home: Path, class_path: str) -> None:
        """Buckets are folders under `buckets`; what it says goes beside them."""
        self.buckets = home / "buckets"
        self.endpoint = ""
        self._home = home
        self._class_path = class_path
        self._process: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()

    def start(self, bucket: str) -> None:
        """Until it listens; the bucket is there, and empty."""
        (port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{port}"
        (self.buckets / bucket).mkdir(parents=True)
        configuration = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": IDENTITY,
            "s3proxy.credential": SECRET,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.buckets),
        }
        properties, logging = self._home / "s3proxy.conf", self._home / "logback.xml"
        properties.write_text("".join(f"{key}={value}\n" for key, value in configuration.items()))
        logging.write_text(LOGGING)
        java = [JAVA, "-Xmx256m", *JVM, f"-Dlogback.configurationFile={logging}", "-cp", self._class_path]
        command = [*java, "org.gaul.s3proxy.Main", "--properties", str(properties)]
        self._process = Process(command, self._home / "s3proxy.out")
        self._process.until(lambda: is_open(port), "an S3 server")

    @property
    def environment(self) -> dict[str, str]:
        """What the documentation tells a user to export."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": IDENTITY, "AWS_SECRET_ACCESS_KEY": SECRET}
