"""Keys and scopes: who gets an answer, who does not, and that a key leaves no trace."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

import pytest

from serving.api.keys import Scope, load_keys
from serving.client import Seam
from serving.errors import BadSetting, Forbidden, Unauthorized
from tests.serving.served_api import Api, poll, write_keys

ROUTES = [
    ("GET", "/v1/views"),
    ("GET", "/v1/views/system_usage"),
    ("GET", "/v1/views/no_such_view"),
    ("GET", "/v1/seam"),
    ("GET", "/v1/manifests"),
    ("POST", "/v1/manifests/1/publish"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/no/such/route"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("key", [None, "", "wrong", "k" * 43, "Ö" * 32], ids=["none", "empty", "short", "unknown", "not ascii"])
def test_without_a_known_key_every_route_answers_401(method: str, path: str, key: str | None, read_api: Api) -> None:
    headers = {} if key is None else {"X-API-Key": key.encode("latin-1")}
    answer = read_api.send(method, path, headers=headers)
    assert answer.status_code == 401 and answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "Unauthorized" and answer.json()["fix"]


def test_health_needs_no_key_and_says_nothing_else(read_api: Api) -> None:
    answer = read_api.send("GET", "/healthz")
    assert answer.status_code == 200 and answer.json() == {"status": "ok"}


def test_the_read_key_may_not_publish_and_the_admin_key_may_read(tape: object, api: Api) -> None:
    with Seam(api.url, api.key) as reader, pytest.raises(Forbidden):
        reader.publish(0)
    with Seam(api.url, api.admin_key) as admin:
        assert [m["id"] for m in admin.manifests() if m["current"]] == [1]
        assert admin.publish(0)["current"] is True
        assert [m["id"] for m in admin.manifests() if m["current"]] == [0]
        assert sum(row["transactions"] for row in admin.rows("system_usage")) == 700  # type: ignore[misc]
        assert admin.publish(0)["id"] == 0
        assert admin.publish(1)["id"] == 1


def test_two_keys_in_one_header_field_each_are_refused(read_api: Api) -> None:
    answer = read_api.send("GET", "/v1/views", headers=[("X-API-Key", read_api.key), ("X-API-Key", read_api.key)])
    assert answer.status_code == 401


def test_a_key_never_reaches_the_log(read_api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = secrets.token_urlsafe(32)
    read_api.request("GET", "/v1/views/system_usage?limit=x")
    read_api.request("GET", "/v1/views/nope")
    read_api.request("POST", "/v1/manifests/1/publish")
    read_api.request("GET", "/v1/views", key=wrong)
    poll(lambda: "status=401" in caplog.text and "status=403" in caplog.text)
    assert read_api.key not in caplog.text and wrong not in caplog.text


def test_a_client_with_the_wrong_key_raises_the_servers_error(read_api: Api) -> None:
    with Seam(read_api.url, "x" * 40) as seam, pytest.raises(Unauthorized):
        seam.views()


def test_a_second_line_in_a_key_file_is_valid_too(tmp_path: Path) -> None:
    old, _ = write_keys(tmp_path)
    new = secrets.token_urlsafe(32)
    (tmp_path / "api.key").write_text(f"{old}\n{new}\n")
    ring = load_keys(tmp_path)
    assert ring.scope_of(old.encode()) is ring.scope_of(new.encode()) is Scope.READ
    assert ring.scope_of(b"") is None and ring.scope_of(f"{old}\n{new}".encode()) is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    write_keys(tmp_path)
    (tmp_path / "admin.key").chmod(mode)
    with pytest.raises(BadSetting, match="chmod 600"):
        load_keys(tmp_path)


@pytest.mark.parametrize("text", ["", "\n\n", "short\n", "ö" * 40])
def test_a_file_without_a_strong_key_is_refused(text: str, tmp_path: Path) -> None:
    write_keys(tmp_path)
    (tmp_path / "api.key").write_text(text)
    with pytest.raises(BadSetting, match="token_urlsafe"):
        load_keys(tmp_path)


def test_one_key_for_both_scopes_is_refused(tmp_path: Path) -> None:
    key, _ = write_keys(tmp_path)
    (tmp_path / "admin.key").write_text(key)
    with pytest.raises(BadSetting, match="share a key"):
        load_keys(tmp_path)


def test_no_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="cannot be read"):
        load_keys(tmp_path)
