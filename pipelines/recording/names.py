"""Names that become parts of paths: which names a recording may have, and what may lie inside a warehouse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from schemas.errors import InputError

# Begins with a letter or digit, so that it is neither "..", nor hidden, nor taken for a flag.
_NAME: Final = re.compile(r"[^\W_][\w .,+=@()-]*")
URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # anything else is a path of this machine
_LONGEST: Final = 200  # in its quoted form, where other characters take three per byte; file systems end at 255


def recording_name(name: str) -> str:
    """Return the name if a recording may have it, else raise InputError. Files and folders are named after it."""
    if not _NAME.fullmatch(name) or len(quote(name, safe="")) > _LONGEST:
        message = (
            f"{name[:_LONGEST]!r} cannot name a recording: give it a name with --recording-id, of letters, digits, "
            "spaces and . _ - + = @ , ( ), that begins with a letter or digit"
        )
        raise InputError(message)
    return name


def folder_name(path: str) -> str:
    """Return the name of the folder at a path or URI, even if the path ends in '..'."""
    if "://" in path:
        return unquote(path.partition("?")[0].rstrip("/").rpartition("/")[2])
    found = Path(path)
    return (found.resolve() if ".." in found.parts else found.absolute()).name


def whole_place(path: str) -> str:
    """Return a URI as it is, a path of this machine in full: it means the same wherever one is."""
    return (path if URI.match(path) else str(Path(path).absolute())).rstrip("/") or "/"


def inside(root: str, name: str) -> str:
    """Return the path of `name` below `root`; InputError if it is not below, as nothing else is written or deleted."""
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts) or "\\" in name or "\0" in name:
        message = f"{name!r} does not lie inside the warehouse"
        raise InputError(message, source=root)
    return f"{root.rstrip('/')}/{name}"
