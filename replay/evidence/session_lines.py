"""One broker's fetch requests as lines: by session and epoch, and what is told of each.

The states that a rebuild of sessions goes on from (`session_states`) are lines, too.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.arrays.columns import numbers, numbers_of
from replay.engine.codes import UNKNOWN_TOPIC_ID
from replay.evidence.request_times import TIMING
from replay.evidence.session_turns import bytes_before
from replay.protocol.produce import TOPIC_AUTHORIZATION_FAILED
from schemas.facts import FACTS
from schemas.model import BOOL, INT64, TIMESTAMP

if TYPE_CHECKING:
    from replay.arrays.ints import Flags, Ints

RUN_COLUMNS = (
    pa.field("hw_implied", BOOL),
    pa.field("run_count", INT64),
    pa.field("run_until", TIMESTAMP),
    pa.field("run_gap_us", INT64),
    pa.field("run_timeouts", INT64),
    pa.field("request_bytes", INT64),
    pa.field("request_forced", BOOL),
    pa.field("bytes_before", INT64),
)
LEFT_OUT = "left_out"  # kind of a row for requests of a session that leave out one of its partitions
SESSION_SCHEMA = pa.schema([*(f.with_nullable(nullable=True) for f in FACTS.arrow_schema), *RUN_COLUMNS])
CACHED = (
    "fetch_offset", "current_leader_epoch", "last_fetched_epoch", "follower_log_start_offset", "partition_max_bytes",
)  # fmt: skip

LINE_FIELDS = (
    "ts",
    "ts_error_us",
    "connection",
    "correlation_id",
    "source_line",
    "source_file",
    "fact_id",
    "total_us",
    *TIMING,
    "request_bytes",
    "request_forced",
)  # what a run takes from its first line
ANSWERED_BY_ITSELF = (TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID)  # errors of partitions that are not read at all
NOTHING = -1  # no fact has it
STATE_SCHEMA = pa.schema(  # what a rebuild goes on from; see `session_states`
    [
        *SESSION_SCHEMA,
        pa.field("state_session", INT64),
        pa.field("state_epoch", INT64),  # the epoch of the session's last line,
        pa.field("state_taken", INT64),  # and when it was taken up
        pa.field("state_opened", BOOL),  # whether a run has begun
        pa.field("state_left", BOOL),  # whether the partition was forgotten, and requests leave it out
        pa.field("state_told", INT64),  # how much is known of the order in which the session is read (`session_turns`),
        pa.field("state_turn", INT64),  # the partition's place in it, null: unknown,
        pa.field("state_turn_listed", INT64),  # and by the rule up to 2.8
        pa.field("state_waited", INT64),  # how long the fetches of the run have waited together, microseconds
    ]
)


NUMBERED = ("session_epoch", "session_id", "response_session_id")


def numbered(facts: pa.Table) -> tuple[Ints, Ints]:
    """The session of each fetch, 0 if it is in none, and the epoch that it has there; of the columns `NUMBERED`."""
    opens = numbers_of(facts, "session_epoch", NOTHING) == 0
    opened = np.where(opens, numbers_of(facts, "response_session_id"), 0)
    epoch = numbers_of(facts, "session_epoch")
    return np.where(epoch > 0, numbers_of(facts, "session_id"), opened), epoch


class EntangledError(Exception):
    """Lines of a session come before those that its state stands for, so that it cannot go on from there."""


class SessionLines:
    """The requests among one broker's fetch facts: by session and epoch; sessionless ones by time.

    The states that a rebuild goes on from are a line, too: of each session the one before all others.
    """

    def __init__(self, facts: pa.Table, states: pa.Table | None = None) -> None:
        """`facts`: by fact id, in one chunk. `states`: of `STATE_SCHEMA`. EntangledError: they are not before all."""
        if states is not None:
            facts = pa.concat_tables([states, facts], promote_options="default").combine_chunks()
        self.facts = facts
        self.stand: Flags = np.arange(len(facts)) < (0 if states is None else len(states))  # which are states
        session, epoch = numbered(facts)
        connection, number = self.ranks("connection"), self.numbers("correlation_id")
        if states is not None:
            epoch = np.where(self.stand, self.numbers("state_epoch"), epoch)
            session = np.where(self.stand, self.numbers("state_session"), session)
            connection, number = (np.where(self.stand, NOTHING, one) for one in (connection, number))
        by_line = np.lexsort((number, connection, epoch, session))
        keys = np.stack([session, epoch, connection, number])[:, by_line]
        changes = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
        begin = np.flatnonzero(np.append(len(by_line) > 0, changes))
        session, epoch, connection, number = keys[:, begin]
        stamp = self.numbers("ts")[by_line[begin]]
        order = np.lexsort((number, connection, epoch, stamp, np.where(session == 0, 0, epoch), session))
        size = np.diff(np.append(begin, len(by_line)))[order]
        self.end: Ints = np.cumsum(size)
        self.begin: Ints = self.end - size
        self.rows: Ints = by_line[np.repeat(begin[order] - self.begin, size) + np.arange(len(by_line))]  # in order
        self.head: Ints = self.rows[self.begin]  # the first fact of each line
        self.session, self.epoch = session[order], epoch[order]
        self.taken: Ints = (self.numbers("ts") - self.numbers("total_us") + self.numbers("queue_us"))[self.head]
        if states is not None:
            self.go_on()

    def go_on(self) -> None:
        """Take what states say of their lines."""
        of_states = self.stand[self.head]
        self.taken = np.where(of_states, self.numbers("state_taken")[self.head], self.taken)
        first = np.diff(self.session, prepend=NOTHING) != 0
        same = np.append(of_states[:-1] & ~first[1:] & (np.diff(self.epoch) <= 0), np.False_)
        if (of_states & ~first).any() or same[: len(first)].any():
            raise EntangledError

    def column(self, name: str) -> pa.Array:
        """A column of the facts; null throughout if they lack it."""
        place = self.facts.schema.get_field_index(name)
        if place < 0:
            return pa.nulls(len(self.facts), STATE_SCHEMA.field(name).type)
        return self.facts.column(place).combine_chunks()

    def numbers(self, name: str, missing: int = 0) -> Ints:
        """A column of numbers, flags or times, as integers."""
        return numbers(self.column(name), missing)

    def known(self, name: str) -> Flags:
        """Where a column is not null."""
        return np.asarray(self.column(name).is_valid().to_numpy(zero_copy_only=False), np.bool_)

    def ranks(self, *names: str) -> Ints:
        """Texts as ranks in sorted order, from the first column with a non-empty value; "" if there is none."""
        texts = [pc.if_else(pc.equal(column, ""), None, column) for column in map(self.column, names)]
        encoded = pc.fill_null(pc.coalesce(*texts), "").dictionary_encode()
        place = np.empty(len(encoded.dictionary), np.int64)
        place[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(place))
        found: Ints = place[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def of_rows(self) -> Ints:
        """The line of each of `rows`."""
        found: Ints = np.repeat(np.arange(len(self.begin)), self.end - self.begin)
        return found

    def sessionless(self) -> Ints:
        """Which of `rows` are of a partition, in requests without a session."""
        found: Ints = np.flatnonzero((self.session[self.of_rows()] == 0) & (self.partitions[self.rows] != NOTHING))
        return found

    @cached_property
    def partitions(self) -> Ints:
        """The partition of each fact, as a number; NOTHING if it has none.

        Requests name it by topic id from Fetch v13 on, by name before.
        """
        partition = self.numbers("partition", NOTHING)
        return np.where(partition < 0, NOTHING, self.ranks("topic_id", "topic") * (1 << 32) + partition)

    @cached_property
    def before(self) -> Ints:
        """For each fact, the bytes that its answer holds of partitions read before its own; NOTHING: not known."""
        return bytes_before(self)

    def note_request(self) -> tuple[Ints, Flags]:
        """For each fact, the bytes in its whole answer, and whether a partition completes the fetch in any case."""
        if not len(self.head):
            return self.head, self.head.astype(bool)
        size = self.end - self.begin
        handed, forced = np.empty(len(self.rows), np.int64), np.empty(len(self.rows), np.bool_)
        handed[self.rows] = np.repeat(np.add.reduceat(self.numbers("bytes")[self.rows], self.begin), size)
        forced[self.rows] = np.repeat(np.logical_or.reduceat(self.forces()[self.rows], self.begin), size)
        if self.stand.any():
            handed = np.where(self.stand, self.numbers("request_bytes"), handed)
            forced = np.where(self.stand, self.numbers("request_forced") != 0, forced)
        return handed, forced

    def forces(self) -> Flags:
        """Whether each fact's partition completes the fetch regardless of bytes (DelayedFetch.tryComplete).

        What KafkaApis refuses by itself is added to the answer when the others have been read, and ends no wait.
        """
        beyond = self.known("fetch_offset") & self.known("hw") & (self.numbers("fetch_offset") > self.numbers("hw"))
        sent_elsewhere = self.numbers("preferred_read_replica", NOTHING) >= 0  # broker 0 is one, -1 is none (KIP-392)
        by_consumer = self.numbers("replica_id", NOTHING) < 0
        errors = self.numbers("error_code")
        failed = ((errors != 0) & ~np.isin(errors, ANSWERED_BY_ITSELF)) | self.known("diverging_epoch")
        found: Flags = failed | sent_elsewhere | (beyond & by_consumer)
        return found
