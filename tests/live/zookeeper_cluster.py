"""A real Kafka cluster in ZooKeeper mode on this machine: ZooKeeper (node 0) and brokers of 3.9, the last with it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from cluster import NODE_HEAP, Cluster, Process
from ports import is_open

if TYPE_CHECKING:
    from pathlib import Path

STARTED = "started (kafka.server.KafkaServer)"


class ZooKeeperCluster(Cluster):
    """Two brokers, and a ZooKeeper in place of the controller."""

    brokers = (1, 2)
    nodes = (Cluster.controller, *brokers)

    def start(self) -> None:
        """All nodes, with empty disks."""
        keeper = self.controller
        for node in self.nodes:
            self.logs(node).mkdir(parents=True)
        settings = {"dataDir": self.data(keeper), "clientPort": self._ports[keeper], "admin.enableServer": "false"}
        self.config(keeper).write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = self._command(main, str(self.config(keeper)), options=(NODE_HEAP, *self._jvm))
        self._nodes[keeper] = Process(command, self.home / f"node-{keeper}" / "output")
        # Brokers that ask for it sooner end after a while on a loaded machine.
        self._nodes[keeper].until(lambda: is_open(self._ports[keeper]), "ZooKeeper")
        for broker in self.brokers:
            self.config(broker).write_text("".join(f"{k}={v}\n" for k, v in self._properties(broker).items()))
            self._start(broker)
        for broker in self.brokers:
            self._wait_until_ready(broker, starts=1)

    def stop(self) -> None:
        """The brokers, in order."""
        for broker in self.brokers:
            self.stop_one(broker)

    def record(self, into: Path) -> Path:
        """The brokers' logs, as docs/recording.md tells an operator to collect them; returns `into`."""
        for broker in self.brokers:
            shutil.copytree(self.logs(broker), into / "logs" / f"node-{broker}")
        manifest = {"kafka": self.kafka, "time_zone": "UTC", "broker_config": self.settings}
        (into / "MANIFEST.json").write_text(json.dumps(manifest))
        return into

    def _properties(self, node: int) -> dict[str, object]:
        return {
            "broker.id": node,
            "zookeeper.connect": f"127.0.0.1:{self._ports[self.controller]}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node]}",
            "log.dirs": self.data(node),
            **self.settings,
        }

    def _starts(self, node: int) -> int:
        log = self.logs(node) / "server.log"
        return log.read_text().count(STARTED) if log.exists() else 0
