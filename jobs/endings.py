"""How a job ends: exit codes, and what went wrong in one sentence, for people or as JSON."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
import traceback
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import HeldError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOG: Final = logging.getLogger("tidemark")

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
EXPECTATIONS_FAILED: Final = 3
LOSSES_FOUND: Final = 4
HELD: Final = 5
INTERRUPTED: Final = 130
TERMINATED: Final = 143
_BEST_TO_WORST: Final = (DONE, LOSSES_FOUND, EXPECTATIONS_FAILED, HELD, BAD_INPUT, FAILED)

# What stores and disks refuse, as Java, Hadoop, Python and servers say it. All but a missing permission may pass.
_STORES: Final = (
    (
        re.compile(r"No space left on device|[Dd]isk quota exceeded|QuotaExceededException|\[Errno (28|122)\]"),
        "a disk is full; with more room the next run mends what this one left",
        FAILED,
    ),
    (
        re.compile(r"Permission denied|AccessControlException|AccessDenied|Read-only file system|\[Errno (1|13|30)\]"),
        "a permission is missing",
        BAD_INPUT,
    ),
    (
        re.compile(r"Mkdirs failed to create"),  # Java does not ask why
        "a folder cannot be made, for lack of a permission or of room; with it the next run mends what this one left",
        FAILED,
    ),
    (
        re.compile(
            r"ConnectException|UnknownHostException|NoRouteToHost|ConnectTimeout|SocketTimeout|Connection refused"
            r"|Unable to execute HTTP request|BlockMissingException|Service ?Unavailable|\[Errno (5|111|113)\]"
        ),
        "a store cannot be reached; when it can, the next run mends what this one left",
        FAILED,
    ),
)
# What stands before an error's words: which of several causes it is, its class.
_BEFORE_WORDS: Final = re.compile(r"^(?:(?:Caused by: |: )?[\w.$]*(?:Exception|Error): )*")


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: `message` is the whole sentence, `details` the file with the stack trace of a bug."""

    kind: str  # usage, input, held, store, failed, interrupted
    message: str
    exit_code: int
    type: str | None = None  # the exception's
    file: str | None = None
    line: int | None = None
    details: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as the keys that it adds to a JSON object."""
        return {"error": self.message, "exit_code": self.exit_code, "failure": asdict(self)}

    def tell(self, *, as_json: bool) -> int:
        """Print it, as the last words of the job, and return its exit code."""
        if as_json:
            print(json.dumps({"recordings": [], **self.as_dict()}, indent=2), flush=True)
        if LOG.handlers:
            self.log()
        elif not as_json:  # spark-submit merges both streams
            print(f"tidemark: {self.message}", file=sys.stderr, flush=True)
        return self.exit_code

    def log(self, recording_id: str | None = None) -> None:
        """Log it."""
        about = {} if recording_id is None else {"recording_id": recording_id}
        LOG.error(self.message, extra={"told": {"event": "error", **about, **asdict(self)}})


def guarded(main: Callable[[], int]) -> int:
    """Run a job; whatever happens, it ends with one sentence and not with a stack trace."""
    as_json = "--json" in sys.argv[1:]
    try:
        return main()
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code not in {INTERRUPTED, TERMINATED}:  # the parser has said why
            raise
        return interruption(error).tell(as_json=as_json)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:  # noqa: BLE001 - the outermost frame
        return failure_of(error).tell(as_json=as_json)


def interruption(error: KeyboardInterrupt | SystemExit) -> Failure:
    """Return that somebody stopped the job, with the exit code that the error brings."""
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code != INTERRUPTED:
        by = "SIGTERM" if error.code == TERMINATED else f"exit code {error.code}"
        message = f"ended by {by}; the next run of the recording goes on from what stands"
        return Failure("interrupted", message, error.code)
    return Failure("interrupted", "interrupted", INTERRUPTED)


def failure_of(error: Exception) -> Failure:
    """Return what went wrong in one line. The stack trace of a bug goes to a file."""
    if isinstance(error, InputError):
        return Failure("input", str(error), BAD_INPUT, type(error).__name__, error.source, error.line)
    if isinstance(error, HeldError):
        return Failure("held", str(error), HELD, type(error).__name__)
    if (store := _of_store(error)) is not None:
        return store
    handle, path = tempfile.mkstemp(prefix="tidemark-error-", suffix=".txt", text=True)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    message = f"{_one_line(error)} (details: {path})"
    return Failure("failed", message, FAILED, type(error).__name__, details=path)


def _of_store(error: Exception) -> Failure | None:
    """Return what a store or a disk refused, in its own words; None: it is about something else."""
    name = type(error).__name__
    if isinstance(error, ConnectionError) or name == "Py4JNetworkError":  # all that the driver itself connects to
        return Failure("failed", "Spark's JVM is gone: it was killed, or ran out of memory", FAILED, name)
    lines = [line.strip() for line in f"{name}: {error}".splitlines()]
    for sign, sentence, code in _STORES:
        for line in lines:
            if sign.search(line):
                words = _BEFORE_WORDS.sub("", line)[:300]
                return Failure("store", f"{sentence}: {words}", code, name)
    return None


def worst(codes: Sequence[int]) -> int:
    """The exit code of the worst outcome."""
    return max(codes, key=_BEST_TO_WORST.index, default=DONE)


def _one_line(error: Exception) -> str:
    """An error's message: its first line, or the last error line if a worker's traceback comes first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        told = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        lines = told[-1:] or lines
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
