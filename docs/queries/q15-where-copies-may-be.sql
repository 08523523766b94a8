-- question: Q15. Where may copies of what was lost still be?
-- read: As far as tables tell. `on_losing_broker`: whether its log still holds the records; what it cut is gone from the
--   log, though a disk that nothing wrote to since may hold it. `producers` could send again what they still have,
--   `consumers` have read it. `cut_by` counts replicas that had some of it and cut it. Remote storage is not looked at.
WITH cuts AS (
  SELECT r.recording_id, r.incident_id, count(DISTINCT t.broker_id) AS cut_by
  FROM lost_ranges AS r
  JOIN log_truncations AS t
    ON t.recording_id = r.recording_id AND t.topic = r.topic AND t.incarnation = r.incarnation
       AND t.partition = r.partition
  WHERE t.ts >= r.lost_ts AND t.leo_after <= coalesce(r.last_offset, t.leo_after) AND t.leo_before > r.first_offset
  GROUP BY r.recording_id, r.incident_id
)
SELECT i.recording_id, i.topic, i.incarnation, i.partition, i.first_offset, i.last_offset, i.records, i.losing_broker_id,
       CASE WHEN i.truncated_ts IS NULL THEN 'not seen to be cut' ELSE 'cut' END AS on_losing_broker, i.truncated_ts,
       coalesce(c.cut_by, 0) AS cut_by, i.producers, i.consumers, i.consumed, i.incident_id
FROM incidents AS i
LEFT JOIN cuts AS c ON c.recording_id = i.recording_id AND c.incident_id = i.incident_id
ORDER BY i.recording_id, i.topic, i.incarnation, i.partition, i.incident_id
