"""Answers that a leader read only after it had taken up its next leader epoch.

A fetch that is parked names the epoch of its time, and is refused if that has changed when it completes. But up to 2.4
a session does not keep the epoch (KAFKA-9338), so a leader that leads on answers it under the new one; with ZooKeeper
the epoch changes with every replica that the controller removes from the ISR. The answer then belongs to the new epoch,
although the fetch came in the old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.evidence.served_epochs import is_checked, is_read_under

if TYPE_CHECKING:
    from replay.evidence.partition_facts import PartitionFacts
    from replay.evidence.tenures import Tenure
    from replay.evidence.views import Fetch


def carried_to(facts: PartitionFacts, tenure: Tenure, replica: int) -> Fetch | None:
    """The follower's last fetch in this tenure if it was answered in the next one, which has the same leader."""
    fetches, after = facts.fetches_of(replica, tenure), facts.turns.tenures.get(tenure.epoch + 1)
    if not fetches or after is None or after.leader != tenure.leader or replica not in facts.followers(after):
        return None
    keeps = bool(facts.profile_in(tenure.epoch, tenure.leader).session_keeps_epoch)
    line = facts.role_lines.get((tenure.leader, after.epoch))
    unchecked = not is_checked(fetches[-1].row, session_keeps_epoch=keeps)
    return fetches[-1] if unchecked and is_read_under(fetches[-1].row, line) else None


def carried_from(facts: PartitionFacts, tenure: Tenure, replica: int) -> Fetch | None:
    """The follower's last fetch in the tenure before if it was answered in this one."""
    before = facts.turns.tenures.get(tenure.epoch - 1)
    return None if before is None else carried_to(facts, before, replica)
