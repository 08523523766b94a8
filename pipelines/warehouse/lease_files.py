"""The folder of a lease, in a store of Hadoop's or on this machine."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from pipelines.spark.hadoop import content_of, is_missing

if TYPE_CHECKING:
    from pathlib import Path

_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"  # S3A: If-None-Match; others refuse to overwrite anyway


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A folder of this machine. Hadoop's way to it looks first and writes then, so two drivers could both succeed."""

    folder: Path

    def names(self) -> list[str]:
        """As `LeaseFiles`."""
        return [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []

    def create(self, name: str, content: bytes) -> bool:
        """As `LeaseFiles`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            file = (self.folder / name).open("xb")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(content)
        except OSError:  # a disk is full: an empty file would keep others out for as long as a lease lasts
            self.delete(name)
            raise
        return True

    def overwrite(self, name: str, content: bytes) -> None:
        """As `LeaseFiles`; a reader never sees half of it."""
        written = self.folder / f".{uuid.uuid4().hex}"
        try:
            written.write_bytes(content)
            written.replace(self.folder / name)
        finally:
            written.unlink(missing_ok=True)

    def read(self, name: str) -> tuple[bytes, float] | None:
        """As `LeaseFiles`."""
        try:
            with (self.folder / name).open("rb") as file:
                return file.read(), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        """As `LeaseFiles`."""
        (self.folder / name).unlink(missing_ok=True)

    def now(self) -> float:
        """As `LeaseFiles`: the folder may be another machine's."""
        probe = self.folder / f".{uuid.uuid4().hex}"
        try:
            probe.touch()
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class HadoopFiles:
    """A folder in a store that Hadoop knows."""

    jvm: Any
    system: Any
    folder: Any  # Hadoop's path

    def names(self) -> list[str]:
        """As `LeaseFiles`."""
        try:
            return [found.getPath().getName() for found in self.system.listStatus(self.folder)]
        except Py4JJavaError as error:
            if is_missing(error):
                return []
            raise

    def create(self, name: str, content: bytes) -> bool:
        """As `LeaseFiles`. Stores say in several ways that they refused, so what stands there decides."""
        try:
            builder = self.system.createFile(self._path(name)).create().overwrite(False).recursive()  # noqa: FBT003
            self._fill(builder.opt(_CONDITIONAL, "true").build(), content)
        except Py4JJavaError:
            found = self.read(name)
            if found is None:
                raise
            return found[0] == content
        return True

    def overwrite(self, name: str, content: bytes) -> None:
        """As `LeaseFiles`."""
        self._fill(self.system.create(self._path(name), True), content)  # noqa: FBT003 - Java's overwrite

    def read(self, name: str) -> tuple[bytes, float] | None:
        """As `LeaseFiles`."""
        path = self._path(name)
        try:
            written = self.system.getFileStatus(path).getModificationTime() / 1000
        except Py4JJavaError as error:
            if is_missing(error):
                return None
            raise
        content = content_of(self.jvm, self.system, path)
        return None if content is None else (content, written)

    def delete(self, name: str) -> None:
        """As `LeaseFiles`."""
        self.system.delete(self._path(name), False)  # noqa: FBT003 - Java's recursive

    def now(self) -> float:
        """As `LeaseFiles`."""
        probe = self._path(f"probe-{uuid.uuid4().hex}")
        self._fill(self.system.create(probe, True), b".")  # noqa: FBT003
        try:
            return float(self.system.getFileStatus(probe).getModificationTime() / 1000)
        finally:
            self.system.delete(probe, False)  # noqa: FBT003

    def _path(self, name: str) -> Any:  # noqa: ANN401 - Java's
        return self.jvm.org.apache.hadoop.fs.Path(self.folder, name)

    @staticmethod
    def _fill(stream: Any, content: bytes) -> None:  # noqa: ANN401 - Java's
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
