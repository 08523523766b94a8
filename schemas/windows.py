"""What a run leaves for the next one, so that it works off what is new: windows of the order, states of the replay."""

from __future__ import annotations

import pyarrow as pa

from schemas.model import INT32, INT64, PARTITION_KEY, STRING, TIMESTAMP, Column, Table, required

BINARY = pa.binary()
PLACE = required("place", INT32, "How many windows of the partition lie before it.", unit="windows")
BEFORE = required("digest", STRING, "Digest of all events before the window: equal for equal events.")

EVENT_WINDOWS = Table(
    "event_windows",
    "Where the windows of each partition's events begin, with digests by which the next run sees what changed: the "
    "first window, the newest ones, and ever fewer of older ones.",
    (
        *PARTITION_KEY,
        PLACE,
        required("window", TIMESTAMP, "Start of its slot of event time."),
        required("seq", INT64, "Seq of its first event."),
        BEFORE,
        required("events", INT64, "Events of the partition, in all windows.", unit="events"),
        required("total", STRING, "Digest of all events of the partition."),
        required("facts", STRING, "Digest of all facts that the events were made of, and of the settings."),
        Column("engine", STRING, "Digest of the sources of the engine that made the state; null without a state."),
        Column("state", BINARY, "What the next order of a long partition goes on from, for that engine only."),
    ),
    key=("place",),
    questions=(
        (
            "Up to when is each partition known?",
            """
            SELECT topic, partition, max(window) AS newest, max(events) AS events
            FROM event_windows GROUP BY topic, partition ORDER BY newest, topic, partition
            """,
        ),
    ),
)

REPLAY_CHECKPOINTS = Table(
    "replay_checkpoints",
    "The state of the replay where a window begins, for those of event_windows: from there the next run goes on. One "
    "more row of each partition (place -1) says which events its tables were made of.",
    (
        *PARTITION_KEY,
        PLACE,
        Column("window", TIMESTAMP, "Start of the window; null: the row about the whole partition."),
        BEFORE,
        required(
            "engine", STRING, "Digest of the sources of the engine that made it; another engine cannot go on from it."
        ),
        Column("state", BINARY, "The state, for that engine only; null: the row about the whole partition."),
    ),
    key=("place",),
    questions=(
        (
            "How large are the states that the replay goes on from?",
            """
            SELECT topic, partition, count(state) AS states, sum(length(state)) AS bytes
            FROM replay_checkpoints GROUP BY topic, partition ORDER BY bytes DESC
            """,
        ),
    ),
)

ORDER_STATES = Table(
    "order_states",
    "What the order of a recording hands to the next run, which then reads only the facts from a moment on. No row: "
    "the next run reads all facts.",
    (
        PARTITION_KEY[0],
        required("horizon", TIMESTAMP, "Facts with an earlier stamp, or none, are not read again for the order."),
        required("facts_version", INT64, "Version of the table facts that it was made of."),
        required("engine", STRING, "Digest of the sources of the engine that made it; another engine reads all facts."),
        required("state", BINARY, "What stands for these facts, for that engine only."),
    ),
    key=("horizon",),
    questions=(
        (
            "From when on does the next run read the facts?",
            "SELECT recording_id, horizon, length(state) AS bytes FROM order_states ORDER BY recording_id",
        ),
    ),
)
