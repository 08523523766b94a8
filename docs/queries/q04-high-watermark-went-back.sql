-- question: Q4. When did a high watermark go back, on which replica, and was anything that it had shown lost?
-- read: `exposed` is the highest that a leader had shown before. `lost_below` counts lost offsets between the new value and
--   the old one: 0 means that the replica had only not been told yet, and nothing was lost. `read_below` are the clients
--   that had read some of them; q10 says what.
WITH shown AS (
  SELECT h.recording_id, h.topic, h.incarnation, h.partition, h.seq, h.ts, h.broker_id, h.role, h.step, h.hw_before, h.hw,
         h.evidence,
         max(CASE WHEN h.role = 'leader' THEN h.hw ELSE 0 END) OVER (
           PARTITION BY h.recording_id, h.topic, h.incarnation, h.partition ORDER BY h.seq, h.broker_id, h.step
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS exposed
  FROM hw_timeline AS h
),
back AS (SELECT * FROM shown WHERE hw < hw_before),
below AS (
  SELECT b.recording_id, b.topic, b.incarnation, b.partition, b.seq, b.broker_id, b.step,
         sum(CASE WHEN b.hw_before - 1 < r.last_offset OR r.last_offset IS NULL THEN b.hw_before - 1 ELSE r.last_offset END
             - CASE WHEN b.hw > r.first_offset THEN b.hw ELSE r.first_offset END + 1) AS lost_below
  FROM back AS b
  JOIN lost_ranges AS r
    ON r.recording_id = b.recording_id AND r.topic = b.topic AND r.incarnation = b.incarnation
       AND r.partition = b.partition
  WHERE r.first_offset < b.hw_before AND (r.last_offset IS NULL OR r.last_offset >= b.hw)
  GROUP BY b.recording_id, b.topic, b.incarnation, b.partition, b.seq, b.broker_id, b.step
),
readers AS (
  SELECT b.recording_id, b.topic, b.incarnation, b.partition, b.seq, b.broker_id, b.step,
         count(DISTINCT e.client_id) AS read_below
  FROM back AS b
  JOIN consumer_effects AS e
    ON e.recording_id = b.recording_id AND e.topic = b.topic AND e.incarnation = b.incarnation
       AND e.partition = b.partition
  WHERE e.effect = 'read_then_lost' AND e.first_offset < b.hw_before AND e.last_offset >= b.hw
  GROUP BY b.recording_id, b.topic, b.incarnation, b.partition, b.seq, b.broker_id, b.step
)
SELECT b.recording_id, b.topic, b.incarnation, b.partition, b.seq, b.ts, b.broker_id, b.role, b.step, b.hw_before, b.hw,
       b.exposed, coalesce(l.lost_below, 0) AS lost_below, coalesce(r.read_below, 0) AS read_below, b.evidence
FROM back AS b
LEFT JOIN below AS l
  ON l.recording_id = b.recording_id AND l.topic = b.topic AND l.incarnation = b.incarnation
     AND l.partition = b.partition AND l.seq = b.seq AND l.broker_id = b.broker_id AND l.step = b.step
LEFT JOIN readers AS r
  ON r.recording_id = b.recording_id AND r.topic = b.topic AND r.incarnation = b.incarnation
     AND r.partition = b.partition AND r.seq = b.seq AND r.broker_id = b.broker_id AND r.step = b.step
ORDER BY b.recording_id, b.topic, b.incarnation, b.partition, b.seq, b.broker_id, b.step
