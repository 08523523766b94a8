"""The values that flags take: each function returns one, or says in a sentence what it should have been."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence


_MOST_BROKER: Final = 2**31 - 1


def of_broker(text: str) -> tuple[int, str]:
    """Return broker id and path of BROKER=PATH."""
    broker, equals, path = text.partition("=")
    if not (equals and broker.isdecimal() and int(broker) <= _MOST_BROKER and path):
        message = f"'{text}' should be BROKER=PATH, as 1=/var/log/kafka"
        raise argparse.ArgumentTypeError(message)
    return int(broker), path


def by_broker(pairs: Sequence[tuple[int, str]]) -> dict[int | None, list[str]]:
    """Return the paths of each broker."""
    paths: dict[int | None, list[str]] = {}
    for broker, path in pairs:
        paths.setdefault(broker, []).append(path)
    return paths


def seconds(text: str) -> float:
    """Return a number of seconds."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        message = f"'{text}' should be a number of seconds, as 600"
        raise argparse.ArgumentTypeError(message)
    return found


def zone(text: str) -> tuple[int | None, str]:
    """Return broker id (None: all brokers) and zone of [BROKER=]ZONE."""
    from zoneinfo import ZoneInfo

    broker, equals, zone = text.rpartition("=")
    try:
        ZoneInfo(zone)
        number = int(broker) if equals else None
    except (ValueError, KeyError, OSError):
        number = -1
    if number is not None and not 0 <= number <= _MOST_BROKER:
        message = f"'{text}' should be ZONE or BROKER=ZONE with a zone as Europe/Berlin or UTC"
        raise argparse.ArgumentTypeError(message)
    return number, zone


def url(text: str) -> str:
    """Return an http or https URL. What is wrong is said without it: webhooks have secrets in their URLs."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises for a port that is none
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(sign <= " " for sign in text):
        message = "it should be a URL as https://alerts.example.com/hook"
        raise argparse.ArgumentTypeError(message)
    return text


def pattern(text: str) -> str:
    """Return a regular expression's text."""
    try:
        re.compile(text)
    except re.error as error:
        message = f"'{text}' is not a regular expression: {error}"
        raise argparse.ArgumentTypeError(message) from None
    return text


def size(text: str) -> int:
    """Return bytes of a number that may end in K, M, G or T."""
    found = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.upper())
    if found is None:
        message = f"'{text}' should be a number of bytes as 500M or 10G"
        raise argparse.ArgumentTypeError(message)
    return int(found[1]) << 10 * " KMGT".index(found[2] or " ")


def time(text: str) -> str:
    """Return a time in UTC as text; one without an offset is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"'{text}' should be a time as 2025-03-01T10:00 or 2025-03-01T10:00:00+01:00"
        raise argparse.ArgumentTypeError(message) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat()
