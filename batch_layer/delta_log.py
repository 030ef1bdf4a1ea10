"""What a Delta table's log says and what single files of it hold, read without Spark.

Knows the public format of the log and nothing of what the tables mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

_ROWS_PER_CHUNK = 65_536
_COMMIT = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class AddedFile:
    path: str
    """Relative to the table."""
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Commit:
    version: int
    user_metadata: str
    """Empty where the writer gave none."""
    rows: int
    added: tuple[AddedFile, ...]
    removed: tuple[str, ...]


def open_table(table: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a table and the table's folder in it; `s3a`, as Spark spells it, is `s3` here."""
    file_system, folder = pafs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", table))
    return file_system, folder


def commits_newest_first(table: str) -> Iterator[Commit]:
    """The table's commits. None where the table does not exist; those older than the log's retention may be gone."""
    file_system, _ = open_table(table)
    for version, entry in sorted(_commit_files(table).items(), reverse=True):
        with file_system.open_input_stream(entry.path) as stream:
            yield _commit(version, [json.loads(line) for line in stream.read().splitlines() if line.strip()])


def log_span(table: str) -> timedelta:
    """The time between the oldest commit that is still in the log and the newest."""
    written = [entry.mtime for entry in _commit_files(table).values()]
    return max(written) - min(written) if written else timedelta(0)


def _commit_files(table: str) -> dict[int, pafs.FileInfo]:
    file_system, folder = open_table(table)
    entries = file_system.get_file_info(pafs.FileSelector(f"{folder}/_delta_log", allow_not_found=True))
    return {int(match[1]): entry for entry in entries if (match := _COMMIT.fullmatch(entry.base_name))}


def table_exists(table: str) -> bool:
    file_system, folder = open_table(table)
    return bool(file_system.get_file_info(pafs.FileSelector(f"{folder}/_delta_log", allow_not_found=True)))


def _commit(version: int, actions: list[dict[str, Any]]) -> Commit:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    added = (action["add"] for action in actions if "add" in action)
    return Commit(
        version=version,
        user_metadata=info.get("userMetadata") or "",
        rows=int(info.get("operationMetrics", {}).get("numOutputRows", 0)),
        added=tuple(AddedFile(add["path"], add["partitionValues"]) for add in added),
        removed=tuple(action["remove"]["path"] for action in actions if "remove" in action),
    )


def commit_tagged(table: str, user_metadata: str) -> Commit | None:
    """The newest commit that carries this metadata."""
    return next((commit for commit in commits_newest_first(table) if commit.user_metadata == user_metadata), None)


def files_of(table: str, user_metadata: str) -> tuple[AddedFile, ...]:
    """The files that the commit with this metadata added; none where there is no such commit."""
    commit = commit_tagged(table, user_metadata)
    return commit.added if commit else ()


def live_files(table: str, *, commits: int) -> list[AddedFile]:
    """The files that the newest commits added and none of them removed: all of a small table's, the recent ones of a large one's."""
    gone: set[str] = set()
    live = []
    for commit in islice(commits_newest_first(table), commits):
        live += [file for file in commit.added if file.path not in gone]
        gone.update(commit.removed)
    return live


def read_files(table: str, files: Iterable[AddedFile], columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows of these files in stored order, in chunks that fit in memory; without the partition columns."""
    file_system, folder = open_table(table)
    for file in files:
        with file_system.open_input_file(f"{folder}/{file.path}") as source:
            for chunk in pq.ParquetFile(source).iter_batches(_ROWS_PER_CHUNK, columns=columns):
                yield pa.Table.from_batches([chunk])
