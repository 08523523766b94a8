-- question: Q11. How long was each partition without a leader, with one replica in the ISR, or under min.insync.replicas?
-- read: States overlap. `acknowledged_by_one`: acks=all was answered while only the leader was in the ISR. Spans that are
--   still open at the recording's end have no length and are counted in `still_open`.
SELECT recording_id, topic, incarnation, partition, state, count(*) AS spans, round(sum(seconds), 3) AS seconds,
       round(max(seconds), 3) AS longest_seconds, sum(CASE WHEN end_ts IS NULL THEN 1 ELSE 0 END) AS still_open,
       max(acked_all) AS most_acked_all, max(records_at_risk) AS most_records_at_risk
FROM partition_risk
GROUP BY recording_id, topic, incarnation, partition, state
ORDER BY recording_id, topic, incarnation, partition, state
