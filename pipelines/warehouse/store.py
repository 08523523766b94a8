"""The folder of a warehouse: what is in it beside the tables, and who may write to it."""

from __future__ import annotations

import fcntl
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pipelines.recording.names import URI, inside, whole_place
from pipelines.spark.hadoop import content_of, on_hadoop, on_this_machine
from pipelines.spark.termination import TERMINATION
from pipelines.warehouse.lease import Holder, Lease
from pipelines.warehouse.lease_files import HadoopFiles, LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipelines.warehouse.lease import LeaseFiles

LEASES: Final = "_leases"
WHOLE: Final = "_warehouse"  # no recording's name begins like this
_TABLES: Final = "_tables"
# Where Delta looks for a version and then writes it, so that two drivers can replace each other's commits.
_UNSAFE: Final = ("s3", "s3a", "s3n")


class Store:
    """A folder; `path` is local or any URI that Hadoop's file systems support."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Remember the path; nothing is created before it is needed."""
        self.spark = spark
        self.path = whole_place(path)
        self.run_id = "none"  # the run that writes
        self._leases: dict[str, Lease] = {}  # held now

    @contextmanager
    def lease(
        self, recording_id: str, wait: float = 0.0, waits: Callable[[str], object] = lambda _: None
    ) -> Iterator[Lease]:
        """Hold the recording's lease as long as the context lasts; HeldError if another driver holds it.

        `wait`: for so many seconds it is asked for again, which `waits` is told. Where Delta cannot tell two drivers
        apart, the lease is that of the whole warehouse. Tables are written only as long as all leases are held.
        """
        name = self._lease_name(recording_id)
        if name in self._leases:
            yield self._leases[name]
            return
        what = "this warehouse" if name == WHOLE else f"the recording '{recording_id}'"
        context = self.spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001 - Spark has no public way to its JVM
        holder = Holder.here(self.run_id, [jvm.java.lang.ProcessHandle.current().pid()])
        lease = Lease(self._lease_files(name), what, holder, context.cancelAllJobs)
        lease.take(wait, waits)
        self._leases[name] = lease
        finished = False
        try:
            yield lease
            finished = True
        finally:
            del self._leases[name]
            lease.give_back(finished=finished)

    def check_leases(self) -> None:
        """HeldError if another driver has taken over what this one holds; SystemExit if this one is to end."""
        TERMINATION.check()
        for lease in tuple(self._leases.values()):
            lease.check()

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Keep other drivers out that work on the same, where the file system does not do so by itself.

        A commit of Delta's must not replace one that was made since it looked. On a local file system its look and
        its writing are two steps, and only one driver at a time may take them for a table.
        """
        with ExitStack() as until_done:
            if self._locks is not None:
                with suppress(PermissionError):  # who may not write here writes no table either
                    self._locks.mkdir(parents=True, exist_ok=True)
                    file = until_done.enter_context((self._locks / name).open("w"))
                    fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def staging_dir(self, recording_id: str) -> str:
        """Return the directory for what the run hands from stage to stage; nothing else writes there."""
        return inside(self.path, f"_staging/{recording_id}/{self.run_id}")

    def drop_staging(self, recording_id: str) -> None:
        """Delete what was staged for a recording, also by runs that were killed; its lease must be held."""
        path, system = self.hadoop(inside(self.path, f"_staging/{recording_id}"))
        system.delete(path, True)  # noqa: FBT003 - Java's recursive

    def drop_unmade(self, place: str) -> bool:
        """Delete the folder of a table whose driver was killed before its first commit; False: there was one."""
        path, system = self.hadoop(place)
        log, _ = self.hadoop(f"{place}/_delta_log")
        inside_of = {found.getPath().getName() for found in system.listStatus(path)}
        if inside_of != {log.getName()}:
            return False
        if any(not found.getPath().getName().startswith(".") for found in system.listStatus(log)):
            return False
        return bool(system.delete(path, True))  # noqa: FBT003 - Java's recursive

    def publish(self, local_dir: str, name: str) -> str:
        """Copy a local directory to `name` in the warehouse, replacing what is there; return its path."""
        target = inside(self.path, name)
        path, system = self.hadoop(target)
        system.setWriteChecksum(False)
        system.delete(path, True)  # noqa: FBT003
        system.mkdirs(path.getParent())
        system.copyFromLocalFile(False, True, self.hadoop(f"file://{local_dir}")[0], path)  # noqa: FBT003
        return target

    def write(self, name: str, content: bytes) -> str:
        """Write one file to `name` in the warehouse, replacing what is there; return its path."""
        target = inside(self.path, name)
        path, system = self.hadoop(target)
        system.setWriteChecksum(False)
        stream = system.create(path, True)  # noqa: FBT003 - Java's overwrite
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        return target

    def text_of(self, name: str) -> str | None:
        """Return what is in a file in the warehouse; None: there is none."""
        path, system = self.hadoop(inside(self.path, name))
        content = content_of(self.spark.sparkContext._jvm, system, path)  # noqa: SLF001 - as in `on_hadoop`
        return None if content is None else content.decode(errors="replace")

    def _lease_name(self, recording_id: str) -> str:
        scheme = self.path.partition(":")[0] if URI.match(self.path) else "file"
        is_unsafe = scheme in _UNSAFE and not self.spark.conf.get(f"spark.delta.logStore.{scheme}.impl", None)
        return WHOLE if is_unsafe else recording_id

    def _lease_files(self, name: str) -> LeaseFiles:
        place = inside(self.path, f"{LEASES}/{name}")
        if (folder := self._local(place)) is not None:
            return LocalFiles(folder)
        path, system = self.hadoop(place)
        jvm: Any = self.spark.sparkContext._jvm  # noqa: SLF001 - as above
        return HadoopFiles(jvm, system, path)

    @cached_property
    def _locks(self) -> Path | None:
        """The folder of the tables' locks, which each commit asks for; None: the tables are in another store."""
        return self._local(inside(self.path, f"{LEASES}/{_TABLES}"))

    def _local(self, place: str) -> Path | None:
        """Return a place as a path of this machine; None: it is in another store."""
        return on_this_machine(self.spark, place)

    def hadoop(self, path: str) -> tuple[Any, Any]:
        """Return a Hadoop path and its file system."""
        return on_hadoop(self.spark, path)
