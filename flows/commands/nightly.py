"""`seam ingest`, `seam nightly`, `seam rebuild`: the batch layer's commands."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from flows.console import AsJson, note, print_json, print_table

if TYPE_CHECKING:
    from batch_layer.night import NightReport
    from batch_layer.rebuild import RebuildReport
    from infra.settings import Settings

Line = Annotated[str, typer.Option("--line", help="The line to work on; else the one of the settings.")]
WithoutPrefect = Annotated[bool, typer.Option("--without-prefect", help="Run the steps in this process even if there is a Prefect server.")]


def register(app: typer.Typer) -> None:
    app.command()(ingest)
    app.command()(nightly)
    app.command()(rebuild)


def ingest(line: Line = "", as_json: AsJson = False) -> None:
    """Catch the master dataset up with the log, once."""
    from flows.night_shift import Shift, run_plainly

    done = Shift(_settings(line), run_plainly).ingest()
    for warning in done.warnings:
        note(f"warning: {warning}")
    if as_json:
        print_json(
            {
                "start": done.start.to_json(),
                "until": done.until.to_json(),
                "deliveries": done.deliveries,
                "commits": done.commits,
                "retention_margin": done.retention_margin,
                "warnings": list(done.warnings),
            }
        )
        return
    rows = [("from", done.start), ("until", done.until), ("deliveries", f"{done.deliveries:,}"), ("commits", done.commits)]
    margin = "the log is empty" if done.retention_margin is None else f"{done.retention_margin:,} offsets"
    print_table("Ingested", ("", " "), [*rows, ("ahead of Kafka's retention by", margin)])


def nightly(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what a night would do now, and write nothing.")] = False,
    without_prefect: WithoutPrefect = False,
    line: Line = "",
    as_json: AsJson = False,
) -> None:
    """Run one night: seal, ingest, recompute, check, load, publish, expire."""
    settings = _settings(line)
    if dry_run:
        _show_plan(settings, as_json)
        return
    report = _run_night(settings, "" if without_prefect else _prefect_url(settings))
    for warning in report.warnings:
        note(f"warning: {warning}")
    if as_json:
        print_json(asdict(report) | {"days_touched": [str(day) for day in report.days_touched]})
    else:
        _show_night(report)


def rebuild(
    publish: Annotated[bool, typer.Option("--publish", help="Publish what was rebuilt in place of what is published.")] = False,
    line: Line = "",
    as_json: AsJson = False,
) -> None:
    """Recompute every day from the raw deliveries and compare with what is published; exit code 1 if anything differs."""
    from flows.night_shift import Shift, run_plainly

    report = Shift(_settings(line), run_plainly).rebuild(publish=publish)
    if as_json:
        differences = [asdict(each) | {"day": str(each.day)} for each in report.differences]
        said = {"manifest": report.manifest, "segments": report.segments, "differ": len(differences), "differences": differences}
        print_json(said | {"published": report.night.manifest if report.night else None})
    else:
        _show_rebuild(report)
    if report.differences and not publish:
        raise typer.Exit(1)


def _settings(line: str) -> Settings:
    from infra.settings import load_settings

    return load_settings(**({"line": line} if line else {}))


def _prefect_url(settings: Settings) -> str:
    """The configured server, else the one of this home, else the one of the environment; empty without one."""
    from infra.stack import endpoints

    return endpoints(settings).prefect_api_url or os.environ.get("PREFECT_API_URL", "")


def _run_night(settings: Settings, prefect_api_url: str) -> NightReport:
    if not prefect_api_url:
        from flows.night_shift import Shift, run_plainly

        return Shift(settings, run_plainly).night()
    _require_answer(prefect_api_url)
    # Before Prefect is imported: it reads them once. What it would print, this command prints in fewer lines.
    os.environ |= {
        "PREFECT_API_URL": prefect_api_url,
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    from flows.nightly import nightly as flow

    return flow(line=settings.line)


def _require_answer(prefect_api_url: str) -> None:
    import httpx

    from serving.errors import StackFault

    try:
        httpx.get(f"{prefect_api_url.rstrip('/')}/health", timeout=5).raise_for_status()
    except httpx.HTTPError as error:
        raise StackFault(
            f"The Prefect server at {prefect_api_url} does not answer ({type(error).__name__}).",
            untouched="The night did not start.",
            fix="seam up, or seam nightly --without-prefect",
        ) from None


def _show_plan(settings: Settings, as_json: bool) -> None:
    from flows.night_shift import Shift, run_plainly

    steps = Shift(settings, run_plainly).plan()
    if as_json:
        print_json([asdict(step) for step in steps])
    else:
        print_table("A night now would", ("step", "does"), [(step.name, step.does) for step in steps])


def _show_night(report: NightReport) -> None:
    days = ", ".join(str(day) for day in report.days_touched[:4]) + (" …" if len(report.days_touched) > 4 else "")
    rows = [
        ("manifest", report.manifest if report.published else f"{report.manifest} (nothing new to publish)"),
        ("generation", report.generation),
        ("cut", report.cut),
        ("deliveries ingested", f"{report.ingested:,}"),
        ("deliveries read", f"{report.deliveries:,}"),
        ("counted", f"{report.counted:,}"),
        ("duplicates", f"{report.duplicates:,}"),
        ("quarantined", f"{report.quarantined:,}"),
        ("days touched", f"{len(report.days_touched)}" + (f" ({days})" if days else "")),
        ("segments", f"{report.segments_new} new, {report.segments_kept} kept"),
    ]
    print_table("The night", ("", " "), rows)


def _show_rebuild(report: RebuildReport) -> None:
    print(f"{report.segments} segments of manifest {report.manifest} compared, {len(report.differences)} differ")
    if report.unpublished:
        print(f"{report.unpublished} segments rebuilt of views that manifest {report.manifest} does not know")
    for each in report.differences[:20]:
        print(f"  {each.view} {each.day}: published {each.published[:12] or 'nothing'}, rebuilt {each.rebuilt[:12] or 'nothing'}")
    if report.night:
        print(f"published as manifest {report.night.manifest}")
