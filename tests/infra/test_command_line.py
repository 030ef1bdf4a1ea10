from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.cli import COMMANDS

PROJECT = Path(__file__).resolve().parents[2]


def seam(*words: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SEAM_")}
    ours |= {"SEAM_HOME": str(home), "PYTHONPATH": str(PROJECT), **environment}
    return subprocess.run([sys.executable, "-m", "flows.cli", *words], capture_output=True, text=True, env=ours, cwd=home, check=False)


@pytest.mark.parametrize("words", [("--help",), ("status", "--json"), ("up", "--help")])
def test_a_command_that_needs_no_spark_answers_within_a_second(home: Path, words: tuple[str, ...]) -> None:
    def seconds() -> float:
        began = time.perf_counter()
        assert seam(*words, home=home).returncode == 0
        return time.perf_counter() - began

    assert min(seconds() for _ in range(3)) < 1.0


def test_help_loads_nothing_heavy(home: Path) -> None:
    program = "import sys; sys.argv = ['seam', '--help']\nfrom flows.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    program += "print('LOADED', sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PROJECT, check=True)
    loaded = done.stdout.split("LOADED")[1]
    assert not [heavy for heavy in ("pyspark", "prefect", "psycopg", "kafka", "pyarrow", "fastapi") if f"'{heavy}'" in loaded]


def test_every_command_module_is_there_and_every_command_has_help(home: Path) -> None:
    modules = {file.stem for file in (PROJECT / "flows" / "commands").glob("[a-z]*.py")}
    assert {module.__name__.rpartition(".")[2] for module in COMMANDS} == modules
    listed = seam("--help", home=home).stdout.split("Commands:")[1].split("\n")
    names = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    assert {
        "up",
        "down",
        "status",
        "produce",
        "speed",
        "ingest",
        "nightly",
        "rebuild",
        "query",
        "manifests",
        "rollback",
        "audit",
        "demo",
    } <= {*names}


def test_an_expected_failure_is_one_line_with_the_next_command_and_exit_code_one(home: Path) -> None:
    done = seam("up", "--only", "kafka,nothing", home=home)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "BadSetting: There is no part named nothing. --only takes some of: kafka, postgres, prefect, speed, api"
    ]


def test_with_json_the_failure_is_json_too(home: Path) -> None:
    done = seam("up", "--only", "nothing", "--json", home=home)
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"]["code"] == "BadSetting"


def test_a_bad_setting_is_named(home: Path) -> None:
    done = seam("status", home=home, SEAM_TRIGGER_MS="soon")
    assert done.returncode == 1
    assert "SEAM_TRIGGER_MS" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_call_has_exit_code_two(home: Path) -> None:
    assert seam("nonsense", home=home).returncode == 2


def test_status_of_an_empty_home_makes_no_file_and_has_every_field(home: Path) -> None:
    shown = json.loads(seam("status", "--json", home=home).stdout)
    assert list(home.iterdir()) == []
    assert shown["processes"] == {}
    assert shown["kafka"] == {"bootstrap": None, "topic": "transactions"}
    assert {name: shown[name] for name in ("frontier", "log_end", "seam", "manifest", "lag_offsets", "caught_up")} == {
        "frontier": None,
        "log_end": None,
        "seam": None,
        "manifest": None,
        "lag_offsets": None,
        "caught_up": False,
    }


def test_down_where_nothing_runs_is_no_failure(home: Path) -> None:
    done = seam("down", home=home)
    assert done.returncode == 0
    assert "Nothing runs" in done.stderr


def test_a_home_without_room_is_said_before_anything_is_started(home: Path) -> None:
    done = seam("up", home=home, SEAM_MIN_FREE_MB=str(1 << 40))
    assert done.returncode == 1
    assert "DiskFull" in done.stderr
    assert not (home / "kafka").exists()


def test_a_home_that_is_a_file_is_said(home: Path) -> None:
    (home / "file").write_text("")
    done = seam("up", home=home, SEAM_HOME=str(home / "file"))
    assert done.returncode == 1
    assert "BadSetting" in done.stderr
    assert "Traceback" not in done.stderr
