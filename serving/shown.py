"""How views and manifests are shown: the same document over HTTP and on the command line."""

from __future__ import annotations

from serving.question import legal_parameters
from serving.store.records import Manifest
from views.view import View


def view_json(view: View) -> dict[str, object]:
    return {
        "name": view.name,
        "key": list(view.key),
        "window_seconds": view.window.seconds,
        "measures": {name: dict(measure.definition()) for name, measure in view.measures.items()},
        "fingerprint": view.fingerprint,
        "parameters": list(legal_parameters(view)),
    }


def manifest_json(manifest: Manifest) -> dict[str, object]:
    return {
        "id": manifest.manifest,
        "generation": manifest.generation,
        "cut": manifest.cut.to_json(),
        "published_at": manifest.published_at.isoformat(),
        "current": manifest.current,
        "watermark": manifest.watermark.isoformat() if manifest.watermark else None,
        "base": manifest.base,
        "views": dict(manifest.fingerprints),
        "days": len({day for _, day in manifest.segments}),
        "segments": len(manifest.segments),
        "counts": dict(manifest.counts),
    }
