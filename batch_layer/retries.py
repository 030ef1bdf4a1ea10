"""The one rule for trying a step again: only where its error says that the same call may succeed later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from serving.errors import SeamError

T = TypeVar("T")

TRIES = 4
DELAYS = (1.0, 4.0, 15.0)
"""Seconds before the second, third and fourth try."""


def is_retryable(error: BaseException) -> bool:
    return isinstance(error, SeamError) and error.retryable


def with_retries(
    work: Callable[[], T], *, on_retry: Callable[[BaseException, float], None], pause: Callable[[float], None] = time.sleep
) -> T:
    """What `work` returns, at the first try that does not fail; the last error otherwise."""
    for delay in DELAYS:
        try:
            return work()
        except SeamError as error:
            if not error.retryable:
                raise
            on_retry(error, delay)
            pause(delay)
    return work()
