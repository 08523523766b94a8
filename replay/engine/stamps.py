"""How far stamps of lines and Kafka's timers may be off, on the broker's own clock, and whether a wait timed out."""

from __future__ import annotations

from typing import Any

STAMP_EARLY_US = 2_000  # stamps are truncated to milliseconds
TIMER_EARLY_US = 2_000  # the timer wheel's tick is 1 ms
TIMER_LATE_US = 25_000  # how late the threads may be that end what timed out, on a loaded host
STAMP_LATE_US = 25_000  # how late the log thread may be; covers 99 % of lines on a loaded host
CLOCK_SLACK_US = STAMP_EARLY_US + STAMP_LATE_US  # between two estimates on one broker's clock


def timed_out(local_us: Any, remote_us: Any, max_wait_us: Any) -> bool:  # noqa: ANN401 - numbers or arrays
    """Whether a fetch waited until it timed out. The timer starts while the handler is still working on it."""
    waited: bool = (remote_us > 0) & (local_us + remote_us >= max_wait_us - TIMER_EARLY_US)
    return waited
