"""Ports for servers that tests start."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from itertools import count
from pathlib import Path

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT, FEWEST = 10_000, 1_000

_asked = count(os.getpid() * 997)  # which port to try next


def free_ports(many: int) -> list[int]:
    """Free on the loopback, and below those that the kernel gives to outgoing connections before they are listened on.

    Where a search begins depends on the process, so that two at the same time do not find the same.
    """
    first = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 32_768
    room = max(first - LOWEST_PORT, FEWEST)
    found: list[int] = []
    while len(found) < many:
        port = LOWEST_PORT + next(_asked) % room
        with socket.socket() as each, suppress(OSError):
            each.bind(("127.0.0.1", port))
            found.append(port)
    return found


def is_open(port: int) -> bool:
    """Whether something listens there, on the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
