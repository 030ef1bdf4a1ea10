"""A Spark session that lives: after its Java process died, a new one."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from infra.settings import Settings
from infra.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def living_session(settings: Settings) -> SparkSession:
    """The current session, or a new one where there is none or its Java process is gone."""
    _forget_dead_session()
    return spark_session(settings, "seam speed")


def end_session() -> None:
    """Stops the current session, if there is one, and its Java process."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    _forget(stop=True)
    process = getattr(gateway, "proc", None)
    if process is not None and process.poll() is None:
        process.stdin.close()  # it ends when its input does
        with suppress(Exception):
            process.wait(timeout=10)
        if process.poll() is None:
            process.kill()
            process.wait()


def _forget_dead_session() -> None:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        _forget(stop=False)


def _forget(*, stop: bool) -> None:
    """PySpark keeps its session and gateway in class attributes and has no call that clears them for a dead process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is not None:
        with warnings.catch_warnings(), suppress(Exception):
            warnings.simplefilter("ignore")
            session.stop() if stop else session.sparkContext.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
