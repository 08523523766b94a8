"""Who wrote a line: the broker that its words name, or that its directory or address is known to belong to.

A folder's number is what somebody called it when the logs were copied. Nearly every line of a broker names the broker
itself, and where several brokers wrote into one file, the others can be told by directories and listeners' addresses.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pipelines.parse import layout as layouts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipelines.parse.files import LogLines
    from pipelines.parse.layout import Layout, LogLine
    from pipelines.parse.rows import FileCounts

_SELF: Final = re.compile(  # what stands in the brackets before a message, and names the broker that writes it
    r"\[(?:"
    r"(?:[^\]]*[ ,])?(?:broker|id|nodeId|brokerId|controllerId|replicaId|RemoteLogManager)=(\d{1,9})(?=[\], ])"
    r"|[^\]]* on (?:[bB]roker|[cC]ontroller|[nN]ode) (\d{1,9})\]"
    r"|[A-Za-z ]*(?:Broker|Controller|Server|Coordinator|Manager|Handler) ?(\d{1,9})\]"
    r"|(?:broker-|ExpirationReaper-|KafkaApi-|kafka-|Controller-|TxnMarkerSenderThread-|delete-topics-thread-)"
    r"(\d{1,9})(?:\]|-to-controller-|-to-broker-|-raft-|-[A-Z]))"
)
_DIRECTORY: Final = re.compile(r"\[[^\]]*\bdir=([^\],]+)")
_PARTITION: Final = re.compile(r"\[[^\]]*\bpartition=([^\],]+)")
_ITSELF: Final = re.compile(  # without brackets: a broker that registers in ZooKeeper; a partition's lines up to 0.11
    r"Registered broker (\d{1,9}) at path |Partition \[[^\],]{1,300},\d{1,9}\] on broker (\d{1,9}): "
)
_LISTENING: Final = re.compile(r"Awaiting socket connections on (\S+)\.$")
_CONNECTION: Final = re.compile(r'(?:"connection":"| from connection )([^"; ]+?:\d+)-')
_SETTINGS: Final = "KafkaConfig values:"
_REQUEST: Final = "Completed request:"
_VERSION: Final = "Kafka version"
_SETTING: Final = re.compile(
    r"^[ \t]*+(broker\.id|node\.id|log\.dirs?|metadata\.log\.dir|listeners|advertised\.listeners) = (.*)$", re.MULTILINE
)
_LISTENER: Final = re.compile(r"\w+://(.*?):(\d{1,5})(?:,|$)")
_ENDPOINTS: Final = (  # broker, host, port
    re.compile(r"BrokerEndPoint\(id=(?P<id>\d{1,9}), host=(?P<host>[^\s,()]{0,255}):(?P<port>\d{1,5})\)"),
    re.compile(r"(?P<host>[^\s/(),\[]{1,255}):(?P<port>\d{1,5}) \(id: (?P<id>\d{1,9}) rack: "),
    re.compile(
        r"Registered broker (?P<id>\d{1,9}) at path .{0,300}?EndPoint\((?P<host>[^,()]{0,255}),(?P<port>\d{1,5}),"
    ),
)
_LISTED: Final = (  # in an answer to a request for metadata, as JSON and as text
    re.compile(r'\{"nodeId":(?P<id>\d{1,9}),"host":"(?P<host>[^"]{0,255})","port":(?P<port>\d{1,5})'),
    re.compile(r"\{node_id=(?P<id>\d{1,9}),host=(?P<host>[^,=]{0,255}),port=(?P<port>\d{1,5})"),
)
_ASKS_METADATA: Final = ('"requestApiKey":3,', "apiKey=METADATA,")
_HEAD: Final = 200  # characters within which a request's kind stands
_REGISTRATION: Final = '"type":"REGISTER_BROKER_RECORD"'
_PAYLOAD: Final = re.compile(r"payload: (\{.*\})\s*$")
_ENOUGH_VOTES: Final = 3
_AGREEING: Final = 0.9  # of the lines beside those of a directory
_LONGEST_EVENT: Final = 5_000  # lines: a stack trace or a list of settings has hundreds
_LATE: Final = 300  # lines after which a version is no longer taken for that of the server that starts


def named_in(text: str) -> int | None:
    """The broker that a message says it is of; None where it does not say."""
    found = (_SELF if text.startswith("[") else _ITSELF).match(text)
    return None if found is None or found.lastindex is None else int(found[found.lastindex])


def directory_in(text: str) -> str | None:
    """The log directory that a message's prefix names."""
    found = _DIRECTORY.match(text)
    return None if found is None else found[1].rstrip("/")


def own_address(connection: str) -> str:
    """The server's own end of a connection, `ip:port`."""
    return connection.partition("-")[0]


class Settings(NamedTuple):
    """What a broker's list of settings says of itself."""

    broker: int | None
    directories: tuple[str, ...]
    endpoints: tuple[tuple[str, int], ...]


def settings_in(text: str) -> Settings:
    """What a `KafkaConfig values:` list says; the broker is None where it names none, or two."""
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
    """What lines say that ties directories and addresses to brokers; several files' can be put together."""

    told: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # directory -> brokers set up with it
    votes: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))  # whose lines stand beside it
    endpoints: set[tuple[str, int, int]] = field(default_factory=set)  # host, port, broker
    fetched: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # own address -> who fetched there
    brokers: set[int] = field(default_factory=set)  # that lines name
    labels: set[int] = field(default_factory=set)  # that only folders are called after

    def add(self, other: Ties) -> None:
        """Take in what other files say."""
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
        """Whose each directory is: as its broker's settings say, else as nearly all lines beside its lines say."""
        found = {directory: next(iter(brokers)) for directory, brokers in self.told.items() if len(brokers) == 1}
        for directory, votes in self.votes.items():
            (broker, most), total = votes.most_common(1)[0], votes.total()
            if directory not in self.told and most >= _ENOUGH_VOTES and most >= _AGREEING * total:
                found[directory] = broker
        return found

    def addresses(self) -> dict[str, int]:
        """Whose an address is: as listeners are stated, by `host:port`, and by `:port` where ports tell brokers apart.

        No broker fetches from itself: an address from which all others fetched is that of the one that did not.
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
    """How the lines of a file that several brokers wrote are told apart."""

    brokers: tuple[int, ...]
    directories: Mapping[str, int]
    addresses: Mapping[str, int]

    def writer(self, parts: LogLine, whole: str) -> int | None:
        """Who wrote a line; `whole`: with what goes on in the lines after it. None: nothing says who."""
        found = self._writer(parts.text, whole)
        return found if found in self.brokers else None

    def _writer(self, text: str, whole: str) -> int | None:
        if text.startswith(_REQUEST):
            connection = _CONNECTION.search(text)
            return None if connection is None else self.at(connection[1])
        named = named_in(text)
        if named is not None:
            return named
        if text.startswith(_SETTINGS):
            return settings_in(whole).broker
        directory = directory_in(text)
        if directory is not None:
            return self.directories.get(directory)
        listening = _LISTENING.match(text)
        if listening is not None:
            return self.at(listening[1])
        inside = {broker for one, broker in self.directories.items() if _mentions(text, one)}
        return inside.pop() if len(inside) == 1 else None

    def at(self, address: str) -> int | None:
        """Whose an address is."""
        return self.addresses.get(address, self.addresses.get(f":{address.rpartition(':')[2]}"))


def _mentions(text: str, directory: str) -> bool:
    """Whether a text names a directory, or a path in it."""
    start = text.find(directory)
    return start >= 0 and (text[start + len(directory) :][:1] in set("/])}, .;:'\"") or text.endswith(directory))


class _Held(NamedTuple):
    """A line that waits for the rest of its event."""

    text: str
    line: int
    taken: str | None


class _Events:
    """Lines put together: a stamped one and those that go on in it belong to one broker."""

    def __init__(self, layout: Layout) -> None:
        self._split = layouts.Form(layout).split
        self._parts: LogLine | None = None
        self._held: list[_Held] = []

    def parse(self, text: str, line: int, taken: str | None = None) -> None:
        """Take a line."""
        parts = self._split(text)
        if parts is not None or len(self._held) >= _LONGEST_EVENT:
            self._end()
            self._parts = parts or self._parts
        self._held.append(_Held(text, line, taken))

    def _end(self) -> None:
        held, self._held = self._held, []
        if held:
            self._event(self._parts, held)

    def _event(self, parts: LogLine | None, held: list[_Held]) -> None:
        """An event is whole; `parts` is None where lines stand before the first stamp."""
        raise NotImplementedError


def _whole(parts: LogLine, held: list[_Held]) -> str:
    return "\n".join((parts.text, *(one.text for one in held[1:])))


class SharedLines(_Events):
    """The lines that one of several brokers wrote, or those of which nobody can say who did."""

    def __init__(self, inner: LogLines, layout: Layout, shared: Shared, broker: int | None, counts: FileCounts) -> None:
        """`inner` parses the lines of `broker`; None: those that nothing ties to a broker."""
        super().__init__(layout)
        self._inner = inner
        self._shared = shared
        self._broker = broker
        self._versions: list[tuple[str, list[_Held]]] = []  # told by servers that say a little later who they are
        self._last = 0
        self._mine = False
        self._counts = counts

    def _event(self, parts: LogLine | None, held: list[_Held]) -> None:
        self._last = held[0].line
        if parts is None:
            self._hand_on(None, held)
            return
        text = parts.text
        if text.startswith(_VERSION):
            self._versions.append((text, held))
            return
        writer = self._shared.writer(parts, _whole(parts, held))
        if self._versions:
            self._settle_versions(writer if "started" in text and "Server " in text[:40] else None)
        self._hand_on(writer, held)

    def _settle_versions(self, started: int | None) -> None:
        """Give a version to the server that says right after it that it has started, if no other can have told it."""
        alike = len({text for text, _ in self._versions}) == 1
        if started is not None:
            _, held = self._versions.pop(0)
            self._hand_on(started if alike else None, held)
        while self._versions and self._last - self._versions[0][1][0].line > _LATE:
            self._hand_on(None, self._versions.pop(0)[1])

    def _hand_on(self, writer: int | None, held: list[_Held]) -> None:
        self._mine = writer == self._broker
        if self._mine:
            self._counts.lines += len(held)
            for one in held:
                self._inner.parse(*one)

    def finish(self, *, cut: bool = False) -> None:
        """Take what still waits."""
        self._end()
        mine = self._mine
        for _, held in self._versions:
            self._hand_on(None, held)
        self._inner.finish(cut=cut and mine)


class Survey(_Events):
    """Reads a log only for what ties directories and addresses to brokers."""

    def __init__(self, layout: Layout) -> None:
        """Start with nothing known."""
        super().__init__(layout)
        self.ties = Ties()
        self._before: tuple[LogLine, int | None] | None = None

    def _event(self, parts: LogLine | None, held: list[_Held]) -> None:
        if parts is None:
            return
        text, ties = parts.text, self.ties
        if text.startswith(_REQUEST):
            if any(mark in text[:_HEAD] for mark in _ASKS_METADATA):
                self._endpoints(_LISTED, text)
            return
        named = named_in(text)
        if named is not None:
            ties.brokers.add(named)
        self._endpoints(_ENDPOINTS, text)
        if text.startswith(_SETTINGS):
            said = settings_in(_whole(parts, held))
            if said.broker is not None:
                ties.brokers.add(said.broker)
                for directory in said.directories:
                    ties.told[directory].add(said.broker)
                ties.endpoints |= {(host, port, said.broker) for host, port in said.endpoints}
        before, self._before = self._before, (parts, named)
        if before is not None and before[0].stamp == parts.stamp:
            self._vote(before[0].text, text, named)
            self._vote(text, before[0].text, before[1])

    def _endpoints(self, patterns: Iterable[re.Pattern[str]], text: str) -> None:
        for pattern in patterns:
            for found in pattern.finditer(text):
                self.ties.endpoints.add((found["host"], int(found["port"]), int(found["id"])))

    def _vote(self, text: str, beside: str, named: int | None) -> None:
        """Two lines of one millisecond about one partition: the first names its directory, the other a broker."""
        directory, partition = directory_in(text), _PARTITION.match(text)
        if named is not None and directory is not None and partition is not None and partition[1] in beside:
            self.ties.votes[directory][named] += 1

    def finish(self, *, cut: bool = False) -> None:
        """Take what still waits."""
        del cut
        self._end()


def registered_in(lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """Host, port and broker of each listener that a metadata dump registers."""
    for text in lines:
        payload = _PAYLOAD.search(text) if _REGISTRATION in text else None
        if payload is None:
            continue
        try:
            data: dict[str, Any] = msgspec.json.decode(payload[1])["data"]
            for one in data.get("endPoints", ()):
                yield str(one["host"]), int(one["port"]), int(data["brokerId"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            continue
