"""What those who help to read a partition's facts read of them, so that they need not know who puts them together.

`PartitionFacts` is both: it is made with the help of `tenure_index`, `markers`, `leader_lines`, `retries`, and it is
what they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.evidence.broker_pauses import Standstills
    from replay.evidence.epochs import Place, Starts
    from replay.evidence.missing_lines import MissingLines
    from replay.evidence.rows import Row
    from replay.evidence.tenures import Decision, Tenure


class Fetch(NamedTuple):
    """A follower's fetch in its order."""

    row: Row
    before: Row | None  # the replica's fetch before it
    after: int | None  # the replica's LEO where a source next states it
    same_tenure: bool  # whether that is the next fetch of the same tenure
    follows: bool  # whether no fetch is missing between the one before and this
    goes_on: bool  # nor between this and the next


class Indexed(Protocol):
    """One partition's facts by kind, by tenure and by broker; each field is described in `PartitionFacts`."""

    topic: str
    partition: int
    cluster: list[Row]
    missing: MissingLines
    standstills: Standstills
    begins: Mapping[int, int]
    connection_ends: dict[tuple[int, str], int]
    by_kind: dict[str, list[Row]]
    decisions: list[Decision]
    tenures: list[Tenure]
    min_isr_changes: list[tuple[Row, int]]
    quota_settings: list[Row]
    role_lines: dict[tuple[int, int], Row]
    loads: dict[tuple[int, int], Row]
    cuts: dict[tuple[int, int], list[Row]]
    log_starts: dict[tuple[int, int], list[Row]]
    fetcher_lines: dict[tuple[int, int], list[Row]]
    storage_failures: dict[int, list[Row]]
    rejoins: dict[tuple[int, int], list[tuple[Row, Row]]]
    starts: Starts
    places: list[Place]
    follower_fetches: dict[tuple[int, int], list[Row]]
    consumer_fetches: dict[int, list[Row]]
    append_lines: dict[tuple[int, int], list[Row]]

    def epoch_at(self, broker: int, us: int) -> int | None:
        """Leader epoch in which `broker` served a request at `us` of its clock."""

    def led(self, tenure: Tenure) -> tuple[int, int]:
        """Since when and until when on its own clock the leader led."""

    def followers(self, tenure: Tenure) -> set[int]:
        """Replicas whose fetches name this tenure's leader and epoch."""

    def fetches_of(self, replica: int, tenure: Tenure) -> list[Fetch]:
        """The replica's fetches from this tenure's leader, in its own order."""
