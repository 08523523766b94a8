"""Views over the tables for SQL and BI tools: what is nested in a table is in rows and plain columns here.

Each is written once, in SQL that DuckDB and Polars take as it stands; `pipelines.warehouse.views` says it to Spark.
Only lists are unnested by each engine in its own way, so a view states which lists it unnests, and what its SQL then
reads is called `unnested`: the table's columns without its lists, `place` from 1 on, and the columns of the elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

UNNESTED: Final = "unnested"
PLACE: Final = "place"


@dataclass(frozen=True, slots=True)
class View:
    """A view: `comment` is a sentence on what a row is, `reason` why there is such a view."""

    name: str
    comment: str
    reason: str
    table: str
    sql: str
    # Lists of equal length that are unnested side by side, and what their elements are called then: a name for an
    # element that is a plain value, else one for each of its fields.
    lists: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)


_INCIDENT: Final = "recording_id, topic, incarnation, partition, incident_id, mechanism, severity"

LOST_RANGES = View(
    "lost_ranges",
    "A stretch of lost offsets of one leader epoch, first and last inclusive; last_offset null: open end.",
    "An incident lists its ranges in an array; to join them with anything they have to be rows.",
    "data_loss_incidents",
    f"""
    SELECT {_INCIDENT}, place, slot_epoch AS leader_epoch, slot_first AS first_offset, slot_last AS last_offset,
           slot_last - slot_first + 1 AS records, losing_broker_id, lost_ts, truncated_ts, evidence
    FROM unnested
    """,
    {"ranges": {"leader_epoch": "slot_epoch", "first_offset": "slot_first", "last_offset": "slot_last"}},
)

INCIDENTS = View(
    "incidents",
    "An incident without nested columns: lists are text, and the times between its steps are seconds.",
    "BI tools take no arrays; and engines subtract times each in their own way.",
    "data_loss_incidents",
    f"""
    SELECT {_INCIDENT}, evidence, first_offset, last_offset, records, acked_all, acked_one, acked_possible,
           acked_unconfirmed, unacked, failed_appended, committed, consumed, aborted,
           array_to_string(producers, ', ') AS producers, array_to_string(consumers, ', ') AS consumers,
           losing_broker_id, old_leader_id, old_leader_epoch, new_leader_id, new_leader_epoch,
           first_ack_ts, last_ack_ts, lost_ts, truncated_ts,
           round(EXTRACT(EPOCH FROM lost_ts) - EXTRACT(EPOCH FROM first_ack_ts), 3) AS first_ack_to_loss_s,
           round(EXTRACT(EPOCH FROM lost_ts) - EXTRACT(EPOCH FROM last_ack_ts), 3) AS last_ack_to_loss_s,
           round(EXTRACT(EPOCH FROM truncated_ts) - EXTRACT(EPOCH FROM lost_ts), 3) AS loss_to_cut_s,
           array_to_string(prevention, '; ') AS prevention, explanation
    FROM data_loss_incidents
    """,
)

INCIDENT_ACKNOWLEDGEMENTS = View(
    "incident_acknowledgements",
    "How many lost records of an incident had which answer, and how sure that is: the levels exclude each other.",
    "A stacked bar, or a sum over incidents by acknowledgement, needs a row for each level.",
    "data_loss_incidents",
    " UNION ALL ".join(
        f"SELECT {_INCIDENT}, '{level}' AS acknowledgement, '{certainty}' AS certainty, {column} AS records "
        f"FROM data_loss_incidents WHERE {column} IS NOT NULL"
        for level, certainty, column in (
            ("acks=all", "at least", "acked_all"),
            ("acks=1", "at least", "acked_one"),
            ("either", "possible", "acked_possible"),
            ("answered to a client that had given up", "possible", "acked_unconfirmed"),
            ("none", "as far as known", "unacked"),
        )
    ),
)

INCIDENT_STEPS = View(
    "incident_steps",
    "A link of the chain that led to a loss, in order, with the line that states it.",
    "An incident lists its chain and the chain's sources in two arrays.",
    "data_loss_incidents",
    f"""
    SELECT {_INCIDENT}, lost_ts, place, step_seq AS seq, step_ts AS ts, step_what AS what, step_source AS source
    FROM unnested
    """,
    {"chain": {"seq": "step_seq", "ts": "step_ts", "what": "step_what"}, "chain_sources": "step_source"},
)

INCIDENT_REMEDIES = View(
    "incident_remedies",
    "A setting that would have kept the records of an incident, the most direct first, and why it would.",
    "An incident lists settings and reasons in two arrays; a count by setting needs rows.",
    "data_loss_incidents",
    f"""
    SELECT {_INCIDENT}, records, acked_all, acked_one, place, remedy AS setting, remedy_reason AS reason
    FROM unnested
    """,
    {"prevention": "remedy", "prevention_reasons": "remedy_reason"},
)

ISR_MOVES = View(
    "isr_moves",
    "A replica that joined or left the ISR in one row of isr_timeline, with its own reason and distance.",
    "One change may move several replicas, which isr_timeline lists in an array of structs.",
    "isr_timeline",
    """
    SELECT recording_id, topic, incarnation, partition, seq, ts, leader_id, leader_epoch, state, change,
           array_to_string(isr_before, ', ') AS isr_before, array_to_string(isr, ', ') AS isr, under_min_isr, place,
           mover_id AS broker_id, mover_joined AS joined, mover_reason AS reason, mover_gap AS leo_gap,
           mover_ms AS ms_since_caught_up, mover_fetches AS fetches_in_lag_time, mover_fetch_ts AS last_fetch_ts,
           evidence
    FROM unnested
    """,
    {
        "movers": {
            "broker_id": "mover_id",
            "joined": "mover_joined",
            "reason": "mover_reason",
            "leo_gap": "mover_gap",
            "ms_since_caught_up": "mover_ms",
            "fetches_in_lag_time": "mover_fetches",
            "last_fetch_ts": "mover_fetch_ts",
        }
    },
)

ELECTIONS = View(
    "elections",
    "A leader epoch, as in leadership_timeline; its lists of brokers are text.",
    "BI tools take no arrays, and who could have led is what one wants to read beside who did.",
    "leadership_timeline",
    """
    SELECT recording_id, topic, incarnation, partition, leader_epoch, leader_id, start_ts, end_ts,
           round(EXTRACT(EPOCH FROM end_ts) - EXTRACT(EPOCH FROM start_ts), 3) AS seconds, start_offset, hw_at_start,
           election, trigger, previous_leader_id, previous_leo, previous_hw,
           array_to_string(candidates, ', ') AS candidates, array_to_string(live, ', ') AS live,
           array_to_string(in_sync, ', ') AS in_sync, rule, predicted_leader_id, records_at_risk, committed_at_risk,
           evidence
    FROM leadership_timeline
    """,
)

VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        INCIDENTS,
        LOST_RANGES,
        INCIDENT_ACKNOWLEDGEMENTS,
        INCIDENT_STEPS,
        INCIDENT_REMEDIES,
        ISR_MOVES,
        ELECTIONS,
    )
}
