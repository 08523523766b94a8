"""Which tables are validated, and every rule about them: those of the house, as an operator set them, and one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipelines.expectations.chosen import applied
from pipelines.expectations.completeness import COMPLETENESS
from pipelines.expectations.invariants import CONFORMANCE_TIES, invariants
from pipelines.expectations.rules import TableRule, table_rules
from schemas.events import REPLICATION_EVENTS
from schemas.facts import FACTS
from schemas.meters import CLUSTER_METRICS
from schemas.runs import COVERAGE, FILES, INCIDENT_REPORTS, REJECTED_LINES, RUNS, SET_ASIDE
from schemas.tables import REPLAY_TABLES
from schemas.windows import EVENT_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Mapping

VALIDATED: Final = (
    FACTS, REPLICATION_EVENTS, *REPLAY_TABLES, CLUSTER_METRICS, COVERAGE, REJECTED_LINES, SET_ASIDE, INCIDENT_REPORTS
)  # fmt: skip
# Tables that rules look into, of which the schema's demands are left to Delta: they are Tidemark's own books.
LOOKED_INTO: Final = (FILES, RUNS, EVENT_WINDOWS)
EVERY: Final = (*VALIDATED, *LOOKED_INTO)


def house_rules(ties: int = CONFORMANCE_TIES) -> list[TableRule]:
    """Return the rules of all validated tables, then those across tables, as they are without any settings."""
    of_schemas = (rule for table in VALIDATED for rule in table_rules(table))
    return [*of_schemas, *invariants(ties), *COMPLETENESS]


def all_rules(
    ties: int = CONFORMANCE_TIES, said: Mapping[str, Any] | None = None, source: str | None = None
) -> list[TableRule]:
    """Return every rule that is evaluated; `said`: what an expectations file says, None: nothing; `source`: the file.

    InputError if something in it is not understood.
    """
    return applied(house_rules(ties), said or {}, VALIDATED, source)
