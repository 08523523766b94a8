"""A metadata dump that is made anew of a longer log: its new batches are read, and they state what the whole does."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from step_by_step import Taken

from pipelines.intake.inputs import inputs_of
from pipelines.intake.ledger import counts_of
from pipelines.recording.recording import discover
from replay.evidence.metadata_log import PART

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipelines.recording.recording import Recording

START = 1_795_233_690_000  # milliseconds
PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
LOG = "Dumping /d/__cluster_metadata-0/00000000000000000000.log\nLog starting offset: 0\n"
SNAPSHOT = "Dumping /d/00000000000000000009-0000000001.checkpoint\nSnapshot end offset: 9, epoch: 1\n"


def batch(first: int, last: int, epoch: int = 1) -> str:
    """A batch of the log: a topic is created by its first record, and the others say nothing."""
    topic = f'{{"type":"TOPIC_RECORD","version":0,"data":{{"name":"t{first}","topicId":"{first:022d}"}}}}'
    nothing = '{"type":"NO_OP_RECORD","version":0,"data":{}}'
    records = "".join(
        f"| offset: {k} CreateTime: {START + 500 * k} keySize: -1 payload: {topic if k == first else nothing}\n"
        for k in range(first, last + 1)
    )
    return (
        f"baseOffset: {first} lastOffset: {last} count: {last - first + 1} partitionLeaderEpoch: {epoch} x\n{records}"
    )


def found(root: Path) -> Recording:
    return discover(root, recording_id="r")


def all_at_once(root: Path) -> Taken:
    one = Taken()
    one.take(found(root))
    return one


def rows(taken: Taken) -> list[str]:
    return sorted(map(str, taken.facts.to_pylist())) + sorted(map(str, taken.rejected.to_pylist()))


def parts(taken: Taken) -> list[tuple[int, int, int]]:
    told = [row for row in taken.facts.to_pylist() if row["kind"] == PART]
    return [(row["metadata_offset"], row["last_offset"], row["controller_epoch"]) for row in told]


@pytest.mark.parametrize("suffix", PACKED)
def test_only_the_last_batch_and_what_follows_is_read_of_a_dump_that_grew(tmp_path: Path, suffix: str) -> None:
    taken, batches = Taken(), [batch(2 * k, 2 * k + 1) for k in range(20)]
    dump = tmp_path / f"metadata.dump.txt{suffix}"
    for count, read in ((10, 2 + 3 * 10), (12, 3 * 3), (20, 9 * 3)):
        dump.write_bytes(PACKED[suffix]((LOG + "".join(batches[:count])).encode()))
        taken.take(found(tmp_path))
        assert taken.lines == read
        assert parts(taken) == [(0, 2 * count - 1, 1)]
        assert rows(taken) == rows(all_at_once(tmp_path))
    counted = [part for entry in taken.entries for part in (*entry.settled_counts, *entry.open_counts)]
    assert sum(part["bytes"] for part in counted) == dump.stat().st_size
    assert sum(part["lines"] for part in counted) == 2 + 3 * 20


STORY = [
    LOG, batch(0, 3), batch(4, 4), batch(5, 8), batch(9, 9, 2), batch(10, 12, 2), batch(14, 15, 2), SNAPSHOT,
    '| offset: 0 CreateTime: 9000 keySize: 4 SnapshotHeader {"version":0,"lastContainedLogTimestamp":8000}\n',
    batch(1, 3), batch(4, 5), '| offset: 6 CreateTime: 9000 keySize: 4 SnapshotFooter {"version":0}\n',
    LOG, batch(16, 16, 3), batch(17, 19, 3), "log4j:WARN No appenders could be found.\n",
]  # fmt: skip


@settings(max_examples=60)
@given(cuts=st.sets(st.integers(0, len("".join(STORY))), max_size=4), packed=st.lists(st.sampled_from([*PACKED])))
def test_wherever_a_dump_ends_it_goes_on_as_if_it_had_been_read_at_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: set[int], packed: list[str]
) -> None:
    taken, whole = Taken(), "".join(STORY).encode()
    root = tmp_path_factory.mktemp("dump")
    for step, end in enumerate([*sorted(cuts), len(whole)]):
        suffix = packed[step % len(packed)] if packed else ".zst"
        for old in root.iterdir():
            old.unlink()
        (root / f"metadata.dump.txt{suffix}").write_bytes(PACKED[suffix](whole[:end]))
        taken.take(found(root))
    assert rows(taken) == rows(all_at_once(root))


@settings(max_examples=30)
@given(data=st.data())
def test_what_several_nodes_dumps_state_stands_under_the_first(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A follower's log is a moment behind, and another node may be the follower the next time."""
    taken, root = Taken(), tmp_path_factory.mktemp("dumps")
    batches = [batch(2 * k, 2 * k + 1) for k in range(9)]
    counts = {node: sorted(data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=4))) for node in "abc"}
    for step in range(max(map(len, counts.values()))):
        for node, told in counts.items():
            count = told[min(step, len(told) - 1)]
            head = LOG.replace("/d/", f"/{node}/")
            dump = (head + "".join(batches[:count])).encode()
            (root / f"metadata-{node}.dump.txt.zst").write_bytes(zstandard.compress(dump))
        taken.take(found(root))
    assert rows(taken) == rows(all_at_once(root))


@pytest.mark.parametrize("counts", [(20, 20), (22, 22), (22, 24)])
def test_what_another_dump_still_states_stays(tmp_path: Path, counts: tuple[int, int]) -> None:
    """Two nodes have the same log; then the last batch of one is cut off, and another controller's is there.

    `counts`: batches in the other's dump, at each of the two runs.
    """
    taken = Taken()
    same = [batch(2 * k, 2 * k + 1) for k in range(24)]
    for batches, count in zip((same[:20], [*same[:19], batch(38, 39, 2), batch(40, 41, 2)]), counts, strict=True):
        for node, some in (("a", batches), ("b", same[:count])):
            head = LOG.replace("/d/", f"/{node}/")
            (tmp_path / f"metadata-{node}.dump.txt").write_text(head + "".join(some))
        taken.take(found(tmp_path))
    assert "t38" in taken.facts["topic"].to_pylist()
    assert rows(taken) == rows(all_at_once(tmp_path))


def test_a_dump_is_one_though_its_first_batch_has_no_record_that_tells_what_it_is(tmp_path: Path) -> None:
    taken, dump = Taken(), tmp_path / "copied.dump.txt"
    elected = "baseOffset: 0 lastOffset: 0 count: 1 partitionLeaderEpoch: 1 isControl: true\n"
    elected += f"| offset: 0 CreateTime: {START} keySize: 4 valueSize: 19 LeaderChange: {{}}\n"
    for last in (1, 5):
        batches = "".join(batch(k, k) for k in range(1, last + 1))
        dump.write_text("Dumping /tmp/00000000000000000000.log\n" + elected + batches)
        taken.take(found(tmp_path))
        assert parts(taken) == [(0, last, 1)]
    assert rows(taken) == rows(all_at_once(tmp_path))
    assert not taken.rejected.num_rows


@pytest.mark.parametrize("suffixes", [("", ".gz"), (".gz", ""), ("", ".zst", "")])
def test_counts_are_those_of_one_reading_though_the_dump_is_packed_meanwhile(
    tmp_path: Path, suffixes: tuple[str, ...]
) -> None:
    taken = Taken()
    for step, suffix in enumerate(suffixes, 1):
        for old in tmp_path.iterdir():
            old.unlink()
        text = LOG + "".join(batch(40 * k, 40 * k + 1) for k in range(4 * step))  # 20 seconds apart
        (tmp_path / f"metadata.dump.txt{suffix}").write_bytes(PACKED[suffix](text.encode()))
        taken.take(found(tmp_path))
    names = ("bytes", "lines", "facts", "rejected", "silences", "no_interest", "kinds", "first_ts", "last_ts")
    told, one = (
        [{name: part[name] for name in names} for part in inputs_of(counts_of(some.entries)) if part["bytes"]]
        for some in (taken, all_at_once(tmp_path))
    )
    assert told[-1:] == one
    assert not one[0]["silences"]


def test_a_dump_whose_log_was_cut_off_meanwhile_is_read_as_another(tmp_path: Path) -> None:
    """A deposed controller's records went: what the dump before told of them stays, under a name of its own."""
    taken, dump = Taken(), tmp_path / "metadata.dump.txt.zst"
    for batches in ([batch(0, 3), batch(4, 6), batch(7, 9)], [batch(0, 3), batch(4, 4, 2), batch(5, 9, 2)]):
        dump.write_bytes(zstandard.compress((LOG + "".join(batches)).encode()))
        taken.take(found(tmp_path))
    assert taken.lines == 2 + 5 + 2 + 6
    assert sorted(parts(taken)) == [(0, 3, 1), (0, 9, 1), (4, 9, 2)]


def test_a_dump_that_became_shorter_while_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, dump = Taken(), tmp_path / "metadata.dump.txt.gz"
    long, short = LOG + batch(0, 3) + batch(4, 6), LOG + batch(0, 3)
    dump.write_bytes(gzip.compress(long.encode()))
    monkeypatch.setattr("pipelines.intake.pieces.goes_on_at", lambda *_: _replaced(dump, short, len(LOG + batch(0, 3))))
    taken.take(found(tmp_path))
    assert [entry.state for entry in taken.entries] == ["unreadable"]
    monkeypatch.undo()
    taken.take(found(tmp_path))
    assert rows(taken) == rows(all_at_once(tmp_path))


def test_a_dump_that_goes_away_before_it_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = tmp_path / "metadata.dump.txt.gz"
    dump.write_bytes(gzip.compress((LOG + batch(0, 3) + batch(4, 6)).encode()))

    def gone(*_: object) -> int:
        dump.unlink(missing_ok=True)
        return len(LOG)

    monkeypatch.setattr("pipelines.intake.pieces.goes_on_at", gone)
    taken = all_at_once(tmp_path)
    assert {row["reason"][:26] for row in taken.rejected.to_pylist()} == {"the file cannot be read: ["}


def _replaced(dump: Path, text: str, place: int) -> Any:
    dump.write_bytes(gzip.compress(text[: place // 2].encode()))
    return place
