"""A copy of the project that a test may change, with its `seam` command on a line of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
_PACKAGES = ("views", "serving", "speed_layer", "batch_layer", "flows", "infra")


class Checkout:
    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        for package in _PACKAGES:
            shutil.copytree(PROJECT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        jars = os.environ.get("SEAM_JARS", str(PROJECT / ".jars"))
        self._environment = {**os.environ, **environment, "PYTHONPATH": str(folder), "SEAM_JARS": jars, "SEAM_HOME": str(folder / "home")}

    def seam(self, *words: str, fails: bool = False) -> Any:
        """Runs a command to its end; what it printed as JSON, or its error where it must fail."""
        command = [sys.executable, "-m", "flows.cli", *words]
        done = subprocess.run(command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=180, check=False)
        assert (done.returncode != 0) is fails, f"{words} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        if "--json" not in words:
            return done.stdout
        return json.loads(done.stderr.strip().splitlines()[-1] if fails else done.stdout)
