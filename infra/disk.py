"""Room on the disk: asked for before work begins, and named as such when it runs out."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.errors import BadSetting, DiskFull

FULL = {errno.ENOSPC, errno.EDQUOT}


def require_space(folder: Path, megabytes: int) -> None:
    """Raise `DiskFull` if the disk that holds (or would hold) `folder` has less room."""
    existing = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    free = shutil.disk_usage(existing).free >> 20
    if free < megabytes:
        raise DiskFull(
            f"{folder} has {free} MB free, {megabytes} MB are needed.",
            untouched="Nothing was started or written.",
            fix="Free some, or point SEAM_HOME to another disk (SEAM_MIN_FREE_MB lowers the limit).",
            free_mb=free,
        )


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn "no space left" and "not writable" into errors that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(where) from error
        if error.errno in {errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST}:
            place = error.filename or where
            raise BadSetting(f"{place} cannot be written: {error.strerror}.", fix="Point SEAM_HOME to a folder of yours.") from error
        raise


def disk_full(where: Path | str) -> DiskFull:
    return DiskFull(f"No space left under {where}.", untouched="What was committed is kept.", fix="Free some space, then: seam up")


def says_disk_full(text: str) -> bool:
    return "No space left on device" in text or "Disk quota exceeded" in text
