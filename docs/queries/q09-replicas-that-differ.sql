-- question: Q9. Do two replicas hold different records at the same offset, since when, and whom did they serve?
-- read: No row: no two replicas differ below their high watermarks, as far as segment dumps or leader epochs tell. `fetches`
--   are those of consumers that began there.
WITH served AS (
  SELECT d.recording_id, d.topic, d.incarnation, d.partition, d.broker_a, d.broker_b, d.first_offset,
         count(*) AS fetches, count(DISTINCT r.client_id) AS clients
  FROM replica_divergences AS d
  JOIN fetch_rounds AS r
    ON r.recording_id = d.recording_id AND r.topic = d.topic AND r.incarnation = d.incarnation
       AND r.partition = d.partition
  WHERE r.replica_id = -1 AND r.bytes > 0 AND (r.broker_id = d.broker_a OR r.broker_id = d.broker_b)
    AND r.fetch_offset BETWEEN d.first_offset AND d.last_offset
  GROUP BY d.recording_id, d.topic, d.incarnation, d.partition, d.broker_a, d.broker_b, d.first_offset
)
SELECT d.recording_id, d.topic, d.incarnation, d.partition, d.first_offset, d.last_offset, d.records, d.differs,
       d.broker_a, d.epoch_a, d.crc_a, d.broker_b, d.epoch_b, d.crc_b, d.since_ts,
       coalesce(s.fetches, 0) AS fetches, coalesce(s.clients, 0) AS clients, d.evidence
FROM replica_divergences AS d
LEFT JOIN served AS s
  ON s.recording_id = d.recording_id AND s.topic = d.topic AND s.incarnation = d.incarnation
     AND s.partition = d.partition AND s.broker_a = d.broker_a AND s.broker_b = d.broker_b
     AND s.first_offset = d.first_offset
ORDER BY d.recording_id, d.topic, d.incarnation, d.partition, d.first_offset, d.broker_a, d.broker_b
