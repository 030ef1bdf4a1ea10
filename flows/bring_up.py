"""Brings the stack of one home up and down: the parts in order, and between them the topic, the line and the keys."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from urllib.error import URLError

from infra import process, stack
from infra.disk import disk_full, require_space, says_disk_full
from infra.kafka_broker import KafkaBroker
from infra.postgres import Postgres
from infra.settings import Settings
from serving.errors import SeamError, StackFault

READY_SECONDS = 120
SIGN_OF_LIFE_SECONDS = 3.0
Say = Callable[[str], None]


def bring_up(settings: Settings, parts: tuple[str, ...], say: Say) -> None:
    """Start what is not running and return when all of it answers.

    Guarantees: run twice, it starts nothing twice; if a part fails, those that run go on and the next `seam up` continues.
    """
    with stack.exclusive(settings):
        missing = [part for part in parts if part not in stack.running(settings) and part not in stack.external(settings)]
        if missing:
            require_space(settings.home, settings.min_free_mb)
        stack.make_keys(settings)
        for part in ("kafka", "postgres"):
            if part in parts:
                _start_embedded(settings, part, say)
        if {"kafka", "postgres"} <= {*stack.running(settings), *stack.external(settings)}:
            prepare_line(settings)
        _start_rest(settings, missing, say)


def prepare_line(settings: Settings) -> None:
    """Make the topic and the line, which begins where the log begins now.

    Guarantees: what exists is kept as it is; the origin of a line is set once.
    """
    from infra.kafka_log import KafkaLog, ensure_topic
    from serving.store.database import connect
    from serving.store.records import LineInfo
    from serving.store.schema import create_line, ensure_views, read_line
    from views.registry import ALL_VIEWS

    found = stack.endpoints(settings)
    with closing(connect(found.database_url, name="seam up")) as conn:
        if read_line(conn, settings.line) is not None:
            ensure_views(conn, settings.line, ALL_VIEWS)
            return
        ensure_topic(found.kafka_bootstrap, settings.topic, settings.topic_partitions)
        with KafkaLog(found.kafka_bootstrap, settings.topic) as log:
            info = LineInfo(settings.line, settings.topic, log.topic_id(), log.beginning())
        create_line(conn, info, ALL_VIEWS)


def bring_down(settings: Settings, say: Say) -> None:
    """Stop what runs, the speed layer first, each cleanly; what is stopped already is left alone."""
    if not settings.run_folder.exists():
        return
    with stack.exclusive(settings):
        for part in stack.STOP_ORDER:
            if part in stack.running(settings):
                began = time.monotonic()
                clean = stack.stop_part(settings, part)
                say(f"{part}: {'stopped' if clean else 'did not stop when asked and was killed'} ({time.monotonic() - began:.1f} s)")


def _start_embedded(settings: Settings, part: str, say: Say) -> None:
    if part in stack.external(settings):
        say(f"{part}: external, as set")
        return
    began, before = time.monotonic(), stack.running(settings)
    if part == "kafka":
        broker = KafkaBroker.of(settings)
        broker.start()
        where = broker.bootstrap
    else:
        server = Postgres.of(settings)
        server.start()
        where = f"127.0.0.1:{server.port}"
    say(f"{part}: {'runs already' if part in before else 'ready'} at {where} ({time.monotonic() - began:.1f} s)")


def _start_rest(settings: Settings, missing: list[str], say: Say) -> None:
    """Start Prefect, the speed layer and the API together, then wait for each."""
    starters = {"prefect": stack.start_prefect, "speed": stack.start_speed, "api": stack.start_api}
    began, waits = time.monotonic(), []
    for part in (part for part in missing if part in starters):
        if part == "speed" and _speed_lives_elsewhere(settings):
            say("speed: runs already, started by someone else")
            continue
        file = stack.log_file(settings, part)
        since = file.stat().st_size if file.exists() else 0
        waits.append((part, starters[part](settings), since))
    for part, started, since in waits:
        _await(settings, part, started, since, began)
        say(f"{part}: ready ({time.monotonic() - began:.1f} s)")


def _await(settings: Settings, part: str, started: process.Running, since: int, began: float) -> None:
    ready = {"prefect": _prefect_answers, "speed": lambda s: _speed_lives(s, time.monotonic() - began), "api": _api_answers}[part]
    process.wait_until(lambda: ready(settings) or not started.alive(), READY_SECONDS, every=0.2)
    if not started.alive() or not ready(settings):
        raise _fault(settings, part, since, started.alive())


def _fault(settings: Settings, part: str, since: int, alive: bool) -> SeamError:
    file = stack.log_file(settings, part)
    if says_disk_full(process.tail(file, since, lines=40)):
        return disk_full(settings.home)
    what = f"does not answer after {READY_SECONDS} s" if alive else "ended at once"
    last = process.tail(file, since, lines=1) or "it wrote nothing"
    return StackFault(f"{part} {what}: {last}", untouched="The other parts run on.", fix=f"See {file}, then: seam up", part=part)


def _speed_age(settings: Settings) -> float | None:
    from serving.store.database import connect
    from serving.store.read import seam

    with closing(connect(stack.endpoints(settings).database_url, name="seam up")) as conn:
        return seam(conn, settings.line).stale_seconds


def _speed_lives(settings: Settings, within: float) -> bool:
    age = _speed_age(settings)
    return age is not None and age < within


def _speed_lives_elsewhere(settings: Settings) -> bool:
    """True if the sign of life gets younger while we look: that of a killed one only gets older."""
    first = _speed_age(settings)
    if first is None or first > SIGN_OF_LIFE_SECONDS:
        return False
    return process.wait_until(lambda: (_speed_age(settings) or 0.0) < first, SIGN_OF_LIFE_SECONDS, every=0.2)


def _prefect_answers(settings: Settings) -> bool:
    return _http_ok(f"{stack.prefect_address(settings)}/health")


def _api_answers(settings: Settings) -> bool:
    address = stack.api_address(settings)
    return bool(address) and _http_ok(f"{address}/healthz")


def _http_ok(url: str) -> bool:
    # Loopback only, so never through a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError, ValueError):
        return False
