"""What a collect brought, what it could not read, and what it left out."""

from __future__ import annotations

from dataclasses import dataclass, field

_SHOWN = 20


@dataclass(slots=True)
class Gathered:
    """Counts and sentences about one collect."""

    new: list[str] = field(default_factory=list)  # names in the recording
    grown: list[str] = field(default_factory=list)
    unchanged: int = 0
    bytes: int = 0  # of logs, as they were read
    unread: list[str] = field(default_factory=list)  # file or folder, and why
    passed_over: list[str] = field(default_factory=list)  # files that are no log of a broker
    left_out: list[str] = field(default_factory=list)  # sentences
    commands: list[str] = field(default_factory=list)  # what to run by hand where no dump tool is named
    notes: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing that belongs into a recording could be read."""
        return not (self.new or self.grown or self.unchanged or self.commands)

    def lines(self, into: object) -> list[str]:
        """Return what happened, for people: what came, what could not be read, what to do next."""
        files = f"{len(self.new):,} new files, {len(self.grown):,} that grew, {self.unchanged:,} unchanged"
        told = [f"{into}: {files}; {self.bytes:,} bytes of logs read"]
        for title, entries in (
            ("could not be read", self.unread),
            ("passed over, because no line is a broker's", self.passed_over),
            ("left out", self.left_out),
            ("note", self.notes),
        ):
            told += [f"{title}: {entry}" for entry in entries[:_SHOWN]]
            if len(entries) > _SHOWN:
                told.append(f"{title}: {len(entries) - _SHOWN:,} more; --json names all")
        if self.commands:
            told.append("nothing was dumped: name Kafka's installation with --kafka-home, or run these where it is:")
            told += [f"  {command}" for command in self.commands[:_SHOWN]]
            if len(self.commands) > _SHOWN:
                told.append(f"  and {len(self.commands) - _SHOWN:,} more; --json names all")
        if self.is_empty:
            told.append("nothing could be read: name folders that hold a broker's logs, or its log directories")
        else:
            told.append(f"see what it holds: ./spark-submit.sh inspect --recording {into}")
        return told
