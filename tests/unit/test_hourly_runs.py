"""Runs over a growing recording write what one run over all of it writes, and only what is new."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hourly_runs import SECOND_US, HourlyRuns, lines, steps_of
from made_recording import MadeCluster
from made_sessions import with_a_quota, with_partitions_left_out
from made_shape import Shape
from made_transactions import with_transactions
from short_times import shorten
from test_recordings import NAMES

from pipelines.intake.collect import collect
from pipelines.recording.recording import discover
from pipelines.stages import order_marks, partition_order
from pipelines.stages.order import in_parts
from replay.evidence import markers, missing_lines, steady, steady_times
from replay.evidence.missing_lines import missing_requests
from replay.evidence.session_lines import LEFT_OUT
from replay.order import marks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NEVER_EQUAL = ("replay_checkpoints", "event_windows")  # their states are those that the runs left
STEPS = 3


def facts_of(root: Path) -> tuple[pa.Table, dict[str, Any]]:
    recording = discover(str(root), recording_id=root.name)
    stated = {"kafka_version": recording.manifest.kafka, "broker_config": recording.manifest.broker_config}
    return collect(recording).facts, stated


def arrivals(facts: pa.Table, chosen: Random, steps: int) -> list[pa.Table]:
    """The facts that have come by each step: mostly by time, one broker late, some lines later still."""
    times = [None if ts is None else ts.timestamp() for ts in facts["ts"].to_pylist()]
    known = sorted(ts for ts in times if ts is not None)
    late = chosen.choice(sorted({b for b in facts["broker_id"].to_pylist() if b is not None}))
    step = []
    for ts, broker in zip(times, facts["broker_id"].to_pylist(), strict=True):
        k = steps if ts is None else 1 + int((ts - known[0]) / (known[-1] - known[0] + 0.001) * steps)
        k += (broker == late) + (chosen.random() < 0.001) * chosen.randrange(steps)
        step.append(min(k, steps))
    return [facts.filter(pa.array([one <= k for one in step])) for k in range(1, steps + 1)]


@pytest.mark.parametrize("name", NAMES[:1])
@pytest.mark.parametrize("seed", [1])
def test_runs_step_by_step_write_the_tables_of_one_run(recordings: Path, name: str, seed: int) -> None:
    facts, stated = facts_of(recordings / name)
    once, stepwise = HourlyRuns(between=20), HourlyRuns(between=20)
    once.run(facts, stated)
    chosen = Random(seed)  # noqa: S311 - nothing secret
    for some in arrivals(facts, chosen, STEPS):
        stepwise.run(some, stated)
    for table in once.tables.keys() - NEVER_EQUAL:
        assert lines(stepwise.tables[table]) == lines(once.tables[table]), table
    for table in NEVER_EQUAL:
        assert told_but_states(stepwise, table) == told_but_states(once, table), table
    assert sum(stepwise.replayed) < STEPS * sum(once.replayed)


def told_but_states(runs: HourlyRuns, table: str = "event_windows") -> list[str]:
    """The rows, without the states that orders or replays go on from."""
    return lines(runs.tables[table].drop_columns(["engine", "state"]))


def make_what_one_run_makes(stepwise: HourlyRuns, steps: Iterable[pa.Table], facts: pa.Table, stated: Any) -> None:
    """Order facts step by step, and see that events and windows are those of one order of all."""
    once = HourlyRuns()
    once.order(facts, stated)
    for some in steps:
        stepwise.order(some, stated)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert told_but_states(stepwise) == told_but_states(once)


@pytest.fixture
def went_on(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each order of a partition that was not new went on from a mark; seconds here stand for minutes."""
    shorten(monkeypatch, steady, steady_times, missing_lines, marks, markers)
    found: list[bool] = []
    whole = partition_order.gone_on

    def noted(*args: Any) -> Any:
        on = whole(*args)
        found.append(on is not None)
        return on

    monkeypatch.setattr(partition_order, "gone_on", noted)
    return found


def with_deletions(facts: pa.Table) -> pa.Table:
    """The facts, and now and then a request to delete some records, and a segment that is rolled."""
    produces = facts.filter(pc.equal(facts["kind"], "produce")).to_pylist()[::40]
    asked = [
        {
            **row, "kind": "delete_records", "fact_id": f"deletion-{k}", "connection": "admin", "correlation_id": k,
            "offset": row["base_offset"] // 2, "low_watermark": row["base_offset"] // 2,
        }
        for k, row in enumerate(produces)
    ]  # fmt: skip
    names = ("recording_id", "broker_id", "source_file", "source_line", "ts", "topic", "topic_id", "partition")
    rolled = [
        {
            **{name: row[name] for name in names}, "kind": "segment_change", "fact_id": f"roll-{k}",
            "name": "segment_rolled", "base_offset": row["base_offset"],
        }
        for k, row in enumerate(produces)
    ]  # fmt: skip
    return pa.concat_tables([facts, pa.Table.from_pylist([*asked, *rolled], schema=facts.schema)])


def with_questions(facts: pa.Table) -> pa.Table:
    """The facts, and now and then a consumer's question where an epoch ends, as it asks when it starts."""
    reads = facts.filter(pc.and_(pc.equal(facts["kind"], "fetch"), pc.equal(facts["replica_id"], -1))).to_pylist()
    asked = [
        {**row, "kind": "epoch_end_offset", "fact_id": f"question-{k}", "connection": f"q{k}", "correlation_id": k}
        | {"topic": "made", "current_leader_epoch": 0, "leader_epoch": 0, "offset": row["fetch_offset"]}
        for k, row in enumerate(reads[::40])
    ]
    return pa.concat_tables([facts, pa.Table.from_pylist(asked, schema=facts.schema)])


@pytest.mark.parametrize(
    ("seed", "elections", "producers", "length"), [(1, 0, 1, 6), (2, 1, 2, 6), (3, 0, 3, 6), (4, 0, 25, 1)]
)
def test_an_order_goes_on_among_transactions(
    tmp_path: Path, went_on: list[bool], seed: int, elections: int, producers: int, length: int
) -> None:
    """Also where nearly each batch is followed by a marker."""
    MadeCluster(Shape(events=4_500, partitions=1, elections=elections, flaps=0, seed=seed), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    chosen = Random(seed)  # noqa: S311 - nothing secret
    facts = with_transactions(with_questions(facts), chosen, producers, length)
    steps = steps_of(facts, len(facts) // 3, chosen, 6, 0)
    stepwise = HourlyRuns()
    make_what_one_run_makes(stepwise, steps, facts, stated)
    events = stepwise.tables["replication_events"]
    assert {"commit", "abort"} <= {*events["transaction"].to_pylist()}
    assert len(events.filter(pc.equal(events["kind"], "epoch_end_offset"))) > 5
    assert any(went_on)


@pytest.mark.parametrize("who", ["moved", "throttled", "consumers"])
def test_an_order_goes_on_though_sessions_go_on_without_the_partition(
    tmp_path: Path, went_on: list[bool], who: str
) -> None:
    """As when its leader has moved, and the one before leads others; or because of a quota, and then events tell it."""
    MadeCluster(Shape(events=9_000, partitions=6, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    chosen = Random(1)  # noqa: S311 - nothing secret
    facts = with_partitions_left_out(facts, chosen, times=8 if who == "moved" else 30, are_consumers=who == "consumers")
    facts = with_a_quota(facts) if who == "throttled" else facts
    kinds = pa.concat_arrays([rows["kind"].combine_chunks() for _, rows in in_parts([facts], {}, None)])
    assert pc.any(facts["forgotten"]).as_py()
    assert pc.any(pc.equal(kinds, LEFT_OUT)).as_py() == (who != "consumers")
    steps = steps_of(facts, len(facts) // 3, chosen, 5, 0)
    stepwise = HourlyRuns()
    make_what_one_run_makes(stepwise, steps, facts, stated)
    assert any(went_on)
    assert ("fetch_left_out" in stepwise.tables["replication_events"]["kind"].to_pylist()) == (who == "throttled")


def test_an_order_goes_on_where_only_coordinators_write(tmp_path: Path, went_on: list[bool]) -> None:
    """As to `__consumer_offsets`: there are markers and fetches, and no line tells of a batch."""
    MadeCluster(Shape(events=4_500, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    chosen = Random(1)  # noqa: S311 - nothing secret
    facts = with_transactions(facts, chosen, producers=2)
    by_clients = pc.or_(pc.equal(facts["kind"], "produce"), pc.equal(facts["client_id"], "added"))
    facts = facts.filter(pc.invert(pc.coalesce(by_clients, pa.scalar(value=False))))
    steps = steps_of(facts, len(facts) // 3, chosen, 6, 0)
    make_what_one_run_makes(HourlyRuns(), steps, facts, stated)
    assert any(went_on)


@pytest.mark.parametrize("ends_s", [None, 0.2])
def test_a_transaction_that_was_open_at_a_mark_and_ends_later_makes_all_facts_be_ordered(
    tmp_path: Path, went_on: list[bool], ends_s: float | None
) -> None:
    """How it ended is said of its batches of before; of one that ended before the news, that was known."""
    MadeCluster(Shape(events=4_500, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    facts = with_transactions(facts, Random(1), producers=2)  # noqa: S311 - nothing secret
    rows = sorted(facts.to_pylist(), key=lambda row: row["ts"])
    produces = [row for row in rows if row["kind"] == "produce"]
    whose = next(row for row in rows if row["kind"] == "transaction" and row["name"].startswith("marker"))
    early, last = produces[len(produces) // 2], produces[-1]
    early["transactional_id"] = "long"
    end = last["ts"] if ends_s is None else early["ts"] + timedelta(seconds=ends_s)
    said = whose | {"producer_id": 999, "client_id": "long", "connection": "long", "source_file": "long.log"}
    added = {"name": "added", "transactional_id": "long", "ts": early["ts"] - timedelta(milliseconds=20)}
    added = said | added | {"fact_id": "added", "source_line": 1, "correlation_id": 0}
    ended = said | {"fact_id": "ended", "source_line": 2, "correlation_id": 1, "ts": end, "total_us": 600}
    facts = pa.Table.from_pylist([*rows, added, ended], facts.schema)
    once, stepwise = at_once_and_in_two_steps(facts, stated)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert went_on[-1] == (ends_s is not None)


@pytest.mark.parametrize(("seed", "elections", "late"), [(1, 0, 0.0), (2, 1, 0.0), (3, 0, 0.0005)])
def test_the_order_of_a_long_partition_goes_on_and_finds_what_one_run_finds(
    tmp_path: Path, went_on: list[bool], seed: int, elections: int, late: float
) -> None:
    shape = Shape(events=4_500, partitions=1, elections=elections, flaps=0, seed=seed)
    MadeCluster(shape, tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    facts = with_deletions(facts) if seed == 1 else facts
    once, stepwise = HourlyRuns(), HourlyRuns()
    once.order(facts, stated)
    for some in steps_of(facts, len(facts) // 3, Random(seed), 5, late):  # noqa: S311 - nothing secret
        stepwise.order(some, stated)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert told_but_states(stepwise) == told_but_states(once)
    assert any(went_on)


def without_some_lines(facts: pa.Table, broker: int, part: float) -> pa.Table:
    """The facts, of which a broker's log has lost the requests of a time that begins after a part of all time."""
    times = facts["ts"].cast(pa.int64()).to_numpy()
    at = (times - times.min()) / np.ptp(times)
    requests = pc.is_in(facts["kind"], pa.array(["produce", "fetch"])).to_numpy(zero_copy_only=False)
    lost = requests & (facts["broker_id"].to_numpy() == broker) & (at >= part) & (at < part + 0.02)
    return facts.filter(pa.array(~lost))


@pytest.mark.parametrize("part", [0.2, 0.75, 0.95])
def test_an_order_goes_on_though_lines_are_missing(tmp_path: Path, went_on: list[bool], part: float) -> None:
    """Those of long before the news, of shortly before, and of the last tenth of the facts, which are the news."""
    MadeCluster(Shape(events=4_500, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    leader = pc.mode(facts.filter(pc.equal(facts["kind"], "produce"))["broker_id"])[0]["mode"].as_py()
    facts = without_some_lines(facts, leader, part)
    assert missing_requests(facts).lossy
    once, stepwise = at_once_and_in_two_steps(facts, stated)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert told_but_states(stepwise) == told_but_states(once)
    assert went_on[-1]


def test_lines_that_turn_out_to_be_missing_before_a_mark_make_all_facts_be_ordered(
    tmp_path: Path, went_on: list[bool]
) -> None:
    """What had come of a log until then looked whole: a client's next request shows that some before it are lost."""
    MadeCluster(Shape(events=4_500, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    some = facts.filter(pc.equal(facts["kind"], "produce")).slice(0, 1).to_pylist()[0]
    times = facts["ts"].cast(pa.int64()).to_numpy()
    other = [
        {**some, "fact_id": f"other {number}", "topic": "other", "correlation_id": number, "connection": connection}
        | {"source_line": 9_000 + number, "ts": ts}
        for connection in ("other 1", "other 2")
        for number, ts in ((1, some["ts"]), (4, facts["ts"][int(np.argmax(times))].as_py()))
    ]
    facts = pa.concat_tables([facts, pa.Table.from_pylist(other, schema=facts.schema)])
    once, stepwise = at_once_and_in_two_steps(facts, stated)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert not any(went_on)


@pytest.mark.usefixtures("went_on")
def test_lines_that_turn_out_to_be_missing_before_the_next_batch_bear_on_the_last_one_before_a_mark(
    tmp_path: Path,
) -> None:
    """Nobody follows, so the next batch shows where that one ends; whether one between them was lost shows later."""
    MadeCluster(Shape(events=4_500, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    times = facts["ts"].cast(pa.int64()).to_numpy()
    cut = int(np.sort(times)[len(times) * 9 // 10])
    mark = (cut // SECOND_US - 1) * SECOND_US
    kinds = np.array(facts["kind"].to_pylist())
    silent = (kinds == "produce") & (times > mark - 50_000) & (times < mark + 900_000)
    rows = facts.filter(pa.array(~(silent | (kinds == "fetch")))).sort_by("ts").to_pylist()
    produces = [row for row in rows if row["kind"] == "produce"]
    for number, row in enumerate(produces, 50):
        row["correlation_id"] = number
    others = ((1, 1, 650_000), (2, 2, 700_000), (1, 3, 850_000), (1, 4, None), (2, 3, None))
    rows += [
        {
            **produces[0], "fact_id": f"other {port} {number}", "source_line": 90_000 + 10 * port + number,
            "topic": "other", "client_id": "other", "connection": f"a:1-10.0.9.9:{port}-0-0", "correlation_id": number,
            "ts": facts["ts"][int(np.argmax(times))].as_py() if us is None else timestamp(mark + us),
            "total_us": 0, "queue_us": 0,
        }
        for port, number, us in others
    ]  # fmt: skip
    once, stepwise = at_once_and_in_two_steps(pa.Table.from_pylist(rows, schema=facts.schema), stated, cut)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])


def timestamp(us: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)


def at_once_and_in_two_steps(
    facts: pa.Table, stated: dict[str, Any], until_us: int | None = None
) -> tuple[HourlyRuns, HourlyRuns]:
    """All facts ordered in one run, and in two of which the second brings those from a moment on: the last tenth."""
    times = facts["ts"].cast(pa.int64()).to_numpy()
    first = times < (np.sort(times)[len(times) * 9 // 10] if until_us is None else until_us)
    once, stepwise = HourlyRuns(), HourlyRuns()
    once.order(facts, stated)
    stepwise.order(facts.filter(pa.array(first)), stated)
    stepwise.order(facts, stated)
    return once, stepwise


@pytest.mark.parametrize("after_s", [-0.5, 0.5, 8.0])
def test_an_order_goes_on_through_an_election(
    tmp_path: Path, went_on: list[bool], monkeypatch: pytest.MonkeyPatch, after_s: float
) -> None:
    """From a mark in the leader epoch before, shortly before and after another begins, and long after that."""
    MadeCluster(Shape(events=9_000, partitions=1, elections=1, flaps=0, seed=3), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    elected = facts.filter(pc.and_(pc.equal(facts["kind"], "role_change"), pc.equal(facts["leader_epoch"], 1)))
    begin = pc.min(elected["ts"].cast(pa.int64())).as_py()
    marked: list[int] = []
    whole = partition_order.order_on

    def noted(known: Any, mark: Any, *args: Any) -> Any:
        marked.append(mark.epoch)
        return whole(known, mark, *args)

    monkeypatch.setattr(partition_order, "order_on", noted)
    once, stepwise = at_once_and_in_two_steps(facts, stated, begin + round(after_s * SECOND_US))
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert told_but_states(stepwise) == told_but_states(once)
    assert went_on[-1]
    assert marked == [int(after_s > 1)]
    assert stepwise.written[-1] < once.written[-1] // 2 or after_s < 1


@pytest.mark.parametrize(("reconnected_s", "goes_on"), [(8, True), (16, False), (None, True)])
def test_a_follower_that_comes_back_in_the_same_epoch_bears_upon_no_connection_of_long_before(
    tmp_path: Path, went_on: list[bool], reconnected_s: int | None, *, goes_on: bool
) -> None:
    """Its load may have come at a change of its connection up to five seconds before, by what clocks may differ."""
    MadeCluster(Shape(events=9_000, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    times = facts["ts"].cast(pa.int64()).to_numpy()
    seconds = (times - times.min()) / SECOND_US
    mine = np.array(facts["replica_id"].to_pylist()) == 3
    names = facts["connection"].to_pylist()
    for since in (reconnected_s, 19):
        for k in np.flatnonzero(mine & (seconds >= since)) if since is not None else ():
            names[k] += f" since {since}"
    place = facts.schema.get_field_index("connection")
    facts = facts.set_column(place, facts.schema.field(place), pa.array(names, facts["connection"].type))
    offset = facts["fetch_offset"].to_numpy()[mine & (seconds >= 19)][0]
    began = pc.and_(pc.equal(facts["broker_id"], 3), pc.is_in(facts["kind"], pa.array(["log_load", "role_change"])))
    again = [
        {
            **row, "fact_id": f"again {k}", "source_line": 9_000 + k, "ts": row["ts"] + timedelta(seconds=18.9),
            **{name: int(offset) for name in ("offset", "hw") if row[name] is not None},
        }
        for k, row in enumerate(facts.filter(began).sort_by("source_line").to_pylist())
    ]  # fmt: skip
    facts = pa.concat_tables([facts, pa.Table.from_pylist(again, schema=facts.schema)])
    once, stepwise = at_once_and_in_two_steps(facts, stated, times.min() + 37 * SECOND_US // 2)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert went_on[-1] is goes_on


def test_a_follower_that_used_two_connections_at_the_same_time_is_ordered_as_a_whole(
    tmp_path: Path, went_on: list[bool]
) -> None:
    MadeCluster(Shape(events=4_500, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    fetches = np.flatnonzero(pc.equal(facts["replica_id"], 2).to_numpy(zero_copy_only=False))
    names = facts["connection"].to_pylist()
    for k in fetches[len(fetches) // 4 : len(fetches) // 2 : 20]:
        names[k] += " at the same time"
    place = facts.schema.get_field_index("connection")
    facts = facts.set_column(place, facts.schema.field(place), pa.array(names, facts["connection"].type))
    once, stepwise = at_once_and_in_two_steps(facts, stated)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert not any(went_on)


def test_an_order_goes_on_from_an_older_mark_where_it_cannot_from_the_newest(
    tmp_path: Path, went_on: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    MadeCluster(Shape(events=4_500, partitions=1, elections=0, flaps=0, seed=1), tmp_path / "made").write()
    facts, stated = facts_of(tmp_path / "made")
    asked: list[int] = []
    whole = order_marks.bears_on_neighbours

    def as_if_nobody_wrote_before_the_newest(known: Any, settled: Any, since: int, until: int) -> bool:
        asked.append(since)
        return len(asked) > 1 and whole(known, settled, since, until)

    monkeypatch.setattr(order_marks, "bears_on_neighbours", as_if_nobody_wrote_before_the_newest)
    once, stepwise = at_once_and_in_two_steps(facts, stated)
    assert lines(stepwise.tables["replication_events"]) == lines(once.tables["replication_events"])
    assert told_but_states(stepwise) == told_but_states(once)
    assert any(went_on)
    assert asked == sorted(asked, reverse=True)
    assert len(asked) > 1


def test_a_run_without_news_writes_and_replays_nothing(recordings: Path) -> None:
    facts, stated = facts_of(recordings / NAMES[0])
    runs = HourlyRuns()
    runs.run(facts, stated)
    before = dict(runs.tables)
    runs.run(facts.take(pa.array(range(len(facts) - 1, -1, -1))), stated)
    assert runs.written[1] == runs.replayed[1] == 0
    assert all(lines(runs.tables[name]) == lines(rows) for name, rows in before.items())
