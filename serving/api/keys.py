"""API keys: read from files that only their owner can read, kept in memory as hashes, compared in constant time.

A file holds one key per line, so that a second one is valid while clients change over. Keys are read at start.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from serving.errors import BadSetting

READ_KEY_FILE = "api.key"
ADMIN_KEY_FILE = "admin.key"
_SHORTEST = 32


class Scope(StrEnum):
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class KeyRing:
    read: tuple[bytes, ...]
    admin: tuple[bytes, ...]

    def scope_of(self, presented: bytes) -> Scope | None:
        """The scope of a presented key. Every stored hash is compared, so the time taken tells nothing."""
        digest = hashlib.sha256(presented).digest()
        found: Scope | None = None
        for scope, digests in ((Scope.READ, self.read), (Scope.ADMIN, self.admin)):
            for known in digests:
                if hmac.compare_digest(digest, known):
                    found = scope
        return found


def load_keys(folder: Path) -> KeyRing:
    """The keys of a secrets folder; `BadSetting` if there are none, if they are weak, or if others can read them."""
    read, admin = (_digests(folder / name) for name in (READ_KEY_FILE, ADMIN_KEY_FILE))
    if set(read) & set(admin):
        raise BadSetting(f"{READ_KEY_FILE} and {ADMIN_KEY_FILE} share a key.", fix="Give the admin scope a key of its own.")
    return KeyRing(read, admin)


def read_secret(path: Path) -> str:
    """The text of a secret file; refused unless it is a plain file that nobody but its owner can read."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise BadSetting(f"{path} is not a plain file.", fix="Point to the secret's file.")
            if mode & 0o077:
                raise BadSetting(f"{path} can be read by others (mode {stat.S_IMODE(mode):04o}).", fix=f"Run: chmod 600 {path}")
            return file.read()
    except OSError as error:
        raise BadSetting(f"{path} cannot be read: {error.strerror}.", fix="`seam up` makes the secrets of a new home.") from None
    except UnicodeDecodeError:
        raise BadSetting(f"{path} is not text.", fix="Write one secret per line.") from None


def _digests(path: Path) -> tuple[bytes, ...]:
    keys = [line.strip() for line in read_secret(path).splitlines() if line.strip()]
    if not keys or any(len(key) < _SHORTEST or not key.isascii() for key in keys):
        raise BadSetting(
            f"{path} must hold one or more keys of at least {_SHORTEST} ASCII characters, one per line.",
            fix=f"Make one: python -c 'import secrets; print(secrets.token_urlsafe(32))' > {path}",
        )
    return tuple(hashlib.sha256(key.encode()).digest() for key in keys)
