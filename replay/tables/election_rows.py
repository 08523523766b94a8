"""Elections in the tables: columns of `leadership_timeline`, offsets at risk, and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replay.protocol.election_rules import NO_LEADER, NOT_KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.losses.loss_ledger import Log

BALLOT_COLUMNS = ("candidates", "live", "in_sync", "rule")


def ballot_columns(decision: dict[str, Any]) -> dict[str, Any]:
    """The columns of `leadership_timeline` that come from the decision's event."""
    predicted = decision.get("predicted_leader_id")
    columns = {name: decision.get(name) for name in BALLOT_COLUMNS}
    return {**columns, "predicted_leader_id": predicted if predicted != NO_LEADER else None}


def at_risk(previous: int | None, start: int | None) -> int | None:
    """Offsets that the previous leader held (by LEO) or exposed (by HW) and that the new leader's log lacks."""
    return None if previous is None or start is None else max(previous - start, 0)


def risk_columns(row: dict[str, Any]) -> dict[str, Any]:
    """What a leader change put at risk, once its start offset is known."""
    return {
        "records_at_risk": at_risk(row["previous_leo"], row["start_offset"]),
        "committed_at_risk": at_risk(row["previous_hw"], row["start_offset"]),
    }


def election_checks(decisions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `conformance`: the leader and ISR that the rule predicts against those chosen.

    `election_choice`: decisions that begin a leader epoch. `leader_stays`: all others, where the rule must find nothing
    to elect. `election_isr`: the ISR that goes with the leader.
    """
    rows = [row for row in decisions if row.get("rule") is not None]
    known = [row for row in rows if row["rule"] != NOT_KNOWN]
    elects = [row for row in known if row["election"] is not None]
    stays = [row for row in known if row["election"] is None]
    isrs = [row for row in elects if row["predicted_isr"] is not None]
    checks = [
        check(
            "election_choice",
            elects,
            "predicted_leader_id",
            "leader_id",
            open_=sum(row["election"] is not None for row in rows) - len(elects),
        ),
        check("leader_stays", stays, "predicted_leader_id", "leader_id"),
        check("election_isr", isrs, "predicted_isr", "isr"),
    ]
    return [row for row in checks if row["compared"] or row["note"]]


def check(name: str, rows: list[dict[str, Any]], computed: str, stated: str, *, open_: int = 0) -> dict[str, Any]:
    """One row of `conformance`; `open_`: how many could not be compared."""
    wrong = [row for row in rows if row[computed] != row[stated]]
    note = f"{open_} not compared: nothing says who was alive" if open_ else None
    if wrong:
        note = (
            f"leader epoch {wrong[0]['leader_epoch']}: {wrong[0]['rule']} {wrong[0][computed]}, was {wrong[0][stated]}"
        )
    return {
        "check": name,
        "compared": len(rows),
        "matched": len(rows) - len(wrong),
        "first_mismatch_seq": wrong[0]["seq"] if wrong else None,
        "note": note,
    }


def leadership_row(decision: dict[str, Any], epoch: int, old: Log | None) -> dict[str, Any]:
    """A row of `leadership_timeline` for an epoch that begins.

    `old`: the previous leader's log, if it had one. The new leader's start offset is added once it has its role.
    """
    leader = decision["leader_id"]
    return {
        "leader_epoch": epoch,
        "leader_id": leader if leader is not None and leader >= 0 else None,
        "start_ts": decision["ts"],
        "end_ts": None,
        "start_offset": None,
        "hw_at_start": None,
        "election": decision["election"] or "clean",
        "trigger": decision["trigger"],
        "asked_for": decision.get("asked_for"),
        "previous_leader_id": old.leader if old else None,
        "previous_leo": old.leo if old else None,
        "previous_hw": old.hw if old else None,
        "records_at_risk": None,
        "committed_at_risk": None,
        **ballot_columns(decision),
        "evidence": "observed" if decision.get("evidence") == "observed" else "derived",
    }
