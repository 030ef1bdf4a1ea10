"""What the seen ids cost: `python -m tests.speed.bench_seen [ids]`. Epochs of 100,000 ids, 5 % of them seen before, any time ago."""

from __future__ import annotations

import resource
import sys
import time
from datetime import UTC, datetime, timedelta

import numpy as np

from serving.store.records import SeenIds
from speed_layer.seen import Horizon, Seen, pack

EPOCH_IDS = 100_000
EPOCHS = 50


def main(held: int) -> None:
    random = np.random.default_rng(1)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    ids = random.integers(0, 2**64, size=(held, 2), dtype=np.uint64)
    parts = []
    for at in range(0, held, EPOCH_IDS):
        some = ids[at : at + EPOCH_IDS][np.argsort(ids[at : at + EPOCH_IDS, 0])]
        parts.append(SeenIds(pack(some[:, 0], some[:, 1]), now - timedelta(hours=24) * (1 - at / held)))
    seen = Seen(Horizon(timedelta(hours=24), 10 * held))
    began = time.process_time()
    seen.load(parts, now=now)
    print(f"load {held:,} ids: {time.process_time() - began:.2f} s CPU")

    spent = 0.0
    for epoch in range(EPOCHS):
        new = random.integers(0, 2**64, size=(EPOCH_IDS, 2), dtype=np.uint64)
        new[: EPOCH_IDS // 20] = ids[random.integers(0, held, EPOCH_IDS // 20)]
        first, second = new[:, 0].copy(), new[:, 1].copy()
        at = now + timedelta(seconds=epoch)
        began = time.process_time()
        order = np.argsort(first)
        first, second = first[order], second[order]
        known = seen.find(first, second)
        seen.add(first[~known], second[~known], log_time=at, now=at)
        spent += time.process_time() - began
    print(f"sort, look up and insert at {len(seen):,} ids: {spent / EPOCHS / EPOCH_IDS * 1e6:.3f} us CPU per event")
    print(f"peak memory, with the {16 * held >> 20} MB of test input: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
