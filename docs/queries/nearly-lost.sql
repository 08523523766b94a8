-- question: What was nearly lost?
-- read: Spans in which records were on the leader alone, and which ended well: its death would have lost
--   `records_at_risk`, of which clients had been told that `acked_all` and `acked_one` were safe.
SELECT recording_id, topic, incarnation, partition, start_ts, seconds, leader_id, leader_epoch, min_isr, acked_all,
       acked_one, records_at_risk, ended_by, evidence
FROM partition_risk
WHERE state = 'isr_one' AND records_at_risk > 0 AND incident_id IS NULL
ORDER BY records_at_risk DESC, recording_id, topic, incarnation, partition, seq
