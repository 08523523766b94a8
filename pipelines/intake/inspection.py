"""What a recording holds, and therefore what it can answer, from the counts of its files."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pipelines.intake import attribution
from pipelines.intake.clocks import sentences
from pipelines.intake.releases import too_new, too_old
from pipelines.lines.rows import GAP
from replay.evidence.versions import METADATA_VERSION, release_of_level

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipelines.recording.recording import Manifest

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_REPLICATION = ("Partition", "ReplicaFetcherThread", "Log", "UnifiedLog", "logger")
_REQUEST_KINDS = frozenset(
    {"produce", "fetch", "epoch_end_offset", "isr_request", "leader_and_isr", "transaction", "delete_records", "api"}
)
_DUMP_KINDS = frozenset({"segment_batch", "checkpoint", "partition_change", "broker_change", "feature_change"})
_MOST_GAPS = 50


def findings(inputs: list[dict[str, Any]], manifest: Manifest) -> dict[str, Any]:
    """Return brokers, versions, time ranges, levels, gaps, and in plain sentences what can be answered."""
    by_broker: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for entry in inputs:
        if entry["content"] == "log" and entry["broker_id"] is not None:
            by_broker[entry["broker_id"]].append(entry)
    brokers = [_broker(broker, by_broker[broker]) for broker in sorted(by_broker)]
    gaps = [
        {"broker": broker, "from": _text(begin), "to": _text(end), "seconds": round((end - begin) / 1e6, 1)}
        for broker in sorted(by_broker)
        for begin, end in silences(by_broker[broker])
    ]
    notes = {(name, value) for entry in inputs for name, value, *_ in entry["notes"]}
    clusters = attribution.clusters_of(inputs)
    contents = {entry["content"] for entry in inputs}
    return {
        "kafka_versions": sorted({value for name, value in notes if name == "version"} | {manifest.kafka or ""} - {""}),
        "versions": versions_seen(inputs),
        "cluster_ids": sorted(clusters),
        "brokers": brokers,
        "files": [_file(entry) for entry in inputs if entry["content"] in {"log", "metadata dump", "unknown"}],
        "gaps": gaps[:_MOST_GAPS],
        "rejected_lines": sum(entry["rejected"] for entry in inputs),
        "answers": [
            *_about_clusters(clusters),
            *_about_releases(inputs, manifest),
            *attribution.sentences(inputs),
            *_answers(brokers, contents, gaps, sum(entry["rejected"] for entry in inputs)),
            *sentences(inputs),
        ],
    }


def in_turn(told: Iterable[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """Return stated versions in order of time, without those that repeat the one before."""
    turns: list[tuple[Any, str]] = []
    for ts, version in sorted(told, key=lambda one: (one[0] is not None, one[0] or 0, one[1])):
        if not turns or turns[-1][1] != version:
            turns.append((ts, version))
    return turns


def versions_seen(inputs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return which release each broker reported and which metadata.version the cluster agreed on, and since when."""
    return [*releases_seen(inputs), *levels_seen(inputs)]


def releases_seen(inputs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return which release each broker reported, and since when."""
    stated: dict[int | None, set[tuple[int | None, str]]] = defaultdict(set)
    for entry in inputs:
        stated[entry["broker_id"]] |= _noted(entry, "version")
    return [
        {"broker": broker, "version": version, "from": None if ts is None else _text(ts)}
        for broker in sorted(stated, key=lambda broker: (broker is None, broker or 0))
        for ts, version in in_turn(stated[broker])
    ]


def levels_seen(inputs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return which metadata.version the cluster agreed on, and since when."""
    agreed = {one for entry in inputs for one in _noted(entry, METADATA_VERSION)}
    return [
        {METADATA_VERSION: metadata_version_text(level), "from": None if ts is None else _text(ts)}
        for ts, level in in_turn(agreed)
    ]


def _noted(entry: dict[str, Any], name: str) -> set[tuple[int | None, str]]:
    """Return what a file states under that name, at its first and at its last time."""
    return {(ts, value) for noted, value, *times in entry["notes"] if noted == name for ts in times}


def metadata_version_text(level: str) -> str:
    """Return a level of metadata.version and the first release that has it, as text."""
    release = release_of_level(level)
    return level if release is None else f"{level} (Kafka {release})"


def _about_clusters(clusters: dict[str, Any]) -> list[str]:
    return [f"The logs are of {len(clusters)} clusters: a run refuses them."] if len(clusters) > 1 else []


def _about_releases(inputs: list[dict[str, Any]], manifest: Manifest) -> list[str]:
    """Say which releases are outside of those whose logs are known, if any are."""
    stated = [row["version"] for row in releases_seen(inputs)] or ([manifest.kafka] if manifest.kafka else [])
    told = [too_old(stated), too_new(stated)]
    return [sentence for sentence in told if sentence is not None]


def silences(entries: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return when a broker wrote to none of its logs for more than five seconds: pairs of times, microseconds."""
    spans: list[tuple[int, int]] = []
    for entry in entries:
        begin = entry["first_ts"]
        if begin is None:
            continue
        for silence_begin, silence_end in sorted(map(tuple, entry["silences"])):
            spans.append((begin, silence_begin))
            begin = silence_end
        spans.append((begin, entry["last_ts"]))
    found: list[tuple[int, int]] = []
    until: int | None = None
    for begin, end in sorted(spans):
        if until is not None and begin - until > GAP:
            found.append((until, begin))
        until = end if until is None else max(until, end)
    return found


def _broker(broker_id: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
    times = [entry[name] for entry in entries for name in ("first_ts", "last_ts") if entry[name] is not None]
    requests = sum(
        sum(levels.values()) for entry in entries for kind, levels in entry["kinds"].items() if kind in _REQUEST_KINDS
    )
    return {
        "broker": broker_id,
        "from": _text(min(times)) if times else None,
        "to": _text(max(times)) if times else None,
        "request facts": requests,
        "server log": _level(entries),
    }


def _level(entries: list[dict[str, Any]]) -> str | None:
    """Return the most detailed level at which the broker's replication loggers wrote."""
    seen: set[str] = set()
    others: set[str] = set()
    for entry in entries:
        for kind, levels in entry["kinds"].items():
            if kind not in _REQUEST_KINDS | _DUMP_KINDS:
                seen |= set(levels)
        for level, loggers in entry["no_interest"].items():
            names = {logger.rpartition(".")[2] for logger in loggers}
            (seen if names & set(_REPLICATION) else others).add(level)
    return next((level for levels in (seen, others) for level in _LEVELS if level in levels), None)


def _file(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "path": entry["path"],
        "is": entry["content"],
        **({"layout": entry["layout"]} if entry["layout"] else {}),
        "lines": entry["lines"],
        "facts": entry["facts"],
        "rejected": entry["rejected"],
    }


def _answers(brokers: list[dict[str, Any]], contents: set[str], gaps: list[Any], rejected: int) -> list[str]:
    """Return what the engine can and cannot say with this recording, in plain sentences."""
    with_requests = [str(b["broker"]) for b in brokers if b["request facts"]]
    without = [str(b["broker"]) for b in brokers if not b["request facts"]]
    levels = {str(b["broker"]): b["server log"] for b in brokers}
    fine = [broker for broker, level in levels.items() if level in {"TRACE", "DEBUG"}]
    told = []
    if with_requests:
        told.append(f"Acknowledgements and every fetch are known for what brokers {', '.join(with_requests)} led.")
        if without:
            told.append(f"No request log of {', '.join(without)}: if a leader, what it acknowledged is not known.")
    else:
        told.append(
            "There is no request log: acknowledgements are not known, losses show as ranges only, and that nothing "
            "acknowledged was lost cannot be said."
        )
    if "metadata dump" in contents:
        told.append("Leaders, ISR and their order are exact: the metadata dump states them.")
    else:
        told.append("There is no metadata dump: leaders and ISR come from the brokers' own lines.")
    if fine:
        told.append(f"High watermarks can be checked against what brokers {', '.join(fine)} logged themselves.")
    if any(level is not None for level in levels.values()):
        told.append("Role changes, ISR shrinks and truncations are stated by the server logs.")
    else:
        told.append("There is no server log: truncations and role changes are inferred.")
    if "segment dump" in contents:
        told.append("Extents of batches, and what survived, are exact where segments were dumped.")
    else:
        told.append("There are no segment dumps: extents of batches come from offsets that were answered.")
    if gaps:
        told.append(
            f"{len(gaps)} times a broker wrote nothing for more than five seconds: it was down, stood still, or lines "
            "are missing."
        )
    if rejected:
        told.append(f"{rejected} lines could not be read; rejected_lines says which and why.")
    return told


def _text(micros: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat(timespec="milliseconds")
