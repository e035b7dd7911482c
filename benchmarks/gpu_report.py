"""What results/gpu.json says, as tables and sentences; nothing where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS
from benchmarks.report import Table, error, times

NONE = "No run on a GPU has been published yet, so this page gives no number for one."


def load(folder: Path = RESULTS) -> dict[str, Any] | None:
    """The file, or None."""
    path = folder / "gpu.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def checks(content: dict[str, Any]) -> Table:
    """For each door and dtype: how many checks, how many hold, the largest error."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for check in content["checks"]:
        groups.setdefault((check["door"], check["dtype"]), []).append(check)
    rows = []
    for (door, dtype), found in groups.items():
        held = sum(check["ok"] for check in found)
        worst = max(check["error"] for check in found)
        cells = [f"{held} of {len(found)}", error(worst), error(found[0]["limit"])]
        rows.append([f"{door}, {dtype}", *cells])
    return Table(["", "checks hold", "largest relative error", "limit"], rows)


def timings(content: dict[str, Any]) -> Table:
    """Milliseconds and times the bound, a row for each contestant of each job."""
    rows = []
    for job in content["timings"]:
        for name, row in job["rows"].items():
            cells = [f"{row['milliseconds']:.3f}", times(row["over_bound"])]
            rows.append([f"{job['job']}: {name}", *cells])
        rows += [[f"{job['job']}: {name}", "–", "–"] for name in job["missing"]]
    return Table(["", "ms", "× bound"], rows)


def origin(content: dict[str, Any]) -> str:
    """When and on what, as a sentence."""
    where, device = content["provenance"], content["device"]
    return (
        f"Measured on {where['date'].partition('T')[0]} on {device['name']} (driver "
        f"{device.get('driver')}, CUDA {device.get('cuda')}), with torch "
        f"{where['torch']}, pe_lab {where['pe_lab']} at commit {where['commit']}."
    )
