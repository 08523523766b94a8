"""Work in other processes than the driver's, without Spark.

Python's lock lets one thread work at a time, and the library that draws holds it all the while. And whatever ends such
a process ends no run.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

PROCESSES: Final = min(4, os.cpu_count() or 1)  # that share in what is much work for the driver

P = ParamSpec("P")
R = TypeVar("R")


class Beside:
    """Calls functions in so many other processes.

    They start as they are needed, and end with the driver's. A call gives a future of what the function returns or
    raises, or of a `ChildProcessError` if its process ended meanwhile; then another takes its place. Functions,
    arguments and results are pickled.
    """

    def __init__(self, processes: int = 1) -> None:
        """Nothing is started yet."""
        self._in_turn = ThreadPoolExecutor(processes, "tidemark-beside")  # each waits for another process
        self._every: list[subprocess.Popen[bytes]] = []
        self._idle: list[subprocess.Popen[bytes]] = []
        atexit.register(self.end)

    def __call__(self, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> Future[R]:
        """Return what will be the function's result."""
        return self._in_turn.submit(self._called, function, arguments, named)

    def __enter__(self) -> Self:
        """Processes end with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        self.end()

    def end(self) -> None:
        """End all processes, and calls that wait."""
        atexit.unregister(self.end)
        self._in_turn.shutdown(wait=False, cancel_futures=True)
        while self._every:
            _end(self._every.pop())

    def _called(self, function: Callable[..., R], arguments: Any, named: Any) -> R:  # noqa: ANN401 - anybody's
        try:
            process = self._idle.pop()
        except IndexError:
            process = started(__name__, subprocess.PIPE)
            self._every.append(process)
        to, back = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        try:
            pickle.dump((function, arguments, named), to, protocol=pickle.HIGHEST_PROTOCOL)
            to.flush()
            is_done, told = pickle.load(back)  # noqa: S301 - from our own process
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            with suppress(ValueError):
                self._every.remove(process)
            _end(process)
            message = f"the process that was to call {function.__name__} ended with exit code {process.returncode}"
            raise ChildProcessError(message) from error
        self._idle.append(process)
        if not is_done:
            raise told
        return cast("R", told)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            cast("IO[bytes]", pipe).close()


def started(module: str, pipes: int, errors: int | None = None, *arguments: str) -> subprocess.Popen[bytes]:
    """Start one of our modules with our packages; multiprocessing would run a script of the driver's once more.

    `pipes`: what its standard input and output are; `errors`: its standard error (None: ours); `arguments`: its own.
    """
    packages = os.pathsep.join(place for place in sys.path if place)
    environment = {**os.environ, "PYTHONPATH": packages}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, stdin=pipes, stdout=pipes, stderr=errors, env=environment)  # noqa: S603 - ours


def call_all(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Call what comes, until whoever asks is gone."""
    while True:
        try:
            function, arguments, named = pickle.load(asked)  # noqa: S301 - from the driver that started this process
        except EOFError:
            return
        told: tuple[bool, Any]
        try:
            told = True, function(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - the driver says what it was
            told = False, error
        try:
            said = pickle.dumps(told, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - some exceptions cannot be pickled
            said = pickle.dumps((False, RuntimeError(f"{told[1]!r:.300} ({error!r:.300})")))
        answers.write(said)
        answers.flush()


def main() -> None:
    """Answer the driver. What a function prints goes where errors go: standard output is for results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the driver, with which this process ends
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        call_all(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
