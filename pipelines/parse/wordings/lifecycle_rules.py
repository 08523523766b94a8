"""Lines of a broker's life: starts and stops, its cluster and release; who is alive, as controllers say."""

from __future__ import annotations

from pipelines.parse.wordings.rule import TP, Rule

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
    # The first line of a shutdown, and the last but one of any node, controllers among them.
    Rule(
        "LoggingSignalHandler: Terminating",
        "1.1-",
        "broker_lifecycle terminating",
        r"Terminating process due to signal (?P<value>SIG\w+)",
    ),
    Rule(  # as the replica manager starts, and its isr-expiration task with it
        "ReplicaManager$LogDirFailureHandler: Starting",
        "1.0-",
        "broker_lifecycle replica_manager_started",
        r"Starting",
        printed_by="kafka/utils/ShutdownableThread.scala; 3.5 org/apache/kafka/server/util/ShutdownableThread.java",
    ),
    Rule("AppInfoParser: App", "2.7-", "broker_lifecycle ended", r"App info kafka\.server for \d+ unregistered"),
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
        rf"UNCLEAN partition change for {TP} with topic ID (?P<topic_id>[\w-]+): "
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
    *(
        Rule(
            f"KafkaController: {word}",
            "2.2-3.9",
            "broker_lifecycle broker_epoch",
            rf"{word} broker epochs cache: .*",
            each=r"\b(?P<subject_broker_id>\d{1,9}) -> (?P<broker_epoch>\d{1,18})\b",
        )
        for word in ("Initialized", "Updated")
    ),
    Rule(
        "KafkaController: Shutting",
        "1.0-3.9",
        "broker_lifecycle stopping_broker",
        r"Shutting down broker (?P<subject_broker_id>\d+)",
    ),
)
