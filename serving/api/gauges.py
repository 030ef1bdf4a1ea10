"""The state of the seam as gauges."""

from __future__ import annotations

from serving.api.metrics import Gauge
from serving.store.records import SeamState
from serving.store.vectors import OffsetVector


def of_state(state: SeamState | None) -> list[Gauge]:
    """None means that the store does not answer: then that is all there is to say."""
    up: Gauge = ("seam_store_up", "1 while the store answers.", [({}, 0 if state is None else 1)])
    if state is None:
        return [up]
    gauges: list[Gauge] = [
        up,
        ("seam_manifest", "The published manifest.", [({}, state.manifest)]),
        ("seam_generation", "The open generation.", [({}, state.open_generation)]),
        ("seam_epoch", "The last committed epoch.", [({}, state.epoch)]),
        ("seam_cut_offset", "Where the batch side ends.", _by_partition(state.cut)),
        ("seam_frontier_offset", "Where the speed side ends.", _by_partition(state.frontier)),
        ("seam_published_timestamp_seconds", "When the manifest was published.", [({}, state.published_at.timestamp())]),
        (
            "seam_deliveries",
            "Deliveries since the origin, by what became of them.",
            [({"outcome": name}, count) for name, count in state.counts.items()],
        ),
    ]
    if state.stale_seconds is not None:
        gauges.append(("seam_stale_seconds", "Age of the speed layer's last sign of life.", [({}, state.stale_seconds)]))
    if state.watermark is not None:
        gauges.append(("seam_watermark_timestamp_seconds", "The watermark of the frontier.", [({}, state.watermark.timestamp())]))
    return gauges


def _by_partition(vector: OffsetVector) -> list[tuple[dict[str, str], float]]:
    return [({"partition": str(partition)}, next_offset) for partition, next_offset in vector]
