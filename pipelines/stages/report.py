"""The report: what was lost, how it is known, and where to look; read from the Delta tables of one recording."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.expectations.history import RESULT_COLUMNS, RUN_COLUMNS, quality_history
from pipelines.intake import attribution
from pipelines.intake.inputs import inputs_of
from pipelines.intake.inspection import in_turn, metadata_version_text
from pipelines.intake.ledger import GONE, counts_of
from pipelines.intake.releases import too_new
from pipelines.overview.coverage import HOLES, SOURCE_SQL, not_covered
from pipelines.recording.names import inside
from pipelines.spark.session import VERSION
from pipelines.stages import deposed, report_text, summary_text
from pipelines.stages.questions import Questions, without_zones
from pipelines.stages.screen import DEFAULT_WIDTH
from pipelines.stages.verdict import Seen, acknowledged, verdict
from pipelines.warehouse.contract import sql_string
from pipelines.warehouse.file_ledger import entries_of
from pipelines.warehouse.narrowing import Narrowing, of_last_replay
from replay.evidence.coverage import REQUEST_LOG
from replay.evidence.sources import SOURCES
from replay.evidence.tenures import micros
from replay.evidence.versions import METADATA_VERSION
from schemas.incidents import DATA_LOSS_INCIDENTS
from schemas.tables import REPLAY_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import Row

    from pipelines.stages.incident_reports import Told
    from pipelines.warehouse.delta_io import Warehouse

    _Ask = Callable[[str, str], list[dict[str, Any]]]  # a question, and the table that it is put to

REASONS: Final = 5  # reasons for rejected lines that are listed
NAMED: Final = 3  # partitions of each state that are named as still at risk
NEARLY: Final = 10  # near losses, and differences between replicas, that are listed
SEVERITY_ORDER: Final = ("S0", "S1", "S2", "S3")

VERSION_TOLD: Final = "kind = 'broker_lifecycle' AND name = 'version' AND value IS NOT NULL"
LEVEL_TOLD: Final = f"kind = 'feature_change' AND name = '{METADATA_VERSION}' AND value IS NOT NULL"

# The sources by the names that operators use.
LOG_WORDS: Final = dict(
    zip(SOURCES, ("metadata dump", "request log", "segment dumps", "checkpoints", "server log"), strict=True)
)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings on one recording, as plain values with stable names, and three ways to show them."""

    findings: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the findings for machines: only types that JSON has."""
        plain: dict[str, Any] = json.loads(json.dumps(self.findings, default=_as_json))
        return plain

    def to_json(self, run_id: str) -> str:
        """Return the findings of a run as text from which `of_json` makes the report again."""
        told = {"tidemark": VERSION, "run_id": run_id, "findings": self.findings}
        return json.dumps(told, default=_as_json, indent=1)

    @classmethod
    def of_json(cls, text: str) -> tuple[Report, str] | None:
        """Return a report written by `to_json`, and its run; None: by another version, or it was cut off."""
        try:
            told = json.loads(text, object_hook=_with_times)
        except json.JSONDecodeError:  # its driver was killed
            return None
        return (cls(told["findings"]), told["run_id"]) if told["tidemark"] == VERSION else None

    def terminal(self, *, colour: bool = False, width: int = DEFAULT_WIDTH) -> str:
        """Return a summary that fits on an operator's terminal of this width; `colour` adds ANSI codes."""
        return summary_text.terminal(self.findings, colour=colour, width=width)

    def markdown(self) -> str:
        """Return the report as Markdown for a ticket."""
        return report_text.markdown(self.findings)


def build(  # noqa: PLR0913 - what a run knows beside its tables
    warehouse: Warehouse,
    recording_id: str,
    run_id: str | None = None,
    inputs: Sequence[dict[str, Any]] = (),
    kafka_version: str | None = None,
    looked_at: Narrowing | None = None,
    *,
    told: Told | None = None,
) -> Report:
    """Collect the findings; expectations are those of the run `run_id`, else of the last run.

    `inputs`: the files in the recording's folder; if empty, those that were there when it was read last.
    `kafka_version`: stated by the manifest or the user, for brokers whose start is not in the logs. `looked_at`: what
    this run has replayed; None: nothing, so the report is about the tables as they are. `told`: what it says of
    incidents that earlier runs reported; None: it has not looked.
    """
    narrowed = of_last_replay(warehouse, recording_id) if looked_at is None else looked_at
    questions = _questions(warehouse, recording_id)
    ask = _asking(questions)
    incidents = incidents_of(warehouse, recording_id, narrowed, ask)
    coverage = _coverage(ask)
    tables = _table_rows(warehouse.row_counts(recording_id))
    holes = _holes(warehouse, recording_id)
    seen = _seen(warehouse, recording_id, ask, coverage, kafka_version, complete=not holes)
    findings = {
        "recording_id": recording_id,
        **_narrowed(verdict(incidents, seen), narrowed),
        "too_new": too_new(seen.versions),
        "attribution": [
            *attribution.sentences(inputs or _inputs(warehouse, recording_id)),
            *deposed.sentences(deposed.records_set_aside(questions)),
        ],
        "incidents": incidents,
        "withdrawn": told.withdrawn if told else [],
        "revised": told.revised if told else [],
        **_consequences(ask),
        "tables": tables,
        "conformance": _conformance(ask),
        "rejected_lines": _rejected(ask),
        **_quality(warehouse, recording_id, run_id),
        "coverage": coverage,
        "not_covered": not_covered(holes),
        "look_at": _look_at(warehouse, recording_id),
    }
    return Report(findings)


def _as_json(value: object) -> str:
    if isinstance(value, datetime):  # PySpark's, in UTC (`session.in_utc`)
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return str(value)


def _with_times(told: dict[str, Any]) -> dict[str, Any]:
    """Return an object of JSON with its times as times: they are those columns whose names end like this."""
    return {
        name: datetime.fromisoformat(value) if name.endswith(("ts", "reported")) and isinstance(value, str) else value
        for name, value in told.items()
    }


def stored(warehouse: Warehouse, recording_id: str, runs: Collection[str]) -> Report | None:
    """Return the report as it was written last; None: not by one of these runs."""
    text = warehouse.text_of(_file(recording_id, "json"))
    found = None if text is None else Report.of_json(text)
    return found[0] if found and found[1] in runs else None


def write(warehouse: Warehouse, recording_id: str, run_id: str, report: Report) -> None:
    """Write the report next to the tables: as Markdown for people, and as JSON for programs and the next run."""
    warehouse.write(_file(recording_id, "json"), report.to_json(run_id).encode())
    warehouse.write(_file(recording_id, "md"), report.markdown().encode())


def path_of(warehouse: Warehouse, recording_id: str) -> str:
    """Return where the report lies that people read."""
    return inside(warehouse.path, _file(recording_id, "md"))


def _file(recording_id: str, suffix: str) -> str:
    return f"reports/{recording_id}.{suffix}"


def _plain(row: Row) -> dict[str, Any]:
    return dict(row.asDict(recursive=True))


def _questions(warehouse: Warehouse, recording_id: str) -> Questions:
    """Return who answers questions to the tables."""
    return Questions(warehouse, recording_id, few=True, together=_ASKED)


def _asking(questions: Questions) -> _Ask:
    """Return who answers a question to a table; as everywhere in the findings, times say no zone."""
    return lambda question, table: without_zones(questions(question, table))


def _narrowed(verdict: dict[str, Any], narrowed: Narrowing) -> dict[str, Any]:
    """Return the verdict; if it covers only a part of the recording, its headline begins with that part."""
    if not narrowed:
        return {**verdict, "looked_at": None}
    return {**verdict, "headline": f"Of {narrowed.words} only: {verdict['headline']}", "looked_at": narrowed.words}


def incidents_of(
    warehouse: Warehouse, recording_id: str, narrowed: Narrowing, ask: _Ask | None = None
) -> list[dict[str, Any]]:
    """Return incidents, worst first: by severity, then by how many acknowledged records are gone."""
    within = narrowed.condition(DATA_LOSS_INCIDENTS)
    if within is None:
        asked = ask or _asking(_questions(warehouse, recording_id))
        rows = asked("SELECT * FROM {data_loss_incidents}", DATA_LOSS_INCIDENTS.name)
    else:  # a topic's pattern is Java's
        rows = [_plain(row) for row in warehouse.looked_at("data_loss_incidents", recording_id).where(within).collect()]

    def badness(row: dict[str, Any]) -> tuple[Any, ...]:
        sure, possible = acknowledged(row)
        place = (row["topic"], row["incarnation"], row["partition"], row["first_offset"])
        return (SEVERITY_ORDER.index(row["severity"]), -(sure or 0), -(possible or 0), *place)

    return sorted(rows, key=badness)


def verdict_of(warehouse: Warehouse, recording_id: str, kafka_version: str | None = None) -> dict[str, Any]:
    """Return only the report's headline and the numbers it is based on."""
    ask = _asking(_questions(warehouse, recording_id))
    incidents, complete = incidents_of(warehouse, recording_id, Narrowing(), ask), not _holes(warehouse, recording_id)
    seen = _seen(warehouse, recording_id, ask, _coverage(ask), kafka_version, complete=complete)
    return verdict(incidents, seen)


def _seen(
    warehouse: Warehouse,
    recording_id: str,
    ask: _Ask,
    coverage: list[dict[str, Any]],
    kafka_version: str | None,
    *,
    complete: bool,
) -> Seen:
    """Return what the logs could show."""
    stated = sorted({version for row in coverage for version in row["kafka_versions"]})
    kinds = ask("SELECT DISTINCT kind FROM {facts}", "facts")
    leaders = warehouse.arrow("leadership_timeline", recording_id, ["leader_id"])["leader_id"].unique().to_pylist()
    return Seen(
        kinds=frozenset(row["kind"] for row in kinds),
        events=0 if warehouse.is_empty("replication_events", recording_id) else 1,
        leaders=frozenset(leader for leader in leaders if leader is not None and leader >= 0),
        with_requests=frozenset(row["broker_id"] for row in coverage if LOG_WORDS[REQUEST_LOG] in row["sources"]),
        versions=stated or ([kafka_version] if kafka_version else []),
        complete=complete,
    )


def _inputs(warehouse: Warehouse, recording_id: str) -> list[dict[str, Any]]:
    """Return what is counted of the files that were in the folder when it was read last."""
    return inputs_of(counts_of(entry for entry in entries_of(warehouse, recording_id) if entry.state != GONE))


def _table_rows(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the recording's row counts of all tables that a query may start from."""
    of_replay = (table.name for table in REPLAY_TABLES)
    names = ("facts", "replication_events", *of_replay, "coverage", "rejected_lines", "set_aside")
    return {name: counts[name] for name in names}


def _consequences(ask: _Ask) -> dict[str, Any]:
    """Return what goes beyond losses: times at risk, near losses, effects on consumers, replicas that differ."""
    return {name: ask(query, table) for name, (table, query) in _CONSEQUENCES.items()}


_PARTITIONS: Final = "CAST(count(DISTINCT topic, incarnation, partition) AS BIGINT) AS partitions"
# By what is asked: the table that tells it, and the query.
_CONSEQUENCES: Final = {
    "at_risk": (
        "partition_risk",
        f"""SELECT state, count(*) AS spans, {_PARTITIONS}, sum(seconds) AS seconds,
            CAST(count_if(end_seq IS NULL) AS BIGINT) AS still_open
        FROM {{partition_risk}} GROUP BY state ORDER BY state""",
    ),
    "still_at_risk": (  # of each state the first few partitions
        "partition_risk",
        f"""SELECT state, topic, incarnation, partition FROM (
            SELECT *, row_number() OVER (PARTITION BY state ORDER BY topic, incarnation, partition) AS place
            FROM (SELECT DISTINCT state, topic, incarnation, partition FROM {{partition_risk}} WHERE end_seq IS NULL)
        ) WHERE place <= {NAMED} ORDER BY state, topic, incarnation, partition""",
    ),
    "nearly_lost": (
        "partition_risk",
        f"""SELECT * FROM {{partition_risk}}
        WHERE state = 'isr_one' AND records_at_risk > 0 AND incident_id IS NULL
        ORDER BY seconds DESC NULLS FIRST, topic, incarnation, partition, seq LIMIT {NEARLY}""",
    ),
    "consumer_effects": (
        "consumer_effects",
        f"""SELECT client_id, effect, {_PARTITIONS}, CAST(sum(records) AS BIGINT) AS records,
            CAST(sum(fetches) AS BIGINT) AS fetches, min(first_ts) AS first_ts
        FROM {{consumer_effects}} GROUP BY client_id, effect ORDER BY effect, client_id""",
    ),
    "divergences": (
        "replica_divergences",
        f"""SELECT * FROM {{replica_divergences}}
        ORDER BY topic, incarnation, partition, first_offset, broker_a, broker_b LIMIT {NEARLY}""",
    ),
}
_ASKED: Final = sorted(  # all tables that are asked
    {
        DATA_LOSS_INCIDENTS.name,
        "facts",
        "conformance",
        "rejected_lines",
        *(table for table, _ in _CONSEQUENCES.values()),
    }
)


def _conformance(ask: _Ask) -> list[dict[str, Any]]:
    """Return each check over all partitions, worst first, with the note of one partition that differs."""
    query = """SELECT check, CAST(sum(compared) AS BIGINT) AS compared, CAST(sum(matched) AS BIGINT) AS matched,
            CAST(count_if(matched < compared) AS BIGINT) AS partitions_differing,
            min(named_struct('topic', topic, 'partition', partition, 'first_mismatch_seq', first_mismatch_seq,
                'note', note)) FILTER (WHERE matched < compared) AS first
        FROM {conformance} GROUP BY check"""
    rows = ask(query, "conformance")
    checks = [{**row, "ratio": row["matched"] / row["compared"] if row["compared"] else None} for row in rows]
    return sorted(checks, key=lambda check: (check["ratio"] is None, check["ratio"] or 0.0, check["check"]))


def _rejected(ask: _Ask) -> dict[str, Any]:
    """Return how many lines were rejected, and why, most frequent reasons first."""
    query = """SELECT reason, count(*) AS lines,
            min(named_struct('source_file', source_file, 'source_line', source_line, 'text', text)) AS first
        FROM {rejected_lines} GROUP BY reason ORDER BY lines DESC, reason"""
    told = ask(query, "rejected_lines")
    return {"lines": sum(row["lines"] for row in told), "reasons": told[:REASONS]}


def _quality(warehouse: Warehouse, recording_id: str, run_id: str | None) -> dict[str, Any]:
    """Return what does not hold now, and how the validations ended, oldest first (`quality_history`)."""
    small = warehouse.small("expectation_results", recording_id)
    results = warehouse.arrow("expectation_results", recording_id) if small is None else small.rows
    runs = warehouse.arrow("runs", recording_id, (*RUN_COLUMNS, "stages")).to_pylist()
    run = run_that_validated(results["run_id"].unique().to_pylist(), runs, run_id)
    return {
        "expectations": _expectations(results, run),
        "quality_history": quality_history(results.select([*RESULT_COLUMNS]), runs, run_id),
    }


def _expectations(results: pa.Table, run: str | None) -> dict[str, Any]:
    """Return expectations that do not hold, errors first; `checked` is null if no run has validated the recording."""
    rows = results.filter(pc.equal(results["run_id"], pa.scalar(run, pa.string())))
    failed = sorted(
        rows.filter(pc.invert(rows["success"])).to_pylist(),
        key=lambda row: (row["severity"], row["table"], row["expectation"]),
    )
    shown: tuple[str, ...] = ("table", "expectation", "meaning", "severity", "rows_checked", "rows_failed", "example")
    shown += ("rows_allowed", "answer", "places")
    told = [{name: row[name] for name in shown} for row in failed]
    return {"checked": len(rows) or None, "failed": told, "run_id": run}


def run_that_validated(validated: Collection[str], runs: Iterable[Mapping[str, Any]], run_id: str | None) -> str | None:
    """Return the given run if it has validated (its row in `runs` comes last), else the last that did."""
    if run_id in validated:
        return run_id
    others = [row for row in runs if "validate" in row["stages"] and row["run_id"] != run_id]
    last = max(others, key=lambda row: (row["finished"], row["run_id"]), default=None)
    return str(last["run_id"]) if last else run_id


def _coverage(ask: _Ask) -> list[dict[str, Any]]:
    """Return per broker its sources, time range and releases; broker null: facts of no broker (the metadata dump)."""
    query = f"""SELECT broker_id, min(ts) AS first_ts, max(ts) AS last_ts, count(*) AS facts,
            collect_set(source) AS sources,
            collect_set(CASE WHEN {VERSION_TOLD} THEN named_struct('ts', ts, 'value', value) END) AS kafka_versions,
            collect_set(CASE WHEN {LEVEL_TOLD} THEN named_struct('ts', ts, 'value', value) END) AS metadata_versions
        FROM (SELECT broker_id, ts, kind, name, value, {SOURCE_SQL} AS source FROM {{facts}}) GROUP BY broker_id"""
    rows = ask(query, "facts")
    told = [
        {
            **row,
            "sources": sorted(LOG_WORDS[name] for name in row["sources"] or ()),
            "kafka_versions": _versions(row["kafka_versions"]),
            "metadata_versions": [metadata_version_text(level) for level in _versions(row["metadata_versions"])],
        }
        for row in rows
    ]
    return sorted(told, key=lambda row: (row["broker_id"] is None, row["broker_id"] or 0))


def _versions(stated: Iterable[Mapping[str, Any]] | None) -> list[str]:
    """Return versions in the order in which they were stated; None, as DuckDB says it: there are none."""
    return [version for _, version in in_turn((one["ts"], one["value"]) for one in stated or ())]


def _holes(warehouse: Warehouse, recording_id: str) -> list[dict[str, Any]]:
    """Return the rows of `coverage` where the logs miss something that happened, times in microseconds."""
    rows = warehouse.arrow("coverage", recording_id).to_pylist()
    times = ("start_ts", "end_ts")
    named = ({**row, **{name: micros(row[name]) for name in times}} for row in rows if row["state"] in HOLES)
    return sorted(
        named, key=lambda row: (row["broker_id"] is None, row["broker_id"] or 0, row["start_ts"], row["source"])
    )


def _look_at(warehouse: Warehouse, recording_id: str) -> dict[str, Any]:
    """Return the path of the tables, and queries to copy."""
    this = sql_string(recording_id)
    loss, hw, isr = (warehouse.table_path(name) for name in ("data_loss_incidents", "hw_timeline", "isr_timeline"))
    return {
        "warehouse": warehouse.path,
        "queries": [
            {
                "question": "What was lost, where, and by which mechanism?",
                "tool": "spark-sql",
                "text": "SELECT topic, partition, first_offset, last_offset, acked_all, acked_one, mechanism, lost_ts\n"
                f"FROM delta.`{loss}` WHERE recording_id = {this} ORDER BY severity, lost_ts",
            },
            {
                "question": "Who left or joined the ISR, and when?",
                "tool": "spark-sql",
                "text": "SELECT topic, partition, seq, ts, leader_id, isr_before, isr, change, under_min_isr\n"
                f"FROM delta.`{isr}` WHERE recording_id = {this} AND state = 'committed'\n"
                "ORDER BY topic, partition, seq",
            },
            {
                "question": "How did the high watermarks move? (no Spark needed)",
                "tool": "python",
                "text": "from deltalake import DeltaTable\n"
                f"hw = DeltaTable({hw!r}).to_pandas(partitions=[('recording_id', '=', {recording_id!r})])\n"
                "print(hw.sort_values(['topic', 'partition', 'seq']).to_string())",
            },
        ],
    }
