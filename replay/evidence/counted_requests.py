"""Clients' requests up to some number in short: what has to be known of them to find all gaps later, too.

To see a gap in a client's numbers, all its requests are looked at (`client_gaps`). Of two kinds of client little of
them matters for what comes later: one that counts on each connection by itself (`apart_gaps`), and one that counts
across its connections, and has sent no number twice in one life (`client_lives`). Of these each connection's last
request is kept, with the numbers that the client has not sent since if it counts across them, the requests of the last
seconds, and the gaps between others. Of one whose numbers prove nothing, as a consumer's in a filtered log, each
connection's last one is. Of other clients all requests are.

What is found is what `gaps_in` finds in all requests. It may happen that this cannot be told, if a client does
something that it rarely does, such as to go on with a connection of an earlier life; then all requests have to be
looked at again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from replay.arrays.columns import differing, numbers, texts
from replay.arrays.ints import NEVER
from replay.evidence.client_gaps import (
    GAP_SCHEMA,
    IN_FLIGHT,
    Gaps,
    counted_on,
    end_rows,
    gap_rows,
    gaps_together,
    host_gaps,
    prove_nothing,
)
from replay.evidence.client_lives import BELOW_ALL, SETTLED_SCHEMA, TRAITS, Client, Life
from replay.evidence.client_requests import NAMES, REQUEST_SCHEMA, by_client, host_of
from replay.evidence.later_gaps import (
    COUNTER_SCHEMA,
    MOST_ABSENT,
    MOST_MISSING,
    absent_between,
    gaps_of_life,
    sent_between,
)
from replay.evidence.steady import NeedsAllError
from schemas.model import STRING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.arrays.ints import Flags, Ints

UNDER_WAY_US: Final = 30_000_000  # after a request that takes longer, all of its client have to be looked at again
MOST_GAPS: Final = 10_000  # of a client, between requests that are not kept; of one that has more, all are kept
NOTHING_BETWEEN: Final = {"absent": [], "least_us": NEVER, "most_us": -NEVER}

Row = dict[str, Any]


class Counted(NamedTuple):
    """Requests of before some moment, in short."""

    counters: pa.Table  # `COUNTER_SCHEMA`: a row for each connection of which not all requests are kept
    gaps: pa.Table  # `SETTLED_SCHEMA`: those between requests that are not kept
    kept: pa.Table  # `REQUEST_SCHEMA`

    @classmethod
    def of(cls, requests: pa.Table) -> Counted:
        """Return requests none of which is told in short."""
        return cls(COUNTER_SCHEMA.empty_table(), SETTLED_SCHEMA.empty_table(), requests)

    def found(self, shared: pa.Table) -> pa.Table | None:
        """Return what `gaps_in` does of all requests; None: this does not tell it.

        `shared`: connections of several clients.
        """
        names = {(row["broker_id"], row["connection"]) for row in shared.to_pylist()}
        if names and any((row["broker_id"], row["connection"]) in names for row in self.counters.to_pylist()):
            return None
        found = [GAP_SCHEMA.empty_table()]
        for client in self.clients(shared):
            gaps = gaps_of(client)
            if gaps is None:
                return None
            found.append(gaps)
        return pa.concat_tables(found)

    def edges(self) -> dict[int | None, Ints]:
        """Return by broker the moments at which lines begin or end to be missing, or may turn out to have begun."""
        last = [[row["broker_id"], row["last_us"][-1]] for row in self.counters.to_pylist()]
        broker, number, taken = (numbers(self.kept[name]) for name in ("broker_id", "correlation_id", "taken_us"))
        name, _ = texts(self.kept["connection"].cast(STRING))
        order = np.lexsort((taken, number, name, broker))
        broker, name, number, taken = (column[order] for column in (broker, name, number, taken))
        begins = differing(broker, name)
        begins[1:] |= np.diff(number) > 1
        at_edge = begins.copy()
        at_edge[:-1] |= begins[1:]
        at_edge[-1:] = True
        pairs = np.concatenate(
            [
                np.array(last, np.int64).reshape(-1, 2).T,
                *(
                    np.stack([numbers(self.gaps["broker_id"]), numbers(self.gaps[us])])
                    for us in ("since_us", "until_us")
                ),
                np.stack([broker, taken])[:, at_edge],
            ],
            axis=1,
        )
        return {one: np.unique(pairs[1][pairs[0] == one]) for one in np.unique(pairs[0]).tolist()}

    def clients(self, shared: pa.Table) -> Iterator[Client]:
        """Yield each client on each host, with its requests but for those on shared connections."""
        known: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        settled: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        for of, table in ((known, self.counters), (settled, self.gaps)):
            for row in table.to_pylist():
                of[row["client_id"], host_of(row["connection"])].append(row)
        for rows in by_client(self.kept, shared):
            of_client = rows["client_id"][0].as_py(), host_of(rows["connection"][0].as_py())
            before = known.pop(of_client, [])
            yield Client(of_client[0], before, settled.pop(of_client, []), counting_on(rows, before))
        for of_client, told in known.items():
            yield Client(of_client[0], told, settled.pop(of_client, []), REQUEST_SCHEMA.empty_table())


def counting_on(rows: pa.Table, known: list[Row]) -> pa.Table:
    """Return a client's requests with numbers that go on without an end. `known`: its connections."""
    number = numbers(rows["correlation_id"])
    greatest = max(int(number.max()), *(row["until"] for row in known if row["until"] is not None), BELOW_ALL)
    place = rows.schema.get_field_index("correlation_id")
    return rows.set_column(place, REQUEST_SCHEMA.field(place), pa.array(counted_on(number, greatest)))


def settled_until(until_us: int) -> int:
    """Return up to when nothing is under way any more, if all that was completed before a moment is there."""
    return until_us - UNDER_WAY_US


def counted(before: Counted, shared: pa.Table, until_us: int) -> Counted:
    """Return all requests in short. `before`: the same of an earlier moment, with all later requests.

    `until_us`: all that were completed before then are there. `shared`: as of `Counted.found`. NeedsAllError: of a
    client earlier ones are needed.
    """
    counters: list[Row] = []
    gaps: list[Row] = []
    kept = [REQUEST_SCHEMA.empty_table()]
    for client in before.clients(shared):
        rows, settled, stay = counted_of(client, settled_until(until_us))
        counters += rows
        gaps += settled
        kept.append(stay)
    stay = pa.concat_tables(kept)
    for name in NAMES:  # which name those alone that stay
        words = stay[name].cast(STRING).combine_chunks().dictionary_encode()
        stay = stay.set_column(stay.schema.get_field_index(name), REQUEST_SCHEMA.field(name), words)
    return Counted(pa.Table.from_pylist(counters, COUNTER_SCHEMA), pa.Table.from_pylist(gaps, SETTLED_SCHEMA), stay)


def was_mute(client: Client) -> bool:
    """Whether none of the client's earlier requests was kept, because its numbers proved nothing."""
    return any(row["life"] is None for row in client.known)


def is_mute(client: Client) -> bool:
    """Whether a client's numbers prove nothing (`prove_nothing`).

    Whether it is so later, too, is seen by its later requests, so none of the earlier ones has to be kept.
    """
    fetches, *others = client.traits
    return prove_nothing(np.array([was_mute(client)]) if client.known else fetches, *others)


def gaps_of(client: Client) -> pa.Table | None:
    """Return the gaps and ends of one client (`GAP_SCHEMA`); None: what is there does not tell them."""
    if is_mute(client):
        return end_rows(client.connections(), client.used())
    if was_mute(client):  # what it sent before counts now
        return None
    if not client.known:
        return host_gaps(client.rows)
    lives = client.lives()
    if lives is None:
        return None
    count = lines_of(lives)
    found = [client.settled()]
    for life in lives:
        gaps = gaps_of_life(life, count)
        if gaps is None:
            return None
        found.append(gaps)
    connections = client.connections()
    return pa.concat_tables([gap_rows(gaps_together(found), connections), end_rows(connections, client.used())])


def mute_ones(client: Client) -> list[Row]:
    """Return what is to be known of the connections of a client whose numbers prove nothing: when each was used."""
    connections = client.connections()
    told = (connections.last, *client.used(), *(getattr(connections, trait) for trait in TRAITS))
    return [
        {
            "client_id": client.client_id, "connection": connection, "broker_id": broker, "life": None, "across": False,
            "until": number, "lines": 0, **dict(zip(TRAITS, traits, strict=True)), "least": number, "number": number,
            "last_us": [last], "begun_us": begun, "ended_us": ended, **NOTHING_BETWEEN,
        }
        for (broker, connection), number, begun, ended, last, *traits in zip(
            client.places, *(column.tolist() for column in told), strict=True
        )
    ]  # fmt: skip


def lines_of(lives: list[Life]) -> int:
    """Return how many requests a client has sent."""
    return sum(len(life.lines.number) + sum(row["lines"] for row in life.known.values()) for life in lives)


def counted_of(client: Client, until_us: int) -> tuple[list[Row], list[Row], pa.Table]:
    """Return one client's counters, its gaps that are settled, and those of its requests that are kept."""
    if is_mute(client):
        return mute_ones(client), [], client.rows.slice(0, 0)
    if was_mute(client):  # what it sent before is needed now
        raise NeedsAllError
    lives = client.lives()
    if lives is None:
        return client.known, client.gaps, client.rows
    names, count, traits = list(client.places), lines_of(lives), client.traits
    limit = np.full(len(names), BELOW_ALL)
    made: list[Row] = []
    settled = list(client.gaps)
    for number, life in enumerate(lives):
        gaps = gaps_of_life(life, count)
        if gaps is None:
            raise NeedsAllError
        counters = counters_of(life, gaps, traits, until_us)
        if not counters:  # of this life all requests are kept, so they are of those that follow
            break
        life.known = counters
        limit[life.lines.place] = life.limits(life.lines.place)
        for place, row in counters.items():
            broker, connection = names[place]
            told = {"client_id": client.client_id, "connection": connection, "broker_id": broker, "life": number}
            made.append({**told, **row})
        settled += client.rows_of(gaps.where(gaps.number + gaps.lines < life.limits(gaps.of)))
    if len(settled) > MOST_GAPS:
        if client.known:
            raise NeedsAllError
        return [], [], client.rows
    return made, settled, client.rows.filter(pa.array(numbers(client.rows["correlation_id"]) > limit[client.place]))


def counters_of(life: Life, gaps: Gaps, traits: Flags, until_us: int) -> dict[int, Row]:
    """Return what is to be known of each connection of one life; nothing, if all of its requests are to be kept.

    `gaps`: those on its connections (`gaps_of_life`); `traits`: of the client's requests, `TRAITS` in rows.
    """
    lines = life.lines
    if life.known:
        if not len(lines.number):
            return life.known
        is_across = life.is_across
    elif gaps.are_wide.any():
        return {}
    elif len(np.unique(lines.number)) == len(lines.number):
        if np.bincount(gaps.at, minlength=1).max() > MOST_MISSING:
            return {}
        is_across = True
    elif (np.bincount(gaps.at, minlength=len(gaps.of)) == gaps.lines).all():
        is_across = False
    else:
        return {}
    before = life.until
    until = max(before, int(lines.number[lines.taken <= until_us].max(initial=BELOW_ALL)))
    found = dict(life.known)
    for place in np.unique(lines.place).tolist():
        mine = lines.where(lines.place == place)
        if not is_across:
            until = int(mine.number[mine.taken <= until_us].max(initial=BELOW_ALL))
        mine = mine.where(mine.number <= until)
        if len(mine.number):
            old = found.get(place)
            kinds = np.logical_or.reduce(traits[:, mine.row], axis=1).tolist()
            last = [*(old["last_us"] if old else ()), *mine.taken[-IN_FLIGHT - 1 :].tolist()]
            found[place] = {
                "until": until,
                "lines": (old["lines"] if old else 0) + len(mine.number),
                **{trait: k or bool(old and old[trait]) for trait, k in zip(TRAITS, kinds, strict=True)},
                "least": old["least"] if old else int(mine.number[0]),
                "number": int(mine.number[-1]),
                "last_us": last[-IN_FLIGHT - 1 :],
                "begun_us": min(old["begun_us"] if old else NEVER, int(mine.taken.min())),
                "ended_us": max(old["ended_us"] if old else -NEVER, int(mine.taken.max())),
                **NOTHING_BETWEEN,
            }
    if is_across and found:
        since = np.maximum(np.array([row["number"] for row in found.values()], np.int64), before)
        every = np.full(len(since), until)
        sent = sent_between(lines, since, every)
        few = sent.absent <= MOST_ABSENT
        absent = iter(absent_between(lines, since[few], every[few]))
        for place, is_few, *of_others in zip([*found], few, sent.least.tolist(), sent.most.tolist(), strict=True):
            told = and_between(found[place], next(absent) if is_few else None, *of_others)
            found[place] = {**found[place], "until": until, **told}
    return {place: {**row, "across": is_across} for place, row in found.items()}


def and_between(row: Row, absent: list[int] | None, least: int, most: int) -> Row:
    """Return what is known of the numbers behind a connection's last one, together with more of them."""
    every = None if absent is None or row["absent"] is None else [*row["absent"], *absent]
    return {
        "absent": None if every is None or len(every) > MOST_ABSENT else every,
        "least_us": min(row["least_us"], least),
        "most_us": max(row["most_us"], most),
    }
