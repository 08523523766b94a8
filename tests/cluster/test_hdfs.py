"""A recording on HDFS is read as one on this machine is, and nobody needs Hadoop's native library for it."""

from __future__ import annotations

from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from whole_run import NAME

from pipelines.recording.listing import file_at, files_below, is_folder, opened
from pipelines.recording.reading import Outcome, newlines, read_lines, tail
from pipelines.recording.recording import discover
from schemas.errors import InputError

if TYPE_CHECKING:
    from hadoop import MiniHadoop

ODD = "odd name ü 100%/a%20b+c#d.log"
LINES = 200_000


@pytest.fixture(scope="module")
def folder(hadoop: MiniHadoop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose copy stands on HDFS, at `/kept`: a file of several pieces, and a name that URIs must quote."""
    here = tmp_path_factory.mktemp("kept") / "kept"
    (here / ODD).parent.mkdir(parents=True)
    (here / ODD).write_text("odd\n")
    (here / "long.log").write_text("".join(f"line {number}\n" for number in range(LINES)))
    hadoop.shell("-put", str(here), "/")
    return here


def test_a_recording_there_has_the_files_that_it_has_here(hadoop: MiniHadoop, recordings: Path) -> None:
    there, here = discover(f"{hadoop.root}/recordings/{NAME}"), discover(str(recordings / NAME))
    assert [(one.name, one.broker_id, one.size) for one in there.sources] == [
        (one.name, one.broker_id, one.size) for one in here.sources
    ]
    assert (there.recording_id, there.manifest) == (here.recording_id, here.manifest)
    for mine, theirs in zip(here.sources, there.sources, strict=True):
        with opened(theirs.path) as stream:
            assert bytes(stream.read()) == Path(mine.path).read_bytes()


def test_names_that_a_uri_must_quote_are_found_again(hadoop: MiniHadoop, folder: Path) -> None:
    found = list(files_below(f"{hadoop.root}/kept/"))
    assert [(one.name, one.size) for one in found] == [
        (name, (folder / name).stat().st_size) for name in ("long.log", ODD)
    ]
    assert file_at(found[1].path) == found[1]._replace(name=found[1].path)
    with opened(found[1].path) as stream:
        assert bytes(stream.read()) == b"odd\n"


def test_ranges_of_a_file_there_hold_each_line_once(hadoop: MiniHadoop, folder: Path) -> None:
    path, size = f"{hadoop.root}/kept/long.log", (folder / "long.log").stat().st_size
    cuts = [0, size // 3, 2 * size // 3, size]
    ranges = [read_lines(path, Outcome(), start, end) for start, end in pairwise(cuts)]
    parts = [line for some in chain(*ranges) for line in some]
    assert parts == (folder / "long.log").read_text().splitlines()
    assert newlines(path, 0, size) == LINES
    assert tail(path) == tail(str(folder / "long.log"))


def test_what_is_not_there_is_told_in_one_sentence(hadoop: MiniHadoop) -> None:
    assert is_folder(f"{hadoop.root}/nothing") is None
    assert is_folder(f"{hadoop.root}/recordings") is True
    assert is_folder(f"{hadoop.root}/recordings/{NAME}/MANIFEST.json") is False
    with pytest.raises(InputError, match="no such folder"):
        discover(f"{hadoop.root}/nothing")


def test_the_default_file_system_is_found_by_its_configuration(
    hadoop: MiniHadoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.configuration))
    assert is_folder(f"hdfs:///recordings/{NAME}") is True
