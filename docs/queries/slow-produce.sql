-- question: Why did this produce take nine seconds?
-- read: The slowest acks=all produces first. `remote_ms` is the time in which the leader waited for others: for the fetch of
--   `last_replica_id`, or, if `committed_by` is `isr_change`, until somebody was taken out of the ISR. `queue_ms` and
--   `local_ms` are the broker's own. commit_ts null: not committed while this leader led.
-- parameters: the LIMIT; a WHERE on topic, partition, client_id or append_ts.
SELECT recording_id, topic, incarnation, partition, base_offset, client_id, append_ts, total_ms, commit_ms, committed_by,
       last_replica_id, isr_size, queue_ms, local_ms, remote_ms, throttle_ms, response_queue_ms, send_ms, error_code,
       evidence
FROM commit_latency
ORDER BY total_ms DESC NULLS LAST, recording_id, topic, incarnation, partition, seq
LIMIT 10
