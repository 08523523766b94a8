"""Kafka's jars: fetched from Maven Central once, checked, and kept.

`kafka-<version>.sha256` lists them, as paths in a Maven repository, in the form that `sha256sum -c` reads.

Environment: TIDEMARK_MAVEN    a mirror of Maven Central (default: https://repo1.maven.org/maven2)
             XDG_CACHE_HOME    where they are kept is tidemark/maven below it (default: ~/.cache)
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CENTRAL = os.environ.get("TIDEMARK_MAVEN", "https://repo1.maven.org/maven2").rstrip("/")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark" / "maven"
TIMEOUT_S = 60


class UnreachableError(Exception):
    """Maven Central does not answer, and not every jar is kept."""


def class_path(lock: Path) -> str:
    """What `java -cp` wants, for the jars that `lock` lists.

    Raises:
        UnreachableError: one is missing and cannot be fetched.
        urllib.error.HTTPError: Maven Central does not have one.
        ValueError: what came is not what is listed.
    """
    listed = [line.split() for line in lock.read_text().splitlines()]
    with ThreadPoolExecutor(8) as pool:
        jars = pool.map(lambda entry: _jar(entry[1], entry[0]), listed)
        return os.pathsep.join(str(jar) for jar in jars)


def _jar(path: str, sha256: str) -> Path:
    jar = CACHE / path
    if not jar.exists() or _sha256(jar.read_bytes()) != sha256:
        try:
            with urllib.request.urlopen(f"{CENTRAL}/{path}", timeout=TIMEOUT_S) as answer:  # noqa: S310 - https, or what the environment names
                content = answer.read()
        except urllib.error.HTTPError:
            raise  # it was reached
        except OSError as error:
            raise UnreachableError(f"{CENTRAL}/{path}: {error}") from error
        if _sha256(content) != sha256:
            raise ValueError(f"{CENTRAL}/{path} is not the jar that was listed: {_sha256(content)} is not {sha256}")
        jar.parent.mkdir(parents=True, exist_ok=True)
        part = jar.with_name(f"{jar.name}.{os.getpid()}")
        part.write_bytes(content)
        part.replace(jar)
    return jar


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
