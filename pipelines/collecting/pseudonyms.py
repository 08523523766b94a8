"""Stable pseudonyms: equal names map alike wherever they occur, and nobody without the key can map them back.

What Kafka itself names (`broker-1-fetcher-0`), and the names that clients have when nobody named them (`producer-1`),
name no one and stay: Tidemark reads the first kind, and knows that strangers share the second.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Final

from schemas.errors import InputError

KEY_FILE: Final = Path("~/.config/tidemark/redact.key")
_KEY_BYTES: Final = 32
_DIGITS: Final = 12
_MOST_KNOWN: Final = 1_000_000
_NOBODYS: Final = re.compile(
    r"broker-\d{1,9}-[a-z-]+(?:-\d{1,4})?|raft-client-\d{1,9}|[A-Za-z]+Manager-client-\d{1,9}|"
    r"__remote_log_metadata_client_\d{1,9}_(?:consumer|producer)|"
    r"(?:producer|consumer|adminclient|admin)-\d{1,6}|console-(?:producer|consumer)|rdkafka|sarama|"
    r"reassign-partitions-tool"
)
_CONNECTION: Final = re.compile(r"(.+?):(\d{1,5})-(.+):(\d{1,5})((?:-\d{1,10}){1,3})")
_SOFTWARE: Final = re.compile(
    r"unknown|apache-kafka-java|librdkafka|confluent-kafka-\w+|kafka-python|sarama|kafkajs|franz-go|kgo|aiokafka"
)
_LISTENERS: Final = re.compile(
    r"(?:PLAINTEXT|SSL|SASL_SSL|SASL_PLAINTEXT|CONTROLLER|BROKER|REPLICATION|CLIENT|INTERNAL|EXTERNAL)"
)
_NO_HOST: Final = {"", "0.0.0.0", "null"}  # noqa: S104 - a listener on all addresses names none
_NOBODY: Final = {"", "ANONYMOUS", "User:ANONYMOUS"}


class Pseudonyms:
    """Makes pseudonyms with a key."""

    def __init__(self, key: bytes, *, redacts_topics: bool = False) -> None:
        """`redacts_topics`: whether topics get pseudonyms too; Kafka's own topics never do."""
        self.redacts_topics = redacts_topics
        self.fingerprint = hashlib.blake2b(b"tidemark", key=key, digest_size=8).hexdigest()
        self._key = key
        self._known: dict[tuple[str, str], str] = {}

    @classmethod
    def of_file(cls, path: Path | None = None, *, redacts_topics: bool = False) -> Pseudonyms:
        """Read the key from a file; make both if there is no such file.

        Raises InputError if the file can neither be read nor made, or holds no key.
        """
        place = (path or KEY_FILE).expanduser()
        try:
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                handle = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with os.fdopen(handle, "w") as file:
                    file.write(secrets.token_hex(_KEY_BYTES) + "\n")
            key = bytes.fromhex(place.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            message = f"cannot be used as a key of pseudonyms: {getattr(error, 'strerror', None) or error}"
            raise InputError(message, source=str(place)) from error
        if len(key) < _KEY_BYTES:
            message = f"holds no key of pseudonyms: it should be {2 * _KEY_BYTES} hexadecimal digits"
            raise InputError(message, source=str(place))
        return cls(key, redacts_topics=redacts_topics)

    def word(self, begin: str, name: str) -> str:
        """Return the pseudonym of a name; `begin` says what kind of name it is."""
        found = self._known.get((begin, name))
        if found is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            hashed = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16)
            found = self._known[begin, name] = f"{begin}{hashed.hexdigest()[:_DIGITS]}"
        return found

    def client(self, name: str) -> str:
        """Return what stands for a client id, transactional id, group or member."""
        return name if not name or _NOBODYS.fullmatch(name) else self.word("c-", name)

    def host(self, name: str) -> str:
        """Return what stands for a host's name or address; it has no dash, which separates the ends of a connection."""
        return name if name in _NO_HOST else self.word("h", name)

    def connection(self, name: str) -> str:
        """Return `host:port-host:port-index` with both hosts replaced; ports and index stay."""
        found = _CONNECTION.fullmatch(name)
        if found is None:
            return self.word("x", name)
        return f"{self.host(found[1])}:{found[2]}-{self.host(found[3])}:{found[4]}{found[5]}"

    def principal(self, name: str) -> str:
        """Return what stands for a principal; its type stays."""
        if name in _NOBODY:
            return name
        kind, colon, rest = name.partition(":")
        return f"{kind}:{self.word('p-', rest)}" if colon and kind.isalpha() else self.word("p-", name)

    def topic(self, name: str) -> str:
        """Return the topic's name, or what stands for it."""
        if not self.redacts_topics or name.startswith("__"):
            return name
        return self.word("t-", name)

    def software(self, name: str) -> str:
        """Return the name of a client library; one that is not widely known may be somebody's own."""
        return name if _SOFTWARE.fullmatch(name) else self.word("s-", name)

    def listener(self, name: str) -> str:
        """Return a listener's name; one that is not usual may name somebody."""
        return name if _LISTENERS.fullmatch(name) else self.word("L", name)

    def path(self, text: str) -> str:
        """Return a path with each of its parts replaced, so that what lies in a folder still does."""
        return "/".join(part and self.word("d", part) for part in text.split("/"))
