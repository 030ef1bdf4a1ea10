"""Makes the venv from the hashed lock, showing progress. Plain Python 3.11: it runs before anything is installed.

    python3.11 infra/setup_venv.py [FOLDER]

Guarantees: done means nothing is done; a run that dies leaves no stamp, so the next one goes on from there.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
LOCK = PROJECT / "requirements.lock"
NO_NETWORK = ("NewConnectionError", "Name or service not known", "name resolution", "timed out", "Network is unreachable", "ProxyError")
NO_MATCH = ("No matching distribution", "Could not find a version")


def main(folder: Path) -> int:
    stamp, wanted = folder / ".seam-stamp", _state()
    if stamp.is_file() and stamp.read_text() == wanted:
        return 0
    say(f"packages: making {folder}")
    if not (folder / "bin" / "pip").exists():
        venv.create(folder, with_pip=True)
    blocks = locked_blocks(LOCK.read_text())
    python = str(folder / "bin" / "python")
    # What has no wheel is built with this setuptools, not with whichever the network offers.
    for chosen in ([block for block in blocks if block.startswith("setuptools==")], blocks):
        if fault := _install(python, chosen):
            print(f"\nseam: {fault}", file=sys.stderr)
            return 1
    done = _pip(python, ["--no-deps", "--no-build-isolation", "--quiet", "--editable", str(PROJECT)])
    if done.returncode:
        print(f"\nseam: the project itself could not be installed: {done.stdout[-400:]}", file=sys.stderr)
        return 1
    stamp.write_text(wanted)
    say(f"packages: {len(blocks)} installed from the lock, hashes checked", end="\n")
    return 0


def locked_blocks(text: str) -> list[str]:
    """The lock cut into one block per package."""
    return [block for block in re.split(r"\n(?=[A-Za-z0-9])", text) if "==" in block]


def _install(python: str, blocks: list[str]) -> str:
    """Install these packages; the reason in one line if that fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".lock") as chosen:
        chosen.write("\n".join(blocks) + "\n")
        chosen.flush()
        arguments = ["--require-hashes", "--no-deps", "--no-build-isolation", "--progress-bar", "off", "-r", chosen.name]
        done = _pip(python, arguments, total=len(blocks))
    return explain(done.stdout) if done.returncode else ""


def explain(output: str) -> str:
    """What to do about what pip said."""
    if "No space left" in output:
        return "the disk is full. Free some space, then run make again."
    if any(sign in output for sign in NO_NETWORK):
        return "the Python packages could not be fetched: there is no network. Connect (HTTPS_PROXY is honoured), then run make again."
    if any(sign in output for sign in NO_MATCH):
        return "a locked Python package is not in your package index (see: pip config list). Point pip to a full one, then run make again."
    if "DO NOT MATCH THE HASHES" in output:
        return "a package does not have the bytes that requirements.lock states. Nothing of it was installed; find out who changed it."
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"the Python packages could not be installed: {next((line for line in lines if line.startswith('ERROR')), (lines or ['?'])[-1])}"


def _pip(python: str, arguments: list[str], total: int = 0) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--retries", "2", *arguments]
    seen, output = 0, []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout or ():
            output.append(line)
            if total and line.startswith(("Collecting ", "Requirement already satisfied: ")):
                seen += 1
                name = line.split("==")[0].split()[-1]
                say(f"packages: {seen} of {total}  {name}")
            elif line.startswith("Installing collected"):
                say(f"packages: installing {total}, about a minute")
    return subprocess.CompletedProcess(command, pip.returncode, "".join(output))


def say(line: str, end: str = "") -> None:
    live = sys.stderr.isatty()
    print(f"\r\033[K{line}" if live else line, end=end if live else "\n", file=sys.stderr, flush=True)


def _state() -> str:
    """Changes when the venv has to be made anew: another lock, another project file, another place."""
    content = LOCK.read_bytes() + (PROJECT / "pyproject.toml").read_bytes() + str(PROJECT).encode() + sys.version.encode()
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else PROJECT / ".venv")))
