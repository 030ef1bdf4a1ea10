"""What is sent, in order: each event of a tape once, and between them re-deliveries and malformed deliveries.

Like the events, this is a pure function of the tape, the mix and the event's number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import numpy as np

from infra.generator import Bits, Tape, bits_at, chosen, events_at
from infra.malformed import MALFORMED, very_large
from serving.errors import BadRequest

NEAR = 300
"""A near re-delivery follows its event within so many events."""
CHUNK_EVENTS = 4096

_BREAKS = tuple(MALFORMED.values())
_VERY_LARGE_ONE_IN = 200


class Role(StrEnum):
    """Why a delivery is sent."""

    FIRST = "first"
    NEAR = "redelivery_near"
    FAR = "redelivery_far"
    EARLIER = "redelivery_of_earlier_run"
    MALFORMED = "malformed"
    REPLAY = "replay"


class Planned(NamedTuple):
    role: Role
    key: bytes | None
    value: bytes | None
    partition: int | None
    """None leaves the choice to the key."""


class Chunk(NamedTuple):
    """Deliveries of the events (or lines) `first` to `until`, exclusive, in the order of sending."""

    first: int
    until: int
    deliveries: list[Planned]


@dataclass(frozen=True, slots=True)
class Mix:
    """Per event of the tape, how many more deliveries there are of each kind (shares between 0 and 1)."""

    duplicates: float = 0.0
    malformed: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.duplicates <= 1 and 0 <= self.malformed <= 1):
            raise BadRequest(f"shares {self.duplicates} and {self.malformed}.", fix="Give --duplicates and --malformed between 0 and 1.")


def planned_deliveries(
    tape: Tape, mix: Mix, first: int, until: int, *, partitions: int, earlier: Sequence[tuple[bytes | None, bytes]] = ()
) -> Iterator[Chunk]:
    """The deliveries of events `first` to `until`, exclusive, in chunks.

    Re-deliveries are near, far (any earlier event of the tape) or, where there are `earlier` (key, value) pairs, of
    one of those; every second one that is not near goes to a partition of its own choice.
    """
    for start in range(first, until, CHUNK_EVENTS):
        end = min(start + CHUNK_EVENTS, until)
        yield Chunk(start, end, _planned(tape, mix, np.arange(start, end, dtype=np.uint64), partitions, earlier))


def replayed_lines(lines: Iterable[bytes]) -> Iterator[Chunk]:
    """Each line as the value of a delivery, byte for byte without its line end; keyed by its account where it names one."""
    numbered = enumerate(lines)
    while slice_ := list(islice(numbered, CHUNK_EVENTS)):
        values = [line.removesuffix(b"\n") for _, line in slice_]
        first = slice_[0][0]
        yield Chunk(first, first + len(values), [Planned(Role.REPLAY, _account(value), value, None) for value in values])


def _account(value: bytes) -> bytes | None:
    try:
        account = json.loads(value)["account_id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return account.encode("utf-8", "replace") if isinstance(account, str) else None


def _planned(tape: Tape, mix: Mix, indices: Bits, partitions: int, earlier: Sequence[tuple[bytes | None, bytes]]) -> list[Planned]:
    events = events_at(tape, indices)
    again = _redeliveries(tape, mix, indices, partitions, earlier)
    broken = _malformed(tape, mix, indices, partitions, events.values)
    planned: list[Planned] = []
    for place, (key, value) in enumerate(zip(events.keys, events.values, strict=True)):
        planned.append(Planned(Role.FIRST, key, value, None))
        if place in again:
            planned.append(again[place])
        if place in broken:
            planned.append(broken[place])
    return planned


def _redeliveries(
    tape: Tape, mix: Mix, indices: Bits, partitions: int, earlier: Sequence[tuple[bytes | None, bytes]]
) -> dict[int, Planned]:
    """By place in the chunk, what is delivered again after the event there."""
    places = np.flatnonzero(chosen(bits_at(tape, indices, 9), mix.duplicates))
    after = indices[places]
    draws, far_draws = bits_at(tape, after, 10), bits_at(tape, after, 11)
    near_targets = after - far_draws % np.minimum(after + np.uint64(1), np.uint64(NEAR))
    near = draws % np.uint64(2) == 0
    targets = np.where(near, near_targets, far_draws % (after + np.uint64(1)))
    of_earlier = (draws >> np.uint64(1)) % np.uint64(2) == 0 if earlier else np.zeros(len(after), dtype=bool)
    elsewhere = (draws >> np.uint64(2)) % np.uint64(2) == 0
    events = events_at(tape, targets)
    again: dict[int, Planned] = {}
    for number, place in enumerate(places.tolist()):
        role, key, value = (Role.NEAR if near[number] else Role.FAR), events.keys[number], events.values[number]
        if of_earlier[number]:
            role, (key, value) = Role.EARLIER, earlier[int(far_draws[number]) % len(earlier)]  # type: ignore[assignment]
        forced = int(draws[number] >> np.uint64(3)) % partitions if role is not Role.NEAR and elsewhere[number] else None
        again[place] = Planned(role, key, value, forced)
    return again


def _malformed(tape: Tape, mix: Mix, indices: Bits, partitions: int, values: Sequence[bytes]) -> dict[int, Planned]:
    """By place in the chunk, the malformed delivery after the event there."""
    places = np.flatnonzero(chosen(bits_at(tape, indices, 12), mix.malformed))
    draws = bits_at(tape, indices[places], 13).tolist()
    broken: dict[int, Planned] = {}
    for place, draw in zip(places.tolist(), draws, strict=True):
        break_it = very_large if draw % _VERY_LARGE_ONE_IN == 0 else _BREAKS[(draw >> 20) % len(_BREAKS)]
        broken[place] = Planned(Role.MALFORMED, None, break_it(values[place]), (draw >> 40) % partitions)
    return broken
