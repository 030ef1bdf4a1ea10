"""Counters of this process in the Prometheus text format. One event loop writes them, so there are no locks."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Gauge = tuple[str, str, Iterable[tuple[dict[str, str], float]]]
"""Name, help, and (labels, value) for each sample."""


class RequestMetrics:
    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = defaultdict(float)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests[method, route, status] += 1
        self._seconds[route] += seconds
        buckets = self._buckets.get(route)
        if buckets is None:
            buckets = self._buckets[route] = [0] * (len(_BUCKETS) + 1)
        buckets[bisect_left(_BUCKETS, seconds)] += 1

    def render(self, gauges: Iterable[Gauge]) -> str:
        lines = ["# HELP seam_http_requests_total Requests answered.", "# TYPE seam_http_requests_total counter"]
        for (method, route, status), count in sorted(self._requests.items()):
            lines.append(_sample("seam_http_requests_total", {"method": method, "route": route, "status": str(status)}, count))
        lines += ["# HELP seam_http_request_seconds Time to answer.", "# TYPE seam_http_request_seconds histogram"]
        for route, counts in sorted(self._buckets.items()):
            lines += self._histogram(route, counts)
        for name, text, samples in gauges:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
            lines += [_sample(name, labels, value) for labels, value in samples]
        return "\n".join(lines) + "\n"

    def _histogram(self, route: str, counts: list[int]) -> list[str]:
        lines, below = [], 0
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), counts, strict=True):
            below += count
            lines.append(_sample("seam_http_request_seconds_bucket", {"route": route, "le": bound}, below))
        lines.append(_sample("seam_http_request_seconds_sum", {"route": route}, self._seconds[route]))
        lines.append(_sample("seam_http_request_seconds_count", {"route": route}, below))
        return lines


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
