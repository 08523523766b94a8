-- question: Q1. Which offsets were acknowledged and are gone? Which producers had them acknowledged, when, with which
--   acks, and how many bytes are that?
-- read: A row is a run of lost offsets that one client had acknowledged; first and last are lost, too. `bytes` are those
--   of the produce requests. `extent` says whether logs tell where every batch ends: if not, the runs are a lower bound.
--   Not in it are answers to clients that had given up (`acked_unconfirmed` of the incident). The principal of a client is
--   in no table: what a request log says of it is not kept.
WITH answered AS (
  SELECT r.recording_id, r.topic, r.incarnation, r.partition, r.incident_id, r.leader_epoch, a.acks, a.client_id, a.seq,
         a.ts, a.bytes, a.next_offset_evidence,
         CASE WHEN a.base_offset > r.first_offset THEN a.base_offset ELSE r.first_offset END AS run_first,
         CASE WHEN coalesce(a.next_offset, a.base_offset + 1) - 1 > r.last_offset THEN r.last_offset
              ELSE coalesce(a.next_offset, a.base_offset + 1) - 1 END AS run_last
  FROM lost_ranges AS r
  JOIN replication_events AS a
    ON a.recording_id = r.recording_id AND a.topic = r.topic AND a.incarnation = r.incarnation
       AND a.partition = r.partition AND a.leader_epoch = r.leader_epoch AND a.broker_id = r.losing_broker_id
  WHERE a.kind = 'ack' AND a.error_code = 0 AND a.acks <> 0 AND coalesce(a.unconfirmed, false) = false
    AND coalesce(a.next_offset, a.base_offset + 1) > r.first_offset
    AND (r.last_offset IS NULL OR a.base_offset <= r.last_offset)
),
reached AS (
  SELECT *, max(run_last) OVER (
           PARTITION BY recording_id, incident_id, leader_epoch, acks, client_id ORDER BY run_first, run_last, seq
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS reach
  FROM answered
),
apart AS (
  SELECT *, lag(reach) OVER (
           PARTITION BY recording_id, incident_id, leader_epoch, acks, client_id
           ORDER BY run_first, run_last, seq) AS reach_before
  FROM reached
),
numbered AS (
  SELECT *, sum(CASE WHEN run_first <= reach_before + 1 THEN 0 ELSE 1 END) OVER (
           PARTITION BY recording_id, incident_id, leader_epoch, acks, client_id ORDER BY run_first, run_last, seq
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS run
  FROM apart
)
SELECT recording_id, topic, incarnation, partition, leader_epoch, min(run_first) AS first_offset,
       max(run_last) AS last_offset, max(run_last) - min(run_first) + 1 AS records, sum(bytes) AS bytes,
       CASE WHEN acks = -1 THEN 'all' ELSE '1' END AS acks, client_id, min(ts) AS first_ack_ts, max(ts) AS last_ack_ts,
       CASE WHEN sum(CASE WHEN next_offset_evidence IN ('observed', 'derived') THEN 0 ELSE 1 END) > 0 THEN 'at least'
            ELSE 'exact' END AS extent, incident_id
FROM numbered
GROUP BY recording_id, topic, incarnation, partition, incident_id, leader_epoch, acks, client_id, run
ORDER BY recording_id, topic, incarnation, partition, first_offset, last_offset, acks, client_id
