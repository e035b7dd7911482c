"""Check every scheme on a GPU, and time it beside others: the command of `make gpu`.

    python -m benchmarks.gpu                    # at most five minutes; results/gpu.json
    python -m benchmarks.gpu --device cpu --quick --output /tmp/tried

The second line runs the same checks and timings at tiny sizes without a GPU: it proves
that the script works, and says nothing about any GPU. Exit codes: 0 all checks hold, 1
some do not, 2 there is no GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu_checks, gpu_report, gpu_times, harness, report
from benchmarks.harness import say

SECONDS = 240  # after this no further contestant starts
PACKAGES = ("pe-lab", "torch", "triton", "transformers", "liger-kernel")


def device_of(kind: str) -> dict[str, Any]:
    """What it ran on: for a GPU its name, memory, driver and CUDA's version."""
    if kind != "cuda":
        return {"kind": kind, "name": harness.processor()}
    about = torch.cuda.get_device_properties(0)
    return {
        "kind": kind,
        "name": about.name,
        "gigabytes": about.total_memory / 1e9,
        "capability": f"{about.major}.{about.minor}",
        "driver": driver(),
        "cuda": torch.version.cuda,
    }


def driver() -> str | None:
    """The driver's version as nvidia-smi tells it, or None."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n")[0].strip() or None if done.returncode == 0 else None


def measure(device: str, quick: bool) -> dict[str, Any]:
    """Checks first, since times of wrong results are worth nothing."""
    start = time.monotonic()
    say("checks …")
    sizes = gpu_checks.QUICK if quick else gpu_checks.Sizes()
    checks = gpu_checks.run(device, sizes, say)
    timed = gpu_times.QUICK if quick else gpu_times.Sizes()
    timings = []
    for job in gpu_times.jobs(timed, device, quick):
        with harness.step(job.name):
            found = gpu_times.measure(
                job, device, timed.repeats, lambda: time.monotonic() - start > SECONDS
            )
        timings.append(found)
    setting = {"rope": timed.rope, "table": timed.table, "attention": timed.attention}
    content = harness.heading("gpu", setting | {"quick": quick}, PACKAGES)
    content |= {"device": device_of(device), "checks": checks, "timings": timings}
    return content | {"seconds": time.monotonic() - start}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a try")
    parser.add_argument("--output", type=Path, default=harness.RESULTS, help="a folder")
    found = parser.parse_args(arguments)
    if (found.device == "cpu") > found.quick:
        parser.error("--device cpu proves that the script works: it needs --quick")
    if found.quick and found.output == harness.RESULTS:
        parser.error("--quick needs --output FOLDER: its numbers are not for the book")
    return found


def main(arguments: list[str] | None = None) -> int:
    found = parse(arguments)
    if found.device == "cuda" and not torch.cuda.is_available():
        say(
            "There is no GPU that torch can use, so nothing was checked and nothing "
            f"timed (torch {torch.__version__}). On a machine with one, install torch "
            "with CUDA and run this again; to try the script here, run: python -m "
            "benchmarks.gpu --device cpu --quick --output FOLDER"
        )
        return 2
    content = measure(found.device, found.quick)
    path = harness.save(content, found.output)
    print(report.as_text(gpu_report.checks(content)))
    print()
    print(report.as_text(gpu_report.timings(content)))
    say(f"Written to {path}")
    return 0 if all(check["ok"] for check in content["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
