"""Where compiled rules are kept: under a name that is made of all they are made of.

numba looks at the source of the function that it keeps, not at those of the functions it calls, nor at where its
constants come from: after a change there it would go on with what was. So what is compiled stands under a hash of all
sources of `replay` and `schemas`, of the versions of what compiles them, and of the processor. The places are numba's:
NUMBA_CACHE_DIR where it is set, else beside the sources (`__pycache__`), else the user's cache folder. As the
code itself asks, it holds for whoever imports a rule: a job, a worker of Spark on another machine, a test. What is
read here are the rules' own sources; nothing that a rule says depends on it.
Written against numba.core.caching, which is pinned with it.
"""

from __future__ import annotations

import fcntl
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from pkgutil import get_data, walk_packages
from typing import TYPE_CHECKING, Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba.core import caching

import replay
import schemas

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def name_of_cache() -> str:
    """`rules-` and a hash, the same wherever the same code runs on the same kind of processor."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__)
    processor = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    hashed = sha256("\n".join((*versions, *processor)).encode())
    for package in (replay, schemas):
        found = sorted((one.name, one.ispkg) for one in walk_packages(package.__path__, f"{package.__name__}."))
        for name, has_modules in found:
            below = name.removeprefix(f"{package.__name__}.").replace(".", "/")
            source = get_data(package.__name__, f"{below}/__init__.py" if has_modules else f"{below}.py")
            hashed.update(f"\n{name} {len(source)}\n".encode() + source)
    return f"rules-{hashed.hexdigest()[:16]}"


class BesideSources(caching.InTreeCacheLocator):
    """`__pycache__` of the package that the rule is in."""

    def get_cache_path(self) -> str:
        """A folder in it."""
        return f"{super().get_cache_path()}/{name_of_cache()}"


class ByName:
    """A place for many packages, in which numba's folder is named after where the sources lie; ours is not."""

    @classmethod
    def get_suitable_cache_subpath(cls, _file: str) -> str:
        """The same folder for every copy of the sources: a cluster unpacks them anew for each job."""
        return name_of_cache()


class Given(ByName, caching.UserProvidedCacheLocator):
    """NUMBA_CACHE_DIR."""


class OfUser(ByName, caching.UserWideCacheLocator):
    """The user's cache folder."""


class OfUserForZip(ByName, caching.ZipCacheLocator):
    """The same for sources in a zip file."""


class KeptRule(caching.CompileResultCacheImpl):
    """One rule's compiled code."""

    _locator_classes = (Given, BesideSources, OfUser, OfUserForZip)  # numba takes the first that can be written to


class RuleCache(caching.FunctionCache):
    """What numba asks for a rule's compiled code, and gives it to."""

    _impl_class = KeptRule

    @property
    def is_empty(self) -> bool:
        """Whether no process has compiled the rule yet."""
        return not self._cache_file._load_index()  # noqa: SLF001 - numba's own

    def save_overload(self, sig: Any, data: Any) -> None:  # noqa: ANN401 - as above
        """Keep the code for one signature.

        One process at a time: two that keep one rule for two signatures at the same moment would give both the same
        file, since numba reads the rule's list of files and writes it back.
        """
        with alone(self.cache_path):
            super().save_overload(sig, data)


@contextmanager
def alone(folder: str) -> Iterator[None]:
    """Keep other processes out, where the file system can lock a file."""
    with ExitStack() as stack:
        with suppress(OSError):
            lock = stack.enter_context(open(f"{folder}/lock", "wb"))  # noqa: PTH123 - rules know no paths
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def keep(rule: Any) -> None:  # noqa: ANN401 - numba's own
    """Let numba keep a rule's compiled code; where no place can be written to, it compiles anew in each process."""
    if numba.config.DISABLE_JIT:
        return
    with suppress(RuntimeError):
        rule._cache = RuleCache(rule.py_func)  # noqa: SLF001 - as numba's `enable_caching` does


def is_missing(rule: Any) -> bool:  # noqa: ANN401 - as above
    """Whether there is a place in which a rule's compiled code is kept, and it is not there yet."""
    kept = getattr(rule, "_cache", None)
    return isinstance(kept, RuleCache) and kept.is_empty
