"""The folders and the direction of imports between them, read from the sources."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("views", "serving", "speed_layer", "batch_layer", "flows", "infra")
FOLDERS = {*PACKAGES, "tests", "benchmarks", "docs"}
HEAVY = {"pyspark", "delta", "prefect"}

MAY_IMPORT = {
    "views": (),
    "serving": ("views",),
    "infra": ("serving.errors", "serving.store.records", "serving.store.vectors"),
    "speed_layer": ("views", "serving.errors", "serving.store", "infra"),
    "batch_layer": ("views", "serving.errors", "serving.store", "infra"),
    "flows": ("views", "serving", "speed_layer", "batch_layer", "infra"),
}


def modules(package: str) -> dict[str, Path]:
    names = {}
    for file in sorted((PROJECT / package).rglob("*.py")):
        parts = file.relative_to(PROJECT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


OURS = {name: file for package in PACKAGES for name, file in modules(package).items()}


def imported(file: Path) -> set[str]:
    """Every module a file imports, anywhere in it; `from a import b` names `a.b` if that is a module, else `a`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are written out in full"
            assert node.module is not None
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in OURS else node.module for name in whole}
    return found


def within(name: str, allowed: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in allowed)


def reachable(start: str) -> dict[str, str]:
    """Every module that comes along with `start`, with one that brings it."""
    seen, todo = {start: start}, [start]
    while todo:
        name = todo.pop()
        parents = {name.rpartition(".")[0]} - {""}
        for other in imported(OURS[name]) | parents if name in OURS else ():
            if other not in seen:
                seen[other] = name
                todo.append(other)
    return seen


def test_the_folders_are_those_of_the_map() -> None:
    assert all((PROJECT / folder).is_dir() for folder in FOLDERS)
    others = {p.parent.name for p in PROJECT.glob("*/*.py") if not p.parent.name.startswith(".")} - FOLDERS
    assert others <= {"build", "dist"}, f"folders with code that the map does not know: {others}"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    allowed = (package, *MAY_IMPORT[package])
    for name, file in modules(package).items():
        ours = {other for other in imported(file) if other.split(".")[0] in PACKAGES}
        wrong = sorted(other for other in ours if not within(other, allowed))
        assert not wrong, f"{name} imports {wrong}; {package} may import {allowed}"


def test_only_the_lift_and_its_parser_bring_spark_into_views() -> None:
    heavy = [name for name, file in modules("views").items() if {other.split(".")[0] for other in imported(file)} & HEAVY]
    assert [name for name in heavy if not within(name, ("views.lift", "views.parse"))] == []


@pytest.mark.parametrize("module", sorted(modules("serving")))
def test_nothing_that_serving_imports_brings_spark_delta_or_prefect(module: str) -> None:
    brought = {name: by for name, by in reachable(module).items() if name.split(".")[0] in HEAVY}
    assert not brought, f"{module} brings {brought}"


@pytest.mark.parametrize("module", sorted(name for name in OURS if name.split(".")[:2] == ["serving", "audit"]))
def test_the_audit_shares_no_code_with_what_it_checks(module: str) -> None:
    layers = {name for name in reachable(module) if name.split(".")[0] in {"speed_layer", "batch_layer"}}
    assert not layers
    assert not [name for name in reachable(module) if within(name, ("views.lift", "views.parse", "views.fold"))]
