"""What the diagrams tell. Which release of Kafka each holds for is in losing-records.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Broker:
    """One replica at one moment.

    `log` names its records; one that ends in `!` was just cut away, one that begins with `n` is of the later leader
    epoch. `hw` is the high watermark that this broker knows.
    """

    id: int
    role: str
    log: str
    hw: int | None = None
    in_isr: bool = True
    note: str = ""
    is_away: bool = False


class Moment(NamedTuple):
    """What happened, and what every broker has afterwards."""

    says: str
    brokers: tuple[Broker, ...]


class Story(NamedTuple):
    """How records are lost, moment by moment; `name` is that of the file."""

    name: str
    title: str
    moments: tuple[Moment, ...]


class Exchange(NamedTuple):
    """Steps: a number (or none), who, to whom, what, and what holds afterwards."""

    name: str
    title: str
    parties: tuple[str, ...]
    places: tuple[int, ...]
    steps: tuple[tuple[str, str, str, str, str], ...]


def dead(broker: int, log: str, *, in_isr: bool = True, note: str = "") -> Broker:
    """One that does not run; its log is what its disk has."""
    return Broker(broker, "dead", log, in_isr=in_isr, note=note, is_away=True)


P, L, F = "producer", "leader", "follower"
EXCHANGE = Exchange(
    "nine-steps",
    "The nine steps of a fetch: how a record becomes committed",
    (P, L, F),
    (70, 300, 590),
    (
        ("", P, L, "produce m3, acks=all", "all begin with LEO 3 and HW 3"),
        ("1", L, L, "appends m3 at offset 3", ""),
        ("2", L, L, "LEO 3 → 4", "HW stays 3: the follower is at 3"),
        ("3", F, L, "fetch from offset 3", "the offset is the follower's own LEO"),
        ("4", L, L, "follower's LEO := 3", "what the fetch says, nothing else"),
        ("5", L, L, "may take it into the ISR", "if it has reached the HW"),
        ("6", L, L, "HW := lowest LEO it waits for", "still 3"),
        ("7", L, F, "answer: m3, HW 3", "the HW as it was when the log was read"),
        ("8", F, F, "appends m3", "LEO 3 → 4"),
        ("9", F, F, "HW := min(LEO 4, HW 3)", "3: it has m3, but does not know that m3 is committed"),
        ("3", F, L, "the next fetch, from offset 4", "tells the leader that m3 arrived"),
        ("4", L, L, "follower's LEO := 4", ""),
        ("6", L, L, "HW 3 → 4: m3 is committed", ""),
        ("", L, P, "m3 is acknowledged", "acks=1: after step 2"),
        ("7", L, F, "answer: HW 4", "after a wait, or with the next records"),
        ("9", F, F, "HW := min(LEO 4, HW 4)", "4, one round after it had the record"),
    ),
)

STORIES = (
    Story(
        "unclean-election",
        "Unclean election: a replica that lacks acknowledged records becomes leader",
        (
            Moment(
                "All three replicas are in sync. m0 and m1 are on all of them.",
                (Broker(1, "leader", "m0 m1", 2), Broker(2, "follower", "m0 m1", 2), Broker(3, "follower", "m0 m1", 2)),
            ),
            Moment(
                "Brokers 2 and 3 stand still and leave the ISR. What acks=all waits for is now one broker: "
                "m2 and m3 are committed and acknowledged.",
                (
                    Broker(
                        1, "leader", "m0 m1 m2 m3", 4, note="tells the producer that m2 and m3 are stored (acks=all)"
                    ),
                    Broker(2, "stands still", "m0 m1", 2, in_isr=False, is_away=True),
                    Broker(3, "stands still", "m0 m1", 2, in_isr=False, is_away=True),
                ),
            ),
            Moment(
                "Broker 1 dies. Nobody in the ISR is alive, and the topic allows an unclean election: "
                "broker 2 leads, with the log that it has.",
                (
                    dead(1, "m0 m1 m2 m3", in_isr=False, note="has the only copy of m2 and m3"),
                    Broker(2, "leader", "m0 m1", 2, note="epoch 1 begins at offset 2"),
                    Broker(3, "follower", "m0 m1", 2, in_isr=False),
                ),
            ),
            Moment(
                "Broker 1 comes back as a follower. It learns that epoch 0 ended at offset 2, and cuts its log there.",
                (
                    Broker(
                        1,
                        "follower",
                        "m0 m1 m2! m3!",
                        2,
                        in_isr=False,
                        note="was the last disk that had m2 and m3",
                    ),
                    Broker(2, "leader", "m0 m1", 2),
                    Broker(3, "follower", "m0 m1", 2),
                ),
            ),
            Moment(
                "New records take the offsets of the lost ones. All replicas are equal again, and nothing looks wrong.",
                (
                    Broker(1, "follower", "m0 m1 n2 n3", 4),
                    Broker(
                        2,
                        "leader",
                        "m0 m1 n2 n3",
                        4,
                        note="offset 2 is another record than the one that was acknowledged there",
                    ),
                    Broker(3, "follower", "m0 m1 n2 n3", 4),
                ),
            ),
        ),
    ),
    Story(
        "acks-one-leader-failure",
        "acks=1 and a leader that fails: acknowledged before anybody else had the record",
        (
            Moment(
                "m2 is sent with acks=1. The leader appends it and answers at once.",
                (
                    Broker(1, "leader", "m0 m1 m2", 2, note="tells the producer that m2 is stored (acks=1)"),
                    Broker(2, "follower", "m0 m1", 2, note="has not fetched m2 yet"),
                    Broker(3, "follower", "m0 m1", 2, note="has not fetched m2 yet"),
                ),
            ),
            Moment(
                "The leader dies before the next fetch. Broker 2 is in the ISR: it is elected, and rightly so.",
                (
                    dead(1, "m0 m1 m2", in_isr=False),
                    Broker(2, "leader", "m0 m1", 2, note="has everything that was committed"),
                    Broker(3, "follower", "m0 m1", 2),
                ),
            ),
            Moment(
                "Broker 1 comes back and cuts its log to where the new leader's log parts from it.",
                (
                    Broker(1, "follower", "m0 m1 m2!", 2, in_isr=False),
                    Broker(2, "leader", "m0 m1 n2", 2),
                    Broker(3, "follower", "m0 m1 n2", 2),
                ),
            ),
        ),
    ),
    Story(
        "acks-one-planned-move",
        "acks=1 and a planned move: lost without any failure",
        (
            Moment(
                "m2 is sent with acks=1 and answered at once. At the same moment leadership is about to move: "
                "a rolling restart, a preferred election or a reassignment.",
                (
                    Broker(1, "leader", "m0 m1 m2", 2, note="tells the producer that m2 is stored (acks=1)"),
                    Broker(2, "follower", "m0 m1", 2, note="is in sync, without m2"),
                ),
            ),
            Moment(
                "The controller names broker 2 leader of epoch 1. Nobody has failed, and nobody waits "
                "until broker 2 has fetched m2.",
                (
                    Broker(1, "follower", "m0 m1 m2", 2, note="still has m2"),
                    Broker(2, "leader", "m0 m1", 2, note="epoch 1 begins at offset 2"),
                ),
            ),
            Moment(
                "Broker 1 follows, and cuts its log to where epoch 0 ended for the new leader.",
                (Broker(1, "follower", "m0 m1 m2!", 2), Broker(2, "leader", "m0 m1", 2)),
            ),
        ),
    ),
    Story(
        "last-replica-standing",
        "Last replica standing: the only member of the ISR loses what it had not flushed",
        (
            Moment(
                "Only broker 1 is left in the ISR. It acknowledges m2 and m3, which are in its memory, "
                "but not yet on its disk.",
                (
                    Broker(
                        1, "leader", "m0 m1 m2 m3", 4, note="tells the producer that m2 and m3 are stored (acks=all)"
                    ),
                    Broker(2, "follower", "m0 m1", 2, in_isr=False, note="is behind"),
                ),
            ),
            Moment(
                "Its machine loses power. Broker 2 may not lead, because it was not in the ISR: the partition waits.",
                (
                    dead(1, "m0 m1 m2 m3", note="what was not flushed is lost with the machine's memory"),
                    Broker(2, "follower", "m0 m1", 2, in_isr=False),
                ),
            ),
            Moment(
                "Broker 1 starts again with what its disk has. Nobody else was in the ISR, so it leads again, "
                "with less than before.",
                (
                    Broker(1, "leader", "m0 m1 m2! m3!", 2, note="its log was loaded with end 2 instead of 4"),
                    Broker(2, "follower", "m0 m1", 2, in_isr=False, note="is not behind any more"),
                ),
            ),
        ),
    ),
    Story(
        "hw-truncation",
        "Truncation to the high watermark, before 0.11 (KIP-101)",
        (
            Moment(
                "m1 is on both replicas and acknowledged. The follower will learn by its next fetch "
                "that it is committed: its own high watermark is still 1.",
                (
                    Broker(1, "leader", "m0 m1", 2, note="tells the producer that m1 is stored (acks=all)"),
                    Broker(2, "follower", "m0 m1", 1, note="has m1, and does not know that it is committed"),
                ),
            ),
            Moment(
                "Broker 2 restarts. Before 0.11 a follower first cuts its log to its own high watermark, "
                "and fetches the rest again. It is still in the ISR.",
                (
                    Broker(1, "leader", "m0 m1", 2),
                    Broker(2, "follower", "m0 m1!", 1, note="cuts m1 away, to fetch it again"),
                ),
            ),
            Moment(
                "Broker 1 dies before that fetch. Broker 2 is in the ISR and is elected, without m1.",
                (dead(1, "m0 m1", in_isr=False), Broker(2, "leader", "m0", 1, note="epoch 1 begins at offset 1")),
            ),
            Moment(
                "Broker 1 comes back. Its next offset is beyond the leader's log, so it cuts its log there. "
                "m1 is gone, although every replica was in sync when it was acknowledged.",
                (Broker(1, "follower", "m0 m1!", 1, in_isr=False), Broker(2, "leader", "m0", 1)),
            ),
        ),
    ),
    Story(
        "stale-isr-rejoin",
        "A member of the ISR that has less than it once had (KIP-903, KAFKA-14139)",
        (
            Moment(
                "Broker 2 has fetched m2, so the leader asks the controller to take it into the ISR.",
                (
                    Broker(1, "leader", "m0 m1 m2", 3, note="tells the producer that m2 is stored (acks=all)"),
                    Broker(2, "follower", "m0 m1 m2", 2, in_isr=False, note="is about to join"),
                ),
            ),
            Moment(
                "Broker 2's machine loses power and it starts again, without m2, before the request is answered. "
                "The request does not say which of its lives it means, and is granted.",
                (
                    Broker(1, "leader", "m0 m1 m2", 3),
                    Broker(
                        2, "follower", "m0 m1 m2!", 2, note="its fetch at offset 3 was made by an earlier life of it"
                    ),
                ),
            ),
            Moment(
                "The leader dies before broker 2 has fetched again. The election is clean, and m2 is gone.",
                (dead(1, "m0 m1 m2", in_isr=False), Broker(2, "leader", "m0 m1", 2)),
            ),
        ),
    ),
)
