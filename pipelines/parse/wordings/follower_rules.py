"""Lines of the follower's side: its fetcher threads, what errors do to them, and where a fetch goes on."""

from __future__ import annotations

from pipelines.parse.wordings.rule import LISTED, TP, Rule

# up to 2.0 no parenthesis closes the list
_EACH_TP = r"(?<![\w.-])(?P<tp>[\w.-]{1,260}-\d{1,10}|\[[\w.-]{1,260},\d{1,10}\])(?=[,)]|$)"
_ADDED = (
    rf"{LISTED} -> (?:InitialFetchState\((?:(?:None|Some\((?P<topic_id>[\w-]+)\)),)?BrokerEndPoint.{{0,600}}?[\])],"
    r"|\(offset=(?P<offset>-?\d+), leaderEpoch=)(?P<leader_epoch>-?\d+)(?:,(?P<fetch_offset>-?\d+))?\)"
)
_THREAD = "ReplicaFetcherThread"

FETCHER_RULES = (
    Rule(
        "ReplicaFetcherThread: Follower",
        "1.0-",
        "leo_update follower",
        rf"Follower has replica log end offset (?P<offset>-?\d+) for partition {TP}\. Received (?P<bytes>\d+) "
        r"(?:bytes of )?messages and leader hw (?P<hw>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Follower",
        "1.0-",
        "leo_update follower_appended",
        r"Follower has replica log end offset (?P<offset>-?\d+) after appending (?P<bytes>\d+) bytes of messages for "
        rf"partition {TP}",
    ),
    Rule(
        "ReplicaFetcherThread: Follower",
        "3.0-",
        "hw_update follower",
        r"Follower received high watermark (?P<offset>-?\d+) from the leader and updated replica high watermark to "
        rf"(?P<hw>-?\d+) for partition {TP}",
    ),
    Rule(
        "ReplicaFetcherThread: Follower",
        "3.0-",
        "hw_update follower_unchanged",
        r"Follower received high watermark (?P<offset>-?\d+) from the leader but did not update replica high watermark "
        rf"for partition {TP}",
    ),
    Rule(
        "ReplicaFetcherThread: Follower",
        "1.0-2.8",
        "hw_update follower",
        rf"Follower set replica high watermark for partition {TP} to (?P<hw>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Truncating",
        "2.4-",
        "truncation leader_epoch",
        rf"Truncating partition {TP} (?:with|to) TruncationState\(offset=(?P<offset>-?\d+), completed=\w+\) due to "
        r"leader epoch and offset EpochEndOffset\(.*?leaderEpoch=(?P<diverging_epoch>-?\d+), "
        r"endOffset=(?P<diverging_end_offset>-?\d+)\)",
    ),
    Rule(
        "ReplicaFetcherThread: Truncating",
        "3.1-",
        "truncation high_watermark",
        rf"Truncating partition {TP} with TruncationState\(offset=(?P<offset>-?\d+), completed=\w+\) due to local "
        r"high watermark (?P<hw>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Truncating",
        "2.0-3.0",
        "truncation high_watermark",
        rf"Truncating partition {TP} to local high watermark (?P<offset>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Truncating",
        "2.0-",
        "truncation below_high_watermark",
        rf"Truncating {TP} to offset (?P<offset>-?\d+) below high watermark (?P<hw>-?\d+)",
    ),
    Rule(
        "ReplicaFetcherThread: Reset",
        "1.0-",
        "truncation reset",
        rf"Reset fetch offset for partition {TP} from (?P<fetch_offset>-?\d+) to (?:the )?current leader's "
        r"(?:start|latest) offset (?P<offset>-?\d+).*",
        keep_text=True,
    ),
    Rule(
        "ReplicaFetcherThread: Truncate",
        "2.0-",
        "truncation reset_full",
        rf"Truncate fully and reset fetch offset for partition {TP} from (?P<fetch_offset>-?\d+) to (?:the )?current "
        r"leader's start offset (?P<offset>-?\d+).*",
        keep_text=True,
    ),
)

FOLLOWER_RULES = (
    Rule(
        "ReplicaFetcherManager: Added",
        "2.4-",
        "fetcher added",
        r"Added fetcher to broker (?:BrokerEndPoint\(id=)?(?P<leader_id>\d+).*? for partitions .*",
        each=_ADDED,
    ),
    Rule(
        "ReplicaFetcherManager: Removed",
        "2.0-",
        "fetcher removed",
        r"Removed fetcher for partitions .*",
        each=_EACH_TP,
    ),
    Rule(
        "ReplicaAlterLogDirsManager: Added",
        "2.4-",
        "fetcher future_added",
        r"Added fetcher to broker (?:BrokerEndPoint\(id=)?(?P<leader_id>\d+).*? for partitions .*",
        each=_ADDED,
        printed_by="kafka/server/AbstractFetcherManager.scala",
    ),
    Rule(
        "ReplicaAlterLogDirsManager: Added",
        "2.4-",
        "fetcher future_added",
        r"Added log dir fetcher for partitions with initial offsets .*",
        each=_ADDED,
    ),
    Rule(
        "ReplicaAlterLogDirsManager: Removed",
        "2.0-",
        "fetcher future_removed",
        r"Removed fetcher for partitions .*",
        each=_EACH_TP,
        printed_by="kafka/server/AbstractFetcherManager.scala",
    ),
    Rule(
        f"{_THREAD}: Partition",
        "2.3-",
        "fetcher failed",
        rf"Partition {TP} marked as failed",
    ),
    Rule(
        f"{_THREAD}: Partition",
        "2.1-",
        "fetcher fenced",
        rf"Partition {TP} has an older epoch \((?P<leader_epoch>-?\d+)\) than the current leader\. Will await .*",
    ),
    Rule(
        f"{_THREAD}: Partition",
        "2.5-",
        "fetcher fenced_retried",
        rf"Partition {TP} has an? (?:new|newer) epoch \((?P<leader_epoch>-?\d+)\) than the current leader\. "
        r"[rR]etry the partition later\.?",
    ),
    Rule(
        f"{_THREAD}: Handling",
        "2.3-",
        "fetcher delayed",
        r"Handling errors in (?P<value>\w+) for partitions .*",
        each=_EACH_TP,
    ),
    Rule(
        f"{_THREAD}: Error",
        "0.11-",
        "fetcher request_failed",
        r"Error in (?:response for fetch request|fetch to broker \d+, request) \(type=FetchRequest.*",
        keep_text=True,
        each=rf"{LISTED}=(?:PartitionData)?\((?:topicId=(?P<topic_id>[\w-]+), )?"
        r"(?:fetchO|o)ffset=(?P<fetch_offset>-?\d+)"
        r"(?:[^()]*?currentLeaderEpoch=Optional(?:\.empty|\[(?P<leader_epoch>-?\d+)\]))?",
    ),
    Rule(
        f"{_THREAD}: Error",
        "0.10-",
        "broker_lifecycle fetcher_ended",
        r"Error due to.*",
        keep_text=True,  # the thread's name has the number of the fetcher
        printed_by="kafka/utils/ShutdownableThread.scala; 3.6 org/apache/kafka/server/util/ShutdownableThread.java",
    ),
    Rule(
        f"{_THREAD}: Error",
        "2.0-",
        "fetcher error",
        rf"Error for partition {TP} at offset (?P<fetch_offset>-?\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Error",
        "2.0-",
        "fetcher storage_error",
        rf"Error while processing data for partition {TP} at offset (?P<fetch_offset>-?\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Error",
        "2.0-",
        "fetcher out_of_range_failed",
        rf"Error getting offset for partition {TP}",
    ),
    Rule(
        f"{_THREAD}: Error",
        "2.0-3.2",
        "fetcher epoch_request_failed",
        r"Error when sending leader epoch request for .*",
        each=rf"{LISTED} -> ",
    ),
    Rule(
        "RemoteLeaderEndPoint: Error",
        "3.3-",
        "fetcher epoch_request_failed",
        r"Error when sending leader epoch request for .*",
        each=rf"{LISTED} -> ",
    ),
    Rule(
        f"{_THREAD}: Unexpected",
        "2.3-",
        "fetcher unexpected_error",
        rf"Unexpected error occurred while processing data for partition {TP} at offset (?P<fetch_offset>-?\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Unexpected",
        "2.3-",
        "fetcher truncation_failed",
        rf"Unexpected error occurred during truncation for {TP} at offset (?P<offset>-?\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Failed",
        "2.3-",
        "fetcher truncation_failed",
        rf"Failed to truncate {TP} at offset (?P<offset>-?\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Found",
        "2.0-",
        "fetcher corrupt_records",
        rf"Found invalid messages during fetch for partition {TP} offset (?P<fetch_offset>-?\d+).*",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Remote",
        "2.1-",
        "fetcher unknown_leader_epoch",
        rf"Remote broker has a smaller leader epoch for partition {TP} than this replica's current leader epoch of "
        r"(?P<leader_epoch>-?\d+)\.",
    ),
    Rule(
        f"{_THREAD}: Remote",
        "2.0-",
        "fetcher not_leader",
        rf"Remote broker is not the leader for partition {TP}, which could indicate that the partition is being moved",
    ),
    Rule(
        f"{_THREAD}: Received",
        "2.7-",
        "fetcher error",
        rf"Received (?P<value>[A-Z_]+) from the leader for partition {TP}\. This error may be returned transiently .*",
    ),
    Rule(
        f"{_THREAD}: Received",
        "3.5-",
        "fetcher moved_to_tiered_storage",
        rf"Received error (?P<value>\w+), at fetch offset: (?P<fetch_offset>-?\d+), topic-partition: {TP}",
    ),
    Rule(
        f"{_THREAD}: Current",
        "2.0-",
        "fetcher out_of_range",
        rf"Current offset (?P<fetch_offset>-?\d+) for partition {TP} is out of range.*? "
        r"Reset fetch offset to (?P<offset>-?\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Could",
        "2.3-",
        "fetcher out_of_range_failed",
        rf"Could not fetch offset for {TP} due to error: (?P<value>.*)",
    ),
    Rule(
        f"{_THREAD}: Retrying",
        "2.0-",
        "fetcher epoch_error",
        rf"Retrying leaderEpoch request for partition {TP} as the leader reported an error: (?P<value>\w+)",
    ),
    Rule(
        f"{_THREAD}: Based",
        "2.0-",
        "fetcher epoch_offset_unknown",
        rf"Based on (?:replica's|follower's) leader epoch, leader replied with an unknown offset in {TP}\. The initial "
        r"fetch offset (?P<offset>-?\d+) will be used for truncation\.",
    ),
    Rule(
        f"{_THREAD}: Based",
        "2.0-",
        "fetcher epoch_asked_again",
        r"Based on (?:replica's|follower's) leader epoch, leader replied with epoch (?P<diverging_epoch>-?\d+) unknown "
        rf"to the (?:replica|follower) for {TP}\. Will truncate to (?P<offset>-?\d+) and send another leader epoch "
        r"request to the leader\.",
    ),
    Rule(
        f"{_THREAD}: Based",
        "2.0-",
        "fetcher epoch_below_all",
        r"Based on (?:replica's|follower's) leader epoch, leader replied with epoch (?P<diverging_epoch>-?\d+) below "
        rf"any (?:replica's|follower's) tracked epochs for {TP}\. The leader's offset only (?P<offset>-?\d+) will be "
        r"used for truncation\.",
    ),
    Rule(
        f"{_THREAD}: Leader",
        "2.0-",
        "fetcher epoch_without_epoch",
        r"Leader or (?:replica|follower) is on protocol version where leader epoch is not considered in the "
        rf"OffsetsForLeaderEpoch response\. The leader's offset (?P<offset>-?\d+) will be used for "
        rf"truncation in {TP}\.",
    ),
    Rule(
        f"{_THREAD}: Replication",
        "2.0-",
        "fetcher record_too_large",
        rf"Replication is failing due to a message that is greater than replica\.fetch\.max\.bytes for partition {TP}\."
        r".*",
    ),
    Rule(
        "FetchSessionHandler: Error",
        "1.1-",
        "fetcher session_failed",
        r"Error sending fetch request \(sessionId=(?:INVALID|(?P<session_id>-?\d+)), "
        r"epoch=(?:FINAL|INITIAL|(?P<session_epoch>\d+))\) to node (?P<leader_id>\d+).*",
        keep_text=True,
    ),
    Rule(
        "logger: Unable",
        "3.0-",
        "fetcher not_started",
        rf"Unable to start fetching {TP} with topic (?:ID|id) (?:None|Some\((?P<topic_id>[\w-]+)\)) from leader "
        r"(?:None|Some\((?P<leader_id>-?\d+)\)) because it is not alive\.",
        printed_by="kafka/server/ReplicaManager.scala",
    ),
    Rule(
        "logger: Skipped",
        "1.0-3.9",
        "fetcher not_added",
        r"Skipped the adding-fetcher step of the become-follower state change with correlation id "
        rf"(?P<correlation_id>\d+) from controller \d+ epoch \d+ for partition {TP}"
        r"(?: with leader (?P<leader_id>-?\d+))? since it is shutting down",
        printed_by="kafka/server/ReplicaManager.scala",
    ),
    Rule(
        "logger: Received",
        "2.0-3.9",
        "fetcher not_started",
        r"Received LeaderAndIsrRequest with correlation id (?P<correlation_id>\d+) from controller \d+ epoch \d+ for "
        rf"partition {TP} \(last update controller epoch \d+\) but cannot become follower since the new leader "
        r"(?P<leader_id>-?\d+) is unavailable\.",
        printed_by="kafka/server/ReplicaManager.scala",
    ),
)
