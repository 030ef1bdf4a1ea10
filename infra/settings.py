"""All settings, as one frozen typed model. It is built once, at the entry point, and passed down.

Sources, strongest first: environment `SEAM_*`, then `seam.toml` in the working folder, then the defaults here.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from serving.errors import BadSetting


class Guarantee(StrEnum):
    EXACTLY_ONCE = "exactly-once"


class State(StrEnum):
    MANUAL = "manual"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SEAM_", toml_file="seam.toml", frozen=True, extra="forbid")

    home: Path = Field(Path(".seam"), description="Folder of everything this deployment stores: data, logs, secrets.")
    min_free_mb: int = Field(512, ge=0, description="Free megabytes that the disk of the home must have before anything is started.")
    line: str = Field("main", pattern=r"^[a-z][a-z0-9_]{0,30}$", description="The line to work on.")

    kafka_bootstrap: str = Field("", description="Bootstrap servers of an external Kafka; empty starts the embedded broker.")
    kafka_port: int = Field(0, ge=0, le=65535, description="Port of the embedded broker; 0 takes a free one and keeps it.")
    topic: str = Field("transactions", pattern=r"^[a-zA-Z0-9._-]{1,249}$", description="The topic of the line.")
    topic_partitions: int = Field(4, ge=1, le=1024, description="Partitions of the topic where Seam creates it.")

    database_url: SecretStr = Field(SecretStr(""), description="URL of an external PostgreSQL; empty starts the embedded one.")

    jars: str = Field("", description="Folder of the jars; empty means .jars beside the sources.")
    spark_master: str = Field("local[*]", description="Spark master of both layers.")
    spark_driver_memory: str = Field("1g", pattern=r"^\d+[mg]$", description="Heap of the Spark driver.")
    master_dataset: str = Field("", description="Path of the master dataset; empty means a folder under the home.")

    state: State = Field(State.MANUAL, description="Who keeps the speed layer's state.")
    guarantee: Guarantee = Field(Guarantee.EXACTLY_ONCE, description="What a crash of the speed layer may cost.")
    trigger_ms: int = Field(500, ge=50, le=60_000, description="Time between two micro-batches.")
    max_events_per_epoch: int = Field(100_000, ge=1, le=5_000_000, description="Most deliveries one epoch reads.")
    horizon_hours: float = Field(24.0, gt=0, description="How long the speed layer remembers seen ids.")
    horizon_ids: int = Field(50_000_000, ge=1, description="How many seen ids the speed layer remembers at most.")
    source_interval_ms: int = Field(10_000, ge=0, description="How often the source stores its own position.")
    slack_seconds: int = Field(60, ge=0, description="How far the watermark stays behind the greatest event time.")
    stale_after_seconds: int = Field(30, ge=1, description="Age of the speed layer's last sign of life that counts as stale.")

    retained_manifests: int = Field(14, ge=1, description="How many manifests can be rolled back to.")

    api_host: str = Field("127.0.0.1", description="Address the HTTP API binds to.")
    api_port: int = Field(0, ge=0, le=65535, description="Port of the HTTP API; 0 takes a free one and keeps it.")
    prefect_api_url: str = Field("", description="URL of an external Prefect server; empty uses the one of `seam up`, or none.")
    prefect_port: int = Field(0, ge=0, le=65535, description="Port of the Prefect server; 0 takes a free one and keeps it.")

    @property
    def master_dataset_path(self) -> str:
        return self.master_dataset or str(self.home.resolve() / "master_dataset")

    @property
    def jar_folder(self) -> Path:
        return Path(self.jars).resolve() if self.jars else Path(__file__).resolve().parents[1] / ".jars"

    @property
    def batch_folder(self) -> Path:
        """The batch layer's own tables: winners and one result table per view."""
        return self.home.resolve() / "batch"

    @property
    def log_folder(self) -> Path:
        return self.home / "logs"

    @property
    def run_folder(self) -> Path:
        """Process ids, chosen ports and sockets of what is running now."""
        return self.home / "run"

    @property
    def secret_folder(self) -> Path:
        return self.home / "secrets"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**overrides: Any) -> Settings:
    """The settings of this process; one clear line per bad value."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        lines = [f"SEAM_{str(problem['loc'][0]).upper()}: {problem['msg']} (got {problem['input']!r})" for problem in error.errors()]
        raise BadSetting("; ".join(lines), fix="Correct it in the environment or in seam.toml.") from None
