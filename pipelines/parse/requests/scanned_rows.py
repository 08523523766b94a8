"""From a block of lines to places of requests in it, and from what was read of them to a row per partition: compiled.

What is compiled here is kept until this file or one of `replay` changes: nothing it calls may stand elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.arrays.ints import Ints  # noqa: TC001 - numba asks for the types of these fields
from replay.arrays.jit import compiled
from replay.arrays.peeks import Bytes, byte_at

NULL = -(1 << 63)  # as in `scanner`, from which nothing may come: see above

STAMP = 25  # `[2026-03-01 10:00:00,123]`
SECONDS = 20  # of it, up to the seconds
# What is found of a line that may be read: its place among the block's lines, where its JSON begins and ends, which of
# the heads it has, its milliseconds, and whether its second is another one than that of the line found before.
LINE, BEGIN, END, HEAD, MILLIS, IS_NEXT, FOUND = range(7)
DIGIT = 100  # in a pattern: any digit

# Slots that rows are made from, as `scanned_facts` gives them; -1 for what such a request does not have.
(
    REQUEST, RESPONSE, TOPICS, FORGOTTEN, TOPIC_PARTS, TOPIC_NAME, TOPIC_ID, PART, GONE_PARTS, GONE_NAME, GONE_ID,
    ANSWERS, ANSWER_PARTS, ANSWER_PARTS_BEFORE, ANSWER_NAME, ANSWER_ID, TOLD_PART, TOLD_PART_BEFORE, SLOTS,
) = range(19)  # fmt: skip
# A row: the record of its line, those of what was asked and told (-1: nothing), what it is, texts, and where the text
# ends that tells it from other rows of its line.
OF, ASKED, TOLD, SORT, NAME, NAME_END, ID, ID_END, PARTITION, TEXT_END, ROW = range(11)
LISTED, GONE, WHOLE = range(3)

NOBODY = 22  # the length of an id of nothing but A, which stands for no topic
LONGEST_NUMBER = 20


class Heads(NamedTuple):
    """How lines begin after their stamp, and how they end."""

    texts: Bytes
    lengths: Ints
    json: Ints  # how much stands before the object
    tail: Bytes


@compiled
def find(block: Bytes, starts: Ints, ends: Ints, known: Heads, out: Ints) -> int:
    """Find the lines that begin with a stamp and one of the heads and end with the tail; return their number."""
    heads, sizes, json, tail = known
    pattern = np.array([91] + [DIGIT] * 4 + [45, DIGIT, DIGIT, 45, DIGIT, DIGIT, 32, DIGIT, DIGIT, 58, DIGIT, DIGIT]
                       + [58, DIGIT, DIGIT, 44, DIGIT, DIGIT, DIGIT, 93])  # fmt: skip
    found, guess, last = 0, 0, -1
    for line in range(len(starts)):
        start, end = starts[line], ends[line]
        if end - start < STAMP + heads.shape[1] + len(tail):
            continue
        at = 0
        while at < STAMP:
            byte, wanted = byte_at(block, start + at), pattern[at]
            if byte != wanted and not (wanted == DIGIT and 48 <= byte <= 57):
                break
            at += 1
        if at < STAMP:
            continue
        head = -1
        for offset in range(len(sizes)):
            one = (guess + offset) % len(sizes)
            at = 0
            while at < sizes[one] and byte_at(block, start + STAMP + at) == heads[one, at]:
                at += 1
            if at == sizes[one]:
                head = one
                break
        if head < 0:
            continue
        guess, at = head, 0
        while at < len(tail) and byte_at(block, end - len(tail) + at) == tail[at]:
            at += 1
        if at < len(tail):
            continue
        is_next = 1
        if last >= 0:
            at = 0
            while at < SECONDS and byte_at(block, start + at) == byte_at(block, last + at):
                at += 1
            is_next = 0 if at == SECONDS else 1
        last = start
        row = out[found]
        row[LINE], row[BEGIN], row[END], row[HEAD] = line, start + STAMP + json[head], end - len(tail), head
        row[MILLIS] = 0
        for digit in range(21, 24):
            row[MILLIS] = 10 * row[MILLIS] + byte_at(block, start + digit) - 48
        row[IS_NEXT] = is_next
        found += 1
    return found


@compiled
def copied(block: Bytes, begins: Ints, ends: Ints, places: Ints, out: Bytes) -> None:
    """Copy texts out of a block, each to its place."""
    for text in range(len(begins)):
        to = places[text]
        for at in range(begins[text], ends[text]):
            out[to] = byte_at(block, at)
            to += 1


class Read(NamedTuple):
    """The records of each class that rows are made from."""

    lines: Ints
    requests: Ints
    topics: Ints
    asked: Ints
    forgotten: Ints
    numbers: Ints
    responses: Ints
    answers: Ints
    told: Ints


class Made(NamedTuple):
    """Room for rows, for what tells them from others of their line, and whether a line has some."""

    rows: Ints
    texts: Bytes
    is_taken: Bytes
    scratch: Ints


Of = tuple[int, int, int, int, int]  # records of line, asked, told; what it is; partition
Topic = tuple[int, int, int, int]  # from where to where its name and its id stand


@compiled
def is_plain(block: Bytes, begin: int, end: int) -> bool:
    """Whether a text is a topic's name or id as Kafka allows it (or none at all): no letter of it needs a quote."""
    if begin < 0:
        return True
    if begin == end:
        return False
    for at in range(begin, end):
        byte = byte_at(block, at)
        is_letter = 97 <= byte <= 122 or 65 <= byte <= 90
        if not (is_letter or 48 <= byte <= 57 or byte in {45, 46, 95}):
            return False
    return True


@compiled
def are_equal(block: Bytes, begin: int, end: int, other: int, other_end: int) -> bool:
    """Whether two texts are equal, or both are none."""
    if begin < 0 or other < 0:
        return begin < 0 and other < 0
    if end - begin != other_end - other:
        return False
    at = 0
    while begin + at < end and byte_at(block, begin + at) == byte_at(block, other + at):
        at += 1
    return begin + at == end


@compiled
def put_text(block: Bytes, begin: int, end: int, texts: Bytes, place: int) -> int:
    """Write a text as Python prints it; return where it ends."""
    at = place
    if begin < 0:
        texts[at], texts[at + 1], texts[at + 2], texts[at + 3] = 78, 111, 110, 101  # None
        return at + 4
    texts[at] = 39
    at += 1
    for source in range(begin, end):
        texts[at] = byte_at(block, source)
        at += 1
    texts[at] = 39
    return at + 1


@compiled
def put_number(value: int, texts: Bytes, place: int) -> int:
    """Write a number; return where it ends."""
    at, rest, digits = place, value, 1
    if rest < 0:
        texts[at] = 45
        at += 1
        rest = -rest
    power = 10
    while digits < LONGEST_NUMBER - 2 and rest >= power:
        power *= 10
        digits += 1
    for digit in range(digits):
        texts[at + digits - 1 - digit] = 48 + rest % 10
        rest //= 10
    return at + digits


@compiled
def is_nobody(block: Bytes, begin: int, end: int) -> bool:
    """Whether an id stands for no topic."""
    if end - begin != NOBODY:
        return False
    at = begin
    while at < end and byte_at(block, at) == 65:
        at += 1
    return at == end


@compiled
def put_row(block: Bytes, words: Bytes, of: Of, topic: Topic, made: Made, place: tuple[int, int]) -> int:
    """Write a row and what tells it from others of its line; return where that ends. `place`: of the row, the text."""
    line, asked, told, sort, partition = of
    name, name_end, topic_id, id_end = topic
    row, texts = made.rows[place[0]], made.texts
    at = place[1]
    if sort != WHOLE:
        for byte in words[sort]:
            if byte == 0:
                break
            texts[at] = byte
            at += 1
        if words[LISTED, 1] != 0:  # name and id; else the one that there is
            at = put_text(block, name, name_end, texts, at)
            texts[at], texts[at + 1] = 44, 32
            at = put_text(block, topic_id, id_end, texts, at + 2)
        elif name >= 0:
            at = put_text(block, name, name_end, texts, at)
        else:
            at = put_text(block, topic_id, id_end, texts, at)
        texts[at], texts[at + 1] = 44, 32
        at = put_number(partition, texts, at + 2)
        texts[at] = 41
        at += 1
    row[OF], row[ASKED], row[TOLD], row[SORT] = line, asked, told, sort
    row[NAME], row[NAME_END], row[PARTITION], row[TEXT_END] = name, name_end, partition, at
    row[ID], row[ID_END] = (-1, -1) if topic_id < 0 or is_nobody(block, topic_id, id_end) else (topic_id, id_end)
    return at


@compiled
def rows_of(block: Bytes, read: Read, slots: Ints, words: Bytes, count: int, made: Made) -> int:  # noqa: PLR0915 - one pass over a line's records
    """Make the rows of the first `count` lines; return their number, or -1 if there is no room for their texts.

    As `request_facts.fetch` and `produce` do; `words` say which of them. A line is not taken if a name needs quotes,
    or if it is a produce whose answer is of other partitions.
    """
    lines, requests, topics, asked, forgotten, numbers, responses, answers, told = read
    texts, is_taken, scratch = made.texts, made.is_taken, made.scratch
    rows, written = 0, 0
    is_fetch = words[LISTED, 1] != 0
    flat, flat_topic, is_used = scratch[0], scratch[1], scratch[2]
    for line in range(count):
        first_row, first_text, is_fine = rows, written, True
        request, response = lines[line, slots[REQUEST]], lines[line, slots[RESPONSE]]
        total = 0
        if response >= 0:
            for topic in range(responses[response, slots[ANSWERS]], responses[response, slots[ANSWERS] + 1]):
                begin, end = answers[topic, slots[ANSWER_NAME]], answers[topic, slots[ANSWER_NAME] + 1]
                other, other_end = answers[topic, slots[ANSWER_ID]], answers[topic, slots[ANSWER_ID] + 1]
                is_fine = is_fine and is_plain(block, begin, end) and is_plain(block, other, other_end)
                parts = slots[ANSWER_PARTS]
                if slots[ANSWER_PARTS_BEFORE] >= 0 and answers[topic, parts] == answers[topic, parts + 1]:
                    parts = slots[ANSWER_PARTS_BEFORE]
                for part in range(answers[topic, parts], answers[topic, parts + 1]):
                    flat[total], flat_topic[total], is_used[total] = part, topic, 0
                    total += 1
        place, used = 0, 0
        for topic in range(requests[request, slots[TOPICS]], requests[request, slots[TOPICS] + 1]):
            name, name_end = topics[topic, slots[TOPIC_NAME]], topics[topic, slots[TOPIC_NAME] + 1]
            topic_id, id_end = topics[topic, slots[TOPIC_ID]], topics[topic, slots[TOPIC_ID] + 1]
            is_fine = is_fine and is_plain(block, name, name_end) and is_plain(block, topic_id, id_end)
            size = name_end - name + id_end - topic_id + 64
            compared, is_same = -1, False
            for part in range(topics[topic, slots[TOPIC_PARTS]], topics[topic, slots[TOPIC_PARTS] + 1]):
                if written + size > len(texts):
                    return -1
                partition, answer = asked[part, slots[PART]], -1
                for step in range(total):
                    one = place + step if place + step < total else place + step - total
                    index = told[flat[one], slots[TOLD_PART]]
                    if index == NULL and slots[TOLD_PART_BEFORE] >= 0:
                        index = told[flat[one], slots[TOLD_PART_BEFORE]]
                    if index != partition or is_used[one]:
                        continue
                    if flat_topic[one] != compared:
                        compared = flat_topic[one]
                        is_same = are_equal(
                            block, name, name_end,
                            answers[compared, slots[ANSWER_NAME]], answers[compared, slots[ANSWER_NAME] + 1],
                        ) and are_equal(
                            block, topic_id, id_end,
                            answers[compared, slots[ANSWER_ID]], answers[compared, slots[ANSWER_ID] + 1],
                        )  # fmt: skip
                    if is_same:
                        answer, place, is_used[one] = flat[one], one + 1, 1
                        used += 1
                        break
                row, names = (line, part, answer, LISTED, partition), (name, name_end, topic_id, id_end)
                written = put_row(block, words, row, names, made, (rows, written))
                rows += 1
        if used < total:
            is_fine = is_fine and is_fetch
            for one in range(total):
                if is_used[one] or not is_fine:
                    continue
                topic, index = flat_topic[one], told[flat[one], slots[TOLD_PART]]
                name, name_end = answers[topic, slots[ANSWER_NAME]], answers[topic, slots[ANSWER_NAME] + 1]
                topic_id, id_end = answers[topic, slots[ANSWER_ID]], answers[topic, slots[ANSWER_ID] + 1]
                if index == NULL:
                    index = told[flat[one], slots[TOLD_PART_BEFORE]]
                is_fine = index != NULL
                if not is_fine:
                    continue
                if written + name_end - name + id_end - topic_id + 64 > len(texts):
                    return -1
                row, names = (line, -1, flat[one], LISTED, index), (name, name_end, topic_id, id_end)
                written = put_row(block, words, row, names, made, (rows, written))
                rows += 1
        is_listed = rows > first_row
        if is_fetch:
            for topic in range(requests[request, slots[FORGOTTEN]], requests[request, slots[FORGOTTEN] + 1]):
                name, name_end = forgotten[topic, slots[GONE_NAME]], forgotten[topic, slots[GONE_NAME] + 1]
                topic_id, id_end = forgotten[topic, slots[GONE_ID]], forgotten[topic, slots[GONE_ID] + 1]
                is_fine = is_fine and is_plain(block, name, name_end) and is_plain(block, topic_id, id_end)
                for part in range(forgotten[topic, slots[GONE_PARTS]], forgotten[topic, slots[GONE_PARTS] + 1]):
                    if written + name_end - name + id_end - topic_id + 64 > len(texts):
                        return -1
                    row, names = (line, -1, -1, GONE, numbers[part, 1]), (name, name_end, topic_id, id_end)
                    written = put_row(block, words, row, names, made, (rows, written))
                    rows += 1
            if not is_listed:
                row, names = (line, -1, -1, WHOLE, NULL), (-1, -1, -1, -1)
                written = put_row(block, words, row, names, made, (rows, written))
                rows += 1
        elif not is_listed:
            is_fine = False
        if is_fine:
            is_taken[line] = 1
        else:
            rows, written = first_row, first_text
    return rows
