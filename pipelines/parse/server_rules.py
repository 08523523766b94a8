"""The one table of broker lines: which logger says it, in which Kafka versions, in what words, and what it means.

The named groups of a pattern are columns of `facts`; `tp` is a partition as Kafka prints it (`topic-3`). A rule is
found by the logger's last part and the first word of the message, so that a line costs a look-up and not sixty
patterns. The message is what stands after the prefix in brackets (`[Partition orders-0 broker=1] `), whose own parts
are columns too.
"""

from __future__ import annotations

from pipelines.parse.controller_rules import ELECTION_RULES, KRAFT_RULES, REQUEST_RULES, STATE_MACHINE_RULES
from pipelines.parse.follower_rules import FOLLOWER_RULES
from pipelines.parse.leader_rules import ISR_RULES, LOG_CHANGE_RULES, QUOTA_RULES
from pipelines.parse.older_rules import OLDER_RULES
from pipelines.parse.rule import TP as _TP
from pipelines.parse.rule import Rule

_LOGS = "Log|UnifiedLog|UnifiedLog$|LogLoader|LocalLog"


_POINT = r"\(offset=(?P<{}>-?\d+)[^)]*\)"
_PENDING = (
    r"sentLeaderAndIsr=LeaderAndIsr\(leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), "
    r"isr(?:WithBrokerEpoch)?=(?P<isr>.{0,4000}?), (?:leaderRecoveryState=\w+, )?"
    r"partitionEpoch=(?P<partition_epoch>\d+)\)"
)
_EXPAND = rf"PendingExpand\w+\((?:isr=[^)]*\), )?newInSyncReplicaId=(?P<replica_id>\d+), {_PENDING}"
_SHRINK = rf"PendingShrink\w+\((?:isr=[^)]*\), )?outOfSyncReplicaIds=[^)\]]*[)\]], {_PENDING}"
_WHY = r"(?:.*? (?P<value>(?:since|because|due to) .*)|.*)"
_ENQUEUED = (
    r"(?:Enqueued ISR change to state|Sent `AlterIsr` request to change state to) LeaderAndIsr\("
    r"leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), "
    r"isr=(?P<isr>[^)]*\)), zkVersion=(?P<partition_epoch>\d+)\) after transition to "
)

PARTITION_RULES = (
    Rule(
        "Partition: Recorded",
        "0.10-",
        "remote_leo_update",
        r"Recorded replica (?P<replica_id>-?\d+) log end offset \(LEO\) position (?P<offset>-?\d+)"
        r"(?: and log start offset (?P<log_start_offset>-?\d+))?\.?",
    ),
    Rule(
        "Partition: High",
        "2.4-",
        "hw_update leader",
        rf"High watermark updated from {_POINT.format('hw_before')} to {_POINT.format('hw')}",
    ),
    Rule(
        "Partition: High", "0.10-2.3", "hw_update leader", r"High watermark updated to \(?(?:offset=)?(?P<hw>-?\d+).*"
    ),
    Rule(
        "Partition: Log",
        "2.4-",
        "log_load loaded",
        rf"Log loaded for partition {_TP} with initial high watermark (?P<hw>-?\d+)",
    ),
    Rule(
        "Partition: No",
        "1.0-",
        "log_load no_checkpoint",
        rf"No checkpointed highwatermark is found for partition {_TP}",
    ),
    Rule(
        "Partition: ISR",
        "0.10-",
        "isr_update updated",
        r"ISR updated (?:from AlterIsr )?to \[?(?P<isr>[\d,]*)\]?\s+(?:\(under-min-isr\) )?and (?:zkVersion|version) "
        r"updated to \[?(?P<partition_epoch>\d+)\]?",
    ),
    Rule(
        "Partition: Shrinking",
        "0.11-",
        "isr_update shrink",
        r"Shrinking ISR from [\d,]+ to (?P<isr>[\d,]*)"
        r"(?:\. Leader: \(highWatermark: (?P<hw>-?\d+), endOffset: (?P<offset>-?\d+)\)\. Out of sync replicas: .*)?",
        keep_text=True,
    ),
    Rule(
        "Partition: Expanding",
        "0.11-2.7",
        "isr_update expand",
        r"Expanding ISR from [\d,]* to (?P<isr>[\d,]*)",
        keep_text=True,
    ),
    Rule("Partition: Submitting", "3.1-", "isr_update pending_expand", rf"Submitting ISR state change {_EXPAND}.*"),
    Rule(
        "Partition: Submitting",
        "3.1-",
        "isr_update pending_shrink",
        rf"Submitting ISR state change {_SHRINK}.*",
        keep_text=True,
    ),
    *(
        rule
        for word, versions in (("Sent", "2.7"), ("Enqueued", "2.8-3.0"))
        for rule in (
            Rule(
                f"Partition: {word}",
                versions,
                "isr_update pending_expand",
                rf"{_ENQUEUED}PendingExpandIsr\(.*?newInSyncReplicaId=(?P<replica_id>\d+)\)",
            ),
            Rule(
                f"Partition: {word}",
                versions,
                "isr_update pending_shrink",
                rf"{_ENQUEUED}PendingShrinkIsr\(.*",
                keep_text=True,
            ),
        )
    ),
    Rule(
        "Partition: Failed",
        "3.1-",
        "isr_update failed",
        rf"Failed to (?:alter partition|update ISR) to (?:{_EXPAND}){_WHY}",
        keep_text=True,
    ),
    Rule(
        "Partition: Failed",
        "2.7-",
        "isr_update failed",
        rf"Failed to (?:alter partition|update ISR) to Pending(?:Shrink\w+\(.*?{_PENDING})?{_WHY}",
        keep_text=True,
    ),
    Rule(
        "Partition: Ignoring",
        "2.7-",
        "isr_update failed",
        rf"Ignoring failed ISR update to (?:{_EXPAND}).*",
        keep_text=True,
    ),
    Rule(
        "Partition: Ignoring",
        "2.7-",
        "isr_update failed",
        rf"Ignoring failed ISR update to Pending(?:Shrink\w+\(.*?{_PENDING})?.*",
        keep_text=True,
    ),
    Rule(
        "Partition:",
        "0.11-2.5",
        "role_change leader",
        rf"{_TP} starts at [Ll]eader [Ee]poch (?P<leader_epoch>-?\d+) from offset (?P<offset>-?\d+)"
        r"(?: with high watermark (?P<hw>-?\d+))?\. Previous .*",
    ),
)

STATE_CHANGE_RULES = (
    Rule(
        "logger: Leader",
        "2.6-",
        "role_change leader",
        rf"Leader {_TP}(?: with topic id (?:None|(?:Some\()?(?P<topic_id>[\w-]+)\)?))? starts at leader epoch "
        r"(?P<leader_epoch>-?\d+) from offset (?P<offset>-?\d+) with (?:partition epoch (?P<partition_epoch>-?\d+), )?"
        r"high watermark (?P<hw>-?\d+),? ISR \[(?P<isr>[\d, ]*)\],? adding ?[rR]eplicas "
        r"\[(?P<adding_replicas>[\d, ]*)\] (?:and )?removing ?[rR]eplicas \[(?P<removing_replicas>[\d, ]*)\].*",
    ),
    Rule(
        "logger: Follower",
        "2.6-",
        "role_change follower",
        rf"Follower {_TP}(?: with topic id (?:None|(?:Some\()?(?P<topic_id>[\w-]+)\)?))? starts at leader epoch "
        r"(?P<leader_epoch>-?\d+) from offset (?P<offset>-?\d+) with "
        r"(?:partition epoch (?P<partition_epoch>-?\d+) and )?high watermark (?P<hw>-?\d+)\."
        r"(?: Current leader is (?P<leader_id>-?\d+)\.)?.*",
    ),
    Rule(  # the leader takes over a decision that leaves its leader epoch: an ISR change by the controller
        "logger: Skipped",
        "3.3-",
        "isr_update applied",
        rf"Skipped the become-leader state change for {_TP} with topic id (?:None|Some\((?P<topic_id>[\w-]+)\)) and "
        r"partition state \w*PartitionState\(.*?leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), "
        r"isr=\[(?P<isr>[\d, ]*)\], (?:partitionEpoch|zkVersion)=(?P<partition_epoch>-?\d+), .*",
    ),
    Rule(
        "logger: Skipped",
        "4.2-",
        "isr_update applied",
        rf"Skipped the become-leader state change for {_TP} with topic id (?:None|Some\((?P<topic_id>[\w-]+)\)), "
        r"partition registration PartitionRegistration\(.{0,2000}?\bisr=\[(?P<isr>[\d, ]*)\], "
        r".{0,2000}?\bleader=(?P<leader_id>-?\d+), .{0,2000}?leaderEpoch=(?P<leader_epoch>-?\d+), "
        r"partitionEpoch=(?P<partition_epoch>-?\d+)\) .*",
    ),
    Rule(
        "logger: Creating",
        "3.0-",
        "topic_change partition_created",
        rf"Creating new partition {_TP} with topic id (?P<topic_id>[\w-]+)\.",
    ),
    Rule(
        "logger: Unable",
        "1.0-",
        "storage_failure offline_directory",
        rf"Unable to bring up new local (?:leader|follower) {_TP} with topic id (?P<topic_id>[\w-]+) because it "
        r"resides in an offline log directory\.",
        keep_text=True,
    ),
)

LOG_RULES = (
    Rule(f"{_LOGS}: Setting", "2.4-", "hw_update log", rf"Setting high watermark {_POINT.format('hw')}"),
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
        rf"Non-monotonic update of high watermark from {_POINT.format('hw_before')} to {_POINT.format('hw')}",
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
        rf"Incrementing log start offset (?:of partition {_TP} )?to (?P<log_start_offset>\d+)(?: in dir .*)?",
    ),
    Rule(
        f"{_LOGS}: Recovering",
        "1.0-",
        "log_load recovering",
        rf"Recovering unflushed segment (?P<offset>\d+)(?: in log {_TP}\.)?.*",
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
        rf"Created log for partition {_TP} in (?P<log_dir>.+)[/\\][^/\\]{{1,300}}-future(?: with .*|\.?)",
    ),
    Rule(
        "LogManager: Completed",
        "2.6-",
        "log_change future_loaded",
        r"Completed load of (?:Unified)?Log\(dir=(?P<log_dir>[^,]+)[/\\][^,/\\]{1,300}-future, "
        r"(?:topicId=(?P<topic_id>[\w-]+), )?topic=(?P<topic>[^,]+), partition=(?P<partition>\d+), .*?"
        r"logStartOffset=(?P<log_start_offset>\d+), logEndOffset=(?P<offset>\d+)\) with .*",
    ),
    Rule("LogManager: Created", "1.0-", "log_load created", rf"Created log for partition {_TP} in .*"),
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

FETCHER_RULES = (
    Rule(
        "ReplicaFetcherThread: Follower",
        "1.0-",
        "leo_update follower",
        rf"Follower has replica log end offset (?P<offset>-?\d+) for partition {_TP}\. Received (?P<bytes>\d+) "
        r"(?:bytes of )?messages and leader hw (?P<hw>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Follower",
        "1.0-",
        "leo_update follower_appended",
        r"Follower has replica log end offset (?P<offset>-?\d+) after appending (?P<bytes>\d+) bytes of messages for "
        rf"partition {_TP}",
    ),
    Rule(
        "ReplicaFetcherThread: Follower",
        "3.0-",
        "hw_update follower",
        r"Follower received high watermark (?P<offset>-?\d+) from the leader and updated replica high watermark to "
        rf"(?P<hw>-?\d+) for partition {_TP}",
    ),
    Rule(
        "ReplicaFetcherThread: Follower",
        "3.0-",
        "hw_update follower_unchanged",
        r"Follower received high watermark (?P<offset>-?\d+) from the leader but did not update replica high watermark "
        rf"for partition {_TP}",
    ),
    Rule(
        "ReplicaFetcherThread: Follower",
        "1.0-2.8",
        "hw_update follower",
        rf"Follower set replica high watermark for partition {_TP} to (?P<hw>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Truncating",
        "2.4-",
        "truncation leader_epoch",
        rf"Truncating partition {_TP} (?:with|to) TruncationState\(offset=(?P<offset>-?\d+), completed=\w+\) due to "
        r"leader epoch and offset EpochEndOffset\(.*?leaderEpoch=(?P<diverging_epoch>-?\d+), "
        r"endOffset=(?P<diverging_end_offset>-?\d+)\)",
    ),
    Rule(
        "ReplicaFetcherThread: Truncating",
        "3.1-",
        "truncation high_watermark",
        rf"Truncating partition {_TP} with TruncationState\(offset=(?P<offset>-?\d+), completed=\w+\) due to local "
        r"high watermark (?P<hw>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Truncating",
        "2.0-3.0",
        "truncation high_watermark",
        rf"Truncating partition {_TP} to local high watermark (?P<offset>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Truncating",
        "2.0-",
        "truncation below_high_watermark",
        rf"Truncating {_TP} to offset (?P<offset>-?\d+) below high watermark (?P<hw>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Reset",
        "1.0-",
        "truncation reset",
        rf"Reset fetch offset for partition {_TP} from (?P<fetch_offset>-?\d+) to (?:the )?current leader's "
        r"(?:start|latest) offset (?P<offset>-?\d+).*",
        keep_text=True,
    ),
    Rule(
        "ReplicaFetcherThread: Truncate",
        "2.0-",
        "truncation reset_full",
        rf"Truncate fully and reset fetch offset for partition {_TP} from (?P<fetch_offset>-?\d+) to (?:the )?current "
        r"leader's start offset (?P<offset>-?\d+).*",
        keep_text=True,
    ),
)

_SERVER_STATES = (
    ("SHUTDOWN to STARTING", "start"),
    ("STARTING to STARTED", "started"),
    ("STARTED to SHUTTING_DOWN", "shutdown"),
    ("SHUTTING_DOWN to SHUTDOWN", "shut_down"),
)
_SERVER_MESSAGES = (
    ("starting", "start"),
    ("started", "started"),
    ("shutting down", "shutdown"),
    ("shut down completed", "shut_down"),
    ("Starting controlled shutdown", "controlled_shutdown"),
    ("Controlled shutdown succeeded", "controlled_shutdown_done"),
    ("Proceeding to do an unclean shutdown", "unclean_shutdown"),
)
LIFECYCLE_RULES = (
    *(
        Rule("BrokerServer: Transition", "2.8-", f"broker_lifecycle {name}", f"Transition from {change}")
        for change, name in _SERVER_STATES
    ),
    *(
        Rule(f"KafkaServer: {text.partition(' ')[0]}", "0.10-3.9", f"broker_lifecycle {name}", f"{text}.*")
        for text, name in _SERVER_MESSAGES
    ),
    Rule("KafkaServer: Cluster", "0.10-3.9", "broker_lifecycle cluster_id", r"Cluster ID = (?P<value>\S+)"),
    Rule(
        "QuorumController: Creating",
        "3.0-",
        "broker_lifecycle cluster_id",
        r"Creating new QuorumController with clusterId (?P<value>[\w-]+).*",
    ),
    Rule(
        "QuorumController: Becoming",
        "2.8-",
        "broker_lifecycle active_controller",
        r"Becoming (?:the active controller at|active at controller) epoch (?P<controller_epoch>\d+)\b.*",
    ),
    Rule(
        "BrokerLifecycleManager: Incarnation",
        "2.8-",
        "broker_lifecycle cluster_id",
        r"Incarnation \S+ of broker \d+ in cluster (?P<value>\S+) is now STARTING\.",
    ),
    Rule("AppInfoParser: Kafka", "0.10-", "broker_lifecycle version", r"Kafka version ?: (?P<value>\S+)"),
    Rule(
        "BrokerLifecycleManager: Successfully",
        "2.8-",
        "broker_lifecycle registered",
        r"Successfully registered broker (?P<subject_broker_id>\d+) with broker epoch (?P<broker_epoch>\d+)",
    ),
    Rule("BrokerLifecycleManager: The", "2.8-", "broker_lifecycle unfenced", r"The broker has been unfenced\..*"),
    Rule(
        "BrokerLifecycleManager: Beginning",
        "2.8-",
        "broker_lifecycle controlled_shutdown",
        r"Beginning controlled shutdown\.",
    ),
    Rule(
        "ReplicationControlManager: Fencing",
        "2.8-",
        "broker_lifecycle fenced",
        r"Fencing broker (?P<subject_broker_id>\d+)(?: at epoch (?P<broker_epoch>\d+))? because its session has timed "
        r"out\.",
    ),
    Rule(
        "ReplicationControlManager: UNCLEAN",
        "3.2-",
        "broker_lifecycle unclean_election",
        rf"UNCLEAN partition change for {_TP} with topic ID (?P<topic_id>[\w-]+): "
        r".{0,2000}?leader: -?\d+ -> (?P<leader_id>-?\d+), .{0,2000}?leaderEpoch: \d+ -> (?P<leader_epoch>\d+), "
        r".{0,2000}?partitionEpoch: \d+ -> (?P<partition_epoch>\d+).*",
        keep_text=True,
    ),
    Rule(
        "ReplicationControlManager: Replayed",
        "3.0-",
        "topic_change controller_replayed",
        r"Replayed TopicRecord for topic (?P<topic>\S+) with topic ID (?P<topic_id>[\w-]+)\.",
    ),
    Rule(
        "PartitionChangeBuilder: Setting",
        "3.0-",
        "broker_lifecycle unclean_election",
        r"Setting new leader for topicId (?P<topic_id>[\w-]+), partition (?P<partition>\d+) to (?P<leader_id>\d+) "
        r"using an unclean election",
        keep_text=True,
    ),
)

# Who is alive, as ZooKeeper's controller counts it: all that elections ask.
CONTROLLER_RULES = (
    Rule(
        "KafkaController: Newly",
        "1.0-3.9",
        "broker_lifecycle live_brokers",
        r"Newly added brokers: .*, all live brokers: (?P<replicas>[\d,]*)",
    ),
    Rule(
        "KafkaController: Currently",
        "1.0-3.9",
        "broker_lifecycle controller_starts",
        r"Currently active brokers in the cluster: (?P<replicas>.*)",
    ),
    Rule(
        "KafkaController: Shutting",
        "1.0-3.9",
        "broker_lifecycle stopping_broker",
        r"Shutting down broker (?P<subject_broker_id>\d+)",
    ),
)

RULES = (
    *PARTITION_RULES,
    *STATE_CHANGE_RULES,
    *LOG_RULES,
    *FETCHER_RULES,
    *LIFECYCLE_RULES,
    *CONTROLLER_RULES,
    *STATE_MACHINE_RULES,
    *REQUEST_RULES,
    *ELECTION_RULES,
    *KRAFT_RULES,
    *FOLLOWER_RULES,
    *ISR_RULES,
    *LOG_CHANGE_RULES,
    *QUOTA_RULES,
    *OLDER_RULES,
)
