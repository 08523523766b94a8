"""Reads the JSON of many request lines at once into records of numbers: compiled, without an object for any value.

It reads what Kafka writes and refuses everything else, which the usual decoder then reads: white space, escapes, bytes
beyond ASCII, a key that stands twice, exponents, numbers of more than 18 digits. What it does not refuse it reads as
the usual decoder does (`tests/unit/test_scanned_lines.py`).

What is compiled here is kept until this file or one of `replay` changes: nothing it calls may stand elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.arrays.ints import Ints  # noqa: TC001 - numba asks for the types of these fields
from replay.arrays.jit import compiled, compiled_in_place
from replay.arrays.peeks import Bytes, byte_at, word_at

NULL = -(1 << 63)  # no number that a line holds: it stands for null


class Tables(NamedTuple):
    """What is read of one sort of line: its objects' types and their fields. The line itself is type 0."""

    keys: Ints  # a row per field: `"name":` in words of eight bytes
    masks: Ints  # and which bytes of each word belong to it
    fields: Ints
    types: Ints
    defaults: Ints  # a row per type: what stands in a record at first


class Records(NamedTuple):
    """What is read of lines: a record per object, all records of a type one after the other."""

    out: Ints
    bases: Ints  # by type, where its records begin
    counts: Ints  # by type
    room: int  # for how many of each type there is room


# Columns of `fields` and `types`.
WHAT, SLOT, TARGET, OTHERWISE, LENGTH = range(5)
FIRST, END, WIDTH, REQUIRED = range(4)
# What a field holds, and whether something else may stand there.
NUMBER, MILLISECONDS, TEXT, OBJECT, OBJECTS, NUMBERS = range(6)
NEVER_NULL, NULLABLE, EMPTY_TEXT = range(3)  # the last: `""` in place of an object, where no response was sent

# States of the reader, and what it keeps of each object that is open around the one that it reads.
OPEN, FIELD, VALUE_READ, CLOSED = range(4)
TYPE, BASE, RECORD, SEEN, GUESS, FRAME = range(6)
DEPTH = 16
NESTED = 60  # values in values that nobody reads
DIGITS = 18
DECIMALS = 3  # Kafka rounds to microseconds

TAB, QUOTE, BACKSLASH, TILDE, SPACE = 9, 34, 92, 126, 32
COMMA, MINUS, POINT, ZERO, NINE = 44, 45, 46, 48, 57
OPENED, SHUT, LIST, LIST_END = 123, 125, 91, 93


@compiled_in_place
def text_end(block: Bytes, place: int) -> int:
    """Return where the text ends that begins here, behind its quote; -1: something in it is refused."""
    at = place
    while True:
        byte = byte_at(block, at)
        if byte == QUOTE:
            return at
        if byte < SPACE or byte > TILDE or byte == BACKSLASH:
            return -1
        at += 1


@compiled_in_place
def number(block: Bytes, place: int) -> tuple[int, int]:
    """Return the whole number that stands here, and where it ends; -1: none that is read."""
    at, value = place, 0
    is_negative = byte_at(block, at) == MINUS
    if is_negative:
        at += 1
    begun = at
    while ZERO <= byte_at(block, at) <= NINE and at - begun <= DIGITS:
        value = value * 10 + (byte_at(block, at) - ZERO)
        at += 1
    length = at - begun
    if length == 0 or length > DIGITS or (length > 1 and byte_at(block, begun) == ZERO):
        return 0, -1
    return (-value if is_negative else value), at


@compiled
def microseconds(block: Bytes, place: int) -> tuple[int, int]:
    """Return the microseconds of a number of milliseconds, and where it ends; -1: none that is read.

    With three decimals at most, and this few digits, rounding the number times a thousand gives the same.
    """
    at, value = place, 0
    while ZERO <= byte_at(block, at) <= NINE and at - place <= DIGITS:
        value = value * 10 + (byte_at(block, at) - ZERO)
        at += 1
    length = at - place
    if length == 0 or length > DIGITS - 2 * DECIMALS or (length > 1 and byte_at(block, place) == ZERO):
        return 0, -1
    decimals = 0
    if byte_at(block, at) == POINT:
        at += 1
        while ZERO <= byte_at(block, at) <= NINE and decimals <= DECIMALS:
            value = value * 10 + (byte_at(block, at) - ZERO)
            at += 1
            decimals += 1
        if decimals == 0:
            return 0, -1
    if decimals > DECIMALS:
        return 0, -1
    while decimals < DECIMALS:
        value *= 10
        decimals += 1
    return value, at


@compiled
def literal_end(block: Bytes, place: int) -> int:
    """Return where null, true or false ends; -1: another word."""
    first, second, third, fourth = byte_at(block, place), byte_at(block, place + 1), 0, 0
    if second < SPACE:
        return -1
    third = byte_at(block, place + 2)
    if third < SPACE:
        return -1
    fourth = byte_at(block, place + 3)
    if first == 110 and second == 117 and third == 108 and fourth == 108:  # null
        return place + 4
    if first == 116 and second == 114 and third == 117 and fourth == 101:  # true
        return place + 4
    if first == 102 and second == 97 and third == 108 and fourth == 115 and byte_at(block, place + 4) == 101:  # false
        return place + 5
    return -1


@compiled
def skipped(block: Bytes, place: int) -> int:
    """Return where the value ends that begins here, whatever it is; -1: it is refused."""
    at, depth, objects = place, 0, 0  # a bit of `objects` says that what is open there is an object
    while True:
        byte = byte_at(block, at)
        if byte in {OPENED, LIST}:
            if depth == NESTED:
                return -1
            objects = (objects << 1) | (1 if byte == OPENED else 0)
            depth += 1
            at += 1
            if byte_at(block, at) != byte + 2:  # not empty
                if byte == LIST:
                    continue
                at = key_end(block, at)
                if at < 0:
                    return -1
                continue
            at += 1
            depth -= 1
            objects >>= 1
        elif byte == QUOTE:
            at = text_end(block, at + 1) + 1
            if at == 0:
                return -1
        elif byte == MINUS or ZERO <= byte <= NINE:
            _, at = number(block, at)
            if at < 0:
                return -1
            if byte_at(block, at) == POINT:
                at += 1
                begun = at
                while ZERO <= byte_at(block, at) <= NINE:
                    at += 1
                if at == begun:
                    return -1
        else:
            at = literal_end(block, at)
            if at < 0:
                return -1
        while depth > 0 and byte_at(block, at) == (SHUT if objects & 1 else LIST_END):
            at += 1
            depth -= 1
            objects >>= 1
        if depth == 0:
            return at
        if byte_at(block, at) != COMMA:
            return -1
        at += 1
        if objects & 1:
            at = key_end(block, at)
            if at < 0:
                return -1


@compiled_in_place
def key_end(block: Bytes, place: int) -> int:
    """Return where the value of a key begins; -1: no key is read here."""
    if byte_at(block, place) != QUOTE:
        return -1
    end = text_end(block, place + 1)
    return end + 2 if end >= 0 and byte_at(block, end + 1) == 58 else -1


@compiled_in_place
def is_here(block: Bytes, place: int, tables: Tables, field: int) -> bool:
    """Whether the key of a field stands here."""
    length = tables.fields[field, LENGTH]
    word = 0
    while 8 * word < length:
        if (word_at(block, place + 8 * word) & tables.masks[field, word]) != tables.keys[field, word]:
            return False
        word += 1
    return True


@compiled
def scan(block: Bytes, begins: Ints, ends: Ints, tables: Tables, records: Records, is_read: Bytes) -> None:  # noqa: PLR0915 - a reader that calls itself for what is nested would be slower
    """Read the objects that stand in `block` from `begins` to `ends`, and note which were read.

    Each object becomes a record, in the order in which they begin. Nothing is left of a line that is refused.
    A line's end has to stand behind each of them, at least 16 bytes on, and none of `"{,` in between: what is read
    stops there, whatever is in the line.
    """
    fields, types, defaults = tables.fields, tables.types, tables.defaults
    out, bases, counts, room = records
    frames = np.zeros((DEPTH, FRAME), np.int64)
    before = np.zeros(len(counts), np.int64)
    for line in range(len(begins)):
        before[:] = counts
        at, depth, state = begins[line], 0, OPEN
        kind, parent, base, record, seen, guess = 0, -1, 0, 0, 0, 0
        while True:
            if state == OPEN:
                record = counts[kind]
                if byte_at(block, at) != OPENED or record >= room:
                    break
                at += 1
                counts[kind] = record + 1
                width = types[kind, WIDTH]
                base = bases[kind] + record * width
                for slot in range(width):
                    out[base + slot] = defaults[kind, slot]
                out[base] = parent
                seen, guess = 0, types[kind, FIRST]
                if byte_at(block, at) == SHUT:
                    at += 1
                    state = CLOSED
                else:
                    state = FIELD
            elif state == FIELD:
                first, end = types[kind, FIRST], types[kind, END]
                field = -1
                if guess < end and is_here(block, at, tables, guess):
                    field = guess
                else:
                    begun = word_at(block, at)
                    for other in range(first, end):
                        is_like = (begun & tables.masks[other, 0]) == tables.keys[other, 0]
                        if is_like and is_here(block, at, tables, other):
                            field = other
                            break
                if field < 0:
                    at = key_end(block, at)
                    if at < 0:
                        break
                    at = skipped(block, at)
                    if at < 0:
                        break
                    state = VALUE_READ
                    continue
                bit = 1 << (field - first)
                if seen & bit:
                    break
                seen |= bit
                guess = field + 1
                at += fields[field, LENGTH]
                what, slot = fields[field, WHAT], base + fields[field, SLOT]
                state = VALUE_READ
                byte = byte_at(block, at)
                if byte == 110:  # null
                    if fields[field, OTHERWISE] != NULLABLE:
                        break
                    at = literal_end(block, at)
                    if at < 0:
                        break
                    if what in {NUMBER, MILLISECONDS}:
                        out[slot] = NULL
                elif what == NUMBER:
                    value, at = number(block, at)
                    if at < 0:
                        break
                    out[slot] = value
                elif what == MILLISECONDS:
                    value, at = microseconds(block, at)
                    if at < 0:
                        break
                    out[slot] = value
                elif what == TEXT:
                    if byte != QUOTE:
                        break
                    out[slot] = at + 1
                    at = text_end(block, at + 1)
                    if at < 0:
                        break
                    out[slot + 1] = at
                    at += 1
                elif what == OBJECT:
                    target = fields[field, TARGET]
                    if byte == QUOTE:
                        if fields[field, OTHERWISE] != EMPTY_TEXT or byte_at(block, at + 1) != QUOTE:
                            break
                        at += 2
                        continue
                    frames[depth, TYPE], frames[depth, BASE], frames[depth, RECORD] = kind, base, record
                    frames[depth, SEEN], frames[depth, GUESS] = seen, guess
                    depth += 1
                    out[slot] = counts[target]
                    kind, parent, state = target, record, OPEN
                elif what == OBJECTS:
                    target = fields[field, TARGET]
                    if byte != LIST:
                        break
                    at += 1
                    out[slot] = counts[target]
                    out[slot + 1] = counts[target]
                    if byte_at(block, at) == LIST_END:
                        at += 1
                        continue
                    frames[depth, TYPE], frames[depth, BASE], frames[depth, RECORD] = kind, base, record
                    frames[depth, SEEN], frames[depth, GUESS] = seen, guess
                    depth += 1
                    kind, parent, state = target, record, OPEN
                else:  # NUMBERS
                    target = fields[field, TARGET]
                    if byte != LIST:
                        break
                    at += 1
                    out[slot] = counts[target]
                    if byte_at(block, at) == LIST_END:
                        at += 1
                    else:
                        while True:
                            value, at = number(block, at)
                            place = counts[target]
                            if at < 0 or place >= room:
                                at = -1
                                break
                            counts[target] = place + 1
                            out[bases[target] + place * 2] = record
                            out[bases[target] + place * 2 + 1] = value
                            if byte_at(block, at) != COMMA:
                                break
                            at += 1
                        if at < 0 or byte_at(block, at) != LIST_END:
                            break
                        at += 1
                    out[slot + 1] = counts[target]
            elif state == VALUE_READ:
                if byte_at(block, at) == COMMA:
                    at += 1
                    state = FIELD
                elif byte_at(block, at) == SHUT:
                    at += 1
                    state = CLOSED
                else:
                    break
            else:  # CLOSED
                if seen & types[kind, REQUIRED] != types[kind, REQUIRED]:
                    break
                if depth == 0:
                    if at == ends[line]:
                        is_read[line] = 1
                    break
                depth -= 1
                around, guess = frames[depth, TYPE], frames[depth, GUESS]
                field = guess - 1
                if fields[field, WHAT] == OBJECTS:
                    if byte_at(block, at) == COMMA:
                        at += 1
                        depth += 1
                        state = OPEN
                        continue
                    if byte_at(block, at) != LIST_END:
                        break
                    at += 1
                    out[frames[depth, BASE] + fields[field, SLOT] + 1] = counts[kind]
                kind, base = around, frames[depth, BASE]
                record, seen = frames[depth, RECORD], frames[depth, SEEN]
                state = VALUE_READ
        if not is_read[line]:
            counts[:] = before
