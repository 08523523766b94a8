"""Leaders that were cut off from their clients too: clients may have sent the last batches again to the next leader.

A broker that nobody can reach answers the requests that had arrived into sockets that nobody reads, and logs those
answers like any other. Its clients give up and send the same batches to the next leader; then nothing that they were
promised is lost. It shows as follows: the controller lost sight of the broker (no controlled shutdown, no reassignment,
no lost directory), and the broker went on without a restart until it was heard of again; nothing came on the connection
once the answer could have arrived; and the first batches that the next leader took from the same client have the same
sizes in the same order. New batches may have these sizes by chance, in which case the answers did arrive, so nothing is
certain about them.

The model leaves out payloads, and that only some of the answers within `ON_ITS_WAY_US` may have got through.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from replay.arrays.ints import NEVER
from replay.evidence.incarnations import starts_of_brokers
from replay.evidence.request_times import phases
from replay.evidence.roles import moment
from replay.evidence.tenures import micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.arrays.ints import Flags
    from replay.evidence.rows import Row
    from replay.evidence.tenure_index import IndexedByTenure
    from replay.evidence.tenures import Decision, Tenure

ON_ITS_WAY_US = 100_000  # an answer reaches its client sooner, or not at all
GIVEN_UP_US = 120_000_000  # default of delivery.timeout.ms: a client does not resend anything older
ON_PURPOSE = ("controlled_shutdown", "reassignment", "preferred")  # here the leader that gives way can still be reached


class Retries:
    """Which answers of a partition's leaders may have reached nobody, since clients asked the next leader."""

    def __init__(self, facts: IndexedByTenure) -> None:
        """Look nothing up yet, since few leaders are ever cut off."""
        self.facts = facts
        self.places = {tenure.epoch: k for k, tenure in enumerate(facts.tenures)}
        self.starts = {broker: list(times) for broker, times in starts_of_brokers(facts.cluster).items()}
        for row in facts.cluster:
            if row["record_type"] == "REGISTER_BROKER_RECORD" and row["ts"] is not None:
                self.starts.setdefault(row["subject_broker_id"], []).append(micros(row["ts"]))
        self.asked: dict[tuple[int, str], int] | None = None  # by connection: when its last request arrived
        self.taken: dict[tuple[int, str], dict[str, list[Row]]] = {}  # by epoch and client, then connection

    def of(self, tenure: Tenure, rows: Sequence[Row]) -> Flags:
        """Which of the tenure's answered produces may have been sent again to the next leader."""
        found = np.zeros(len(rows), bool)
        heir = self.heir_of(tenure)
        if heir is None:
            return found
        self.look_up()
        last = [k for k, row in enumerate(rows) if self.was_last(row) and not self.started(tenure, phases(row).stamp)]
        by_connection: dict[str, list[int]] = defaultdict(list)
        for k in sorted(last, key=lambda k: (phases(rows[k]).local, rows[k]["correlation_id"] or 0)):
            by_connection[rows[k]["connection"] or ""].append(k)
        for mine in by_connection.values():
            sent = self.taken.get((heir.epoch, rows[mine[0]]["client_id"] or ""), {}).values()
            found[mine] = any(were_sent_again([rows[k] for k in mine], one) for one in sent)
        return found

    def heir_of(self, tenure: Tenure) -> Tenure | None:
        """The next leader's tenure if the leader was taken for dead; None if it left otherwise, or led again itself."""
        later = self.facts.tenures[self.places[tenure.epoch] + 1 :]
        if not later or not later[0].decisions or not self.lost_sight_of(tenure, later[0].decisions[0]):
            return None
        heir = next((one for one in later if one.leader >= 0), None)
        return heir if heir is not None and heir.leader != tenure.leader else None

    def lost_sight_of(self, tenure: Tenure, decision: Decision) -> bool:
        """Whether the decision that ended a tenure took its leader for dead, as far as is known."""
        told = {decision.change, decision.election}
        vote = decision.vote
        failed = any(row["broker_id"] == tenure.leader for row in self.facts.storage_failures.get(tenure.epoch, ()))
        failed = failed or (vote is not None and vote.lost_directory == tenure.leader)
        gone = decision.leader < 0 or tenure.leader not in decision.isr
        return gone and not failed and told.isdisjoint(ON_PURPOSE)

    def started(self, tenure: Tenure, us: int) -> bool:
        """Whether the tenure's leader restarted after `us` and before it was heard of again, so that it had died."""
        again = self.facts.turns.role_after(tenure.leader, tenure.epoch)
        if again is not None and (tenure.leader, again) in self.facts.loads:
            return True
        until = moment(self.facts.role_lines[tenure.leader, again]) if again is not None else NEVER
        return any(us < start <= until for start in self.starts.get(tenure.leader, ()))

    def look_up(self) -> None:
        """Index the produces by connection, and by leader epoch and client."""
        if self.asked is not None:
            return
        self.asked = {}
        for row, place in zip(self.facts.by_kind["produce"], self.facts.places, strict=True):
            key = (row["broker_id"], row["connection"] or "")
            self.asked[key] = max(self.asked.get(key, 0), arrival(row))
            if place.epoch is not None:
                clients = self.taken.setdefault((place.epoch, row["client_id"] or ""), {})
                clients.setdefault(row["connection"] or "", []).append(row)
        for clients in self.taken.values():
            for rows in clients.values():
                rows.sort(key=lambda r: (phases(r).local, r["correlation_id"] or 0))

    def was_last(self, row: Row) -> bool:
        """Whether a produce succeeded, and nothing came on its connection once the answer could have arrived."""
        key = (row["broker_id"], row["connection"] or "")
        known = self.facts.connection_ends.get(key, 0)
        went_on = max(known, (self.asked or {}).get(key, 0)) > phases(row).stamp + ON_ITS_WAY_US
        return row["error_code"] == 0 and row["acks"] != 0 and not went_on


def arrival(row: Row) -> int:
    """When a request arrived, microseconds."""
    return int(phases(row).stamp) - (row["total_us"] or 0)


def were_sent_again(answered: Sequence[Row], taken: Sequence[Row]) -> bool:
    """Whether, by size, the batches answered last are those that the next leader took first.

    A single batch has no order and proves nothing: the next new one may well have its size.
    """
    pairs = list(zip(answered, taken, strict=False))
    return len(pairs) == len(answered) > 1 and all(is_alike(*pair) for pair in pairs)


def is_alike(answered: Row, taken: Row) -> bool:
    """Whether one batch may be the other, sent again; an unknown size rules nothing out."""
    sizes = {size for size in (answered["bytes"], taken["bytes"]) if size is not None}
    return len(sizes) < 2 and arrival(taken) <= phases(answered).stamp + GIVEN_UP_US
