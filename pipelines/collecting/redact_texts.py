"""Pseudonyms in what brokers write in words. A line that no rule reads keeps only what tells who wrote it.

Of a line that a rule reads the words stay, and in them every address, path, client and principal is replaced. What the
rule itself reads as a number, a partition or a topic is never taken for one of these.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pipelines.lines.layout import last_part
from pipelines.lines.writers import LISTENING, SETTINGS, directory_in, named_in
from pipelines.parse.files.shared_lines import ENDPOINTS
from pipelines.parse.wordings.server_log import BROKER_SETTINGS, compiled_rules, prefix_length
from pipelines.parse.wordings.server_rules import RULES
from replay.evidence.racks import NULL, RACK_AWARE, RACK_SETTING, SELECTOR_SETTING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipelines.collecting.pseudonyms import Pseudonyms
    from pipelines.parse.wordings.server_log import CompiledRule

_IP: Final = r"\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d\.)"
_LABEL: Final = r"[A-Za-z0-9_](?:[\w-]{0,61}[A-Za-z0-9_])?"
_HOST: Final = rf"(?=[\w.-]{{0,250}}[A-Za-z])(?=[\w-]*[.\d-]){_LABEL}(?:\.{_LABEL}){{0,12}}+"
_NAME: Final = re.compile(
    rf"(?P<host>(?<![\w.-])(?:{_HOST}|[a-z]{{1,60}}(?=:\d{{4,5}}))(?=(?:/{_IP}|/<unresolved>)?:\d{{2,5}}(?![\w.])))"
    rf"|(?<=[Hh]ost[=:])(?P<named_host>[^\s,)\]:]{{1,255}})"
    rf"|(?P<address>(?<![\w.]){_IP})"
    r"|(?P<path>(?<![\w.:/-])/(?!isr_change_notification/)[^\s,\])};'\"(]{1,2000})"
    r"|(?<=[Rr]ack[=:])(?P<rack>[^\s,)\]]{1,255})|(?<=rack: )(?P<told_rack>[^\s,)\]]{1,255})"
    r"|(?<=User:)(?P<user>[^\s,)\]}'\"]{1,255})"
    r"|\b(?:client\.?[iI]d|group\.?[iI]d|transactional\.?[iI]d|member\.?[iI]d|principal|user)(?:=| = |: ?)"
    r"['\"]?(?P<client>[^\s,)\]}'\"]{1,300})"
)
_PAIR: Final = re.compile(r"\b(\w+)=([^,\]\s]+)")
_PREFIX_TOPIC: Final = re.compile(r"(\b[Pp]artition[ =]\[?(?:[\w-]{22}:)?)([\w.-]+?)([-,]\d{1,10}(?=[ ,\]]))")
_TOLD_TOPIC: Final = re.compile(  # beside those that a rule reads
    r"(?<![\w./-])[A-Za-z_][\w.-]{0,248}?(?=-\d{1,10}(?![\w-]))|(?<=[tT]opic=)[\w.-]{1,249}|(?<=topicName=')[\w.-]{1,249}"
)
_DOOMED: Final = re.compile(r"(?:\.[0-9a-f]{32})?-(?:future|delete|stray)$")
_SETTING: Final = re.compile(r"([ \t]*)([\w.]+) = (.*)", re.DOTALL)
_OWN: Final = {"broker.id", "node.id"}
_NAMING: Final = {RACK_SETTING, SELECTOR_SETTING}  # their values are the operator's own words, but for those of Kafka
_KAFKAS: Final = {NULL, RACK_AWARE}
_DIRECTORIES: Final = {"log.dir", "log.dirs", "metadata.log.dir"}
_LISTENERS: Final = {"listeners", "advertised.listeners"}
_LISTENER: Final = re.compile(r"(\w+)://(.*?):(\d{1,5})(?=,|\s|$)")
_EXCEPTION: Final = re.compile(r"(?:Caused by: |Suppressed: )?[\w.$]+(?:Exception|Error|Throwable)\b|[}\])]")
_GONE: Final = "-"
_REGISTERED: Final = re.compile(r"Registered broker (\d{1,9}) at path ")
_TOPICS: Final = ("tp", "topic")
_Span = tuple[int, int]


class BrokerTexts:
    """Replaces names in brokers' messages and in what continues them."""

    def __init__(self, names: Pseudonyms) -> None:
        """Compile the rules, as the parser does."""
        self._names = names
        self._rules = compiled_rules(RULES)

    def message(self, text: str, logger: str) -> str:
        """Return a message with pseudonyms."""
        if text.startswith(SETTINGS):
            return text if not text[len(SETTINGS) :].strip() else SETTINGS
        begins = prefix_length(text)
        prefix, body = text[:begins], text[begins:]
        by_word = self._rules.get(last_part(logger), {"": ()})
        for rule in by_word.get(body.partition(" ")[0]) or by_word[""]:
            match = rule.match(body)
            if match is not None:
                return self._prefix(prefix) + self._read(rule, match, body, prefix)
        if named_in(text) is None and directory_in(text) is None:
            prefix = ""
        return self._prefix(prefix) + self._unread(body)

    def continuation(self, text: str) -> str:
        """Return a line that continues a message: a setting that is read, or how it begins."""
        if not text.strip(" \t\r\ufeff"):
            return text.strip("\r")
        setting = _SETTING.fullmatch(text)
        kept = None if setting is None else self._kept(setting[2], setting[3])
        if setting is not None and kept is not None:
            return f"{setting[1]}{setting[2]} = {kept}"
        if text[0].isspace():
            return f"\t{_GONE}"
        begins = _EXCEPTION.match(text)
        return begins[0] if begins is not None else "?"

    def _kept(self, name: str, value: str) -> str | None:
        """Return what is kept of a setting's value; None: nothing."""
        if name in _NAMING:
            return value.strip() if value.strip() in _KAFKAS else self._names.word("x", value.strip())
        if name in BROKER_SETTINGS | _OWN:
            return value
        if name in _DIRECTORIES:
            return ",".join(one if one == NULL else self._names.path(one) for one in value.strip().split(","))
        return self._listeners(value) if name in _LISTENERS else None

    def _listeners(self, value: str) -> str:
        found = _LISTENER.findall(value)
        return ",".join(f"{self._names.listener(name)}://{self._names.host(host)}:{port}" for name, host, port in found)

    def _prefix(self, prefix: str) -> str:
        """Return what names the speaker: its fields by their names."""
        kept = _PAIR.sub(lambda found: f"{found[1]}={self._field(found[1], found[2])}", prefix)
        return _PREFIX_TOPIC.sub(lambda found: found[1] + self._names.topic(found[2]) + found[3], kept)

    def _field(self, name: str, value: str) -> str:
        if name == "dir":
            return self._names.path(value)
        if value.isdecimal() or name in {"partition", "topic", "name", "listenerType"}:
            return value
        return self._names.client(value)

    def _read(self, rule: CompiledRule, match: re.Match[str], body: str, prefix: str) -> str:
        """Return a message that a rule reads; where the rule reads numbers and partitions, nothing else is seen."""
        if rule.is_of_clients:
            return body[: match.start("value")] + self._names.word("c-", match["value"])
        kept, topics = _read_by(rule, match, body)
        listed = {topic_of(text) for text in topics.values()} | {one[2] for one in _PREFIX_TOPIC.finditer(prefix)}
        read = (*kept, *topics)
        replaced = [(*span, self._topic(text)) for span, text in topics.items()]
        for found in _NAME.finditer(body):
            name = found.lastgroup or ""
            begin, end = found.span(name)
            if _is_free(begin, end, read):
                replaced.append((begin, end, self._named(name, found[name], listed)))
            elif name == "path":
                replaced += self._around(found[name], begin, read)
        for found in _TOLD_TOPIC.finditer(body) if self._names.redacts_topics else ():
            if _is_free(*found.span(), (*kept, *((begin, end) for begin, end, _ in replaced))):
                replaced.append((*found.span(), self._names.topic(found[0])))
        out, place = [], 0
        for begin, end, text in sorted(replaced):
            if begin >= place:
                out += [body[place:begin], text]
                place = end
        return "".join((*out, body[place:]))

    def _around(self, path: str, start: int, kept: tuple[_Span, ...]) -> list[tuple[int, int, str]]:
        """Return the parts of a path that a rule does not read itself."""
        found, place = [], start
        for part in path.split("/"):
            end = place + len(part)
            if part and _is_free(place, end, kept):
                found.append((place, end, self._names.path(part)))
            place = end + 1
        return found

    def _named(self, kind: str, name: str, topics: set[str]) -> str:
        if kind == "path":
            folder, slash, last = name.rstrip(".:").rpartition("/")
            rest = name[len(name.rstrip(".:")) :]
            doomed = _DOOMED.search(last)
            end = doomed[0] if doomed is not None else ""
            plain = last.removesuffix(end)
            shown = self._topic(plain) if topic_of(plain) in topics else self._names.path(plain)
            return f"{self._names.path(folder)}{slash}{shown}{end}{rest}"
        if kind in {"host", "named_host", "address"}:
            return self._names.host(name)
        if kind in {"rack", "told_rack"}:
            return name if name == "null" else self._names.word("x", name)
        return self._names.principal(name) if kind == "user" else self._names.client(name)

    def _topic(self, text: str) -> str:
        """Return a partition or topic as it is printed, with the topic replaced if topics are."""
        if not self._names.redacts_topics:
            return text
        if text.startswith("["):
            topic, _, rest = text[1:].rpartition(",")
            return f"[{self._names.topic(topic)},{rest}"
        topic = topic_of(text)
        return self._names.topic(topic) + text[len(topic) :]

    def _unread(self, body: str) -> str:
        """Return what an unread message says of who listens where, and of directories."""
        listening = LISTENING.match(body)
        if listening is not None:
            host, _, port = listening[1].rpartition(":")
            return f"Awaiting socket connections on {self._names.host(host)}:{port}."
        pieces = [_GONE]
        registered = _REGISTERED.match(body)
        for pattern in ENDPOINTS:
            for found in pattern.finditer(body):
                begin, end = found.span("host")
                whole = found[0][: begin - found.start()] + self._names.host(found["host"])
                pieces.append(whole + body[end : found.end()])
        if registered is not None and len(pieces) > 1:
            host, _, port = pieces[-1].rpartition("EndPoint(")[2].partition(",")
            return f"{registered[0]}- EndPoint({host},{port}"
        pieces += [self._names.path(one["path"].rstrip(".:")) for one in _NAME.finditer(body) if one["path"]]
        return " ".join(dict.fromkeys(pieces))


def _read_by(rule: CompiledRule, match: re.Match[str], body: str) -> tuple[list[_Span], dict[_Span, str]]:
    """Return where a rule reads numbers, and where it reads partitions or topics."""
    kept = [match.span(name) for name in rule.numbers if match.start(name) >= 0]
    topics = {match.span(name): match[name] for name in _TOPICS if name in match.re.groupindex and match[name]}
    for found in rule.each.finditer(body) if rule.each is not None else ():
        kept += [found.span(name) for name in found.re.groupindex if name not in _TOPICS]
        topics |= {found.span(name): found[name] for name in _TOPICS if name in found.re.groupindex}
    return kept, topics


def _is_free(begin: int, end: int, spans: Iterable[_Span]) -> bool:
    return not any(begin < other_end and other < end for other, other_end in spans)


def topic_of(text: str) -> str:
    """Return the topic of a partition's name, `topic-3` or `[topic,3]`; of any other text, the text."""
    if text.startswith("["):
        return text[1:].rpartition(",")[0]
    topic, dash, number = text.rpartition("-")
    return topic if dash and number.isdecimal() else text
