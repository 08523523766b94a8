"""Queries to start from, per table: a question an operator asks, and the Spark SQL that answers it."""

from __future__ import annotations

from typing import Final

QUERIES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "coverage": (
        (
            "Which broker and time window has no logs, or lost lines, so that verdicts there are unknown?",
            """
            SELECT broker_id, source, start_ts, end_ts, state, reason, lines_missing
            FROM coverage WHERE state <> 'logged' ORDER BY start_ts, broker_id
            """,
        ),
        (
            "Of which leaders' terms is the log not complete?",
            """
            SELECT l.topic, l.partition, l.leader_epoch, l.leader_id, c.state, c.start_ts, c.end_ts
            FROM leadership_timeline l JOIN coverage c ON c.broker_id = l.leader_id AND c.source = 'request_log'
            WHERE c.state <> 'logged' AND c.start_ts < coalesce(l.end_ts, c.end_ts) AND c.end_ts > l.start_ts
            ORDER BY l.topic, l.partition, l.leader_epoch, c.start_ts
            """,
        ),
    ),
    "data_loss_incidents": (
        (
            "Which offsets were acknowledged and are gone, how many records, whose, and when were they acknowledged?",
            """
            SELECT topic, partition, lost.leader_epoch, lost.first_offset, lost.last_offset, acked_all, acked_one,
                   producers, first_ack_ts, last_ack_ts
            FROM data_loss_incidents LATERAL VIEW explode(ranges) AS lost
            ORDER BY severity, topic, partition, lost.first_offset
            """,
        ),
        (
            "What led to each loss, step by step?",
            """
            SELECT topic, partition, mechanism, link.ts, link.what, link.seq
            FROM data_loss_incidents LATERAL VIEW posexplode(chain) AS place, link
            ORDER BY lost_ts, incident_id, place
            """,
        ),
    ),
    "hw_timeline": (
        (
            "When did a high watermark go back, on which replica, from where to where?",
            """
            SELECT topic, partition, seq, ts, broker_id, role, leader_epoch, hw_before, hw, step, evidence
            FROM hw_timeline WHERE hw < hw_before ORDER BY topic, partition, seq
            """,
        ),
        (
            "For how long did a leader's high watermark stand still, and whose fetch moved it on?",
            """
            SELECT topic, partition, seq, ts, broker_id, hw_before, hw, cause_broker_id,
                   ts - lag(ts) OVER (PARTITION BY topic, incarnation, partition, broker_id ORDER BY seq) AS stood_still
            FROM hw_timeline WHERE role = 'leader' ORDER BY stood_still DESC LIMIT 20
            """,
        ),
    ),
    "leo_timeline": (
        (
            "How far was each follower behind its leader at the end?",
            """
            SELECT topic, partition, broker_id, max_by(leo, seq) AS leo,
                   max(max_by(leo, seq)) OVER (PARTITION BY topic, partition) - max_by(leo, seq) AS behind
            FROM leo_timeline WHERE observer = 'local' GROUP BY topic, partition, broker_id ORDER BY behind DESC
            """,
        ),
    ),
    "isr_timeline": (
        (
            "Who fell out of the ISR, how far behind, and how long had it not been caught up?",
            """
            SELECT topic, partition, seq, ts, leader_id, isr_before, isr, broker_id, leo_gap, ms_since_caught_up, change
            FROM isr_timeline WHERE state = 'committed' AND size(isr) < size(isr_before)
            ORDER BY topic, partition, seq
            """,
        ),
        (
            "How long did each partition live with one replica in the ISR, or fewer than min.insync.replicas?",
            """
            SELECT topic, partition, sum(if(size(isr) = 1, seconds, 0)) AS seconds_alone,
                   sum(if(under_min_isr, seconds, 0)) AS seconds_under_min
            FROM (SELECT *, timestampdiff(SECOND, ts,
                         lead(ts) OVER (PARTITION BY topic, incarnation, partition ORDER BY seq)) AS seconds
                  FROM isr_timeline WHERE state = 'committed')
            GROUP BY topic, partition ORDER BY seconds_alone DESC
            """,
        ),
        (
            "Why did replicas leave, and what did it take to join again?",
            """
            SELECT mover.joined, mover.reason, mover.broker_id, leader_id, count(*) AS times,
                   max(mover.leo_gap) AS largest_gap, max(mover.ms_since_caught_up) AS longest_ms
            FROM isr_timeline LATERAL VIEW explode(movers) AS mover WHERE state = 'committed'
            GROUP BY mover.joined, mover.reason, mover.broker_id, leader_id ORDER BY times DESC
            """,
        ),
        (
            "Which changes that a leader asked for came to nothing, and why?",
            """
            SELECT topic, partition, seq, ts, leader_id, leader_epoch, isr_before, isr, state, outcome, error_code
            FROM isr_timeline WHERE state <> 'committed' AND NOT outcome <=> 'committed'
            ORDER BY topic, partition, seq
            """,
        ),
        (
            "ZooKeeper: when did each broker tell of its ISR changes? (5 s after the last, the task runs each 2.5 s)",
            """
            SELECT leader_id, min(ts) AS first_change, count(*) AS changes,
                   max(ts) + INTERVAL 5 SECONDS AS earliest, max(ts) + INTERVAL 7500 MILLISECONDS AS latest
            FROM (SELECT *, sum(new_burst) OVER (PARTITION BY leader_id ORDER BY ts, topic, partition, seq) AS burst
                  FROM (SELECT *, if(ts <= lag(ts) OVER (PARTITION BY leader_id ORDER BY ts, topic, partition, seq)
                                     + INTERVAL 5 SECONDS, 0, 1) AS new_burst
                        FROM isr_timeline WHERE state = 'committed' AND change IN ('shrink', 'expand')))
            GROUP BY leader_id, burst ORDER BY leader_id, first_change
            """,
        ),
    ),
    "isr_flaps": (
        (
            "Which replicas flap, how often, for how long, and do they share a broker or a leader?",
            """
            SELECT broker_id, leader_id, left_reason, count(*) AS flaps,
                   count(DISTINCT topic, incarnation, partition) AS partitions,
                   cast(avg(out_ms) AS BIGINT) AS mean_out_ms, max(out_ms) AS longest_out_ms,
                   round(count(*) / sum(count(*)) OVER (), 2) AS share
            FROM isr_flaps GROUP BY broker_id, leader_id, left_reason ORDER BY flaps DESC, broker_id, leader_id
            """,
        ),
    ),
    "leadership_timeline": (
        (
            "Why was each leader chosen, and what did its election put at risk?",
            """
            SELECT topic, partition, leader_epoch, start_ts, election, trigger, previous_leader_id, leader_id,
                   rule, candidates, live, in_sync, records_at_risk, committed_at_risk
            FROM leadership_timeline
            ORDER BY committed_at_risk DESC NULLS LAST, records_at_risk DESC NULLS LAST, topic, partition, leader_epoch
            """,
        ),
        (
            "How long was each partition without a leader?",
            """
            SELECT topic, partition, sum(timestampdiff(SECOND, start_ts, end_ts)) AS seconds_leaderless
            FROM leadership_timeline WHERE leader_id IS NULL GROUP BY topic, partition ORDER BY seconds_leaderless DESC
            """,
        ),
    ),
    "follower_states": (
        (
            "Which followers stopped fetching, when, and after which error?",
            """SELECT ts, topic, partition, broker_id, state, cause, error_code
            FROM follower_states
            WHERE state IN ('delayed', 'failed')
            ORDER BY ts""",
        ),
    ),
    "state_transitions": (
        (
            "How long was each partition offline, and what brought it back?",
            """
            SELECT topic, partition, ts AS online, reason, leader_epoch, ts - before AS offline_for FROM (
              SELECT *, lag(ts) OVER (PARTITION BY topic, incarnation, partition ORDER BY seq, place) AS before
              FROM state_transitions WHERE machine = 'partition')
            WHERE state = 'Online' AND state_before = 'Offline' ORDER BY offline_for DESC
            """,
        ),
    ),
    "log_start_timeline": (
        (
            "How much went by retention or DeleteRecords, and when did all replicas follow?",
            """
            SELECT topic, partition, ts, broker_id, records_removed, log_start_offset, low_watermark, cause
            FROM log_start_timeline ORDER BY topic, partition, seq
            """,
        ),
    ),
    "log_truncations": (
        (
            "Who cut its log below its own high watermark?",
            """
            SELECT topic, partition, seq, ts, broker_id, leo_before, leo_after, hw_before, cause, evidence
            FROM log_truncations WHERE leo_after < hw_before ORDER BY topic, partition, seq
            """,
        ),
    ),
    "fetch_rounds": (
        (
            "What completes each replica's fetches, how often, and after how long?",
            """
            SELECT topic, partition, replica_id, completed_by, sum(coalesce(run_count, 1)) AS fetches,
                   round(avg(wait_ms), 1) AS wait_ms, max(wait_ms) AS wait_ms_max
            FROM fetch_rounds GROUP BY topic, partition, replica_id, completed_by
            ORDER BY topic, partition, replica_id, fetches DESC
            """,
        ),
        (
            "Which fetches did a quota hold back, for how long, and at which offset?",
            """
            SELECT topic, partition, replica_id, quota, ts, fetch_offset, leader_leo - fetch_offset AS behind, bytes,
                   wait_ms, throttle_ms, run_count, seq
            FROM fetch_rounds WHERE quota IS NOT NULL ORDER BY topic, partition, seq
            """,
        ),
    ),
    "commit_latency": (
        (
            "Which acks=all produces waited longest for their commit, and for whom?",
            """
            SELECT topic, partition, base_offset, client_id, append_ts, commit_ms, committed_by, last_replica_id, isr,
                   queue_ms, local_ms, remote_ms, response_queue_ms, send_ms, total_ms, error_code
            FROM commit_latency ORDER BY commit_ms DESC NULLS LAST LIMIT 20
            """,
        ),
        (
            "Which produces were answered with an error once appended, and were committed after all?",
            """
            SELECT topic, partition, base_offset, last_offset, client_id, error_code, ack_ts, commit_ts, committed_by
            FROM commit_latency WHERE error_code <> 0 ORDER BY ack_ts
            """,
        ),
    ),
    "replication_events": (
        (
            "What happened around a row of a timeline? (its topic, partition and seq; here orders-0 at 1000)",
            """
            SELECT seq, ts, kind, broker_id, replica_id, base_offset, next_offset, fetch_offset, evidence,
                   source_file, source_line
            FROM replication_events
            WHERE topic = 'orders' AND partition = 0 AND seq BETWEEN 990 AND 1010 ORDER BY seq
            """,
        ),
    ),
    "replica_divergences": (
        (
            "Do two replicas hold other records at the same offset below their high watermarks, and since when?",
            """
            SELECT topic, partition, first_offset, last_offset, differs, broker_a, epoch_a, crc_a, broker_b, epoch_b,
                   crc_b, since_ts, evidence
            FROM replica_divergences ORDER BY topic, partition, first_offset
            """,
        ),
        (
            "Which consumers were served by which of the two?",
            """
            SELECT d.topic, d.partition, d.first_offset, d.last_offset, r.client_id, r.broker_id, count(*) AS fetches
            FROM replica_divergences AS d JOIN fetch_rounds AS r
              ON r.topic = d.topic AND r.incarnation = d.incarnation AND r.partition = d.partition
                 AND r.replica_id = -1 AND r.bytes > 0 AND r.broker_id IN (d.broker_a, d.broker_b)
                 AND r.fetch_offset BETWEEN d.first_offset AND d.last_offset
            GROUP BY ALL ORDER BY d.topic, d.partition, d.first_offset
            """,
        ),
    ),
    "partition_risk": (
        (
            "How long was each partition leaderless, at one replica, under min.insync.replicas, acknowledging alone?",
            """
            SELECT topic, partition, state, count(*) AS spans, sum(seconds) AS seconds,
                   count_if(end_ts IS NULL) AS still_open
            FROM partition_risk GROUP BY topic, partition, state ORDER BY seconds DESC
            """,
        ),
        (
            "Which losses nearly happened: records that only the leader had, though it all ended well?",
            """
            SELECT topic, partition, start_ts, seconds, leader_id, leader_epoch, isr, min_isr, acked_all, acked_one,
                   records_at_risk, ended_by
            FROM partition_risk WHERE state = 'isr_one' AND records_at_risk > 0 AND incident_id IS NULL
            ORDER BY acked_all DESC, records_at_risk DESC
            """,
        ),
    ),
    "consumer_effects": (
        (
            "Which consumers read records that were lost later, which, and when?",
            """
            SELECT client_id, topic, partition, first_offset, last_offset, records, first_ts, last_ts, broker_id,
                   incident_id, replaced_by_epoch, resumed_offset
            FROM consumer_effects WHERE effect = 'read_then_lost' ORDER BY records DESC
            """,
        ),
        (
            "Which consumers were reset, or found their position cut away, and from where did they go on?",
            """
            SELECT client_id, topic, partition, effect, first_ts, first_offset AS position, log_end, fetches,
                   resumed_offset, incident_id
            FROM consumer_effects WHERE effect IN ('out_of_range', 'truncation_detected') ORDER BY first_ts
            """,
        ),
    ),
    "conformance": (
        (
            "Where does what Tidemark computed differ from what the brokers reported?",
            """
            SELECT check, topic, partition, compared, matched, first_mismatch_seq, note
            FROM conformance WHERE matched < compared ORDER BY matched / compared
            """,
        ),
    ),
    "facts": (
        (
            "Which broker's logs cover which time, and what do they tell?",
            """
            SELECT broker_id, kind, min(ts) AS first, max(ts) AS last, count(*) AS lines
            FROM facts GROUP BY broker_id, kind ORDER BY broker_id, kind
            """,
        ),
    ),
    "rejected_lines": (
        (
            "Which lines could not be used, and why?",
            """
            SELECT reason, count(*) AS lines, min_by(source_file, source_line) AS file, min(source_line) AS line
            FROM rejected_lines GROUP BY reason ORDER BY lines DESC
            """,
        ),
    ),
    "set_aside": (
        (
            "Which rows broke a check of their table, and so do not stand in it?",
            """
            SELECT table, severity, reason, count(*) AS rows, min(row) AS first
            FROM set_aside GROUP BY table, severity, reason ORDER BY severity, rows DESC
            """,
        ),
    ),
    "expectation_results": (
        (
            "What did not hold?",
            """
            SELECT run_id, severity, table, expectation, meaning, rows_failed, example
            FROM expectation_results WHERE NOT success ORDER BY severity, table
            """,
        ),
    ),
    "runs": (
        (
            "Which versions of the tables belong to the last run that went through?",
            """
            SELECT recording_id, max_by(run_id, finished) AS run_id, max_by(table_versions, finished) AS table_versions
            FROM runs WHERE status <> 'failed' GROUP BY recording_id
            """,
        ),
    ),
}
