"""The audit stays apart from what it audits, and sees the same over HTTP as over SQL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from serving.audit.run import audit
from serving.audit.served import ServedByHttp
from serving.client import Seam
from tests.audit.audited_line import LINE, AuditedLine, made_log
from tests.serving.served_api import running_api
from views.registry import ALL_VIEWS

_FORBIDDEN = ("pyspark", "delta", "prefect", "views.lift", "views.parse", "views.fold", "speed_layer", "batch_layer", "infra", "flows")


def test_the_oracle_loads_nothing_of_what_it_audits() -> None:
    script = (
        f"import sys, serving.audit.run, serving.audit.sources; print(*(name for name in sys.modules if name.startswith({_FORBIDDEN!r})))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert found.stdout.split() == []


def test_the_recount_itself_loads_no_store_but_its_vectors() -> None:
    script = "import sys, serving.audit.recount; print(*(name for name in sys.modules if name.startswith('serving.store.')))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert found.stdout.split() == ["serving.store.vectors"]


def test_an_audit_over_http_compares_the_same_cells_page_by_page(fresh_database_url: str, tmp_path: Path) -> None:
    log = made_log(12_000)
    line = AuditedLine(fresh_database_url)
    line.commit(log)
    by_sql = audit(line.conn, LINE, ALL_VIEWS, lambda since, until: log)
    with running_api(fresh_database_url, tmp_path / "keys") as api, Seam(api.url, api.key) as client:
        by_http = audit(line.conn, LINE, ALL_VIEWS, lambda since, until: log, served=ServedByHttp(client))
    line.close()

    assert by_sql.exact
    assert by_http == by_sql
    assert max(view.cells_compared for view in by_http.views) > 10_000, "more than one page"
