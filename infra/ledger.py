"""The ledger: what the producer sent and what the broker acknowledged, in JSON lines, independent of the pipeline.

The first line says what is sent where. Before each chunk comes a line with its intent, after it a line per delivery:

    {"ledger": 1, "topic": "transactions", ...}
    {"intent": [0, 4096]}
    {"partition": 0, "offset": 17, "log_time_ms": 1772323200000, "delivery": "first", "event": {...}}
    {"partition": 2, "offset": 5, "log_time_ms": 1772323200000, "delivery": "malformed", "raw": "<base64, or null>"}
    {"unknown": "timed out", "delivery": "first", "event": {...}}
    {"end": {"acknowledged": 4301, "failed": 0, "unknown": 1}}

`event` is last in its line and holds the sent bytes as they are. A failed delivery is not in the topic; one whose
outcome is unknown may be. A ledger without an end was cut off: what it intended last may be in the topic.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from infra.deliveries import Planned, Role
from serving.errors import BadRequest, DiskFull

_EVENT_MARK = b'"event":'


class Entry(NamedTuple):
    """One acknowledged delivery."""

    partition: int
    offset: int
    log_time_ms: int
    value: bytes | None
    delivery: Role


class LedgerWriter:
    """Writes one run's ledger. Guarantees: an existing file is never overwritten; a run that dies leaves a ledger without an end."""

    def __init__(self, path: Path, header: Mapping[str, object]) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("xb", buffering=1 << 20)
        except FileExistsError:
            raise BadRequest(f"{path} is a ledger already.", untouched="Nothing was sent.", fix="Name another --ledger file.") from None
        except OSError as error:
            raise BadRequest(
                f"{path} cannot be written: {error.strerror}.", untouched="Nothing was sent.", fix="Name another --ledger file."
            ) from error
        self._write(json.dumps({"ledger": 1, **header}).encode() + b"\n")
        self._flush()

    def intend(self, first: int, until: int) -> None:
        """Say what is sent next, on disk before the first of it leaves."""
        self._write(b'{"intent":[%d,%d]}\n' % (first, until))
        self._flush()

    def acknowledge(self, sent: Planned, partition: int, offset: int, log_time_ms: int) -> None:
        position = b'{"partition":%d,"offset":%d,"log_time_ms":%d,' % (partition, offset, log_time_ms)
        self._write(position + _content(sent))

    def fail(self, sent: Planned, why: str) -> None:
        self._write(b'{"failed":%s,' % json.dumps(why).encode() + _content(sent))

    def leave_unknown(self, sent: Planned, why: str) -> None:
        self._write(b'{"unknown":%s,' % json.dumps(why).encode() + _content(sent))

    def end(self, counts: Mapping[str, int]) -> None:
        self._write(json.dumps({"end": dict(counts)}).encode() + b"\n")
        self._flush()

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError as error:
            raise self._no_room(error) from error

    def _flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            raise self._no_room(error) from error

    def _no_room(self, error: OSError) -> DiskFull:
        return DiskFull(
            f"{self._path}: {error.strerror}.",
            untouched="Sending stopped; the ledger has no end.",
            fix="Make room, then start with another ledger.",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


def _content(sent: Planned) -> bytes:
    if sent.role is Role.MALFORMED or sent.role is Role.REPLAY:
        raw = b"null" if sent.value is None else b'"' + b64encode(sent.value) + b'"'
        return b'"delivery":"%s","raw":%s}\n' % (sent.role.encode(), raw)
    return b'"delivery":"%s","event":%s}\n' % (sent.role.encode(), sent.value)


def read_ledger(path: Path) -> Iterator[Entry]:
    """The acknowledged deliveries of a ledger, in the order of their acknowledgement."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                # A run that died may have left half a last line.
                if line.startswith(b'{"partition":') and line.endswith(b"\n"):
                    yield _entry(path, number, line)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}.", fix="Name a ledger that `seam produce --ledger` wrote.") from error


def _entry(path: Path, number: int, line: bytes) -> Entry:
    try:
        mark = line.find(_EVENT_MARK)
        fields = json.loads(line if mark < 0 else line[:mark].rstrip(b",") + b"}")
        raw = fields.get("raw")
        value = line[mark + len(_EVENT_MARK) : line.rindex(b"}")] if mark >= 0 else None if raw is None else b64decode(raw)
        return Entry(fields["partition"], fields["offset"], fields["log_time_ms"], value, Role(fields["delivery"]))
    except (ValueError, KeyError) as error:
        raise BadRequest(
            f"{path}, line {number}: not a line of a ledger.", fix="Name a ledger that `seam produce --ledger` wrote."
        ) from error


def earlier_events(path: Path) -> list[tuple[bytes | None, bytes]]:
    """(key, value) of each event that a ledger's run sent first: what a later run may deliver again."""
    return [
        (json.loads(entry.value)["account_id"].encode(), entry.value)
        for entry in read_ledger(path)
        if entry.delivery is Role.FIRST and entry.value is not None
    ]
