"""What must hold across rows and tables: the replication protocol's guarantees, and what the report relies on.

Only values that are known exactly (`observed`, `derived`) can break a guarantee of the protocol: a bounded value is the
cautious end of an interval. Each SELECT returns the place (topic, incarnation, partition, seq) and the values at odds.
"""

from __future__ import annotations

from typing import Final

from pipelines.expectations.rules import PARTITION, Carried, Severity, TableRule, same_partition, with_answer
from pipelines.warehouse.contract import sql_string

# A row and all rows at or before it; `turn` orders rows of the same seq.
_SO_FAR: Final = "ORDER BY seq, turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
_BEFORE: Final = "ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_PARTITION: Final = ", ".join(PARTITION)
_WITH_SEQ: Final = (
    "leo_timeline",
    "hw_timeline",
    "isr_timeline",
    "log_truncations",
    "transactions",
    "state_transitions",
    "follower_states",
    "isr_flaps",
    "log_start_timeline",
    "segment_timeline",
    "fetch_rounds",
    "commit_latency",
    "partition_risk",
    "consumer_effects",
    "partition_meters",
)
_EXACT: Final = "('observed', 'derived')"
CONFORMANCE_MIN_PERCENT: Final = 99
CONFORMANCE_TIES: Final = 2  # default of the setting `conformance_ties`
# Checks that depend on when a broker did something. If two threads act in the same millisecond, no line tells which was
# first, and a clean recording may hold one or two such ties among ten comparisons. Other checks hold in any order.
DECIDED_BY_TIME: Final = (
    "alter_partition", "broker_epoch", "commit_before_ack", "delayed_produce", "delete_records", "election_choice",
    "election_isr", "fetch_completion", "follower_read", "isr_expiry", "isr_propagation", "leader_hw_by_lines",
    "leader_hw_line", "low_watermark", "overdue_shrink", "predicted_expansion", "predicted_shrink", "preferred_replica",
    "produce_guard", "produce_refusal", "produce_timeout", "replication_quota", "response_hw", "role_hw",
)  # fmt: skip


HW_WITHIN_LEO = TableRule(
    "hw_within_leo",
    "hw_timeline",
    "A broker's high watermark is never beyond its own log end offset.",
    reads=("leo_timeline",),
    onward=True,
    carried={"leo_timeline": Carried(("broker_id", "observer", "evidence"), ("leo",))},
    breaches=f"""
    WITH moves AS (
      SELECT {_PARTITION}, broker_id, seq, 0 AS turn, leo, evidence IN {_EXACT} AS leo_exact,
             CAST(NULL AS BIGINT) AS hw, false AS hw_exact
      FROM {{leo_timeline}} WHERE observer = 'local'
      UNION ALL
      SELECT {_PARTITION}, broker_id, seq, 1, CAST(NULL AS BIGINT), CAST(NULL AS BOOLEAN), hw, evidence IN {_EXACT}
      FROM {{hw_timeline}}
    ), together AS (
      SELECT {_PARTITION}, broker_id, seq, hw, hw_exact,
             last_value(leo, true) OVER so_far AS leo, last_value(leo_exact, true) OVER so_far AS leo_exact
      FROM moves WINDOW so_far AS (PARTITION BY {_PARTITION}, broker_id {_SO_FAR})
    )
    SELECT {_PARTITION}, seq, broker_id, hw, leo FROM together WHERE hw_exact AND leo_exact AND hw > leo""",
)

LEADER_HW_NEVER_BACK = TableRule(
    "leader_hw_never_back",
    "hw_timeline",
    "Within its epoch a leader's high watermark never goes back; only taking up the role starts it anew.",
    onward=True,
    carried={"hw_timeline": Carried(("broker_id", "role", "leader_epoch", "evidence", "step"), ("hw",))},
    breaches=f"""
    WITH terms AS (
      SELECT *, IF(step = 'role', 0, 1) AS turn,
             count_if(step = 'role') OVER (PARTITION BY {_PARTITION}, broker_id, leader_epoch
               ORDER BY seq, IF(step = 'role', 0, 1) ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS term
      FROM {{hw_timeline}} WHERE role = 'leader' AND evidence IN {_EXACT}
    ), climbs AS (
      SELECT *, max(hw) OVER (PARTITION BY {_PARTITION}, broker_id, leader_epoch, term
        ORDER BY seq, turn, hw ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS hw_reached
      FROM terms
    )
    SELECT {_PARTITION}, seq, broker_id, leader_epoch, hw_reached, hw FROM climbs WHERE hw < hw_reached""",
)

COVERAGE_DISJOINT = TableRule(
    "coverage_disjoint",
    "coverage",
    "The stretches of one log do not overlap.",
    breaches="""
    SELECT broker_id, source, before, start_ts FROM (
      SELECT *, lag(end_ts) OVER (PARTITION BY broker_id, source ORDER BY start_ts, end_ts) AS before FROM {coverage}
    ) WHERE before > start_ts""",
)

LOCAL_LEO_NOT_NEGATIVE = TableRule(
    "local_leo_not_negative",
    "leo_timeline",
    "A replica's own log end offset is never negative.",
    breaches=f"""
    SELECT {_PARTITION}, seq, broker_id, leo FROM {{leo_timeline}} WHERE observer = 'local' AND leo < 0""",
)

# The controller's decisions and the committed ISR rows in one order, to know what was in force at each commit.
_ISR_IN_FORCE: Final = f"""
    WITH decisions AS (
      SELECT {_PARTITION}, seq, 0 AS turn, replicas, coalesce(recovering, false) AS recovering,
             CAST(NULL AS INT) AS leader_id, CAST(NULL AS ARRAY<INT>) AS isr
      FROM {{replication_events}} WHERE kind = 'partition_change'
      UNION ALL
      SELECT {_PARTITION}, seq, 1, CAST(NULL AS ARRAY<INT>), CAST(NULL AS BOOLEAN), leader_id, isr
      FROM {{isr_timeline}} WHERE state = 'committed'
    ), in_force AS (
      SELECT {_PARTITION}, seq, turn, leader_id, isr,
             last_value(replicas, true) OVER so_far AS assignment,
             last_value(recovering, true) OVER so_far AS recovering
      FROM decisions WINDOW so_far AS (PARTITION BY {_PARTITION} {_SO_FAR})
    )"""

ISR_WITHIN_ASSIGNMENT = TableRule(
    "isr_within_assignment",
    "isr_timeline",
    "A committed ISR holds only replicas of the assignment in force.",
    reads=("replication_events",),
    breaches=f"""{_ISR_IN_FORCE}
    SELECT {_PARTITION}, seq, isr, assignment FROM in_force
    WHERE turn = 1 AND assignment IS NOT NULL AND size(array_except(isr, assignment)) > 0""",
)

LEADER_IN_ISR = TableRule(
    "leader_in_isr",
    "isr_timeline",
    "The leader is in the committed ISR, unless it is offline or recovering from an unclean election.",
    reads=("replication_events",),
    breaches=f"""{_ISR_IN_FORCE}
    SELECT {_PARTITION}, seq, leader_id, isr FROM in_force
    WHERE turn = 1 AND leader_id >= 0 AND NOT array_contains(isr, leader_id) AND NOT coalesce(recovering, false)""",
)

LEADER_EPOCH_NEVER_BACK = TableRule(
    "leader_epoch_never_back",
    "isr_timeline",
    "From one committed ISR to the next the leader epoch never goes back.",
    breaches=f"""
    SELECT {_PARTITION}, seq, epoch_reached, leader_epoch FROM (
      SELECT *, max(leader_epoch) OVER (PARTITION BY {_PARTITION} {_BEFORE}) AS epoch_reached
      FROM {{isr_timeline}} WHERE state = 'committed')
    WHERE leader_epoch < epoch_reached""",
)

PARTITION_EPOCH_ONLY_UP = TableRule(
    "partition_epoch_only_up",
    "isr_timeline",
    "Every committed ISR has a partition epoch of its own, higher than all before it.",
    breaches=f"""
    SELECT {_PARTITION}, seq, epoch_reached, partition_epoch FROM (
      SELECT *, max(partition_epoch) OVER (PARTITION BY {_PARTITION} {_BEFORE}) AS epoch_reached
      FROM {{isr_timeline}} WHERE state = 'committed')
    WHERE partition_epoch <= epoch_reached""",
)

TRUNCATION_CUTS = TableRule(
    "truncation_cuts",
    "log_truncations",
    "A truncation never makes a log longer.",
    breaches=f"""
    SELECT {_PARTITION}, seq, broker_id, leo_before, leo_after FROM {{log_truncations}} WHERE leo_after > leo_before""",
)

LOSS_WITHIN_CUT = TableRule(
    "loss_within_cut",
    "data_loss_incidents",
    "Every lost range was replaced by the new leader's epoch, or lies inside a range that a replica cut; without a new "
    "leader, dumps show it.",
    reads=("leadership_timeline", "log_truncations"),
    breaches=f"""
    WITH lost AS (
      SELECT {_PARTITION}, incident_id, new_leader_epoch, range.* FROM (
        SELECT *, explode(ranges) AS range FROM {{data_loss_incidents}} WHERE new_leader_id IS NOT NULL)
    ), kept AS (
      SELECT lost.* FROM lost LEFT ANTI JOIN {{leadership_timeline}} AS term
        ON {same_partition("lost", "term")} AND lost.new_leader_epoch = term.leader_epoch
        AND (term.start_offset IS NULL OR term.start_offset <= lost.first_offset)
    )
    SELECT kept.* FROM kept LEFT ANTI JOIN {{log_truncations}} AS cut
      ON {same_partition("kept", "cut")} AND cut.leo_after <= kept.first_offset
      AND (kept.last_offset IS NULL OR cut.leo_before IS NULL OR kept.last_offset < cut.leo_before)""",
)

LOSS_TOTALS = TableRule(
    "loss_totals",
    "data_loss_incidents",
    "First offset, last offset and number of lost records are those of the lost ranges.",
    breaches=f"""
    SELECT {_PARTITION}, incident_id, first_offset, last_offset, records, ranges FROM {{data_loss_incidents}}
    WHERE first_offset <> array_min(transform(ranges, r -> r.first_offset))
      OR (cardinality(filter(ranges, r -> r.last_offset IS NULL)) = 0 AND (
        last_offset <> array_max(transform(ranges, r -> r.last_offset))
        OR records <> aggregate(ranges, 0L, (total, r) -> total + r.last_offset - r.first_offset + 1)))""",
)

LOSS_ACCOUNTED = TableRule(
    "loss_accounted",
    "data_loss_incidents",
    "Acknowledged, never acknowledged, unconfirmed and possibly acknowledged records make up those that were lost.",
    breaches=f"""
    SELECT {_PARTITION}, incident_id, records, acked_all, acked_one, unacked, acked_unconfirmed, acked_possible
    FROM {{data_loss_incidents}}
    WHERE acked_all + acked_one + unacked + acked_unconfirmed + acked_possible <> records
      OR failed_appended > unacked OR committed > records OR consumed > records OR aborted > acked_all + acked_one
      OR greatest(acked_all_possible, acked_one_possible) > acked_possible""",
)

DIVERGENCE_BELOW_HW = TableRule(
    "divergence_below_hw",
    "replica_divergences",
    "Two replicas are said to differ only below the high watermarks of both.",
    breaches=f"""
    SELECT {_PARTITION}, broker_a, broker_b, last_offset, hw_a, hw_b FROM {{replica_divergences}}
    WHERE last_offset >= least(hw_a, hw_b)""",
)

RISK_SPANS_APART = TableRule(
    "risk_spans_apart",
    "partition_risk",
    "Spans of one state follow each other: none begins before the one before it has ended.",
    breaches=f"""
    SELECT {_PARTITION}, seq, state, open_until FROM (
      SELECT *, max(coalesce(end_seq, 9223372036854775807)) OVER (PARTITION BY {_PARTITION}, state {_BEFORE})
        AS open_until
      FROM {{partition_risk}})
    WHERE seq < open_until""",
)


def _names_incident(table: str) -> TableRule:
    return TableRule(
        "names_incident",
        table,
        "A row that names an incident names one of its own partition.",
        reads=("data_loss_incidents",),
        breaches=f"""
    SELECT {", ".join(f"line.{n}" for n in ("topic", "incarnation", "partition", "seq", "incident_id"))}
    FROM {{{table}}} AS line LEFT ANTI JOIN {{data_loss_incidents}} AS loss
      ON {same_partition("line", "loss")} AND line.incident_id = loss.incident_id
    WHERE line.incident_id IS NOT NULL""",
    )


RISK_NAMES_INCIDENT = _names_incident("partition_risk")
EFFECT_NAMES_INCIDENT = _names_incident("consumer_effects")

COMMIT_RAISES_HW = TableRule(
    "commit_raises_hw",
    "commit_latency",
    "What committed a batch raised its leader's high watermark beyond it.",
    reads=("hw_timeline",),
    onward=True,
    reaches={"commit_latency": "commit_seq"},
    breaches=f"""
    SELECT {", ".join(f"batch.{n}" for n in ("topic", "incarnation", "partition", "seq", "commit_seq", "last_offset"))}
    FROM {{commit_latency}} AS batch LEFT ANTI JOIN {{hw_timeline}} AS raise
      ON {same_partition("batch", "raise")} AND batch.broker_id = raise.broker_id
      AND batch.commit_seq = raise.seq AND raise.hw > batch.last_offset
    WHERE batch.commit_seq IS NOT NULL""",
)

_NOT_OF_EVENTS: Final = f"""LEFT ANTI JOIN {{replication_events}} AS event
      ON {same_partition("line", "event")} AND line.seq = event.seq"""

ROWS_JOIN_EVENTS = TableRule(
    "rows_join_events",
    "replication_events",
    "Every row of a timeline stands at the seq of an event.",
    reads=_WITH_SEQ,
    onward=True,
    breaches=f"""
    SELECT line.* FROM ({
        " UNION ALL ".join(f"SELECT '{table}' AS in_table, {_PARTITION}, seq FROM {{{table}}}" for table in _WITH_SEQ)
    }) AS line {_NOT_OF_EVENTS}""",
)

NAMED_PLACES_JOIN_EVENTS = TableRule(
    "named_places_join_events",
    "replication_events",
    "Every seq that a row names beside its own is that of an event.",
    reads=("conformance", "partition_risk", "data_loss_incidents"),
    breaches=f"""
    SELECT line.* FROM (
      SELECT 'conformance' AS in_table, {_PARTITION}, first_mismatch_seq AS seq FROM {{conformance}}
      WHERE first_mismatch_seq IS NOT NULL
      UNION ALL SELECT 'partition_risk', {_PARTITION}, end_seq FROM {{partition_risk}} WHERE end_seq IS NOT NULL
      UNION ALL SELECT 'data_loss_incidents', {_PARTITION}, link.seq
      FROM (SELECT *, explode(chain) AS link FROM {{data_loss_incidents}}) WHERE link.seq IS NOT NULL
    ) AS line {_NOT_OF_EVENTS}""",
)

PARTITIONS_HAVE_ISR = TableRule(
    "partitions_have_isr",
    "replication_events",
    "Of every partition at least one committed ISR is known.",
    severity="warning",
    reads=("isr_timeline",),
    breaches=f"""
    SELECT event.* FROM (SELECT DISTINCT {_PARTITION} FROM {{replication_events}}) AS event
    LEFT ANTI JOIN {{isr_timeline}} AS line ON {same_partition("event", "line")} AND line.state = 'committed'""",
)


def engine_conforms(ties: int = CONFORMANCE_TIES) -> TableRule:
    """Return the rule about `conformance`; `ties`: the setting `conformance_ties`."""
    race = ", ".join(sql_string(name) for name in DECIDED_BY_TIME)
    return TableRule(
        "engine_conforms",
        "conformance",
        f"Of each check at least {CONFORMANCE_MIN_PERCENT:g} % of what was computed equals what the brokers reported; "
        f"of what two threads raced for, {ties} may differ however few there are.",
        severity="warning",
        breaches=f"""
    SELECT check, sum(compared) AS compared, sum(matched) AS matched FROM {{conformance}}
    GROUP BY check HAVING sum(matched) * 100 < sum(compared) * {CONFORMANCE_MIN_PERCENT:g}
      AND (sum(compared) - sum(matched) > {ties} OR check NOT IN ({race}))""",
    )


def _sets_aside(name: str, severity: Severity, meaning: str) -> TableRule:
    return TableRule(
        name,
        "set_aside",
        meaning,
        severity=severity,
        breaches=f"""
    SELECT table, reason, count(*) AS rows, min(row) AS row FROM {{set_aside}}
    WHERE severity = '{severity}' GROUP BY table, reason""",
    )


ROWS_ARE_WHOLE = _sets_aside(
    "rows_are_whole", "error", "No row was set aside for a null, or a word that is not known, where none may be."
)
ROWS_HOLD_CHECKS = _sets_aside("rows_hold_checks", "warning", "No row was set aside for breaking a check of its table.")

_INVARIANTS: Final = (
    HW_WITHIN_LEO,
    LEADER_HW_NEVER_BACK,
    COVERAGE_DISJOINT,
    LOCAL_LEO_NOT_NEGATIVE,
    ISR_WITHIN_ASSIGNMENT,
    LEADER_IN_ISR,
    LEADER_EPOCH_NEVER_BACK,
    PARTITION_EPOCH_ONLY_UP,
    TRUNCATION_CUTS,
    LOSS_WITHIN_CUT,
    LOSS_TOTALS,
    LOSS_ACCOUNTED,
    DIVERGENCE_BELOW_HW,
    RISK_SPANS_APART,
    RISK_NAMES_INCIDENT,
    EFFECT_NAMES_INCIDENT,
    COMMIT_RAISES_HW,
    ROWS_JOIN_EVENTS,
    NAMED_PLACES_JOIN_EVENTS,
    PARTITIONS_HAVE_ISR,
    ROWS_ARE_WHOLE,
    ROWS_HOLD_CHECKS,
)


def invariants(ties: int = CONFORMANCE_TIES) -> tuple[TableRule, ...]:
    """Return the protocol's guarantees across rows and tables; `ties`: the setting `conformance_ties`."""
    return tuple(with_answer(rule) for rule in (*_INVARIANTS, engine_conforms(ties)))
