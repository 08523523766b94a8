-- question: Q12. Which setting would have kept the records?
-- read: Only what `prevention` says: for each loss the settings that would have prevented it, judged by what happened. It is
--   no replay under other settings: what else would have happened then (refused produces, time without a leader), and
--   whether another replica would have done better, no table tells. No row: no setting that Tidemark knows would have.
SELECT recording_id, topic, incarnation, partition, mechanism, records, place, setting, reason, incident_id
FROM incident_remedies
ORDER BY recording_id, topic, incarnation, partition, incident_id, place
