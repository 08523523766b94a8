-- question: Who read what is gone?
-- read: What these clients made of records at these offsets rests on nothing that the log still holds. Where
--   `replaced_by_epoch` is set, other records stand there now.
SELECT recording_id, client_id, topic, incarnation, partition, min(first_offset) AS first_offset,
       max(last_offset) AS last_offset, sum(records) AS records, min(first_ts) AS first_ts, max(last_ts) AS last_ts,
       max(replaced_by_epoch) AS replaced_by_epoch, min(resumed_offset) AS resumed_offset, incident_id
FROM consumer_effects
WHERE effect = 'read_then_lost'
GROUP BY recording_id, client_id, topic, incarnation, partition, incident_id
ORDER BY records DESC NULLS LAST, recording_id, client_id, topic, incarnation, partition, incident_id
