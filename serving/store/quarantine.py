"""Where deliveries are kept that cannot be events: by rules and position, once, with their reason and masked text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from serving.store.database import Connection, on_line, translated
from serving.store.records import QuarantineRow
from views.event import RULES_FINGERPRINT

ADD_QUARANTINE = """
INSERT INTO {s}.quarantine (rules, partition, at_offset, reason, masked, log_time)
SELECT %(rules)s, p, o, r, m, l FROM unnest(%(partitions)s::int[], %(offsets)s::bigint[], %(reasons)s::text[], %(masked)s::text[],
    %(log_times)s::timestamptz[]) AS u(p, o, r, m, l)
ON CONFLICT DO NOTHING
"""


def add(conn: Connection, line: str, rows: Iterable[QuarantineRow]) -> int:
    """Adds rows and says how many were new.

    Guarantees: one statement; a position already quarantined by these rules stays as it is, so both layers may add it.
    """
    listed = list(rows)
    if not listed:
        return 0
    with translated(line):
        return conn.execute(on_line(line, ADD_QUARANTINE), quarantine_arrays(listed)).rowcount


def read(conn: Connection, line: str, limit: int) -> list[QuarantineRow]:
    """The newest quarantined deliveries by the present rules."""
    with translated(line):
        rows = conn.execute(
            on_line(
                line,
                "SELECT partition, at_offset, reason, masked, log_time FROM {s}.quarantine WHERE rules = %s"
                " ORDER BY log_time DESC, partition, at_offset DESC LIMIT %s",
            ),
            (RULES_FINGERPRINT, limit),
        ).fetchall()
    return [QuarantineRow(*row) for row in rows]


def quarantine_arrays(rows: Sequence[QuarantineRow]) -> dict[str, Any]:
    """The parameters of `ADD_QUARANTINE`. PostgreSQL holds no U+0000, so it is shown as the replacement character."""
    return {
        "rules": RULES_FINGERPRINT,
        "partitions": [row.partition for row in rows],
        "offsets": [row.offset for row in rows],
        "reasons": [row.reason for row in rows],
        "masked": [row.masked.replace("\x00", "\ufffd") for row in rows],
        "log_times": [row.log_time for row in rows],
    }
