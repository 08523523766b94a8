-- question: Q5. Which ISR changes made a partition vulnerable, and why did each replica fall out?
-- read: `reason` is what put the replica out (docs/protocol.md names all), `leo_gap` how many records it was behind,
--   `ms_since_caught_up` for how long, `fetches_in_lag_time` whether it still fetched. Rows that leave one replica in the
--   ISR are those in which that replica's death loses records.
SELECT recording_id, topic, incarnation, partition, seq, ts, leader_id, isr_before, isr, under_min_isr, broker_id, change,
       reason, leo_gap, ms_since_caught_up, fetches_in_lag_time, last_fetch_ts, evidence
FROM isr_moves
WHERE state = 'committed' AND joined = false AND topic <> '__consumer_offsets'
ORDER BY recording_id, topic, incarnation, partition, seq, place
