"""What the page says of the cluster beside its losses: read from the tables, as pictures and tables."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from pipelines.expectations.found_rows import in_words
from pipelines.page import cluster_pictures, trust_pictures
from pipelines.page.contents import Grid, Part
from pipelines.page.lanes import seconds
from pipelines.stages.report_text import EFFECT_WORDS, ENDS, SHOWN_LINES, STATE_WORDS, place_of, retold_line, time_of
from replay.losses.sentences import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from pipelines.page.picture import Picture
    from pipelines.stages.questions import Ask

    Findings = Mapping[str, Any]

MOST_RETOLD: Final = 50
_FLAPS: Final = """
    SELECT broker_id, unix_micros(left_ts) DIV {slot} AS slot, count(*) AS flaps, sum(out_ms) AS out_ms,
           max(out_ms) AS longest_ms
    FROM {{isr_flaps}} WHERE left_ts IS NOT NULL
    GROUP BY broker_id, unix_micros(left_ts) DIV {slot} ORDER BY broker_id, slot
    """
_AT_RISK: Final = """
    SELECT topic, incarnation, `partition`, state, unix_micros(start_ts) AS start_us, unix_micros(end_ts) AS end_us,
           seconds
    FROM {{partition_risk}} WHERE start_ts IS NOT NULL
    ORDER BY seconds DESC NULLS FIRST, topic, incarnation, `partition`, seq, state LIMIT {most}
    """
_LATENCY: Final = """
    SELECT last_replica_id, committed_by, CASE {classes} END AS ms_class, count(*) AS batches
    FROM {{commit_latency}} GROUP BY last_replica_id, committed_by, CASE {classes} END
    ORDER BY last_replica_id, committed_by, ms_class
    """
_COVERAGE: Final = """
    SELECT broker_id, source, unix_micros(start_ts) AS start_us, unix_micros(end_ts) AS end_us, state, reason,
           lines_missing
    FROM {coverage} ORDER BY CASE state WHEN 'missing' THEN 0 WHEN 'lossy' THEN 1 WHEN 'silent' THEN 2 ELSE 3 END,
           start_ts, broker_id, source LIMIT 1000
    """
_EXPECTATIONS: Final = """
    SELECT `table`, CAST(count_if(success) AS BIGINT) AS held,
           CAST(count_if(NOT success AND severity = 'warning') AS BIGINT) AS warnings,
           CAST(count_if(NOT success AND severity = 'error') AS BIGINT) AS errors
    FROM {{expectation_results}} WHERE run_id = {run} GROUP BY `table` ORDER BY `table`
    """


def parts_of(findings: Findings, ask: Ask) -> Iterator[Part]:
    """Yield the parts in the order in which they stand on the page."""
    losses = [_us(one["lost_ts"]) for one in findings["incidents"] if one["lost_ts"] is not None]
    span = _span(findings)
    retold = [retold_line(one) for name in ("withdrawn", "revised") for one in findings.get(name, ())]
    if retold:
        more = [f"And {len(retold) - MOST_RETOLD:,} more: see incident_reports."] if len(retold) > MOST_RETOLD else []
        yield Part("retold", "What earlier runs had said, and what holds now", [*retold[:MOST_RETOLD], *more])
    if span is not None:
        yield _isr(ask, span, losses)
        yield _risk(findings, ask, span, losses)
    yield _commits(ask)
    if findings["consumer_effects"] or findings["divergences"]:
        yield _readers(findings)
    yield _covered(findings, ask, span, losses)
    yield _trust(findings)


def _isr(ask: Ask, span: tuple[int, int], losses: Sequence[int]) -> Part:
    slot = cluster_pictures.slot_us(*span)
    rows = ask(_FLAPS.format(slot=slot), "isr_flaps")
    if not rows:
        return Part("isr", "The ISR", ["No replica left an ISR and came back."])
    return Part("isr", "The ISR", (), [cluster_pictures.flaps(rows, slot, span, losses)])


def _risk(findings: Findings, ask: Ask, span: tuple[int, int], losses: Sequence[int]) -> Part:
    spent = findings["at_risk"]
    if not spent:
        return Part("risk", "Time at risk", ["No partition was without a leader, or down to one replica."])
    most = cluster_pictures.MOST_SPANS
    rows = ask(_AT_RISK.format(most=most), "partition_risk")
    every = sum(row["spans"] for row in spent)
    pictures = [cluster_pictures.at_risk(rows, STATE_WORDS, span, losses, every)] if rows else []
    sums = [
        (
            STATE_WORDS[row["state"]],
            f"{row['partitions']:,}",
            f"{row['spans']:,}",
            seconds(row["seconds"]) if row["seconds"] is not None else "not known",
            f"{row['still_open']:,}",
        )
        for row in spent
    ]
    grids = [
        Grid(
            "Time at risk, over all partitions", ("State", "Partitions", "Spans", "In all", "Still so at the end"), sums
        )
    ]
    if findings["nearly_lost"]:
        grids.append(_nearly(findings["nearly_lost"]))
    return Part("risk", "Time at risk", (), pictures, grids)


def _nearly(rows: Sequence[Mapping[str, Any]]) -> Grid:
    told = [
        (
            place_of(row),
            time_of(row["start_ts"]),
            "to the end of the recording" if row["seconds"] is None else seconds(row["seconds"]),
            f"up to {counted(row['records_at_risk'])} on broker {row['leader_id']}",
            "unknown" if row["acked_all"] is None else f"{row['acked_all']:,}",
            "unknown" if row["acked_one"] is None else f"{row['acked_one']:,}",
            "not seen" if row["ended_by"] is None else ENDS[row["ended_by"]],
        )
        for row in rows
    ]
    columns = ("Partition", "From", "For", "What only the leader had", "acks=all meanwhile", "acks=1 meanwhile", "Then")
    return Grid("Nearly lost: times in which one broker alone had records, and all ended well (longest first)", columns,
                told)  # fmt: skip


def _commits(ask: Ask) -> Part:
    classes = " ".join(f"WHEN commit_ms <= {ms} THEN {ms}" for ms in cluster_pictures.LATENCIES_MS)
    rows = ask(_LATENCY.format(classes=classes), "commit_latency")
    if not rows:
        return Part("commits", "Commit latency", ["No acks=all produce is in the logs."])
    return Part("commits", "Commit latency", (), [cluster_pictures.commit_latency(rows)])


def _readers(findings: Findings) -> Part:
    grids = []
    if findings["consumer_effects"]:
        rows = [
            (
                row["client_id"],
                EFFECT_WORDS[row["effect"]],
                "" if row["records"] is None else f"{row['records']:,}",
                f"{row['partitions']:,}",
                time_of(row["first_ts"]),
            )
            for row in findings["consumer_effects"]
        ]
        grids.append(Grid("What consumers saw", ("Client", "What", "Records", "Partitions", "First"), rows))
    if findings["divergences"]:
        rows = [
            (
                place_of(row),
                f"{row['first_offset']} to {row['last_offset']}",
                f"{row['broker_a']} and {row['broker_b']}",
                row["differs"],
                row["evidence"],
            )
            for row in findings["divergences"]
        ]
        columns = ("Partition", "Offsets", "Brokers", "What differs", "Evidence")
        grids.append(Grid("Replicas that differ below their high watermarks", columns, rows))
    return Part("readers", "What readers saw", (), (), grids)


def _covered(findings: Findings, ask: Ask, span: tuple[int, int] | None, losses: Sequence[int]) -> Part:
    rows = ask(_COVERAGE, "coverage") if span is not None else []
    pictures = [cluster_pictures.coverage(rows, span, losses)] if rows and span is not None else []
    recorded = [
        (
            "cluster" if row["broker_id"] is None else f"broker {row['broker_id']}",
            ", ".join(row["sources"]) or "nothing of use",
            "without times" if row["first_ts"] is None else time_of(row["first_ts"]),
            "" if row["last_ts"] is None else time_of(row["last_ts"]),
            f"{row['facts']:,}",
            ", then ".join(row.get("kafka_versions") or ()),
        )
        for row in findings["coverage"]
    ]
    holes = findings["not_covered"]
    sentences = (
        ["Where logs are missing, verdicts are lower bounds:", *holes[:SHOWN_LINES]] if holes else ["No gap is known."]
    )
    if len(holes) > SHOWN_LINES:
        sentences.append(f"And {len(holes) - SHOWN_LINES:,} more: see the table coverage.")
    rejected = findings["rejected_lines"]
    grids = [Grid("What was recorded", ("Whose", "Sources", "From", "To", "Facts", "Kafka"), recorded)]
    if rejected["lines"]:
        told = [
            (row["reason"], f"{row['lines']:,}", f"{row['first']['source_file']}:{row['first']['source_line']}")
            for row in rejected["reasons"]
        ]
        grids.append(Grid(f"Rejected lines: {rejected['lines']:,}", ("Why", "Lines", "First"), told))
    return Part("coverage", "Coverage and gaps", sentences, pictures, grids)


def _trust(findings: Findings) -> Part:
    checks = findings["conformance"]
    pictures: list[Picture] = [trust_pictures.conformance(checks)] if any(one["compared"] for one in checks) else []
    sentences = [] if pictures else ["There was nothing to compare with what was computed."]
    return Part("conformance", "Conformance", sentences, pictures)


def quality_of(findings: Findings, ask: Ask, run_id: str | None) -> Part:
    """Return the part on expectations; `run_id`: the run that checked them, None: not known."""
    told = findings["expectations"]
    if told["checked"] is None:
        return Part("quality", "Data quality", ["The tables have not been validated yet."])
    failed = told["failed"]
    sentence = (
        f"{len(failed):,} of {told['checked']:,} expectations do not hold."
        if failed
        else f"All {told['checked']:,} expectations hold."
    )
    quoted = None if run_id is None else "'" + run_id.replace("'", "''") + "'"
    rows = ask(_EXPECTATIONS.format(run=quoted), "expectation_results") if quoted else []
    pictures = [trust_pictures.expectations(rows)] if rows else []
    history = findings.get("quality_history") or []
    if len(history) > 1:  # one run has no trend
        pictures.append(trust_pictures.trend(history))
    grids = []
    if failed:
        columns = ("Severity", "Table", "What does not hold", "Rows", "First at", "What it means for the answer")
        shown = [
            (
                row["severity"],
                row["table"],
                f"{row['meaning']} [{row['expectation']}]",
                "" if row["rows_failed"] is None else f"{row['rows_failed']:,} of {row['rows_checked']:,}",
                "; ".join(map(in_words, row.get("places") or [])) or row["example"] or "",
                row.get("answer") or "",
            )
            for row in failed[:50]
        ]
        left = f"{len(failed) - 50:,} more: see expectation_results." if len(failed) > 50 else None
        grids.append(Grid("Expectations that do not hold", columns, shown, left))
    return Part("quality", "Data quality", [sentence], pictures, grids)


def _span(findings: Findings) -> tuple[int, int] | None:
    """Return from when to when there are lines, in microseconds; None: they state no times."""
    firsts = [_us(row["first_ts"]) for row in findings["coverage"] if row["first_ts"] is not None]
    lasts = [_us(row["last_ts"]) for row in findings["coverage"] if row["last_ts"] is not None]
    return (min(firsts), max(*lasts, min(firsts) + 1)) if firsts and lasts else None


def _us(value: datetime) -> int:
    """Return a time in microseconds; PySpark's are in UTC without a zone."""
    return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1_000_000)
