"""The gaps in a client's numbers where of its early requests only that is known which bears on later ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.columns import differing
from replay.arrays.ints import NEVER
from replay.evidence.apart_gaps import gaps_apart
from replay.evidence.client_gaps import NO_GAPS, SLACK_US, Gaps, gaps_between, sent_since
from replay.evidence.client_lives import BELOW_ALL, TRAITS
from schemas.model import BOOL, INT32, INT64, STRING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.arrays.ints import Ints
    from replay.evidence.client_lives import Life, Lines

MOST_ABSENT: Final = 100  # numbers since a connection's last request; where more are, they are not told
MOST_MISSING: Final = 10_000  # in one gap of a client that counts across its connections
COUNTER_SCHEMA: Final = pa.schema(  # a connection of a client, and its requests that are not kept
    [
        pa.field("client_id", STRING),
        pa.field("connection", STRING),
        pa.field("broker_id", INT32),
        pa.field("life", INT64),  # of the client, from 0 on; null: of a client whose numbers prove nothing
        pa.field("across", BOOL),  # whether the client counts across its connections
        pa.field("until", INT64),  # their greatest number; of a client that counts so, on any connection of the life
        pa.field("lines", INT64),  # how many they are
        *(pa.field(trait, BOOL) for trait in TRAITS),  # whether one of them is so (`REQUEST_SCHEMA`)
        pa.field("least", INT64),  # number of the first of them,
        pa.field("number", INT64),  # and of the last
        pa.field("last_us", pa.list_(INT64)),  # when the last of them were taken up
        pa.field("begun_us", INT64),  # when the earliest of all was,
        pa.field("ended_us", INT64),  # and the latest
        # Of the numbers behind `number` up to `until`, where a client counts across its connections:
        pa.field("absent", pa.list_(INT64)),  # those that it did not send; null: too many
        pa.field("least_us", INT64),  # when the earliest of the others was taken up
        pa.field("most_us", INT64),  # since when the latest of the others may have been sent
    ]
)


class Sent(NamedTuple):
    """For some stretches of numbers: how many of them the client did not send, and when it sent the others."""

    absent: Ints
    least: Ints  # when the earliest was taken up
    most: Ints  # since when the latest may have been sent


def gaps_of_life(life: Life, count: int) -> Gaps | None:
    """Return the gaps on connections of one life, but for those of before that are settled; None: that is not told.

    `count`: of all lines of the client. A gap's connection is told by its place among the client's.
    """
    if life.known:
        return later_gaps(life, count) if len(life.lines.number) else NO_GAPS
    place, number, taken = life.lines[:3]
    found = gaps_between(number, taken, np.cumsum(differing(place)) - 1, count)
    return found._replace(of=np.unique(place)[found.of])


def later_gaps(life: Life, count: int) -> Gaps | None:
    """Return the same of a life whose early requests are not there."""
    if (life.lines.number <= life.limits(life.lines.place)).any():
        return None
    place, number, taken, may_be_sent = with_known(life)
    first = np.flatnonzero((place[1:] == place[:-1]) & (np.diff(number) > 1))
    low = np.minimum(may_be_sent[first], may_be_sent[first + 1]) - SLACK_US
    high = np.maximum(taken[first], taken[first + 1]) + SLACK_US
    left_out = number[first + 1] - number[first] - 1
    ends = np.stack([taken[first], taken[first + 1]])
    none = np.zeros(len(first), np.bool_)
    gaps = Gaps(place[first], number[first], ends.min(axis=0), ends.max(axis=0), left_out, none, *NO_GAPS[-2:])
    if not life.is_across:
        return gaps_apart(life, gaps, low) if (left_out <= count).all() else None
    if len(np.unique(life.lines.number)) < len(life.lines.number):
        return None
    behind, until = np.maximum(number[first], life.until), number[first + 1] - 1
    sent = sent_between(life.lines, behind, until)
    told = (sent.least >= low) & (sent.most <= high) & (left_out <= count) & (sent.absent <= MOST_MISSING)
    before = np.flatnonzero(number[first] < life.until).tolist()  # between what is known of a connection and what came
    rows = {k: life.known[int(place[first[k]])] for k in before}
    for k, row in rows.items():
        told[k] &= row["absent"] is not None and row["least_us"] >= low[k] and row["most_us"] <= high[k]
    if not told.all():
        return None
    absent = absent_between(life.lines, behind, until)
    for k, row in rows.items():
        absent[k] = [*row["absent"], *absent[k]]
    at = np.repeat(np.arange(len(first)), [len(some) for some in absent])
    missing = np.array([one for some in absent for one in some], np.int64)
    return gaps._replace(at=at, missing=missing)


def with_known(life: Life) -> tuple[Ints, Ints, Ints, Ints]:
    """Return place, number and times of the requests, and of the last that is known of each connection."""
    known = [(place, row["number"], row["last_us"][-1], sent_last(row)) for place, row in life.known.items()]
    columns = np.concatenate([np.stack(life.lines[:4]), np.array(known, np.int64).reshape(-1, 4).T], axis=1)
    place, number, taken, sent = columns[:, np.lexsort((columns[1], columns[0]))]
    return place, number, taken, sent


def sent_last(row: Mapping[str, Any]) -> int:
    """Return since when the last request that is known of a connection may have been sent."""
    last = np.array(row["last_us"], np.int64)
    return int(sent_since(last, np.zeros_like(last))[-1])


def sent_between(lines: Lines, behind: Ints, until: Ints) -> Sent:
    """Return what is there of the numbers behind some, up to others; no number may be there twice."""
    order = np.argsort(lines.number)
    number, taken, sent = lines.number[order], np.append(lines.taken[order], 0), np.append(lines.sent[order], 0)
    first, stop = np.searchsorted(number, behind, "right"), np.searchsorted(number, until, "right")
    stop = np.maximum(first, stop)
    at = np.stack([first, stop], axis=1).ravel()
    is_any = stop > first
    extremes = (np.minimum, taken), (np.maximum, sent)
    least, most = (of.reduceat(times, at)[::2] if len(at) else first for of, times in extremes)
    return Sent(until - behind - (stop - first), np.where(is_any, least, NEVER), np.where(is_any, most, -NEVER))


def absent_between(lines: Lines, behind: Ints, until: Ints) -> list[list[int]]:
    """Return which numbers of the stretches, as of `sent_between`, the client did not send; they should be few."""
    edges = np.concatenate([[BELOW_ALL], np.sort(lines.number), [NEVER]])
    is_apart = edges[1:] > edges[:-1] + 1
    first, last = edges[:-1][is_apart] + 1, edges[1:][is_apart] - 1  # numbers without lines
    begin, end = np.searchsorted(last, behind, "right"), np.searchsorted(first, until, "right")
    stretches = zip(behind.tolist(), until.tolist(), begin.tolist(), end.tolist(), strict=True)
    return [
        [
            number
            for one, other in zip(first[k:stop].tolist(), last[k:stop].tolist(), strict=True)
            for number in range(max(one, low + 1), min(other, high) + 1)
        ]
        for low, high, k, stop in stretches
    ]
