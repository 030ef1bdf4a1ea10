"""What must hold of an epoch before it may be committed: an event lost or doubled on the way here stops here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serving.errors import ChecksFailed
from serving.store.records import Epoch
from views.view import View


def check_epoch(epoch: Epoch, views: Sequence[View]) -> None:
    """`ChecksFailed` unless positions, counts, cells, seen ids and quarantine rows of the epoch agree with one another."""
    if not epoch.until.reaches(epoch.start):
        raise _failed(f"it ends at {epoch.until}, before its start {epoch.start}")
    for partition, c in epoch.partitions.items():
        if c.read != c.counted + c.duplicates + c.quarantined or min(c.counted, c.duplicates, c.quarantined) < 0:
            raise _failed(
                f"partition {partition} read {c.read}, counted {c.counted}, duplicates {c.duplicates}, quarantined {c.quarantined}"
            )
        if c.read > epoch.until[partition] - epoch.start[partition]:
            raise _failed(f"partition {partition} read {c.read} deliveries between {epoch.start} and {epoch.until}")
    quarantined = sum(c.quarantined for c in epoch.partitions.values())
    if quarantined != len(epoch.quarantine):
        raise _failed(f"{quarantined} deliveries are quarantined, with {len(epoch.quarantine)} rows")
    counted = sum(c.counted for c in epoch.partitions.values())
    packed = len(epoch.seen.packed) if epoch.seen else 0
    if packed != 16 * counted:
        raise _failed(f"{counted} events are counted, with {packed} bytes of seen ids")
    for view in views:
        _check_cells(epoch, view, counted)


def _check_cells(epoch: Epoch, view: View, counted: int) -> None:
    cells = epoch.cells.get(view.fingerprint)
    if cells is None:
        raise _failed(f"{view.name} ({view.fingerprint}) was not folded")
    events = int(np.sum(cells["events"].to_numpy(), dtype=np.int64)) if cells.num_rows else 0
    checksum = int(np.bitwise_xor.reduce(cells["id_checksum"].to_numpy())) if cells.num_rows else 0
    if (events, checksum) != (counted, epoch.id_checksum):
        raise _failed(f"{view.name} holds {events} events with id checksum {checksum}, the epoch {counted} with {epoch.id_checksum}")


def _failed(why: str) -> ChecksFailed:
    return ChecksFailed(
        f"The epoch does not add up: {why}.", untouched="Nothing was written.", fix="Please report this as a fault of the speed layer."
    )
