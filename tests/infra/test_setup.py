from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.jars import fetch_jars, jars_for, locked_jars, wrong_jars
from infra.settings import load_settings
from infra.setup_venv import explain, locked_blocks
from serving.errors import StackFault

PROJECT = Path(__file__).resolve().parents[2]


def preflight(folder: Path, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the preflight with exactly these variables; `path` is the only folder on the PATH, with the usual tools linked in."""
    if path is not None:
        for tool in ("sed", "head", "df", "awk"):
            found = shutil.which(tool)
            assert found is not None
            if not (path / tool).exists():
                (path / tool).symlink_to(found)
    ours = {"PATH": str(path) if path else os.environ["PATH"], **environment}
    return subprocess.run(
        ["/bin/sh", str(PROJECT / "infra/preflight.sh")], env=ours, cwd=folder, capture_output=True, text=True, check=False
    )


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(home: Path) -> Path:
    """A PATH with the Python that runs the tests and a Java of version 17."""
    folder = home / "bin"
    folder.mkdir()
    program(folder, "python3.11", f'exec "{Path(sys.base_prefix, "bin", "python3.11")}" "$@"')
    program(folder, "java", """echo 'openjdk version "17.0.1" 2021-10-19' >&2""")
    return folder


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_a_machine_that_has_all_gets_the_python_to_use(home: Path, path: Path) -> None:
    done = preflight(home, path, SEAM_SETUP_FREE_MB="1")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "python3.11", "")


def test_no_python_says_what_to_install(home: Path, path: Path) -> None:
    (path / "python3.11").unlink()
    assert "Python 3.11 is not here" in one_line(preflight(home, path))


def test_another_python_is_not_taken(home: Path, path: Path) -> None:
    program(path, "python3.11", "exit 1")
    assert "Python 3.11 is not here" in one_line(preflight(home, path))
    assert "PYTHON=python9 is not one" in one_line(preflight(home, path, PYTHON="python9"))


def test_no_java_says_what_to_install(home: Path, path: Path) -> None:
    (path / "java").unlink()
    assert "Install Java 17" in one_line(preflight(home, path))
    assert "JAVA_HOME=/nowhere" in one_line(preflight(home, path, JAVA_HOME="/nowhere"))


@pytest.mark.parametrize(("said", "shown"), [('java version "1.8.0_392"', "is version 1;"), ('openjdk version "11.0.2"', "is version 11;")])
def test_an_old_java_says_which_is_needed(home: Path, path: Path, said: str, shown: str) -> None:
    program(path, "java", f"echo '{said}' >&2")
    line = one_line(preflight(home, path))
    assert shown in line
    assert "17 or newer" in line


def test_a_full_disk_says_how_much_is_needed(home: Path, path: Path) -> None:
    assert "are needed" in one_line(preflight(home, path, SEAM_SETUP_FREE_MB="999999999"))


def test_make_shows_that_one_line_and_nothing_is_made(home: Path, path: Path) -> None:
    (path / "java").unlink()
    make = shutil.which("make")
    assert make is not None
    (path / "sh").symlink_to("/bin/sh")
    shutil.copy(PROJECT / "Makefile", home)
    (home / "infra").mkdir()
    shutil.copy(PROJECT / "infra/preflight.sh", home / "infra")
    for tool in ("sed", "head", "df", "awk"):
        (path / tool).symlink_to(shutil.which(tool) or "")
    done = subprocess.run([make, "demo"], cwd=home, env={"PATH": str(path)}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if not line.startswith("make")] == [
        "seam: Java is not on the PATH. Install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
    ]
    assert not (home / ".venv").exists()


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("WARNING: Retrying … NewConnectionError('…')\nERROR: No matching distribution found for x", "there is no network"),
        ("ERROR: No matching distribution found for pyspark==4.1.3", "pip config list"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "does not have the bytes"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("noise\nERROR: something new", "ERROR: something new"),
    ],
)
def test_what_pip_says_becomes_one_line_with_what_to_do(output: str, shown: str) -> None:
    assert shown in explain(output)
    assert "\n" not in explain(output)


def test_every_package_of_the_lock_has_a_hash_and_no_file_names_a_registry() -> None:
    blocks = locked_blocks((PROJECT / "requirements.lock").read_text())
    assert len(blocks) > 50
    assert all("--hash=sha256:" in block for block in blocks)
    for file in ("requirements.lock", "pyproject.toml", "infra/ivy.xml", "infra/jars.lock", "infra/jars.py", "Makefile"):
        text = (PROJECT / file).read_text()
        assert "://" not in text, file


def test_the_setup_is_done_once(home: Path) -> None:
    """The stamp of the venv that runs this test, if `make setup` made it, is the one the next run would write."""
    from infra.setup_venv import PROJECT as THEIRS
    from infra.setup_venv import main

    stamp = THEIRS / ".venv" / ".seam-stamp"
    if not stamp.exists():
        pytest.skip("this venv was not made by make setup")
    before = stamp.stat().st_mtime_ns
    assert main(THEIRS / ".venv") == 0
    assert stamp.stat().st_mtime_ns == before


@pytest.fixture
def jar_folder(home: Path) -> Path:
    """A copy of the jars that can be damaged."""
    source = load_settings().jar_folder
    target = home / "jars"
    for name in locked_jars():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, target / name)
    return target


def test_complete_jars_are_not_fetched_again(jar_folder: Path) -> None:
    said: list[str] = []
    fetch_jars(jar_folder, said.append, {"HTTPS_PROXY": "http://127.0.0.1:9"})
    assert said == []


def test_a_damaged_or_absent_jar_is_noticed(jar_folder: Path) -> None:
    damaged, absent, *_ = [name for name in locked_jars() if name.startswith("spark/")]
    with (jar_folder / damaged).open("ab") as jar:
        jar.write(b"!")
    (jar_folder / absent).unlink()
    assert wrong_jars(jar_folder) == [damaged, absent]
    with pytest.raises(StackFault, match="make jars"):
        jars_for(jar_folder, "spark")


@pytest.mark.stack
def test_without_a_network_the_jars_say_so_and_what_is_there_is_kept(jar_folder: Path) -> None:
    absent = next(iter(locked_jars()))
    (jar_folder / absent).unlink()
    with pytest.raises(StackFault, match=r"could not be fetched.*network"):
        fetch_jars(jar_folder, lambda line: None, {"HTTPS_PROXY": "http://127.0.0.1:9"})
    assert wrong_jars(jar_folder) == [absent]
