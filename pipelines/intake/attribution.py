"""Determines which broker each file belongs to: the one its folder names, unless its lines say otherwise.

Whoever copies logs names the folders after brokers, and may be wrong. Reading a file counts which brokers its lines
name. Only if they contradict the folder, more is looked up and the recording is read again with the result: files of
another broker as that broker's, files of several brokers line by line. What nothing ties to a broker is set aside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pipelines.lines.writers import Shared, Ties
from pipelines.parse.files.content import Content
from schemas.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pipelines.recording.recording import Recording, Source

_DUMPS = (Content.SEGMENT_DUMP.value, Content.CHECKPOINT.value)
_SHOWN = 5  # clusters that a message names one by one
UNSURE = "whose it is cannot be told: the logs of this folder's number are another broker's"


@dataclass(slots=True)
class Witness:
    """What a file says about who wrote it."""

    content: str = Content.NOTHING.value
    named: Counter[int] = field(default_factory=Counter)  # broker -> lines that name it as their writer
    directories: set[str] = field(default_factory=set)
    fetched: set[tuple[str, int]] = field(default_factory=set)  # own address of the server, follower that fetched


Witnesses = dict[str, Witness]  # by file name


def witnesses_of(counts: Iterable[Mapping[str, Any]]) -> Witnesses:
    """Collect what each file says, from the counts of files and of parts of files."""
    found: Witnesses = defaultdict(Witness)
    for part in counts:
        witness = found[part["path"]]
        witness.content = part["content"]
        witness.named.update({int(broker): lines for broker, lines in part["named"].items()})
        witness.directories.update(part["directories"])
        witness.fetched.update((address, replica) for address, replica in part["fetched"])
    return found


def by_their_writers(
    recording: Recording,
    counts: Iterable[Mapping[str, Any]],
    survey: Callable[[list[Source]], Iterable[Ties]],
) -> Recording:
    """Return the recording with each file given to the broker that its lines name; itself if nothing contradicts it.

    `survey` reads files for what ties directories and addresses to brokers. It is called only if it is needed.
    """
    witnesses = witnesses_of(counts)
    doubtful = _doubtful(recording, witnesses)
    if not doubtful and not _misplaced(recording, _homes(recording, witnesses), witnesses):
        return recording
    logs = [source for source in recording.sources if source.broker_id in doubtful and _is_log(source, witnesses)]
    dumps = [source for source in recording.sources if witnesses[source.name].content == Content.METADATA_DUMP.value]
    ties = Ties()
    for found in survey(logs + dumps):
        ties.add(found)
    return attributed(recording, witnesses, ties)


def _is_log(source: Source, witnesses: Witnesses) -> bool:
    return witnesses[source.name].content == Content.LOG.value


def _doubtful(recording: Recording, witnesses: Witnesses) -> set[int | None]:
    """Return folder labels under which a log names another broker, or served a fetch of the labelled broker itself."""
    found: set[int | None] = set()
    for source in recording.sources:
        witness = witnesses[source.name]
        by_itself = any(replica == source.broker_id for _, replica in witness.fetched)
        if _is_log(source, witnesses) and (set(witness.named) - {source.broker_id} or by_itself):
            found.add(source.broker_id)
    return found


def attributed(recording: Recording, witnesses: Witnesses, ties: Ties) -> Recording:
    """Return the recording with each file of a doubtful folder given to the broker that its lines name."""
    ties.labels |= {source.broker_id for source in recording.sources if source.broker_id is not None}
    for witness in witnesses.values():
        ties.brokers |= set(witness.named) | {replica for _, replica in witness.fetched}
        for address, replica in witness.fetched:
            ties.fetched[address].add(replica)
    doubtful = _doubtful(recording, witnesses)
    of_folder: dict[int | None, set[int]] = defaultdict(set)
    for source in recording.sources:
        if _is_log(source, witnesses):
            of_folder[source.broker_id] |= set(witnesses[source.name].named)
    directories, addresses = ties.directories(), ties.addresses()
    whole = Shared(brokers=(), directories=directories, addresses=addresses)
    sources: list[Source] = []
    for source in recording.sources:
        if source.broker_id in doubtful and _is_log(source, witnesses):
            sources += _owned(source, witnesses[source.name], of_folder[source.broker_id], whole, ties.brokers)
        else:
            sources.append(source)
    moved = replace(recording, sources=tuple(sources))
    homes = _homes(moved, witnesses)
    for directory, broker in directories.items():
        homes.setdefault(directory, {broker})
    return replace(moved, sources=tuple(_dumps_owned(recording, moved, homes, witnesses)))


def _owned(source: Source, witness: Witness, folder: set[int], whole: Shared, known: set[int]) -> list[Source]:
    """Return a log of a doubtful folder as one source of its only writer, or as one source for each of several."""
    writers = set(witness.named) or folder
    by_address = {whole.at(address) for address, _ in witness.fetched}
    at_odds = any(replica in writers for _, replica in witness.fetched) or not by_address <= {None, *writers}
    if len(writers) == 1 and not at_odds:
        return [_of(source, *writers)]
    if not witness.named and len(by_address) == 1 and None not in by_address:
        return [_of(source, *by_address)]
    brokers = writers | {broker for broker in by_address if broker is not None}
    if not witness.named:
        brokers |= known
    shared = Shared(tuple(sorted(brokers)), whole.directories, whole.addresses)
    return [replace(_of(source, broker), shared=shared) for broker in (*shared.brokers, None)]


def _of(source: Source, broker: int | None) -> Source:
    if broker == source.broker_id and broker is not None:
        return source
    return replace(source, broker_id=broker, labelled=source.broker_id, is_attributed=True)


def _homes(recording: Recording, witnesses: Witnesses) -> dict[str, set[int]]:
    """Return for each directory which brokers' own logs name it."""
    homes: dict[str, set[int]] = defaultdict(set)
    for source in recording.sources:
        if source.broker_id is not None and source.shared is None and _is_log(source, witnesses):
            for directory in witnesses[source.name].directories:
                homes[directory].add(source.broker_id)
    return homes


def _misplaced(recording: Recording, homes: Mapping[str, set[int]], witnesses: Witnesses) -> dict[str, set[int]]:
    """Find dumps that belong to another broker than the one they are labelled with: file name -> owners.

    A meta.properties beside them decides; otherwise their directory does if only one other broker's logs name it.
    """
    found: dict[str, set[int]] = {}
    stated = _stated(recording, witnesses)
    with_homes = {broker for brokers in homes.values() for broker in brokers}
    for source in recording.sources:
        witness = witnesses[source.name]
        if witness.content in _DUMPS and source.broker_id in stated:
            if source.broker_id not in stated[source.broker_id] and len(stated[source.broker_id]) == 1:
                found[source.name] = stated[source.broker_id]
            continue
        if witness.content != Content.SEGMENT_DUMP.value or source.broker_id not in with_homes:
            continue
        owners = {broker for one in witness.directories for broker in homes.get(one, ())}
        if len(owners) == 1 and source.broker_id not in owners and witness.directories <= set(homes):
            found[source.name] = owners
    return found


def _stated(recording: Recording, witnesses: Witnesses) -> dict[int | None, set[int]]:
    """Return for each folder label which brokers a meta.properties in that folder names."""
    stated: dict[int | None, set[int]] = defaultdict(set)
    for source in recording.sources:
        if witnesses[source.name].content == Content.PROPERTIES.value and witnesses[source.name].named:
            stated[source.broker_id] |= set(witnesses[source.name].named)
    return stated


def _dumps_owned(
    before: Recording, recording: Recording, homes: Mapping[str, set[int]], witnesses: Witnesses
) -> list[Source]:
    """Return the sources with dumps and checkpoints given to the brokers whose directories they come from.

    If the logs under a label turned out to be another broker's, so may the dumps: they stay only if their directories
    confirm the label.
    """
    misplaced = _misplaced(recording, homes, witnesses)
    labelled = {source.name: source.broker_id for source in before.sources}
    wholly = {source.labelled for source in recording.sources if source.is_attributed and source.shared is None}
    kept: dict[int | None, bool] = defaultdict(bool)  # label -> whether something under it confirms it
    kept |= {label: label in brokers for label, brokers in _stated(before, witnesses).items()}
    moved: dict[int | None, set[int]] = defaultdict(set)
    for source in recording.sources:
        label = labelled[source.name]
        if source.name in misplaced:
            moved[label] |= misplaced[source.name]
        elif witnesses[source.name].content == Content.SEGMENT_DUMP.value:
            kept[label] |= any(homes.get(one) == {label} for one in witnesses[source.name].directories)
    out = []
    for source in recording.sources:
        label = source.broker_id
        if witnesses[source.name].content not in _DUMPS:
            out.append(source)
        elif source.name in misplaced:
            out.append(_of(source, *misplaced[source.name]))
        elif len(moved[label]) == 1 and not kept[label]:
            out.append(_of(source, *moved[label]))
        elif moved[label] or (label in wholly and not kept[label]):
            out.append(replace(source, set_aside=UNSURE))
        else:
            out.append(source)
    return out


def clusters_of(inputs: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int | None, int | None, str]]:
    """Return the cluster ids that files name, each with its first and last time and the first file that names it."""
    found: dict[str, tuple[int | None, int | None, str]] = {}
    for entry in inputs:
        for name, value, *times in entry["notes"]:
            if name == "cluster_id":
                first, last, path = found.get(value, (None, None, entry["path"]))
                known = [ts for ts in (first, last, *times) if ts is not None]
                found[value] = (min(known, default=None), max(known, default=None), path)
    return found


def refuse_two_clusters(inputs: Iterable[Mapping[str, Any]], root: str | None) -> None:
    """Raise InputError if files name more than one cluster: their partitions have nothing to do with each other."""
    clusters = clusters_of(inputs)
    if len(clusters) > 1:
        shown = sorted(clusters.items(), key=lambda item: (item[1][0] or 0, item[0]))
        named = ", ".join(
            f"{value} ({_when(first, last)}, as in {path})" for value, (first, last, path) in shown[:_SHOWN]
        )
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        message = (
            f"the logs are of {len(shown)} clusters, {named}{more}: give the logs of each a recording of its own, "
            "split by time where one folder was used again"
        )
        raise InputError(message, source=root)


def _when(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return "at no known time"
    begin, end = (
        f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ts):%Y-%m-%d %H:%M:%S}" for ts in (first, last)
    )
    return f"{begin} UTC" if begin == end else f"{begin} to {end} UTC"


def sentences(inputs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Describe what was read otherwise than its folder's name says, in one sentence per folder, not per file."""
    whole: dict[tuple[Any, Any], list[str]] = defaultdict(list)
    shared: list[Mapping[str, Any]] = []
    aside: Counter[Any] = Counter()
    for entry in inputs:
        if entry.get("set_aside"):
            aside[entry["broker_id"]] += 1
        elif entry.get("is_shared"):
            shared.append(entry)
        elif entry.get("labelled", entry["broker_id"]) != entry["broker_id"]:
            whole[entry["labelled"], entry["broker_id"]].append(entry["path"])
    told = []
    for (label, broker), paths in sorted(whole.items(), key=str):
        folder = "without a broker's number" if label is None else f"under broker {label}'s name"
        told.append(f"{_files(paths)} {folder}: the lines are broker {broker}'s, and were read as that.")
    told += _about_shared(shared)
    for label, files in sorted(aside.items(), key=str):
        told.append(f"{files:,} dumps and checkpoints under broker {label}'s name were set aside: {UNSURE}.")
    return told


def _about_shared(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Describe files with lines of several brokers: whose lines there were, and how many belong to nobody."""
    brokers: dict[str, set[Any]] = defaultdict(set)
    nobodys: Counter[str] = Counter()
    labels: dict[str, set[Any]] = defaultdict(set)
    for entry in entries:
        path = entry["path"]
        labels[path].add(entry["labelled"])
        if entry["broker_id"] is None:
            nobodys[path] += entry["rejected"]
        elif entry["facts"]:
            brokers[path].add(entry["broker_id"])
    alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for path, label in labels.items():
        if brokers[path] != label or nobodys[path]:
            alike[tuple(sorted(brokers[path]))].append(path)
    told = []
    for several, paths in sorted(alike.items()):
        names = f"broker{'' if len(several) == 1 else 's'} {', '.join(map(str, several)) or 'unknown'}"
        set_aside = sum(nobodys[path] for path in paths)
        rest = f"; {set_aside:,} lines that nothing ties to one of them were set aside" if set_aside else ""
        holds = "holds" if len(paths) == 1 else "hold"
        told.append(
            f"{_files(sorted(paths))} {holds} lines of {names}: each counts for the broker that it names{rest}."
        )
    return told


def _files(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more files"
