"""Measure speed, accuracy and memory beside other libraries: `make bench`.

    python -m benchmarks.run                        # some minutes; writes results/
    python -m benchmarks.run --only rotate --rounds 5
    python -m benchmarks.run --quick --output /tmp/tried   # tiny sizes, to try it out

Each benchmark is one process on one thread, its contestants in turns. The next one
starts afresh, since an allocator that has kept memory cannot be made to ask for new.
Targets are reported, met or missed; none fails the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import report
from benchmarks.harness import options, say

# One thread from the start, in every library that has threads.
SURROUNDINGS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
ROOT = Path(__file__).parents[1]


def run(name: str, words: list[str]) -> None:
    """One benchmark, to its end; its progress is seen as it goes."""
    say(f"{name} …")
    start = time.perf_counter()
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | SURROUNDINGS)
    say(f"{name}: {time.perf_counter() - start:.0f} s")


def show(names: tuple[str, ...], folder: Path) -> None:
    """The tables of what was run, then the targets."""
    contents = {n: c for n, c in report.load(folder).items() if n in names}
    for name, content in contents.items():
        print(f"\n── {name} " + "─" * 60)
        print(report.as_text(report.TABLES[name](content)))
        print(report.missing(content), end="")
    print("\n── aims " + "─" * 60)
    print(report.as_text(report.target_table(contents)))


def main(arguments: list[str] | None = None) -> int:
    found = options(__doc__, arguments, only=report.NAMES)
    names = tuple(found.only or report.NAMES)
    folder = found.output.resolve()
    words = ["--output", str(folder)]
    words += ["--quick"] if found.quick else []
    words += ["--rounds", str(found.rounds)] if found.rounds else []
    for name in names:
        run(name, words)
    show(names, folder)
    say(f"\nWritten to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
