"""One sentence per mechanism on how the records were lost, and the words that sentences are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.losses.signatures import (
    deciding_election,
    end_as_loaded,
    end_of,
    gone_or_stopping,
    is_last_election,
    unclean_election,
)

if TYPE_CHECKING:
    from replay.evidence.tenures import Stamp
    from replay.losses.findings import Finding
    from replay.losses.story import Story

NAMES_SHOWN = 3
US_PER_DAY = 86_400_000_000


def clock(us: int) -> str:
    """`03:49:33.030` for a time in microseconds since 1970, UTC."""
    ms = us % US_PER_DAY // 1000
    seconds = ms // 1000
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms % 1000:03}"


def moment(ts: Stamp | None) -> str:
    """`At 2024-05-01 03:49:33.030 UTC`; `Then` if the time is unknown."""
    return "Then" if ts is None else f"At {ts:%Y-%m-%d %H:%M:%S}.{ts.microsecond // 1000:03d} UTC"


def listed(names: list[str]) -> str:
    """At most `NAMES_SHOWN` of the names, and how many more there are."""
    shown = ", ".join(name or "without a name" for name in names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"


def counted(count: int, noun: str = "record") -> str:
    """`1 record`, `2,048 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def offsets_of(found: Finding) -> str:
    """`offset 7`, `offsets 7 to 9`."""
    last = found.end - 1
    return f"offset {last}" if last == found.first else f"offsets {found.first} to {last}"


def them(found: Finding) -> str:
    """How a sentence refers to the lost records."""
    return "that record" if found.counts["records"] == 1 else "them"


def taken_over(found: Finding) -> str:
    """`At ... UTC broker 2 took over in epoch 1 from offset 240`."""
    began = f"in epoch {found.decision['leader_epoch']} from offset {found.heir.start}"
    return f"{moment(found.decision['ts'])} broker {found.leader} took over {began}"


def then(found: Finding) -> str:
    """`taken_over` in the middle of a sentence."""
    told = taken_over(found)
    return f"{told[0].lower()}{told[1:]}"


def why(found: Finding, story: Story) -> str:
    """What triggered the election."""
    gone, _ = gone_or_stopping(found, story)
    trigger = deciding_election(found, story)["trigger"]
    if gone is not None and not (trigger or "").startswith(f"broker {found.old.leader}"):
        return f"broker {found.old.leader} was gone"
    return trigger or "no source tells why"


def came_back(found: Finding, story: Story) -> str:
    """The last replica of the ISR came back with less."""
    loaded = end_as_loaded(found, story)
    end = found.heir.start if loaded is None else end_of(loaded)
    return (
        f"Broker {found.old.leader} went down, came back with a log that ended at {end} instead of {found.old.leo}, "
        f"and was elected again at {moment(found.decision['ts']).removeprefix('At ')} "
        f"(epoch {found.decision['leader_epoch']})."
    )


def elected_unclean(found: Finding, story: Story) -> str:
    """A leader from outside the ISR was elected; it may have handed over since."""
    election = unclean_election(found, story)
    isr = story.isr_at(found.old.seq - 1)
    outside = f"which was outside the ISR {isr}," if isr else f"which had never had {them(found)},"
    if is_last_election(found, election):
        began = f"in epoch {election['leader_epoch']} and led from offset {found.heir.start}"
    else:
        began = f"in epoch {election['leader_epoch']}; broker {found.leader} followed from offset {found.heir.start}"
    return f"{moment(election['ts'])} broker {election['leader_id']}, {outside} was elected {began}."


def lost_directory(found: Finding, _story: Story) -> str:
    """The log directory of the old leader failed."""
    return f"The log directory of broker {found.old.leader} failed, and took {them(found)} with it; {then(found)}."


def eligible_without(found: Finding, _story: Story) -> str:
    """A leader from the ELR was elected."""
    elr = "the controller took it for an eligible leader replica (ELR)"
    return f"{taken_over(found)}; {elr}, and it lacked {them(found)}."


def cut_to_its_hw(found: Finding, _story: Story) -> str:
    """The new leader had truncated its own log to its HW (KIP-101)."""
    lost = them(found)
    return f"Broker {found.leader} had fetched {lost} and then cut its log to its own high watermark; {then(found)}."


def held_an_unknown_epoch(found: Finding, _story: Story) -> str:
    """Logs diverged in two elections in a row (KIP-279)."""
    other = f"Broker {found.leader} held other records at these offsets, of an epoch unknown to its leader"
    return f"{other}; {then(found)}."


def counted_all_the_same(found: Finding, _story: Story) -> str:
    """Fetches of another epoch were counted (KIP-320)."""
    return f"Broker {found.leader} held other records at these offsets, and its fetches counted; {then(found)}."


def member_without(found: Finding, _story: Story) -> str:
    """A member of the ISR had lost the records."""
    return f"{taken_over(found)}; it was in the ISR without {them(found)}."


def dropped_out_of_range(found: Finding, _story: Story) -> str:
    """A log was dropped after an out-of-range answer."""
    return f"Broker {found.leader} had dropped {them(found)} for an out-of-range answer; {then(found)}."


def moved_too_early(found: Finding, story: Story) -> str:
    """Leadership was moved on purpose."""
    planned = f"the move was planned ({why(found, story)})"
    return f"{taken_over(found)}, before it had fetched {them(found)}; {planned}."


def took_over_too_early(found: Finding, story: Story) -> str:
    """The leader failed before anybody had fetched the records."""
    return f"{taken_over(found)}, before it had fetched {them(found)} ({why(found, story)})."


def entitled_without(found: Finding, story: Story) -> str:
    """No rule explains the loss."""
    entitled = "though it was entitled to lead"
    return f"{taken_over(found)}, without {them(found)}, {entitled} ({why(found, story)})."
