"""One wording in a broker's log: which logger prints it, in which Kafka versions, its pattern, and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# A partition as Kafka prints it: `topic-3`, in releases up to 1.0 `[topic,3]` too; a topic's name has up to 249 letters
TP = r"(?P<tp>[^\s\[]{1,300}-\d{1,10}|\[[^\s,]{1,300},\d{1,10}\])"

# One of the partitions that a line lists; searched only from where a name can begin, since no name is longer.
LISTED = r"(?<![\w.-])(?P<tp>[\w.-]{1,260}-\d{1,10})"

# A logger is named after the class that prints, so its last part tells the file in apache/kafka with the wording in all
# releases of a rule's versions: kafka/*.scala in core/src/main/scala, org/apache/*.java in the module of that name.
CLASSES: dict[str, str] = {
    "AlterIsrManagerImpl": "kafka/server/AlterIsrManager.scala",
    "AppInfoParser": "org/apache/kafka/common/utils/AppInfoParser.java",
    "BrokerHeartbeatManager": "org/apache/kafka/controller/BrokerHeartbeatManager.java",
    "BrokerLifecycleManager": "kafka/server/BrokerLifecycleManager.scala",
    "BrokerServer": "kafka/server/BrokerServer.scala",
    "Cleaner": "kafka/log/LogCleaner.scala; 4.1 org/apache/kafka/storage/internals/log/Cleaner.java",
    "ClientQuotaManager": "kafka/server/ClientQuotaManager.scala",
    "ClientRequestQuotaManager": "kafka/server/ClientQuotaManager.scala",
    "ControllerMutationQuotaManager": "kafka/server/ClientQuotaManager.scala",
    "DefaultAlterIsrManager": "kafka/server/AlterIsrManager.scala",
    "DefaultAlterPartitionManager": "kafka/server/AlterPartitionManager.scala",
    "DynamicConfigManager": "kafka/server/DynamicConfigManager.scala",
    "DynamicConfigPublisher": "kafka/server/metadata/DynamicConfigPublisher.scala",
    "FetchSessionHandler": "org/apache/kafka/clients/FetchSessionHandler.java",
    "KafkaController": "kafka/controller/KafkaController.scala",
    "KafkaServer": "kafka/server/KafkaServer.scala",
    "KafkaZkClient": "kafka/zk/KafkaZkClient.scala",
    "LocalLeaderEndPoint": "kafka/server/LocalLeaderEndPoint.scala",
    "LocalLog": "kafka/log/LocalLog.scala; 4.x org/apache/kafka/storage/internals/log/LocalLog.java",
    "Log": "kafka/log/Log.scala",
    "LogCleaner": "kafka/log/LogCleaner.scala",
    "LogDirFailureChannel": "org/apache/kafka/storage/internals/log/LogDirFailureChannel.java; to 3.4 kafka/server",
    "LogLoader": "kafka/log/LogLoader.scala; 4.x org/apache/kafka/storage/internals/log/LogLoader.java",
    "LoggingSignalHandler": "org/apache/kafka/common/utils/LoggingSignalHandler.java; 4.x common/utils/internals",
    "LogManager": "kafka/log/LogManager.scala; 4.x org/apache/kafka/storage/internals/log/LogManager.java",
    "Partition": "kafka/cluster/Partition.scala",
    "PartitionChangeBuilder": "org/apache/kafka/controller/PartitionChangeBuilder.java",
    "QuorumController": "org/apache/kafka/controller/QuorumController.java",
    "Replica": "kafka/cluster/Replica.scala",
    "RemoteLeaderEndPoint": "kafka/server/RemoteLeaderEndPoint.scala",
    "ReplicaAlterLogDirsManager": "kafka/server/ReplicaAlterLogDirsManager.scala",
    "ReplicaAlterLogDirsThread": "kafka/server/ReplicaAlterLogDirsThread.scala",
    "ReplicaFetcherManager": "kafka/server/AbstractFetcherManager.scala",
    "ReplicaFetcherThread": "kafka/server/AbstractFetcherThread.scala, ReplicaFetcherThread.scala",
    "ReplicaManager": "kafka/server/ReplicaManager.scala",
    "ReplicationControlManager": "org/apache/kafka/controller/ReplicationControlManager.java",
    "ReplicationUtils": "kafka/utils/ReplicationUtils.scala",
    "ReplicationUtils$": "kafka/utils/ReplicationUtils.scala",
    "UnifiedLog": "kafka/log/UnifiedLog.scala; 4.1 org/apache/kafka/storage/internals/log/UnifiedLog.java",
    "UnifiedLog$": "kafka/log/UnifiedLog.scala",
    "ZkAlterPartitionManager": "kafka/server/ZkAlterPartitionManager.scala",
    "ZkConfigManager": "kafka/server/ZkConfigManager.scala",
    "ZkIsrManager": "kafka/server/ZkIsrManager.scala",
    "ZkPartitionStateMachine": "kafka/controller/PartitionStateMachine.scala",
    "ZkReplicaStateMachine": "kafka/controller/ReplicaStateMachine.scala",
    "logger": "kafka/cluster/Partition.scala, kafka/server/ReplicaManager.scala (state.change.logger)",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One wording, and the fact it makes."""

    place: str  # loggers by their last part, and the message's first word: "Log|UnifiedLog: Setting"; no word: any
    versions: str  # "0.10-2.3", "2.4-": up to the newest version looked at
    fact: str  # the fact's kind, and the constant that goes into `name`: "hw_update leader"
    pattern: str
    keep_text: bool = False
    each: str | None = None  # searched repeatedly: a fact per match; one fact if there is none
    reads: tuple[tuple[str, Callable[[str], Any]], ...] = ()  # of a group that is not just a number or a text
    printed_by: str | None = None  # file that prints it, if the logger is not named after its class
    goes_on: bool = False  # the line states more, which the next rule that matches reads

    @property
    def loggers(self) -> tuple[str, ...]:
        """The last parts of the loggers that print it."""
        return tuple(self.place.partition(":")[0].split("|"))

    @property
    def word(self) -> str:
        """The first word of the message; empty: any."""
        return self.place.partition(":")[2].strip()

    @property
    def kind(self) -> str:
        """The kind of the fact."""
        return self.fact.partition(" ")[0]

    @property
    def name(self) -> str | None:
        """The constant for `name`; None if the pattern sets it, or nothing does."""
        return self.fact.partition(" ")[2] or None

    @property
    def source(self) -> str:
        """The file in apache/kafka with the wording, in the releases of `versions`."""
        return self.printed_by or ", ".join(sorted({CLASSES[logger] for logger in self.loggers}))
