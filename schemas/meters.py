"""What Kafka's own metrics would have shown: each partition's part in them, and broker by broker, minute by minute."""

from __future__ import annotations

from schemas.model import (
    EVIDENCE_COLUMN,
    FLOAT64,
    INT32,
    INT64,
    PARTITION_KEY,
    SEQ,
    STRING,
    TIMESTAMP,
    TS,
    WINDOW,
    Column,
    Table,
    required,
)

# By metric its name in JMX; a gauge of a broker, but for those named below.
MBEANS: dict[str, str] = {
    "LeaderCount": "kafka.server:type=ReplicaManager,name=LeaderCount",
    "UnderReplicatedPartitions": "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
    "UnderMinIsrPartitionCount": "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
    "AtMinIsrPartitionCount": "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
    "IsrShrinksPerSec": "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
    "IsrExpandsPerSec": "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
    "FailedIsrUpdatesPerSec": "kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec",
    "MaxLag": "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
    "LeaderReplication": "kafka.server:type=LeaderReplication",  # its attribute byte-rate
    "FollowerReplication": "kafka.server:type=FollowerReplication",
    "OfflinePartitionsCount": "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
    "UncleanLeaderElectionsPerSec": "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
}
METRICS: tuple[str, ...] = tuple(MBEANS)
COUNTED: tuple[str, ...] = tuple(name for name in METRICS if name.endswith("PerSec"))  # meters: Kafka marks each event
OF_CONTROLLER: tuple[str, ...] = ("OfflinePartitionsCount", "UncleanLeaderElectionsPerSec")

PARTITION_METERS = Table(
    "partition_meters",
    "Each partition's part in what Kafka's metrics show: a row where it changes. cluster_metrics is made of them.",
    (
        *PARTITION_KEY,
        SEQ,
        WINDOW,
        TS,
        Column("broker_id", INT32, "Whose metric it is; null: the active controller's."),
        required("metric", STRING, "Kafka's name of the metric.", values=METRICS),
        Column(
            "value",
            INT64,
            "Gauge: its part from here on (0 or 1; MaxLag: the replica's lag in records), null: not known. Meter "
            "(PerSec): how many events are counted here for sure. LeaderReplication, FollowerReplication: how many "
            "bytes of records were sent or fetched under the limit in this second.",
        ),
        Column(
            "highest",
            INT64,
            "MaxLag: the largest lag of the replica since the row before, in the same minute. Meter: how many events "
            "are counted here at most; null: not known. Null: any other.",
        ),
        Column(
            "quota_limit",
            INT64,
            "LeaderReplication, FollowerReplication: limit of the broker's replication quota that holds for the "
            "partition from here on; null: none any more, or another metric.",
            unit="bytes/s",
        ),
        Column(
            "quota_window",
            INT32,
            "LeaderReplication, FollowerReplication: over how many seconds the broker's rate goes at most (11, from "
            "3.8 on 12); null: the row only tells of a limit, or of another metric.",
            unit="s",
        ),
        EVIDENCE_COLUMN,
    ),
    key=("seq", "metric", "broker_id"),
    checks={
        "known_metric_value": "value IS NULL OR value >= 0",
        "highest_not_below": "value IS NULL OR highest IS NULL OR highest >= value",
    },
    questions=(
        (
            "Which partitions were under-replicated on a dashboard, on which broker, and from when to when?",
            """
            SELECT topic, partition, broker_id, ts, until, value
            FROM (SELECT *, lead(ts) OVER (PARTITION BY topic, incarnation, partition, broker_id, metric ORDER BY seq)
                         AS until
                  FROM partition_meters WHERE metric = 'UnderReplicatedPartitions')
            WHERE value = 1 ORDER BY topic, partition, ts
            """,
        ),
    ),
)

CLUSTER_METRICS = Table(
    "cluster_metrics",
    "What Kafka's own metrics would have shown, broker by broker and minute by minute: to lay an incident beside a "
    "dashboard.",
    (
        required("recording_id", STRING, "Recording."),
        Column("broker_id", INT32, "Broker that exports it; null: the active controller."),
        required(
            "metric",
            STRING,
            "Kafka's name of the metric. LeaderReplication and FollowerReplication, the rates that replication quotas "
            "limit, have rows only for minutes in which a limit is known to hold.",
            values=METRICS,
        ),
        required("mbean", STRING, "Its name in JMX; a rate's attribute there is byte-rate."),
        required("kind", STRING, "A gauge is read, a meter counts.", values=("gauge", "meter")),
        required("minute", TIMESTAMP, "Start of the minute, on the broker's own clock."),
        Column(
            "value",
            INT64,
            "Gauge: at the end of the minute. Meter: by how much its Count rose in the minute. Null: not known. "
            "LeaderReplication, FollowerReplication: how many bytes a second it was at least, like lowest and highest.",
        ),
        Column(
            "lowest",
            INT64,
            "Gauge: the lowest value in the minute; meter: the least that Count rose by. Null: not known; MaxLag.",
        ),
        Column(
            "highest",
            INT64,
            "Gauge: the highest value in the minute; meter: the most that Count rose by. Null: not known.",
        ),
        Column("per_second", FLOAT64, "Meter: value by the minute's seconds; null: a gauge, or not known."),
        Column(
            "quota_limit",
            INT64,
            "LeaderReplication, FollowerReplication: limit of the broker's replication quota, the least in the minute.",
            unit="bytes/s",
        ),
        Column(
            "over_quota_seconds",
            INT64,
            "LeaderReplication, FollowerReplication: in how many seconds of the minute the rate was above the limit "
            "for sure, so that the broker held replication back.",
            unit="s",
        ),
        required(
            "evidence",
            STRING,
            "derived: it follows from the logs. bounded: parts of the minute or of the broker's logs are missing, or "
            "the value is only known to lie between lowest and highest, or is a least one. unknown: nothing shows that "
            "the broker was up in this minute (a dead broker exports nothing), or no log tells.",
            values=("derived", "bounded", "unknown"),
        ),
    ),
    key=("broker_id", "metric", "minute"),
    checks={
        "value_between": "value IS NULL OR (coalesce(lowest, value) <= value AND value <= highest)",
        "unknown_is_null": "evidence <> 'unknown' OR value IS NULL",
    },
    questions=(
        (
            "What would each broker's dashboard have shown, minute by minute? (only what was not 0)",
            """
            SELECT minute, broker_id, metric, value, lowest, highest, evidence
            FROM cluster_metrics WHERE metric <> 'LeaderCount'
                  AND (coalesce(highest, lowest) > 0 OR evidence = 'unknown')
            ORDER BY minute, metric, broker_id
            """,
        ),
        (
            "When did brokers replicate faster than their quotas allow, and how fast at least?",
            """
            SELECT minute, broker_id, metric, highest AS bytes_per_second, quota_limit, over_quota_seconds
            FROM cluster_metrics WHERE over_quota_seconds > 0 ORDER BY minute, broker_id, metric
            """,
        ),
        (
            "Over the whole cluster: how many partitions were under-replicated or offline in each minute, at most?",
            """
            SELECT minute, metric, sum(highest) AS at_most, sum(lowest) AS at_least,
                   count_if(evidence = 'unknown') AS brokers_not_known
            FROM cluster_metrics
            WHERE metric IN ('UnderReplicatedPartitions', 'UnderMinIsrPartitionCount', 'OfflinePartitionsCount')
            GROUP BY minute, metric ORDER BY minute, metric
            """,
        ),
    ),
)

TABLES: tuple[Table, ...] = (PARTITION_METERS,)  # of the replay
