"""The demo's report: one HTML file that opens without a network, with a picture of the seam.

It draws what was sampled while the demo ran and knows nothing of how it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 260, 70, 28, 34
_STYLE = """
:root { color-scheme: light dark; --ink:#1d2733; --soft:#5b6b7c; --line:#d8dee6; --page:#fbfcfd; --card:#ffffff;
  --log:#8a97a6; --frontier:#1f77b4; --cut:#d9480f; --batch:#e8894f; --speed:#4a97d2; --good:#1b7f4b; --bad:#c0262d; }
@media (prefers-color-scheme: dark) { :root { --ink:#e4e9ef; --soft:#9aa8b7; --line:#33404d; --page:#12181f; --card:#1a222b;
  --log:#7d8b9a; --frontier:#5cb0ea; --cut:#ff8552; --batch:#e8894f; --speed:#4a97d2; --good:#52c68a; --bad:#ff7a80; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 1040px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
p { color: var(--soft); margin: .2rem 0 .8rem; }
.verdict { font-size: 1.15rem; font-weight: 600; color: var(--good); } .verdict.bad { color: var(--bad); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .5rem; overflow-x: auto; }
svg { width: 100%; min-width: 640px; height: auto; display: block; } svg text { fill: var(--soft); font-size: 12px; }
svg .legend { fill: var(--ink); }
.axis { stroke: var(--line); } .mark { stroke: var(--soft); stroke-dasharray: 3 4; }
table { border-collapse: collapse; width: 100%; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.wide { overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 600; }
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at the running system saw. Positions are sums over the partitions of an offset vector."""

    seconds: float
    log_end: int
    frontier: int
    cut: int
    from_batch: int
    from_speed: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to the system, to be read beside the curves."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Report:
    verdict: str
    exact: bool
    samples: Sequence[Sample]
    marks: Sequence[Mark]
    tables: Sequence[Table]


@dataclass(frozen=True, slots=True)
class _Curve:
    label: str
    colour: str
    value: Callable[[Sample], float]
    area_above: Callable[[Sample], float] | None = None


def write_report(report: Report, path: Path) -> None:
    """Writes the report as one self-contained HTML file.

    Guarantees: the file appears whole or not at all; writing it twice gives the later one.
    """
    pictures = _pictures(report)
    tables = "".join(_table(table) for table in report.tables)
    verdict_class = "verdict" if report.exact else "verdict bad"
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Seam: report of a run</title><style>{_STYLE}</style><h1>Seam</h1>"
        "<p>One log, read twice; every event counted once.</p>"
        f"<p class='{verdict_class}'>{escape(report.verdict)}</p>{pictures}{tables}</html>"
    )
    draft = path.with_suffix(".part")
    draft.write_text(page, encoding="utf-8")
    draft.replace(path)


def _pictures(report: Report) -> str:
    seam = (
        _Curve("log end", "var(--log)", lambda s: s.log_end),
        _Curve("frontier: counted by the speed layer", "var(--frontier)", lambda s: s.frontier),
        _Curve("seam: the cut of the published manifest", "var(--cut)", lambda s: s.cut),
    )
    lag = (_Curve("offsets between log end and frontier", "var(--frontier)", lambda s: s.log_end - s.frontier, lambda _: 0),)
    sides = (
        _Curve("from batch", "var(--batch)", lambda s: s.from_batch, lambda _: 0),
        _Curve("from speed", "var(--speed)", lambda s: s.from_batch + s.from_speed, lambda s: s.from_batch),
    )
    return (
        _figure("The seam", "Below the seam the batch layer answers, between seam and frontier the speed layer.", report, seam)
        + _figure("Lag", "What the log holds and nobody has counted yet.", report, lag)
        + _figure("Who contributed", "Events in the merged total of system_usage, by the side that counted them.", report, sides)
    )


def _figure(title: str, note: str, report: Report, curves: Sequence[_Curve]) -> str:
    if not report.samples:
        return f"<h2>{escape(title)}</h2><p>Nothing was sampled.</p>"
    last = max(sample.seconds for sample in report.samples) or 1.0
    top = max((curve.value(sample) for curve in curves for sample in report.samples), default=0) or 1.0
    plot_width, plot_height = _WIDTH - _LEFT - 30, _HEIGHT - _BOTTOM - _TOP

    def x(seconds: float) -> float:
        return round(_LEFT + plot_width * min(seconds, last) / last, 1)

    def y(value: float) -> float:
        return round(_TOP + plot_height * (1 - value / top), 1)

    parts = [_axes(last, top, x, y), _legend(curves), *(_path(curve, report.samples, x, y) for curve in curves)]
    for number, mark in enumerate(report.marks, 1):
        tip, at = _element("title", escape(mark.text)), x(mark.seconds)
        parts.append(_element("line", tip, class_="mark", x1=at, x2=at, y1=_TOP, y2=_HEIGHT - _BOTTOM))
        parts.append(_element("text", f"{number}{tip}", x=at + 2, y=_TOP + 10 + 12 * (number % 3)))
    steps = " · ".join(f"{number} {escape(mark.text)}" for number, mark in enumerate(report.marks, 1))
    drawing = f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role=img aria-label='{escape(title)}'>{''.join(parts)}</svg>"
    return f"<h2>{escape(title)}</h2><p>{escape(note)}</p><figure>{drawing}</figure><p><small>{steps}</small></p>"


def _legend(curves: Sequence[_Curve]) -> str:
    parts, left = [], _LEFT
    for curve in curves:
        parts.append(_element("rect", x=left, y=8, width=14, height=10, rx=2, fill=curve.colour))
        parts.append(_element("text", escape(curve.label), class_="legend", x=left + 20, y=17))
        left += 40 + 7 * len(curve.label)
    return "".join(parts)


def _axes(last: float, top: float, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    parts = []
    for step in range(5):
        value, seconds = top * step / 4, last * step / 4
        parts.append(_element("line", class_="axis", x1=_LEFT, x2=_WIDTH - 30, y1=y(value), y2=y(value)))
        parts.append(_element("text", f"{value:,.0f}", x=_LEFT - 8, y=y(value) + 4, text_anchor="end"))
        parts.append(_element("text", f"{seconds:.0f} s", x=x(seconds), y=_HEIGHT - 8, text_anchor="middle"))
    return "".join(parts)


def _path(curve: _Curve, samples: Sequence[Sample], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    line = [f"{x(sample.seconds)},{y(curve.value(sample))}" for sample in samples]
    if curve.area_above is None:
        return _element("polyline", points=" ".join(line), fill="none", stroke=curve.colour, stroke_width=2)
    floor = [f"{x(sample.seconds)},{y(curve.area_above(sample))}" for sample in reversed(samples)]
    return _element("polygon", points=" ".join(line + floor), fill=curve.colour, fill_opacity=0.75)


def _element(name: str, content: str = "", **attributes: object) -> str:
    written = "".join(f" {key.rstrip('_').replace('_', '-')}='{value}'" for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<h2>{escape(table.title)}</h2><p>{escape(table.note)}</p><div class=wide><table><tr>{head}</tr>{rows}</table></div>"


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
