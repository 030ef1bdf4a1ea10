"""Loopback ports: chosen once, kept in the home, so that whoever was told an address can keep it."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from infra.disk import disk_errors
from infra.process import wait_until
from serving.errors import StackFault

LOOPBACK = "127.0.0.1"
CHOICE = range(20_000, 32_000)
"""Below what systems hand to outgoing connections, so that a kept port is not taken while its owner is down."""


def is_free(port: int, host: str = LOOPBACK) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nothing listens on now."""
    for port in random.Random().sample(CHOICE, 200):
        if is_free(port):
            return port
    raise StackFault("No free port between 20000 and 32000.", fix="Set the port, such as SEAM_KAFKA_PORT, to a free one.")


def kept_port(file: Path, wanted: int) -> int:
    """The wanted port, or the one of the last time, or a free one; remembered in `file`."""
    remembered = int(file.read_text()) if file.is_file() and file.read_text().strip().isdigit() else 0
    port = wanted or remembered or free_port()
    if port != remembered:
        with disk_errors(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{port}\n")
    return port


def require_free(port: int, part: str, setting: str) -> None:
    """Raise if another program listens there; waits a little, as a killed process lets go of its port late."""
    if not wait_until(lambda: is_free(port), 3):
        raise StackFault(
            f"Port {port} of the {part} is taken by another program.",
            untouched="Nothing was started.",
            fix=f"Stop that program, or set {setting} to a free port.",
            port=port,
        )
