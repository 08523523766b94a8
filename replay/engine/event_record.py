"""An event as the rules see it: a record of integers (`encode` makes it from a row of `replication_events`).

Text, sets and nulls stay outside: brokers are dense indices, sets of brokers bit masks, words codes of `codes`, and a
field that the event does not carry is `UNSET`. Times are microseconds.
"""

from __future__ import annotations


class EventRecord:
    """One event of a partition. Named like the columns of `replication_events` but for what is a code or an index."""

    kind: int  # codes.KIND
    ts: int
    ts_lo: int  # earliest that it can have happened
    broker: int  # on whose log or state it acts
    replica: int  # the other replica, NONE: none or a consumer
    leader: int
    leader_epoch: int
    partition_epoch: int
    evidence: int
    seq: int
    # offsets
    base_offset: int  # of append and ack: the batch's first record
    next_offset: int  # behind the last record; of a leader's role the least that its LEO can be
    next_offset_evidence: int
    fetch_offset: int
    hw: int  # stated by a line, or carried by an answer
    hw_by_lines: int  # of observation: the HW that the lines before it tell
    leo: int  # stated
    log_start_offset: int
    follower_log_start_offset: int  # of fetch_update
    truncate_to: int
    diverging_epoch: int
    diverging_end_offset: int
    # what events of one kind say
    acks: int  # append, ack
    duplicate: int  # append, ack: the batch was in the log already
    error_code: int  # ack and fetches
    run_until: int  # fetch_update: the last of a run of unlisted fetches
    role: int  # role_change: ROLE_*
    log_created: int  # log_load: 1 where the log was made anew where the broker had one
    isr: int  # partition_change, role_change, isr_request: a mask
    isr_request: int  # isr_request: what became of it, REQUEST_STATES
    replicas: int  # partition_change: who is assigned, a mask
    min_insync_replicas: int  # config_change
    replica_lag_us: int  # config_change: replica.lag.time.max.ms
    fenced: int  # broker_change
    in_controlled_shutdown: int  # broker_change
    future_log: int  # observation: FUTURE_*
    cause: int  # truncation: CAUSES
