"""The one table of broker lines: which logger says it, in which Kafka versions, in what words, and what it means.

The named groups of a pattern are columns of `facts`; `tp` is a partition as Kafka prints it (`topic-3`). A rule is
found by the logger's last part and the first word of the message, so that a line costs a look-up and not sixty
patterns. The message is what stands after the prefix in brackets (`[Partition orders-0 broker=1] `), whose own parts
are columns too.
"""

from __future__ import annotations

from pipelines.parse.wordings.controller_rules import ELECTION_RULES, KRAFT_RULES, REQUEST_RULES, STATE_MACHINE_RULES
from pipelines.parse.wordings.follower_rules import FETCHER_RULES, FOLLOWER_RULES
from pipelines.parse.wordings.leader_rules import ISR_RULES, LOG_CHANGE_RULES, QUOTA_RULES
from pipelines.parse.wordings.lifecycle_rules import CONTROLLER_RULES, LIFECYCLE_RULES
from pipelines.parse.wordings.log_rules import LOG_RULES
from pipelines.parse.wordings.older_rules import OLDER_RULES
from pipelines.parse.wordings.partition_rules import PARTITION_RULES, STATE_CHANGE_RULES

RULES = (
    *PARTITION_RULES,
    *STATE_CHANGE_RULES,
    *LOG_RULES,
    *FETCHER_RULES,
    *LIFECYCLE_RULES,
    *CONTROLLER_RULES,
    *STATE_MACHINE_RULES,
    *REQUEST_RULES,
    *ELECTION_RULES,
    *KRAFT_RULES,
    *FOLLOWER_RULES,
    *ISR_RULES,
    *LOG_CHANGE_RULES,
    *QUOTA_RULES,
    *OLDER_RULES,
)
