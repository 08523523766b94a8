"""A redacted copy of a recording that was made without pseudonyms, file by file under the same names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.collecting.collector import same_kind
from pipelines.collecting.ledger import ledger_of, signature
from pipelines.collecting.outcome import Gathered
from pipelines.collecting.places import why
from pipelines.collecting.redact_texts import topic_of
from pipelines.collecting.stored import write_text
from pipelines.parse.files.content import Content, content_of, lines_of
from pipelines.recording.listing import opened
from pipelines.recording.reading import Outcome, read_chunks
from pipelines.recording.recording import MANIFEST_NAME, Recording, discover
from replay.evidence.cluster import MANIFEST_SETTINGS

if TYPE_CHECKING:
    from pipelines.collecting.collector import Order
    from pipelines.collecting.redaction import Redactor
    from pipelines.recording.recording import Source

_MAGIC = 4


def redacted_copy(source: Path, order: Order) -> Gathered:
    """Copy each file of a recording, with pseudonyms; a file that has not changed since the last copy is left."""
    if order.redactor is None:
        raise ValueError("a copy without pseudonyms is a copy")
    recording = discover(source, recording_id="copy")
    gathered = Gathered()
    with ledger_of(order.into) as ledger:
        same_kind(ledger, order)
        for one in recording.sources:
            path, target = Path(one.path), _renamed(one.name, order.redactor)
            try:
                if ledger.holds(target, path, order.into):
                    gathered.unchanged += 1
                    continue
                now = signature(path)
                with opened(one.path) as stream:
                    magic = bytes(stream.read(_MAGIC))
                text = _redacted(recording, one, order.redactor)
            except OSError as error:
                gathered.unread.append(f"{path}: {why(error)}")
                continue
            if text is None:
                gathered.passed_over.append(str(path))
                continue
            write_text(order.into / target, text, like=magic)
            gathered.bytes += path.stat().st_size
            (gathered.grown if target in ledger.copies else gathered.new).append(target)
            ledger.copies[target] = now
        if (source / MANIFEST_NAME).exists():
            write_text(order.into / MANIFEST_NAME, _manifest(recording, order.redactor))
    return gathered


def _redacted(recording: Recording, source: Source, redactor: Redactor) -> str | None:
    """Return a file's text with pseudonyms; None if it is nothing that Tidemark reads."""
    text = b"".join(read_chunks(source.path, Outcome())).decode("utf-8", "replace")
    first = text.split("\n")[:1000]
    content = content_of(source, first)
    if content in {Content.CHECKPOINT, Content.PROPERTIES}:
        return redactor.small_file(source.name, text)
    if content is Content.LOG:
        lines = lines_of(recording, first)
        return None if isinstance(lines, str) else redactor.log(lines).block(text.encode()).decode()
    if content in {Content.METADATA_DUMP, Content.SEGMENT_DUMP}:
        redact = redactor.metadata_line if content is Content.METADATA_DUMP else redactor.segment_line
        return "\n".join(redact(line.removesuffix("\r")) for line in text.split("\n"))
    return None


def _renamed(name: str, redactor: Redactor) -> str:
    """Return the name of the copy: topics in the names of folders are replaced if topics are."""
    folder, slash, file = name.rpartition("/")
    above, between, place = folder.rpartition("/")
    topic = topic_of(place)
    if not name.startswith("segments/") or topic in {place, "node"}:
        return name
    return f"{above}{between}{redactor.names.topic(topic)}{place[len(topic) :]}{slash}{file}"


def _manifest(recording: Recording, redactor: Redactor) -> str:
    """Return the manifest with what Tidemark reads of it."""
    stated = recording.manifest
    zones = {str(broker): zone for broker, zone in stated.time_zones.items() if broker is not None}
    told = {
        "kafka": stated.kafka,
        "brokers": stated.brokers,
        "time_zone": zones or stated.time_zones.get(None),
        "broker_config": {name: value for name, value in stated.broker_config.items() if name in MANIFEST_SETTINGS},
        "topics": {redactor.names.topic(name): count for name, count in stated.topics.items()},
        "log_layout": stated.log_layout,
    }
    return json.dumps({name: value for name, value in told.items() if value is not None}, indent=2) + "\n"
