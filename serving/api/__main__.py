"""Starts the HTTP interface: `python -m serving.api`. This is an entry point: everything comes as an argument.

    --line NAME                 the line to serve (default main)
    --secrets DIR               holds api.key and admin.key, each mode 0600, one key per line
    --database-url-file FILE    holds the URL of PostgreSQL, mode 0600; without it SEAM_DATABASE_URL is read
    --host ADDRESS              default 127.0.0.1
    --port PORT                 default 0: a free one, see the ready file
    --ready-file FILE           written once it listens: {"url", "host", "port", "pid"}; removed when it stops
    --connections N             most database connections (default 8)
    --dev                       a page to try the routes at /docs; loopback only
    --log-requests              log every request, not only failed ones and changes

It stops on SIGTERM or SIGINT within five seconds, exit code 0. A setting it cannot use: one line, exit code 1; an address it
cannot listen on: exit code 3. It starts without the database, answers 503 until that is there, and recovers by itself.
"""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import signal
import sys
import time
from pathlib import Path

from serving.errors import BadSetting, SeamError


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m serving.api", description="Seam's HTTP interface.")
    parser.add_argument("--line", default="main")
    parser.add_argument("--secrets", type=Path, required=True, help="folder of api.key and admin.key")
    parser.add_argument("--database-url-file", type=Path, help="file with the database URL; else SEAM_DATABASE_URL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--dev", action="store_true")
    parser.add_argument("--log-requests", action="store_true")
    return parser.parse_args(argv)


class _OneLine(logging.Formatter):
    """One record, one line, whatever is in it: a line break or an escape sequence in a value cannot forge another."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    formatter = _OneLine("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it repeats every attempt while the database is away


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _serve(arguments: argparse.Namespace) -> None:
    from serving.api.app import create_app
    from serving.api.keys import load_keys, read_secret
    from serving.api.pool import StorePool
    from serving.api.server import server
    from views.registry import ALL_VIEWS

    if not _is_loopback(arguments.host):
        if arguments.dev:
            raise BadSetting(
                f"--dev needs no key for its page, so it does not listen on {arguments.host}.", fix="Leave out --dev or --host."
            )
        logging.getLogger("seam.api").warning("listening_beyond_loopback host=%s tls=no", arguments.host)
    if not 0 <= arguments.port <= 65_535 or arguments.connections < 1:
        raise BadSetting(
            f"--port {arguments.port} --connections {arguments.connections}", fix="A port is 0 to 65535; connections are at least 1."
        )
    url = read_secret(arguments.database_url_file).strip() if arguments.database_url_file else os.environ.get("SEAM_DATABASE_URL", "")
    if not url:
        raise BadSetting("There is no database URL.", fix="Give --database-url-file FILE or set SEAM_DATABASE_URL.")
    store = StorePool(url, arguments.line, connections=arguments.connections)
    app = create_app(store, load_keys(arguments.secrets), ALL_VIEWS, dev=arguments.dev, log_all=arguments.log_requests)
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, _stopped)  # uvicorn stops in order, then raises the signal again
    server(app, arguments.host, arguments.port, arguments.ready_file).run()


def _stopped(number: int, frame: object) -> None:
    sys.exit(0)


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    _log_to_stderr()
    try:
        _serve(arguments)
    except SeamError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
