"""The flags of the collect job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from jobs import values

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

EXIT_CODES: Final = (
    "exit codes: 0 done (what could not be read is named); 1 failed; 2 bad usage, or nothing could be read."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("from where, and whereto")
    group.add_argument(
        "--broker", nargs="+", action="extend", type=values.of_broker, default=[], metavar="ID=PATH[,PATH..]",
        help="folders of a broker or controller: its logs, its log directories (data), or folders that hold both; each "
        "is recognised by what is in it. Its server.properties too, which names log directories and settings",
    )  # fmt: skip
    group.add_argument(
        "--recording", metavar="DIR", help="instead of --broker: a recording to make a redacted copy of (with --redact)"
    )
    group.add_argument(
        "--into", type=Path, required=True, metavar="DIR", help="the recording: a new folder, or one to add to"
    )
    group = parser.add_argument_group("dumps")
    group.add_argument(
        "--kafka-home", metavar="DIR", help="Kafka's installation, whose bin/kafka-dump-log.sh makes the dumps "
        "(default: nothing binary is taken, and the commands to make them are printed)",
    )  # fmt: skip
    group.add_argument("--dump-tool", metavar="COMMAND", help="another command that does what kafka-dump-log.sh does")
    group.add_argument(
        "--topic", nargs="+", action="extend", type=values.pattern, default=[], metavar="PATTERN",
        help="dump every segment of topics whose whole name matches (of others, those where the leader changed or the "
        "log was cut)",
    )  # fmt: skip
    group.add_argument(
        "--max-bytes", type=values.size, default=values.size("10G"), metavar="SIZE",
        help="read at most so much of segments, as 500M (default: 10G); what is left out is named",
    )  # fmt: skip
    group = parser.add_argument_group("what the manifest is to say")
    group.add_argument("--kafka-version", metavar="V", help="Kafka's version, as 3.9.0 (default: what the logs tell)")
    group.add_argument(
        "--time-zone", nargs="+", action="extend", type=values.zone, default=[], metavar="[BROKER=]ZONE",
        help="zone of the brokers' clocks, as Europe/Berlin, which no log line tells (default: UTC)",
    )  # fmt: skip
    group = parser.add_argument_group("pseudonyms")
    group.add_argument(
        "--redact", action="store_true",
        help="replace client ids, addresses, principals, paths and the like by pseudonyms: equal names map alike, so "
        "the recording answers the same. Lines and fields that Tidemark does not read are emptied",
    )  # fmt: skip
    group.add_argument(
        "--redact-key", type=Path, metavar="FILE",
        help="key of the pseudonyms, made if it is not there; keep it to yourself, and use it again, so that later "
        "collects map alike (default: ~/.config/tidemark/redact.key)",
    )  # fmt: skip
    group.add_argument("--redact-topics", action="store_true", help="with --redact: topics too, except Kafka's own")
    group = parser.add_argument_group("what to print")
    group.add_argument("--json", action="store_true", help="one JSON object on standard output instead of text")


def by_broker(pairs: Sequence[tuple[int, str]]) -> dict[int, list[str]]:
    """Return the paths of each broker."""
    found: dict[int, list[str]] = {}
    for broker, paths in pairs:
        found.setdefault(broker, []).extend(path for path in paths.split(",") if path)
    return found
