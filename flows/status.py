"""How the stack of a home is. Reads only: it starts nothing, makes no file, and a part that is down is an answer, not a failure."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from infra import stack
from infra.settings import Settings
from serving.errors import SeamError
from serving.store.vectors import OffsetVector


@dataclass(slots=True)
class Status:
    home: str
    line: str
    topic: str
    processes: dict[str, int]
    kafka_bootstrap: str = ""
    database_url: str = ""
    api_url: str = ""
    api_key_file: str = ""
    prefect_url: str = ""
    frontier: OffsetVector | None = None
    log_end: OffsetVector | None = None
    seam: OffsetVector | None = None
    manifest: int | None = None
    stale_seconds: float | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def lag_offsets(self) -> int | None:
        return None if self.frontier is None or self.log_end is None else self.frontier.distance_to(self.log_end)

    @property
    def caught_up(self) -> bool:
        return self.lag_offsets == 0

    @property
    def masked_database_url(self) -> str:
        parts = urlsplit(self.database_url)
        return self.database_url.replace(f":{parts.password}@", ":…@") if parts.password else self.database_url

    def to_json(self) -> dict[str, object]:
        """The fields that scripts rely on; null where nothing is known. The database URL is whole: it is there to be used."""
        return {
            "home": self.home,
            "line": self.line,
            "kafka": {"bootstrap": self.kafka_bootstrap or None, "topic": self.topic},
            "database": {"url": self.database_url or None},
            "api": {"url": self.api_url or None, "key_file": self.api_key_file or None},
            "prefect": {"url": self.prefect_url or None},
            "processes": self.processes,
            "frontier": self.frontier.to_json() if self.frontier else None,
            "log_end": self.log_end.to_json() if self.log_end else None,
            "seam": self.seam.to_json() if self.seam else None,
            "manifest": self.manifest,
            "lag_offsets": self.lag_offsets,
            "caught_up": self.caught_up,
            "stale_seconds": self.stale_seconds,
            "problems": self.problems,
        }


def read_status(settings: Settings) -> Status:
    """What runs, where it answers, and how far the line has come."""
    alive = {part: found.pid for part, found in stack.running(settings).items()}
    status = Status(str(settings.home.resolve()), settings.line, settings.topic, alive)
    key_file = settings.secret_folder.resolve() / "api.key"
    status.api_key_file = str(key_file) if key_file.exists() else ""
    status.kafka_bootstrap = settings.kafka_bootstrap or stack.kafka_address(settings)
    status.database_url = settings.database_url.get_secret_value() or stack.database_address(settings)
    status.api_url = stack.api_address(settings)
    status.prefect_url = settings.prefect_api_url or stack.prefect_address(settings)
    for look, address in ((_look_at_log, status.kafka_bootstrap), (_look_at_store, status.database_url)):
        if address:
            try:
                look(status)
            except SeamError as error:
                status.problems.append(str(error))
    return status


def _look_at_log(status: Status) -> None:
    from infra.kafka_log import KafkaLog

    with KafkaLog(status.kafka_bootstrap, status.topic) as log:
        status.log_end = log.end()


def _look_at_store(status: Status) -> None:
    from serving.store.database import connect
    from serving.store.read import seam

    with closing(connect(status.database_url, name="seam status")) as conn:
        state = seam(conn, status.line)
    status.frontier, status.seam, status.manifest = state.frontier, state.cut, int(state.manifest)
    status.stale_seconds = state.stale_seconds
