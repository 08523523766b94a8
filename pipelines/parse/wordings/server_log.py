"""server.log, state-change.log and controller.log lines to facts, by the table in `server_rules`."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from pipelines.lines.layout import LogLine, last_part
from pipelines.lines.rows import FactSink, Identity, Shape, cut_text, line_identity, row_id
from pipelines.lines.writers import directory_in, named_in
from pipelines.parse.wordings.server_rules import RULES
from replay.evidence.rows import METADATA_TOPIC
from schemas.facts import FACTS
from schemas.model import INT_LIST, STRING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.parse.wordings.rule import Rule

_OLD_PARTITION = re.compile(r"Partition \[[^\],]{1,300},\d{1,10}\] on broker \d{1,10}: ")  # up to 0.11
_PREFIX_PARTITION = re.compile(
    r"(?:Partition |partition=)(?:([^\s\[]{1,300}?)-(\d{1,10})(?=[ ,\]])|\[([^\],]{1,300}),(\d{1,10})\] on broker )"
)
_PREFIX_ID = re.compile(r"(?:Server|Manager) id=(\d{1,10})\]|^\[Kafka Server (\d{1,10})\]")
_LONGEST_PREFIX = 2000
_PREFIX_LEADER = re.compile(r"leaderId=(\d{1,10})|^\[ReplicaFetcherThread-\d{1,10}-(\d{1,10})\]")
_BROKER_IDS = re.compile(r"brokerId=(\d+)")
_MOST_PREFIXES = 100_000
_NUMBERS = re.compile(r"-?\d+")
_TOPIC_SETTINGS = re.compile(
    r"\b(min\.insync\.replicas|unclean\.leader\.election\.enable|cleanup\.policy)(?:=| -> )"
    r"(compact,delete|delete,compact|[^,}\s]+)"
)
_OFFLINE = re.compile(r"Logs for partitions ([^ ]*) are offline")
_OFFLINE_FUTURE = re.compile(r"logs for future partitions ([^ ]*) are offline")
BROKER_SETTINGS = frozenset(
    {
        "broker.rack",
        "group.coordinator.new.enable",
        "group.coordinator.rebalance.protocols",
        "inter.broker.protocol.version",
        "log.segment.bytes",
        "min.insync.replicas",
        "replica.fetch.backoff.ms",
        "replica.fetch.wait.max.ms",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.lag.time.max.ms",
        "replica.selector.class",
        "unclean.leader.election.enable",
    }
)

TOPIC_SETTING = Shape("config_change", ("topic", "partition", "name", "value"), (("resource_type", 2),))
BROKER_SETTING = Shape("config_change", ("name", "value"), (("resource_type", 4),))
OFFLINE_FUTURE = Shape("log_change", ("topic", "partition", "text"), (("name", "future_failed"),))
OFFLINE_PARTITION = Shape("storage_failure", ("topic", "partition", "text"), (("name", "directory_failed"),))


def integers(text: str) -> list[int]:
    """Return the ids in a list as Kafka prints it: `1,2`, `[1, 2]`, `Set(1, 2)`, `[BrokerState(brokerId=1, ...)]`."""
    found = _BROKER_IDS.findall(text) if "brokerId=" in text else _NUMBERS.findall(text)
    return [int(number) for number in found]


def _converter(column: str) -> Callable[[str], Any]:
    type_ = FACTS.column(column).type
    if type_ == INT_LIST:
        return integers
    return str if type_ == STRING else int


_FROM_PREFIX = ("topic", "partition", "leader_id", "subject_broker_id", "log_dir")


class CompiledRule:
    """A compiled rule: its patterns, the shape of its facts, and what turns groups into values."""

    __slots__ = (
        "converters", "each", "each_groups", "from_prefix", "goes_on", "is_of_clients", "keep_text", "match", "numbers",
        "shape", "tp",
    )  # fmt: skip

    def __init__(self, rule: Rule) -> None:
        """Compile the patterns and fix the columns."""
        regex = _compiled(rule.pattern)
        each = None if rule.each is None else _compiled(rule.each)
        groups = [*group_names(regex), *(group_names(each) if each else [])]
        self.match = regex.fullmatch
        self.each = each
        self.each_groups = each.groups if each else 0
        self.tp = groups.index("tp") if "tp" in groups else None
        columns = [name for name in groups if name != "tp"]
        reads = dict(rule.reads)
        self.converters = [reads.get(name) or _converter(name) for name in columns]
        self.numbers = [name for name in regex.groupindex if name != "tp" and FACTS.column(name).type != STRING]
        self.is_of_clients = (rule.kind, rule.name) == ("quota_change", "client")  # its value names users and clients
        tail = [name for name in _FROM_PREFIX if name not in columns]
        self.from_prefix = [_FROM_PREFIX.index(name) for name in tail]
        self.keep_text, self.goes_on = rule.keep_text, rule.goes_on
        texts = ("text",) if rule.keep_text else ()
        constants = (("name", rule.name),) if rule.name else ()
        self.shape = Shape(rule.kind, (*columns, *tail, *texts), constants)

    def finds(self, groups: tuple[str | None, ...], body: str) -> list[tuple[str | None, ...]]:
        """Return the groups of each fact that the message makes: one, or one for each item that it lists."""
        if self.each is None:
            return [groups]
        listed = [(*groups, *found.groups()) for found in self.each.finditer(body)]
        return listed or [(*groups, *(None,) * self.each_groups)]


def _compiled(pattern: str) -> re.Pattern[str]:
    """A rule's pattern: digits are not given back, for behind a number nothing comes that begins with one."""
    return re.compile(pattern.replace(r"\d+", r"\d++"), re.DOTALL)


def group_names(regex: re.Pattern[str]) -> list[str]:
    """Return the groups of a pattern in order; each has the name of a column."""
    groups = sorted(regex.groupindex, key=regex.groupindex.__getitem__)
    if len(groups) != regex.groups:
        message = f"every group of {regex.pattern!r} needs the name of a column"
        raise ValueError(message)
    return groups


_PrefixValues = tuple[str | None, int | None, int | None, int | None, str | None]


_RulesOfWords = dict[str, tuple[CompiledRule, ...]]


@cache  # they are the same for every file, and take tens of milliseconds
def compiled_rules(rules: tuple[Rule, ...]) -> dict[str, _RulesOfWords]:
    """By logger: the rules for each first word; those for any word come after a word's own, and stand alone at ""."""
    by_logger: dict[str, _RulesOfWords] = {}
    for rule in rules:
        ready = CompiledRule(rule)
        for logger in rule.loggers:
            by_word = by_logger.setdefault(logger, {"": ()})
            by_word[rule.word] = (*by_word.get(rule.word, ()), ready)
    for by_word in by_logger.values():
        others = by_word[""]
        by_word.update({word: (*rules, *others) for word, rules in by_word.items() if word})
    return by_logger


def prefix_length(text: str) -> int:
    """How much of a message names who speaks: `[Partition a-0 broker=1] `; up to 0.11 `[Kafka Server 1], ` too."""
    if text.startswith("["):
        end = text.find("]", 0, _LONGEST_PREFIX)
        if text[end + 1 : end + 3] in {": ", ", "}:
            return end + 3
        end = text.find("] ", 0, _LONGEST_PREFIX)
        return end + 2 if end > 0 else 0
    found = _OLD_PARTITION.match(text) if text.startswith("Partition [") else None
    return found.end() if found is not None else 0


class ServerLog:
    """Parses the lines of one file that are not request lines."""

    def __init__(self, sink: FactSink) -> None:
        """Compile the table; loggers, prefixes and partitions are cached, because they repeat."""
        self._sink = sink
        self._rules = compiled_rules(RULES)
        self._loggers: dict[str, tuple[str, _RulesOfWords]] = {}
        self._prefixes: dict[str, tuple[_PrefixValues, int | None]] = {}
        self._partitions: dict[str, tuple[str, int]] = {}

    def parse(self, parts: LogLine, line: int, local: int, ts: int) -> bool:
        """Add the line's facts; return False if the line is of no interest."""
        try:
            return self._parse(parts, line, local, ts)
        except ValueError:  # Python reads no number of thousands of digits
            self._sink.reject(line, "a number that no broker prints", parts.text)
            return True

    def _parse(self, parts: LogLine, line: int, local: int, ts: int) -> bool:
        found = self._loggers.get(parts.logger or "")
        if found is None:
            last = last_part(parts.logger or "")
            found = self._loggers[parts.logger or ""] = (last, self._rules.get(last, {"": ()}))
        last, by_word = found
        body = parts.text
        prefix: _PrefixValues = (None,) * 5
        begins = prefix_length(body)
        if begins:
            prefix, writer = self._prefix(body[:begins])
            if writer is not None:
                self._sink.counts.named[writer] += 1
            body = body[begins:]
        if prefix[0] in METADATA_TOPIC:
            return False
        count = 0
        for rule in by_word.get(body.partition(" ")[0]) or by_word[""]:
            match = rule.match(body)
            if match is not None:
                told = line_identity(self._sink.broker_id, local, parts.level, last, parts.text)
                for number, groups in enumerate(rule.finds(match.groups(), body), count):
                    values = self._values(rule, groups, prefix, parts.text)
                    row = row_id(told, (number,)) if number else row_id(told)
                    self._sink.add(rule.shape, row, line, ts, values, parts.level)
                    count += 1
                if rule.goes_on:
                    continue
                if last == "LogManager":
                    self._of_log_manager(body, line, ts, parts.level, told)
                return True
        return count > 0

    def _values(
        self, rule: CompiledRule, groups: tuple[str | None, ...], prefix: _PrefixValues, text: str
    ) -> list[Any]:
        """Return the values of the rule's columns: from the pattern, from the prefix, and the text."""
        if rule.tp is not None:
            named = groups[rule.tp]
            groups = groups[: rule.tp] + groups[rule.tp + 1 :]
            if named is not None:
                prefix = (*self._partition(named), *prefix[2:])
        values = [
            None if group is None else convert(group) for convert, group in zip(rule.converters, groups, strict=True)
        ]
        values += [prefix[index] for index in rule.from_prefix]
        if rule.keep_text:
            values.append(cut_text(text))
        return values

    def broker_setting(self, line: int, local: int, ts: int, text: str) -> bool:
        """Add one line of `KafkaConfig values:` if the setting matters; else return False."""
        name, equals, value = text.strip().partition(" = ")
        if not equals or name not in BROKER_SETTINGS:
            return False
        told = line_identity(self._sink.broker_id, local, "INFO", "KafkaConfig", text)
        self._sink.add(BROKER_SETTING, row_id(told), line, ts, (name, value), "INFO")
        return True

    def _of_log_manager(self, body: str, line: int, ts: int, level: str, told: Identity) -> None:
        """Add further facts of lines that state several: a new log's settings, a failed directory's partitions."""
        if body.startswith("Created log for partition "):
            topic, partition = self._partition(body.split(" ", 5)[4])
            for name, value in _TOPIC_SETTINGS.findall(body):
                self._sink.add(TOPIC_SETTING, row_id(told, (name,)), line, ts, (topic, partition, name, value), level)
        elif body.startswith("Logs for partitions "):
            for listed, shape in (
                (_OFFLINE.match(body), OFFLINE_PARTITION),
                (_OFFLINE_FUTURE.search(body), OFFLINE_FUTURE),
            ):
                for name in listed[1].split(",") if listed else ():
                    if name.rpartition("-")[2].isdecimal():
                        values = (*self._partition(name), cut_text(body))
                        self._sink.add(shape, row_id(told, (shape.kind, name)), line, ts, values, level)

    def _partition(self, text: str) -> tuple[str, int]:
        found = self._partitions.get(text)
        if found is None:
            topic, _, number = text[1:-1].rpartition(",") if text.startswith("[") else text.rpartition("-")
            found = self._partitions[text] = (topic, int(number))
        return found

    def _prefix(self, text: str) -> tuple[_PrefixValues, int | None]:
        """Return what a prefix says about the line, and which broker it names as the writer."""
        found = self._prefixes.get(text)
        if found is None:
            partition = _PREFIX_PARTITION.search(text)
            broker = _PREFIX_ID.search(text)
            leader = _PREFIX_LEADER.search(text)
            directory = directory_in(text)
            values = (
                partition[1] or partition[3] if partition else None,
                int(partition[2] or partition[4]) if partition else None,
                int(leader[1] or leader[2]) if leader else None,
                int(broker[1] or broker[2]) if broker else None,
                directory,
            )
            found = (values, named_in(text))
            if directory is not None:
                self._sink.counts.directories.add(directory)
            if len(self._prefixes) > _MOST_PREFIXES:
                self._prefixes.clear()
            self._prefixes[text] = found
        return found
