"""The jars that no wheel carries: Kafka source and Delta for Spark, and the embedded broker.

`infra/ivy.xml` names them, `infra/jars.lock` holds their SHA-256. They are fetched once, by the Ivy that pyspark ships, and
never at run time: `python -m infra.jars` is the only place that may use the network.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from infra.java import java
from serving.errors import BadSetting, DiskFull, SeamError, StackFault

HERE = Path(__file__).resolve().parent
IVY_FILE = HERE / "ivy.xml"
LOCK_FILE = HERE / "jars.lock"
PATTERN = "[conf]/[artifact]-[revision](-[classifier]).[ext]"


def locked_jars() -> dict[str, str]:
    """`spark/name.jar` -> SHA-256, as `sha256sum` would print them."""
    lines = (line.split() for line in LOCK_FILE.read_text().splitlines() if line)
    return {name: digest for digest, name in lines}


def jars_for(folder: Path, part: str) -> list[Path]:
    """The jars of `spark` or `kafka`, all of them there; never fetches."""
    jars = [folder / name for name in locked_jars() if name.startswith(f"{part}/")]
    if missing := [jar.name for jar in jars if not jar.is_file()]:
        raise StackFault(f"{len(missing)} jars are not in {folder}, the first is {missing[0]}.", fix="Run: make jars", folder=str(folder))
    return jars


def wrong_jars(folder: Path) -> list[str]:
    """Names of the jars that are absent or have other bytes than the lock says."""
    return [name for name, digest in locked_jars().items() if _digest(folder / name) != digest]


def fetch_jars(folder: Path, say: Callable[[str], None], environment: Mapping[str, str]) -> None:
    """Make `folder` hold exactly the locked jars.

    Guarantees: complete means nothing is done; a jar appears only whole and with the right SHA-256; a crash leaves the folder
    as it was but for `.incoming`, which the next call clears; two calls at once take turns.
    """
    with _turn(folder):
        if not wrong_jars(folder):
            return
        incoming = folder / ".incoming"
        shutil.rmtree(incoming, ignore_errors=True)
        _retrieve(incoming, folder / ".ivy", say, environment)
        if wrong := wrong_jars(incoming):
            raise StackFault(
                f"{len(wrong)} jars do not have the bytes that infra/jars.lock states, the first is {wrong[0]}.",
                untouched=f"They are kept in {incoming} and not used.",
                fix=f"Find out who changed them; to try again: rm -r {folder} && make jars",
            )
        for name in locked_jars():
            (folder / name).parent.mkdir(exist_ok=True)
            (incoming / name).replace(folder / name)
        shutil.rmtree(incoming)


def write_lock(folder: Path, say: Callable[[str], None], environment: Mapping[str, str]) -> None:
    """Resolve `ivy.xml` afresh and write the lock from what came; for whoever changes a version."""
    with _turn(folder):
        incoming = folder / ".incoming"
        shutil.rmtree(incoming, ignore_errors=True)
        _retrieve(incoming, folder / ".ivy", say, environment)
        names = sorted(str(jar.relative_to(incoming)) for jar in incoming.glob("*/*.jar"))
        LOCK_FILE.write_text("".join(f"{_digest(incoming / name)}  {name}\n" for name in names))
        shutil.rmtree(incoming)


def _retrieve(target: Path, cache: Path, say: Callable[[str], None], environment: Mapping[str, str]) -> None:
    command = [java(), *_proxy(environment), "-jar", str(_ivy_jar()), "-ivy", str(IVY_FILE), "-cache", str(cache)]
    if settings := environment.get("SEAM_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-types", "jar", "bundle", "-retrieve", f"{target}/{PATTERN}"]
    total, fetched, tail = len(locked_jars()) if LOCK_FILE.exists() else 0, 0, [""]
    say(f"jars: looking up {total}, about a minute")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        for line in ivy.stdout or ():
            tail = [*tail[-200:], line.strip()]
            if line.strip().startswith("[SUCCESSFUL ]"):
                fetched += 1
                say(f"jars: {fetched} of {total}  {line.split('!')[-1].split('(')[0].strip()}")
    if ivy.returncode:
        raise _ivy_fault(tail, target)


def _ivy_fault(tail: list[str], target: Path) -> SeamError:
    text = "\n".join(tail)
    if "No space left" in text:
        return DiskFull(f"No room for the jars in {target.parent}.", fix="Free 200 MB there, then: make jars")
    lines = [line for line in tail if any(word in line for word in ("UNRESOLVED", "FAILED", "rror", "xception", "not found"))]
    return StackFault(
        f"The jars could not be fetched: {(lines or tail)[0]}",
        untouched="What was fetched so far is kept.",
        fix="Check the network (HTTPS_PROXY and SEAM_IVY_SETTINGS are honoured), then: make jars",
    )


def _proxy(environment: Mapping[str, str]) -> list[str]:
    """The usual proxy variable in the words that Java understands."""
    proxy = urlsplit(environment.get("HTTPS_PROXY") or environment.get("https_proxy") or "")
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 443}"] if proxy.hostname else []


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise StackFault("pyspark and the Ivy inside it are not installed.", fix="Run: make setup")
    return found[-1]


def _digest(file: Path) -> str:
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"The jar folder {folder} cannot be made: {error.strerror}.", fix="Set SEAM_JARS to another folder.") from None
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> int:
    from infra.settings import load_settings

    live = sys.stderr.isatty()

    def say(line: str) -> None:
        print(f"\r\033[K{line}" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)

    try:
        folder = load_settings().jar_folder
        (write_lock if "--write-lock" in arguments else fetch_jars)(folder, say, os.environ)
    except SeamError as error:
        print(f"\n{error}" if live else str(error), file=sys.stderr)
        return 1
    print(f"\r\033[Kjars: {len(locked_jars())} complete, SHA-256 checked ({folder})" if live else f"jars: complete ({folder})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
