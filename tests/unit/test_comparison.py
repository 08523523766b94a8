"""docs/comparison.md shows what its commands print."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
SHOWN = re.findall(r"```sh\n(.*?)```\n```text\n(.*?)```", (REPOSITORY / "docs/comparison.md").read_text(), re.DOTALL)


def test_there_are_commands_with_their_output() -> None:
    assert len(SHOWN) >= 4


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_a_command_prints_what_the_page_shows(command: str, output: str) -> None:
    done = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert not done.stderr
    assert done.stdout == output
