"""Lines about ISR changes beyond the ones that worked, and about the log's own movement, quotas and directories."""

from __future__ import annotations

from pipelines.parse.wordings.isr_words import FAILED
from pipelines.parse.wordings.rule import LISTED, TP, Rule

_LOGS = "Log|UnifiedLog"
_STATE = (
    r"LeaderAndIsr\(leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), "
    r"isr(?:WithBrokerEpoch)?=(?P<isr>.{0,4000}?), (?:leaderRecoveryState=\w+, )?"
    r"(?:zkVersion|partitionEpoch)=(?P<partition_epoch>-?\d+)\)"
)
_MANAGERS = "AlterIsrManagerImpl|DefaultAlterIsrManager|DefaultAlterPartitionManager"

ISR_RULES = (
    Rule(
        "Partition: Cached",
        "0.8-2.7",
        "isr_update zookeeper_conflict",
        r"Cached zkVersion \[?(?P<partition_epoch>\d+)\]? not equal to that in zookeeper, skip updating ISR",
    ),
    Rule(
        "Partition: Controller",
        "2.7",
        "isr_update failed",
        r"Controller failed to update ISR to Pending\w+\(.*?\) (?P<value>(?:since|due to) .*)",
        keep_text=True,
    ),
    Rule(
        "Partition: Ignoring",
        "2.7-",
        "isr_update ignored",
        rf"Ignoring (?:new ISR|ISR from AlterIsr with) {_STATE} (?P<value>since we have a .*)",
    ),
    Rule(
        "Partition: Failed",
        "2.7-3.0",
        "isr_update failed",
        rf"Failed to enqueue ISR change state {_STATE} for partition .*",
        keep_text=True,
    ),
    Rule(
        "Partition: The",
        "3.3-",
        "isr_update removed_from_replicas",
        rf"The alter partition request successfully updated the partition state to Pending\w+\(.*?sentLeaderAndIsr="
        rf"{_STATE}.* but this replica got (?P<error_code>removed from the replica set) while completing a "
        r"reassignment\. .*",
        keep_text=True,
        reads=FAILED,
    ),
    Rule(
        f"{_MANAGERS}: Broker",
        "2.7-",
        "isr_update request_failed",
        r"Broker (?P<value>had a stale broker epoch \((?P<broker_epoch>\d+)\), retrying|"
        r"is not authorized to send Alter\w+ to controller)\.?",
    ),
    Rule(
        f"{_MANAGERS}: Controller",
        "2.7-",
        "isr_update request_failed",
        r"Controller returned an unexpected top-level error when handling Alter\w+ request: (?P<value>\w+)",
    ),
    Rule(
        f"{_MANAGERS}: Partition",
        "2.7-",
        "isr_update request_failed",
        r"Partition (?:[\w-]{22}:)?(?P<tp>[\w.-]+-\d+) (?P<value>was sent but not included in the response)",
    ),
    Rule(
        "ZkIsrManager|ZkAlterPartitionManager: Writing",
        "2.8-3.9",
        "isr_update zookeeper_write",
        r"Writing new ISR (?P<isr>\w+\([\d, ]*\)) to ZooKeeper with version (?P<partition_epoch>\d+) for partition "
        r"(?:[\w-]{22}:)?(?P<tp>[\w.-]+-\d+)",
    ),
    Rule(
        "ReplicationUtils|ReplicationUtils$: Updated",
        "2.0-3.9",
        "isr_update zookeeper_write",
        rf"Updated ISR for {TP} to (?P<isr>[\d,]*)",
    ),
    Rule(  # what the controller hears of an ISR change: queued, sent at most every 2.5 s
        "KafkaZkClient: Added",
        "1.1-3.9",
        "isr_update propagated",
        r"Added /isr_change_notification/isr_change_\d+ for .*",
        each=rf"{LISTED}(?=[,)])",
    ),
    Rule(  # what the controller does once it has read the notifications; nothing else makes it say so
        "KafkaController: Sending",
        "1.1-3.9",
        "isr_update notified",
        r"Sending MetadataRequest to Brokers: .* for TopicPartitions: .*",
        each=rf"{LISTED}(?=[,)])",
    ),
)

_REMOTE_TASKS = "RemoteLogManager$RLMTask|RemoteLogManager$RLMCopyTask|RemoteLogManager$RLMExpirationTask"
_REMOTE_SEGMENT = (
    r"RemoteLogSegmentId\{topicIdPartition=(?P<topic_id>[\w-]{22}):(?P<tp>[\w.-]{1,260}-\d{1,10}), "
    r"id=(?P<text>[\w-]{22})\}"
)

LOG_CHANGE_RULES = (
    Rule(
        f"{_LOGS}|LocalLog: Rolled",
        "2.4-",
        "segment_change segment_rolled",
        r"Rolled new log segment at offset (?P<base_offset>\d+) in [\d.]+ ms\.",
    ),
    Rule(  # DEBUG; a brace too many from 0.10.1 on
        f"{_LOGS}: Rolling",
        "0.8-",
        "segment_change segment_rolling",
        rf"Rolling new log segment (?:in {TP} )?\((?P<value>log_size = \d+/\d+\}}?, (?:offset_)?index_size = \d+/\d+, "
        r"(?:time_index_size = \d+/\d+, )?(?:age|inactive_time)_ms = -?\d+/-?\d+)\)\.",
    ),
    Rule(
        f"{_LOGS}: Rolling",
        "3.7-",
        "segment_change segment_rolling",
        r"Rolling the active segment to make it eligible for (?P<value>deletion)",
    ),
    Rule(
        "UnifiedLog: Incremented",
        "3.6-",
        "segment_change local_log_start",
        r"Incremented local log start offset to (?P<offset>\d+) due to reason (?P<value>.*)",
    ),
    Rule(
        f"{_REMOTE_TASKS}: Copied",
        "3.6-",
        "segment_change segment_copied",
        rf"Copied (?P<base_offset>\d+)\.log to remote storage with segment-id: {_REMOTE_SEGMENT}",
        printed_by="kafka/log/remote/RemoteLogManager.java; 4.1 org/apache/kafka/server/log/remote/storage",
    ),
    Rule(
        f"{_REMOTE_TASKS}: About",
        "3.6-",
        "segment_change remote_segment_deleted",
        rf"About to delete remote log segment {_REMOTE_SEGMENT} due to "
        r"(?P<value>retention (?:time \d+ms|size \d+)|log-start-offset \d+) breach.*",
        printed_by="kafka/log/remote/RemoteLogManager.java; 4.1 org/apache/kafka/server/log/remote/storage",
    ),
    Rule(
        f"{_REMOTE_TASKS}: Deleted",
        "3.6-",
        "segment_change remote_segment_deleted",
        rf"Deleted remote log segment {_REMOTE_SEGMENT} due to (?P<value>leader-epoch-cache truncation).*",
        printed_by="kafka/log/remote/RemoteLogManager.java; 4.1 org/apache/kafka/server/log/remote/storage",
    ),
    Rule(
        f"{_LOGS}: Deleting",
        "2.7-",
        "log_change segment_deleted",
        r"Deleting segment LogSegment\(baseOffset=(?P<base_offset>\d+), .*?\) due to (?:log )?"
        r"(?P<value>(?:local log )?retention (?:time \d+ms|size \d+)) breach.*",
    ),
    Rule(
        f"{_LOGS}: Deleting",
        "2.7-",
        "log_change segment_deleted",
        r"Deleting segments due to (?P<value>(?:local )?log start offset) (?P<log_start_offset>\d+) breach: .*",
        each=r"LogSegment\(baseOffset=(?P<base_offset>\d+)",
    ),
    Rule(
        "Log: Found",
        "0.10-2.6",
        "log_change segment_deleted",
        r"Found deletable segments with base offsets \[[\d,]*\] due to (?P<value>.*)",
        each=r"(?<=[\[,])(?P<base_offset>\d+)(?=[\],])",
    ),
    Rule(
        "LogManager: Log",
        "1.0-",
        "log_change renamed_for_deletion",
        rf"Log for partition {TP} is renamed to (?P<value>\S+) and is scheduled for deletion",
    ),
    Rule(
        "LogCleaner|Cleaner: Cleaner",
        "0.10-",
        "log_change compaction",
        r"Cleaner \d+: Building offset map for log (?P<tp>[\w.-]+-\d+) for \d+ segments in offset range "
        r"\[(?P<base_offset>\d+), (?P<offset>\d+)\)\.",
    ),
    Rule(
        "LogCleaner|Cleaner: Cleaner",
        "2.4-",
        "log_change compacted",
        r"Cleaner \d+: Swapping in cleaned segment LogSegment\(baseOffset=(?P<base_offset>\d+), .*? in log "
        r"(?:Unified)?Log\(dir=\S*?/(?P<tp>[^/,]+-\d+), .*",
    ),
    Rule(
        "ReplicaAlterLogDirsThread|LocalLeaderEndPoint:",
        "2.3-",
        "log_change future_copy",
        rf"(?:\[\S+\]: )?Beginning/resuming copy of partition {TP} from offset (?P<offset>\d+)\. .*",
    ),
    Rule(
        "LogManager: Attempting",
        "2.4-",
        "log_change future_replacing",
        r"Attempting to replace current log .*? with (?:Unified)?Log\((?:dir=)?(?P<log_dir>[^,]+)[/\\]"
        rf"[^,/\\]{{1,300}}-future[,)].* for {TP}",
    ),
    Rule(
        "ReplicaAlterLogDirsThread: Truncating",
        "2.4-",
        "log_change future_truncating",
        rf"Truncating partition {TP} (?:with|to) (?:TruncationState\(offset=|local high watermark )(?P<offset>-?\d+).*",
    ),
    *(
        Rule(
            "ReplicaAlterLogDirsThread: Updating",
            "3.7-",
            f"log_change future_{state.lower()}",
            rf"Updating future replica {TP} reassignment state to {state}",
        )
        for state in ("Queued", "Accepted", "Effective")
    ),
    Rule(
        "ReplicaAlterLogDirsThread: Partition",
        "2.4-",
        "log_change future_failed",
        rf"Partition {TP} marked as failed",
        printed_by="kafka/server/AbstractFetcherThread.scala",
    ),
    Rule(
        "LogManager: The",
        "1.1-",
        "log_change future_replaced",
        rf"The current replica is successfully replaced with the future replica for {TP}",
    ),
    Rule(
        "ReplicaManager: Stopped",
        "1.0-",
        "broker_lifecycle directory_stopped",
        r"Stopped serving replicas in dir (?P<value>\S+)",
    ),
    Rule(
        "LogManager: Found",
        "0.10-2.5",
        "broker_lifecycle clean_start",
        r"Found clean shutdown file\. Skipping recovery for all logs in data directory: (?P<value>\S+)",
    ),
    Rule(
        "LogManager: Loaded",
        "3.0-",
        "broker_lifecycle unclean_start",
        r"Loaded \d+ logs in \d+ms \(unclean log dirs = (?P<value>.*)\)",
    ),
)

_THROTTLES = (
    r"(?P<name>(?:leader|follower)\.replication\.throttled\.(?:rate|replicas))(?: -> |=)(?P<value>[\d:,*]+?)"
    r"(?=[,})]*(?:[a-z ]|$))"
)

_CLIENT_QUOTAS = "ClientQuotaManager|ClientRequestQuotaManager|ControllerMutationQuotaManager"
_TOPIC_ENTITY = r"(?:entityPath: topics/|entityType: topics, entity: )(?P<topic>\S+)"

QUOTA_RULES = (
    Rule(
        "DynamicConfigPublisher: Updating",
        "3.0-",
        "quota_change",
        r"Updating topic (?P<topic>\S+) with new configuration : .*",
        each=_THROTTLES,
    ),
    Rule(
        "DynamicConfigPublisher: Updating",
        "3.0-",
        "quota_change",
        r"Updating node (?P<subject_broker_id>\d+) with new configuration : .*",
        each=_THROTTLES,
    ),
    Rule(
        "DynamicConfigPublisher: Updating",
        "3.4-",
        "quota_change",
        r"Updating cluster configuration : .*",
        each=_THROTTLES,
    ),
    Rule(  # all settings of a topic that was changed, its quotas among them
        "DynamicConfigManager|ZkConfigManager: Processing",
        "1.0-3.9",
        "config_change",
        rf"Processing override for {_TOPIC_ENTITY} with config: "
        r"(?=.*\b(?:min\.insync\.replicas|unclean\.leader\.election\.enable|cleanup\.policy)(?: -> |=)).*",
        each=r"\b(?P<name>min\.insync\.replicas|unclean\.leader\.election\.enable|cleanup\.policy)(?: -> |=)"
        r"(?P<value>compact,delete|delete,compact|\w+)",
        printed_by="kafka/server/DynamicConfigManager.scala, ZkConfigManager.scala",
        goes_on=True,
    ),
    Rule(
        "DynamicConfigManager|ZkConfigManager: Processing",
        "0.10-3.9",
        "quota_change",
        rf"Processing override for (?:{_TOPIC_ENTITY}|entityPath: brokers/(?:(?P<subject_broker_id>\d+)|<default>)) "
        r"with config: .*",
        each=_THROTTLES,
        printed_by="kafka/server/DynamicConfigManager.scala, ZkConfigManager.scala",
    ),
    Rule(f"{_CLIENT_QUOTAS}: Changing", "0.10-", "quota_change client", r"Changing (?P<value>.*)"),
    Rule(f"{_CLIENT_QUOTAS}: Removing", "0.10-", "quota_change client", r"Removing (?P<value>.*)"),
)
