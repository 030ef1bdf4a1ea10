"""Windows: which stretch of event time a cell covers. Every window is half-open and aligned to the UTC epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one length, side by side. The length divides a day, so that no window crosses an event day."""

    length: timedelta

    def __post_init__(self) -> None:
        seconds = self.length.total_seconds()
        if seconds < 1 or seconds != int(seconds) or 86_400 % int(seconds):
            raise ValueError(f"a tumbling window is a whole number of seconds that divides a day, not {self.length}")

    @property
    def seconds(self) -> int:
        return int(self.length.total_seconds())

    def start(self, event_time: datetime) -> datetime:
        """The start of the one window that holds `event_time`."""
        return event_time - (event_time - _EPOCH) % self.length

    def definition(self) -> dict[str, object]:
        return {"window": "tumbling", "seconds": self.seconds}


def minutes(count: int) -> Tumbling:
    return Tumbling(timedelta(minutes=count))


def days(count: int) -> Tumbling:
    return Tumbling(timedelta(days=count))
