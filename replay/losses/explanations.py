"""An incident in a few plain sentences, for someone who was not there.

Who led and what producers had been told; what happened and when; who read the records, what is unknown, and what would
have prevented the loss. How the records were lost is the mechanism's own sentence (`sentences`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replay.evidence.tenures import micros
from replay.losses.sentences import clock, counted, listed, offsets_of, them

if TYPE_CHECKING:
    from replay.losses.findings import Finding
    from replay.losses.mechanisms import Mechanism
    from replay.losses.remedies import Setting
    from replay.losses.story import Story


THIN: Final = "min.insync.replicas=2"


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


def what_is_left(found: Finding, settings: list[Setting]) -> list[str]:
    """The last sentences: who read the records, what is unknown, and what would have prevented the loss."""
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
    """The settings in a sentence, in the order in which they are listed.

    acks=all and min.insync.replicas prevent a loss only together, and what they do is to refuse records in time.
    """
    both = [name for name in ("acks=all", THIN) if name in names]
    refused = f" (by refusing {lost} in time instead of acknowledging {lost})"
    together = f"{' with '.join(both)}{refused if THIN in both else ''}"
    ways = list(dict.fromkeys(together if name in both else name for name in names))
    text = ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])} or {ways[-1]}"
    return f"Would have kept {lost}: {text}."


def explanation_of(mechanism: Mechanism, where: str, found: Finding, story: Story, settings: list[Setting]) -> str:
    """The incident in a few plain sentences."""
    told = [what_went(found, where, story), mechanism.sentence(found, story), *what_is_left(found, settings)]
    return " ".join(told)
