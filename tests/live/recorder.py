"""Makes a recording of a stopped cluster, as docs/recording.md tells an operator to."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster import Cluster

CHECKPOINTS = ("leader-epoch-checkpoint", "replication-offset-checkpoint")
NEXT_FILE = "Dumping "


def record(cluster: Cluster, into: Path) -> Path:
    """Logs, metadata, segments and checkpoints of the whole cluster; returns `into`."""
    for node in cluster.nodes:
        shutil.copytree(cluster.logs(node), into / "logs" / f"node-{node}")
    metadata = sorted(cluster.data(cluster.controller).glob("__cluster_metadata-0/*.log"))
    _write(into / "cluster-metadata.dump.txt.gz", cluster.dump(metadata, "--cluster-metadata-decoder"))
    segments = [path for broker in cluster.brokers for path in sorted(cluster.data(broker).glob("[!_]*/*.log"))]
    for segment, text in _by_file(cluster.dump(segments)).items():
        _write(_place(cluster, into, segment).with_name(f"{segment.name}.dump.txt.gz"), text)
    for broker in cluster.brokers:
        for name in CHECKPOINTS:
            for checkpoint in cluster.data(broker).glob(f"**/{name}"):
                place = _place(cluster, into, checkpoint)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(checkpoint, place)
    manifest = {"kafka": cluster.kafka, "time_zone": "UTC", "broker_config": cluster.settings}
    (into / "MANIFEST.json").write_text(json.dumps(manifest, indent=1))
    return into


def _place(cluster: Cluster, into: Path, file: Path) -> Path:
    """Where a broker's file lies in the recording."""
    broker = next(broker for broker in cluster.brokers if file.is_relative_to(cluster.data(broker)))
    return into / "segments" / f"node-{broker}" / file.relative_to(cluster.data(broker))


def _by_file(dump: str) -> dict[Path, str]:
    """A dump of several files, told apart by the line that each begins with."""
    found: dict[Path, list[str]] = defaultdict(list)
    file = Path()
    for line in dump.splitlines(keepends=True):
        if line.startswith(NEXT_FILE):
            file = Path(line.removeprefix(NEXT_FILE).strip())
        found[file].append(line)
    return {file: "".join(lines) for file, lines in found.items()}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))
