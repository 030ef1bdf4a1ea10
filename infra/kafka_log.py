"""The log as a reader sees it: one topic, its positions, and whether it still is the log that was counted.

Both layers ask the same questions here before they read; neither needs to know the client library.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import confluent_kafka
import xxhash
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from infra.kafka_broker import MAX_RECORD_BYTES
from serving.errors import BadSetting, LogDiverged, LogUnavailable, OffsetsExpired
from serving.store.records import Frontier, LineInfo, Marker
from serving.store.vectors import OffsetVector

PATIENCE_MS = 10_000
"""For one answer of a broker that is there."""
REACH_MS = 5_000
"""For a broker to be there."""
HASH_SEED = 42
logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what it says is said again, once, by the errors raised here


@dataclass(frozen=True, slots=True)
class Delivery:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    log_time: datetime


class KafkaLog:
    """One topic of a cluster, read as committed. A context manager: leaving it closes the connections."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._consumer: Any = None
        with _kafka_errors(bootstrap):
            self._admin = _admin(bootstrap)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._admin.close()
        if self._consumer is not None:
            self._consumer.close()

    def topic_id(self) -> str:
        """The topic's identity: another one after it was deleted and made again."""
        return str(self._describe()["topic_id"])

    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted(partition["partition_index"] for partition in self._describe()["partitions"]))

    def beginning(self) -> OffsetVector:
        """The first offset that is still there, per partition."""
        return self._offsets(OffsetSpec.EARLIEST)

    def end(self) -> OffsetVector:
        """The offset after the last delivery that a reader of committed ones may see, per partition."""
        return self._offsets(OffsetSpec.LATEST)

    def config(self) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, self.topic)
        with _kafka_errors(self.bootstrap):
            found = self._admin.describe_configs([resource], config_filter="all")["topic"][self.topic]
        return {name: str(entry["value"]) for name, entry in found.items()}

    def delivery(self, partition: int, offset: int) -> bytes | None:
        """The bytes at a position; None if it holds a null value or nothing."""
        found = self.find(partition, offset)
        return found.value if found else None

    def find(self, partition: int, offset: int) -> Delivery | None:
        """The delivery at a position; None if it expired, is not written yet, or the position is a hole."""
        if not self.beginning()[partition] <= offset < self.end()[partition]:
            return None
        consumer = self._reader()
        consumer.assign([confluent_kafka.TopicPartition(self.topic, partition, offset)])
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                return _delivery(message) if message.offset() == offset else None
            if message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return None
        raise LogUnavailable(f"{self.topic}/{partition}: offset {offset} could not be read in {PATIENCE_MS // 1000} s.", fix="seam status")

    def _reader(self) -> Any:
        """librdkafka, as it reads every compression that Spark reads."""
        if self._consumer is None:
            self._consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": "seam-log",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "error",
                    # What is asked for is there or is not: waiting half a second for more would delay every next question.
                    "fetch.wait.max.ms": 10,
                },
                logger=logging.getLogger("kafka"),
            )
        return self._consumer

    def _describe(self) -> Mapping[str, Any]:
        with _kafka_errors(self.bootstrap):
            found = self._admin.describe_topics([self.topic])
        if not found or found[0]["error_code"] or not found[0]["partitions"]:
            raise LogUnavailable(f"There is no topic {self.topic} at {self.bootstrap}.", fix="Run: seam up", topic=self.topic)
        described: Mapping[str, Any] = found[0]
        return described

    def _offsets(self, spec: Any) -> OffsetVector:
        places = {TopicPartition(self.topic, partition): spec for partition in self.partitions()}
        with _kafka_errors(self.bootstrap):
            found = self._admin.list_partition_offsets(places, isolation_level="read_committed", timeout_ms=PATIENCE_MS)
        return OffsetVector.of({place.partition: entry.offset for place, entry in found.items()})


def ensure_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Make the topic if it is not there: LogAppendTime, records up to 8 MiB, never compacted.

    Guarantees: a topic that exists is left as it is; running it twice is harmless.
    """
    settings = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(MAX_RECORD_BYTES), "cleanup.policy": "delete"}
    with _kafka_errors(bootstrap), _admin(bootstrap) as admin:
        if topic not in admin.list_topics():
            try:
                admin.create_topics({topic: {"num_partitions": partitions, "configs": settings}})
            except TopicAlreadyExistsError:
                return
            admin.wait_for_topics([topic], timeout_ms=PATIENCE_MS)


def check_log(log: KafkaLog, info: LineInfo, frontier: Frontier) -> list[str]:
    """Prove that the log still is the one that was counted and that nothing uncounted is gone; return warnings.

    Raises `LogDiverged` (another topic id, an end below the frontier, other bytes at the last delivery read), `OffsetsExpired`
    (deliveries at or above the frontier are gone) and `BadSetting` (a compacted topic).
    """
    found_id = log.topic_id()
    if found_id != info.topic_id:
        raise _diverged(info, f"Topic {info.topic} is {found_id}, but {info.topic_id} was counted: it was deleted and made again.")
    config = log.config()
    if "compact" in config.get("cleanup.policy", ""):
        raise BadSetting(
            f"Topic {info.topic} is compacted: Kafka deletes deliveries that must be counted.",
            fix="Set its cleanup.policy to delete, or name another topic in SEAM_TOPIC.",
        )
    beginning, end = log.beginning(), log.end()
    for partition, until in frontier.until:
        if end[partition] < until:
            raise _diverged(info, f"{info.topic}/{partition} ends at {end[partition]}, but deliveries up to {until} were counted.")
    for partition, first in beginning:
        if first > frontier.until[partition]:
            raise _expired(info, partition, frontier.until[partition], first)
    warnings = [] if config.get("message.timestamp.type") == "LogAppendTime" else [_create_time_warning(info)]
    for partition, marker in sorted(frontier.markers.items()):
        warnings += _check_marker(log, info, partition, marker, beginning[partition])
    return warnings


def value_hash(value: bytes | None) -> int:
    """XXH64 with the seed Spark uses, as a signed 64-bit integer; 0 for a null value."""
    unsigned = 0 if value is None else xxhash.xxh64_intdigest(value, HASH_SEED)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def _check_marker(log: KafkaLog, info: LineInfo, partition: int, marker: Marker, first: int) -> list[str]:
    if marker.offset < first:
        return [f"{info.topic}/{partition}: the last delivery read, at offset {marker.offset}, expired; its bytes cannot be checked."]
    found = log.find(partition, marker.offset)
    if found is None or value_hash(found.value) != marker.value_hash:
        what = "nothing" if found is None else "other bytes than those that were counted"
        raise _diverged(info, f"{info.topic}/{partition} holds {what} at offset {marker.offset}.")
    return []


def _diverged(info: LineInfo, what: str) -> LogDiverged:
    return LogDiverged(
        what,
        untouched="Nothing was written.",
        fix="If that was intended, start a new line (SEAM_LINE) on this topic; what was counted stays readable.",
        line=info.name,
        topic=info.topic,
    )


def _expired(info: LineInfo, partition: int, until: int, first: int) -> OffsetsExpired:
    return OffsetsExpired(
        f"{info.topic}/{partition}: offsets {until} to {first - 1} were never read and Kafka has deleted them.",
        untouched="Nothing was written.",
        fix="If the master dataset holds them: seam speed --from-master. Raise the topic's retention.ms.",
        topic=info.topic,
        partition=partition,
        first_missing=until,
        first_held=first,
    )


def _create_time_warning(info: LineInfo) -> str:
    return (
        f"Topic {info.topic} uses CreateTime: producers' clocks decide how long ids are remembered. "
        "Set its message.timestamp.type to LogAppendTime."
    )


def _delivery(message: Any) -> Delivery:
    log_time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=message.timestamp()[1])
    return Delivery(message.partition(), message.offset(), message.key(), message.value(), log_time)


def _admin(bootstrap: str) -> Any:
    return KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=PATIENCE_MS, bootstrap_timeout_ms=REACH_MS)


@contextmanager
def _kafka_errors(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except UnknownTopicOrPartitionError as error:
        raise LogUnavailable(f"Kafka at {bootstrap} has no such topic: {error}.", fix="Run: seam up") from error
    except KafkaError as error:
        raise LogUnavailable(
            f"Kafka at {bootstrap} does not answer: {type(error).__name__} {error}.".replace(" .", "."), fix="Run: seam status"
        ) from error
