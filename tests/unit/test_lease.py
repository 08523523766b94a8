from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pipelines.warehouse import lease as lease_module
from pipelines.warehouse.lease import ENDS_AFTER_S, Holder, Lease
from pipelines.warehouse.lease_files import LocalFiles
from schemas.errors import HeldError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ELSEWHERE = "another machine"


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "_leases" / "prod")


def driver(files: LocalFiles, run_id: str, machine: str = ELSEWHERE, on_lost: Callable[[], object] = int) -> Lease:
    holder = replace(Holder.here(run_id), machine=machine, host="web1")
    return Lease(files, "the recording 'prod'", holder, on_lost)


def stood_still(files: LocalFiles) -> None:
    """As if what is there had been written before any lease's end."""
    for path in files.folder.iterdir():
        os.utime(path, (time.time() - ENDS_AFTER_S - 1,) * 2)


def test_a_second_driver_is_refused_in_one_sentence_until_the_first_has_ended(files: LocalFiles) -> None:
    one, two = driver(files, "one"), driver(files, "two")
    one.take()
    with pytest.raises(HeldError) as refused:
        two.take()
    words = str(refused.value)
    assert words.startswith("the recording 'prod' is being worked on by run one (host web1, process ")
    assert "since 20" in words
    assert "its lease ends at 20" in words
    assert "\n" not in words
    one.check()
    one.give_back(finished=True)
    two.take()
    two.check()
    two.give_back(finished=True)


def test_who_waits_is_told_so_once_and_takes_it_as_soon_as_it_is_free(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "LOOK_AGAIN_S", 0.05)
    one, two, told = driver(files, "one"), driver(files, "two"), []
    one.take()
    threading.Timer(0.3, lambda: one.give_back(finished=True)).start()
    begun = time.monotonic()
    two.take(30, told.append)
    assert 0.2 < time.monotonic() - begun < 10
    assert len(told) == 1
    with pytest.raises(HeldError):
        driver(files, "three").take(0.2)
    two.give_back(finished=True)


def test_many_drivers_at_once_never_hold_it_together(files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "LOOK_AGAIN_S", 0.001)
    inside, most, done = 0, 0, 0
    count = threading.Lock()

    def work(number: int) -> None:
        nonlocal inside, most, done
        for turn in range(5):
            one = driver(files, f"{number}/{turn}")
            one.take(60)
            with count:
                inside += 1
                most = max(most, inside)
            one.check()
            with count:
                inside -= 1
                done += 1
            one.give_back(finished=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert (most, done) == (1, 40)
    assert [name for name in files.names() if name.isdecimal()] == ["40"]


def test_without_renewal_it_ends_by_the_stores_clock_and_the_old_holder_sees_that(files: LocalFiles) -> None:
    one, two = driver(files, "one"), driver(files, "two")
    one.take()
    stood_still(files)
    two.take()
    with pytest.raises(HeldError, match="was taken over by another run, since this one"):
        one.check()
    one.give_back(finished=True)  # too late: it is not its own any more
    two.check()
    with pytest.raises(HeldError, match="by run two"):
        driver(files, "three").take()
    two.give_back(finished=True)


def test_the_holder_renews_it_and_notices_by_itself_that_it_has_lost_it(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEWED_EVERY_S", 0.05)
    lost = threading.Event()
    one = driver(files, "one", on_lost=lost.set)
    one.take()
    stood_still(files)
    time.sleep(0.3)
    with pytest.raises(HeldError):
        driver(files, "two").take()
    assert not lost.is_set()
    files.create("2", b"whoever")
    assert lost.wait(5)
    with pytest.raises(HeldError):
        one.check()


def test_a_check_renews_what_nobody_has_taken(files: LocalFiles) -> None:
    one = driver(files, "one")
    one.take()
    stood_still(files)
    one._renewed -= ENDS_AFTER_S
    one.check()
    with pytest.raises(HeldError):
        driver(files, "two").take()
    one.give_back(finished=True)


def test_a_driver_that_is_gone_from_this_machine_holds_nothing(files: LocalFiles) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    holder = Holder.here("dead", [child.pid])
    alone = replace(holder, processes={str(child.pid): holder.processes[str(child.pid)]})
    Lease(files, "it", alone).take()
    with pytest.raises(HeldError):
        driver(files, "two").take()
    child.kill()  # a zombie, which nobody has waited for, is gone as well
    deadline = time.monotonic() + 10
    while not alone.is_gone:
        assert time.monotonic() < deadline
    two = driver(files, "two")
    two.take()
    child.wait()
    assert two.before == ("dead",)
    two.give_back(finished=True)


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    here = Holder.here("run")
    assert not here.is_gone
    assert replace(here, processes={str(os.getpid()): "long ago"}).is_gone
    assert not replace(here, machine=ELSEWHERE, processes={str(os.getpid()): "long ago"}).is_gone


def test_runs_that_did_not_come_to_their_end_are_known_until_one_has_mended_them(files: LocalFiles) -> None:
    for run_id, finished, mends, known in (
        ("died", False, False, ()),
        ("looks", True, False, ("died",)),
        ("failed", False, False, ("died",)),
        ("mends", True, True, ("died", "failed")),
        ("next", True, True, ()),
    ):
        one = driver(files, run_id)
        one.take()
        assert one.before == known
        one.has_mended = mends
        one.give_back(finished=finished)


def test_a_note_that_was_cut_off_counts_as_held_until_it_is_too_old(files: LocalFiles) -> None:
    files.create("7", b'{"holder": {"run_')
    with pytest.raises(HeldError, match="unknown"):
        driver(files, "two").take()
    stood_still(files)
    two = driver(files, "two")
    two.take()
    assert two.before == ("unknown",)
    assert [name for name in files.names() if name.isdecimal()] == ["8"]
    two.give_back(finished=True)


def test_a_number_that_was_used_before_is_not_taken(files: LocalFiles) -> None:
    class Late(LocalFiles):
        """Sees the folder as it was before another driver came and went."""

        def create(self, name: str, content: bytes) -> bool:
            made = super().create(name, content)
            super().create("9", b"") if name == "1" else None
            return made

    two = driver(Late(files.folder), "two")
    with pytest.raises(HeldError):
        two.take()
    assert "1" not in files.names()


def test_a_full_disk_leaves_no_lease_of_nobody(files: LocalFiles) -> None:
    files.folder.mkdir(parents=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            driver(files, "one").take()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files.names() == []
    two = driver(files, "two")
    two.take()
    two.give_back(finished=True)
