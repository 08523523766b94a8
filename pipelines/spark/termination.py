"""A driver that is asked to end, by SIGTERM or Ctrl-C: it ends its run in order instead of in the middle of a write.

spark-submit is a JVM with the Python driver as its child, and the signal goes to the JVM or to both. The JVM is told to
hand it on and go on living: it would end at once, and Python could say nothing any more. While a lease is held the
signal interrupts no call, as the JVM would finish what Python has turned away from, and write for who holds nothing. It
cancels Spark's jobs until the call has come to its end; whatever comes next then finds that the driver is to end.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.java_gateway import ensure_callback_server_started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SIGNALS: Final = ("TERM", "INT")
CANCEL_EVERY_S: Final = 0.3


class Termination:
    """Whether the driver was asked to end."""

    def __init__(self) -> None:
        """Nobody has asked."""
        self._code = 0
        self._spark: SparkSession | None = None  # whose jobs are cancelled; None: a signal interrupts at once
        self._recording = threading.Event()

    def listen(self, spark: SparkSession) -> None:
        """From now on take signals, in Python and, if spark-submit has started it, in its JVM."""
        for name in SIGNALS:
            signal.signal(signal.Signals[f"SIG{name}"], self._asked)
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            context: Any = spark.sparkContext
            ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # noqa: SLF001
            signals: Any = context._jvm.sun.misc.Signal  # noqa: SLF001 - no public way to the JVM
            for name in SIGNALS:
                signals.handle(signals(name), _HandsOn(name))

    @contextmanager
    def in_order(self, spark: SparkSession) -> Iterator[None]:
        """As long as the context lasts, signals end it where `check` is called."""
        self._spark = spark
        self._recording.clear()
        try:
            yield
        finally:
            self._spark = None
        self.check()

    def check(self) -> None:
        """SystemExit if the driver is to end, and has not begun to say so."""
        if self._code and not self._recording.is_set():
            self.exit()

    def exit(self) -> NoReturn:
        """SystemExit, with the exit code that the signal asks for."""
        raise SystemExit(self._code)

    def end(self) -> None:
        """Called when the run has stopped: what is left is to say so, for which jobs may run."""
        self._recording.set()

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked."""
        return bool(self._code)

    def _asked(self, number: int, _frame: object) -> None:
        if self._code:  # it may come by way of both processes
            return
        self._code = 128 + number
        if self._spark is None:
            self.exit()
        threading.Thread(target=self._cancel, args=(self._spark,), name="tidemark-cancel", daemon=True).start()

    def _cancel(self, spark: SparkSession) -> None:
        """Cancel jobs, also those that a write in hand has still to start."""
        while self._spark is not None and not self._recording.is_set():
            with suppress(Exception):
                spark.sparkContext.cancelAllJobs()
            self._recording.wait(CANCEL_EVERY_S)


class _HandsOn:
    """A handler in the JVM that hands the signal on to this process."""

    def __init__(self, name: str) -> None:
        self._signal = signal.Signals[f"SIG{name}"]

    def handle(self, _signal: object) -> None:
        """Called by the JVM."""
        os.kill(os.getpid(), self._signal)

    class Java:
        """What py4j takes it for."""

        implements = ("sun.misc.SignalHandler",)


TERMINATION: Final = Termination()
