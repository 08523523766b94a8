-- question: Q14. How long did it take from the first lost acknowledgement to the loss, to the cut, and to a full ISR?
-- read: `back_in_isr_ts` is when the broker that had lost the records was in the ISR again: from then on nothing shows any
--   more. Null: not within the recording. Times of different brokers are on their own clocks.
WITH back AS (
  SELECT i.recording_id, i.incident_id, min(m.ts) AS back_in_isr_ts
  FROM incidents AS i
  JOIN isr_moves AS m
    ON m.recording_id = i.recording_id AND m.topic = i.topic AND m.incarnation = i.incarnation
       AND m.partition = i.partition AND m.broker_id = i.losing_broker_id
  WHERE m.state = 'committed' AND m.joined = true AND m.ts >= i.lost_ts
  GROUP BY i.recording_id, i.incident_id
)
SELECT i.recording_id, i.topic, i.incarnation, i.partition, i.losing_broker_id, i.first_ack_ts, i.last_ack_ts, i.lost_ts,
       i.truncated_ts, back.back_in_isr_ts, i.first_ack_to_loss_s, i.last_ack_to_loss_s, i.loss_to_cut_s,
       back.back_in_isr_ts - i.lost_ts AS loss_to_full_isr, i.incident_id
FROM incidents AS i
LEFT JOIN back ON back.recording_id = i.recording_id AND back.incident_id = i.incident_id
ORDER BY i.recording_id, i.topic, i.incarnation, i.partition, i.incident_id
