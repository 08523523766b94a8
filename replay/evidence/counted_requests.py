"""Clients whose requests up to some number are all there: what has to be known of them to see whether later ones are.

To see a gap in a client's numbers, all its requests are looked at (`missing_lines`). Where nothing is missing so far,
little of them matters for what comes later. Two kinds of client are told apart: one that counts on each connection by
itself, and has left out no number on any, and one that counts across its connections, and has sent each number once. Of
these each connection's last request is kept, and those of the last seconds. Of one whose numbers prove nothing, as a
consumer's in a filtered log, none is. Of other clients all requests are.

It is never said that nothing is missing where `gaps_in` would find a gap. The reverse may happen, if a client does
something that it rarely does, such as to go on with a connection of an earlier life; then all requests have to be
looked at again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import differing, numbers
from replay.arrays.ints import NEVER
from replay.evidence.client_lives import Client, Life, Lines
from replay.evidence.client_requests import NAMES, REQUEST_SCHEMA, by_client, host_of
from replay.evidence.missing_lines import IN_FLIGHT, SLACK_US, ClientLines, host_gaps, not_elsewhere, sent_since
from replay.evidence.steady import NeedsAllError
from replay.protocol.state import NONE
from schemas.model import BOOL, INT32, INT64, STRING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replay.arrays.ints import Flags, Ints

UNDER_WAY_US: Final = 30_000_000  # after a request that takes longer, all of its client have to be looked at again
COUNTER_SCHEMA: Final = pa.schema(
    [
        pa.field("client_id", STRING),
        pa.field("connection", STRING),
        pa.field("broker_id", INT32),
        pa.field("life", INT64),  # of the client, from 0 on; null: see `is_mute`, of one connection there is a row then
        pa.field("across", BOOL),  # whether the client counts across its connections
        pa.field("until", INT64),  # requests of the life, or of the connection, up to this number are not kept
        pa.field("number", INT64),  # of the last of these on this connection
        pa.field("last_us", pa.list_(INT64)),  # when a handler took that up, the last of these, and those before it,
        pa.field("ended_us", INT64),  # and when the latest of all
        pa.field("is_whole", BOOL),  # whether the client has sent all numbers behind `number` up to `until`,
        pa.field("least_us", INT64),  # and when the earliest
        pa.field("most_us", INT64),  # of them was taken up, and since when the latest may have been sent
    ]
)


NOTHING_BETWEEN: Final = {"is_whole": True, "least_us": NEVER, "most_us": -NEVER}


class Counted(NamedTuple):
    """Requests of before some moment, in short."""

    counters: pa.Table  # `COUNTER_SCHEMA`: a row for each connection of which not all requests are kept
    kept: pa.Table  # `REQUEST_SCHEMA`


class Sent(NamedTuple):
    """For some stretches of numbers: whether the client has sent all, and when they were taken up."""

    is_whole: Flags
    least: Ints
    most: Ints  # by when they may have been sent


def is_nothing_missing(counters: pa.Table, requests: pa.Table, shared: pa.Table) -> bool:
    """Whether `gaps_in` is sure to find no gap in all requests: those in short, and these.

    `requests`: those that were kept, and all later ones. `shared`: connections of several clients.
    """
    names = {(row["broker_id"], row["connection"]) for row in shared.to_pylist()}
    if names and any((row["broker_id"], row["connection"]) in names for row in counters.to_pylist()):
        return False
    return all(map(has_no_gap, clients_of(counters, requests, shared)))


def counted(counters: pa.Table, requests: pa.Table, shared: pa.Table, until_us: int) -> Counted:
    """Return all requests in short, of which nothing is missing; arguments as of `is_nothing_missing`.

    `until_us`: all that were completed before then are there. NeedsAllError: of a client earlier ones are needed.
    """
    made: list[dict[str, Any]] = []
    kept = [REQUEST_SCHEMA.empty_table()]
    for client in clients_of(counters, requests, shared):
        rows, stay = counted_of(client, until_us - UNDER_WAY_US)
        made += rows
        kept.append(stay)
    stay = pa.concat_tables(kept)
    for name in NAMES:  # which name those alone that stay
        words = stay[name].cast(STRING).combine_chunks().dictionary_encode()
        stay = stay.set_column(stay.schema.get_field_index(name), REQUEST_SCHEMA.field(name), words)
    return Counted(pa.Table.from_pylist(made, COUNTER_SCHEMA), stay)


def clients_of(counters: pa.Table, requests: pa.Table, shared: pa.Table) -> Iterator[Client]:
    """Yield each client on each host, with its requests but for those on shared connections."""
    known: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in counters.to_pylist():
        known[row["client_id"], host_of(row["connection"])].append(row)
    for rows in by_client(requests, shared):
        client_id, host = rows["client_id"][0].as_py(), host_of(rows["connection"][0].as_py())
        yield Client(client_id, known.pop((client_id, host), []), rows)
    for (client_id, _), told in known.items():
        yield Client(client_id, told, REQUEST_SCHEMA.empty_table())


def was_mute(client: Client) -> bool:
    """Whether none of the client's earlier requests was kept, because its numbers proved nothing."""
    return any(row["life"] is None for row in client.known)


def is_mute(client: Client) -> bool:
    """Whether a client's numbers prove nothing: it fetches, and a filtered log keeps nothing else of it.

    Whether it is so later, too, is seen by its later requests, so none of the earlier ones has to be kept.
    """
    rows = client.rows
    tells = pc.or_(pc.or_(rows["replicates"], rows["appends"]), rows["unkept"])
    may_be = was_mute(client) if client.known else bool(pc.any(rows["fetches"]).as_py())
    return may_be and not pc.any(tells).as_py()


def has_no_gap(client: Client) -> bool:
    """Whether nothing is sure to be missing of a client."""
    if is_mute(client):
        return True
    if was_mute(client):  # what it sent before counts now
        return False
    if not client.known:
        gaps = host_gaps(client.rows)
        return not pc.any(pc.and_(gaps["proves"], pc.greater(gaps["lines"], 0))).as_py()
    lives = client.lives()
    return lives is not None and all(map(goes_on, lives))


def goes_on(life: Life) -> bool:
    """Whether no number is missing on connections of one life, by what is there and what is known of all before."""
    if not life.known:
        return is_covered(life.lines)
    if (life.lines.number <= life.limits()).any():
        return False
    place, number, taken, may_be_sent = with_known(life)
    same = np.flatnonzero(place[1:] == place[:-1])
    first, second = number[same], number[same + 1]
    if not life.is_across:
        return bool((second - first <= 1).all())
    if len(np.unique(life.lines.number)) < len(life.lines.number):
        return False
    low = np.minimum(may_be_sent[same], may_be_sent[same + 1]) - SLACK_US
    high = np.maximum(taken[same], taken[same + 1]) + SLACK_US
    until = life.until
    sent = sent_between(life.lines, np.maximum(first, until), second - 1)
    found = sent.is_whole & (sent.least >= low) & (sent.most <= high)
    for k in np.flatnonzero(first < until).tolist():  # between what is known of a connection and what came
        row = life.known[int(place[same[k]])]
        found[k] &= row["is_whole"] and row["least_us"] >= low[k] and row["most_us"] <= high[k]
    return bool(found.all())


def is_covered(lines: Lines) -> bool:
    """Whether each number that is missing on a connection of one life is on another of them."""
    place, number, taken, sent, _ = lines
    before = np.flatnonzero((place[1:] == place[:-1]) & (np.diff(number) > 1))
    if not len(before):
        return True
    if (np.diff(number)[before] > len(number)).any():
        return False
    of = np.cumsum(differing(place)) - 1
    return not len(not_elsewhere(ClientLines(number, taken, sent, of), before, np.arange(len(before)))[0])


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
    return Sent(stop - first == until - behind, np.where(is_any, least, NEVER), np.where(is_any, most, -NEVER))


def counted_of(client: Client, until_us: int) -> tuple[list[dict[str, Any]], pa.Table]:
    """Return one client's counters, and those of its requests that are kept."""
    if is_mute(client):
        row = client.rows.slice(0, 1).select(["client_id", "connection", "broker_id"]).to_pylist()
        return client.known or row, client.rows.slice(0, 0)
    if was_mute(client):  # what it sent before is needed now
        raise NeedsAllError
    lives = client.lives()
    if lives is None or not (client.known or all(is_covered(life.lines) for life in lives)):
        return client.known, client.rows
    names = list(client.places)
    limit = np.full(len(names), NONE)
    made: list[dict[str, Any]] = []
    for number, life in enumerate(lives):
        life.known = counters_of(life, until_us)
        limit[life.lines.place] = life.limits()
        for place, row in life.known.items():
            broker, connection = names[place]
            told = {"client_id": client.client_id, "connection": connection, "broker_id": broker, "life": number}
            made.append({**told, **row})
    return made, client.rows.filter(pa.array(numbers(client.rows["correlation_id"]) > limit[client.place]))


def counters_of(life: Life, until_us: int) -> dict[int, dict[str, Any]]:
    """Return what is to be known of each connection of one life; nothing, if all of its requests are to be kept."""
    lines = life.lines
    if life.known:
        is_across = life.is_across
    elif len(np.unique(lines.number)) == len(lines.number):
        is_across = True
    elif (np.diff(lines.number)[lines.place[1:] == lines.place[:-1]] <= 1).all():
        is_across = False
    else:
        return {}
    before = life.until
    until = max(before, int(lines.number[lines.taken <= until_us].max(initial=NONE)))
    found = dict(life.known)
    for place in np.unique(lines.place).tolist():
        mine = lines.where(lines.place == place)
        if not is_across:
            until = int(mine.number[mine.taken <= until_us].max(initial=NONE))
        mine = mine.where(mine.number <= until)
        if len(mine.number):
            old = found[place]["ended_us"] if place in found else -NEVER
            last = [*(found[place]["last_us"] if place in found else ()), *mine.taken[-IN_FLIGHT - 1 :].tolist()]
            told = {"number": int(mine.number[-1]), "last_us": last[-IN_FLIGHT - 1 :]}
            found[place] = {**told, "ended_us": max(old, int(mine.taken.max())), **NOTHING_BETWEEN, "until": until}
    if is_across:
        since = np.maximum(np.array([row["number"] for row in found.values()], np.int64), before)
        sent = sent_between(lines, since, np.full(len(since), until))
        for place, *between in zip([*found], *(column.tolist() for column in sent), strict=True):
            found[place] = {**found[place], "until": until, **and_between(found[place], *between)}
    return {place: {**row, "across": is_across} for place, row in found.items()}


def and_between(row: Mapping[str, Any], is_whole: bool, least: int, most: int) -> dict[str, Any]:  # noqa: FBT001 - of `Sent`
    """Return what is known of the numbers behind a connection's last one, together with more of them."""
    return {
        "is_whole": row["is_whole"] and is_whole,
        "least_us": min(row["least_us"], least),
        "most_us": max(row["most_us"], most),
    }
