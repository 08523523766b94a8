"""Runs over a growing recording: what the last of them costs, and one that finds nothing new."""

from __future__ import annotations

import re
import shutil
from functools import partial
from typing import TYPE_CHECKING

from made_lines import DUMP, START_MS, stamp
from made_shape import Shape
from measure import cost_of, median
from run_case import STAGES
from start_cases import ROOT, submitted
from workbench import ID, Line

from pipelines.recording.recording import discover
from pipelines.stages.run import execute
from pipelines.warehouse.delta_io import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from measure import Cost
    from workbench import Bench

RUNS = 24
MINUTES = 12  # of each, which are the hours of a made day: followers that fetch every second write too much in a day
WINDOW_MINUTES = MINUTES // 3  # as docs/scheduling.md says of runs that follow each other
# Runs that are compared, each in turns with the second one of a warehouse of its own: in one session, and as commands.
IN_SESSION, AS_COMMANDS = (19, 20, 21), (22, 23, 24)
TICK_MS = 1_000  # longer ones would look as if brokers stood still
PER_BATCH = 9  # events, see `made_shape`
BAR, IDLE_S = 1.1, 10
CREATED = re.compile(r"CreateTime: (\d+)")
AT_ONCE = 1 << 24  # bytes that are copied


def case_hourly(bench: Bench, events: int) -> list[Line]:
    """The last of 24 runs against second runs; with an eighth of the events: one batch a second.

    Three of them are commands of their own, as a scheduler starts them; all others share a session. Two runs of another
    warehouse are before them, since what the first ones cost is compiling.
    """
    ticks = RUNS * MINUTES * 60_000 // TICK_MS
    at_once = max(events // 8 // PER_BATCH // ticks, 1)  # partitions that take a batch in a tick: a third of all
    shape = Shape(events=ticks * at_once * PER_BATCH, partitions=3 * at_once, elections=0, flaps=0)
    whole = bench.recording(shape.named(tick_ms=TICK_MS, wait_ms=TICK_MS))
    in_session, command = partial(run_in_session, bench), partial(run_as_command, bench)
    second_of(bench, whole, in_session)
    costs, seconds = {}, {}
    for number in range(1, RUNS + 1):
        run = command if number in AS_COMMANDS else in_session
        if number in AS_COMMANDS + IN_SESSION:
            seconds[number] = second_of(bench, whole, run)
        costs[number] = grow(bench, whole, "hourly", number, run)
    idle = grow(bench, whole, "hourly", RUNS, in_session)
    facts = Warehouse(bench.spark, str(bench.place / "hourly")).row_counts(ID)["facts"]
    return [
        *against_second("hourly runs, each a command, CPU", costs, seconds, AS_COMMANDS, f"{facts:,} facts in the end"),
        *against_second("hourly runs in one session, CPU", costs, seconds, IN_SESSION),
        *(Line("hourly runs", f"run {number} of {RUNS}", None, "", costs[number]) for number in (2, RUNS // 2)),
        Line("hourly runs", "nothing new, CPU s", idle.cpu, f"< {IDLE_S}", idle),
    ]


def against_second(
    case: str, costs: Mapping[int, Cost], seconds: Mapping[int, Cost], numbers: Sequence[int], note: str = ""
) -> list[Line]:
    """Runs by these numbers, and the second ones in turns with them, as rows; their ratio stands with the first."""
    runs, others = [costs[number] for number in numbers], [seconds[number] for number in numbers]
    ratio = sum(cost.cpu for cost in runs) / sum(cost.cpu for cost in others)
    return [
        Line(case, f"runs {numbers[0]} to {numbers[-1]} of {RUNS}", ratio, f"<= {BAR}", median(runs), note=note),
        Line(case, "second runs, in turns with them", None, "", median(others)),
    ]


def second_of(bench: Bench, whole: Path, run: Callable[[Path, Path], Cost]) -> Cost:
    """What the second run of a new warehouse costs."""
    grow(bench, whole, "others", 1, partial(run_in_session, bench))
    return grow(bench, whole, "others", 2, run)


def grow(bench: Bench, whole: Path, name: str, number: int, run: Callable[[Path, Path], Cost]) -> Cost:
    """What a run costs that finds the recording as it was by then; the first one finds no warehouse."""
    place, arrived = bench.place / name, bench.place / f"{name}-arrived"
    if number == 1:
        for one in (place, arrived):
            shutil.rmtree(one, ignore_errors=True)
    arrive(whole, arrived, START_MS + number * MINUTES * 60_000)  # a recording with more events may last longer
    return run(arrived, place)


def run_in_session(bench: Bench, arrived: Path, place: Path) -> Cost:
    """What a run costs in the session that there is."""
    recording = discover(str(arrived), recording_id=ID)
    said = {"window_minutes": WINDOW_MINUTES}
    return cost_of(partial(execute, bench.spark, str(place), ID, recording, STAGES, said))


def run_as_command(bench: Bench, arrived: Path, place: Path) -> Cost:
    """What it costs as a command, from its start to its end."""
    settings = bench.place / "hourly.toml"
    settings.write_text(f"window_minutes = {WINDOW_MINUTES}\n")
    return submitted(arrived, place, ROOT, "--settings", str(settings))


def arrive(whole: Path, target: Path, until_ms: int | None) -> None:
    """Let the logs be there up to a time (None: their end): they have grown in place, and the dump is made anew."""
    for source in sorted(path for path in whole.rglob("*") if path.is_file()):
        grown = target / source.relative_to(whole)
        grown.parent.mkdir(parents=True, exist_ok=True)
        if source.name == DUMP:
            grown.write_text("".join(dumped(source, until_ms)))
            continue
        if source.suffix != ".log":
            if not grown.exists():
                shutil.copy2(source, grown)
            continue
        until = source.stat().st_size if until_ms is None else begin_of(source, f"[{stamp(until_ms)}]".encode())
        with source.open("rb") as log, grown.open("ab") as out:
            log.seek(out.tell())
            while out.tell() < until:
                out.write(log.read(min(AT_ONCE, until - out.tell())))


def dumped(dump: Path, until_ms: int | None) -> Iterator[str]:
    """Yield the lines of a dump of the metadata log up to the batches of a time."""
    with dump.open() as lines:
        for line in lines:
            created = CREATED.search(line)
            if until_ms is not None and created is not None and int(created[1]) >= until_ms:
                return
            yield line


def begin_of(log: Path, head: bytes) -> int:
    """Where the first line begins that does not sort before `head`; lines are sorted by how they begin."""
    with log.open("rb") as file:
        first, end = 0, log.stat().st_size
        while first < end:
            middle = (first + end) // 2
            file.seek(middle)
            file.readline()
            begin = file.tell()  # of the line behind the middle
            line = file.readline()
            if line and line < head:
                first = begin
            else:
                end = middle
        file.seek(first)
        while (line := file.readline()) and line < head:
            first = file.tell()
        return first
