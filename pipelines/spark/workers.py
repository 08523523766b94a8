"""What Spark's Python workers keep from one task to the next."""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter


@cache
def settle(_stage: str) -> None:
    """Once a process and stage: what is loaded by now stays, and is not looked through again.

    Between two tasks PySpark's daemon searches all objects for cycles (0.1 s with numba and compiled rules loaded), and
    before each it has every importer forget what it knows, for which those of archives read theirs anew (0.08 s, of
    PySpark's own). A task on little data takes less than that. An importer that is dropped comes back when it is asked.
    """
    gc.collect()
    gc.freeze()
    for place, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[place]
