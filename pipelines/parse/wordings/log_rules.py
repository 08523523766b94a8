"""Lines of a replica's log: appended to, cut, loaded, recovered; and of the directories that logs lie in."""

from __future__ import annotations

from pipelines.parse.wordings.partition_rules import POINT
from pipelines.parse.wordings.rule import TP, Rule
from replay.evidence.rows import INTERNAL_TOPICS

_LOGS = "Log|UnifiedLog|UnifiedLog$|LogLoader|LocalLog"

LOG_RULES = (
    Rule(f"{_LOGS}: Setting", "2.4-", "hw_update log", rf"Setting high watermark {POINT.format('hw')}"),
    Rule(
        f"{_LOGS}: Appended",
        "1.0-",
        "log_append",
        r"Appended message set with last offset: (?P<last_offset>-?\d+), first offset: "
        r"(?:None|Optional\.empty|(?:Some\(|Optional\[)?(?:\(offset=)?(?P<base_offset>-?\d+).*?), "
        r"next offset: (?P<offset>\d+),.*",
    ),
    Rule(f"{_LOGS}: Truncating", "0.10-", "truncation log", r"Truncating to offset (?P<offset>-?\d+)"),
    Rule(
        f"{_LOGS}: Truncating",
        "1.0-",
        "truncation no_effect",
        r"Truncating to (?P<offset>-?\d+) has no effect as the largest offset in the log is (?P<last_offset>-?\d+)",
    ),
    Rule(
        "Log|UnifiedLog: Truncate",
        "1.0-",
        "truncation full",
        r"Truncate and start at offset (?P<offset>-?\d+)(?:, logStartOffset: (?P<log_start_offset>-?\d+))?",
    ),
    Rule(
        f"{_LOGS}: Corruption",
        "2.4-",
        "truncation recovery",
        r"Corruption found in segment \d+, truncating to offset (?P<offset>\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_LOGS}: Non-monotonic",
        "2.7-",
        "hw_update non_monotonic",
        rf"Non-monotonic update of high watermark from {POINT.format('hw_before')} to {POINT.format('hw')}",
    ),
    Rule(
        f"{_LOGS}: Incremented",
        "2.4-",
        "log_start_change",
        r"Incremented log start offset to (?P<log_start_offset>\d+) due to (?P<name>.*)",
    ),
    Rule(
        f"{_LOGS}: Incrementing",
        "1.0-2.7",
        "log_start_change",
        rf"Incrementing log start offset (?:of partition {TP} )?to (?P<log_start_offset>\d+)(?: in dir .*)?",
    ),
    Rule(
        f"{_LOGS}: Recovering",
        "1.0-",
        "log_load recovering",
        rf"Recovering unflushed segment (?P<offset>\d+)(?: in log {TP}\.)?.*",
        keep_text=True,
    ),
    Rule(
        f"{_LOGS}: Loading", "1.0-", "log_load producer_state", r"Loading producer state till offset (?P<offset>\d+).*"
    ),
    Rule(
        f"{_LOGS}: Completed",
        "1.0-2.5",
        "log_load completed",
        r"Completed load of log with \d+ segments, log start offset (?P<log_start_offset>\d+) and log end offset "
        r"(?P<offset>\d+) in .*",
    ),
    Rule(
        "LogManager: Completed",
        "2.6-",
        "log_load completed",
        r"Completed load of (?:Unified)?Log\(dir=(?![^,]*-(?:delete|future|stray),)[^,]*, "
        r"(?:topicId=(?P<topic_id>[\w-]+), )?topic=(?P<topic>[^,]+), partition=(?P<partition>\d+), .*?"
        r"logStartOffset=(?P<log_start_offset>\d+), logEndOffset=(?P<offset>\d+)\) with .*",
    ),
    Rule(
        "LogManager: Created",
        "2.4-",
        "log_change future_created",
        rf"Created log for partition {TP} in (?P<log_dir>.+)[/\\][^/\\]{{1,300}}-future(?: with .*|\.?)",
    ),
    Rule(
        "LogManager: Completed",
        "2.6-",
        "log_change future_loaded",
        r"Completed load of (?:Unified)?Log\(dir=(?P<log_dir>[^,]+)[/\\][^,/\\]{1,300}-future, "
        r"(?:topicId=(?P<topic_id>[\w-]+), )?topic=(?P<topic>[^,]+), partition=(?P<partition>\d+), .*?"
        r"logStartOffset=(?P<log_start_offset>\d+), logEndOffset=(?P<offset>\d+)\) with .*",
    ),
    Rule("LogManager: Created", "1.0-", "log_load created", rf"Created log for partition {TP} in .*"),
    Rule(
        "LogManager: Logs",
        "2.0-",
        "storage_failure directory_failed",
        r"Logs for partitions .* due to failure on log directory .*",
        keep_text=True,
    ),
    Rule(
        "LogManager|ReplicaManager: Stopping",
        "1.0-",
        "storage_failure directory_failed",
        r"Stopping serving (?:logs|replicas) in dir .*",
        keep_text=True,
    ),
    Rule(
        "ReplicaManager: Broker",
        "2.0-",
        "storage_failure fetchers_stopped",
        r"Broker \d+ stopped fetcher for partitions .* failed log directory .*",
        keep_text=True,
    ),
    Rule(
        "ReplicaManager: Error",
        "1.0-",
        "storage_failure checkpoint_failed",
        r"Error while writing to highwatermark file in directory .*",
        keep_text=True,
    ),
    Rule(  # of other topics, the request log says it, and with which error
        "ReplicaManager: Error",
        "1.0-",
        "append_refused",
        r"Error processing append operation on partition (?:(?P<topic_id>[\w-]{1,30}):)?"
        rf"(?P<tp>(?:{'|'.join(INTERNAL_TOPICS)})-\d{{1,10}})",
    ),
    Rule("LogDirFailureChannel: Error", "1.0-", "storage_failure io_error", r".*", keep_text=True),
    Rule(
        "LogManager: Recovering",
        "3.0-",
        "broker_lifecycle unclean_start",
        r"Recovering \d+ logs from .* since no clean shutdown file was found",
        keep_text=True,
    ),
    Rule(
        "LogManager: Attempting",
        "2.6-2.8",
        "broker_lifecycle unclean_start",
        r"Attempting recovery for all logs in .* since no clean shutdown file was found",
        keep_text=True,
    ),
    Rule(
        "LogManager: Skipping",
        "2.6-",
        "broker_lifecycle clean_start",
        r"Skipping recovery (?:for|of) .* since clean shutdown file was found",
        keep_text=True,
    ),
)
