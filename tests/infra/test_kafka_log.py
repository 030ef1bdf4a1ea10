from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import xxhash
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from infra.kafka_log import KafkaLog, check_log, ensure_topic, value_hash
from infra.process import wait_until
from serving.errors import BadSetting, LogDiverged, LogUnavailable, OffsetsExpired
from serving.store.records import Frontier, LineInfo, Marker
from serving.store.vectors import OffsetVector
from tests.conftest import Kafka


@dataclass(frozen=True, slots=True)
class Counted:
    """A topic with five deliveries in partition 0, all of them counted."""

    log: KafkaLog
    info: LineInfo
    frontier: Frontier


def send(bootstrap: str, topic: str, values: list[bytes | None]) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, key=b"k", value=value, partition=0)
        producer.flush()


def frontier_at(until: int, last: bytes | None) -> Frontier:
    markers = {0: Marker(until - 1, None, value_hash(last))}
    return Frontier(OffsetVector.of({0: until}), markers, epoch=1, generation=1, watermark=None)


@pytest.fixture
def counted(kafka: Kafka) -> Iterator[Counted]:
    topic = kafka.new_topic(2)
    send(kafka.bootstrap, topic, [b"v%d" % number for number in range(5)])
    with KafkaLog(kafka.bootstrap, topic) as log:
        yield Counted(log, LineInfo("main", topic, log.topic_id(), log.beginning()), frontier_at(5, b"v4"))


def expire_below(bootstrap: str, topic: str, offset: int) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): offset})


def configure(bootstrap: str, topic: str, setting: str, value: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={setting: value})])


def make_again(bootstrap: str, topic: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_topics([topic])
        assert wait_until(lambda: topic not in admin.list_topics(), 10)
    ensure_topic(bootstrap, topic, 2)


def test_the_ends_of_a_log_are_vectors_and_a_position_gives_its_bytes(counted: Counted) -> None:
    log = counted.log
    assert (log.partitions(), log.beginning(), log.end()) == ((0, 1), OffsetVector(), OffsetVector.of({0: 5}))
    assert [log.delivery(0, 0), log.delivery(0, 4), log.delivery(0, 5), log.delivery(1, 0)] == [b"v0", b"v4", None, None]


def test_a_topic_we_make_is_stamped_by_the_broker_never_compacted_and_takes_eight_mebibytes(counted: Counted) -> None:
    config = counted.log.config()
    found = [config[name] for name in ("message.timestamp.type", "cleanup.policy", "max.message.bytes", "retention.ms")]
    assert found == ["LogAppendTime", "delete", str(8 << 20), "-1"]


def test_making_a_topic_that_exists_leaves_it_as_it_is(kafka: Kafka, counted: Counted) -> None:
    before = counted.log.topic_id()
    ensure_topic(kafka.bootstrap, counted.info.topic, 7)
    assert (counted.log.topic_id(), counted.log.partitions()) == (before, (0, 1))


def test_a_log_that_is_unchanged_or_longer_passes_without_a_warning(kafka: Kafka, counted: Counted) -> None:
    assert check_log(counted.log, counted.info, counted.frontier) == []
    send(kafka.bootstrap, counted.info.topic, [b"more"])
    assert check_log(counted.log, counted.info, counted.frontier) == []


def test_a_topic_made_again_has_diverged_even_with_the_same_bytes(kafka: Kafka, counted: Counted) -> None:
    make_again(kafka.bootstrap, counted.info.topic)
    send(kafka.bootstrap, counted.info.topic, [b"v%d" % number for number in range(5)])
    with KafkaLog(kafka.bootstrap, counted.info.topic) as log, pytest.raises(LogDiverged, match="deleted and made again"):
        check_log(log, counted.info, counted.frontier)


def test_other_bytes_at_the_last_delivery_read_have_diverged(counted: Counted) -> None:
    with pytest.raises(LogDiverged, match=r"other bytes .* at offset 4"):
        check_log(counted.log, counted.info, frontier_at(5, b"something else"))


def test_an_end_below_the_frontier_has_diverged(counted: Counted) -> None:
    with pytest.raises(LogDiverged, match="ends at 5, but deliveries up to 6 were counted"):
        check_log(counted.log, counted.info, frontier_at(6, b"v5"))


def test_an_expired_last_delivery_is_a_warning(kafka: Kafka, counted: Counted) -> None:
    expire_below(kafka.bootstrap, counted.info.topic, 5)
    warnings = check_log(counted.log, counted.info, counted.frontier)
    assert len(warnings) == 1
    assert "offset 4, expired" in warnings[0]


def test_an_uncounted_delivery_that_expired_is_an_error(kafka: Kafka, counted: Counted) -> None:
    send(kafka.bootstrap, counted.info.topic, [b"v5", b"v6", b"v7"])
    expire_below(kafka.bootstrap, counted.info.topic, 7)
    with pytest.raises(OffsetsExpired, match="offsets 5 to 6 were never read") as caught:
        check_log(counted.log, counted.info, counted.frontier)
    assert (caught.value.fields["first_missing"], caught.value.fields["first_held"]) == (5, 7)


def test_a_null_value_is_a_delivery_with_hash_zero(kafka: Kafka, counted: Counted) -> None:
    send(kafka.bootstrap, counted.info.topic, [None])
    found = counted.log.find(0, 5)
    assert found is not None
    assert (found.key, found.value) == (b"k", None)
    assert check_log(counted.log, counted.info, frontier_at(6, None)) == []


def test_a_compacted_topic_is_refused_and_create_time_is_a_warning(kafka: Kafka, counted: Counted) -> None:
    configure(kafka.bootstrap, counted.info.topic, "message.timestamp.type", "CreateTime")
    assert "CreateTime" in check_log(counted.log, counted.info, counted.frontier)[0]
    configure(kafka.bootstrap, counted.info.topic, "cleanup.policy", "compact")
    with pytest.raises(BadSetting, match="compacted"):
        check_log(counted.log, counted.info, counted.frontier)


def test_the_mark_of_a_transaction_is_a_hole_and_an_open_transaction_is_beyond_the_end(kafka: Kafka, counted: Counted) -> None:
    topic = counted.info.topic
    with KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value=b"in a transaction", partition=0).get(timeout=10)
        assert counted.log.end() == OffsetVector.of({0: 5})
        producer.commit_transaction()
    assert wait_until(lambda: counted.log.end() == OffsetVector.of({0: 7}), 10)
    assert (counted.log.delivery(0, 5), counted.log.find(0, 6)) == (b"in a transaction", None)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_delivery_is_found_whatever_compression_its_sender_chose(kafka: Kafka, topic: str, compression: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": compression})
    producer.produce(topic, b"sent " * 1000, partition=0)
    assert producer.flush(30) == 0
    with KafkaLog(kafka.bootstrap, topic) as log:
        assert log.delivery(0, 0) == b"sent " * 1000


def test_a_topic_that_is_not_there_is_named(kafka: Kafka) -> None:
    with KafkaLog(kafka.bootstrap, "nowhere") as log, pytest.raises(LogUnavailable, match="no topic nowhere"):
        log.end()


def test_hashes_are_signed_and_seeded_like_sparks() -> None:
    assert value_hash(b"v4") % (1 << 64) == xxhash.xxh64(b"v4", seed=42).intdigest()
    assert all(-(1 << 63) <= value_hash(b"%d" % number) < 1 << 63 for number in range(100))
