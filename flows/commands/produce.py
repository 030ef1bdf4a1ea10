"""`seam produce`: made-up transactions, or the lines of a file, into the topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event as StopSignal
from typing import TYPE_CHECKING, Annotated

import typer

from flows.console import AsJson, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infra.deliveries import Chunk
    from infra.generator import Tape
    from infra.producer import Sent
    from infra.settings import Settings


def register(app: typer.Typer) -> None:
    app.command()(produce)


def produce(
    events: Annotated[int, typer.Option(min=1, help="How many distinct events to send.")] = 10_000,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Deliveries a second; as fast as possible if left out.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed, day, span and events make the same events; random if left out.")] = None,
    duplicates: Annotated[float, typer.Option(min=0, max=1, metavar="P", help="Re-deliveries per event.")] = 0.05,
    late: Annotated[float, typer.Option(min=0, max=1, metavar="P", help="Share of events that lie up to 26 hours back.")] = 0.01,
    malformed: Annotated[float, typer.Option(min=0, max=1, metavar="P", help="Malformed deliveries per event.")] = 0.001,
    day: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The UTC day the events happen on; up to now if left out.")
    ] = None,
    span: Annotated[float | None, typer.Option(min=0.0001, metavar="HOURS", help="The stretch of event time they fill.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="A new file for what was sent and acknowledged, in JSON lines.")] = None,
    redeliver_from: Annotated[
        list[Path] | None, typer.Option(help="Ledger of an earlier run, some of whose events are delivered again; may be repeated.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Send the lines of this file as they are, instead of made-up events.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send made-up transactions, or the raw lines of a file, to the topic. Ctrl-C stops cleanly."""
    import secrets

    from infra.deliveries import Mix, Role, planned_deliveries, replayed_lines
    from infra.kafka_log import ensure_topic
    from infra.ledger import LedgerWriter, earlier_events
    from infra.producer import open_producer
    from infra.settings import load_settings

    settings = load_settings()
    mix = Mix(duplicates, malformed)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    tape = _tape(events, rate, seed, late, day, span, now=datetime.now(UTC))
    earlier = [pair for path in redeliver_from or () for pair in earlier_events(path)]
    bootstrap = _bootstrap(settings)
    ensure_topic(bootstrap, settings.topic, settings.topic_partitions)
    producer, partitions = open_producer(bootstrap, settings.topic)
    about: dict[str, object] = {"topic": settings.topic, "seed": seed, "start": tape.start.isoformat(), "gap_us": tape.gap_us, "late": late}
    if source is not None:
        about = {"topic": settings.topic, "from": str(source)}
    with _opened(source) as lines, LedgerWriter(ledger, about) if ledger else nullcontext() as writer:
        chunks = replayed_lines(lines) if lines else planned_deliveries(tape, mix, 0, events, partitions=partitions, earlier=earlier)
        sent = _send(producer, settings.topic, chunks, writer, rate, None if lines else events)
    made = {} if source else {"events": sent.by_role[Role.FIRST]}
    _show(sent, {**about, **made, "ledger": str(ledger) if ledger else None}, as_json)


def _tape(events: int, rate: float | None, seed: int, late: float, day: datetime | None, span: float | None, *, now: datetime) -> Tape:
    """Along the given day; else, at a rate, beside the clock from now on; else over the hour up to now."""
    from infra.generator import Tape

    if day is not None:
        length, start = timedelta(hours=span or 24), day.replace(tzinfo=UTC)
    elif rate is not None:
        length, start = timedelta(hours=span) if span else timedelta(seconds=events / rate), now
    else:
        length = timedelta(hours=span or 1)
        start = now - length
    return Tape(seed=seed, start=start, gap=length / events, late=late)


def _bootstrap(settings: Settings) -> str:
    from infra.stack import kafka_address
    from serving.errors import StackFault

    bootstrap = settings.kafka_bootstrap or kafka_address(settings)
    if not bootstrap:
        raise StackFault(f"Kafka is not running in {settings.home}.", untouched="Nothing was sent.", fix="Run: seam up")
    return bootstrap


@contextmanager
def _opened(source: Path | None) -> Iterator[Iterable[bytes] | None]:
    from serving.errors import BadRequest

    if source is None:
        yield None
        return
    try:
        lines = source.open("rb")
    except OSError as error:
        raise BadRequest(
            f"{source} cannot be read: {error.strerror}.", untouched="Nothing was sent.", fix="Name a file with --from."
        ) from None
    with lines:
        yield lines


@contextmanager
def _stop_on_signals() -> Iterator[StopSignal]:
    """Set on the first Ctrl-C or SIGTERM, so that what is under way can end; a second one ends the process."""
    import signal

    stop = StopSignal()

    def ask(number: int, frame: object) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _send(producer: object, topic: str, chunks: Iterable[Chunk], writer: object, rate: float | None, total: int | None) -> Sent:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from infra.producer import send_all

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, _stop_on_signals() as stop:
        shown = progress.add_task("produce", total=total)

        def advance(chunk: Chunk | None, sent: Sent) -> None:
            if chunk is not None:
                progress.update(shown, completed=chunk.until)

        on_chunk: Callable[[Chunk | None, Sent], None] = advance
        return send_all(producer, topic, chunks, ledger=writer, rate=rate, stop=stop, progress=on_chunk)  # type: ignore[arg-type]


def _show(sent: Sent, about: dict[str, object], as_json: bool) -> None:
    outcome = {
        **about,
        "acknowledged": sent.acknowledged,
        "failed": sent.failed,
        "unknown": sent.unknown,
        "deliveries": {str(role): many for role, many in sorted(sent.by_role.items())},
        "seconds": round(sent.seconds, 3),
        "per_second": round(sent.acknowledged / sent.seconds) if sent.seconds else None,
        "stopped": sent.stopped,
    }
    if as_json:
        print_json(outcome)
    else:
        print_table("", ("", ""), [(name.replace("_", " "), _readable(name, value)) for name, value in outcome.items()])
    if sent.stopped:
        raise typer.Exit(130)
    if sent.failed or sent.unknown:
        raise typer.Exit(1)


def _readable(name: str, value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{part} {many:,}" for part, many in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and name != "seed" else value
