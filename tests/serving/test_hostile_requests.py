"""What nobody should send: it is refused with a problem document that says what is legal, and shows nothing of the inside."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from serving.client import Seam
from serving.errors import BadRequest, UnknownManifest, UnknownView
from tests.serving.served_api import Api, poll, running_api

HOSTILE = [
    "' OR 1=1 --",
    "'; DROP TABLE frontier; --",
    "m-1\0",
    "%s%(key)s{}",
    "../../etc/passwd",
    "%2e%2e/",
    "\u202e\x1b[2J",
    "a" * 65,
    "",
]
INSIDE = re.compile(r"Traceback|File \"|/work|site-packages|psycopg|SELECT|line_main|\.py\b", re.IGNORECASE)


def refused(answer, status: int = 400):  # type: ignore[no-untyped-def]
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status and problem["code"] and problem["detail"] and problem["type"].startswith("urn:")
    assert not INSIDE.search(answer.text), answer.text
    return problem


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_key_value_finds_nothing_or_is_refused(text: str, read_api: Api) -> None:
    answer = read_api.send("GET", f"/v1/views/account_activity?account_id={quote(text)}", headers={"X-API-Key": read_api.key})
    if answer.status_code == 200:
        assert answer.json()["rows"] == []
    else:
        refused(answer)


@pytest.mark.parametrize("name", ["from", "to", "limit", "cursor", "total", "as_of", "currency", "nonsense"])
@pytest.mark.parametrize(
    "text", [*HOSTILE, "NaN", "-1", "1e3", "99999999999999999999", "٣", "2026-03-01T12:00:00", "0001-01-01T00:00:00+23:59"]
)
def test_a_hostile_option_is_refused(name: str, text: str, read_api: Api) -> None:
    problem = refused(read_api.send("GET", f"/v1/views/account_activity?{name}={quote(text)}", headers={"X-API-Key": read_api.key}))
    assert problem["code"] == "BadRequest" and problem["fix"]


def test_an_unknown_parameter_lists_the_legal_ones(read_api: Api) -> None:
    problem = refused(read_api.get("/v1/views/revenue_by_merchant", merchant="m-1"))
    assert "merchant_id, currency, from, to, total, as_of, limit, cursor" in problem["fix"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=1&limit=2",
        "limit=0",
        "limit=10001",
        "account_id=%ff",
        "account_id=%ed%a0%80",
        "&".join(f"x{n}=1" for n in range(100)),
        "from=2026-03-02T00:00:00Z&to=2026-03-01T00:00:00Z",
        "cursor=WyJ4IiwxXQ",
        "cursor=" + "A" * 3000,
        "from=2026-03-01T12:00:00+01:00",
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(query: str, read_api: Api) -> None:
    refused(read_api.send("GET", f"/v1/views/account_activity?{query}", headers={"X-API-Key": read_api.key}))


def test_a_cursor_of_another_view_is_refused(read_api: Api) -> None:
    cursor = read_api.get("/v1/views/account_activity", limit=1).json()["next"]
    refused(read_api.get("/v1/views/revenue_by_merchant", cursor=cursor))


@pytest.mark.parametrize(
    "path", ["/v1/views/%00", "/v1/views/a'b", "/v1/views/..%2f..%2fetc", "/v1/views/", "/nothing", "/v1/manifests/abc/publish"]
)
def test_what_is_not_there_is_404_or_405(path: str, read_api: Api) -> None:
    answer = read_api.send("GET", path, headers={"X-API-Key": read_api.key})
    assert refused(answer, answer.status_code)["status"] in (404, 405)


@pytest.mark.parametrize("manifest", ["7", "-1", "abc", "9" * 30])
def test_an_unknown_manifest_is_404(manifest: str, read_api: Api) -> None:
    problem = refused(read_api.request("POST", f"/v1/manifests/{manifest}/publish", key=read_api.admin_key), 404)
    assert problem["code"] in ("UnknownManifest", "NoSuchRoute")


def test_the_client_raises_the_classes_of_the_inside(read_api: Api) -> None:
    with Seam(read_api.url, read_api.key) as seam:
        for raised, ask in (
            (UnknownView, lambda: seam.query("no_such_view")),
            (UnknownView, lambda: seam.query("../healthz")),
            (UnknownManifest, lambda: seam.query("system_usage", as_of=77)),
            (BadRequest, lambda: seam.query("system_usage", key={"merchant_id": "m-1"})),
            (BadRequest, lambda: seam.query("system_usage", limit=0)),
        ):
            with pytest.raises(raised) as caught:
                ask()
            assert caught.value.fix


def test_a_long_url_a_body_and_other_methods_are_refused(read_api: Api) -> None:
    key = {"X-API-Key": read_api.key}
    refused(read_api.send("GET", "/v1/views?" + "x" * 9_000, headers=key), 414)
    refused(read_api.send("POST", "/v1/manifests/1/publish", headers=key, content=b"x" * 100_000), 413)
    refused(read_api.send("POST", "/v1/manifests/1/publish", headers=key, content=iter([b"x"])), 413)
    refused(read_api.send("DELETE", "/v1/views/system_usage", headers=key), 405)


def exchange(api: Api, sent: bytes) -> bytes:
    address = urlsplit(api.url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as line:
        received = b""
        try:
            line.sendall(sent)
            while chunk := line.recv(65536):
                received += chunk
        except (BrokenPipeError, ConnectionResetError):
            pass
        return received


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01garbage\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["version", "tls", "bytes"],
)
def test_bytes_that_are_not_a_request_are_400(sent: bytes, read_api: Api) -> None:
    assert exchange(read_api, sent).startswith(b"HTTP/1.1 400")


def test_endless_headers_end_the_connection(read_api: Api) -> None:
    received = exchange(read_api, b"GET /healthz HTTP/1.1\r\nX-Long: " + b"a" * (8 << 20))
    assert received == b"" or received.startswith(b"HTTP/1.1 400")
    assert read_api.send("GET", "/healthz").status_code == 200


def test_a_forged_line_break_stays_inside_its_log_line(read_api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "seam.api")
    read_api.send("GET", "/v1/%0d%0aINFO%20forged%1b[2J", headers={"X-API-Key": read_api.key})
    poll(lambda: "forged" in caplog.text)
    (line,) = [record.getMessage() for record in caplog.records if "forged" in record.getMessage()]
    assert line.isprintable()


def test_a_failure_nobody_foresaw_shows_only_its_incident(tmp_path: Path, read_api: Api, caplog: pytest.LogCaptureFixture) -> None:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def broken(request: Request) -> Response:
        raise RuntimeError("the secret of line_main in /etc/secret.py")

    with running_api("postgresql://127.0.0.1:1/none", tmp_path / "s", extra=[Route("/broken", broken)]) as api:
        problem = refused(api.send("GET", "/broken"), 500)
    assert problem["incident"] in caplog.text and "the secret of line_main" in caplog.text
