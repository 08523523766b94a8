"""What must hold so that nothing is missing: coverage, counts that add up, rows that are named and are there.

The invariants of the protocol are in `invariants`. Each SELECT returns the place of a row, as far as it has one (topic,
incarnation, partition, seq, or source file and line), and the values at odds.
"""

from __future__ import annotations

from typing import Final

from pipelines.expectations.rules import PARTITION, Severity, TableRule, same_partition, with_answer
from schemas.runs import SAID

_PARTITION: Final = ", ".join(PARTITION)
_FETCHES: Final = "('fetch_update', 'fetch_read', 'consumer_read', 'fetch_left_out')"
_INCIDENT: Final = f"{_PARTITION}, incident_id"
_OF_FILE: Final = "LEFT JOIN {files} AS file ON told.source_file = file.path"
_MISCOUNTED: Final = "Incidents of this partition may be counted wrongly."
_RECORDING: Final = "Events may be missing, so losses of this recording may be overlooked or counted wrongly."


def _of(alias: str, *columns: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in ("topic", "incarnation", "partition", *columns))


def _each_row(  # noqa: PLR0913, PLR0917 - what a rule is made of
    table: str, name: str, meaning: str, condition: str, shown: str, answer: str = "", severity: Severity = "error"
) -> TableRule:
    """Return a rule that each row meets by itself."""
    return TableRule(
        name,
        table,
        meaning,
        breaches=f"SELECT {shown} FROM {{{table}}} WHERE NOT ({condition})",
        severity=severity,
        condition=condition,
        answer=answer,
    )


_COVERAGE: Final = (
    TableRule(
        "broker_is_covered",
        "replication_events",
        "Every broker on which a line puts an event has a row in coverage.",
        severity="warning",
        reads=("coverage",),
        answer="Nothing says where this broker's log has holes: a verdict that rests on it may look surer than it is.",
        breaches=f"""
    SELECT broker_id, min(struct({_PARTITION}, seq, source_file, source_line)) AS place, count(*) AS events
    FROM {{replication_events}} WHERE broker_id IS NOT NULL AND source_file IS NOT NULL
      AND broker_id NOT IN (SELECT broker_id FROM {{coverage}} WHERE broker_id IS NOT NULL)
    GROUP BY broker_id""",
    ),
    TableRule(
        "time_is_covered",
        "facts",
        "Every line of a request log lies within the times of its broker's log that coverage names.",
        severity="warning",
        reads=("coverage",),
        answer="Coverage ends too early or begins too late: a hole beyond it would not be told.",
        breaches="""
    WITH covered AS (
      SELECT broker_id, min(start_ts) AS covered_from, max(end_ts) AS covered_to
      FROM {coverage} WHERE source = 'request_log' GROUP BY broker_id
    )
    SELECT line.broker_id, line.source_file, line.source_line, line.ts, covered_from, covered_to
    FROM {facts} AS line JOIN covered ON line.broker_id = covered.broker_id
    WHERE line.connection IS NOT NULL AND (line.ts < covered_from OR line.ts > covered_to)""",
    ),
    _each_row(
        "coverage",
        "holes_have_reasons",
        "A stretch that is lossy, missing or silent says what tells so, and no stretch has fewer than no lines.",
        "(state = 'logged' OR reason IS NOT NULL) AND lines >= 0",
        "broker_id, source, start_ts, state, reason, lines",
    ),
    TableRule(
        "lines_of_known_files",
        "facts",
        "Every fact is from a line of a file that was read, and which has so many lines.",
        severity="warning",
        reads=("files",),
        answer="Nobody can look up the line that these facts are said to stand in.",
        breaches=f"""
    SELECT told.source_file, told.source_line, file.lines FROM (
      SELECT source_file, max(source_line) AS source_line FROM {{facts}} GROUP BY source_file
    ) AS told {_OF_FILE}
    WHERE told.source_line > coalesce(file.lines, -1)""",
    ),
    TableRule(
        "lines_of_known_files",
        "rejected_lines",
        "Of every file at most as many lines are said to be rejected as reading it has rejected.",
        severity="warning",
        reads=("files",),
        breaches=f"""
    SELECT told.source_file, told.source_line, told.lines, file.rejected FROM (
      SELECT source_file, min(source_line) AS source_line, count(*) AS lines FROM {{rejected_lines}}
      GROUP BY source_file
    ) AS told {_OF_FILE}
    WHERE told.lines > coalesce(file.rejected, 0)""",
    ),
)

_COUNTS: Final = (
    TableRule(
        "events_counted",
        "replication_events",
        "A partition has as many events as were put in order, and their seq has no gaps.",
        reads=("event_windows", "set_aside"),
        answer=_RECORDING,
        breaches=f"""
    WITH put AS (SELECT {_PARTITION}, max(events) AS events FROM {{event_windows}} GROUP BY {_PARTITION}),
    there AS (
      SELECT {_PARTITION}, count(*) AS events, max(seq) - min(seq) + 1 AS places
      FROM {{replication_events}} GROUP BY {_PARTITION}
    ), aside AS (SELECT count(*) AS rows FROM {{set_aside}} WHERE table = 'replication_events')
    SELECT coalesce(there.topic, put.topic) AS topic, coalesce(there.incarnation, put.incarnation) AS incarnation,
           coalesce(there.partition, put.partition) AS partition, put.events AS put_in_order, there.events, there.places
    FROM there FULL JOIN put ON {same_partition("there", "put")} CROSS JOIN aside
    WHERE aside.rows = 0 AND (there.events <> there.places OR coalesce(there.events, 0) <> put.events)""",
    ),
    _each_row(
        "log_truncations",
        "counts_what_it_cut",
        "The records that a truncation removed are those between the two ends of the log.",
        "records_removed = leo_before - leo_after",
        f"{_PARTITION}, seq, broker_id, leo_before, leo_after, records_removed",
    ),
    _each_row(
        "log_start_timeline",
        "counts_what_went",
        "The records that went by policy are those between the two starts of the log.",
        "records_removed = log_start_offset - log_start_before",
        f"{_PARTITION}, seq, broker_id, log_start_before, log_start_offset, records_removed",
    ),
    _each_row(
        "replica_divergences",
        "counts_offsets",
        "As many records differ as there are offsets.",
        "records = last_offset - first_offset + 1",
        f"{_PARTITION}, broker_a, broker_b, first_offset, last_offset, records",
    ),
    _each_row(
        "consumer_effects",
        "counts_offsets",
        "A consumer read as many records as there are offsets.",
        "records = last_offset - first_offset + 1",
        f"{_PARTITION}, seq, client_id, first_offset, last_offset, records",
    ),
    _each_row(
        "conformance",
        "mismatch_is_named",
        "A check that differs names the first event at which it does; one that does not names none.",
        "compared >= 0 AND matched >= 0 AND (matched < compared) = (first_mismatch_seq IS NOT NULL)",
        f"{_PARTITION}, first_mismatch_seq AS seq, check, compared, matched",
    ),
    _each_row(
        "leadership_timeline",
        "committed_among_records_at_risk",
        "Of the records that an election put at risk no more were committed than there were.",
        "committed_at_risk <= records_at_risk",
        f"{_PARTITION}, leader_epoch, records_at_risk, committed_at_risk",
    ),
)

_FOLLOW: Final = (
    TableRule(
        "rows_fit_events",
        "replication_events",
        "A row of commit_latency stands at the append of its batch, and a row of fetch_rounds at a fetch.",
        reads=("commit_latency", "fetch_rounds"),
        onward=True,
        answer="How long commits and fetches took may be told of other batches; losses are not touched.",
        breaches=f"""
    SELECT {_of("line", "seq", "in_table")}, event.kind, event.source_file, event.source_line FROM (
      SELECT 'commit_latency' AS in_table, {_PARTITION}, seq, base_offset FROM {{commit_latency}}
      UNION ALL SELECT 'fetch_rounds', {_PARTITION}, seq, NULL FROM {{fetch_rounds}}
    ) AS line JOIN {{replication_events}} AS event ON {same_partition("line", "event")} AND line.seq = event.seq
    WHERE (in_table = 'commit_latency' AND (event.kind <> 'append' OR event.base_offset <> line.base_offset))
      OR (in_table = 'fetch_rounds' AND event.kind NOT IN {_FETCHES})""",
    ),
    TableRule(
        "isr_follows",
        "isr_timeline",
        "The ISR before a committed change is the one that was committed last.",
        breaches=f"""
    SELECT {_PARTITION}, seq, isr_before, stood FROM (
      SELECT *, lag(isr) OVER (PARTITION BY {_PARTITION} ORDER BY seq) AS stood
      FROM {{isr_timeline}} WHERE state = 'committed')
    WHERE isr_before <> stood""",
    ),
    _each_row(
        "isr_timeline",
        "isr_sorted",
        "The brokers of an ISR are sorted.",
        "array_sort(isr) = isr",
        f"{_PARTITION}, seq, isr",
        "Queries that compare ISRs may take two equal ones for different.",
    ),
    TableRule(
        "terms_follow",
        "leadership_timeline",
        "A leader epoch ends when the next one begins.",
        answer="Who led when may be told wrongly, and so during which term records were lost.",
        breaches=f"""
    SELECT {_PARTITION}, leader_epoch, end_ts, next_ts FROM (
      SELECT *, lead(start_ts) OVER (PARTITION BY {_PARTITION} ORDER BY leader_epoch) AS next_ts
      FROM {{leadership_timeline}})
    WHERE end_ts <> next_ts""",
    ),
    TableRule(
        "moves_follow",
        "state_transitions",
        "A state machine moves from the state that it moved to last.",
        breaches=f"""
    SELECT {_PARTITION}, seq, place, machine, broker_id, stood, state_before FROM (
      SELECT *, lag(state) OVER (PARTITION BY {_PARTITION}, machine, broker_id, is_future ORDER BY seq, place) AS stood
      FROM {{state_transitions}})
    WHERE stood <> state_before""",
    ),
    TableRule(
        "moves_follow",
        "follower_states",
        "A follower's fetcher moves from the state that it moved to last.",
        breaches=f"""
    SELECT {_PARTITION}, seq, broker_id, stood, state_before FROM (
      SELECT *, lag(state) OVER (PARTITION BY {_PARTITION}, broker_id, is_future ORDER BY seq) AS stood
      FROM {{follower_states}})
    WHERE stood <> state_before""",
    ),
    TableRule(
        "terms_are_known",
        "partition_risk",
        "A span at risk lies in a leader epoch that leadership_timeline has, and does not end before it began.",
        reads=("leadership_timeline",),
        breaches=f"""
    SELECT {_of("span", "seq", "state", "leader_epoch", "end_seq")}
    FROM {{partition_risk}} AS span LEFT JOIN {{leadership_timeline}} AS term
      ON {same_partition("span", "term")} AND span.leader_epoch = term.leader_epoch
    WHERE term.topic IS NULL OR span.end_seq < span.seq""",
    ),
    TableRule(
        "returns_join_isr",
        "isr_flaps",
        "A replica left with a committed ISR change, and came back later with another.",
        reads=("isr_timeline",),
        breaches=f"""
    SELECT {_of("flap", "seq", "back_seq", "broker_id")} FROM {{isr_flaps}} AS flap
    LEFT JOIN {{isr_timeline}} AS gone
      ON {same_partition("flap", "gone")} AND flap.seq = gone.seq AND gone.state = 'committed'
    LEFT JOIN {{isr_timeline}} AS back
      ON {same_partition("flap", "back")} AND flap.back_seq = back.seq AND back.state = 'committed'
    WHERE gone.topic IS NULL OR back.topic IS NULL OR flap.back_seq <= flap.seq""",
    ),
    _each_row(
        "isr_flaps",
        "time_out_not_negative",
        "A replica is not back before it left.",
        "out_ms >= 0",
        f"{_PARTITION}, seq, broker_id, left_ts, back_ts, out_ms",
        "Two brokers' clocks differ: how long this replica was out is not known to the millisecond; losses are not "
        "touched.",
        "warning",
    ),
)

_LOSSES: Final = (
    _each_row(
        "data_loss_incidents",
        "ranges_within",
        "The lost ranges lie within the first and the last lost offset, and none ends before it begins.",
        "cardinality(filter(ranges, r -> r.first_offset < first_offset OR r.last_offset < r.first_offset "
        "OR r.last_offset > last_offset)) = 0",
        f"{_INCIDENT}, first_offset, last_offset, ranges",
    ),
    TableRule(
        "slots_lost_once",
        "data_loss_incidents",
        "An offset of a leader epoch is lost once: no two ranges have it.",
        answer="Records are counted twice: the total of the report may be too high.",
        breaches=f"""
    SELECT {_INCIDENT}, leader_epoch, first_offset, lost_to FROM (
      SELECT {_INCIDENT}, range.leader_epoch, range.first_offset,
             lag(coalesce(range.last_offset, range.first_offset)) OVER (
               PARTITION BY {_PARTITION}, range.leader_epoch ORDER BY range.first_offset) AS lost_to
      FROM (SELECT *, explode(ranges) AS range FROM {{data_loss_incidents}}))
    WHERE lost_to >= first_offset""",
    ),
    _each_row(
        "data_loss_incidents",
        "chain_has_sources",
        "Every link of the chain has its source, and every setting that prevents the loss its reason.",
        "cardinality(chain) = cardinality(chain_sources) AND cardinality(prevention) = cardinality(prevention_reasons)",
        f"{_INCIDENT}, chain, chain_sources, prevention, prevention_reasons",
    ),
    _each_row(
        "data_loss_incidents",
        "clients_are_named",
        "Where acknowledged records are gone, producers and times are told; where read ones are, the consumers.",
        "(acked_all + acked_one = 0 OR (cardinality(producers) > 0 AND first_ack_ts IS NOT NULL)) "
        "AND (consumed > 0) = (cardinality(consumers) > 0)",
        f"{_INCIDENT}, acked_all, acked_one, producers, first_ack_ts, consumed, consumers",
        "Whose records were lost, or who had read them, may be told wrongly.",
    ),
    _each_row(
        "data_loss_incidents",
        "acknowledged_in_order",
        "The last acknowledgement of a lost record is not before the first.",
        "first_ack_ts <= last_ack_ts",
        f"{_INCIDENT}, first_ack_ts, last_ack_ts",
    ),
    TableRule(
        "leaders_led",
        "data_loss_incidents",
        "The leaders before and after a loss led in the epochs that it names.",
        reads=("leadership_timeline",),
        answer="This loss may be blamed on the wrong leader change.",
        breaches=f"""
    SELECT {_of("loss", "incident_id", "named_id", "named_epoch")}, term.leader_id FROM (
      SELECT {_INCIDENT}, old_leader_id AS named_id, old_leader_epoch AS named_epoch FROM {{data_loss_incidents}}
      UNION ALL SELECT {_INCIDENT}, new_leader_id, new_leader_epoch FROM {{data_loss_incidents}}
    ) AS loss LEFT JOIN {{leadership_timeline}} AS term
      ON {same_partition("loss", "term")} AND loss.named_epoch = term.leader_epoch
    WHERE loss.named_epoch IS NOT NULL AND NOT (term.leader_id <=> loss.named_id)""",
    ),
    TableRule(
        "read_range_is_lost",
        "consumer_effects",
        "Records that were read and then lost lie within the incident that they are said to belong to.",
        reads=("data_loss_incidents",),
        breaches=f"""
    SELECT {_of("read", "seq", "client_id", "first_offset", "last_offset", "incident_id")}
    FROM {{consumer_effects}} AS read JOIN {{data_loss_incidents}} AS loss
      ON {same_partition("read", "loss")} AND read.incident_id = loss.incident_id
    WHERE read.effect = 'read_then_lost'
      AND (read.first_offset < loss.first_offset OR read.last_offset > loss.last_offset)""",
    ),
)

_STANDS: Final = "JOIN {data_loss_incidents} AS loss ON told.incident_id = loss.incident_id"
_UNTOLD: Final = "Somebody who was told of this incident was not told what became of it."
_REPORTS: Final = (
    TableRule(
        "withdrawn_is_gone",
        "incident_reports",
        "An incident that was withdrawn is not among those that stand.",
        reads=("data_loss_incidents",),
        answer=_UNTOLD,
        breaches=f"""
    SELECT {_of("told", "incident_id", "status", "revised")} FROM {{incident_reports}} AS told
    {_STANDS} WHERE told.status = 'withdrawn'""",
    ),
    TableRule(
        "reported_stands",
        "incident_reports",
        "An incident that was reported and not withdrawn is among those that stand.",
        reads=("data_loss_incidents",),
        answer=_UNTOLD,
        breaches=f"""
    SELECT {_of("told", "incident_id", "status", "first_reported")} FROM {{incident_reports}} AS told
    LEFT ANTI JOIN {{data_loss_incidents}} AS loss ON told.incident_id = loss.incident_id
    WHERE told.status <> 'withdrawn'""",
    ),
    TableRule(
        "says_what_stands",
        "incident_reports",
        "What incident_reports says of an incident that stands is what data_loss_incidents says.",
        reads=("data_loss_incidents",),
        answer=_UNTOLD,
        breaches=f"""
    SELECT {_of("told", "incident_id", *SAID)} FROM {{incident_reports}} AS told
    {_STANDS} WHERE told.status <> 'withdrawn'
      AND NOT ({" AND ".join(f"told.{name} <=> loss.{name}" for name in SAID if name != "evidence")}
           AND coalesce(told.evidence = loss.evidence, true))""",  # null: a version that did not keep it
    ),
    # A warehouse of a version that kept no such table has incidents, and nothing was said of any of them.
    TableRule(
        "is_reported",
        "data_loss_incidents",
        "Of every incident that stands incident_reports says since when it is known, unless it says so of none.",
        reads=("incident_reports",),
        answer="Nobody may have been told of this incident.",
        breaches=f"""
    SELECT {_of("loss", "incident_id", "lost_ts")} FROM {{data_loss_incidents}} AS loss
    LEFT ANTI JOIN {{incident_reports}} AS told ON loss.incident_id = told.incident_id
    WHERE (SELECT count(*) FROM {{incident_reports}}) > 0""",
    ),
    _each_row(
        "incident_reports",
        "revisions_counted",
        "An incident that was revised or withdrawn says how often, when, and by which run, and not before it was told.",
        "(revision > 0) = (revised IS NOT NULL) AND (revised IS NULL) = (revised_run_id IS NULL) "
        "AND (revised IS NULL OR revised >= first_reported)",
        f"{_INCIDENT}, status, revision, first_reported, revised, revised_run_id",
    ),
    _each_row(
        "runs",
        "ends_after_it_began",
        "A run does not end before it began.",
        "finished >= started",
        "run_id, started, finished",
    ),
    TableRule(
        "new_incidents_told",
        "runs",
        "Every incident that a run counts as new is in incident_reports.",
        severity="warning",
        reads=("incident_reports",),
        answer=_UNTOLD,
        breaches="""
    SELECT new.run_id, new.incident_id FROM (
      SELECT run_id, explode(new_incidents) AS incident_id FROM {runs}) AS new
    LEFT ANTI JOIN {incident_reports} AS told ON new.incident_id = told.incident_id""",
    ),
)

_METERS: Final = (
    TableRule(
        "meters_add_up",
        "cluster_metrics",
        "Where every minute of a meter is known, its minutes count what its partitions count.",
        reads=("partition_meters",),
        breaches="""
    SELECT total.broker_id, total.metric, total.in_minutes, parts.of_partitions FROM (
      SELECT broker_id, metric, sum(lowest) AS in_minutes FROM {cluster_metrics} WHERE kind = 'meter'
      GROUP BY broker_id, metric HAVING count(lowest) = count(*)
    ) AS total LEFT JOIN (
      SELECT broker_id, metric, sum(value) AS of_partitions FROM {partition_meters} GROUP BY broker_id, metric
    ) AS parts ON coalesce(total.broker_id, -1) = coalesce(parts.broker_id, -1) AND total.metric = parts.metric
    WHERE total.in_minutes <> coalesce(parts.of_partitions, 0)""",
    ),
)

COMPLETENESS: Final = tuple(
    with_answer(rule) for rule in (*_COVERAGE, *_COUNTS, *_FOLLOW, *_LOSSES, *_REPORTS, *_METERS)
)
