"""All tables, in the order of docs/tables.md: the replay's, and those around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import consequences, incidents, leadership, meters, offsets, rounds, states
from schemas.events import REPLICATION_EVENTS
from schemas.facts import FACTS
from schemas.meters import CLUSTER_METRICS
from schemas.runs import COVERAGE, EXPECTATION_RESULTS, FILES, INCIDENT_REPORTS, REJECTED_LINES, RUNS, SET_ASIDE
from schemas.windows import EVENT_WINDOWS, ORDER_STATES, REPLAY_CHECKPOINTS

if TYPE_CHECKING:
    from schemas.model import Table

REPLAY_TABLES: tuple[Table, ...] = (
    *offsets.TABLES,
    *leadership.TABLES,
    *states.TABLES,
    *rounds.TABLES,
    *incidents.TABLES,
    *consequences.TABLES,
    *meters.TABLES,
)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        FACTS,
        REPLICATION_EVENTS,
        *REPLAY_TABLES,
        CLUSTER_METRICS,
        EVENT_WINDOWS,
        REPLAY_CHECKPOINTS,
        ORDER_STATES,
        COVERAGE,
        FILES,
        REJECTED_LINES,
        SET_ASIDE,
        EXPECTATION_RESULTS,
        INCIDENT_REPORTS,
        RUNS,
    )
}
