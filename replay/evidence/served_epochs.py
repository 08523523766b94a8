"""Under which leader epoch a follower's fetch was served, where that differs from the epoch that it names.

Up to version 8 (inter-broker protocol before 2.1) a fetch names no epoch and is served under the leader's. Up to 2.4 a
session does not keep the epoch that was named, so an incremental fetch is served under the leader's epoch, however old
the epoch is that its follower last learned (KAFKA-9338).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from replay.evidence.request_columns import RequestColumns
from replay.evidence.request_times import phases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from replay.evidence.rows import Row


def names_epochs(facts: pa.Table) -> bool:
    """Whether any fetch names the leader epoch that it expects."""
    if "current_leader_epoch" not in facts.column_names:
        return False
    named = pc.and_(pc.is_valid(facts["current_leader_epoch"]), pc.equal(facts["kind"], "fetch"))
    return bool(pc.any(named).as_py())


def give_epochs(
    fetches: Sequence[Row],
    role_lines: Mapping[tuple[int, int], Row],
    epoch_at: Callable[[int, int], int | None],
    *,
    session_keeps_epoch: bool,
) -> None:
    """Set followers' `current_leader_epoch` to the epoch that served the fetch; `named_epoch` to the one it named."""
    told = RequestColumns(fetches)
    is_unchecked = (told.stated("session_epoch", 0) > 0) & (told.stated("error_code", 0) == 0)
    is_open = (told.stated("current_leader_epoch") < 0) | (is_unchecked & (not session_keeps_epoch))
    for row in (fetches[k] for k in np.flatnonzero((told.stated("replica_id") >= 0) & is_open).tolist()):
        named = row["current_leader_epoch"]
        if named is None or named < 0:
            row["current_leader_epoch"] = epoch_at(row["broker_id"], phases(row).taken)
        elif not is_checked(row, session_keeps_epoch=session_keeps_epoch) and not row["error_code"]:
            served = served_epoch(row, named, role_lines, epoch_at(row["broker_id"], phases(row).taken))
            row["named_epoch"], row["current_leader_epoch"] = named, served


def is_checked(row: Row, *, session_keeps_epoch: bool) -> bool:
    """Whether the leader checked the epoch that a fetch names."""
    return session_keeps_epoch or (row["session_epoch"] or 0) <= 0


def served_epoch(row: Row, named: int, role_lines: Mapping[tuple[int, int], Row], by_clock: int | None) -> int:
    """The epoch under which a leader served a fetch whose named epoch it did not check: that one, or a later one.

    It follows from the time of service and from the offset: a fetch beyond the start of the same leader's next epoch
    was served under that epoch.
    """
    epoch, offset = named if by_clock is None else max(named, by_clock), row["fetch_offset"]
    while offset is not None:
        line = role_lines.get((row["broker_id"], epoch + 1))
        if line is None or line["name"] != "leader" or line["offset"] is None or offset <= line["offset"]:
            break
        epoch += 1
    return epoch


def is_read_under(row: Row, line: Row | None) -> bool:
    """Whether a parked fetch was answered after its leader took up its next epoch; `line`: the leader's own about that.

    The line states the HW with which it did. The HW of a leader that leads on never falls, so a higher one in an answer
    is of later.
    """
    if line is None or line["name"] != "leader" or line["hw"] is None or row["hw"] is None:
        return False
    accepted = not row["error_code"] and row["diverging_epoch"] is None and row["run_count"] is None
    return bool(row["remote_us"] and accepted and row["hw"] > line["hw"])


def epoch_of_answer(row: Row, epoch: int | None, role_lines: Mapping[tuple[int, int], Row]) -> int | None:
    """The epoch in which a consumer's fetch, taken up in `epoch`, was answered: that one, or its leader's next one."""
    while epoch is not None and is_read_under(row, role_lines.get((row["broker_id"], epoch + 1))):
        epoch += 1
    return epoch


def is_told(row: Row) -> bool:
    """Whether the follower that sent this fetch already knew the leader epoch under which it is served."""
    return row["named_epoch"] is None or row["named_epoch"] == row["current_leader_epoch"]
