"""How many transactions pass through the system, by minute."""

from views.measures import Count
from views.view import View, WorkedExample
from views.windows import minutes

_EVENT = {"account_id": "a-1", "merchant_id": "m-1", "amount_cents": 100, "currency": "EUR", "kind": "purchase"}

VIEW = View(
    name="system_usage",
    key=(),
    window=minutes(1),
    measures={"transactions": Count()},
    worked_example=WorkedExample(
        events=(
            {"transaction_id": "t-1", "event_time": "2026-03-01T12:00:05Z", **_EVENT},
            {"transaction_id": "t-2", "event_time": "2026-03-01T12:00:59.999999Z", **_EVENT},
            {"transaction_id": "t-2", "event_time": "2026-03-01T12:00:59.999999Z", **_EVENT},
            {"transaction_id": "t-3", "event_time": "2026-03-01T13:01:00+01:00", **_EVENT},
        ),
        rows=(
            {"window_start": "2026-03-01T12:00:00Z", "window_end": "2026-03-01T12:01:00Z", "transactions": 2},
            {"window_start": "2026-03-01T12:01:00Z", "window_end": "2026-03-01T12:02:00Z", "transactions": 1},
        ),
    ),
)
