"""A log that several brokers wrote: passes each broker's lines to its parser, or collects only what identifies them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pipelines.lines import layout as layouts
from pipelines.lines.writers import REQUEST, SETTINGS, Ties, directory_in, named_in, settings_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipelines.lines.layout import Layout, LogLine
    from pipelines.lines.rows import FileCounts
    from pipelines.lines.writers import Shared
    from pipelines.parse.files.log_lines import LogLines

_PARTITION: Final = re.compile(r"\[[^\]]*\bpartition=([^\],]+)")
_VERSION: Final = "Kafka version"
ENDPOINTS: Final = (  # broker, host, port
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
_LONGEST_EVENT: Final = 5_000  # lines: a stack trace or a list of settings has hundreds
_LATE: Final = 300  # lines after which a version is no longer taken for that of the server that starts


class _Held(NamedTuple):
    """A line that waits for the rest of its event."""

    text: str
    line: int
    taken: str | None


class _Events:
    """Joins lines into events: a stamped line and those that continue it belong to one broker."""

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
        """Handle a complete event; `parts` is None for lines before the first stamp."""
        raise NotImplementedError


def _whole(parts: LogLine, held: list[_Held]) -> str:
    return "\n".join((parts.text, *(one.text for one in held[1:])))


class SharedLines(_Events):
    """The lines that one of several brokers wrote, or those whose writer is unknown."""

    def __init__(self, inner: LogLines, layout: Layout, shared: Shared, broker: int | None, counts: FileCounts) -> None:
        """`inner` parses the lines of `broker`; None: those that nothing ties to a broker."""
        super().__init__(layout)
        self._inner = inner
        self._shared = shared
        self._broker = broker
        self._versions: list[tuple[str, list[_Held]]] = []  # stated by servers that name themselves a little later
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
        """Give a version to the server that reports its start right after it, if no other can have stated it."""
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
        """Handle what still waits."""
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
        if text.startswith(REQUEST):
            if any(mark in text[:_HEAD] for mark in _ASKS_METADATA):
                self._endpoints(_LISTED, text)
            return
        named = named_in(text)
        if named is not None:
            ties.brokers.add(named)
        self._endpoints(ENDPOINTS, text)
        if text.startswith(SETTINGS):
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
        """Use two lines of one millisecond about one partition: the first names its directory, the other a broker."""
        directory, partition = directory_in(text), _PARTITION.match(text)
        if named is not None and directory is not None and partition is not None and partition[1] in beside:
            self.ties.votes[directory][named] += 1

    def finish(self, *, cut: bool = False) -> None:
        """Handle what still waits."""
        del cut
        self._end()


def registered_in(lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """Yield host, port and broker of each listener that a metadata dump registers."""
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
