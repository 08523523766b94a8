"""The ledger of files: which contents were read, and what is to be read now that the folder looks as it does.

Facts belong to a file's content, to what was said of the file (broker, zone, layout) and to the parsers' version, not
to the file's name: rolled, renamed, compressed and copied files are known again, and what was read of them stays. This
module decides and does nothing: `decided` says what to read and what becomes of the facts that stand, `after` what the
ledger holds then.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.intake.inputs import with_part
from pipelines.intake.pieces import Begun
from pipelines.parse.files.content import Content
from pipelines.parse.files.file_parser import told_by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pipelines.intake.pieces import Heads, Look
    from pipelines.recording.prints import Print
    from pipelines.recording.recording import Manifest, Recording, Source

READ, PARTLY, UNREADABLE, COPY, GONE = "read", "partly", "unreadable", "copy", "gone"
STATES: Final = (READ, PARTLY, UNREADABLE, COPY, GONE)
MOMENTS: Final = (Content.SEGMENT_DUMP.value, Content.CHECKPOINT.value)  # of these the later one of a name holds
METADATA: Final = Content.METADATA_DUMP.value
NOW: Final = -1  # in place of a time: when the run listed the file
_SETTLING_US: Final = 2_000_000  # a file that was written to so lately may be written to again without a trace
Counts = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it was last read."""

    path: str  # the name under which its facts stand
    said: str
    parser_version: str
    run_id: str
    content: str
    layout: str | None
    size: int
    modified_us: int | None
    seen_us: int  # when it was listed
    head_length: int
    head: str
    length: int
    digest: str
    broken: str | None
    is_cut: bool  # its last line has no end
    settled: int  # bytes up to which what was read holds for good,
    settled_digest: str
    settled_line: int  # the number of the line that begins there,
    block: str | None  # and the bytes before; None: reading cannot go on there
    state: str
    same_as: str | None = None  # the file of the same content under which the facts stand
    is_attributed: bool = False  # its lines, not its folder, said whose it is
    settled_counts: Counts = field(default_factory=list)  # of what holds for good, by broker,
    open_counts: Counts = field(default_factory=list)  # and of the rest

    @property
    def begun(self) -> Begun | None:
        """What it takes to go on reading."""
        if self.block is None:
            return None
        state = next((part.get("dump_state") for part in self.settled_counts), None)
        return Begun(self.settled, self.settled_digest, self.block, self.settled_line, self.layout, state)

    @property
    def named_clusters(self) -> tuple[tuple[str, str], ...]:
        """The clusters that request lines named up to where reading goes on."""
        return tuple(("", cluster) for part in self.settled_counts for cluster in part["named_clusters"])

    @property
    def is_partly(self) -> bool:
        """Whether its end is missing: a line's, or a compressed stream's."""
        return self.is_cut or self.broken is not None

    def is_content(self, found: Print) -> bool:
        """Whether this is the content, and all of it."""
        return (self.length, self.digest, self.broken) == (found.length, found.digest, found.broken)

    def is_begun_by(self, found: Print) -> bool:
        """Whether the content goes on from this one: it has what this one has up to its last whole line."""
        place, digest = (self.settled, self.settled_digest) if self.settled else (self.length, self.digest)
        return place > 0 and found.reached.get(place) == digest and found.length >= self.length

    def span(self) -> tuple[int, int] | None:
        """Return the first and last time that it states; None: no times."""
        return span_told([*self.settled_counts, *self.open_counts])


def span_told(counts: Counts) -> tuple[int, int] | None:
    """Return the first and last time that was counted; None: no times."""
    times = [part[name] for part in counts for name in ("first_ts", "last_ts") if part[name] is not None]
    return (min(times), max(times)) if times else None


class Read(NamedTuple):
    """A file that is to be read, wholly or from where reading ended."""

    source: Source
    entry: Entry | None = None  # what was read of this content before
    goes_on: bool = False


class Change(NamedTuple):
    """What becomes of the facts and rejected lines that stand under a name."""

    path: str
    to: str  # the name that they get
    since: int | None  # from this line on they go, unless they are stated anew; None: all stay
    span: tuple[int, int] | None  # first and last time of those that go or move; None: none has a time


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read, what becomes of what stands, and the entries of files that are not read."""

    reads: tuple[Read, ...]
    changes: tuple[Change, ...]
    kept: tuple[Entry, ...]

    @property
    def is_nothing_new(self) -> bool:
        """Whether facts stay as they are."""
        return not self.reads and not self.changes


def said_of_source(source: Source, manifest: Manifest, *, attributed: bool = False) -> str:
    """Return what is said of a file: its folder's broker, that broker's zone, the layout, what its name tells."""
    label = source.labelled if source.is_attributed else source.broker_id
    zones: Any = manifest.time_zone(label)
    if attributed:  # its lines may be of any broker
        zones = sorted((str(broker), zone) for broker, zone in manifest.time_zones.items())
    return json.dumps([label, zones, manifest.log_layout, told_by_name(source)])


def is_unchanged(entry: Entry, source: Source) -> bool:
    """Whether the store shows that nothing was written to the file since it was read."""
    if entry.state in {GONE, UNREADABLE} or source.modified_us is None:
        return False
    same = (entry.size, entry.modified_us) == (source.size, source.modified_us)
    return same and source.modified_us < entry.seen_us - _SETTLING_US


def to_look_at(recording: Recording, entries: Iterable[Entry]) -> list[Source]:
    """Return the files of which the listing does not show that they are unchanged."""
    known = {entry.path: entry for entry in entries}
    sources = recording.sources
    return [one for one in sources if one.name not in known or not is_unchanged(known[one.name], one)]


def heads_of(entries: Iterable[Entry]) -> Heads:
    """Return the first bytes of the contents known, each with the lengths at which checksums tell more."""
    found: dict[tuple[int, str], set[int]] = defaultdict(set)
    for entry in entries:
        if entry.length:
            found[entry.head_length, entry.head] |= {entry.settled, entry.length}
    return {head: sorted(lengths) for head, lengths in found.items()}


class _Decision:
    """Finds the entry of each file: what its content is, then what of it is to be read."""

    def __init__(self, recording: Recording, entries: Iterable[Entry], parser_version: str, *, full: bool) -> None:
        self.known = {entry.path: entry for entry in entries}
        self.sources = {source.name: source for source in recording.sources}
        self.version = parser_version
        self.manifest = recording.manifest
        self.full = full
        self.reads: dict[str, Read] = {}
        self.same: dict[str, list[str]] = defaultdict(list)  # entry's path -> files of its content, told as it was
        self.used: set[str] = set()  # entries whose content is read again, or goes on

    def match_same(self, looks: Mapping[str, Look]) -> None:
        """Match files whose content is one that was read, under whatever name; read it if it is told otherwise now."""
        files: dict[str, list[str]] = defaultdict(list)
        for name in self.sources:
            entry = self._of_content(name, looks.get(name))
            if entry is not None:
                files[entry.path].append(name)
        for path, names in files.items():
            entry = self.known[path]
            self.same[path] = [name for name in names if self._as_before(entry, self.sources[name])]
            others = set(names) - set(self.same[path])
            if self.same[path]:
                self.reads |= {name: Read(self.sources[name]) for name in others}
            else:
                del self.same[path]
                self._read_whole(path, others)

    def _read_whole(self, path: str, names: Iterable[str]) -> None:
        """Read a content again that all these files have; its entry becomes that of the first of them."""
        self.used.add(path)
        for k, name in enumerate(sorted(names, key=lambda name: (name != path, name))):
            self.reads[name] = Read(self.sources[name], None if k else self.known[path])

    def _of_content(self, name: str, look: Look | None) -> Entry | None:
        """Return the entry under which the facts of a file's content stand; None: the content was never read."""
        own = self.known.get(name)
        if look is None or (own is not None and own.state == UNREADABLE and not look.is_readable):
            return self._holder(self.known[name])
        if look.content is None:
            return None
        content, source = look.content, self.sources[name]
        alike = [entry for entry in self.known.values() if entry.same_as is None and entry.is_content(content)]
        return min(alike, key=lambda e: (not self._as_before(e, source), e.path != name, e.path), default=None)

    def _holder(self, entry: Entry) -> Entry:
        return self.known.get(entry.same_as or "", entry)

    def _as_before(self, entry: Entry, source: Source) -> bool:
        """Whether the file would be read as it was, so that reading it again tells nothing else."""
        said = said_of_source(source, self.manifest, attributed=entry.is_attributed)
        return not self.full and (entry.said, entry.parser_version) == (said, self.version)

    def match_grown(self, looks: Mapping[str, Look]) -> None:
        """Match files that go on from a content that was read; of several, the one of the same name does."""
        for own in (True, False):
            for name, look in looks.items():
                if look.content is None or self.is_matched(name):
                    continue
                begun = [
                    entry for entry in self._open() if (entry.path == name) is own and entry.is_begun_by(look.content)
                ]
                if begun:
                    best = max(begun, key=lambda entry: (entry.settled, entry.path))
                    self.used.add(best.path)
                    self.reads[name] = Read(self.sources[name], best, goes_on=self._can_go_on(look, best))

    def read_again(self) -> None:
        """Read metadata dumps as a whole that may state what goes with the last batch of another that goes on."""
        going = {
            name: read.entry
            for name, read in self.reads.items()
            if read.goes_on and read.entry is not None and read.entry.content == METADATA
        }
        open_spans = {name: span_told(entry.open_counts) for name, entry in going.items()}

        def may_state(told: tuple[int, int] | None, but: str = "") -> bool:
            others = (span for name, span in open_spans.items() if name != but and span is not None)
            return told is not None and any(first <= told[1] and told[0] <= last for first, last in others)

        for name, entry in going.items():
            if may_state(span_told(entry.settled_counts), name):
                self.reads[name] = self.reads[name]._replace(goes_on=False)
        for path in [path for path in self.same if self.known[path].content == METADATA]:
            if may_state(self.known[path].span()):
                self._read_whole(path, self.same.pop(path))

    def is_matched(self, name: str) -> bool:
        """Whether it is decided what becomes of the file."""
        return name in self.reads or any(name in names for names in self.same.values())

    def _open(self) -> list[Entry]:
        """Return the entries whose content may go on elsewhere."""
        return [
            entry
            for path, entry in self.known.items()
            if path not in self.used
            and path not in self.same
            and entry.same_as is None
            and entry.content not in MOMENTS
        ]

    def _can_go_on(self, look: Look, entry: Entry) -> bool:
        begun = entry.begun
        if begun is None or entry.is_attributed or not self._as_before(entry, self.sources[look.name]):
            return False
        return look.place is not None and look.place >= begun.place and look.layout == begun.layout


def decided(
    recording: Recording, entries: Sequence[Entry], looks: Iterable[Look], parser_version: str, *, full: bool = False
) -> Plan:
    """Return what to read now. `looks`: of the files that `to_look_at` names. `full`: read everything again."""
    by_name = {found.name: found for found in sorted(looks, key=lambda found: found.name)}
    found = _Decision(recording, entries, parser_version, full=full)
    found.match_same(by_name)
    found.match_grown(by_name)
    found.read_again()
    for name, look in by_name.items():
        if not found.is_matched(name):
            found.reads[name] = Read(found.sources[look.name])
    plan = _plan(found)
    if not full and not plan.is_nothing_new and any(entry.is_attributed for entry in entries):
        # Whose these lines are was decided from all files, so it is decided again from all.
        return decided(recording, entries, by_name.values(), parser_version, full=True)
    return plan


def _plan(found: _Decision) -> Plan:
    changes: list[Change] = []
    kept: list[Entry] = []
    for path, entry in found.known.items():
        if entry.same_as is not None or path in found.used:
            continue
        if path in found.same:
            first = min(found.same[path])
            if first != path:
                changes.append(Change(path, first, None, entry.span()))
            kept += [_as_listed(entry, found, name, first) for name in found.same[path]]
        elif path not in found.sources:
            kept.append(replace(entry, state=GONE))
        elif entry.content in MOMENTS or not entry.length:
            changes.append(Change(path, path, 0, entry.span()))
        else:  # another content has its name: what it told stays, under a name that tells the two apart
            other = f"{path}@{entry.digest}"
            changes.append(Change(path, other, None, entry.span()))
            kept.append(replace(entry, path=other, state=GONE))
    for name, read in found.reads.items():
        if read.entry is not None:
            since = read.entry.settled_line if read.goes_on else 0
            in_place = read.goes_on and read.entry.path == name
            span = span_told(read.entry.open_counts) if in_place else read.entry.span()
            changes.append(Change(read.entry.path, name, since, span))
    reads = tuple(found.reads[name] for name in sorted(found.reads))
    return Plan(reads, tuple(sorted(changes, key=lambda change: change.path)), tuple(kept))


def _as_listed(entry: Entry, found: _Decision, name: str, first: str) -> Entry:
    """Return the entry of a file whose content is known, as it is listed now; `first`: where its facts stand."""
    source = found.sources[name]
    before = found.known.get(name)
    is_known = before is not None and is_unchanged(before, source)
    state = entry.state if entry.state == UNREADABLE else PARTLY if entry.is_partly else READ
    return replace(
        entry,
        path=name,
        size=source.size,
        modified_us=source.modified_us,
        seen_us=before.seen_us if before is not None and is_known else NOW,
        state=state if name == first else COPY,
        same_as=None if name == first else first,
    )


def counted(parts: Iterable[dict[str, Any]]) -> Counts:
    """Combine the counts of a file's parts by broker."""
    found: dict[int | None, dict[str, Any]] = {}
    for part in sorted(parts, key=lambda part: part["first_line"]):
        broker = part["broker_id"]
        found[broker] = _joined(found[broker], part) if broker in found else part
    return [found[broker] for broker in sorted(found, key=lambda broker: -1 if broker is None else broker)]


def _joined(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of a file and of the part that follows, with what both tell of who wrote it."""
    joined = with_part(whole, part)
    joined["named"] = dict(sorted((Counter(whole["named"]) + Counter(part["named"])).items()))
    joined["directories"] = sorted({*whole["directories"], *part["directories"]})
    joined["dump_state"] = part["dump_state"]
    joined["fetched"] = sorted({tuple(one) for one in (*whole["fetched"], *part["fetched"])})
    found: dict[str, Any] = json.loads(json.dumps(joined))  # as it is once it was written and read
    return found


def after(
    plan: Plan, counts: Iterable[dict[str, Any]], manifest: Manifest, parser_version: str, run_id: str, seen_us: int
) -> list[Entry]:
    """Return the ledger as it is once the plan is carried out; `counts`: what reading has told of each piece."""
    parts: dict[str, Counts] = defaultdict(list)
    prints: dict[str, dict[str, Any] | None] = {}
    for one in counts:
        if "print" in one:
            prints[one["path"]] = one["print"]
        else:
            parts[one["path"]].append(one)
    entries = [replace(entry, seen_us=seen_us) if entry.seen_us == NOW else entry for entry in plan.kept]
    first: dict[tuple[Any, ...], str] = {}
    for read in plan.reads:
        entry = _read(read, parts[read.source.name], prints.get(read.source.name), manifest)
        entry = replace(entry, parser_version=parser_version, run_id=run_id, seen_us=seen_us)
        content = (entry.length, entry.digest, entry.broken, entry.said)
        if entry.length and entry.state != UNREADABLE and content in first:
            entry = replace(entry, state=COPY, same_as=first[content])
        first.setdefault(content, entry.path)
        entries.append(entry)
    return sorted(entries, key=lambda entry: entry.path)


def _read(read: Read, parts: Counts, found: dict[str, Any] | None, manifest: Manifest) -> Entry:
    """Return the entry of a file that was read."""
    before = read.entry.settled_counts if read.entry is not None and read.goes_on else []
    settled = counted([*({**one, "path": read.source.name} for one in before), *(p for p in parts if p["settled"])])
    rest = counted(part for part in parts if not part["settled"])
    every = [*settled, *rest]
    attributed = any(part["is_shared"] or part["set_aside"] or part["labelled"] != part["broker_id"] for part in every)
    seen = found or {}
    entry = Entry(
        path=read.source.name,
        said=said_of_source(read.source, manifest, attributed=attributed),
        parser_version="",
        run_id="",
        content=every[-1]["content"] if every else Content.UNKNOWN.value,
        layout=next((part["layout"] for part in every if part["layout"]), None),
        size=read.source.size,
        modified_us=read.source.modified_us,
        seen_us=0,
        head_length=seen.get("head_length", 0),
        head=seen.get("head", ""),
        length=seen.get("length", 0),
        digest=seen.get("digest", ""),
        broken=seen.get("broken"),
        is_cut=seen.get("is_cut", False),
        settled=seen.get("settled", 0),
        settled_digest=seen.get("settled_digest", ""),
        settled_line=sum(part["lines"] for part in settled) + 1,
        block=seen.get("block") if settled else None,
        state=READ,
        is_attributed=attributed,
        settled_counts=settled,
        open_counts=rest,
    )
    state = UNREADABLE if found is None else PARTLY if entry.is_partly else READ
    return replace(entry, state=state)


def counts_of(entries: Iterable[Entry]) -> Counts:
    """Return what was counted of these files, read now or before."""
    parts = ((entry.path, part) for entry in entries for part in (*entry.settled_counts, *entry.open_counts))
    return [{**part, "path": path} for path, part in parts]


def listed(entries: Iterable[Entry], recording: Recording) -> list[Entry]:
    """Return the entries of files that are in the recording's folder."""
    names = {source.name for source in recording.sources}
    return [entry for entry in entries if entry.path in names and entry.state != GONE]
