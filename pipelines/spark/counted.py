"""How far a step is, in a unit that people know: counted by the workers, told by Spark as each task ends.

Of what the driver does itself, it counts itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Tally:
    """What the driver has done."""

    value: int = 0

    def add(self, more: int) -> None:
        """Count so much more."""
        self.value += more


class Counted(NamedTuple):
    """How much is done, of how much."""

    done: Accumulator[int] | Tally
    total: int
    unit: str


Done = TypeVar("Done", "Accumulator[int]", Tally)

_in_hand: list[Counted] = []  # at most one: a driver does one thing at a time


def count_of(spark: SparkSession, total: int, unit: str) -> Accumulator[int]:
    """Return what workers add to as they get on with the work that now begins."""
    return _begun(spark.sparkContext.accumulator(0), total, unit)


def tally_of(total: int, unit: str) -> Tally:
    """Return what the driver adds to as it gets on with the work that now begins."""
    return _begun(Tally(), total, unit)


def _begun(done: Done, total: int, unit: str) -> Done:
    _in_hand[:] = [Counted(done, total, unit)]
    return done


def in_hand() -> Counted | None:
    """Return what is being counted."""
    return _in_hand[0] if _in_hand else None


def over() -> None:
    """Count nothing any more."""
    _in_hand.clear()
