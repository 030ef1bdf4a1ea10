"""A real Kafka broker from its jars: one node, KRaft, on loopback, data under the home."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path

from infra import process
from infra.disk import disk_errors, disk_full, says_disk_full
from infra.jars import jars_for
from infra.java import java
from infra.ports import LOOPBACK, free_port, kept_port, require_free
from infra.settings import Settings
from serving.errors import SeamError, StackFault

NAME = "kafka"
MAX_RECORD_BYTES = 8 << 20
START_SECONDS = 90
"""A start takes three seconds; after a kill the broker reads its open segments again."""
STOP_SECONDS = 40

CONFIGURATION = """\
# Written by Seam at every start.
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes={max_record_bytes}
replica.fetch.max.bytes={max_record_bytes}
# The log is not Seam's to delete: retention is the operator's decision.
log.retention.ms=-1
# After a kill the open segments are read again: small ones keep that short.
log.segment.bytes=134217728
log.cleaner.dedupe.buffer.size=16777216
# After a kill the controller lets the same node back in only when its old session has ended.
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1000
num.network.threads=2
num.io.threads=4
"""


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    home: Path
    jar_folder: Path
    port: int

    @classmethod
    def of(cls, settings: Settings) -> KafkaBroker:
        """The broker of this home; chooses its port the first time."""
        home = settings.home.resolve()
        return cls(home, settings.jar_folder, kept_port(home / NAME / "port", settings.kafka_port))

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def run_folder(self) -> Path:
        return self.home / "run"

    @property
    def log_file(self) -> Path:
        return self.home / "logs" / f"{NAME}.log"

    def running(self) -> process.Running | None:
        return process.recorded(self.run_folder, NAME)

    def healthy(self) -> bool:
        """True if it answers a metadata request and counts itself among the brokers."""
        return answers_metadata(LOOPBACK, self.port)

    def start(self) -> process.Running:
        """Return once the broker answers.

        Guarantees: running already means nothing is done; data of an earlier run, also a killed one, is kept.
        """
        running = self.running()
        since = self.log_file.stat().st_size if self.log_file.exists() else 0
        if running is None:
            require_free(self.port, "embedded Kafka", "SEAM_KAFKA_PORT")
            running = self._spawn()
        ready = process.wait_until(lambda: self.healthy() or not running.alive(), START_SECONDS)
        if not running.alive() or not ready:
            raise self._fault(since)
        return running

    def stop(self) -> bool:
        """Stop it cleanly; True if it went by itself or was not running."""
        running = self.running()
        return running is None or process.stop(self.run_folder, running, STOP_SECONDS)

    def _spawn(self) -> process.Running:
        properties = self._configure()
        if not (self.home / NAME / "data" / "meta.properties").exists():
            self._format(properties)
        return process.start(self.run_folder, self.log_file, NAME, [*self._java(), "kafka.Kafka", str(properties)], os.environ)

    def _java(self) -> list[str]:
        classpath = ":".join(str(jar) for jar in jars_for(self.jar_folder, NAME))
        logging = [f"-Dorg.slf4j.simpleLogger.{option}" for option in ("defaultLogLevel=warn", "showDateTime=true")]
        return [
            java(),
            "-Xmx512m",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Djava.io.tmpdir={self.home / NAME / 'tmp'}",
            *logging,
            "-cp",
            classpath,
        ]

    def _configure(self) -> Path:
        properties = self.home / NAME / "server.properties"
        with disk_errors(self.home):
            for folder in ("data", "tmp"):
                (self.home / NAME / folder).mkdir(parents=True, exist_ok=True)
            properties.write_text(
                CONFIGURATION.format(
                    host=LOOPBACK,
                    port=self.port,
                    controller_port=free_port(),
                    data=self.home / NAME / "data",
                    max_record_bytes=MAX_RECORD_BYTES,
                )
            )
        return properties

    def _format(self, properties: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        arguments = ["kafka.tools.StorageTool", "format", "--ignore-formatted", f"--cluster-id={cluster}", "--config", str(properties)]
        done = subprocess.run([*self._java(), *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            if says_disk_full(done.stderr + done.stdout):
                raise disk_full(self.home)
            raise StackFault(f"Kafka's data folder could not be made: {(done.stderr or done.stdout).strip()[-400:]}", fix="Then: seam up")

    def _fault(self, since: int) -> SeamError:
        text = process.tail(self.log_file, since, lines=40)
        if says_disk_full(text):
            return disk_full(self.home)
        last = process.tail(self.log_file, since) or "it wrote nothing"
        return StackFault(f"Kafka did not start: {last}", untouched="Its data is kept.", fix=f"See {self.log_file}, then: seam up")


def answers_metadata(host: str, port: int, patience: float = 2.0) -> bool:
    """Ask for the brokers of the cluster (Metadata, version 4, no topics): True if there is one."""
    body = struct.pack(">hhih", 3, 4, 1, 4) + b"seam" + struct.pack(">i?", 0, False)
    try:
        with socket.create_connection((host, port), timeout=patience) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            stream = connection.makefile("rb")
            head = stream.read(16)  # length, correlation, throttle time, number of brokers
        return len(head) == 16 and struct.unpack(">iiii", head)[3] > 0
    except OSError:
        return False
