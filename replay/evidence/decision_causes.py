"""Why each decision was made: what it did to the ISR, and how its leader was elected.

KRaft writes the partition changes caused by a fencing or a controlled shutdown in one batch with the registration
change and before it (ReplicationControlManager), so they have the same time and stand next to each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.tenures import is_creation, micros
from replay.protocol.election_rules import LAST_KNOWN_LEADER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.evidence.rows import Row
    from replay.evidence.tenures import Decision


STARTED: Final = "election_started"  # fact: ZooKeeper's controller starts an election, and what triggered it
BY_ITSELF: Final = "triggered by AutoTriggered"
STARTED_BEFORE_US: Final = 5_000_000  # how long before its decision an election's line may stand
OLDER = "it led already where what is at hand begins"


def away_after(state: str | None, row: Row) -> str | None:
    """Why a broker is away after a registration change, given why it was before; None: it is not away."""
    if row["in_controlled_shutdown"]:
        return "controlled_shutdown"
    if row["fenced"]:
        return "fenced" if state is None or row["record_type"] == "REGISTER_BROKER_RECORD" else state
    return None if row["fenced"] is False else state


class Going:
    """Why each broker went away, from the changes of its registration."""

    def __init__(self, changes: list[Row]) -> None:
        """`changes`: registrations and fencing, in metadata order."""
        self.rows: dict[int, list[Row]] = defaultdict(list)
        self.states: dict[int, list[str | None]] = defaultdict(lambda: [None])  # before the first change, after each
        for row in changes:
            states = self.states[row["subject_broker_id"]]
            states.append(away_after(states[-1], row))
            self.rows[row["subject_broker_id"]].append(row)

    def cause_of(self, decision: Decision, broker: int) -> str | None:
        """'fenced' or 'controlled_shutdown' if the decision came with or after that change of `broker`, else None."""
        here, rows = decision.row["metadata_offset"], self.rows.get(broker)
        if here is None or rows is None:
            return None
        place = bisect_right(rows, here, key=lambda row: row["metadata_offset"])
        while place < len(rows) and rows[place]["ts"] == decision.row["ts"]:
            place += 1
        return self.states[broker][place]


def change_of(decision: Decision, before: Decision | None, going: Going) -> str:
    """What a decision did to the ISR, as in `isr_timeline.change`."""
    if before is None:
        return "initial" if is_creation(decision) else "other"
    if decision.replicas != before.replicas or decision.adding != before.adding or decision.removing != before.removing:
        return "reassignment"
    left, joined = set(before.isr) - set(decision.isr), set(decision.isr) - set(before.isr)
    for broker in sorted(left | ({before.leader} if decision.elects and before.leader >= 0 else set())):
        cause = going.cause_of(decision, broker)
        if cause:
            return cause
    if decision.elects:
        return "election"
    if left:
        return "shrink"
    return "expand" if joined else "other"


def was_elected_away(decision: Decision) -> bool:
    """Whether the last known leader was elected although it was away (up to 4.0.0, KAFKA-19522)."""
    vote = decision.vote
    return vote is not None and vote.choice.rule == LAST_KNOWN_LEADER and decision.leader not in vote.ballot.live


def election_of(decisions: list[Decision], place: int, going: Going) -> tuple[str, str]:
    """How the leader of the electing decision at `place` was elected, and what triggered it, in words."""
    decision = decisions[place]
    if not place:
        return ("initial", "the partition was created") if is_creation(decision) else ("clean", OLDER)
    before = decisions[place - 1]
    if decision.leader < 0 and decision.row["metadata_offset"] is None:
        return "offline", f"broker {before.leader} was gone"  # ZooKeeper: an election of its own follows, or fails
    if decision.leader < 0:
        return "offline", f"no eligible replica was left when broker {before.leader} was gone"
    last_isr = next((decisions[k].isr for k in range(place - 1, -1, -1) if decisions[k].isr), ())
    eligible = set(last_isr) | set(before.elr or ())
    moved = before.adding or before.removing or decision.replicas != before.replicas
    alone = decision.isr == (decision.leader,)  # an unclean election leaves nobody else in the ISR
    if (decision.recovering and not before.recovering) or (decision.leader not in eligible and not moved and alone):
        if decision.vote is not None and decision.vote.asked:
            return "unclean", "an operator asked for an unclean election"
        if was_elected_away(decision):
            return "unclean", f"broker {decision.leader}, the last known leader, was elected before it was back"
        if decision.leader in last_isr:
            return "unclean", f"broker {decision.leader}, last of the ISR, came back with no sure copy of its log"
        return "unclean", f"broker {decision.leader} was outside the last ISR {list(last_isr)}"
    if before.leader < 0 and before.vote is not None and decision.leader in before.vote.ballot.live:
        last = next((decisions[k].leader for k in range(place - 1, -1, -1) if decisions[k].leader >= 0), -1)
        return "clean", f"broker {last} was gone"
    if before.leader < 0:
        return "clean", f"broker {decision.leader} came back"
    led = before.leader
    cause = going.cause_of(decision, led) if led != decision.leader else None
    kind = decision.vote.ballot.kind if decision.vote is not None else None
    if cause == "controlled_shutdown" or kind == "controlled_shutdown":
        return "controlled_shutdown", f"broker {led} shut down in order"
    if cause == "fenced":
        return "clean", f"broker {led} was fenced"
    if decision.vote is not None and decision.vote.lost_directory == led:
        return "clean", f"broker {led} lost the log directory"
    if moved:
        return "reassignment", "the assignment changed"
    if led == decision.leader:
        return "clean", f"broker {led} keeps leading: a new epoch for a change of the ISR"
    if kind == "offline":
        return "clean", f"broker {led} was gone"
    if led not in decision.isr:
        return "clean", f"broker {led} left the ISR"
    if decision.replicas and decision.leader == decision.replicas[0]:
        return "preferred", f"broker {decision.leader} is the preferred leader"
    return "clean", f"leadership moved from broker {led}"


def was_asked_for(decision: Decision, started: Sequence[Row]) -> bool | None:
    """Whether somebody asked for a preferred election; False: ZooKeeper's controller began it by itself.

    `started`: its lines about elections that it starts, which say what triggered them (KafkaController). None: no line
    tells. KRaft's controller writes none.
    """
    if decision.election != "preferred" or decision.row["metadata_offset"] is not None:
        return None
    since, until = decision.us - STARTED_BEFORE_US, decision.us + CLOCK_SLACK_US
    lines = [row for row in started if row["value"] == "PREFERRED" and since <= micros(row["ts"]) <= until]
    last = max(lines, key=lambda row: (row["ts"], row["fact_id"]), default=None)
    return None if last is None else not (last["text"] or "").endswith(BY_ITSELF)


def explain(decisions: list[Decision], changes: list[Row], lines: Sequence[Row] = ()) -> None:
    """Set `change`, `election`, `trigger` and `asked_for` of every decision.

    `lines`: of controllers (facts `state_change`).
    """
    going = Going(changes)
    started = [row for row in lines if row["name"] == STARTED and row["ts"] is not None]
    for place, decision in enumerate(decisions):
        decision.change = change_of(decision, decisions[place - 1] if place else None, going)
        if decision.elects:
            decision.election, decision.trigger = election_of(decisions, place, going)
            decision.asked_for = was_asked_for(decision, started)
