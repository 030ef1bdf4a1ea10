from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError

from infra import process
from infra.kafka_broker import KafkaBroker
from infra.kafka_log import KafkaLog, ensure_topic
from infra.settings import Settings, load_settings
from serving.errors import LogUnavailable, StackFault
from tests.conftest import Kafka

pytestmark = pytest.mark.stack


def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, acks="all", max_request_size=9 << 20) as producer:
        for future in [producer.send(topic, value=value, partition=0) for value in values]:
            future.get(timeout=30)


@pytest.fixture
def broker(settings_for: Callable[..., Settings]) -> Iterator[KafkaBroker]:
    broker = KafkaBroker.of(settings_for())
    yield broker
    broker.stop()


def test_data_and_address_survive_a_stop_and_a_kill(broker: KafkaBroker) -> None:
    running = broker.start()
    assert broker.start() == running, "a second start finds the first"
    ensure_topic(broker.bootstrap, "t", 1)
    send(broker.bootstrap, "t", [b"one"])
    assert broker.stop() is True
    assert not broker.healthy()

    again = broker.start()
    send(broker.bootstrap, "t", [b"two"])
    os.kill(again.pid, signal.SIGKILL)
    assert process.wait_until(lambda: not again.alive(), 10)
    assert broker.running() is None

    broker.start()
    with KafkaLog(broker.bootstrap, "t") as log:
        assert [log.delivery(0, 0), log.delivery(0, 1), log.delivery(0, 2)] == [b"one", b"two", None]


def test_a_taken_port_is_said_and_nothing_is_made(broker: KafkaBroker) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", broker.port))
        other.listen()
        with pytest.raises(StackFault, match=rf"Port {broker.port} .* is taken.*SEAM_KAFKA_PORT"):
            broker.start()
    assert not (broker.home / "kafka" / "data").exists()


def test_missing_jars_are_said_with_the_command_that_fetches_them(home: Path) -> None:
    broker = KafkaBroker.of(load_settings(home=home, jars=str(home / "none")))
    with pytest.raises(StackFault, match="make jars"):
        broker.start()


def test_a_broker_that_ends_while_starting_is_said_with_its_last_words(broker: KafkaBroker) -> None:
    (broker.home / "kafka" / "data").mkdir(parents=True)
    (broker.home / "kafka" / "data" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=7\n")
    with pytest.raises(StackFault, match=r"Kafka did not start: .*Stored node id 7"):
        broker.start()
    assert broker.running() is None


def test_topics_are_not_made_by_asking_for_them(kafka: Kafka) -> None:
    with pytest.raises(KafkaError), KafkaProducer(bootstrap_servers=kafka.bootstrap, max_block_ms=1500) as producer:
        producer.send("never-made", value=b"x").get(timeout=2)
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        assert "never-made" not in admin.list_topics()


def test_a_record_of_seven_megabytes_is_kept_and_read_back(kafka: Kafka) -> None:
    topic = kafka.new_topic(1)
    large = os.urandom(7 << 20)
    send(kafka.bootstrap, topic, [large])
    with KafkaLog(kafka.bootstrap, topic) as log:
        assert log.delivery(0, 0) == large


def test_a_broker_that_is_not_there_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(LogUnavailable, match=address):
        KafkaLog(address, "t")
