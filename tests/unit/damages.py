"""What befalls logs on their way to us: lines are lost, files cut, clocks stepped, digits altered.

Each damage takes the facts of a whole history, as rows, and a source of chance, and gives the facts that are left. The
rows' `source_line` keeps telling the order in which a broker wrote them, as the place in its file does.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from replay.protocol.produce import REQUEST_TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

Rows = list[dict[str, Any]]
SERVER_LINES = ("role_change", "log_load", "isr_update")
REQUESTS = ("produce", "fetch")
METADATA = ("partition_change", "broker_change")
KINDS = (SERVER_LINES, ("role_change",), ("fetch",), ("produce",), REQUESTS, (*SERVER_LINES, *REQUESTS))
BROKERS = (1, 2, 3)
NUMBERS = (
    "base_offset", "fetch_offset", "hw", "offset", "leader_epoch", "current_leader_epoch", "last_fetched_epoch",
    "error_code", "diverging_epoch", "diverging_end_offset", "partition_epoch", "bytes",
)  # fmt: skip


def lines_lost(rows: Rows, rng: Random) -> Rows:
    """Some lines of some kinds are lost, here and there."""
    kinds, share = rng.choice(KINDS), rng.uniform(0.02, 0.5)
    return [row for row in rows if row["kind"] not in kinds or rng.random() >= share]


def unanswered(rows: Rows, _rng: Random) -> Rows:
    """Brokers were killed without a word: what they had not answered has no line."""
    return [row for row in rows if row["kind"] != "produce" or row.get("error_code") != REQUEST_TIMED_OUT]


def files_cut(rows: Rows, rng: Random) -> Rows:
    """Each broker's files begin late, or end early, or both."""
    out = rows
    for broker in rng.sample(BROKERS, rng.randint(1, 3)):
        own = [row["source_line"] for row in rows if row.get("broker_id") == broker]
        if own:
            first, last = sorted(rng.choices([own[0], *own, own[-1]], k=2))
            if rng.random() < 0.5:
                first, last = (own[0], last) if rng.random() < 0.5 else (first, own[-1])
            out = [row for row in out if row.get("broker_id") != broker or first <= row["source_line"] <= last]
    return out


def begun_late(rows: Rows, rng: Random) -> Rows:
    """Nothing is left of the first part: of all brokers, with or without the metadata log's."""
    begin = rows[int(len(rows) * rng.uniform(0.05, 0.8))]["source_line"]
    everything = rng.random() < 0.5
    return [row for row in rows if row["source_line"] >= begin or (not everything and row["kind"] in METADATA)]


def metadata_begun_late(rows: Rows, rng: Random) -> Rows:
    """The metadata log was cut off at its beginning, as its retention does."""
    begin = rows[int(len(rows) * rng.uniform(0.02, 0.8))]["source_line"]
    return [row for row in rows if row["source_line"] >= begin or row["kind"] not in METADATA]


def metadata_missing(rows: Rows, _rng: Random) -> Rows:
    """No dump of the metadata log."""
    return [row for row in rows if row["kind"] not in METADATA]


def roles_missing(rows: Rows, rng: Random) -> Rows:
    """The files with the lines about roles were not copied; sometimes there is no metadata either."""
    gone = ("role_change", *METADATA) if rng.random() < 0.3 else ("role_change",)
    return [row for row in rows if row["kind"] not in gone]


def broker_missing(rows: Rows, rng: Random) -> Rows:
    """One broker's logs are missing; sometimes the metadata log too."""
    broker, bare = rng.choice(BROKERS), rng.random() < 0.3
    return [row for row in rows if row.get("broker_id") != broker and not (bare and row["kind"] in METADATA)]


def clocks_skewed(rows: Rows, rng: Random) -> Rows:
    """Every broker's clock, and the controller's, is off by as much all the time."""
    off = {broker: timedelta(milliseconds=rng.randint(-4000, 4000)) for broker in (None, *BROKERS)}
    return [{**row, "ts": row["ts"] + off[row.get("broker_id")]} for row in rows]


def clock_stepped(rows: Rows, rng: Random) -> Rows:
    """One broker's clock is set right, or wrong, while it runs."""
    broker, step = rng.choice(BROKERS), timedelta(milliseconds=rng.choice((-5000, -2000, -300, 300, 3000)))
    since = rng.choice(rows)["source_line"]
    return [
        {**row, "ts": row["ts"] + step} if row.get("broker_id") == broker and row["source_line"] >= since else row
        for row in rows
    ]


def digits_altered(rows: Rows, rng: Random) -> Rows:
    """Some numbers in the lines have another digit, or are far off."""
    out = list(rows)
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(out))
        known = [name for name in NUMBERS if out[place].get(name) is not None]
        if known:
            name = rng.choice(known)
            value = out[place][name]
            wrong = rng.choice((value + 1, value - 1, value + 10, value * 10 + rng.randrange(10), value // 10, 999_999))
            out[place] = {**out[place], name: max(wrong, 0) if value >= 0 else wrong}
    return out


DAMAGES: dict[str, Callable[[Rows, Random], Rows]] = {
    damage.__name__: damage
    for damage in (
        lines_lost,
        unanswered,
        files_cut,
        begun_late,
        metadata_begun_late,
        metadata_missing,
        roles_missing,
        broker_missing,
        clocks_skewed,
        clock_stepped,
        digits_altered,
    )
}
