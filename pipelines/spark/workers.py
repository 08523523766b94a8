"""What Spark's Python workers keep from one task to the next."""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter


@cache
def settle(_stage: str) -> None:
    """Keep what is loaded by now out of PySpark's clean-up between tasks; runs once per process and stage.

    Between two tasks PySpark's daemon searches all objects for reference cycles (0.1 s with numba and compiled rules
    loaded). Before each task it clears the caches of all importers, and those of archives read theirs again (0.08 s, of
    PySpark's own). A task on little data takes less than that. An importer that is dropped here is created when it is
    needed.
    """
    gc.collect()
    gc.freeze()
    for place, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[place]
