"""Turns the failures of a Spark job that an operator can act on into errors of the one family."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from serving.errors import DiskFull, LogUnavailable, NightlyLocked, OffsetsExpired, SeamError

_FAULTS: tuple[tuple[tuple[str, ...], type[SeamError], str], ...] = (
    (("No space left on device", "Disk quota exceeded"), DiskFull, "Free some space, then run the same command again."),
    (
        ("ConcurrentTransactionException", "DELTA_CONCURRENT_TRANSACTION", "DELTA_CONCURRENT_WRITE"),
        NightlyLocked,
        "Wait until the other writer is done, then run the same command again.",
    ),
    (
        ("KAFKA_DATA_LOSS", "OffsetOutOfRangeException", "Some data may have been lost"),
        OffsetsExpired,
        "Lengthen the topic's retention and run `seam ingest` more often; see `seam status`.",
    ),
    (
        ("Timeout of", "org.apache.kafka.common.errors.TimeoutException", "DisconnectException"),
        LogUnavailable,
        "Check that Kafka is up: `seam status`.",
    ),
)


@contextmanager
def spark_faults(doing: str) -> Iterator[None]:
    """Runs a piece of Spark work; a failure with a known cause is raised as that, any other one as it is."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        text = str(error)
        for signs, fault, fix in _FAULTS:
            if found := next((sign for sign in signs if sign in text), None):
                raise fault(f"{doing}: {found}.", untouched="Nothing was published.", fix=fix) from error
        raise
