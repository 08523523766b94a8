-- question: Which broker makes the ISR flap?
-- read: Flaps by the broker that left, and their share of all. One broker under many leaders: look at that broker. Many
--   brokers under one leader: look at the leader, which may have stood still itself (`leader_stood_still`).
WITH flaps AS (
  SELECT recording_id, broker_id, leader_id, left_reason, count(*) AS flaps,
         count(DISTINCT topic || '-' || CAST(partition AS VARCHAR(11))) AS partitions, sum(out_ms) AS out_ms,
         max(out_ms) AS longest_out_ms
  FROM isr_flaps
  GROUP BY recording_id, broker_id, leader_id, left_reason
),
every AS (SELECT recording_id, sum(flaps) AS flaps FROM flaps GROUP BY recording_id)
SELECT f.recording_id, f.broker_id, f.leader_id, f.left_reason, f.flaps, f.partitions, f.out_ms, f.longest_out_ms,
       CAST(round(100.0 * f.flaps / every.flaps, 0) AS BIGINT) AS percent
FROM flaps AS f
JOIN every ON every.recording_id = f.recording_id
ORDER BY f.recording_id, f.flaps DESC, f.broker_id, f.leader_id NULLS LAST, f.left_reason NULLS LAST
