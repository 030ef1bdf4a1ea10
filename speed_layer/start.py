"""From the store to a running speed layer: who may write, how far was read, what was seen, and whether the log is still the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from infra.kafka_log import KafkaLog
from infra.settings import Settings
from serving.errors import Fenced, LogDiverged, StreamFailed
from serving.store import epochs, read, schema
from serving.store.database import Connection
from serving.store.other_rules import begin_of_other_rules
from serving.store.records import Frontier, LineInfo, Token
from serving.store.vectors import OffsetVector
from speed_layer.seen import Horizon, Seen
from views.view import View

log = logging.getLogger("seam.speed")

_DEAD_AFTER_SECONDS = 3.0
"""A living speed layer gives a sign every second."""


@dataclass(frozen=True, slots=True)
class Start:
    """All that a life of the speed layer begins with, read after its token was taken."""

    token: Token
    frontier: Frontier
    source_position: OffsetVector
    seen: Seen
    other_rules_from: OffsetVector | None
    """Where epochs of other event rules begin inside the horizon: from there the ids are to be read again."""


def open_line(conn: Connection, kafka: KafkaLog, line: str, views: Sequence[View]) -> LineInfo:
    """The stored line, made with the log's present beginning as its origin if it is new; every view has its tables."""
    stored = schema.read_line(conn, line)
    if stored is None:
        return schema.create_line(conn, LineInfo(line, kafka.topic, kafka.topic_id(), kafka.beginning()), views)
    schema.ensure_views(conn, line, views)
    return stored


def require_same_topic(kafka: KafkaLog, info: LineInfo) -> None:
    """`LogDiverged` if the topic was deleted and made again: what is read then was never part of this log."""
    if (found := kafka.topic_id()) != info.topic_id:
        raise LogDiverged(
            f"Topic {info.topic} is {found}, but {info.topic_id} was counted: it was deleted and made again.",
            untouched="Nothing of the new one was written.",
            fix="If that was intended, start a new line (SEAM_LINE) on this topic; what was counted stays readable.",
            line=info.name,
            topic=info.topic,
        )


def refuse_second(conn: Connection, line: str) -> None:
    """`Fenced` if another speed layer gives a sign of life; one that was killed a moment ago is waited for, not obeyed."""
    age = read.seam(conn, line).stale_seconds
    while age is not None and age < _DEAD_AFTER_SECONDS:
        time.sleep(0.1)
        age_then, age = age, read.seam(conn, line).stale_seconds
        if age is not None and age < age_then:
            raise Fenced(
                f"Another speed layer runs on line {line}: it gave a sign of life {age:.1f} s ago.",
                untouched="Nothing was written, and it goes on.",
                fix="Leave it, or replace it: seam speed --take-over",
                line=line,
            )


def start_from_store(conn: Connection, line: str, views: Sequence[View], settings: Settings, now: datetime) -> Start:
    """Takes the line over and reads its state: the token first, so that nothing can move after it was read.

    Guarantees: a second run fences the first; nothing else is written.
    """
    began = time.monotonic()
    token = epochs.take_over(conn, line)
    frontier = epochs.read_frontier(conn, line)
    horizon = Horizon(timedelta(hours=settings.horizon_hours), settings.horizon_ids)
    seen = Seen(horizon)
    # Old is what is old for the log as far as it was read: after a long stop the next delivery is from before it.
    since = min(now, frontier.watermark or now) - horizon.length
    seen.load(epochs.load_seen(conn, line, since=since, most=horizon.most), now=now)
    stored = epochs.read_source_position(conn, line)
    position = frontier.until if stored is None else stored
    where = (frontier.epoch, frontier.until, position)
    log.info("state loaded epoch=%d frontier=%s source=%s seen_ids=%d seconds=%.2f", *where, len(seen), time.monotonic() - began)
    return Start(token, frontier, position, seen, begin_of_other_rules(conn, line, views, since))


def first_offsets(kafka: KafkaLog, source_position: OffsetVector, frontier: OffsetVector) -> dict[int, int]:
    """Where to read each partition from: the source's position, or where the log begins if that is gone; 0 for an added partition.

    Never beyond the frontier: `StreamFailed` if Kafka deleted deliveries there since the log was checked; the next start judges it.
    """
    beginning = kafka.beginning()
    if not frontier.reaches(beginning):
        raise StreamFailed(
            f"The log begins at {beginning} now, beyond the frontier {frontier}: Kafka deleted deliveries before they were read.",
            untouched="Nothing was written.",
            fix="The speed layer starts again and checks the log.",
        )
    return {partition: max(source_position[partition], beginning[partition]) for partition in kafka.partitions()}
