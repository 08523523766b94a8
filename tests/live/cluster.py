"""A real Kafka cluster in KRaft mode on this machine, and its clients: controller (node 0) and brokers (1 to 3).

Everything lies under one directory and listens on the loopback. Every process leads a group of its own, and none
outlives the `with` block, or the interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import signal
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

CLUSTER_ID = "dGlkZW1hcmstbGl2ZS10ZQ"
READY = "Kafka Server started"
JAVA = f"{os.environ['JAVA_HOME']}/bin/java" if os.environ.get("JAVA_HOME") else "java"
# Small JVMs that live for a minute: compiling well does not pay.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)
JVM = ("-XX:+UseSerialGC", "-Xshare:auto", "-Djava.net.preferIPv4Stack=true")
NODE_HEAP, TOOL_HEAP = "-Xmx512m", "-Xmx128m"
WAIT_S = 60
TOLD_LINES = 15  # of each file, about a process that ended too early

# What a broker logs by default, to one file; what Tidemark recommends is merged into it. Log4j 2 merges, log4j 1
# (Kafka up to 3.9) takes one file, in which the later of two lines holds.
LOGGING = """
Configuration:
  status: error
  Appenders:
    File:
      - name: ServerAppender
        fileName: ${sys:kafka.logs.dir}/server.log
        PatternLayout:
          pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        - ref: ServerAppender
"""
LOGGING_1 = "log4j.rootLogger=INFO, serverAppender\n" + "".join(
    f"""
log4j.appender.{appender}Appender=org.apache.log4j.FileAppender
log4j.appender.{appender}Appender.File=${{kafka.logs.dir}}/{file}.log
log4j.appender.{appender}Appender.layout=org.apache.log4j.PatternLayout
log4j.appender.{appender}Appender.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
    for appender, file in (("server", "server"), ("stateChange", "state-change"), ("controller", "controller"))
)
TOOL_LOGGING = """
Configuration:
  status: error
  Loggers:
    Root:
      level: OFF
"""


def until(holds: Callable[[], bool], what: str, seconds: float = WAIT_S) -> None:
    """Wait for it.

    Raises:
        TimeoutError: it did not come.
    """
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"in {seconds} s there was not {what}")
        time.sleep(0.1)


class Process:
    """A Java program in a process group of its own."""

    def __init__(
        self, command: list[str], output: Path, environment: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        """`environment` is all that it gets, and `folder` where it works; None: those of this process."""
        self.output = output
        with output.open("ab") as out, output.with_suffix(".err").open("ab") as err:
            self._popen = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        atexit.register(self.kill)

    def cpu_seconds(self) -> float:
        """What its threads have used so far, in user mode and in the kernel."""
        fields = Path(f"/proc/{self._popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number: signal.Signals) -> None:
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, number)

    def kill(self) -> None:
        """As a power cut, or the kernel's killer, would; a stopped one dies of it as well."""
        self.signal(signal.SIGKILL)
        self._popen.wait()
        atexit.unregister(self.kill)

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        self.signal(signal.SIGTERM)
        self.wait()

    def wait(self) -> int:
        """Until it ends by itself: its exit code."""
        try:
            return self._popen.wait(WAIT_S)
        finally:
            self.kill()

    def until(self, holds: Callable[[], bool], what: str, seconds: float = WAIT_S) -> None:
        """Wait for what only a running process brings about.

        Raises:
            ChildProcessError: it ended.
            TimeoutError: see `until`; it says what the process printed last.
        """

        def holds_yet() -> bool:
            if self._popen.poll() is not None:
                raise ChildProcessError(f"it ended before there was {what}:\n{self._last_words()}")
            return holds()

        try:
            until(holds_yet, what, seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self._last_words()}") from None

    def _last_words(self) -> str:
        """The ends of what it printed and of the logs beside it, for a machine that is gone once the tests are over."""
        files = (self.output, self.output.with_suffix(".err"), *sorted(self.output.parent.glob("logs/*.log")))
        ends = {file: file.read_text(errors="replace").splitlines()[-TOLD_LINES:] for file in files if file.exists()}
        return "\n".join(line for file, lines in ends.items() if lines for line in (f"{file}:", *lines))


class Client:
    """Kafka's own verifiable producer or consumer, which prints what it saw as JSON: one event a line."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def events(self, name: str) -> list[dict[str, Any]]:
        """Those of that name, in order; the line that is being written is left out, and so are the tool's warnings."""
        lines = self.process.output.read_bytes().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"\n")]
        return [event for event in events if event["name"] == name]


class Producer(Client):
    """Sends the numbers from 0 on, each once: without retries what is acknowledged stands in one slot."""

    def acknowledged(self) -> list[dict[str, Any]]:
        return self.events("producer_send_success")

    def wait_for_more(self, records: int) -> None:
        """Until so many more were acknowledged."""
        goal = len(self.acknowledged()) + records
        self.process.until(lambda: len(self.acknowledged()) >= goal, f"{records} more acknowledgements")


@dataclass(frozen=True)
class Release:
    """What brokers and tools are made of: the tools of the newest release may have to come from the one before."""

    kafka: str
    class_path: str
    tools_path: str
    dump_log: str  # class of `kafka-dump-log.sh`: it moved to the tools in 4.3


class Cluster:
    """Starts with `start`, and can be stopped, killed, paused, and asked."""

    controller = 0
    brokers = (1, 2, 3)
    nodes = (controller, *brokers)

    def __init__(
        self,
        home: Path,
        release: Release,
        logging: Path,
        settings: Mapping[str, object],
        jvm: tuple[str, ...] = SHORT_LIVED,
        *,
        with_jmx: bool = False,
    ) -> None:
        """Kafka `release` under `home`, with `settings` for every node, and `logging` added to its own.

        `logging` is a file of Log4j 2 (.yaml), or of log4j 1 (.properties). `jvm`: options of the brokers' JVMs.
        `with_jmx`: nodes export their metrics, which `watch` writes down.
        """
        self.home = home
        self.kafka = release.kafka
        self.settings = dict(settings)
        self._release = release
        self._jvm = jvm
        self._logging = self._log4j(logging)
        self._nodes: dict[int, Process] = {}
        self._clients: list[Process] = []
        ports = free_ports(2 * len(self.nodes))
        self._ports = dict(zip(self.nodes, ports, strict=False))
        self._jmx = dict(zip(self.nodes, ports[len(self.nodes) :], strict=True)) if with_jmx else {}
        self.bootstrap = ",".join(f"127.0.0.1:{self._ports[broker]}" for broker in self.brokers)
        (home / "tools.yaml").write_text(TOOL_LOGGING)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # each is killed, whatever happens to the others
            for process in (*self._nodes.values(), *self._clients):
                stack.callback(process.kill)

    def start(self) -> None:
        """All nodes, with empty disks."""
        formatting = []
        for node in self.nodes:
            self.logs(node).mkdir(parents=True)
            self.config(node).write_text("".join(f"{k}={v}\n" for k, v in self.properties(node).items()))
            format_disk = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.config(node)))
            formatting.append(Process(self._command(*format_disk), self.home / f"node-{node}" / "format"))
        for process in formatting:
            if process.wait():
                raise ChildProcessError(f"a disk could not be formatted; see {process.output}")
        for node in self.nodes:
            self._start(node)
        for node in self.brokers:
            self._wait_until_ready(node, starts=1)

    def restart(self, broker: int) -> None:
        """On the disk that it left."""
        before = self._starts(broker)
        self._start(broker)
        self._wait_until_ready(broker, before + 1)

    def kill(self, node: int) -> None:
        """`kill -9`."""
        self._nodes[node].kill()

    def pause(self, *nodes: int) -> None:
        """SIGSTOP: it neither answers nor asks, its connections stay."""
        for node in nodes:
            self._nodes[node].signal(signal.SIGSTOP)

    def resume(self, *nodes: int) -> None:
        for node in nodes:
            self._nodes[node].signal(signal.SIGCONT)

    def cpu_seconds(self, node: int) -> float:
        return self._nodes[node].cpu_seconds()

    def stop_one(self, broker: int) -> None:
        """SIGTERM: it hands over what it leads, and ends."""
        self._nodes[broker].stop()

    def stop(self) -> None:
        """In order: brokers before the controller that they take their leave of."""
        for broker in self.brokers:
            self._nodes[broker].signal(signal.SIGTERM)
        for broker in self.brokers:
            self._nodes[broker].stop()
        self._nodes[self.controller].stop()

    def create_topic(self, topic: str, assignment: str, **settings: object) -> None:
        """`assignment` is one list of brokers for each partition: `1:2:3,2:3:1`; the first is to lead."""
        options = [part for key, value in settings.items() for part in ("--config", f"{key.replace('_', '.')}={value}")]
        self._topics("--create", "--topic", topic, "--replica-assignment", assignment, *options)

    def limit_replication(self, bytes_per_second: int | None, broker: int | None = None) -> None:
        """What a broker may send followers and fetch of what its topics list as throttled; None: as much as it can.

        `broker`: None is every broker that has no limit of its own (3.9+).
        """
        names = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]
        of = ("--entity-default",) if broker is None else ("--entity-name", str(broker))
        if bytes_per_second is None:
            change = ("--delete-config", ",".join(names))
        else:
            change = ("--add-config", ",".join(f"{name}={bytes_per_second}" for name in names))
        self._alter("brokers", *of, *change)

    def throttle(self, topic: str, leaders: str, followers: str) -> None:
        """List a topic's replicas as throttled, each as `partition:broker`, once it is there."""
        sides = {"leader": leaders, "follower": followers}
        lists = ",".join(f"{side}.replication.throttled.replicas=[{listed}]" for side, listed in sides.items())
        self._alter("topics", "--entity-name", topic, "--add-config", lists)

    def leader(self, topic: str) -> int:
        """Who leads partition 0, as a client is told; -1: nobody."""
        told = self._topics("--describe", "--topic", topic).split("Leader: ")[1].split()[0]
        return -1 if told == "none" else int(told)

    def is_fully_replicated(self) -> bool:
        return not self._topics("--describe", "--under-replicated-partitions").strip()

    def producer(self, topic: str, acks: str, per_second: int, **settings: object) -> Producer:
        """Begins to send at once."""
        config = self.home / f"producer-{topic}.properties"
        config.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in settings.items()))
        options = ("--topic", topic, "--acks", acks, "--throughput", str(per_second), "--producer.config", str(config))
        return Producer(self._client("org.apache.kafka.tools.VerifiableProducer", f"produced-{topic}", *options))

    def transaction(self, topic: str, transactional_id: str, through: int) -> Process:
        """Begin to commit one record in a transaction; the client knows of one broker at first."""
        server = f"bootstrap.servers=127.0.0.1:{self._ports[through]}"
        options = ("--topic", topic, "--num-records", "1", "--record-size", "10", "--throughput", "-1")
        own = ("--transactional-id", transactional_id, "--producer-props", server, "acks=all")
        command = self._command("org.apache.kafka.tools.ProducerPerformance", *options, *own, of_tools=True)
        self._clients.append(Process(command, self.home / f"transaction-{transactional_id}"))
        return self._clients[-1]

    def consumer(self, topic: str, name: str = "reads", **settings: object) -> Client:
        """Reads from the earliest offset on, in a group of that name for each topic."""
        config = self.home / f"consumer-{name}-{topic}.properties"
        config.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in settings.items()))
        options = ("--topic", topic, "--group-id", f"{name}-{topic}", "--verbose", "--consumer.config", str(config))
        return Client(self._client("org.apache.kafka.tools.VerifiableConsumer", f"{name}-{topic}", *options))

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> str:
        """Ask leaders to delete what is before an offset of a partition, -1: the high watermark; what the tool says."""
        asked = [{"topic": topic, "partition": part, "offset": offset} for (topic, part), offset in before.items()]
        file = self.home / "deletions.json"
        file.write_text(json.dumps({"partitions": asked, "version": 1}))
        options = ("--bootstrap-server", self.bootstrap, "--offset-json-file", str(file))
        return self._tool("org.apache.kafka.tools.DeleteRecordsCommand", *options)

    def watch(self, node: int, mbeans: Iterable[str], each_ms: int) -> Path:
        """Begin to write down what a node exports, line by line into the file that is returned, until the node dies."""
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{self._jmx[node]}/jmxrmi"
        named = [part for mbean in mbeans for part in ("--object-name", mbean)]
        options = ("--jmx-url", url, "--reporting-interval", str(each_ms), *named)
        command = self._command("org.apache.kafka.tools.JmxTool", *options, of_tools=True)
        self._clients.append(Process(command, self.home / f"metrics-{node}-{len(self._clients)}"))
        return self._clients[-1].output

    def dump(self, files: list[Path], *options: str) -> str:
        """What `kafka-dump-log.sh` says about segments."""
        return self._tool(self._release.dump_log, *options, "--files", ",".join(map(str, files)))

    @property
    def dump_tool(self) -> str:
        """The same as a command, as `collect` takes it."""
        return shlex.join(self._command(self._release.dump_log, of_tools=True))

    def data(self, node: int) -> Path:
        """Its log directory."""
        return self.home / f"node-{node}" / "data"

    def logs(self, node: int) -> Path:
        """Where it writes what it does."""
        return self.home / f"node-{node}" / "logs"

    def properties(self, node: int) -> dict[str, object]:
        is_controller = node == self.controller
        return {
            "node.id": node,
            "process.roles": "controller" if is_controller else "broker",
            "controller.quorum.voters": f"{self.controller}@127.0.0.1:{self._ports[self.controller]}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{'CONTROLLER' if is_controller else 'PLAINTEXT'}://127.0.0.1:{self._ports[node]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.data(node),
            **self.settings,
        }

    def config(self, node: int) -> Path:
        """Its settings."""
        return self.home / f"node-{node}" / "server.properties"

    def _log4j(self, logging: Path) -> str:
        """The JVM's option that names what is logged."""
        if logging.suffix == ".properties":
            whole = self.home / "log4j.properties"
            whole.write_text(LOGGING_1 + logging.read_text())
            return f"-Dlog4j.configuration=file:{whole}"
        own = self.home / "log4j2.yaml"
        own.write_text(LOGGING)
        return f"-Dlog4j2.configurationFile=file:{own},file:{logging}"

    def _start(self, node: int) -> None:
        options = (self._logging, f"-Dkafka.logs.dir={self.logs(node)}", NODE_HEAP, *self._jvm, *self._exporting(node))
        command = self._command("kafka.Kafka", str(self.config(node)), options=options)
        self._nodes[node] = Process(command, self.home / f"node-{node}" / "output")

    def _exporting(self, node: int) -> tuple[str, ...]:
        """The JVM's options that let its metrics be read on the loopback."""
        if node not in self._jmx:
            return ()
        port, jmx = self._jmx[node], "-Dcom.sun.management.jmxremote"
        open_to_all = (f"{jmx}.authenticate=false", f"{jmx}.ssl=false", "-Djava.rmi.server.hostname=127.0.0.1")
        return (f"{jmx}.port={port}", f"{jmx}.rmi.port={port}", f"{jmx}.host=127.0.0.1", *open_to_all)

    def _starts(self, node: int) -> int:
        log = self.logs(node) / "server.log"
        return log.read_text().count(READY) if log.exists() else 0

    def _wait_until_ready(self, node: int, starts: int) -> None:
        self._nodes[node].until(lambda: self._starts(node) >= starts, f"broker {node}")

    def _client(self, main: str, name: str, *arguments: str) -> Process:
        command = self._command(main, "--bootstrap-server", self.bootstrap, *arguments, of_tools=True)
        self._clients.append(Process(command, self.home / name))
        return self._clients[-1]

    def _alter(self, entities: str, *arguments: str) -> None:
        told = ("--bootstrap-server", self.bootstrap, "--alter", "--entity-type", entities, *arguments)
        self._tool("kafka.admin.ConfigCommand", *told, of_tools=False)  # it is in the brokers' own jar

    def _topics(self, *arguments: str) -> str:
        return self._tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.bootstrap, *arguments)

    def _tool(self, main: str, *arguments: str, of_tools: bool = True) -> str:
        command = self._command(main, *arguments, of_tools=of_tools)
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        if done.returncode:
            raise ChildProcessError(f"{main} {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def _command(self, main: str, *arguments: str, options: tuple[str, ...] = (), of_tools: bool = False) -> list[str]:
        quiet = (f"-Dlog4j2.configurationFile=file:{self.home / 'tools.yaml'}", TOOL_HEAP, *SHORT_LIVED)
        jars = self._release.tools_path if of_tools else self._release.class_path
        return [JAVA, *JVM, *(options or quiet), "-cp", jars, main, *arguments]
