-- question: Q6. How often does each replica leave the ISR and come back, for how long, and in which hours?
-- read: `within_lag_time` counts those that were back before replica.lag.time.max.ms was over: often a sign of a threshold
--   that is too tight, or of pauses. Rack and log directory are in no table; broker and leader are.
-- parameters: lag_time_ms in the first line is the cluster's replica.lag.time.max.ms.
WITH asked AS (SELECT 30000 AS lag_time_ms)
SELECT recording_id, date_trunc('hour', left_ts) AS hour, broker_id, leader_id, left_reason, count(*) AS flaps,
       count(DISTINCT topic || '-' || CAST(partition AS VARCHAR(11))) AS partitions, median(out_ms) AS median_out_ms,
       max(out_ms) AS longest_out_ms, sum(CASE WHEN out_ms < lag_time_ms THEN 1 ELSE 0 END) AS within_lag_time
FROM isr_flaps CROSS JOIN asked
GROUP BY recording_id, date_trunc('hour', left_ts), broker_id, leader_id, left_reason
ORDER BY recording_id, hour NULLS LAST, broker_id, leader_id NULLS LAST, left_reason NULLS LAST
