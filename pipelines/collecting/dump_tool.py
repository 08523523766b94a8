"""Runs Kafka's own kafka-dump-log, and tells apart what it says about each file."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipelines.collecting.stored import Packed
from pipelines.parse.dumps.segment_dump import DUMPING
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

TOOL: Final = "kafka-dump-log.sh"
METADATA: Final = "--cluster-metadata-decoder"
_AT_ONCE: Final = 100  # files per start of the tool: a start takes a second
NEWLINE: Final = "\n"
_LONGEST: Final = 300  # characters of what the tool says is wrong


def tool_of(kafka_home: str | None, dump_tool: str | None) -> list[str] | None:
    """Return the command of the tool; None if no flag names it. Raises InputError if there is no such program."""
    if dump_tool is not None:
        command = shlex.split(dump_tool)
        if not command or shutil.which(command[0]) is None:
            message = "there is no such program"
            raise InputError(message, source=f"--dump-tool {dump_tool}")
        return command
    if kafka_home is None:
        return None
    for name in (TOOL, TOOL.removesuffix(".sh")):  # packages install it without the ending
        path = Path(kafka_home) / "bin" / name
        if path.is_file() and os.access(path, os.X_OK):
            return [str(path)]
    message = f"there is no bin/{TOOL} in it"
    raise InputError(message, source=f"--kafka-home {kafka_home}")


def command_for(files: Sequence[Path], target: Path, *, metadata: bool) -> str:
    """Return what to type to make the dump by hand."""
    words = [TOOL, *([METADATA] if metadata else []), "--files", ",".join(map(str, files))]
    return f"mkdir -p {shlex.quote(str(target.parent))} && {shlex.join(words)} | gzip > {shlex.quote(str(target))}"


def dump(
    tool: Sequence[str], targets: Mapping[Path, Path], clean: Callable[[str], str], *, metadata: bool
) -> dict[Path, str]:
    """Dump each file into its target; return those that failed, each with a sentence. `clean` is given each line."""
    failed: dict[Path, str] = {}
    waiting = list(targets)
    while waiting:
        run = _Run(tool, waiting[:_AT_ONCE], targets, clean)
        run.execute([METADATA] if metadata else [])
        if run.begun == 0:  # it does not start at all: neither would it for the others
            return failed | dict.fromkeys(waiting, run.complaint)
        if run.done < run.begun:
            failed[waiting[run.done]] = run.complaint
        waiting = waiting[run.begun :]
    return failed


class _Run:
    """One start of the tool. It goes through its files in order, and stops at one that it cannot read."""

    def __init__(
        self, tool: Sequence[str], files: Sequence[Path], targets: Mapping[Path, Path], clean: Callable[[str], str]
    ) -> None:
        self.begun = self.done = 0
        self.complaint = ""
        self._tool, self._files, self._targets, self._clean = tool, files, targets, clean

    def execute(self, options: Sequence[str]) -> None:
        """Run it to its end."""
        command = [*self._tool, *options, "--files", ",".join(map(str, self._files))]
        # The tool's start script makes a folder for logs of its own in the installation unless it is given another.
        with tempfile.TemporaryDirectory(prefix="tidemark-") as scratch:
            said = Path(scratch) / "said"
            with (
                said.open("w") as errors,
                subprocess.Popen(  # noqa: S603 - the user names the program
                    command,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, "LOG_DIR": scratch},
                    text=True,
                    errors="replace",
                ) as process,
            ):
                fresh = self._take(process.stdout or ())
                code = process.wait()
                self._end(fresh, well=code == 0)
            words = [line for line in said.read_text(errors="replace").splitlines() if line.strip()]
            told = next((line for line in words if "rror" in line or "xception" in line), words[0] if words else "")
            self.complaint = f"{self._tool[0]} ended with {code}{f': {told.strip()[:_LONGEST]}' if told else ''}"

    def _take(self, lines: Iterable[str]) -> Packed | None:
        """Write each file's lines to its target; return what the last one went to."""
        fresh: Packed | None = None
        for line in lines:
            if line.startswith(DUMPING) and self.begun < len(self._files):
                self._end(fresh, well=True)
                fresh = Packed(self._targets[self._files[self.begun]])
                self.begun += 1
            if fresh is not None:
                fresh.take(f"{self._clean(line.removesuffix(NEWLINE))}\n".encode())
        return fresh

    def _end(self, fresh: Packed | None, *, well: bool) -> None:
        if fresh is None:
            return
        if well:
            fresh.keep()
            self.done += 1
        else:
            fresh.drop()
