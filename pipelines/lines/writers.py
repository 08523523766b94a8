"""Finds out which broker wrote a line: the one that its text names, or that owns its directory or address.

A folder's number is only what somebody called it when the logs were copied. Nearly every line of a broker names the
broker itself. Where several brokers wrote into one file, other lines can be assigned by directories and by listeners'
addresses.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.lines.layout import LogLine

_SELF: Final = re.compile(  # what stands in the brackets before a message and names the broker that writes it
    r"\[(?:"
    r"(?:[^\]]*[ ,])?(?:broker|id|nodeId|brokerId|controllerId|replicaId|RemoteLogManager)=(\d{1,9})(?=[\], ])"
    r"|[^\]]* on (?:[bB]roker|[cC]ontroller|[nN]ode) (\d{1,9})\]"
    r"|[A-Za-z ]*(?:Broker|Controller|Server|Coordinator|Manager|Handler) ?(\d{1,9})\]"
    r"|(?:broker-|ExpirationReaper-|KafkaApi-|kafka-|Controller-|TxnMarkerSenderThread-|delete-topics-thread-)"
    r"(\d{1,9})(?:\]|-to-controller-|-to-broker-|-raft-|-[A-Z]))"
)
_DIRECTORY: Final = re.compile(r"\[[^\]]*\bdir=([^\],]+)")
_ITSELF: Final = re.compile(  # without brackets: a broker that registers in ZooKeeper; a partition's lines up to 0.11
    r"Registered broker (\d{1,9}) at path |Partition \[[^\],]{1,300},\d{1,9}\] on broker (\d{1,9}): "
)
LISTENING: Final = re.compile(r"Awaiting socket connections on (\S+)\.$")
_CONNECTION: Final = re.compile(r'(?:"connection":"| from connection )([^"; ]+?:\d+)-')
SETTINGS: Final = "KafkaConfig values:"
REQUEST: Final = "Completed request:"
_SETTING: Final = re.compile(
    r"^[ \t]*+(broker\.id|node\.id|log\.dirs?|metadata\.log\.dir|listeners|advertised\.listeners) = (.*)$", re.MULTILINE
)
_LISTENER: Final = re.compile(r"\w+://(.*?):(\d{1,5})(?:,|$)")
_ENOUGH_VOTES: Final = 3
_AGREEING: Final = 0.9  # share of the lines found beside those of a directory


def named_in(text: str) -> int | None:
    """Return the broker that a message names as its writer; None if it names none."""
    found = (_SELF if text.startswith("[") else _ITSELF).match(text)
    return None if found is None or found.lastindex is None else int(found[found.lastindex])


def directory_in(text: str) -> str | None:
    """Return the log directory that a message's prefix names."""
    found = _DIRECTORY.match(text)
    return None if found is None else found[1].rstrip("/")


def own_address(connection: str) -> str:
    """Return the server's own end of a connection, `ip:port`."""
    return connection.partition("-")[0]


class Settings(NamedTuple):
    """What a broker's list of settings says about the broker itself."""

    broker: int | None
    directories: tuple[str, ...]
    endpoints: tuple[tuple[str, int], ...]


def settings_in(text: str) -> Settings:
    """Read a `KafkaConfig values:` list; the broker is None if it names none, or two."""
    found = {name: value.strip() for name, value in _SETTING.findall(text)}
    ids = {int(found[name]) for name in ("broker.id", "node.id") if found.get(name, "").isdecimal()}
    dirs = found.get("log.dirs", "null")
    dirs = found.get("log.dir", "null") if dirs == "null" else dirs
    every = [*dirs.split(","), found.get("metadata.log.dir", "null")]
    directories = tuple(one.strip().rstrip("/") for one in every if one.strip() not in {"", "null"})
    named = (found.get("listeners", ""), found.get("advertised.listeners", ""))
    endpoints = tuple((host, int(port)) for text in named for host, port in _LISTENER.findall(text))
    return Settings(ids.pop() if len(ids) == 1 else None, directories, endpoints)


@dataclass(slots=True)
class Ties:
    """What lines say that ties directories and addresses to brokers; can be merged across files."""

    told: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # directory -> brokers that use it
    votes: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))  # likewise, by nearby lines
    endpoints: set[tuple[str, int, int]] = field(default_factory=set)  # host, port, broker
    fetched: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # own address -> who fetched there
    brokers: set[int] = field(default_factory=set)  # brokers that lines name
    labels: set[int] = field(default_factory=set)  # brokers that only folders are named after

    def add(self, other: Ties) -> None:
        """Merge what other files say."""
        for directory, brokers in other.told.items():
            self.told[directory] |= brokers
        for directory, votes in other.votes.items():
            self.votes[directory] += votes
        for address, replicas in other.fetched.items():
            self.fetched[address] |= replicas
        self.endpoints |= other.endpoints
        self.brokers |= other.brokers
        self.labels |= other.labels

    def directories(self) -> dict[str, int]:
        """Return the owner of each directory: by brokers' settings, else by nearly all lines beside its lines."""
        found = {directory: next(iter(brokers)) for directory, brokers in self.told.items() if len(brokers) == 1}
        for directory, votes in self.votes.items():
            (broker, most), total = votes.most_common(1)[0], votes.total()
            if directory not in self.told and most >= _ENOUGH_VOTES and most >= _AGREEING * total:
                found[directory] = broker
        return found

    def addresses(self) -> dict[str, int]:
        """Return the owner of each address: of stated listeners by `host:port`, and by `:port` if ports are unique.

        No broker fetches from itself: an address from which all others fetched belongs to the one that did not.
        """
        whole: dict[str, set[int]] = defaultdict(set)
        ports: dict[int, set[int]] = defaultdict(set)
        for host, port, broker in self.endpoints:
            ports[port].add(broker)
            if host:
                whole[f"{host}:{port}"].add(broker)
        found = {address: next(iter(brokers)) for address, brokers in whole.items() if len(brokers) == 1}
        if self.brokers <= {broker for _, _, broker in self.endpoints}:
            found |= {f":{port}": next(iter(brokers)) for port, brokers in ports.items() if len(brokers) == 1}
        for address, replicas in self.fetched.items():
            stated = found.get(address, found.get(f":{address.rpartition(':')[2]}"))
            others = (self.brokers | self.labels) - replicas
            if stated is None and len(others) == 1:
                found[address] = next(iter(others))
        return found


class Shared(msgspec.Struct, frozen=True):
    """How to tell apart the lines of a file that several brokers wrote."""

    brokers: tuple[int, ...]
    directories: Mapping[str, int]
    addresses: Mapping[str, int]

    def writer(self, parts: LogLine, whole: str) -> int | None:
        """Return who wrote a line; None if nothing says so. `whole`: its text with the lines that continue it."""
        found = self._writer(parts.text, whole)
        return found if found in self.brokers else None

    def _writer(self, text: str, whole: str) -> int | None:
        if text.startswith(REQUEST):
            connection = _CONNECTION.search(text)
            return None if connection is None else self.at(connection[1])
        named = named_in(text)
        if named is not None:
            return named
        if text.startswith(SETTINGS):
            return settings_in(whole).broker
        directory = directory_in(text)
        if directory is not None:
            return self.directories.get(directory)
        listening = LISTENING.match(text)
        if listening is not None:
            return self.at(listening[1])
        inside = {broker for one, broker in self.directories.items() if _mentions(text, one)}
        return inside.pop() if len(inside) == 1 else None

    def at(self, address: str) -> int | None:
        """Return the broker that owns an address; None if it is unknown."""
        return self.addresses.get(address, self.addresses.get(f":{address.rpartition(':')[2]}"))


def _mentions(text: str, directory: str) -> bool:
    """Whether a text names a directory or a path below it."""
    start = text.find(directory)
    return start >= 0 and (text[start + len(directory) :][:1] in set("/])}, .;:'\"") or text.endswith(directory))
