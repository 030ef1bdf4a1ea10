"""`seam query`, `views`, `manifests`, `rollback` and `python -m serving.api` as a user starts them."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from serving.client import Seam
from serving.store import database, read
from serving.store.records import Query
from tests.serving.served_api import Api, poll, write_keys
from tests.serving.served_tape import LINE, Tape, naive_rows, without_final
from views.registry import ALL_VIEWS, view_named


def seam(url: str, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SEAM_DATABASE_URL": url}
    done = subprocess.run([sys.executable, "-m", "flows.cli", *arguments], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_json_is_the_answer_that_http_gives(read_tape: Tape, read_api: Api) -> None:
    by_command = json.loads(seam(read_tape.url, "query", "revenue_by_merchant", "--key", "merchant_id=m-1", "--format", "json").stdout)
    over_http = read_api.get("/v1/views/revenue_by_merchant", merchant_id="m-1").json()
    with database.connect(read_tape.url) as conn:
        view = view_named("revenue_by_merchant")
        assert view is not None
        direct = read.read(conn, LINE, view, Query(key={"merchant_id": "m-1"})).to_json()
    for answer in (by_command, over_http, direct):
        del answer["provenance"]["stale_seconds"]  # type: ignore[attr-defined]
    assert by_command == over_http == direct
    assert without_final(by_command["rows"]) == naive_rows(view, [e for e in read_tape.events if e.merchant_id == "m-1"])


def test_csv_has_only_rows_and_a_table_ends_with_its_provenance(read_tape: Tape) -> None:
    done = seam(read_tape.url, "query", "system_usage", "--from", "2026-03-01T12:00:00Z", "--to", "2026-03-01T12:05:00Z", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["window_start"][11:16] for row in rows] == ["12:00", "12:01", "12:02", "12:03", "12:04"]
    assert "cut {0: 500}, frontier {0: 700}" in done.stderr
    table = seam(read_tape.url, "query", "account_activity", "--total", "--limit", "3").stdout
    assert "more rows" in table
    assert table.rstrip().splitlines()[-1].startswith("3 rows at manifest 1, cut {0: 500}, frontier {0: 700}: ")


def test_manifests_are_listed_and_rolled_back_to(tape: Tape) -> None:
    assert "current" in seam(tape.url, "manifests").stdout
    listed = json.loads(seam(tape.url, "manifests", "--json").stdout)
    assert [(m["id"], m["generation"], m["cut"], m["current"]) for m in listed] == [(0, 0, {}, False), (1, 1, {"0": 500}, True)]
    assert json.loads(seam(tape.url, "rollback", "0", "--json").stdout)["current"] is True
    answer = json.loads(seam(tape.url, "query", "system_usage", "--total", "--format", "json").stdout)
    assert answer["rows"][0]["transactions"] == 700 and answer["provenance"]["from_batch"] == 0


def test_views_are_listed() -> None:
    assert [view["name"] for view in json.loads(seam("", "views", "--json").stdout)] == [view.name for view in ALL_VIEWS]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("query", "nope"), "UnknownView: "),
        (("query", "system_usage", "--key", "merchant_id=m-1"), "BadRequest: "),
        (("query", "account_activity", "--key", "account_id"), "--key account_id=…"[:5]),
        (("query", "system_usage", "--from", "2026-03-01"), "offset"),
        (("query", "system_usage", "--as-of", "99"), "UnknownManifest: "),
        (("query", "system_usage", "--line", "other"), "UnknownLine: "),
        (("rollback", "99"), "UnknownManifest: "),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments: tuple[str, ...], says: str, read_tape: Tape) -> None:
    done = seam(read_tape.url, *arguments, status=1)
    assert says in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout


def start_api(folder: Path, url: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "serving.api", "--secrets", str(folder), "--ready-file", str(folder / "ready.json"), *more]
    environment = {**os.environ, "SEAM_DATABASE_URL": url}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_the_entry_point_serves_says_where_and_stops_when_asked(read_tape: Tape, tmp_path: Path) -> None:
    key, _ = write_keys(tmp_path)
    url_file = tmp_path / "database_url"
    url_file.touch(0o600)
    url_file.write_text(read_tape.url)
    process = start_api(tmp_path, "", "--database-url-file", str(url_file), "--log-requests")
    ready = tmp_path / "ready.json"
    try:
        poll(ready.exists, 30)
        where = json.loads(ready.read_text())
        assert where["host"] == "127.0.0.1" and where["pid"] == process.pid
        with Seam(where["url"], key_file=tmp_path / "api.key") as client:
            assert client.query("system_usage", total=True).rows[0]["transactions"] == 700
        assert httpx.get(where["url"] + "/docs", headers={"X-API-Key": key}, trust_env=False).status_code == 404
    finally:
        process.terminate()
    _, log = process.communicate(timeout=20)
    assert process.returncode == 0 and not ready.exists()
    assert "path='/v1/views/system_usage' status=200" in log
    assert key not in log and read_tape.url not in log and "Traceback" not in log


def test_the_entry_point_refuses_what_it_cannot_use(read_tape: Tape, tmp_path: Path) -> None:
    write_keys(tmp_path)
    (tmp_path / "open_url").write_text(read_tape.url)
    (tmp_path / "open_url").chmod(0o644)
    readable = tmp_path / "readable"
    write_keys(readable)
    (readable / "api.key").chmod(0o644)
    refused = {
        "chmod 600": start_api(readable, read_tape.url),
        "cannot be read": start_api(tmp_path / "none", read_tape.url),
        "no database URL": start_api(tmp_path, ""),
        f"chmod 600 {tmp_path / 'open_url'}": start_api(tmp_path, "", "--database-url-file", str(tmp_path / "open_url")),
        "--dev": start_api(tmp_path, read_tape.url, "--dev", "--host", "0.0.0.0"),
        "cannot name a line": start_api(tmp_path, read_tape.url, "--line", "a;b"),
    }
    for says, process in refused.items():
        _, log = process.communicate(timeout=60)
        assert process.returncode == 1 and says in log.splitlines()[-1] and "Traceback" not in log, log
