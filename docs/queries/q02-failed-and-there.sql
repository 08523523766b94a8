-- question: Q2b. Which produces were answered with an error and had been appended all the same?
-- read: The broker had appended them before it answered (7 timed out, 20 too few replicas after the append). A client that
--   sends a committed one again without idempotence stores it twice. `fate` is that of the records as appended here:
--   `lost` is part of an incident; `cut` was cut from this broker's log later, and nobody had been told that it was safe.
WITH failed AS (SELECT * FROM commit_latency WHERE error_code <> 0),
gone AS (
  SELECT f.recording_id, f.topic, f.incarnation, f.partition, f.seq, count(*) AS ranges
  FROM failed AS f
  JOIN lost_ranges AS r
    ON r.recording_id = f.recording_id AND r.topic = f.topic AND r.incarnation = f.incarnation
       AND r.partition = f.partition AND r.leader_epoch = f.leader_epoch
  WHERE f.last_offset >= r.first_offset AND (r.last_offset IS NULL OR f.base_offset <= r.last_offset)
  GROUP BY f.recording_id, f.topic, f.incarnation, f.partition, f.seq
),
cut AS (
  SELECT f.recording_id, f.topic, f.incarnation, f.partition, f.seq, count(*) AS times
  FROM failed AS f
  JOIN log_truncations AS t
    ON t.recording_id = f.recording_id AND t.topic = f.topic AND t.incarnation = f.incarnation
       AND t.partition = f.partition AND t.broker_id = f.broker_id
  WHERE t.seq > f.seq AND t.leo_after <= f.last_offset AND t.leo_before > f.base_offset
  GROUP BY f.recording_id, f.topic, f.incarnation, f.partition, f.seq
)
SELECT f.recording_id, f.topic, f.incarnation, f.partition, f.base_offset, f.last_offset, f.client_id, f.error_code,
       f.ack_ts, f.commit_ts, f.committed_by,
       CASE WHEN gone.ranges > 0 THEN 'lost' WHEN cut.times > 0 THEN 'cut' WHEN f.commit_ts IS NOT NULL THEN 'committed'
            ELSE 'not committed while this leader led' END AS fate
FROM failed AS f
LEFT JOIN gone
  ON gone.recording_id = f.recording_id AND gone.topic = f.topic AND gone.incarnation = f.incarnation
     AND gone.partition = f.partition AND gone.seq = f.seq
LEFT JOIN cut
  ON cut.recording_id = f.recording_id AND cut.topic = f.topic AND cut.incarnation = f.incarnation
     AND cut.partition = f.partition AND cut.seq = f.seq
ORDER BY f.recording_id, f.topic, f.incarnation, f.partition, f.base_offset, f.seq
