"""Gathers what brokers left on their disks into a recording; run again, it adds what is new."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines.collecting import manifest
from pipelines.collecting.dump_tool import tool_of
from pipelines.collecting.dumps import DumpTaker, Wanted
from pipelines.collecting.ledger import ledger_of
from pipelines.collecting.logs import LogTaker
from pipelines.collecting.outcome import Gathered
from pipelines.collecting.places import look, settings_in, why
from schemas.errors import InputError

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipelines.collecting.ledger import TakenFiles
    from pipelines.collecting.redaction import Redactor


@dataclass(frozen=True, slots=True)
class Order:
    """What to gather, from where, and whereto."""

    into: Path
    brokers: Mapping[int, Sequence[str]]  # files and folders of each
    kafka_home: str | None = None
    dump_tool: str | None = None
    topics: Sequence[re.Pattern[str]] = ()
    max_bytes: int = 10 << 30
    kafka_version: str | None = None
    time_zones: Mapping[int | None, str] = field(default_factory=dict)
    redactor: Redactor | None = None


def gather(order: Order) -> Gathered:
    """Gather everything that the order names and that is new; what cannot be read is named, and the rest goes on.

    Raises InputError if a flag names what is not there, or the recording is of another kind.
    """
    tool = tool_of(order.kafka_home, order.dump_tool)
    gathered = Gathered()
    with ledger_of(order.into) as ledger:
        same_kind(ledger, order)
        every = [look(broker, paths, order.into.absolute()) for broker, paths in sorted(order.brokers.items())]
        directories = [(places.broker, path) for places in every for path in places.data]
        logs = LogTaker(order.into, ledger, gathered, order.redactor)
        dumps = DumpTaker(order.into, ledger, gathered, order.redactor, tool)
        stated = {}
        for places in every:
            gathered.unread += places.unread
            for path in places.logs:
                logs.take(places.broker, path)
            for path in places.properties:
                try:
                    stated[places.broker] = settings_in(path)
                except OSError as error:
                    gathered.unread.append(f"{path}: {why(error)}")
        dumps.take_checkpoints(directories)
        dumps.take_metadata(directories)
        dumps.take_segments(directories, Wanted(order.topics, order.max_bytes, logs.cuts))
        settings, notes = manifest.read_settings(stated)
        gathered.notes += notes
        if not gathered.is_empty or stated:
            gathered.notes += manifest.update(
                order.into, order.brokers, order.kafka_version, order.time_zones, settings
            )
    return gathered


def same_kind(ledger: TakenFiles, order: Order) -> None:
    """Refuse to mix: a recording has pseudonyms of one key, or none at all."""
    redactor = order.redactor
    key = None if redactor is None else redactor.names.fingerprint
    has_topics = redactor is None or not redactor.names.redacts_topics
    if ledger.begun and (ledger.redacted, ledger.has_topic_names) != (key, has_topics):
        if ledger.redacted is None:
            message = "was collected without --redact: collect into another folder"
        elif key is None:
            message = "was collected with --redact: give --redact here too, or collect into another folder"
        elif key != ledger.redacted:
            message = "was redacted with another key: name that key with --redact-key, or collect into another folder"
        else:
            message = "was collected with another choice of --redact-topics: collect into another folder"
        raise InputError(message, source=str(order.into))
    ledger.begun, ledger.redacted, ledger.has_topic_names = True, key, has_topics
