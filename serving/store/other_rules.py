"""Which epochs judged deliveries by other event rules than the present ones: their fingerprints tell, as rules are part of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from serving.store.database import Connection, on_line, translated
from serving.store.vectors import OffsetVector
from views.view import View


def begin_of_other_rules(conn: Connection, line: str, views: Sequence[View], since: datetime) -> OffsetVector | None:
    """Where the oldest epoch since then begins that folded none of these views as they are now; None if there is none.

    Also so where every view changed and the rules did not: then ids are read again that were known already.
    """
    present = [view.fingerprint for view in views]
    with translated(line):
        row = conn.execute(on_line(line, _OTHERS), {"since": since, "present": present}).fetchone()
    return OffsetVector.from_json(row[0]) if row else None


_OTHERS = """
SELECT start FROM {s}.epochs WHERE (committed_at >= %(since)s OR watermark >= %(since)s) AND NOT folded && %(present)s::text[]
ORDER BY epoch LIMIT 1
"""
