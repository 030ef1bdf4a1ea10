"""The values that cross the border of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, NewType
from uuid import UUID

from serving.store.vectors import OffsetVector
from views.view import Fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

Token = NewType("Token", UUID)
"""Random, not counted: proves that a writer is the one that last took the line over."""
RunId = NewType("RunId", UUID)
ManifestId = NewType("ManifestId", int)
"""1, 2, 3 … in the order of publishing; 0 is the empty manifest every line begins with."""
SegmentId = NewType("SegmentId", int)


@dataclass(frozen=True, slots=True)
class LineInfo:
    name: str
    topic: str
    topic_id: str
    origin: OffsetVector


@dataclass(frozen=True, slots=True)
class Marker:
    """The last delivery read of one partition: proof, at the next start, that the log is still the same."""

    offset: int
    id_hash: int | None
    """None where that delivery was quarantined."""
    value_hash: int


@dataclass(frozen=True, slots=True)
class Frontier:
    until: OffsetVector
    markers: Mapping[int, Marker]
    epoch: int
    generation: int
    watermark: datetime | None


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """read == counted + duplicates + quarantined, always."""

    read: int
    counted: int
    duplicates: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class QuarantineRow:
    partition: int
    offset: int
    reason: str
    masked: str
    log_time: datetime


@dataclass(frozen=True, slots=True)
class SeenIds:
    """The ids an epoch counted: 16 bytes each (two little-endian int64: `id_hash`, `id_hash2`), concatenated."""

    packed: bytes
    newest_log_time: datetime


@dataclass(frozen=True, slots=True)
class Epoch:
    """All that one micro-batch commits, as one database transaction."""

    start: OffsetVector
    until: OffsetVector
    markers: Mapping[int, Marker]
    partitions: Mapping[int, PartitionCounts]
    late: int
    id_checksum: int
    watermark: datetime | None
    cells: Mapping[Fingerprint, pa.Table]
    """By view: key columns (string), `window_start` (int64, seconds since 1970), then `view.columns` (int64)."""
    seen: SeenIds | None
    quarantine: Sequence[QuarantineRow]


@dataclass(frozen=True, slots=True)
class Generation:
    generation: int
    start: OffsetVector
    cut: OffsetVector | None
    watermark: datetime | None
    read: int = 0
    """How many deliveries its epochs read."""


@dataclass(frozen=True, slots=True)
class Segment:
    segment: SegmentId
    fingerprint: Fingerprint
    day: date
    rows: int
    events: int
    id_checksum: int
    digest: str
    """Of the sorted rows: equal digests mean equal segments."""


@dataclass(frozen=True, slots=True)
class Manifest:
    manifest: ManifestId
    generation: int
    cut: OffsetVector
    watermark: datetime | None
    base: ManifestId | None
    fingerprints: Mapping[str, Fingerprint]
    """View name -> logic fingerprint."""
    segments: Mapping[tuple[Fingerprint, date], SegmentId]
    winner_runs: tuple[RunId, ...]
    """The runs whose winners this manifest is built on; its own is the last."""
    counts: Mapping[str, int]
    checks: Mapping[str, object]
    published_at: datetime
    current: bool = False


@dataclass(frozen=True, slots=True)
class NewManifest:
    """A built result that is not yet published."""

    run: RunId
    base: ManifestId
    base_pointer_version: int
    generation: int
    cut: OffsetVector
    watermark: datetime | None
    fingerprints: Mapping[str, Fingerprint]
    segments: Mapping[tuple[Fingerprint, date], SegmentId]
    winner_runs: tuple[RunId, ...]
    counts: Mapping[str, int]
    checks: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Run:
    """A nightly run: what it starts from and what is sealed beyond it."""

    run: RunId
    base: Manifest
    pointer_version: int
    generations: tuple[Generation, ...]
    """Sealed after the base's, oldest first; the last one's cut is where the run recomputes to."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry removed."""

    manifests: tuple[ManifestId, ...] = ()
    generations: tuple[int, ...] = ()
    segments: tuple[SegmentId, ...] = ()
    speed_rows: int = 0
    batch_rows: int = 0
    epochs_merged: int = 0
    seen_epochs: int = 0
    fingerprints: tuple[Fingerprint, ...] = ()
    """Logic that nothing names any more: its tables were dropped."""


@dataclass(frozen=True, slots=True)
class SeamState:
    line: str
    manifest: ManifestId
    published_at: datetime
    generation: int
    """Of the manifest."""
    cut: OffsetVector
    frontier: OffsetVector
    open_generation: int
    epoch: int
    watermark: datetime | None
    stale_seconds: float | None
    """Age of the speed layer's last sign of life; None before the first."""
    counts: Mapping[str, int]
    """read, counted, duplicates, quarantined and late, since the origin."""

    def to_json(self) -> dict[str, object]:
        return {
            "line": self.line,
            "manifest": self.manifest,
            "published_at": self.published_at.isoformat(),
            "generation": self.generation,
            "cut": self.cut.to_json(),
            "frontier": self.frontier.to_json(),
            "open_generation": self.open_generation,
            "epoch": self.epoch,
            "watermark": self.watermark.isoformat() if self.watermark else None,
            "stale_seconds": self.stale_seconds,
            "counts": dict(self.counts),
        }


@dataclass(frozen=True, slots=True)
class Provenance:
    manifest: ManifestId
    cut: OffsetVector
    frontier: OffsetVector
    from_batch: int
    from_speed: int
    stale_seconds: float | None

    def to_json(self) -> dict[str, object]:
        return {
            "manifest": self.manifest,
            "cut": self.cut.to_json(),
            "frontier": self.frontier.to_json(),
            "from_batch": self.from_batch,
            "from_speed": self.from_speed,
            "stale_seconds": self.stale_seconds,
        }


@dataclass(frozen=True, slots=True)
class Query:
    """One question to one view. `start` and `end` select by `window_start`, half-open."""

    key: Mapping[str, str] = field(default_factory=dict)
    start: datetime | None = None
    end: datetime | None = None
    total: bool = False
    as_of: ManifestId | None = None
    limit: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows with their provenance: the same whether asked by SQL, HTTP, Python or the command line."""

    rows: Sequence[Mapping[str, object]]
    provenance: Provenance
    next: str | None

    def to_json(self) -> dict[str, object]:
        return {"rows": list(self.rows), "provenance": self.provenance.to_json(), "next": self.next}
