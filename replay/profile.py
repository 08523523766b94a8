"""What differs between Kafka versions, as a table of switches in one place.

A rule never asks for a version: it asks for a switch. `profile_of` turns a version into switches; the source of each
is named beside it. What the model leaves out: brokers below 2.4, and clusters whose brokers run different versions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Version = tuple[int, int, int]
Protocol = tuple[int, int, int]  # inter.broker.protocol.version: major, minor, IV


class Profile(NamedTuple):
    """Switches, 1 on and 0 off. Integers, so that the compiled kernel can carry them."""

    hw_over_maximal_isr: int  # 2.7+ (KIP-497): HW candidates are the maximal ISR, not the committed one
    hw_caught_up_by_leo: int  # 3.3+: a replica at the leader's LEO counts as caught up, whatever the time
    hw_caught_up_eligible: int  # 3.6+ (KAFKA-15021): outside the ISR it counts only if it may join
    hw_needs_min_isr: int  # 3.7+ (KAFKA-15583): no raise while the committed ISR is below min.insync.replicas
    hw_after_isr_commit: int  # synchronous commits, and 3.1+ (KAFKA-13091): one attempt after each ISR commit
    isr_change_pending: int  # 2.7 with AlterIsr (KIP-497), 2.8+: an ISR change is pending till answered, one in flight
    expiry_twice_per_lag: int  # 0.10.2+: the expiry task runs each replica.lag.time.max.ms / 2, before each lag
    expiry_spares_equal_leo: int  # 2.1+ (KAFKA-7152): at the leader's LEO nobody is out of sync
    expand_needs_unfenced: int  # 3.3+ (KIP-841)
    remembered_leo_max: int  # 3.3+: the LEO at the previous fetch never falls
    update_on_diverging: int  # <=2.8.0 (KAFKA-13141): a diverging fetch still moves the remote LEO


LATEST: Version = (4, 1, 0)
ALTER_ISR: Protocol = (2, 7, 2)  # 2.7-IV2, ApiVersion.isAlterIsrSupported: below it the leader writes to ZooKeeper,
# itself up to 2.7, through ZkIsrManager from 2.8 on: answered at once, and pending where the update lost
LAST_IV = 99  # a protocol version named without IV stands for its last one


def parse_version(text: str | None) -> Version | None:
    """`4.1.0`, `3.9.1-IV0`, `2.8` -> a triple; None where it is no version."""
    match = re.match(r"\s*v?(\d+)\.(\d+)(?:\.(\d+))?", text or "")
    if not match:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0)


def parse_protocol(text: str | None) -> Protocol | None:
    """`2.7-IV2`, `2.8`, `0.10.2` -> major, minor, IV (a name without one is its last); None where it is no version."""
    match = re.match(r"\s*(\d+)\.(\d+)(?:\.\d+)?(?:-IV(\d+))?", text or "")
    if not match:
        return None
    return int(match[1]), int(match[2]), int(match[3] or LAST_IV)


def profile_of(version: Version, protocol: Protocol | None = None) -> Profile:
    """The switches of that version of apache/kafka (kafka.cluster.Partition, kafka.cluster.Replica).

    `protocol` is inter.broker.protocol.version; None: the version's own, as is the default.
    """
    requests = version >= (2, 7, 0) and (protocol is None or protocol >= ALTER_ISR)
    return Profile(
        hw_over_maximal_isr=int(version >= (2, 7, 0)),
        hw_caught_up_by_leo=int(version >= (3, 3, 0)),
        hw_caught_up_eligible=int(version >= (3, 6, 0)),
        hw_needs_min_isr=int(version >= (3, 7, 0)),
        hw_after_isr_commit=int(not requests or version >= (3, 1, 0)),
        isr_change_pending=int(requests or version >= (2, 8, 0)),
        expiry_twice_per_lag=int(version >= (0, 10, 2)),
        expiry_spares_equal_leo=int(version >= (2, 1, 0)),
        expand_needs_unfenced=int(version >= (3, 3, 0)),
        remembered_leo_max=int(version >= (3, 3, 0)),
        update_on_diverging=int(version < (2, 7, 2) or version == (2, 8, 0)),
    )


def profile_named(version: str | None, protocol: str | None) -> Profile:
    """The switches as a recording names them; the newest version's where it names none."""
    return profile_of(parse_version(version) or LATEST, parse_protocol(protocol))
