"""Where the Delta tables of one line are."""

from __future__ import annotations

from dataclasses import dataclass

from views.view import View


@dataclass(frozen=True, slots=True)
class Tables:
    """Where the Delta tables of one line are."""

    master_dataset: str
    winners: str
    results: str

    def of_view(self, view: View) -> str:
        return f"{self.results}/{view.name}_{view.fingerprint}"
