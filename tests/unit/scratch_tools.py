"""Tools that a few tests need and no lock file holds: installed at test time, beside the environment, and kept.

Environment: XDG_CACHE_HOME    where they are kept is tidemark/tools-* below it (default: ~/.cache)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark"
TIME_S = 900


def programs_of(*requirements: str, constraints: Path | str | None = None) -> Path:
    """The folder of the programs that these packages bring; skips the test where they cannot be had."""
    told = (*requirements, str(constraints or ""), sys.version)
    folder = CACHE / f"tools-{hashlib.sha256(repr(told).encode()).hexdigest()[:12]}"
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements]
        if constraints:
            command += ["--constraint", str(constraints)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_S)
        if ended.returncode:
            shutil.rmtree(folder)
            pytest.skip(f"NOT CHECKED: pip cannot install {', '.join(requirements)}: {ended.stderr.strip()[-300:]}")
        (folder / "whole").touch()
    return folder / "bin"
