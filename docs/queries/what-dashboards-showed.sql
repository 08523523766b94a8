-- question: What would dashboards of Kafka's own metrics have shown, minute by minute and broker by broker?
-- read: Only what was not 0, or is not known: `unknown` is a minute in which nothing shows that the broker was up, and a dead
--   broker exports nothing. A gauge's `value` is that at the minute's end, a meter's (PerSec) by how much its Count rose.
--   broker_id null: the active controller. What no leader marks, as the removal of a fenced broker from the ISR, is no shrink.
SELECT recording_id, minute, metric, broker_id, value, lowest, highest, evidence
FROM cluster_metrics
WHERE metric <> 'LeaderCount' AND (coalesce(highest, lowest) > 0 OR evidence = 'unknown')
ORDER BY recording_id, minute, metric, broker_id NULLS LAST
