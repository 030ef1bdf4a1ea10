"""What each account did on a UTC day, by currency, and its largest single amount."""

from views.measures import Count, Max, Sum
from views.view import View, WorkedExample
from views.windows import days

_EUROS = {"account_id": "a-1", "merchant_id": "m-1", "kind": "purchase", "currency": "EUR"}
_DOLLARS = {**_EUROS, "currency": "USD"}
_DAY = {"window_start": "2026-03-01T00:00:00Z", "window_end": "2026-03-02T00:00:00Z"}

VIEW = View(
    name="account_activity",
    key=("account_id", "currency"),
    window=days(1),
    measures={"transactions": Count(), "amount_cents": Sum("amount_cents"), "largest_cents": Max("amount_cents")},
    worked_example=WorkedExample(
        events=(
            {"transaction_id": "t-1", "event_time": "2026-03-01T00:00:00Z", "amount_cents": 500, **_EUROS},
            {"transaction_id": "t-2", "event_time": "2026-03-01T23:59:59Z", "amount_cents": 700, **_EUROS},
            {"transaction_id": "t-3", "event_time": "2026-03-01T12:00:00Z", "amount_cents": -40, **_DOLLARS},
            {"transaction_id": "t-2", "event_time": "2026-03-01T23:59:59Z", "amount_cents": 700, **_EUROS},
        ),
        rows=(
            {"account_id": "a-1", "currency": "EUR", **_DAY, "transactions": 2, "amount_cents": 1200, "largest_cents": 700},
            {"account_id": "a-1", "currency": "USD", **_DAY, "transactions": 1, "amount_cents": -40, "largest_cents": -40},
        ),
    ),
)
