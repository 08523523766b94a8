"""Pseudonyms in every file of a recording, so that the same facts are read from it, up to the pseudonyms."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pipelines.collecting.kept_records import PAYLOAD, VOTERS, read_only
from pipelines.collecting.redact_requests import RequestLines
from pipelines.collecting.redact_texts import BrokerTexts, topic_of
from pipelines.lines import layout as layouts
from pipelines.parse.dumps.checkpoints import is_properties
from pipelines.parse.dumps.segment_dump import DUMPING
from pipelines.parse.files.prefix import taken_off
from pipelines.parse.requests.request_log import PREFIX

if TYPE_CHECKING:
    from pipelines.collecting.pseudonyms import Pseudonyms
    from pipelines.parse.files.content import LineFormat
    from pipelines.parse.files.prefix import Prefixed

_BRACKETS: Final = re.compile(r"\[([^\]]*)\]")
_NO_THREAD: Final = re.compile(r"[\d: ,.TZ+/-]*|[A-Z]{1,16}")
_WORDS: Final = re.compile(r"[\w.-]+")
_JSON_BEGINS: Final = '{"@timestamp'
_OF_DUMPS: Final = ("baseOffset: ", "Log starting offset", "Starting offset:", "Snapshot end offset", "| offset: ")
_PROPERTIES: Final = {"node.id", "broker.id", "cluster.id", "version", "directory.id"}
_TOPIC_RESOURCE: Final = 2
_FILE: Final = re.compile(r"\d{20}(?:-\d{10})?\.(?:log|checkpoint)")


class Redactor:
    """Replaces names, file by file."""

    def __init__(self, names: Pseudonyms) -> None:
        """Use one set of pseudonyms for all files."""
        self.names = names
        self.requests = RequestLines(names)
        self.texts = BrokerTexts(names)

    def log(self, lines: LineFormat) -> LogRedaction:
        """Return what redacts a log whose lines are laid out like that."""
        return LogRedaction(self, lines)

    def small_file(self, name: str, text: str) -> str:
        """Return a checkpoint, or a meta.properties, with pseudonyms."""
        lines = text.split("\n")
        if is_properties(name):
            return "\n".join(line for line in lines if line.partition("=")[0].strip() in _PROPERTIES) + "\n"
        if name.rpartition("/")[2].startswith("leader-epoch"):
            return text
        return "\n".join(self._entry(line) for line in lines)

    def _entry(self, line: str) -> str:
        parts = line.split(" ")
        return " ".join([self.names.topic(parts[0]), *parts[1:]]) if len(parts) > 1 else line

    def segment_line(self, line: str) -> str:
        """Return a line of a segment's dump with pseudonyms."""
        if line.startswith(DUMPING):
            return self._dumping(line)
        return line if line.startswith(_OF_DUMPS) else ""

    def metadata_line(self, line: str) -> str:
        """Return a line of a dump of the metadata log with pseudonyms, and only with what is read."""
        if line.startswith(DUMPING):
            return self._dumping(line)
        if not line.startswith(_OF_DUMPS):
            return ""
        head, mark, payload = line.partition(PAYLOAD)
        if not mark:
            return line.partition(VOTERS)[0] + VOTERS if VOTERS in line else line
        try:
            record = read_only(msgspec.json.decode(payload.rstrip()))
            record["data"] = self._record(record["type"], record["data"])
            return f"{head}{mark}{msgspec.json.encode(record).decode()}"
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, RecursionError, ValueError):
            return f"{head}{mark}{{}}"

    def _record(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        names = self.names
        if kind == "REGISTER_BROKER_RECORD":
            points = [
                {**one, "name": names.listener(one["name"]), "host": names.host(one["host"])}
                for one in data.get("endPoints", ())
            ]
            rack = data.get("rack")
            return {**data, "endPoints": points, "rack": rack and names.word("x", rack)}
        if kind == "CONFIG_RECORD" and not str(data["resourceName"]).isdecimal():
            of_topic = data["resourceType"] == _TOPIC_RESOURCE
            resource = data["resourceName"]
            return {**data, "resourceName": names.topic(resource) if of_topic else names.client(resource)}
        if kind == "TOPIC_RECORD":
            return {**data, "name": names.topic(data["name"])}
        if kind == "CLEAR_ELR_RECORD" and data.get("topicName"):
            return {**data, "topicName": names.topic(data["topicName"])}
        return data

    def _dumping(self, line: str) -> str:
        """Return the line that names the file that was dumped: its directory is replaced, its own name stays."""
        path = line.removeprefix(DUMPING).rstrip().replace("\\", "/")
        folder, _, file = path.rpartition("/")
        directory, slash, place = folder.rpartition("/")
        topic = topic_of(place)
        shown = self.names.topic(topic) + place[len(topic) :] if topic != place else self.names.path(place)
        name = file if _FILE.fullmatch(file) else self.names.path(file)
        return f"{DUMPING}{self.names.path(directory)}{slash}{shown}/{name}"


class LogRedaction:
    """Replaces names in the lines of one log. There are as many lines afterwards as before."""

    def __init__(self, redactor: Redactor, lines: LineFormat) -> None:
        """`lines`: how they are laid out."""
        self._redactor = redactor
        self._layout = lines.layout
        self._form = layouts.Form(lines.layout)
        self._prefixed = lines.prefixed
        self._out: list[str] = []
        self._parts: dict[str | None, str] = defaultdict(str)  # of lines that a container's runtime has split
        self._begun: dict[str | None, int] = {}  # where in this block's lines their first part stands

    def block(self, content: bytes) -> bytes:
        """Return whole lines with pseudonyms."""
        text = content.decode("utf-8", "replace").removeprefix("\ufeff")
        ended = text.endswith("\n")
        lines = text.split("\n")
        if ended:
            lines.pop()
        redact = self._behind_prefix if self._prefixed else self.line
        self._out = []
        for line in lines:
            self._out.append(redact(line.removesuffix("\r")))
        out = "\n".join(self._out)
        self._begun.clear()
        return (f"{out}\n" if ended else out).encode("utf-8", "replace")

    def line(self, line: str) -> str:
        """Return one line with pseudonyms."""
        parts = self._form.split(line)
        if parts is None:
            again = line.rfind(_JSON_BEGINS, 1) if line.startswith(_JSON_BEGINS) else -1
            if again > 0:
                return _JSON_BEGINS + self.line(line[again:])
            return self._redactor.texts.continuation(line)
        text = parts.text
        if line.startswith("{"):
            return self._object(parts)
        place = line.find(text, line.find(parts.level) + len(parts.level))
        head, tail = _without_threads(line[:place]), _without_threads(line[place + len(text) :])
        if not text.startswith(PREFIX):
            return head + self._message(text, parts.logger) + tail
        shown = self._redactor.requests.line(text) if parts.logger is not None else f"{PREFIX}{{"
        if len(shown) <= len(PREFIX) + 1 or shown.endswith("RequestHeader("):
            again = max((one.start() for one in layouts.BEGINNING.finditer(line, layouts.WHOLE_SECONDS)), default=-1)
            if again > 0:
                return head + shown + self.line(line[again:])
        return head + shown + tail

    def _message(self, text: str, logger: str | None) -> str:
        texts = self._redactor.texts
        return texts.message(text, logger) if logger is not None else texts.message(text, "")

    def _object(self, parts: layouts.LogLine) -> str:
        """Return a line of the JSON layouts, with only what is read."""
        first, *others = parts.text.split("\n")
        if first.startswith(PREFIX):
            first = self._redactor.requests.line(first)
        else:
            first = self._redactor.texts.message(first, parts.logger or "")
        message = "\n".join([first, *(self._redactor.texts.continuation(one) for one in others)])
        told = {"@timestamp": parts.stamp, "level": parts.level, "logger": parts.logger, "message": message}
        return msgspec.json.encode(told).decode()

    def _behind_prefix(self, line: str) -> str:
        """Return a line that a container's runtime or a tool has put something before."""
        taken = taken_off(line)
        if taken.goes_on or taken.stream in self._parts:
            if taken.stream not in self._parts:
                self._begun[taken.stream] = len(self._out)
            self._parts[taken.stream] += taken.text
            if taken.goes_on:
                return ""
            whole = self._prefix(line, taken) + self.line(self._parts.pop(taken.stream))
            place = self._begun.pop(taken.stream, None)
            if place is None:  # in an earlier block
                return whole
            self._out[place] = whole
            return ""
        return self._prefix(line, taken) + self.line(taken.text)

    def _prefix(self, line: str, taken: Prefixed) -> str:
        """Return a prefix with the container's name replaced."""
        before = taken_off(line)
        prefix = line[: len(line) - len(before.text)]
        if taken.container is None:
            return prefix
        names = self._redactor.names
        return prefix.replace(taken.container, _WORDS.sub(lambda word: names.word("n", word[0]), taken.container))


def _without_threads(text: str) -> str:
    """Return what stands around a message without the names of threads: some hold a client's."""
    return _BRACKETS.sub(lambda one: one[0] if _NO_THREAD.fullmatch(one[1]) else "[-]", text)
