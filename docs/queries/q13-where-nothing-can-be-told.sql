-- question: Q13. For which brokers and times are there no logs, or lines missing, so that nothing can be ruled out?
-- read: `missing`: not there, though the broker was at work. `lossy`: some lines are missing. `silent`: no lines, and nothing
--   tells whether any are missing. broker_id null: the log of the cluster's metadata.
SELECT recording_id, broker_id, source, start_ts, end_ts, end_ts - start_ts AS duration, state, reason, lines_missing,
       evidence
FROM coverage
WHERE state <> 'logged'
ORDER BY recording_id, start_ts, broker_id NULLS LAST, source, state
