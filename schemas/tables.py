"""All tables, in the order of docs/tables.md: the replay's, and those around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.consequences import CONSUMER_EFFECTS, PARTITION_RISK, REPLICA_DIVERGENCES
from schemas.events import REPLICATION_EVENTS
from schemas.facts import FACTS
from schemas.incidents import CONFORMANCE, DATA_LOSS_INCIDENTS
from schemas.rounds import COMMIT_LATENCY, FETCH_ROUNDS
from schemas.runs import COVERAGE, EXPECTATION_RESULTS, REJECTED_LINES, RUNS, SET_ASIDE
from schemas.states import FOLLOWER_STATES, STATE_TRANSITIONS
from schemas.timelines import (
    HW_TIMELINE,
    ISR_FLAPS,
    ISR_TIMELINE,
    LEADERSHIP_TIMELINE,
    LEO_TIMELINE,
    LOG_START_TIMELINE,
    LOG_TRUNCATIONS,
)

if TYPE_CHECKING:
    from schemas.model import Table

REPLAY_TABLES: tuple[Table, ...] = (
    LEO_TIMELINE,
    HW_TIMELINE,
    ISR_TIMELINE,
    ISR_FLAPS,
    LEADERSHIP_TIMELINE,
    STATE_TRANSITIONS,
    FOLLOWER_STATES,
    LOG_TRUNCATIONS,
    LOG_START_TIMELINE,
    FETCH_ROUNDS,
    COMMIT_LATENCY,
    DATA_LOSS_INCIDENTS,
    REPLICA_DIVERGENCES,
    PARTITION_RISK,
    CONSUMER_EFFECTS,
    CONFORMANCE,
)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        FACTS,
        REPLICATION_EVENTS,
        *REPLAY_TABLES,
        COVERAGE,
        REJECTED_LINES,
        SET_ASIDE,
        EXPECTATION_RESULTS,
        RUNS,
    )
}
