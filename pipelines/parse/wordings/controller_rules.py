"""Controllers' lines: state machines, elections, requests to brokers (ZooKeeper); reasons of a decision (KRaft).

Facts of kind `state_change` say in `state_before` and `state_after` what moved, in `name` what it is: `partition`,
`replica`; `partition_failed`, `replica_failed`: a move that was not made; `partition_found`, `replica_found`: what a
controller that starts begins with.
"""

from __future__ import annotations

from pipelines.parse.wordings.rule import LISTED, TP, Rule

_PARTITIONS = "kafka/controller/PartitionStateMachine.scala"
_REPLICAS = "kafka/controller/ReplicaStateMachine.scala"
_REQUESTS = "kafka/controller/ControllerChannelManager.scala"
_BROKER = "kafka/server/ReplicaManager.scala"
_MOVE = r"from (?P<state_before>\w+) to (?P<state_after>\w+)"
_LEADER_AND_ISR = (
    r"LeaderAndIsr\(leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), "
    r"isr(?:WithBrokerEpoch)?=(?P<isr>.{0,4000}?), (?:leaderRecoveryState=\w+, )?"
    r"(?:zkVersion|partitionEpoch)=(?P<partition_epoch>-?\d+)\)"
)
_PARTITION_STATE = (
    r"LeaderAndIsrPartitionState\(topicName='(?P<topic>[\w.-]+)', partitionIndex=(?P<partition>\d+), "
    r"controllerEpoch=-?\d+, leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), isr=\[(?P<isr>[\d, ]*)\]"
    r", (?:zkVersion|partitionEpoch)=(?P<partition_epoch>-?\d+), replicas=\[(?P<replicas>[\d, ]*)\], "
    r"addingReplicas=\[(?P<adding_replicas>[\d, ]*)\], removingReplicas=\[(?P<removing_replicas>[\d, ]*)\], "
    r"isNew=\w+(?:, leaderRecoveryState=(?P<leader_recovery_state>\d+))?\)"
)
_METADATA_STATE = (
    r"UpdateMetadataPartitionState\(topicName='(?P<topic>[\w.-]+)', partitionIndex=(?P<partition>\d+), "
    r"controllerEpoch=-?\d+, leader=(?P<leader_id>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), isr=\[(?P<isr>[\d, ]*)\]"
    r", (?:zkVersion|partitionEpoch)=(?P<partition_epoch>-?\d+), replicas=\[(?P<replicas>[\d, ]*)\], "
    r"offlineReplicas=\[[\d, ]*\]\)"
)
_STOP_STATE = (
    r"StopReplicaPartitionState\(partitionIndex=\d+, leaderEpoch=(?P<leader_epoch>-?\d+), "
    r"deletePartition=(?P<value>\w+)\)"
)
_EACH_TP = rf"{LISTED}(?=,|$)"

_FOUND = r"state machine with initial state -> (?:Hash)?Map\(.*\)"

STATE_MACHINE_RULES = (
    Rule(
        "ZkPartitionStateMachine|PartitionStateMachine: Started",
        "1.0-3.9",
        "state_change partition_found",
        f"Started partition {_FOUND}",
        each=rf"{LISTED} -> (?P<state_after>\w+)",
        printed_by=_PARTITIONS,
    ),
    Rule(
        "ZkReplicaStateMachine|ReplicaStateMachine: Started",
        "1.0-3.9",
        "state_change replica_found",
        f"Started replica {_FOUND}",
        each=r"\[Topic=(?P<topic>[\w.-]{1,249}),Partition=(?P<partition>\d{1,10}),Replica=(?P<replica_id>\d{1,10})\] "
        r"-> (?P<state_after>\w+)",
        printed_by=_REPLICAS,
    ),
    Rule(
        "logger: Changed",
        "2.0-3.9",
        "state_change partition",
        rf"Changed partition {TP} {_MOVE} with state {_LEADER_AND_ISR}",
        printed_by=_PARTITIONS,
    ),
    Rule(
        "logger: Changed",
        "2.0-3.9",
        "state_change partition",
        rf"Changed partition {TP} state {_MOVE}(?: with assigned replicas (?P<replicas>[\d,]*))?",
        printed_by=_PARTITIONS,
    ),
    Rule(
        "logger: Changed",
        "2.0-3.9",
        "state_change replica",
        rf"Changed state of replica (?P<replica_id>\d+) for partition {TP} {_MOVE}",
        printed_by=_REPLICAS,
    ),
    Rule(
        "logger: Controller",
        "2.0-3.9",
        "state_change partition_failed",
        rf"Controller \d+ epoch \d+ failed to change state for partition {TP} {_MOVE}",
        printed_by=_PARTITIONS,
    ),
    Rule(
        "logger: Controller",
        "2.0-3.9",
        "state_change replica_failed",
        rf"Controller \d+ epoch \d+ initiated state change of replica (?P<replica_id>\d+) for partition {TP} "
        rf"{_MOVE} failed",
        printed_by=_REPLICAS,
    ),
    Rule(  # the controller's own ISR change: a replica that went is taken out
        "logger: Partition",
        "2.6-3.9",
        "state_change replica_removed",
        rf"Partition {TP} state changed to \(Leader:(?P<leader_id>-?\d+),ISR:(?P<isr>[\d,]*),"
        r"(?:LeaderRecoveryState:\w+,)?LeaderEpoch:(?P<leader_epoch>-?\d+),(?:ZkVersion:(?P<partition_epoch>-?\d+),)?"
        r"ControllerEpoch:\d+\) after removing replica (?P<replica_id>\d+) from the ISR as part of transition to "
        r"(?P<state_after>\w+)",
        printed_by=_REPLICAS,
    ),
    Rule(
        "ZkReplicaStateMachine: Controller",
        "2.7-3.9",
        "isr_update controller_conflict",
        rf"Controller failed to remove replica (?P<replica_id>\d+) from ISR of partition {TP}\. Attempted to write "
        rf"state {_LEADER_AND_ISR}, but failed with bad ZK version\. This will be retried\.",
    ),
    Rule(
        "ZkPartitionStateMachine: Retrying",
        "2.4-3.9",
        "state_change election_retried",
        r"Retrying leader election with strategy (?P<value>\S+) for partitions .*",
        each=rf"{LISTED}(?=[,)])",
    ),
    Rule(
        "logger: The",
        "3.2-",
        "state_change recovery",
        rf"The topic partition {TP} was marked as (?P<state_before>RECOVERING)\. Marking the topic partition as "
        r"(?P<state_after>RECOVERED)\.",
        printed_by="kafka/cluster/Partition.scala",
    ),
)

REQUEST_RULES = (
    Rule(
        "logger: Sending",
        "2.4-3.9",
        "state_change leader_and_isr_sent",
        rf"Sending become-\w+ LeaderAndIsr request {_PARTITION_STATE} to broker (?P<subject_broker_id>\d+) for "
        r"partition .*",
        printed_by=_REQUESTS,
    ),
    Rule(
        "logger: Received",
        "2.4-3.9",
        "leader_and_isr received",
        rf"Received LeaderAndIsr request {_PARTITION_STATE} correlation id (?P<correlation_id>\d+) from controller .*",
        printed_by=_BROKER,
    ),
    Rule(
        "logger: Ignoring",
        "2.0-3.9",
        "state_change leader_and_isr_ignored",
        r"Ignoring LeaderAndIsr request from controller \d+ with correlation id (?P<correlation_id>\d+) epoch \d+ for "
        rf"partition {TP} (?P<value>(?:since its associated leader epoch (?P<leader_epoch>-?\d+) |as ).*)",
        printed_by=_BROKER,
    ),
    Rule(
        "logger: Sending",
        "2.6-3.9",
        "state_change stop_replica_sent",
        rf"Sending StopReplica request {_STOP_STATE} to broker (?P<subject_broker_id>\d+) for partition {TP}",
        printed_by=_REQUESTS,
    ),
    Rule(
        "logger: Received",
        "2.6-3.9",
        "state_change stop_replica",
        rf"Received StopReplica request {_STOP_STATE} correlation id (?P<correlation_id>\d+) from controller \d+ "
        rf"epoch \d+ for partition {TP}",
        printed_by=_BROKER,
    ),
    Rule(  # a broker's metadata cache takes what the controller sends it
        "logger: Cached",
        "2.4-3.9",
        "state_change metadata_cached",
        rf"Cached leader info {_METADATA_STATE} for partition \S+ in response to UpdateMetadata request sent by "
        r"controller (?P<subject_broker_id>\d+) epoch (?P<controller_epoch>\d+) with correlation id "
        r"(?P<correlation_id>\d+)",
        printed_by="kafka/server/MetadataCache.scala; 3.x kafka/server/metadata/ZkMetadataCache.scala",
    ),
    Rule(
        "logger: Handling",
        "2.0-2.5",
        "state_change stop_replica",
        rf"Handling stop replica \(delete=(?P<value>\w+)\) for partition {TP}",
        printed_by=_BROKER,
    ),
    Rule(
        "logger: Mark",
        "2.0-3.9",
        "state_change marked_offline",
        r"Mark replicas .* on broker (?P<replica_id>\d+) as offline",
        each=rf"{LISTED}(?=,| on broker)",
        printed_by="kafka/controller/KafkaController.scala",
    ),
)

ELECTION_RULES = (
    Rule(
        "KafkaController: Starting",
        "2.4-3.9",
        "state_change election_started",
        r"Starting replica leader election \((?P<value>\w+)\) for partitions \S.* triggered by \w+",
        keep_text=True,
        each=rf"{LISTED}(?=,| triggered)",
    ),
    Rule(
        "KafkaController: Partition",
        "2.0-3.9",
        "state_change preferred_elected",
        rf"Partition {TP} completed preferred replica leader election\. New leader is (?P<leader_id>\d+)",
    ),
    Rule(
        "KafkaController: Partition",
        "2.0-3.9",
        "state_change preferred_failed",
        rf"Partition {TP} failed to complete preferred replica leader election to (?P<replica_id>\d+)\. Leader is "
        r"still (?P<leader_id>-?\d+)",
    ),
    Rule(
        "KafkaController: Error",
        "2.4-3.9",
        "state_change election_failed",
        rf"Error completing replica leader election \((?P<value>\w+)\) for partition {TP}(?: because .*)?",
    ),
    Rule(
        "KafkaController: Leader",
        "2.0-3.9",
        "state_change reassignment_election",
        rf"Leader (?P<leader_id>-?\d+) for partition {TP} being reassigned, "
        r"(?P<value>is (?:not in the new list of replicas|already in the new list of replicas) .*)",
    ),
    Rule(
        "KafkaController: Failed",
        "2.7-3.9",
        "isr_update controller_failed",
        rf"Failed to update ISR for partition {TP}",
    ),
    Rule(
        "KafkaController: Rejecting",
        "3.2-3.9",
        "isr_update controller_rejected",
        rf"Rejecting AlterPartition (?:request )?from node (?P<replica_id>\d+) for {TP} (?P<value>because .*)",
    ),
    Rule(
        "KafkaController:",
        "2.0-3.9",
        "broker_lifecycle controller_elected",
        r"(?P<subject_broker_id>\d+) successfully elected as the controller\. Epoch incremented to (?P<value>\d+) "
        r"and .*",
    ),
    Rule("KafkaController: Resigned", "2.0-3.9", "broker_lifecycle controller_resigned", r"Resigned"),
    Rule(
        "KafkaController: Broker",
        "2.0-3.9",
        "broker_lifecycle broker_failed",
        r"Broker failure callback for (?P<replicas>[\d,]+)",
    ),
)

KRAFT_RULES = (
    Rule(  # why the partitions that it lists change: the records of the metadata log do not say it
        "ReplicationControlManager:",
        "3.0-",
        "state_change decided",
        r"(?P<value>[a-z]\w+)(?:\[(?P<subject_broker_id>\d+)(?::[\w-]+)?\])?: changing partition\(s\): .*",
        each=_EACH_TP,
    ),
    Rule(
        "ReplicationControlManager: partition",
        "3.0-",
        "state_change metadata",
        rf"partition change for {TP} with topic ID (?P<topic_id>[\w-]+): "
        r"(?:(?=(?:.*, )?isr: \[[\d, ]*\] -> \[(?P<isr>[\d, ]*)\]))?"
        r"(?:(?=(?:.*, )?leader: -?\d+ -> (?P<leader_id>-?\d+)))?"
        r"(?:(?=(?:.*, )?leaderEpoch: -?\d+ -> (?P<leader_epoch>-?\d+)))?"
        r"(?:(?=(?:.*, )?partitionEpoch: -?\d+ -> (?P<partition_epoch>-?\d+)))?.*",
        keep_text=True,
        printed_by="org/apache/kafka/metadata/PartitionRegistration.java",
    ),
    Rule(
        "ReplicationControlManager: Node",
        "3.0-",
        "isr_update controller_altered",
        rf"Node (?P<replica_id>\d+) has altered ISR for {TP} to (?P<isr>\[[\d, ]*\])\.",
    ),
    Rule(
        "ReplicationControlManager: Rejecting",
        "3.2-",
        "isr_update controller_rejected",
        rf"Rejecting AlterPartition request from node (?P<replica_id>\d+) for {TP} (?P<value>because .*)",
    ),
    Rule(
        "ReplicationControlManager: AlterPartition",
        "3.2-",
        "isr_update reassignment_completed",
        rf"AlterPartition request from node (?P<replica_id>\d+) for {TP} completed the ongoing partition reassignment "
        r"and triggered a leadership change\. Returning (?P<value>\w+)\.",
    ),
    Rule(
        "ReplicationControlManager: Directories",
        "3.7-",
        "broker_lifecycle directories_offline",
        r"Directories (?P<value>\[[\w, -]*\]) in broker (?P<subject_broker_id>\d+) marked offline, remaining "
        r"directories: .*",
    ),
    Rule(
        "PartitionChangeBuilder: Setting",
        "3.7-",
        "state_change elected_from_elr",
        r"Setting new leader for topicId (?P<topic_id>[\w-]+), partition (?P<partition>\d+) to (?P<leader_id>\d+) "
        r"using ELR.*",
    ),
    Rule(
        "BrokerHeartbeatManager: The",
        "2.8-",
        "broker_lifecycle unfencing",
        r"The request from broker (?P<subject_broker_id>\d+) to unfence has been granted .*",
    ),
    Rule(
        "BrokerHeartbeatManager: Unfenced",
        "3.0-",
        "broker_lifecycle shutdown_granted",
        r"Unfenced broker (?P<subject_broker_id>\d+) has requested and been granted "
        r"(?P<value>a controlled|an immediate) shutdown\.",
    ),
    Rule(
        "BrokerLifecycleManager: The",
        "2.8-",
        "broker_lifecycle controlled_shutdown_done",
        r"The controll(?:er|ed) has asked us to exit controlled shutdown\.",
    ),
)
