"""What collect brings from brokers' folders: everything once, whatever files are called by now; and nothing in part."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs import collect as job
from pipelines.collecting import logs as taking
from pipelines.collecting.collector import Order, gather
from pipelines.collecting.ledger import ledger_of
from pipelines.collecting.places import look, settings_in
from pipelines.collecting.pseudonyms import Pseudonyms
from pipelines.collecting.redaction import Redactor
from pipelines.collecting.stored import Packed
from pipelines.intake.collect import collect
from pipelines.recording.reading import Outcome, read_chunks
from pipelines.recording.recording import discover
from schemas.errors import InputError

if TYPE_CHECKING:
    from pipelines.collecting.outcome import Gathered

LONG_AGO = time.time() - 3600


def line(number: int) -> str:
    stamp = f"2026-03-01 10:{number // 60 % 60:02}:{number % 60:02},{number % 1000:03}"
    return f"[{stamp}] INFO line {number} (kafka.server.A)\n"


def lines(first: int, last: int) -> bytes:
    return "".join(line(number) for number in range(first, last)).encode()


def write(path: Path, content: bytes, *, append: bool = False, quiet: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab" if append else "wb") as file:
        file.write(content)
    if quiet:
        stamp = LONG_AGO + random.random()  # noqa: S311 - a time that no other file has
        os.utime(path, (stamp, stamp))


def run(source: Path, into: Path, **others: Any) -> Gathered:
    return gather(Order(into, {1: [str(source)]}, **others))


def content(into: Path) -> dict[str, bytes]:
    """What the logs in a recording say, by the source's name."""
    found = {}
    for path in sorted((into / "logs" / "node-1").iterdir()):
        assert not path.name.startswith(".")
        found[path.name.rpartition(".")[0]] = b"".join(read_chunks(str(path), Outcome()))
    return found


def everything(into: Path) -> Counter[bytes]:
    return Counter(line for text in content(into).values() for line in text.splitlines())


def test_a_collected_recording_has_the_facts_of_the_logs(recordings: Path, tmp_path: Path) -> None:
    source = recordings / "last-replica" / "logs"
    gather(Order(tmp_path / "into", {n: [str(source / f"node-{n}")] for n in range(4)}))

    def facts(root: Path) -> list[str]:
        found = collect(discover(root, recording_id="x")).facts.drop_columns(["source_file"])
        return sorted(map(str, found.to_pylist()))

    shutil.copytree(source, tmp_path / "plain" / "logs")
    assert facts(tmp_path / "into") == facts(tmp_path / "plain")


def test_a_second_collect_brings_nothing_and_the_source_is_untouched(recordings: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(recordings / "last-replica" / "logs" / "node-2", source)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in source.rglob("*")}
    first = run(source, tmp_path / "into")
    again = run(source, tmp_path / "into")
    assert (len(first.new), len(again.new), len(again.grown), again.unchanged) == (2, 0, 0, 2)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in source.rglob("*")} == before


def test_of_a_log_that_grew_only_the_new_bytes_are_read(tmp_path: Path) -> None:
    source, into = tmp_path / "server.log", tmp_path / "into"
    write(source, lines(0, 5000))
    run(source, into)
    write(source, lines(5000, 5100), append=True)
    told = run(source, into)
    assert (told.new, len(told.grown), told.bytes) == ([], 1, len(lines(5000, 5100)))
    assert content(into) == {next(iter(content(into))): lines(0, 5100)}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_rolled_log_is_known_again(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001 - a parameter of a test
    source, into = tmp_path / "logs", tmp_path / "into"
    write(source / "server.log", lines(0, 300))
    run(source, into)
    write(source / "server.log", lines(300, 400), append=True)
    rolled = source / "server.log.2026-03-01-10"
    (source / "server.log").rename(rolled)
    if packed:
        (source / f"{rolled.name}.gz").write_bytes(gzip.compress(rolled.read_bytes()))
        rolled.unlink()
    write(source / "server.log", lines(400, 450))
    told = run(source, into)
    assert (len(told.new), len(told.grown)) == (1, 1)
    assert everything(into) == Counter(lines(0, 450).splitlines())
    assert run(source, into).unchanged == 2


def test_a_log_that_was_copied_and_emptied_in_place_is_two_logs(tmp_path: Path) -> None:
    source, into = tmp_path / "logs", tmp_path / "into"
    write(source / "server.log", lines(0, 300))
    run(source, into)
    shutil.copy(source / "server.log", source / "server.log.1")
    write(source / "server.log", lines(300, 320))
    run(source, into)
    assert everything(into) == Counter(lines(0, 320).splitlines())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("redacts", [False, True], ids=["", "redacted"])
def test_whatever_happens_to_logs_each_line_is_taken_once(tmp_path: Path, seed: int, redacts: bool) -> None:  # noqa: FBT001
    chance = random.Random(seed)  # noqa: S311 - a test's choice
    source, into, number, rolls = tmp_path / "logs", tmp_path / "into", 0, 0
    redactor = Redactor(Pseudonyms(bytes(range(32)))) if redacts else None
    write(source / "server.log", b"")
    for _ in range(25):
        what = chance.choice(["write", "write", "roll", "pack", "collect"])
        if what == "write":
            more = chance.choice([1, 7, 400])
            write(source / "server.log", lines(number, number + more), append=True)
            number += more
        elif what == "roll" and (source / "server.log").stat().st_size:
            rolls += 1
            (source / "server.log").rename(source / f"server.log.{rolls}")
            write(source / "server.log", b"")
        elif what == "pack" and (source / f"server.log.{rolls}").exists():
            rolled = source / f"server.log.{rolls}"
            write(source / f"{rolled.name}.gz", gzip.compress(rolled.read_bytes()))
            rolled.unlink()
        else:
            run(source, into, redactor=redactor)
    run(source, into, redactor=redactor)
    found = Counter(text[:26] for text in everything(into).elements())
    assert found == Counter(text[:26] for text in lines(0, number).splitlines())


def test_a_line_that_is_being_written_is_taken_when_it_is_whole_or_nobody_writes_any_more(tmp_path: Path) -> None:
    source, into = tmp_path / "server.log", tmp_path / "into"
    write(source, lines(0, 3) + b"[2026-03-01 10:00:03", quiet=False)
    run(source, into)
    assert list(content(into).values()) == [lines(0, 3)]
    os.utime(source, (LONG_AGO, LONG_AGO))
    run(source, into)
    assert list(content(into).values()) == [lines(0, 3) + b"[2026-03-01 10:00:03"]
    assert run(source, into).unchanged == 1


class Interrupted(Exception):  # noqa: N818 - as a signal would
    pass


def test_a_collect_that_ends_in_the_middle_leaves_nothing_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, into = tmp_path / "logs", tmp_path / "into"
    write(source / "a.log", lines(0, 100))
    run(source, into)
    write(source / "a.log", lines(100, 200), append=True)
    write(source / "b.log", lines(200, 300))

    def interrupted(self: Packed, piece: bytes) -> None:
        self.file.write(piece[:10])
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Packed, "take", interrupted)
        with pytest.raises(Interrupted):
            run(source, into)
    assert list(content(into).values()) == [lines(0, 100)]
    run(source, into)
    assert everything(into) == Counter(lines(0, 300).splitlines())


def test_what_a_killed_collect_did_not_note_is_not_taken_twice(tmp_path: Path) -> None:
    source, into = tmp_path / "logs", tmp_path / "into"
    write(source / "a.log", lines(0, 100))
    run(source, into)
    noted = (into / ".collect" / "ledger.json").read_bytes()
    write(source / "a.log", lines(100, 200), append=True)
    write(source / "b.log", lines(200, 300))
    run(source, into)
    (into / ".collect" / "ledger.json").write_bytes(noted)  # killed before it could note what it had written
    (into / "logs" / "node-1" / ".collecting-c.log").write_bytes(b"half")
    run(source, into)
    assert everything(into) == Counter(lines(0, 300).splitlines())
    assert not list(into.rglob(".collecting-*"))


def test_a_file_that_was_removed_from_the_recording_is_taken_again(tmp_path: Path) -> None:
    source, into = tmp_path / "server.log", tmp_path / "into"
    write(source, lines(0, 100))
    run(source, into)
    next((into / "logs" / "node-1").iterdir()).unlink()
    run(source, into)
    assert everything(into) == Counter(lines(0, 100).splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that cannot be read even by root")
def test_what_cannot_be_read_is_named_and_the_rest_is_taken(tmp_path: Path) -> None:
    source, into = tmp_path / "logs", tmp_path / "into"
    write(source / "server.log", lines(0, 10))
    (source / "broken.log").symlink_to("/proc/self/mem")
    (source / "dangling.log").symlink_to("nowhere")
    told = gather(Order(into, {1: [str(source), str(tmp_path / "missing")]}))
    assert len(told.new) == 1
    assert [text.partition(": ")[0].rpartition("/")[2] for text in sorted(told.unread)] == [
        "broken.log", "dangling.log", "missing",
    ]  # fmt: skip


def test_files_that_are_no_brokers_logs_stay_behind(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    write(source / "server.log", lines(0, 10))
    write(source / "notes.txt", b"call alice\n")
    write(source / "kafka-authorizer.log", lines(0, 10))
    write(source / "kafkaServer-gc.log", b"[2026-03-01T10:00:00.123+0000][gc] Using G1\n")
    told = run(source, tmp_path / "into")
    assert [name.rpartition("/")[2].partition(".log")[0] for name in told.new] == ["server"]
    assert [Path(name).name for name in told.passed_over] == ["notes.txt"]


def test_two_collects_do_not_write_to_one_recording_at_once(tmp_path: Path) -> None:
    write(tmp_path / "server.log", lines(0, 10))
    with ledger_of(tmp_path / "into"), pytest.raises(InputError, match="another collect"):
        run(tmp_path / "server.log", tmp_path / "into")


def test_a_log_that_is_rolled_while_it_is_read_is_left_for_the_next_collect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, into = tmp_path / "logs", tmp_path / "into"
    write(source / "server.log", lines(0, 10))
    behind = taking._behind

    def rolled(path: Path, start: int) -> Any:
        if not (source / "server.log.1").exists():
            path.rename(source / "server.log.1")
            write(path, lines(10, 20))
        return behind(path, start)

    monkeypatch.setattr(taking, "_behind", rolled)
    assert taking.RENAMED in run(source, into).unread[0]
    run(source, into)
    assert everything(into) == Counter(lines(0, 20).splitlines())


def test_pseudonyms_and_names_are_not_mixed_in_one_recording(tmp_path: Path) -> None:
    write(tmp_path / "server.log", lines(0, 10))
    run(tmp_path / "server.log", tmp_path / "into")
    with pytest.raises(InputError, match="without --redact"):
        run(tmp_path / "server.log", tmp_path / "into", redactor=Redactor(Pseudonyms(bytes(32))))


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "server.properties"
    path.write_text(
        f"# a comment\n! another\nmin.insync.replicas = 2\nreplica.lag.time.max.ms:30000\nssl.keystore.password=x=y\n"
        f"log.dirs={tmp_path}/data,\\\n   {tmp_path}/gone\nempty=\n"
    )
    assert settings_in(path)["min.insync.replicas"] == "2"
    assert settings_in(path)["ssl.keystore.password"] == "x=y"
    assert look(1, [str(path)], tmp_path / "into").data == [tmp_path / "data"]


def test_the_job_says_what_it_brought_and_fails_if_that_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def called(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["collect", *arguments])
        return job.main(), capsys.readouterr().out

    write(tmp_path / "server.log", lines(0, 10))
    code, said = called("--broker", f"1={tmp_path}/server.log", "--into", str(tmp_path / "into"))
    assert (code, said.splitlines()[0]) == (
        0, f"{tmp_path}/into: 1 new files, 0 that grew, 0 unchanged; {len(lines(0, 10))} bytes of logs read",
    )  # fmt: skip
    code, said = called("--broker", f"1={tmp_path}/nothing", "--into", str(tmp_path / "other"), "--json")
    assert code == 2
    assert '"unread": [' in said
    with pytest.raises(InputError, match="say what to collect"):
        called("--into", str(tmp_path / "into"))
