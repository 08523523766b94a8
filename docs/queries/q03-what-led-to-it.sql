-- question: Q3. What caused each loss, step by step, and which lines of which logs state it?
-- read: The steps of an incident in order: ISR changes, the last acknowledgement, deaths, elections, truncations. `source`
--   is null where no line states the step itself.
SELECT recording_id, topic, incarnation, partition, mechanism, place, ts, what, source, seq, incident_id
FROM incident_steps
ORDER BY recording_id, lost_ts NULLS LAST, incident_id, place
