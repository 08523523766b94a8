"""The shapes of request lines as tables of numbers, from which compiled code reads JSON (`scanner`).

They are made from the classes of `request_shapes`, so that what is read, what may be missing, and what a field is if it
is missing stands in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import inspect

from pipelines.parse.requests.scanner import (
    EMPTY_TEXT,
    MILLISECONDS,
    NEVER_NULL,
    NULL,
    NULLABLE,
    NUMBER,
    NUMBERS,
    OBJECT,
    OBJECTS,
    TEXT,
    Tables,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Ints

_SLOTS: Final = {TEXT: 2, OBJECTS: 2, NUMBERS: 2}  # from where to where; all others need one
NUMBER_RECORD: Final = "int"  # the class of a number that stands in a list; its value is in slot 1


class Shape(NamedTuple):
    """What is read of one sort of line, by numbers, and which number is which."""

    tables: Tables
    names: dict[str, int]  # name of a class -> type
    slots: dict[tuple[str, str], int]  # name of a class, name of a field -> its place in a record; 0: the parent's

    def slot(self, of: str, field: str) -> int:
        """Return where in a record of a class the field stands."""
        return self.slots[of, field]


def shape_of(line: Any) -> Shape:  # noqa: ANN401 - a generic class with its arguments has no type of its own
    """Return the tables of a class; TypeError if a field holds what `scanner` does not read."""
    found: dict[str, inspect.StructType | None] = {}
    _collect(inspect.type_info(line), found)
    names = {name: number for number, name in enumerate(found)}
    fields: list[tuple[str, int, int, int, int]] = []
    types: list[tuple[int, int, int, int]] = []
    rows: list[list[int]] = []
    slots: dict[tuple[str, str], int] = {}
    for name, struct in found.items():
        first, row, required = len(fields), [-1], 0
        for place, field in enumerate(struct.fields if struct is not None else ()):
            what, target, otherwise = _what(field.type)
            slots[name, field.name] = len(row)
            fields.append((f'"{field.encode_name}":', what, len(row), names.get(target, -1), otherwise))
            required |= int(field.required) << place
            row += [_default(what, field)] * _SLOTS.get(what, 1)
        if struct is None:  # a number in a list
            row.append(NULL)
        types.append((first, len(fields), len(row), required))
        rows.append(row)
    keys = [key.encode() for key, *_ in fields]
    widest = max(map(len, rows))
    defaults = np.array([row + [NULL] * (widest - len(row)) for row in rows], np.int64)
    numbers = np.array([(*rest, len(key)) for key, *rest in fields], np.int64)
    return Shape(
        Tables(
            _words(keys), _words([b"\xff" * len(key) for key in keys]), numbers, np.array(types, np.int64), defaults
        ),
        names,
        slots,
    )


def _words(texts: list[bytes]) -> Ints:
    """Return texts as rows of words of eight bytes, filled up with zeros."""
    words = 1 + max(map(len, texts)) // 8
    return np.frombuffer(b"".join(text.ljust(8 * words, b"\0") for text in texts), "<i8").reshape(len(texts), words)


def _collect(kind: inspect.Type, found: dict[str, inspect.StructType | None]) -> None:
    """Find all classes, the outermost first."""
    if isinstance(kind, inspect.StructType):
        if kind.cls.__name__ not in found:
            found[kind.cls.__name__] = kind
            for field in kind.fields:
                _collect(field.type, found)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            _collect(one, found)
    elif isinstance(kind, inspect.ListType):
        if isinstance(kind.item_type, inspect.IntType):
            found[NUMBER_RECORD] = None
        _collect(kind.item_type, found)


def _what(kind: inspect.Type) -> tuple[int, str, int]:
    """Return what a field holds, the class of the objects in it, and what else may stand there."""
    several: Sequence[inspect.Type] = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    others = [one for one in several if not isinstance(one, inspect.NoneType)]
    otherwise = NULLABLE if len(others) < len(several) else NEVER_NULL
    if len(others) == 2 and isinstance(others[1], inspect.StrType):
        others.pop()
        otherwise = EMPTY_TEXT
    of = others[0]
    if len(others) == 1:
        if isinstance(of, inspect.IntType):
            return NUMBER, "", otherwise
        if isinstance(of, inspect.FloatType):
            return MILLISECONDS, "", otherwise
        if isinstance(of, inspect.StrType):
            return TEXT, "", otherwise
        if isinstance(of, inspect.StructType):
            return OBJECT, of.cls.__name__, otherwise
        if isinstance(of, inspect.ListType) and isinstance(of.item_type, inspect.StructType):
            return OBJECTS, of.item_type.cls.__name__, otherwise
        if isinstance(of, inspect.ListType) and isinstance(of.item_type, inspect.IntType):
            return NUMBERS, NUMBER_RECORD, otherwise
    message = f"no table for {kind}"
    raise TypeError(message)


def _default(what: int, field: inspect.Field) -> int:
    """Return what stands in a field's slots where the line does not have it."""
    if what in {OBJECT, TEXT}:
        return -1
    if what in {OBJECTS, NUMBERS}:
        return 0
    given = field.default
    if given is None or given is msgspec.NODEFAULT:
        return NULL
    return round(given * 1000) if what == MILLISECONDS else int(given)
