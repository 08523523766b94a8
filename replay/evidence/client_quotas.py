"""At which rate each broker lets a client produce, by the broker's own lines (KIP-13, KIP-55).

A broker writes a line as it takes up a quota, also as it starts (`ClientQuotaManager.updateQuota`), so its own lines
tell its limits; from a start on only those that it has written since then, for one that was removed meanwhile has no
line. One of a client id alone holds for that client; one that names a user goes before it, and request lines
are read without their user. So nothing is known of a broker from a line about a user's quota on.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from replay.arrays.ints import NEVER
from replay.evidence.replication_quotas import LINES, OF_CLIENTS
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.evidence.rows import Row

QUOTA: Final = re.compile(
    r"(?i:produce) quota for (?:client-id (?P<client>.*?)|(?P<other>.*?))(?: to (?P<rate>[\d.E]+))?"
)
OF_ALL: Final = "default client-id"
NO_LIMIT: Final = -1
_TOLD: Final = ((LINES, OF_CLIENTS), *(("broker_lifecycle", name) for name in ("clean_start", "unclean_start")))
EVERYBODY: Final = ""
SETTLES_US: Final = 1_000_000  # around a change nothing is said of the limit


class ClientQuotas(NamedTuple):
    """Limits on producing, by broker and client id (empty: all clients without their own)."""

    changes: dict[tuple[int, str], list[tuple[int, int]]]  # when, and bytes per second
    unknown_from: dict[int, int]  # by broker: the first line about a user's quota

    def limits(self, broker: int) -> bool:
        """Whether the broker ever limited a client of which its lines tell."""
        return any(of == broker for of, _ in self.changes)

    def rate(self, broker: int, client: str, us: int) -> int:
        """The limit of a client at a broker, bytes per second; NO_LIMIT: none, or not known."""
        if us >= self.unknown_from.get(broker, NEVER) - SETTLES_US:
            return NO_LIMIT
        early, late = (self.rate_at(broker, client, us + off) for off in (-SETTLES_US, SETTLES_US))
        return early if early == late else NO_LIMIT

    def rate_at(self, broker: int, client: str, us: int) -> int:
        """The limit by the lines before: the client's own, else that of all clients without their own."""
        for name in (client, EVERYBODY):
            lines = self.changes.get((broker, name), [])
            place = bisect_right(lines, us, key=lambda line: line[0])
            if place and lines[place - 1][1] != NO_LIMIT:
                return lines[place - 1][1]
        return NO_LIMIT


def client_quotas_in(rows: Iterable[Row]) -> ClientQuotas:
    """What brokers' lines tell of quotas on producing. `rows`: facts about no single partition."""
    found = ClientQuotas({}, {})
    told = [row for row in rows if (row["kind"], row["name"]) in _TOLD and row["ts"] is not None]
    for row in sorted(told, key=lambda one: (one["ts"], one["source_file"], one["source_line"])):
        broker = row["broker_id"]
        if row["kind"] != LINES:
            for known in [known for (of, _), known in found.changes.items() if of == broker]:
                known.append((micros(row["ts"]), NO_LIMIT))
            continue
        quota = QUOTA.fullmatch(row["value"] or "")
        if quota is None or broker is None:
            continue
        if quota["client"] is None and quota["other"] != OF_ALL:
            found.unknown_from.setdefault(broker, micros(row["ts"]))
            continue
        rate = NO_LIMIT if quota["rate"] is None else int(float(quota["rate"]))
        found.changes.setdefault((broker, quota["client"] or EVERYBODY), []).append((micros(row["ts"]), rate))
    return found
