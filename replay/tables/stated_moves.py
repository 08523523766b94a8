"""Derived transitions compared with those that ZooKeeper controllers logged (TRACE `Changed partition/state of`).

A new controller initializes its state machines: what it finds then is no transition, and a replica that it finds dead
is briefly DeletionIneligible. The comparison is therefore between the states that each machine went through, without
repetitions.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

from replay.protocol.state_machines import DELETION_INELIGIBLE, NON_EXISTENT, PARTITION, REPLICA, STATED

Move = dict[str, Any]


def stated_moves(observations: list[dict[str, Any]]) -> list[Move]:
    """Transitions from observations, named as in the state machines, in the controllers' order."""
    out = []
    for row in sorted(observations, key=lambda r: (r["ts"], r["seq"])):
        if row["cause"] == STATED:
            machine = PARTITION if row["replica_id"] is None else REPLICA
            suffix = machine.capitalize()
            before, after = (row[name].removesuffix(suffix).removeprefix(suffix) for name in ("state_before", "state"))
            out.append(
                {**row, "machine": machine, "broker_id": row["replica_id"], "state_before": before, "state": after}
            )
    return out


def path(moves: list[Move]) -> list[tuple[str, int]]:
    """The states that one machine went through, each with the seq of the transition into it."""
    states: list[tuple[str, int]] = []
    for move in moves:
        for state in (move["state_before"], move["state"]):
            found_dead = state == DELETION_INELIGIBLE and state == move["state_before"]
            if not found_dead and state != (states[-1][0] if states else NON_EXISTENT):
                states.append((state, move["seq"]))
    return states


def stated_checks(derived: list[Move], observations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `conformance`: `partition_state` and `replica_state`; none if no controller logged anything."""
    stated = stated_moves(observations)
    out = []
    for machine in (PARTITION, REPLICA):
        told = [move for move in stated if move["machine"] == machine]
        if not told:
            continue
        compared = matched = 0
        wrong: list[tuple[int, str]] = []
        for broker in sorted({move["broker_id"] for move in told}, key=lambda b: -1 if b is None else b):
            theirs = path([move for move in told if move["broker_id"] == broker])
            ours = path([move for move in derived if move["machine"] == machine and move["broker_id"] == broker])
            matcher = SequenceMatcher(None, [s for s, _ in theirs], [s for s, _ in ours], autojunk=False)
            blocks = matcher.get_matching_blocks()
            equal = {block.a + k for block in blocks for k in range(block.size)}
            compared, matched = compared + len(theirs), matched + len(equal)
            wrong += [(seq, f"{machine} {broker}: {s}") for k, (s, seq) in enumerate(theirs) if k not in equal]
        out.append(
            {
                "check": f"{machine}_state",
                "compared": compared,
                "matched": matched,
                "first_mismatch_seq": min(wrong)[0] if wrong else None,
                "note": f"{min(wrong)[1]}, not derived" if wrong else None,
            }
        )
    return out
