"""Clients that produced more than their quota, and whether they were told to wait (`ClientQuotaManager`, KIP-13).

A broker counts each request of a limited client as it answers it, in eleven samples of a second, and answers a throttle
time once the rate is above the limit. A partition's own records are the least of what it counts: if they alone are more
than the limit, the answer had to have a throttle time. Fewer show nothing, since other partitions and the rest of the
requests add to them, and a quota on the time of requests throttles, too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from replay.arrays.ints import NEVER
from replay.engine import codes as c
from replay.engine.stamps import CLOCK_SLACK_US
from replay.evidence.tenures import micros
from replay.tables.quota_rates import SECOND_US, SLACK_US, window_of
from replay.tables.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from replay.arrays.ints import Flags
    from replay.engine.events import EventBatch, Events
    from replay.protocol.profile import Profile
    from replay.tables.rare_events import Rare

CHECK: Final = "client_quota"
COLUMN: Final = "client_quota"
COLUMNS: Final = (
    "seq", "ts", "broker_id", "client_id", "bytes", "throttle_us", "response_queue_us", "send_us", COLUMN,
)  # fmt: skip
SURELY: Final = 1.01  # above the limit by so much a throttle time is surely more than 0 ms


def is_limited(batch: EventBatch) -> Flags:
    """Which events are answers to a client that its broker limited."""
    found: Flags = (batch.events.kinds == c.ACK) & batch.events.known(COLUMN)
    return found


class ClientQuotas:
    """What one partition's limited clients produced, and how they were answered."""

    def __init__(self) -> None:
        """Start with nothing compared."""
        self.counted: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)  # when answered, and bytes
        self.tally = Tally()

    def take_all(self, events: Events, rare: Rare, profile_at: Callable[[int | None, int], Profile]) -> None:
        """Take a batch's events. `profile_at`: the rules that a broker follows, by broker and seq."""
        if not events.has(COLUMN):  # older tables have none
            return
        began = deque((row["seq"], row["broker_id"]) for row in rare["log_load"])
        for row in events.among(is_limited, COLUMNS).rows:
            self.begin(began, row["seq"])
            self.take(row, window_of(profile_at(row["broker_id"], row["seq"])))
        self.begin(began, NEVER)

    def begin(self, began: deque[tuple[int, int]], seq: int) -> None:
        """Forget what brokers counted that started before `seq`: one that starts has counted nothing."""
        while began and began[0][0] < seq:
            _, broker = began.popleft()
            self.counted = defaultdict(list, {key: of for key, of in self.counted.items() if key[0] != broker})

    def take(self, row: dict[str, Any], window: int) -> None:
        """Count an answer, and compare it if what was counted is surely above the limit; `window`: `window_of`."""
        at = micros(row["ts"]) - max(row["response_queue_us"] or 0, 0) - max(row["send_us"] or 0, 0)
        key = row["broker_id"], row["client_id"] or ""
        kept = (window - 1) * SECOND_US - SLACK_US
        before = self.counted[key] = [one for one in self.counted[key] if at - one[0] < kept]
        least = sum(size for when, size in before if when <= at - CLOCK_SLACK_US) + (row["bytes"] or 0)
        before.append((at, row["bytes"] or 0))
        if least <= row[COLUMN] * window * SURELY:
            return
        told = f"broker {key[0]}: computed that {key[1]} was throttled ({least // window} bytes/s), stated 0 ms"
        self.tally.note(row["seq"], told, agrees=(row["throttle_us"] or 0) > 0)

    def checks(self) -> list[dict[str, Any]]:
        """The check; none if nothing was compared."""
        return self.tally.rows(CHECK)
