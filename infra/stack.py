"""The parts of one deployment on this machine: which run, where they answer, how to start and stop them.

Knows processes, ports and files under the home. What a part needs from the store is made by whoever brings the stack up.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra import process
from infra.disk import disk_errors
from infra.kafka_broker import KafkaBroker
from infra.ports import LOOPBACK, kept_port, require_free
from infra.postgres import Postgres, write_secret
from infra.settings import Settings
from serving.errors import BadSetting, StackFault

PARTS = ("kafka", "postgres", "prefect", "speed", "api")
"""In the order they are started."""
STOP_ORDER = ("speed", "api", "prefect", "kafka", "postgres")
"""The writer first; what it writes to last."""
STOP_SECONDS = {"speed": 90.0, "api": 15.0, "prefect": 15.0}
PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the services answer. `api_url` and `prefect_api_url` are empty where that part does not run."""

    kafka_bootstrap: str
    database_url: str
    api_url: str
    api_key_file: Path
    prefect_api_url: str


def endpoints(settings: Settings) -> Endpoints:
    """Where to find the services: external ones as set, the others as running in this home; `StackFault` if Kafka or the store is not."""
    return Endpoints(
        kafka_bootstrap=settings.kafka_bootstrap or _required(kafka_address(settings), "Kafka", settings),
        database_url=settings.database_url.get_secret_value() or _required(database_address(settings), "PostgreSQL", settings),
        api_url=api_address(settings),
        api_key_file=settings.secret_folder.resolve() / "api.key",
        prefect_api_url=settings.prefect_api_url or prefect_address(settings),
    )


def _required(address: str, part: str, settings: Settings) -> str:
    if not address:
        raise StackFault(f"{part} is not running in {settings.home}.", fix="Run: seam up", home=str(settings.home))
    return address


def kafka_address(settings: Settings) -> str:
    return KafkaBroker.of(settings).bootstrap if process.recorded(settings.run_folder, "kafka") else ""


def database_address(settings: Settings) -> str:
    return Postgres.of(settings).url if process.recorded(settings.run_folder, "postgres") else ""


def api_address(settings: Settings) -> str:
    ready = settings.run_folder / "api.json"
    if process.recorded(settings.run_folder, "api") is None or not ready.is_file():
        return ""
    return str(json.loads(ready.read_text())["url"])


def prefect_address(settings: Settings) -> str:
    if process.recorded(settings.run_folder, "prefect") is None:
        return ""
    return f"http://{LOOPBACK}:{_prefect_port(settings)}/api"


def running(settings: Settings) -> dict[str, process.Running]:
    """The parts that live in this home."""
    found = {part: process.recorded(settings.run_folder, part) for part in PARTS}
    return {part: one for part, one in found.items() if one is not None}


def external(settings: Settings) -> set[str]:
    """The parts that the settings say are somewhere else."""
    elsewhere = {
        "kafka": settings.kafka_bootstrap,
        "postgres": settings.database_url.get_secret_value(),
        "prefect": settings.prefect_api_url,
    }
    return {part for part, address in elsewhere.items() if address}


def chosen(only: str) -> tuple[str, ...]:
    """The parts named in `--only`, all of them if it is empty, in the order they are started."""
    names = {name.strip() for name in only.split(",") if name.strip()} or set(PARTS)
    if unknown := sorted(names - set(PARTS)):
        raise BadSetting(f"There is no part named {unknown[0]}.", fix=f"--only takes some of: {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in names)


@contextmanager
def exclusive(settings: Settings) -> Iterator[None]:
    """Hold the home while parts are started or stopped; a second holder is refused, not kept waiting."""
    with disk_errors(settings.home):
        settings.run_folder.mkdir(parents=True, exist_ok=True)
        lock = (settings.run_folder / "lock").open("a+")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise StackFault(
                f"Another seam up or down works on {settings.home} (pid {holder}).",
                untouched="Nothing was started or stopped.",
                fix="Wait until it has ended: seam status",
            ) from None
        with disk_errors(settings.home):
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
        yield


def make_keys(settings: Settings) -> None:
    """A read key and an admin key of 256 random bits, in files that only the owner can read.

    Guarantees: keys that exist are kept.
    """
    with disk_errors(settings.home):
        settings.secret_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("api.key", "admin.key"):
            if not (settings.secret_folder / name).exists():
                write_secret(settings.secret_folder.resolve() / name, secrets.token_urlsafe(32))


def start_prefect(settings: Settings) -> process.Running:
    """Start the Prefect server; it needs some seconds until it answers."""
    port = _prefect_port(settings)
    require_free(port, "Prefect server", "SEAM_PREFECT_PORT")
    home = settings.home.resolve() / "prefect"
    environment = child_environment(settings) | {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://{LOOPBACK}:{port}/api",
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home}/prefect.db",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    command = ["-m", "prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
    return _start(settings, "prefect", command, environment)


def start_speed(settings: Settings) -> process.Running:
    """Start the speed layer; it gives its first sign of life when Spark is up."""
    return _start(settings, "speed", ["-m", "flows.cli", "speed"], child_environment(settings))


def start_api(settings: Settings) -> process.Running:
    """Start the HTTP interface; it writes `run/api.json` once it listens."""
    home = settings.home.resolve()
    port = kept_port(home / "run" / "api.port", settings.api_port)
    require_free(port, "HTTP API", "SEAM_API_PORT")
    url_file, ready = home / "secrets" / "database_url", home / "run" / "api.json"
    ready.unlink(missing_ok=True)
    with disk_errors(settings.home):
        write_secret(url_file, endpoints(settings).database_url)
    command = ["-m", "serving.api", "--line", settings.line, "--host", settings.api_host, "--port", str(port)]
    command += ["--secrets", str(home / "secrets"), "--database-url-file", str(url_file), "--ready-file", str(ready)]
    return _start(settings, "api", command, child_environment(settings))


def stop_part(settings: Settings, part: str) -> bool:
    """Stop one part if it lives; True if it went by itself or was not running."""
    if part == "kafka":
        return KafkaBroker.of(settings).stop()
    if part == "postgres":
        return Postgres.of(settings).stop()
    found = process.recorded(settings.run_folder, part)
    return found is None or process.stop(settings.run_folder, found, STOP_SECONDS[part])


def log_file(settings: Settings, part: str) -> Path:
    return settings.log_folder.resolve() / f"{part}.log"


def child_environment(settings: Settings) -> dict[str, str]:
    """The environment in which a child reads exactly these settings, wherever they came from."""
    ours = {f"SEAM_{name.upper()}": value for name, value in settings.model_dump(mode="json", exclude_defaults=True).items()}
    if settings.database_url.get_secret_value():
        ours["SEAM_DATABASE_URL"] = settings.database_url.get_secret_value()
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **{k: str(v) for k, v in ours.items()}, "SEAM_HOME": str(settings.home.resolve()), "PYTHONPATH": path}


def _start(settings: Settings, part: str, arguments: Sequence[str], environment: dict[str, str]) -> process.Running:
    return process.start(settings.run_folder, log_file(settings, part), part, [sys.executable, *arguments], environment)


def _prefect_port(settings: Settings) -> int:
    return kept_port(settings.home.resolve() / "run" / "prefect.port", settings.prefect_port)
