"""Which partition, record or incarnation a name means: `orders-0`, `orders-0#1`, `orders-0@1234`.

A topic's name may have dots, hyphens and other signs in it, so a name is read from its end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from pipelines.lookup.reading import rows
from schemas.errors import InputError

if TYPE_CHECKING:
    from pipelines.lookup.reading import Tables

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})(?:#(?P<incarnation>\d{1,9}))?", re.DOTALL)
_NAMED: Final = 8  # of what there is, so many are named


@dataclass(frozen=True, slots=True)
class Place:
    """One life of a partition."""

    topic: str
    incarnation: int
    partition: int
    others: tuple[int, ...] = ()  # further incarnations of which there are events

    @property
    def condition(self) -> pc.Expression:
        """What rows of the partition meet."""
        return (
            (pc.field("topic") == self.topic)
            & (pc.field("incarnation") == self.incarnation)
            & (pc.field("partition") == self.partition)
        )

    @property
    def name(self) -> str:
        """The name by which it is asked for."""
        return f"{self.topic}-{self.partition}" + (f"#{self.incarnation}" if self.incarnation else "")

    def as_dict(self) -> dict[str, object]:
        """Return it as the first keys of an answer."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "incarnation": self.incarnation,
            "other_incarnations": list(self.others),
        }


def shown(name: str) -> str:
    """Return a name with everything written out that a terminal could take for an order."""
    return repr(name)[1:-1]


def partitions_of(tables: Tables) -> list[str]:
    """Return the names of all partitions that were replayed."""
    return [Place(*one).name for one in sorted(_places(tables))]


def partition_named(tables: Tables, text: str) -> Place:
    """Return the partition of a name, in its last incarnation unless one is named; InputError if there is none."""
    found = _PARTITION.fullmatch(text)
    if found is None:
        message = f"'{shown(text)}' should name a partition, as orders-0; orders-0#1 names its second incarnation"
        raise InputError(message)
    topic, partition = found["topic"], int(found["partition"])
    every = _places(tables)
    lives = sorted(one for name, one, number in every if (name, number) == (topic, partition))
    if not lives:
        raise InputError(_no_such(f"{topic}-{partition}", every, tables.recording_id))
    wanted = lives[-1] if found["incarnation"] is None else int(found["incarnation"])
    if wanted not in lives:
        named = ", ".join(f"{shown(topic)}-{partition}#{one}" for one in lives)
        message = f"there is no incarnation {wanted} of {shown(topic)}-{partition}: there are {named}"
        raise InputError(message)
    return Place(topic, wanted, partition, tuple(one for one in lives if one != wanted))


def record_named(tables: Tables, text: str) -> tuple[Place, int]:
    """Return partition and offset of a record's name."""
    partition, at, offset = text.rpartition("@")
    if not at or not offset.isdecimal() or len(offset) > len(str(2**62)):
        message = f"'{shown(text)}' should name a record by partition and offset, as orders-0@1234"
        raise InputError(message)
    return partition_named(tables, partition), int(offset)


def _places(tables: Tables) -> set[tuple[str, int, int]]:
    """Return topic, incarnation and partition of all that was replayed."""
    names = ("topic", "incarnation", "partition")
    found: set[tuple[str, int, int]] = set()
    for table in ("event_windows", "leadership_timeline"):  # both are small however long the partitions are
        found |= {(row["topic"], row["incarnation"], row["partition"]) for row in rows(tables, table, columns=names)}
    return found


def _no_such(name: str, every: set[tuple[str, int, int]], recording: str) -> str:
    """Return a sentence that says which partitions there are, those with similar names first."""
    names = sorted({f"{topic}-{partition}" for topic, _, partition in every})
    close = get_close_matches(name, names, n=_NAMED, cutoff=0.5)
    listed = [shown(one) for one in dict.fromkeys([*close, *names])]
    more = f" and {len(listed) - _NAMED:,} more" if len(listed) > _NAMED else ""
    there = f"there are {', '.join(listed[:_NAMED])}{more}" if listed else "nothing of it was replayed"
    return f"there is no partition {shown(name)} in {recording}: {there}"
