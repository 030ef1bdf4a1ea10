"""Crash injection, shipped as a testing tool: the process kills itself the n-th time it reaches a named step."""

from __future__ import annotations

import os
import signal

from serving.errors import BadSetting


class CrashPoint:
    """Does nothing unless it was built for a step; then the n-th `reach` of that step is the last thing the process does."""

    def __init__(self, step: str = "", on: int = 1) -> None:
        self._step = step
        self._left = on

    @classmethod
    def from_setting(cls, setting: str) -> CrashPoint:
        """`step` or `step:n`, as `SEAM_CRASH_AT` gives it; empty means never."""
        step, _, count = setting.partition(":")
        if count and not (count.isdigit() and int(count)):
            raise BadSetting(f"SEAM_CRASH_AT: {setting!r} is not `step` or `step:n`.", fix="Correct or unset it.")
        return cls(step, int(count or 1))

    def waits_for(self, step: str) -> bool:
        return step == self._step

    def reach(self, step: str) -> None:
        """SIGKILL, as a machine would die: no handler runs and nothing is flushed."""
        if step != self._step:
            return
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
