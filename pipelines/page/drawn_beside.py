"""Draws pictures in a process of its own, while the driver goes on with its work.

The library that draws holds Python's lock while it does, so that a thread would gain nothing. And whatever ends its
process, as some texts did, ends no run.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, cast

from pipelines.page.drawing import svg_of

if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import IO

    from pipelines.page.picture import Picture


class Drawer:
    """Draws one picture after the other; its process starts with the first, and ends with the driver's."""

    def __init__(self) -> None:
        """Nothing is started before it is needed."""
        self._in_turn = ThreadPoolExecutor(1, "tidemark-drawing")  # waits for the other process
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, picture: Picture) -> Future[str]:
        """Return what will be the picture as SVG (`drawing.svg_of`)."""
        return self._in_turn.submit(self._drawn, picture)

    def end(self) -> None:
        """End the process, if there is one; the next picture gets another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _drawn(self, picture: Picture) -> str:
        if self._process is None:
            self._process = _started()
            atexit.register(self.end)
        to, back = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        try:
            pickle.dump(picture, to)
            to.flush()
            told: str | Exception = pickle.load(back)  # noqa: S301 - from our own process
        except (EOFError, OSError) as error:
            self.end()
            message = f"the process that draws ended at the picture {picture.key}"
            raise ChildProcessError(message) from error
        if isinstance(told, Exception):
            raise told
        return told


DRAWER: Final = Drawer()


def _started() -> subprocess.Popen[bytes]:
    """Start a process that draws, with our packages; multiprocessing would run a script of the driver's once more."""
    packages = os.pathsep.join(place for place in sys.path if place)
    return subprocess.Popen(  # noqa: S603 - this very module
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": packages},
    )


def draw_all(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Draw what comes, until whoever asks is gone."""
    while True:
        try:
            picture: Picture = pickle.load(asked)  # noqa: S301 - from the driver that started this process
        except EOFError:
            return
        told: Any
        try:
            told = svg_of(picture)
        except Exception as error:  # noqa: BLE001 - the driver says what it was
            told = RuntimeError(f"the picture {picture.key} could not be drawn: {error!r:.300}")
        pickle.dump(told, answers)
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the driver, with which this process ends
    draw_all(sys.stdin.buffer, sys.stdout.buffer)
