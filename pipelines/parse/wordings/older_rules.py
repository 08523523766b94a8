"""Wordings that releases before 2.4 alone have: partitions in brackets, broker and partition named in the text."""

from __future__ import annotations

from pipelines.parse.wordings.rule import TP, Rule

_THREAD = "ReplicaFetcherThread"

OLDER_RULES = (
    Rule(
        "Partition: Shrinking",
        "0.8-0.10",
        "isr_update shrink",
        rf"Shrinking ISR for partition {TP} from [\d,]* to (?P<isr>[\d,]*)",
        keep_text=True,
    ),
    Rule(
        "Partition: Expanding",
        "0.8-0.10",
        "isr_update expand",
        rf"Expanding ISR for partition {TP} from [\d,]* to (?P<isr>[\d,]*)",
        keep_text=True,
    ),
    Rule(
        "Partition: High",
        "0.8-0.10",
        "hw_update leader",
        rf"High watermark for partition {TP} updated to (?P<hw>-?\d+).*",
    ),
    Rule(
        "Partition: Recorded",
        "0.8-0.10",
        "remote_leo_update",
        r"Recorded replica (?P<replica_id>-?\d+) log end offset \(LEO\) position (?P<offset>-?\d+) for partition "
        rf"{TP}\.",
    ),
    Rule(
        "Partition: Error",
        "0.8-0.11",
        "storage_failure io_error",
        rf"Error deleting the log for partition {TP}",
        keep_text=True,
    ),
    Rule(
        "Replica: Replica",
        "0.11-2.3",
        "log_load loaded",
        rf"Replica loaded for partition {TP} with initial high watermark (?P<hw>-?\d+)",
    ),
    Rule(
        "Log: Completed",
        "0.8-0.10",
        "log_load completed",
        rf"Completed load of log {TP} with (?:\d+ log segments and )?log end offset (?P<offset>\d+)(?: in \d+ ms)?",
    ),
    Rule(
        "Log: Completed",
        "0.11",
        "log_load completed",
        rf"Completed load of log {TP} with \d+ log segments, log start offset (?P<log_start_offset>\d+) and log end "
        r"offset (?P<offset>\d+) in \d+ ms",
    ),
    Rule("Log: Truncating", "0.8-0.11", "truncation log", rf"Truncating log {TP} to offset (?P<offset>-?\d+)\."),
    Rule(
        "Log: Corruption",
        "0.8-0.11",
        "truncation recovery",
        rf"Corruption found in segment \d+ of log {TP}, truncating to offset (?P<offset>\d+)\.",
        keep_text=True,
    ),
    Rule(
        "ReplicaFetcherManager: Added",
        "0.8-2.0",
        "fetcher added",
        r"Added fetcher for partitions .*",
        each=r"\[(?P<tp>[\w.-]{1,260}-\d{1,10}|\[[\w.-]{1,260},\d{1,10}\]), initOffset (?P<fetch_offset>-?\d+) to "
        r"broker (?:BrokerEndPoint\(|id:)(?P<leader_id>\d+)\b",
    ),
    Rule(
        f"{_THREAD}: Error",
        "0.8-1.0",
        "fetcher error",
        rf"Error for partition {TP} to broker (?P<leader_id>\d+):(?P<value>.*)",
    ),
    Rule(
        f"{_THREAD}: Error",
        "0.8-1.0",
        "fetcher out_of_range_failed",
        rf"Error getting offset for partition {TP} to broker (?P<leader_id>\d+)",
    ),
    Rule(
        f"{_THREAD}: Current",
        "0.8-1.0",
        "fetcher out_of_range",
        rf"Current offset (?P<fetch_offset>-?\d+) for partition {TP} out of range; reset offset to (?P<offset>-?\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Replica",
        "0.8-0.11",
        "truncation reset",
        rf"Replica \d+ for partition {TP} reset its fetch offset from (?P<fetch_offset>-?\d+) to current leader "
        r"(?P<leader_id>\d+)'s (?:start|latest) offset (?P<offset>-?\d+)",
        keep_text=True,
    ),
    Rule(
        f"{_THREAD}: Based",
        "0.11-1.0",
        "fetcher epoch_offset_unknown",
        rf"Based on follower's leader epoch, leader replied with an unknown offset in {TP}\. High watermark "
        r"(?P<offset>-?\d+) will be used for truncation\.",
    ),
    *(  # the broker halts rather than cut what no unclean election may take away
        Rule(
            f"{_THREAD}: {word}",
            versions,
            "fetcher truncation_forbidden",
            rf"{word} because log truncation is not allowed for (?:partition|topic) (?:{TP}|\S+), [cC]urrent leader"
            r"(?: (?P<leader_id>\d+))?'s latest offset (?P<offset>-?\d+) is less than replica(?: \d+)?'s latest offset "
            r"(?P<fetch_offset>-?\d+)\}?",
            keep_text=True,
        )
        for word, versions in (("Halting", "0.8-0.9"), ("Exiting", "0.10-2.2"))
    ),
    Rule(
        f"{_THREAD}: Disk",
        "0.8-0.11",
        "storage_failure io_error",
        rf"Disk error while replicating data for {TP}",
        keep_text=True,
    ),
    Rule(
        "ReplicaManager: Halting",
        "0.8-0.11",
        "storage_failure io_error",
        r"Halting due to unrecoverable I/O error while handling .*",
        keep_text=True,
    ),
    Rule(
        "ReplicaManager: Error",
        "0.8-0.11",
        "storage_failure checkpoint_failed",
        r"Error writing to highwatermark file: ?",
        keep_text=True,
    ),
)
