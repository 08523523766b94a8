"""Settings that would have prevented losses by a particular mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replay.losses.signatures import rules_of, unclean_election
from replay.protocol.profile import LATEST, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replay.losses.findings import Finding
    from replay.losses.story import Story

ELIGIBLE_REPLICAS_SINCE = (4, 0, 0)  # KIP-966
BY_ELIGIBILITY = ("first_eligible", "last_known_leader")


class Setting(NamedTuple):
    """A setting, and why it would have prevented the loss."""

    name: str
    reason: str


TRUNCATE_BY_EPOCH = Setting(
    "inter.broker.protocol.version=0.11.0 or later",
    "since then a follower asks its leader where to cut, not its own high watermark (KIP-101, KAFKA-1211)",
)
ASK_AGAIN = Setting(
    "inter.broker.protocol.version=2.0 or later",
    "since then the answer says which epoch it speaks of, and an unknown one is asked again (KIP-279, KAFKA-6361)",
)
FENCE_FETCHES = Setting(
    "inter.broker.protocol.version=2.1 or later",
    "since then fetches name their leader epoch, and one of another epoch is refused (KIP-320, KAFKA-7395)",
)
CHECK_BROKER_EPOCHS = Setting(
    "Kafka 3.7.0 or later",
    "since then no fetch of before a restart is taken for one of after it (KIP-903, KAFKA-15221)",
)
FLUSH_EACH_BATCH = Setting(
    "log.flush.interval.messages=1",
    "the eligible replica had lost the end of its log in a crash that was taken for an orderly stop",
)
TRUNCATE_ON_FETCH = Setting(
    "inter.broker.protocol.version=2.7 or later",
    "since then a follower beyond its leader's end is told where the logs part before it cuts (KAFKA-10554)",
)


def against_unclean(found: Finding, story: Story) -> Iterator[Setting]:
    """Against unclean elections, by setting or by request."""
    row = unclean_election(found, story)
    old = found.old.leader
    if (row["trigger"] or "").startswith("an operator"):
        yield Setting(
            "no kafka-leader-election.sh --election-type unclean",
            f"the election was asked for; broker {old} still had the records",
        )
    else:
        yield Setting(
            "unclean.leader.election.enable=false",
            f"the partition would have waited without a leader until broker {old} was back with them",
        )


def against_lost_tail(found: Finding, story: Story) -> Iterator[Setting]:
    """Against a last replica that lost the end of its log."""
    version = parse_version(story.spoken_at(found.old.leader, found.old.seq)[0]) or LATEST
    on = any(row["rule"] in BY_ELIGIBILITY or (row["elr"] or ()) for row in story.decisions)
    if story.is_kraft and not on:
        upgrade = "" if version >= ELIGIBLE_REPLICAS_SINCE else " (Kafka 4.0 or later)"
        yield Setting(
            f"eligible.leader.replicas.version=1{upgrade}",
            "with min.insync.replicas=2 the controller remembers who still has everything committed, and does not "
            "elect a replica that went down uncleanly (KIP-966)",
        )
    reason = f"what broker {found.old.leader} lost had not been flushed to disk; flushing each batch costs throughput"
    yield FLUSH_EACH_BATCH._replace(reason=reason)


def against_a_cut_unseen(found: Finding, story: Story) -> Iterator[Setting]:
    """Against a truncation that no log shows: under an old protocol the new leader may have had the records.

    It is named only if no request log tells what was acknowledged.
    """
    if found.counts["acked_all"] is None and rules_of(found, story).truncate_to_hw:
        reason = f"broker {found.leader} may have had them and cut them: {TRUNCATE_BY_EPOCH.reason}"
        yield TRUNCATE_BY_EPOCH._replace(reason=reason)


def against_out_of_range(found: Finding, story: Story) -> Iterator[Setting]:
    """Against an out-of-range reset, if the follower did not first ask where the logs diverge."""
    if not rules_of(found, story).truncate_on_fetch:
        yield TRUNCATE_ON_FETCH


def nothing(_found: Finding, _story: Story) -> Iterator[Setting]:
    """No setting specific to the mechanism."""
    return iter(())


def always(setting: Setting) -> Callable[[Finding, Story], Iterator[Setting]]:
    """One setting, whatever happened."""
    return lambda _found, _story: iter((setting,))
