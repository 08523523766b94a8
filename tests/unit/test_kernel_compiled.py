"""The rules compiled and the rules as they stand give the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from histories_of_losses import acks_one_failure
from test_order import long_history
from without_spark import tables_of
import numba
for history in (long_history(), acks_one_failure()):
    events = history.events()
    print("events", len(events), hashlib.sha256(repr(events.to_pylist()).encode()).hexdigest())
    for name, rows in tables_of(events).items():
        print(name, len(rows), hashlib.sha256(repr(rows.to_pylist()).encode()).hexdigest())
print("compiled", not numba.config.DISABLE_JIT, file=sys.stderr)
"""


def told(*, compiled: bool) -> tuple[list[str], str]:
    """Hashes of every table in a process of its own, and whether it compiled."""
    path = os.pathsep.join([str(HERE.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(HERE)],
        env={**os.environ, "NUMBA_DISABLE_JIT": str(int(not compiled)), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.strip()


def test_compiled_and_plain_rules_give_the_same_rows() -> None:
    compiled, how = told(compiled=True)
    plain, how_not = told(compiled=False)
    assert (how, how_not) == ("compiled True", "compiled False")
    assert compiled == plain
    assert sum(int(line.split()[1]) for line in compiled) > 200
