from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.settings import Settings, load_settings


@pytest.fixture
def settings_for(home: Path) -> Callable[..., Settings]:
    """Settings on a home of this test."""
    return lambda **overrides: load_settings(**({"home": home} | overrides))
