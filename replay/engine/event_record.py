"""An event as the rules see it: a record of integers (`encode` makes it from a row of `replication_events`).

Text, sets and nulls stay outside: brokers are dense indices, sets of brokers bit masks, words are `codes`, and a field
that the event does not have is `UNSET`. Times are microseconds.
"""

from __future__ import annotations


class EventRecord:
    """One event of a partition. Fields are named like the columns of `replication_events`, except codes and indices."""

    kind: int  # codes.KIND
    ts: int
    ts_lo: int  # the earliest that it can have happened
    broker: int  # the one on whose log or state it acts
    replica: int  # the other replica; NONE: none or a consumer
    leader: int
    leader_epoch: int
    partition_epoch: int
    evidence: int
    seq: int
    # offsets
    base_offset: int  # of append and ack: the batch's first record
    next_offset: int  # after the last record; of a leader's role the lower bound of its LEO
    next_offset_evidence: int
    fetch_offset: int
    hw: int  # stated by a line, or contained in an answer
    hw_by_lines: int  # of observation: the HW that follows from the lines before it
    leo: int  # stated
    log_start_offset: int
    follower_log_start_offset: int  # of fetch_update
    replica_epoch: int  # fetch_update: broker epoch that it names; isr_request: that the leader names of the replica
    requested_offset: int  # delete_records: before which records are to go
    truncate_to: int
    diverging_epoch: int
    diverging_end_offset: int
    # fields of one kind of event
    acks: int  # append, ack
    duplicate: int  # append, ack: the batch was already in the log
    error_code: int  # ack and fetches
    run_until: int  # fetch_update: the last of a run of unlisted fetches
    preferred: int  # consumer_read: the replica that it is sent to
    role: int  # role_change: ROLE_*
    log_created: int  # log_load: 1 if the log was created anew although the broker had one
    isr: int  # partition_change, role_change, isr_request: a mask
    isr_request: int  # isr_request: what became of it, REQUEST_STATES
    replicas: int  # partition_change: the assigned replicas, a mask; consumer_read: those in the consumer's rack
    min_insync_replicas: int  # config_change
    replica_lag_us: int  # config_change: replica.lag.time.max.ms
    broker_epoch: int  # broker_change: of the registration
    fenced: int  # broker_change
    in_controlled_shutdown: int  # broker_change: STOPPING_*; 0: it ended
    future_log: int  # observation: FUTURE_*
    cause: int  # truncation: CAUSES; delete_records: the cleanup policy, deletion.POLICIES
