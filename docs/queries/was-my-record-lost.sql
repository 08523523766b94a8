-- question: Was my record lost?
-- read: One row per append at that offset: several, if an election let other records take its place. `fate` is `lost` or
--   `nothing says that it is lost`; where coverage has gaps (q13), the latter is no proof. Appends that no log tells of
--   have no row.
-- parameters: topic, partition and offset in the first lines.
WITH asked AS (SELECT 'payments' AS topic, 0 AS partition, 1234 AS record_offset),
appended AS (
  SELECT a.recording_id, a.topic, a.incarnation, a.partition, q.record_offset, a.leader_epoch, a.seq, a.ts AS appended_ts,
         a.broker_id, a.client_id, a.acks, a.evidence
  FROM replication_events AS a
  JOIN asked AS q ON q.topic = a.topic AND q.partition = a.partition
  WHERE a.kind = 'append' AND coalesce(a.duplicate, false) = false AND a.base_offset <= q.record_offset
    AND coalesce(a.next_offset, a.base_offset + 1) > q.record_offset
),
answered AS (
  SELECT a.recording_id, a.topic, a.incarnation, a.partition, a.leader_epoch, min(a.ts) AS answered_ts,
         min(a.error_code) AS error_code
  FROM replication_events AS a
  JOIN asked AS q ON q.topic = a.topic AND q.partition = a.partition
  WHERE a.kind = 'ack' AND a.base_offset <= q.record_offset
    AND coalesce(a.next_offset, a.base_offset + 1) > q.record_offset
  GROUP BY a.recording_id, a.topic, a.incarnation, a.partition, a.leader_epoch
),
gone AS (
  SELECT r.recording_id, r.topic, r.incarnation, r.partition, r.leader_epoch, min(r.incident_id) AS incident_id,
         min(r.mechanism) AS mechanism
  FROM lost_ranges AS r
  JOIN asked AS q ON q.topic = r.topic AND q.partition = r.partition
  WHERE r.first_offset <= q.record_offset AND (r.last_offset IS NULL OR r.last_offset >= q.record_offset)
  GROUP BY r.recording_id, r.topic, r.incarnation, r.partition, r.leader_epoch
)
SELECT a.recording_id, a.topic, a.incarnation, a.partition, a.record_offset, a.leader_epoch, a.appended_ts, a.broker_id,
       a.client_id, a.acks, w.answered_ts, w.error_code,
       CASE WHEN g.incident_id IS NULL THEN 'nothing says that it is lost' ELSE 'lost' END AS fate, g.mechanism,
       g.incident_id, a.evidence
FROM appended AS a
LEFT JOIN answered AS w
  ON w.recording_id = a.recording_id AND w.topic = a.topic AND w.incarnation = a.incarnation
     AND w.partition = a.partition AND w.leader_epoch = a.leader_epoch
LEFT JOIN gone AS g
  ON g.recording_id = a.recording_id AND g.topic = a.topic AND g.incarnation = a.incarnation
     AND g.partition = a.partition AND g.leader_epoch = a.leader_epoch
ORDER BY a.recording_id, a.topic, a.incarnation, a.partition, a.leader_epoch, a.seq
