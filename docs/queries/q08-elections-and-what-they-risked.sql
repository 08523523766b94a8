-- question: Q8. How did each election come about, and what did it put at risk?
-- read: `records_at_risk` is what the previous leader had and the new one lacks; of it `committed_at_risk` was below the
--   previous leader's high watermark. Null: not known. What became of it is in q01 and q02.
SELECT recording_id, topic, incarnation, partition, leader_epoch, start_ts, election, trigger, previous_leader_id,
       leader_id, rule, candidates, live, in_sync, previous_leo, previous_hw, start_offset, hw_at_start, records_at_risk,
       committed_at_risk, evidence
FROM elections
WHERE election <> 'initial' AND topic <> '__consumer_offsets'
ORDER BY recording_id, topic, incarnation, partition, leader_epoch
