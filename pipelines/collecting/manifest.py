"""MANIFEST.json of a collected recording: what stands there stays, and what is missing is added."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pipelines.collecting.stored import write_text
from pipelines.recording.recording import MANIFEST_NAME
from replay.evidence.cluster import MANIFEST_SETTINGS
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def read_settings(stated: Mapping[int, Mapping[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return the settings that a manifest can state, by brokers' properties, and a sentence for each that differs."""
    values: dict[str, dict[int, str]] = defaultdict(dict)
    for broker, settings in stated.items():
        for name in MANIFEST_SETTINGS:
            if settings.get(name):
                values[name][broker] = settings[name]
    alike = {name: next(iter(told.values())) for name, told in values.items() if len(set(told.values())) == 1}
    notes = [
        f"{name} differs ({', '.join(f'broker {broker}: {value}' for broker, value in sorted(told.items()))}): "
        "left out of MANIFEST.json, because it can state one value only"
        for name, told in values.items()
        if name not in alike
    ]
    return alike, notes


def update(
    root: Path,
    brokers: Iterable[int],
    kafka: str | None,
    zones: Mapping[int | None, str],
    settings: Mapping[str, str],
) -> list[str]:
    """Write what is known into the manifest; return a sentence for each thing that the manifest states otherwise.

    Raises InputError if the manifest that is there is no JSON object.
    """
    place = root / MANIFEST_NAME
    before = _read(place)
    manifest, notes = dict(before), []
    listed = before.get("brokers", [])
    if isinstance(listed, list):
        manifest["brokers"] = sorted({*listed, *brokers})
    if kafka is not None:
        manifest["kafka"] = kafka
    if zones:
        manifest["time_zone"] = _zones(before.get("time_zone"), zones, manifest["brokers"])
    config = dict(before.get("broker_config") or {})
    for name, value in settings.items():
        stated = str(config.setdefault(name, value))
        if stated != value:
            notes.append(f"{MANIFEST_NAME} states {name}={stated}, the properties say {value}: the manifest's stays")
    if config:
        manifest["broker_config"] = config
    if manifest != before:
        write_text(place, json.dumps(manifest, indent=2) + "\n")
    return notes


def _zones(before: Any, zones: Mapping[int | None, str], brokers: Any) -> Any:  # noqa: ANN401 - as JSON has it
    """Return one zone for all, or a zone for each broker."""
    if None in zones and len(zones) == 1:
        return zones[None]
    known = brokers if isinstance(brokers, list) else []
    of_all = zones.get(None, before if isinstance(before, str) else None)
    found = {str(broker): of_all for broker in known if of_all is not None}
    if isinstance(before, dict):
        found |= before
    return found | {str(broker): zone for broker, zone in zones.items() if broker is not None}


def _read(place: Path) -> dict[str, Any]:
    if not place.exists():
        return {}
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except ValueError as error:
        message = f"not JSON: {error}"
        raise InputError(message, source=str(place)) from error
    if not isinstance(found, dict):
        message = "not a JSON object"
        raise InputError(message, source=str(place))
    return found
