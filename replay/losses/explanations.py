"""An incident in a few plain sentences, for someone who was not there.

Who led and what producers had been told; what happened, and when; who read it, what is not known, and what would have
kept the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.evidence.tenures import micros
from replay.losses.mechanisms import (
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
    from replay.losses.prevention import Setting
    from replay.losses.story import Story

NAMES_SHOWN = 3
US_PER_DAY = 86_400_000_000


def clock(us: int) -> str:
    """`03:49:33.030` of a time in microseconds since 1970, UTC."""
    ms = us % US_PER_DAY // 1000
    seconds = ms // 1000
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms % 1000:03}"


def moment(ts: Stamp | None) -> str:
    """`At 2024-05-01 03:49:33.030 UTC`; of a time that nothing tells, `Then`."""
    return "Then" if ts is None else f"At {ts:%Y-%m-%d %H:%M:%S}.{ts.microsecond // 1000:03d} UTC"


def listed(names: list[str]) -> str:
    """At most `NAMES_SHOWN` of the names, and how many more."""
    shown = ", ".join(name or "without a name" for name in names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"


def counted(count: int, noun: str = "record") -> str:
    """`1 record`, `2,048 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def offsets_of(found: Finding) -> str:
    """`offset 7`, `offsets 7 to 9`."""
    last = found.end - 1
    return f"offset {last}" if last == found.first else f"offsets {found.first} to {last}"


def acknowledged(found: Finding) -> str:
    """How many of the lost records were acknowledged, at which level, and to whom."""
    counts, one = found.counts, found.counts["records"] == 1
    if counts["acked_all"] is None:
        return f". No request log tells whether {'it was' if one else 'they were'} acknowledged"
    every = "" if one else "all "
    levels = [("all", counts["acked_all"]), ("1", counts["acked_one"])]
    parts = [
        f"{every if n == counts['records'] else f'{n:,} '}acknowledged with acks={acks}" for acks, n in levels if n
    ]
    if not parts and counts["acked_possible"] == counts["records"]:
        return f"; no line tells whether {'it was' if one else 'they were'} acknowledged"
    if not parts:
        return ", not surely acknowledged" if one else ", none of them surely acknowledged"
    clients = f"client{'s' if len(counts['producers']) > 1 else ''} {listed(counts['producers'])}"
    return f", {' and '.join(parts)} to {clients}"


def what_went(found: Finding, where: str, story: Story) -> str:
    """The first sentence."""
    old = found.old
    alone = ", alone in the ISR" if found.promised and story.isr_at(old.seq - 1) == [old.leader] else ""
    lost = f"{counted(found.counts['records'])}, {offsets_of(found)} of leader epoch {old.epoch}"
    return f"{where} lost {lost} (broker {old.leader}{alone}){acknowledged(found)}."


def them(found: Finding) -> str:
    """How a sentence names the lost records."""
    return "that record" if found.counts["records"] == 1 else "them"


def what_happened(mechanism: str, found: Finding, story: Story) -> str:
    """The second sentence: when, and how they went."""
    new, epoch = found.leader, found.decision["leader_epoch"]
    at = moment(found.decision["ts"])
    led = f"broker {new} took over in epoch {epoch} from offset {found.heir.start}"
    then = f"{at[0].lower()}{at[1:]} {led}"
    if mechanism == "last_replica_standing":
        return came_back(found, story)
    if mechanism == "unclean_election":
        return elected_unclean(found, story)
    lost = them(found)
    sentences = {
        "storage_failure": f"The log directory of broker {found.old.leader} failed, and took {lost} with it; {then}",
        "eligible_leader_regressed": f"{at} {led}; the controller took it for an eligible leader replica (ELR), and it "
        f"lacked {lost}",
        "hw_truncation": f"Broker {new} had fetched {lost} and then cut its log to its own high watermark; {then}",
        "fast_failover_divergence": f"Broker {new} held other records at these offsets, of an epoch unknown to its "
        f"leader; {then}",
        "stale_fetch_accepted": f"Broker {new} held other records at these offsets, and its fetches counted; {then}",
        "stale_isr_rejoin": f"{at} {led}; it was in the ISR without {lost}",
        "out_of_range_reset": f"Broker {new} had dropped {lost} for an out-of-range answer; {then}",
        "acks_one_planned_move": f"{at} {led}, before it had fetched {lost}; the move was planned "
        f"({why(found, story)})",
        "acks_one_leader_failure": f"{at} {led}, before it had fetched {lost} ({why(found, story)})",
        "other": f"{at} {led}, without {lost}, though it was entitled to lead ({why(found, story)})",
    }
    return f"{sentences[mechanism]}."


def why(found: Finding, story: Story) -> str:
    """What set the election off."""
    gone, _ = gone_or_stopping(found, story)
    trigger = deciding_election(found, story)["trigger"]
    if gone is not None and not (trigger or "").startswith(f"broker {found.old.leader}"):
        return f"broker {found.old.leader} was gone"
    return trigger or "no source tells why"


def came_back(found: Finding, story: Story) -> str:
    """The last replica of the ISR, back with less."""
    loaded = end_as_loaded(found, story)
    end = found.heir.start if loaded is None else end_of(loaded)
    return (
        f"Broker {found.old.leader} went down, came back with a log that ended at {end} instead of {found.old.leo}, "
        f"and was elected again at {moment(found.decision['ts']).removeprefix('At ')} "
        f"(epoch {found.decision['leader_epoch']})."
    )


def elected_unclean(found: Finding, story: Story) -> str:
    """A leader from outside the ISR, which may have handed over since."""
    election = unclean_election(found, story)
    isr = story.isr_at(found.old.seq - 1)
    outside = f"which was outside the ISR {isr}," if isr else f"which had never had {them(found)},"
    if is_last_election(found, election):
        began = f"in epoch {election['leader_epoch']} and led from offset {found.heir.start}"
    else:
        began = f"in epoch {election['leader_epoch']}; broker {found.leader} followed from offset {found.heir.start}"
    return f"{moment(election['ts'])} broker {election['leader_id']}, {outside} was elected {began}."


def what_is_left(found: Finding, settings: list[Setting]) -> list[str]:
    """The last sentences: who read them, what is not known, and what would have kept them."""
    counts, out = found.counts, []
    last = counts["last_ack_ts"]
    if last is not None and found.decision["ts"] is not None and last > micros(found.decision["ts"]):
        out.append(f"Broker {found.old.leader} had not heard of it, and went on acknowledging until {clock(last)}.")
    if counts["acked_unconfirmed"]:
        beside = "more" if counts["acked_all"] or counts["acked_one"] else "of them"
        some = "It" if counts["records"] == 1 else f"{counts['acked_unconfirmed']:,} {beside}"
        woke = f"answered by broker {found.old.leader} as it woke from a standstill, to a client that had given up"
        out.append(f"{some} {'was' if counts['acked_unconfirmed'] == 1 else 'were'} {woke}.")
    if counts["acked_possible"] and counts["acked_possible"] != counts["records"]:
        out.append(f"Of {counts['acked_possible']:,} no line tells for sure whether a client had an answer.")
    if counts["consumed"]:
        by = f" ({listed(counts['consumers'])})" if counts["consumers"] else ""
        out.append(f"Consumers had been handed {counts['consumed']:,} of them{by}.")
    if settings:
        out.append(would_have_kept([setting.name for setting in settings], them(found)))
    return out


def would_have_kept(names: list[str], lost: str) -> str:
    """The settings in a sentence: acks=all and min.insync.replicas keep records only together."""
    both = [name for name in ("acks=all", "min.insync.replicas=2") if name in names]
    rest = [name for name in names if name not in both]
    ways = [*rest[:1], *([" with ".join(both)] if both else []), *rest[1:]]
    text = ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])} or {ways[-1]}"
    return f"Would have kept {lost}: {text}."


def explanation_of(mechanism: str, where: str, found: Finding, story: Story, settings: list[Setting]) -> str:
    """The incident in a few plain sentences."""
    told = [what_went(found, where, story), what_happened(mechanism, found, story), *what_is_left(found, settings)]
    return " ".join(told)
