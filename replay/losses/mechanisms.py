"""The mechanisms by which records are lost, one record each, and their rules in the order in which they are tried.

To add one: its record and its place in `RULES` here, its name in `schemas.incidents.MECHANISMS`, a row in
docs/mechanisms.md. Its rule is a function in `signatures`, the sentence on how records were lost one in `sentences`,
and the settings that would have prevented the loss one in `remedies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from replay.losses import remedies, sentences, signatures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replay.losses.findings import Finding
    from replay.losses.remedies import Setting
    from replay.losses.story import Story


class Mechanism(NamedTuple):
    """A way in which records are lost, and all that is said about it."""

    name: str  # as in `data_loss_incidents.mechanism`
    words: str  # in the report
    sentence: Callable[[Finding, Story], str]  # when and how the records were lost
    # if promised records were lost; null: it only ever loses what the leader alone had acknowledged
    severity: str | None
    is_severe_anyway: bool = False  # also if nothing is known to be promised, unless lines contradict each other
    is_certain: bool = True  # whether it is known which slots the new leader lacks
    settings: Callable[[Finding, Story], Iterator[Setting]] = remedies.nothing  # named first
    # named after acks and minimum ISR
    further_settings: Callable[[Finding, Story], Iterator[Setting]] = remedies.nothing
    instead_of_acks_all: str = ""  # appended to the reason for acks=all: an alternative
    # a larger ISR would not have kept acks=1 records: min.insync.replicas does not help
    goes_from_any_isr: bool = False

    @property
    def is_by_leader_alone(self) -> bool:
        """Whether it only ever loses what the leader alone had acknowledged."""
        return self.severity is None


STORAGE_FAILURE = Mechanism(
    "storage_failure",
    "a log directory or disk failed at the leader",
    sentences.lost_directory,
    "S1",
    goes_from_any_isr=True,
)
LAST_REPLICA_STANDING = Mechanism(
    "last_replica_standing",
    "the only replica in the ISR came back with less than it had",
    sentences.came_back,
    "S0",
    is_severe_anyway=True,
    further_settings=remedies.against_lost_tail,
)
UNCLEAN_ELECTION = Mechanism(
    "unclean_election",
    "unclean election: a replica outside the ISR became leader",
    sentences.elected_unclean,
    "S1",
    is_severe_anyway=True,
    settings=remedies.against_unclean,
)
ELIGIBLE_LEADER_REGRESSED = Mechanism(
    "eligible_leader_regressed",
    "an eligible leader (ELR) had less than what was committed",
    sentences.eligible_without,
    "S0",
    is_severe_anyway=True,
    further_settings=remedies.always(remedies.FLUSH_EACH_BATCH),
)
HW_TRUNCATION = Mechanism(
    "hw_truncation",
    "a replica truncated to its own high watermark and then became leader",
    sentences.cut_to_its_hw,
    "S0",
    is_severe_anyway=True,
    further_settings=remedies.always(remedies.TRUNCATE_BY_EPOCH),
)
FAST_FAILOVER_DIVERGENCE = Mechanism(
    "fast_failover_divergence",
    "two elections in a row left a diverging log standing",
    sentences.held_an_unknown_epoch,
    "S0",
    is_certain=False,
    further_settings=remedies.always(remedies.ASK_AGAIN),
)
STALE_FETCH_ACCEPTED = Mechanism(
    "stale_fetch_accepted",
    "a fetch from an older epoch was counted as replication",
    sentences.counted_all_the_same,
    "S0",
    is_certain=False,
    further_settings=remedies.always(remedies.FENCE_FETCHES),
)
STALE_ISR_REJOIN = Mechanism(
    "stale_isr_rejoin",
    "a replica that had lost its log was taken back into the ISR",
    sentences.member_without,
    "S0",
    further_settings=remedies.always(remedies.CHECK_BROKER_EPOCHS),
)
OUT_OF_RANGE_RESET = Mechanism(
    "out_of_range_reset",
    "a replica gave up its log after an out-of-range fetch",
    sentences.dropped_out_of_range,
    "S0",
    further_settings=remedies.against_out_of_range,
)
ACKS_ONE_PLANNED_MOVE = Mechanism(
    "acks_one_planned_move",
    "leadership was moved on purpose before a follower had what was acknowledged (acks=1)",
    sentences.moved_too_early,
    None,
    further_settings=remedies.against_a_cut_unseen,
    instead_of_acks_all="; or move leadership only once the next leader has no lag",
    goes_from_any_isr=True,
)
ACKS_ONE_LEADER_FAILURE = Mechanism(
    "acks_one_leader_failure",
    "the leader failed before a follower had fetched what it had acknowledged (acks=1)",
    sentences.took_over_too_early,
    None,
    further_settings=remedies.against_a_cut_unseen,
)
OTHER = Mechanism("other", "by a way that no rule names", sentences.entitled_without, "S0")

# The first rule that fits wins; a loss that none fits is `OTHER`.
RULES: tuple[tuple[Mechanism, Callable[[Finding, Story], object]], ...] = (
    (STORAGE_FAILURE, signatures.was_made_anew),
    (LAST_REPLICA_STANDING, signatures.led_again_with_less),
    (UNCLEAN_ELECTION, signatures.was_elected_unclean),
    (ELIGIBLE_LEADER_REGRESSED, signatures.was_eligible_only),
    (HW_TRUNCATION, signatures.was_cut_to_hw),
    (FAST_FAILOVER_DIVERGENCE, signatures.diverged_in_fast_failover),
    (STALE_FETCH_ACCEPTED, signatures.was_fetched_in_another_epoch),
    (STALE_ISR_REJOIN, signatures.rejoined_stale),
    (OUT_OF_RANGE_RESET, signatures.was_reset_out_of_range),
    (UNCLEAN_ELECTION, signatures.must_have_been_unclean),
    (ACKS_ONE_PLANNED_MOVE, signatures.left_in_planned_move),
    (ACKS_ONE_LEADER_FAILURE, signatures.answered_by_leader_alone),
)
WORDS = {mechanism.name: mechanism.words for mechanism in (*(one for one, _ in RULES), OTHER)}


def mechanism_of(found: Finding, story: Story) -> Mechanism:
    """The first mechanism whose rule fits."""
    return next((mechanism for mechanism, fits in RULES if fits(found, story)), OTHER)


def severity_of(mechanism: Mechanism, counts: dict[str, Any], *, doubted: bool = False) -> str:
    """S0 lost silently, S1 as the configuration permits, S2 only acks=1, S3 seen by readers but never acknowledged.

    `counts` leave out what aborted transactions appended. If lines about the loss contradict each other (`doubted`),
    only what was certainly promised makes it S0 or S1.
    """
    if not counts["records"]:
        return "S3"
    promised = bool(counts["committed"] or counts["acked_all"])
    if mechanism.severity is not None and (promised or (mechanism.is_severe_anyway and not doubted)):
        return mechanism.severity
    answered = ("acked_all", "acked_one", "acked_possible", "acked_unconfirmed")
    unknown = counts["acked_all"] is None
    return "S2" if unknown or any(counts[name] for name in answered) else "S3"
