"""What a leader's lines about its ISR say in words: why an update failed, who is out of sync, who joins."""

from __future__ import annotations

import re
from typing import Final

from replay.engine.codes import (
    FENCED_LEADER_EPOCH,
    INELIGIBLE_REPLICA,
    INVALID_REQUEST,
    INVALID_UPDATE_VERSION,
    NEW_LEADER_ELECTED,
    OPERATION_NOT_ATTEMPTED,
    UNKNOWN_TOPIC_ID,
)
from replay.protocol.produce import UNKNOWN_TOPIC_OR_PARTITION

ERRORS: Final = (  # what a line about a rejected update says -> error code
    ("OPERATION_NOT_ATTEMPTED", OPERATION_NOT_ATTEMPTED),
    ("INELIGIBLE_REPLICA", INELIGIBLE_REPLICA),
    ("leader epoch is old", FENCED_LEADER_EPOCH),
    ("old leader epoch", FENCED_LEADER_EPOCH),  # 2.7-3.1
    ("partition epoch is invalid", INVALID_UPDATE_VERSION),
    ("invalid version", INVALID_UPDATE_VERSION),  # 2.7-3.1
    ("request is invalid", INVALID_REQUEST),
    ("about this topic or partition", UNKNOWN_TOPIC_OR_PARTITION),
    ("about this topic", UNKNOWN_TOPIC_ID),
    ("removed from the replica set", NEW_LEADER_ELECTED),
    ("unexpected", -1),
)
OUT_OF_SYNC: Final = re.compile(r"\(brokerId: (\d+), endOffset: (-?\d+)")


def error_in(words: str) -> int | None:
    """Return the error code of a failed update; None: the words name no error, because only its answer was late."""
    return next((code for said, code in ERRORS if said in words), None)


FAILED: Final = (("error_code", error_in),)  # how a rule of a failed update reads its groups


def leos_in(words: str) -> str | None:
    """Return the replicas that are out of sync with their LEOs, as `2:40 3:38`; None: the line names none."""
    return " ".join(f"{broker}:{end}" for broker, end in OUT_OF_SYNC.findall(words)) or None


def joining_in(words: str) -> int | None:
    """Return the broker that only the new ISR has (`2 to 2,3`: 3); None if it is not exactly one."""
    before, _, after = words.partition(" to ")
    joining = {int(b) for b in after.split(",") if b} - {int(b) for b in before.split(",") if b}
    return min(joining) if len(joining) == 1 else None
