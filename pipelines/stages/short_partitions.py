"""Which of the partitions that wait for their order are so short that they are ordered together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replay.evidence.served_epochs import names_epochs

if TYPE_CHECKING:
    import pyarrow as pa

    from replay.arrays.digests import Hashes

SHORT: Final = 1_000  # facts of a partition that is ordered together with others, at most
TOGETHER: Final = 5_000  # facts of partitions that are ordered together, at least


class Waiting(NamedTuple):
    """A partition that is to be ordered."""

    of: tuple[str, int]  # topic and partition
    made_of: str  # digest of all that its events follow from
    hashes: Hashes  # of its facts
    facts: pa.Table  # which is released by its order


def short_of(waiting: list[Waiting], least: int) -> list[Waiting]:
    """Take short partitions off the end of those that wait: as many as are ordered together.

    `least`: facts of a partition that is too long for it. Where no fetch names a leader epoch, rules give one to each
    (`served_epochs`), in a column that then holds nothing else; so such partitions share no columns with others.
    """
    found: list[Waiting] = []
    count, named = 0, names_epochs(waiting[-1].facts)
    while waiting and count < TOGETHER and len(waiting[-1].facts) < least:
        if names_epochs(waiting[-1].facts) != named:
            break
        found.append(waiting.pop())
        count += len(found[-1].facts)
    return found
