-- question: Q10. Which consumers were affected: read what is gone, were reset, or found their position cut away?
-- read: `read_then_lost`: handed out, and gone since. `out_of_range`: its position lies beyond the log's end at `log_end`.
--   `truncation_detected`: it asked where the epoch of its position ends, and it ends before. Where a consumer resumed
--   beyond first_offset, it did not read what replaced the records. Committed offsets of groups are in no table.
SELECT recording_id, topic, incarnation, partition, effect, client_id, broker_id, leader_epoch, first_offset, last_offset,
       records, first_ts, last_ts, log_end, replaced_by_epoch, resumed_offset, resumed_ts, incident_id, evidence
FROM consumer_effects
WHERE effect <> 'read_from_follower'
ORDER BY recording_id, topic, incarnation, partition, seq, effect, client_id, broker_id, leader_epoch, first_offset
