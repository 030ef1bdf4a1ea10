"""`seam audit`: every served cell beside an independent recount of the log."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.console import AsJson, note, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from infra.settings import Settings
    from infra.stack import Endpoints
    from serving.audit.recount import Delivery
    from serving.audit.run import AuditReport, Log
    from serving.audit.served import Served
    from serving.store.database import Connection
    from serving.store.vectors import OffsetVector
    from views.view import View

_EXAMPLES = 10


class Way(StrEnum):
    SQL = "sql"
    HTTP = "http"


def register(app: typer.Typer) -> None:
    app.command()(audit)


def audit(
    view: Annotated[list[str] | None, typer.Option(help="Only this view; may be repeated.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, metavar="N", help="Compare N random cells of each view instead of all.")] = None,
    over: Annotated[Way, typer.Option(help="How to ask for what is served.")] = Way.SQL,
    line: Annotated[str, typer.Option(help="The line to audit; the configured one if left out.")] = "",
    from_dump: Annotated[list[Path] | None, typer.Option(help="Recount this dump or ledger instead of the topic; may be repeated.")] = None,
    dump: Annotated[Path | None, typer.Option(help="Also write what was read of the topic to this new file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare what is served with an independent recount of the log; exit code 1 if anything differs."""
    from infra.settings import load_settings
    from infra.stack import endpoints
    from serving.audit import run
    from serving.store.database import connect

    settings = load_settings(**({"line": line} if line else {}))
    views = _views(view)
    found = endpoints(settings)
    with closing(connect(found.database_url, name="seam audit")) as conn:
        log = _log(settings, found, conn, from_dump or (), dump)
        report = run.audit(conn, settings.line, views, log, served=_served(over, found, conn, settings.line), sample=sample)
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)
    if not report.exact:
        raise typer.Exit(1)


def _views(names: Sequence[str] | None) -> list[View]:
    from serving.errors import UnknownView
    from views.registry import ALL_VIEWS, view_named

    chosen = [view_named(name) for name in names or ()]
    for name, view in zip(names or (), chosen, strict=True):
        if view is None:
            raise UnknownView(f"There is no view {name}.", fix=f"One of: {', '.join(known.name for known in ALL_VIEWS)}.", view=name)
    return [view for view in chosen if view is not None] or list(ALL_VIEWS)


def _served(over: Way, found: Endpoints, conn: Connection, line: str) -> Served:
    from serving.audit.served import ServedByHttp, ServedBySql
    from serving.client import Seam
    from serving.errors import StackFault

    if over is Way.SQL:
        return ServedBySql(conn, line)
    if not found.api_url:
        raise StackFault("The HTTP API is not running.", fix="Run: seam up, or audit over SQL: seam audit --over sql")
    return ServedByHttp(Seam(found.api_url, key_file=found.api_key_file))


def _log(settings: Settings, found: Endpoints, conn: Connection, from_dump: Sequence[Path], dump: Path | None) -> Log:
    from serving.audit.sources import keep_dump, read_dump, read_topic

    def deliveries(since: OffsetVector, until: OffsetVector) -> Iterable[Delivery]:
        if from_dump:
            note(f"Recounting {', '.join(map(str, from_dump))}.")
            return chain.from_iterable(map(read_dump, from_dump))
        topic = _same_topic(settings.line, found.kafka_bootstrap, conn)
        note(f"Recounting {topic} from {since} to {until}.")
        read = read_topic(found.kafka_bootstrap, topic, since, until)
        return read if dump is None else keep_dump(read, dump)

    return deliveries


def _same_topic(line: str, bootstrap: str, conn: Connection) -> str:
    """The line's topic, if it still is the one that was counted."""
    from infra.kafka_log import KafkaLog
    from serving.errors import LogDiverged
    from serving.store.schema import read_line

    info = read_line(conn, line)
    assert info is not None, "the audit has read the line before"
    with KafkaLog(bootstrap, info.topic) as log:
        if (topic_id := log.topic_id()) != info.topic_id:
            raise LogDiverged(
                f"Topic {info.topic} is {topic_id}, but {info.topic_id} was counted: it was deleted and made again.",
                fix="Recount from a dump or a ledger: seam audit --from-dump FILE.",
            )
    return info.topic


def _show(report: AuditReport) -> None:
    numbers = ("cells", "differ", "events", "from batch", "from speed")
    rows = [
        (
            each.view,
            *(f"{value:,}" for value in (each.cells_compared, len(each.differences), each.events, each.from_batch, each.from_speed)),
        )
        for each in report.views
    ]
    print_table("", ("view", *numbers), rows, right=numbers)
    for difference in report.differences[:_EXAMPLES]:
        where = " ".join(f"{name}={value}" for name, value in difference.key.items())
        print(f"{difference.view} {where} {difference.window_start}: expected {difference.expected}, served {difference.served}")
    if (more := len(report.differences) - _EXAMPLES) > 0:
        print(f"… and {more:,} more: seam audit --json")
    for problem in report.problems[:_EXAMPLES]:
        print(f"does not add up: {problem}")
    read = report.deliveries
    print(f"{read.read:,} deliveries read = {read.counted:,} counted + {read.duplicates:,} duplicates + {read.quarantined:,} quarantined")
    if report.conflicts:
        print(f"{report.conflicts:,} ids came with more than one payload: the first delivery counts")
    print(f"{report.cells_compared:,} cells compared, {len(report.differences):,} differ")
