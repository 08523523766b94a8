"""What is told of the input and of each run: coverage, rejected lines, rows set aside, expectations, reports, runs."""

from __future__ import annotations

import pyarrow as pa

from schemas.incidents import DATA_LOSS_INCIDENTS
from schemas.model import (
    BOOL,
    EVIDENCE,
    EVIDENCE_COLUMN,
    INT32,
    INT64,
    PARTITION_KEY,
    STRING,
    STRING_LIST,
    TIMESTAMP,
    Column,
    Table,
    required,
)

FAILED = "failed"  # the status of a run that did not come to its end

COVERAGE = Table(
    "coverage",
    "Of which broker and time there are logs, and where lines are missing: there nothing that is not told can be ruled "
    "out.",
    (
        required("recording_id", STRING, "Recording."),
        Column("broker_id", INT32, "Broker whose log it is; null: the metadata log."),
        required("source", STRING, "Which log.", values=("request_log", "server_log", "metadata")),
        required("start_ts", TIMESTAMP, "From here, on the broker's own clock."),
        required("end_ts", TIMESTAMP, "To here."),
        required(
            "state",
            STRING,
            "'logged': there, and nothing shows a gap. 'lossy': there, and some lines are missing among them. "
            "'missing': not there, though the broker was at work, or not there at all. 'silent': no lines, and nothing "
            "tells whether any are missing.",
            values=("logged", "lossy", "missing", "silent"),
        ),
        Column("reason", STRING, "What tells, in words; null: logged."),
        required("lines", INT64, "Lines in it that say anything of use.", unit="lines"),
        Column("lines_missing", INT64, "Lines that are missing in it, at least; null: not counted.", unit="lines"),
        EVIDENCE_COLUMN,
    ),
    key=("broker_id", "source", "start_ts", "state"),
    checks={"window": "start_ts <= end_ts", "lossy_counted": "state <> 'lossy' OR lines_missing > 0"},
    questions=(
        (
            "Which broker and time window has no logs, or lost lines, so that verdicts there are unknown?",
            """
            SELECT broker_id, source, start_ts, end_ts, state, reason, lines_missing
            FROM coverage WHERE state <> 'logged' ORDER BY start_ts, broker_id
            """,
        ),
        (
            "Of which leaders' terms is the log not complete?",
            """
            SELECT l.topic, l.partition, l.leader_epoch, l.leader_id, c.state, c.start_ts, c.end_ts
            FROM leadership_timeline l JOIN coverage c ON c.broker_id = l.leader_id AND c.source = 'request_log'
            WHERE c.state <> 'logged' AND c.start_ts < coalesce(l.end_ts, c.end_ts) AND c.end_ts > l.start_ts
            ORDER BY l.topic, l.partition, l.leader_epoch, c.start_ts
            """,
        ),
    ),
)

REJECTED_LINES = Table(
    "rejected_lines",
    "Lines that say nothing for certain: which line of which file, and why. They belong to a file's content: of a "
    "content that stands in several files they stand once, and each line once, however many runs there were.",
    (
        required("recording_id", STRING, "Recording."),
        required("run_id", STRING, "Run that read it."),
        required("source_file", STRING, "File."),
        required("source_line", INT64, "1-based line; 0: the file as a whole."),
        required("reason", STRING, "Why it was rejected."),
        Column("text", STRING, "Its first 200 characters."),
    ),
    key=("source_file", "source_line", "reason"),
    questions=(
        (
            "Which lines could not be used, and why?",
            """
            SELECT reason, count(*) AS lines, min_by(source_file, source_line) AS file, min(source_line) AS line
            FROM rejected_lines GROUP BY reason ORDER BY lines DESC
            """,
        ),
    ),
)

FILES = Table(
    "files",
    "The ledger of files: which contents were read, and how far. A file that is rolled, renamed, compressed or copied "
    "is known by its content, and one that grew is read from where reading ended.",
    (
        required("recording_id", STRING, "Recording."),
        required(
            "path",
            STRING,
            "File, as `source_file` names it. A content whose name another one took over has `@` and its checksum "
            "after the name.",
        ),
        required("run_id", STRING, "Run that read it last, or that went on with what a killed one had read."),
        required(
            "state",
            STRING,
            "'read': all of it. 'partly': its last line or the end of its compressed stream is missing, and is read "
            "once it is there. 'copy': its content was read from another file. 'gone': it is not in the folder any "
            "more; what it told stays. 'unreadable': it could not be opened.",
            values=("read", "partly", "copy", "gone", "unreadable"),
        ),
        Column("same_as", STRING, "The file of the same content under which its facts stand; null: its own name."),
        Column("broker_id", INT32, "Broker that its folder names."),
        required("content", STRING, "What it is, as told from its lines."),
        Column("layout", STRING, "How its lines are laid out; null: it is no log."),
        required("size", INT64, "Bytes as stored.", unit="bytes"),
        Column("modified", TIMESTAMP, "When it was written to last; null: the store does not tell."),
        required("seen", TIMESTAMP, "When it was listed."),
        required("fingerprint", STRING, "Digest of the first bytes of its content, by which it is looked up."),
        required("length", INT64, "Bytes of its content, decompressed.", unit="bytes"),
        required("digest", STRING, "Checksums of its content: CRC-32 and Adler-32, which go on where a file grows."),
        required("settled", INT64, "Bytes of its content that are never read again.", unit="bytes"),
        required("lines", INT64, "Lines.", unit="lines"),
        required("facts", INT64, "Facts made of them."),
        required("rejected", INT64, "Lines that were rejected.", unit="lines"),
        Column("first_ts", TIMESTAMP, "First time that it states."),
        Column("last_ts", TIMESTAMP, "Last time that it states."),
        required("said", STRING, "What was said of it: broker, time zone, layout, as JSON."),
        required("parser_version", STRING, "Digest of the parsers' sources."),
        required("resume", STRING, "What it takes to know it again and to read on, as JSON."),
        required(
            "counts",
            STRING,
            "What was counted in it, settled and not, as JSON: as in `runs.inputs`, and when it was silent.",
        ),
    ),
    key=("path",),
    questions=(
        (
            "Which files were read last, and which of them ended in the middle of something?",
            """
            SELECT path, state, lines, facts, rejected, last_ts, run_id FROM files
            WHERE state <> 'gone' ORDER BY last_ts DESC NULLS LAST
            """,
        ),
    ),
)

SET_ASIDE = Table(
    "set_aside",
    "Rows that broke a check of their table, which they are therefore not in: of the tables as they stand now.",
    (
        required("recording_id", STRING, "Recording."),
        required("run_id", STRING, "Run that set it aside."),
        required("table", STRING, "Table that it would stand in."),
        required("reason", STRING, "The checks that it breaks, as they stand in docs/tables.md."),
        required(
            "severity",
            STRING,
            "error: a value that no input may lead to, so it is a bug of Tidemark's; warning: lines that contradict "
            "each other may lead to it, too.",
            values=("error", "warning"),
        ),
        required("key", STRING, "What names the row in its table, as JSON."),
        required("row", STRING, "The row, as JSON."),
    ),
    key=("table", "key", "row"),
    questions=(
        (
            "Which rows broke a check of their table, and so do not stand in it?",
            """
            SELECT table, severity, reason, count(*) AS rows, min(row) AS first
            FROM set_aside GROUP BY table, severity, reason ORDER BY severity, rows DESC
            """,
        ),
    ),
)

PLACES = pa.list_(
    pa.struct(
        [
            ("topic", STRING),
            ("incarnation", INT32),
            ("partition", INT32),
            ("seq", INT64),
            ("source_file", STRING),
            ("source_line", INT64),
        ]
    )
)

EXPECTATION_RESULTS = Table(
    "expectation_results",
    "What each expectation said of each table in each run.",
    (
        required("recording_id", STRING, "Recording."),
        required("run_id", STRING, "Run."),
        required("table", STRING, "Table, or tables, looked at."),
        required("expectation", STRING, "Name of the expectation."),
        required("meaning", STRING, "What it says, in words."),
        required("severity", STRING, "error: exit code 3; warning: reported.", values=("error", "warning")),
        required("success", BOOL, "Whether it held."),
        Column("rows_checked", INT64, "Rows looked at."),
        Column("rows_failed", INT64, "Rows that broke it; null: not counted."),
        Column("example", STRING, "A few of the rows that broke it, as JSON."),
        Column("rows_allowed", INT64, "Rows that might break it, as set; null: before there was such a setting."),
        Column("answer", STRING, "What it means for the report's answer that it did not hold; null: it held."),
        Column("places", PLACES, "Where those of `example` stand, and the lines they were read from; null: it held."),
    ),
    key=("run_id", "table", "expectation"),
    questions=(
        (
            "What did not hold?",
            """
            SELECT run_id, severity, table, expectation, meaning, rows_failed, answer, places, example
            FROM expectation_results WHERE NOT success ORDER BY severity, table
            """,
        ),
        (
            "Do the tables get better or worse from run to run?",
            """
            SELECT r.started, e.run_id, count(*) AS checked, count_if(NOT success AND severity = 'error') AS errors,
                   count_if(NOT success AND severity = 'warning') AS warnings
            FROM expectation_results e JOIN runs r USING (recording_id, run_id)
            GROUP BY r.started, e.run_id ORDER BY r.started DESC
            """,
        ),
    ),
)

# What is kept of what an incident said.
_STATED = ("mechanism", "severity", "first_offset", "last_offset", "records", "acked_all", "acked_one")
SAID = (*_STATED, "evidence")

INCIDENT_REPORTS = Table(
    "incident_reports",
    "One row per incident that any complete run of the recording reported: since when, whether it was revised or "
    "withdrawn, and what was said of it last. Those that stand are in data_loss_incidents, with all that is known.",
    (
        *PARTITION_KEY,
        required("incident_id", STRING, "As in data_loss_incidents; it stays, whatever later evidence changes."),
        required(
            "status",
            STRING,
            "'reported': it stands as it was first told. 'revised': it stands, and says something else than at first, "
            "or was withdrawn meanwhile. 'withdrawn': no run finds it any more; the row has what the last one that "
            "did said.",
            values=("reported", "revised", "withdrawn"),
        ),
        required(
            "first_reported",
            TIMESTAMP,
            "Begin of the run that reported it first. If an earlier version of Tidemark did, which kept no such table: "
            "begin of the last run that came to its end before there was one.",
        ),
        required("first_run_id", STRING, "That run."),
        Column("revised", TIMESTAMP, "Begin of the run that changed or withdrew it last; null: none has."),
        Column("revised_run_id", STRING, "That run."),
        required("revision", INT64, "How many runs have changed or withdrawn it."),
        *map(DATA_LOSS_INCIDENTS.column, _STATED),
        Column(
            "evidence",
            STRING,
            "How that was known, as in data_loss_incidents; null: an earlier version of Tidemark wrote the row.",
            values=EVIDENCE,
        ),
        required(
            "digest",
            STRING,
            "Digest of its row in data_loss_incidents, by which a run sees that it changed. Where in the order and in "
            "which lines its evidence stands is no part of it.",
        ),
    ),
    key=("incident_id",),
    checks={"revised_or_as_first_told": "(status = 'reported') = (revised IS NULL)"},
    questions=(
        (
            "Which incidents that we were told of no longer stand?",
            """
            SELECT topic, partition, first_offset, last_offset, acked_all, acked_one, mechanism, first_reported, revised
            FROM incident_reports WHERE status = 'withdrawn' ORDER BY revised DESC, topic, partition, first_offset
            """,
        ),
        (
            "Since when do we know of the losses that stand, and which were told otherwise before?",
            """
            SELECT i.topic, i.partition, i.lost_ts, r.first_reported, r.revision, r.revised
            FROM data_loss_incidents i JOIN incident_reports r USING (recording_id, incident_id)
            ORDER BY r.first_reported, i.incident_id
            """,
        ),
    ),
)

RUNS = Table(
    "runs",
    "One row per run, written last: versions, configuration, inputs, counts, and which table versions belong together.",
    (
        required("recording_id", STRING, "Recording."),
        required("run_id", STRING, "Run."),
        required("started", TIMESTAMP, "Start."),
        required("finished", TIMESTAMP, "End."),
        required("status", STRING, "How it ended.", values=("ok", "expectations_failed", FAILED)),
        required("stages", STRING_LIST, "Stages that ran."),
        required("versions", STRING, "Versions of Tidemark, Python, Spark, Delta, as JSON."),
        required("configuration", STRING, "Settings in force, as JSON."),
        required(
            "inputs",
            STRING,
            "Files that this run read: size, lines, facts, rejected, of no interest by level and logger, as JSON.",
        ),
        Column(
            "kafka_versions",
            STRING,
            "Releases of Kafka that each broker stated in the files read, and levels of metadata.version, each with "
            "from when on, as JSON; null: no file was read.",
        ),
        required("counts", STRING, "Rows per table, as JSON; of set_aside those of this recording's tables."),
        required("durations", STRING, "Seconds per step, as JSON."),
        Column(
            "counters",
            STRING,
            "What the run did, as JSON: files, bytes, lines, facts and rejected lines of its input, events and "
            "incidents, and of each step its seconds, tasks and CPU seconds; docs/monitoring.md names all.",
        ),
        Column(
            "new_incidents",
            STRING_LIST,
            "Incidents that no earlier complete run of the recording had; null: the run was not to replay, or failed.",
        ),
        required(
            "table_versions",
            STRING,
            "Delta version of each table that belongs to this run, as JSON: of tables that it wrote, its own commits; "
            "of a run that failed, none.",
        ),
        Column("message", STRING, "Why it failed."),
    ),
    key=("run_id",),
    questions=(
        (
            "What did each step of the last runs cost?",
            """
            SELECT started, status, durations, get_json_object(counters, '$.steps.replay.cpu_seconds') AS replay_cpu,
              size(new_incidents) AS new_incidents
            FROM runs ORDER BY started DESC LIMIT 24
            """,
        ),
        (
            "Which versions of the tables belong to the last run that went through?",
            """
            SELECT recording_id, max_by(run_id, finished) AS run_id, max_by(table_versions, finished) AS table_versions
            FROM runs WHERE status <> 'failed' GROUP BY recording_id
            """,
        ),
    ),
)
