-- question: Q7. For how long did a leader's high watermark not move, and what moved it on in the end?
-- read: `stood_still` ends at `ts`. `cause` is the kind of the event that moved it, `cause_broker_id` the replica whose
--   fetch or ISR change it was: the one that all were waiting for. A partition without produces stands still, too: look
--   whether q-slow-produce has its produces.
-- parameters: the LIMIT.
WITH steps AS (
  SELECT recording_id, topic, incarnation, partition, seq, ts, broker_id, leader_epoch, hw_before, hw, step, cause,
         cause_broker_id, evidence,
         ts - lag(ts) OVER (
           PARTITION BY recording_id, topic, incarnation, partition, broker_id, leader_epoch ORDER BY seq, step
         ) AS stood_still
  FROM hw_timeline
  WHERE role = 'leader'
)
SELECT recording_id, topic, incarnation, partition, seq, ts, broker_id, leader_epoch, hw_before, hw, stood_still, cause,
       cause_broker_id, evidence
FROM steps
WHERE stood_still IS NOT NULL AND topic <> '__consumer_offsets'
ORDER BY stood_still DESC, recording_id, topic, incarnation, partition, seq
LIMIT 10
