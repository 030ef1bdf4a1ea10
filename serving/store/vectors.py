"""Offset vectors: for each partition of a topic the next offset. A partition that is absent is at 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetVector:
    """Immutable; zero entries are dropped, so two vectors are equal exactly when they name the same positions."""

    _next: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, offsets: Mapping[int, int]) -> OffsetVector:
        if any(partition < 0 or offset < 0 for partition, offset in offsets.items()):
            raise ValueError(f"negative partition or offset in {dict(offsets)}")
        return cls(tuple(sorted((partition, offset) for partition, offset in offsets.items() if offset)))

    @classmethod
    def from_json(cls, offsets: Mapping[str, int]) -> OffsetVector:
        return cls.of({int(partition): int(offset) for partition, offset in offsets.items()})

    def to_json(self) -> dict[str, int]:
        return {str(partition): offset for partition, offset in self._next}

    def __getitem__(self, partition: int) -> int:
        return dict(self._next).get(partition, 0)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._next)

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(partition for partition, _ in self._next)

    def reaches(self, other: OffsetVector) -> bool:
        """True if this vector is at or beyond `other` in every partition."""
        return all(self[partition] >= offset for partition, offset in other)

    def union(self, other: OffsetVector) -> OffsetVector:
        """The greater offset of each partition."""
        return OffsetVector.of({p: max(self[p], other[p]) for p in {*self.partitions, *other.partitions}})

    def distance_to(self, other: OffsetVector) -> int:
        """How many offsets lie between this vector and a later one. Offsets have holes: this is not a count of events."""
        return sum(max(0, offset - self[partition]) for partition, offset in other)

    def __str__(self) -> str:
        return "{" + ", ".join(f"{partition}: {offset}" for partition, offset in self._next) + "}"
