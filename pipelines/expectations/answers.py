"""What it means for the report's answer if the rows of a table are not as they should be, in a sentence per table."""

from __future__ import annotations

from typing import Final

_COUNTED_WRONGLY: Final = "Incidents of this partition may be counted wrongly."
_LOSS: Final = "This incident may be told wrongly: look at its chain before you rely on its numbers."

ANYWHERE: Final = "What rests on the rows of this table may be told wrongly."
# By table: what is said of every rule that says nothing of its own.
ANSWERS: Final = {
    "facts": "What this line says may have been taken wrongly, and with it whatever rests on it.",
    "replication_events": "The order of this partition's events may be wrong, and with it every table made of them.",
    "leo_timeline": "How far this replica's log reached may be wrong, and so what was lost with it.",
    "hw_timeline": "What was committed in this partition, and when, may be told wrongly.",
    "isr_timeline": "Who was in sync may be told wrongly, and so which mechanism lost records, and what prevents it.",
    "isr_flaps": "How often and for how long replicas were out of the ISR may be told wrongly; losses are not touched.",
    "leadership_timeline": "Who led, and from which offset, may be told wrongly: so may the loss at that election.",
    "state_transitions": "When the partition or a replica was offline may be told wrongly; losses are not touched.",
    "follower_states": "Why this follower did not fetch may be told wrongly; losses are not touched.",
    "log_truncations": _COUNTED_WRONGLY,
    "transactions": "What read_committed consumers could read, and when, may be told wrongly; losses are not touched.",
    "log_start_timeline": "Records that went by retention may be taken for lost ones, or lost ones for those.",
    "segment_timeline": "Which segments went, and why, or what the remote tier holds, may be told wrongly.",
    "fetch_rounds": "Why a fetch took as long as it did may be told wrongly; losses are not touched.",
    "commit_latency": "When a batch was committed, and for whom it waited, may be wrong; losses are not touched.",
    "data_loss_incidents": _LOSS,
    "conformance": "Tidemark computed something else than the brokers reported: do not rely on its rows.",
    "replica_divergences": "That these replicas hold other records at the same offsets may be wrong, or too little.",
    "partition_risk": "How long the partition was at risk, and what was nearly lost, may be told wrongly.",
    "consumer_effects": "Which records consumers had read before they were lost may be told wrongly.",
    "partition_meters": "What this partition adds to a broker's metrics may be told wrongly; losses are not touched.",
    "cluster_metrics": "What a dashboard showed in this minute may be told wrongly; losses are not touched.",
    "coverage": "Where the logs have holes may be told wrongly: a verdict there may look surer than it is.",
    "rejected_lines": "How much of the input could not be used may be told wrongly.",
    "set_aside": "Rows are missing from a table, so whatever is counted in it may be too low.",
    "incident_reports": "What was reported, revised or withdrawn may be told wrongly; what stands now is not touched.",
    "files": "It is not certain that every file of the recording was read as a whole.",
    "runs": "Which runs reported what, and when, may be told wrongly; what stands now is not touched.",
    "event_windows": "Rows of events may be missing, so whatever rests on them may be wrong.",
}
