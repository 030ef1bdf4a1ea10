"""The one family of errors. Each says what happened where, what was left untouched, and the command that helps."""

from __future__ import annotations

from collections.abc import Mapping


class SeamError(Exception):
    """Base of all expected failures. `retryable` drives retries: True only where the same call may succeed later."""

    retryable = False

    def __init__(self, what: str, *, untouched: str = "", fix: str = "", **fields: object) -> None:
        self.what = what
        self.untouched = untouched
        self.fix = fix
        self.fields: Mapping[str, object] = fields
        super().__init__(" ".join(part for part in (what, untouched, fix) if part))

    @property
    def code(self) -> str:
        return type(self).__name__


class LogDiverged(SeamError):
    """The log no longer holds what was counted: another topic id, other bytes, or an end below the frontier."""


class OffsetsExpired(SeamError):
    """Kafka no longer holds deliveries that were never read."""


class SeamGap(SeamError):
    """Deliveries that nothing accounts for: the answer would be a smaller number, so there is none."""


class Fenced(SeamError):
    """Another speed layer took this line over."""


class StaleFrontier(SeamError):
    """The frontier is not where this process read it: drop the memory and start from the store."""

    retryable = True


class NightlyLocked(SeamError):
    """Another run works on this line, or published while this one ran."""

    retryable = True


class StateTooNew(SeamError):
    """The stored state was written by a newer release."""


class DiskFull(SeamError):
    """No room to write."""


class ChecksFailed(SeamError):
    """The result does not add up, so it was not published."""


class ViewNotReady(SeamError):
    """The view is known but has no complete result yet."""

    retryable = True


class UnknownView(SeamError):
    """No view of that name."""


class UnknownLine(SeamError):
    """No line of that name in this database."""


class UnknownManifest(SeamError):
    """No retained manifest of that id."""


class BadRequest(SeamError):
    """The question cannot be asked that way."""


class Unauthorized(SeamError):
    """No API key, or not one of ours."""


class Forbidden(SeamError):
    """The API key is known but its scope does not cover this."""


class StoreUnavailable(SeamError):
    """The database does not answer."""

    retryable = True


class LogUnavailable(SeamError):
    """Kafka does not answer."""

    retryable = True


class StreamFailed(SeamError):
    """The micro-batches stopped coming; what was committed stands."""

    retryable = True


class BadSetting(SeamError):
    """A setting has a value that cannot be used."""


class StackFault(SeamError):
    """A part of the stack could not be started or stopped."""
