"""A recording: its files, the brokers they belong to, and its manifest."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pipelines.lines.clock import zone
from pipelines.lines.layout import LAYOUT_NAMES
from pipelines.recording.listing import file_at, files_below, is_folder, opened
from pipelines.recording.names import folder_name, recording_name
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipelines.lines.writers import Shared

MANIFEST_NAME = "MANIFEST.json"
LAYOUT_HELP = """a recording is a folder with at least one log or dump:
  logs/node-<broker id>/*                              that broker's logs, plain, .gz or .zst
  cluster-metadata.dump.txt[.gz|.zst], metadata/*      kafka-dump-log --cluster-metadata-decoder (KRaft): any number,
                                                       of the log and of its snapshots, of one controller or several
  segments/node-<broker id>/<topic>-<partition>/*      kafka-dump-log of segments, checkpoints (optional)
  MANIFEST.json                                        Kafka version, time zones, settings (optional)"""
_NODE = re.compile(r"(?:^|/)node-(\d+)(?:/|$)")
_MOST_DIGITS, _MOST_BROKER = 12, 2**31 - 1
_HIDDEN = re.compile(r"(?:^|/)[._][^/]*$")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What MANIFEST.json says, overridden by what the command line says."""

    kafka: str | None = None
    brokers: int | None = None
    time_zones: Mapping[int | None, str] = field(default_factory=dict)  # key None: all other brokers
    broker_config: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    log_layout: str | None = None

    def time_zone(self, broker_id: int | None) -> str:
        """Return the zone of a broker's clock; UTC if none is stated."""
        return self.time_zones.get(broker_id) or self.time_zones.get(None) or "UTC"


@dataclass(frozen=True, slots=True)
class Source:
    """One file: `path` opens it (a local path or a URI), `name` is its name in tables.

    `broker_id`: the broker it belongs to, by its folder, or by its lines if they say otherwise. A file that several
    brokers wrote is one source per broker, with `shared` to tell their lines apart, and one of no broker for the rest.
    """

    path: str
    name: str
    broker_id: int | None
    size: int
    shared: Shared | None = None
    set_aside: str | None = None  # why none of it is used
    labelled: int | None = None  # the broker its folder names, if it belongs to another one
    is_attributed: bool = False  # its lines, not its folder, say whose it is
    modified_us: int | None = None  # when it was last written, if the store tells


@dataclass(frozen=True, slots=True)
class Recording:
    """The files of one growing body of evidence about one cluster."""

    recording_id: str
    root: str
    sources: tuple[Source, ...]
    manifest: Manifest
    listed_us: int = 0  # when its files were listed, microseconds since 1970


def discover(
    root: str | Path,
    *,
    recording_id: str | None = None,
    time_zones: Mapping[int | None, str] | None = None,
    kafka_version: str | None = None,
    log_layout: str | None = None,
) -> Recording:
    """Find the files of a recording's folder. Arguments override the manifest; InputError if it is no folder."""
    if is_folder(str(root)) is not True:
        message = f"no such folder; {LAYOUT_HELP}"
        raise InputError(message, source=str(root))
    manifest = Manifest()
    sources = []
    for found in files_below(str(root)):
        name = found.name
        if name == MANIFEST_NAME:
            with opened(found.path) as stream:
                manifest = _read_manifest(stream.read(), found.path)
        elif not _HIDDEN.search(name) and (name.startswith(("logs/", "metadata/", "segments/")) or "/" not in name):
            sources.append(Source(found.path, name, _broker_of(name), found.size, modified_us=found.modified_us))
    return _recording(
        recording_id or folder_name(str(root)),
        str(root),
        sources,
        _overridden(manifest, time_zones, kafka_version, log_layout),
    )


def from_paths(  # noqa: PLR0913 - one parameter per flag of the command line
    recording_id: str,
    logs: Mapping[int | None, Iterable[str | Path]],
    *,
    metadata: Iterable[str | Path] = (),
    segments: Mapping[int | None, Iterable[str | Path]] | None = None,
    time_zones: Mapping[int | None, str] | None = None,
    kafka_version: str | None = None,
    log_layout: str | None = None,
) -> Recording:
    """Return a recording of files and folders that are given one by one."""
    named: list[tuple[int | None, str | Path]] = [(None, path) for path in metadata]
    for group in (logs, segments or {}):
        named += [(broker, path) for broker, paths in group.items() for path in paths]
    sources = [source for broker, path in named for source in _expand(str(path), broker)]
    manifest = _overridden(Manifest(), time_zones, kafka_version, log_layout)
    return _recording(recording_id, "", sources, manifest)


def _recording(recording_id: str, root: str, sources: list[Source], manifest: Manifest) -> Recording:
    now = time.time_ns() // 1000
    unique = {source.path: source for source in sources}
    if not unique:
        message = f"no logs or dumps here; {LAYOUT_HELP}"
        raise InputError(message, source=root or None)
    ordered = tuple(sorted(unique.values(), key=lambda source: (source.name, source.path)))
    return Recording(recording_name(recording_id), root, ordered, manifest, now)


def _expand(path: str, broker_id: int | None) -> list[Source]:
    folder = is_folder(path)
    if folder is None:
        message = "no such file or folder"
        raise InputError(message, source=path)
    if not folder:
        found = file_at(path)
        return [Source(found.path, found.name, broker_id, found.size, modified_us=found.modified_us)]
    within = path.rstrip("/") if "://" in path else str(Path(path).absolute())
    return [
        Source(one.path, f"{within}/{one.name}", broker_id, one.size, modified_us=one.modified_us)
        for one in files_below(path)
        if not _HIDDEN.search(one.name)
    ]


def _broker_of(name: str) -> int | None:
    match = _NODE.search(name)
    if match is None or not name.startswith(("logs/", "segments/")):
        return None
    return broker_number(match[1], name)


def broker_number(digits: str, source: str | None = None) -> int:
    """Return the broker id that these digits spell; InputError if it is no valid id: Kafka's are 32-bit integers."""
    if len(digits) > _MOST_DIGITS or int(digits) > _MOST_BROKER:
        message = f"{digits[:_MOST_DIGITS]!r} is no broker id: Kafka's end at {_MOST_BROKER}"
        raise InputError(message, source=source)
    return int(digits)


def _overridden(
    manifest: Manifest,
    time_zones: Mapping[int | None, str] | None,
    kafka_version: str | None,
    log_layout: str | None,
) -> Manifest:
    zones = {**manifest.time_zones, **(time_zones or {})}
    if time_zones and None in time_zones:
        zones = dict(time_zones)
    for name in zones.values():
        zone(name)
    layout = log_layout or manifest.log_layout
    if layout is not None and layout not in LAYOUT_NAMES:
        message = f"unknown log layout {layout!r}: known are {', '.join(sorted(LAYOUT_NAMES))}"
        raise InputError(message)
    return replace(
        manifest,
        kafka=kafka_version or manifest.kafka,
        time_zones=zones,
        log_layout=layout,
    )


class _Written(msgspec.Struct):
    """MANIFEST.json as people write it."""

    kafka: str | None = None
    brokers: int | list[int] | None = None
    time_zone: str | dict[str, str] | None = None
    broker_config: dict[str, str | int | float | bool | None] = {}
    topics: dict[str, int] = {}
    log_layout: str | None = None


def _read_manifest(content: bytes, source: str) -> Manifest:
    try:
        written = msgspec.json.decode(content, type=_Written)
    except msgspec.ValidationError as error:
        key = re.search(r"`\$\.(\w+)", str(error))
        raise InputError(str(error), source=source, line=_line_of(content, key[1] if key else None)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = re.search(r"byte (\d+)", str(error))
        line = content[: int(place[1])].count(b"\n") + 1 if place else content.count(b"\n") + 1
        message = f"not JSON: {error}"
        raise InputError(message, source=source, line=line) from error
    zones: dict[int | None, str] = {}
    if isinstance(written.time_zone, str):
        zones[None] = written.time_zone
    for broker, name in written.time_zone.items() if isinstance(written.time_zone, dict) else ():
        if not broker.isdecimal():
            message = f"time_zone: {broker!r} is no broker id"
            raise InputError(message, source=source, line=_line_of(content, "time_zone"))
        zones[broker_number(broker, source)] = name
    for name in zones.values():
        try:
            zone(name)
        except InputError as error:
            raise InputError(str(error), source=source, line=_line_of(content, "time_zone")) from error
    brokers = len(written.brokers) if isinstance(written.brokers, list) else written.brokers
    config = {key: _setting(value) for key, value in written.broker_config.items() if value is not None}
    return Manifest(written.kafka, brokers, zones, config, written.topics, written.log_layout)


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line_of(content: bytes, key: str | None) -> int:
    """Return the number of the line with a key, 1 if the key is not found."""
    wanted = f'"{key}"'.encode()
    return next((number for number, text in enumerate(content.splitlines(), 1) if wanted in text), 1)
