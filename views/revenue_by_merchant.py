"""What each merchant turned over, by currency and minute; refunds count with the sign they were sent with."""

from views.measures import Count, Sum
from views.view import View, WorkedExample
from views.windows import minutes

_EVENT = {"account_id": "a-1", "currency": "EUR", "kind": "purchase"}
_MINUTE = {"currency": "EUR", "window_start": "2026-03-01T12:00:00Z", "window_end": "2026-03-01T12:01:00Z"}

VIEW = View(
    name="revenue_by_merchant",
    key=("merchant_id", "currency"),
    window=minutes(1),
    measures={"transactions": Count(), "amount_cents": Sum("amount_cents")},
    worked_example=WorkedExample(
        events=(
            {"transaction_id": "t-1", "event_time": "2026-03-01T12:00:05Z", "merchant_id": "m-1", "amount_cents": 1250, **_EVENT},
            {"transaction_id": "t-2", "event_time": "2026-03-01T12:00:40Z", "merchant_id": "m-1", "amount_cents": -250, **_EVENT},
            {"transaction_id": "t-1", "event_time": "2026-03-01T12:00:05Z", "merchant_id": "m-1", "amount_cents": 1250, **_EVENT},
            {"transaction_id": "t-3", "event_time": "2026-03-01T12:00:41Z", "merchant_id": "m-2", "amount_cents": 99, **_EVENT},
        ),
        rows=(
            {"merchant_id": "m-1", **_MINUTE, "transactions": 2, "amount_cents": 1000},
            {"merchant_id": "m-2", **_MINUTE, "transactions": 1, "amount_cents": 99},
        ),
    ),
)
