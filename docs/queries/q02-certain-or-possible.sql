-- question: Q2a. How much is lost for sure, how much possibly, and what was never promised to anybody?
-- read: The rows of an incident add up to its lost records. `at least`: the evidence forces so many. `possible`: so many
--   more cannot be ruled out. `none`: no answer without an error is known, so nobody was told that these were safe.
SELECT recording_id, topic, incarnation, partition, mechanism, severity, acknowledgement, certainty, records, incident_id
FROM incident_acknowledgements
WHERE records > 0
ORDER BY recording_id, topic, incarnation, partition, incident_id, acknowledgement, certainty
