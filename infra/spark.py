"""The one way to get a Spark session. Both layers, the tests and the benchmarks run with these settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infra.disk import disk_errors
from infra.jars import jars_for
from infra.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).resolve().parents[1]


def spark_session(settings: Settings, app: str) -> SparkSession:
    """A session with Delta and the Kafka source, on UTC and loopback, without a web page; the current one if there is one.

    Needs the jars of `make jars`; nothing is downloaded.
    """
    jars = [str(jar) for jar in jars_for(settings.jar_folder, "spark")]
    with disk_errors(settings.home):
        (settings.home.resolve() / "spark" / "tmp").mkdir(parents=True, exist_ok=True)
    # Before pyspark is imported: its Java process and its Python workers inherit these.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.spark_master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    options = spark_options(settings) | {"spark.master": settings.spark_master, "spark.app.name": app, "spark.jars": ",".join(jars)}
    _start_java(settings, options)
    builder = SparkSession.builder
    for key, value in options.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def _start_java(settings: Settings, options: dict[str, str]) -> None:
    """Starts the one Java process of this Python process with all it prints in `logs/spark.log`, apart from a command's own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    with disk_errors(settings.home):
        settings.log_folder.mkdir(parents=True, exist_ok=True)
        log = (settings.log_folder / "spark.log").open("ab")
    with log:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)


def spark_options(settings: Settings) -> dict[str, str]:
    scratch = settings.home.resolve() / "spark"
    options = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.system.home={scratch} -Djava.io.tmpdir={scratch / 'tmp'}",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.executorEnv.PYTHONPATH": str(PROJECT),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": settings.spark_driver_memory,
        # Results come to the driver as Arrow in slices; one micro-batch is bounded by max_events_per_epoch.
        "spark.driver.maxResultSize": "0",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # The defaults, of 200 and 50 tasks, cost more than the work where there are few cores.
        "spark.sql.shuffle.partitions": str(_cores(settings.spark_master)),
        # VACUUM lists files in this many tasks; the default is 10,000, twenty seconds of nothing.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(4 * _cores(settings.spark_master)),
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if settings.spark_master.startswith("local"):
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return options


def _cores(master: str) -> int:
    """Cores of `local[n]` and `local-cluster[workers,cores,memory]`; of this machine for `local[*]` and of a cluster unknown: 8."""
    inside = master.partition("[")[2].rstrip("]").split(",")
    if master.startswith("local-cluster"):
        return int(inside[0]) * int(inside[1])
    if master.startswith("local"):
        return int(inside[0]) if inside[0].isdigit() else (1 if master == "local" else os.cpu_count() or 1)
    return 8
