"""Where Java is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from serving.errors import StackFault


def java() -> str:
    """The `java` of JAVA_HOME, or else of the PATH."""
    home = os.environ.get("JAVA_HOME", "")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if not found:
        place = f"under JAVA_HOME={home}" if home else "on the PATH"
        raise StackFault(f"No Java {place}.", fix="Install Java 17 (on Debian: apt-get install openjdk-17-jre-headless).")
    return found
