"""Lines of a partition: what its leader records, its ISR, and the roles that its replicas take up."""

from __future__ import annotations

from pipelines.parse.wordings.isr_words import FAILED, joining_in, leos_in
from pipelines.parse.wordings.rule import TP, Rule

POINT = r"\(offset=(?P<{}>-?\d+)[^)]*\)"
_PENDING = (
    r"sentLeaderAndIsr=LeaderAndIsr\(leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), "
    r"isr(?:WithBrokerEpoch)?=(?P<isr>.{0,4000}?), (?:leaderRecoveryState=\w+, )?"
    r"partitionEpoch=(?P<partition_epoch>\d+)\)"
)
_EXPAND = rf"PendingExpand\w+\((?:isr=[^)]*\), )?newInSyncReplicaId=(?P<replica_id>\d+), {_PENDING}"
_SHRINK = rf"PendingShrink\w+\((?:isr=[^)]*\), )?outOfSyncReplicaIds=[^)\]]*[)\]], {_PENDING}"
_WHY = r"(?P<error_code>(?:.*? (?P<value>(?:since|because|due to) .*)|.*))"
_ENQUEUED = (
    r"(?:Enqueued ISR change to state|Sent `AlterIsr` request to change state to) LeaderAndIsr\("
    r"leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), "
    r"isr=(?P<isr>[^)]*\)), zkVersion=(?P<partition_epoch>\d+)\) after transition to "
)

PARTITION_RULES = (
    Rule(
        "Partition: Unexpected",
        "1.0-",
        "fetcher batch_start",
        rf"Unexpected offset in append to {TP}\. First offset (?P<offset>-?\d+) is less than log start offset "
        r"(?P<log_start_offset>-?\d+)\. Since this is the first record to be appended to the follower's log, will "
        r"start the log from offset -?\d+\.",
    ),
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
        rf"High watermark updated from {POINT.format('hw_before')} to {POINT.format('hw')}",
    ),
    Rule(
        "Partition: High", "0.10-2.3", "hw_update leader", r"High watermark updated to \(?(?:offset=)?(?P<hw>-?\d+).*"
    ),
    Rule(
        "Partition: Log",
        "2.4-",
        "log_load loaded",
        rf"Log loaded for partition {TP} with initial high watermark (?P<hw>-?\d+)",
    ),
    Rule(
        "Partition: No",
        "1.0-",
        "log_load no_checkpoint",
        rf"No checkpointed highwatermark is found for partition {TP}",
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
        r"(?:\. Leader: \(highWatermark: (?P<hw>-?\d+), endOffset: (?P<offset>-?\d+)\)\. "
        r"Out of sync replicas: (?P<value>.*))?",
        keep_text=True,
        reads=(("value", leos_in),),
    ),
    Rule(
        "Partition: Expanding",
        "0.11-2.7",
        "isr_update expand",
        r"Expanding ISR from (?P<replica_id>[\d,]* to (?P<isr>[\d,]*))",
        keep_text=True,
        reads=(("replica_id", joining_in),),
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
        reads=FAILED,
    ),
    Rule(
        "Partition: Failed",
        "2.7-",
        "isr_update failed",
        rf"Failed to (?:alter partition|update ISR) to Pending(?:Shrink\w+\(.*?{_PENDING})?{_WHY}",
        keep_text=True,
        reads=FAILED,
    ),
    Rule(
        "Partition: Ignoring",
        "2.7-",
        "isr_update failed",
        rf"Ignoring failed ISR update to (?:{_EXPAND})(?P<error_code>.*)",
        keep_text=True,
        reads=FAILED,
    ),
    Rule(
        "Partition: Ignoring",
        "2.7-",
        "isr_update failed",
        rf"Ignoring failed ISR update to Pending(?:Shrink\w+\(.*?{_PENDING})?(?P<error_code>.*)",
        keep_text=True,
        reads=FAILED,
    ),
    Rule(
        "Partition:",
        "0.11-2.5",
        "role_change leader",
        rf"{TP} starts at [Ll]eader [Ee]poch (?P<leader_epoch>-?\d+) from offset (?P<offset>-?\d+)"
        r"(?: with high watermark (?P<hw>-?\d+))?\. Previous .*",
    ),
)

STATE_CHANGE_RULES = (
    Rule(
        "logger: Leader",
        "2.6-",
        "role_change leader",
        rf"Leader {TP}(?: with topic id (?:None|(?:Some\()?(?P<topic_id>[\w-]+)\)?))? starts at leader epoch "
        r"(?P<leader_epoch>-?\d+) from offset (?P<offset>-?\d+) with (?:partition epoch (?P<partition_epoch>-?\d+), )?"
        r"high watermark (?P<hw>-?\d+),? ISR \[(?P<isr>[\d, ]*)\],? adding ?[rR]eplicas "
        r"\[(?P<adding_replicas>[\d, ]*)\] (?:and )?removing ?[rR]eplicas \[(?P<removing_replicas>[\d, ]*)\].*",
    ),
    Rule(
        "logger: Follower",
        "2.6-",
        "role_change follower",
        rf"Follower {TP}(?: with topic id (?:None|(?:Some\()?(?P<topic_id>[\w-]+)\)?))? starts at leader epoch "
        r"(?P<leader_epoch>-?\d+) from offset (?P<offset>-?\d+) with "
        r"(?:partition epoch (?P<partition_epoch>-?\d+) and )?high watermark (?P<hw>-?\d+)\."
        r"(?: Current leader is (?P<leader_id>-?\d+)\.)?.*",
    ),
    Rule(  # the leader takes over a decision that leaves its leader epoch: an ISR change by the controller
        "logger: Skipped",
        "3.3-",
        "isr_update applied",
        rf"Skipped the become-leader state change for {TP} with topic id (?:None|Some\((?P<topic_id>[\w-]+)\)) and "
        r"partition state \w*PartitionState\(.*?leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), "
        r"isr=\[(?P<isr>[\d, ]*)\], (?:partitionEpoch|zkVersion)=(?P<partition_epoch>-?\d+), .*",
    ),
    Rule(
        "logger: Skipped",
        "4.2-",
        "isr_update applied",
        rf"Skipped the become-leader state change for {TP} with topic id (?:None|Some\((?P<topic_id>[\w-]+)\)), "
        r"partition registration PartitionRegistration\(.{0,2000}?\bisr=\[(?P<isr>[\d, ]*)\], "
        r".{0,2000}?\bleader=(?P<leader_id>-?\d+), .{0,2000}?leaderEpoch=(?P<leader_epoch>-?\d+), "
        r"partitionEpoch=(?P<partition_epoch>-?\d+)\) .*",
    ),
    Rule(
        "logger: Creating",
        "3.0-",
        "topic_change partition_created",
        rf"Creating new partition {TP} with topic id (?P<topic_id>[\w-]+)\.",
    ),
    Rule(
        "logger: Unable",
        "1.0-",
        "storage_failure offline_directory",
        rf"Unable to bring up new local (?:leader|follower) {TP} with topic id (?P<topic_id>[\w-]+) because it "
        r"resides in an offline log directory\.",
        keep_text=True,
    ),
)
