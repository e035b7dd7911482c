"""Make the results that come with the package again: ``make results``.

Every experiment is run in full, from where it was stopped, into a folder of its own in
``results``. What is complete and was made by committed code is then copied to
``src/pe_lab/lab/shipped``, from which the book and ``pe_lab.lab.load`` read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pe_lab import provenance
from pe_lab.lab import Result, run, store
from pe_lab.lab.experiments import EXPERIMENTS


def committed() -> None:
    """Refuse to start hours of work on code that no commit names."""
    commit = provenance().commit
    if commit is None or commit.endswith("+"):
        raise ValueError(
            "the code differs from its last commit, so a result could not say by which "
            "code it was made; commit your changes first."
        )


def complete(result: Result) -> None:
    """Refuse a result that lacks runs, or has some of code that no commit names."""
    plan, name = store.planned(result), result.experiment
    if plan is None or len(result.runs) < plan:
        raise ValueError(f"{name} has {len(result.runs)} of {plan} runs; run it again.")
    for made in result.runs:
        commit = made.provenance.get("commit")
        if not (isinstance(commit, str) and commit.isalnum()):
            raise ValueError(
                f"{made.variant} of {name} with seed {made.seed} was made by code that "
                "no commit names; move its file away and run it again."
            )


def ship(name: str, out: Path) -> Path:
    """Copy a stored result to where shipped ones are."""
    result = store.read_result(out / f"{name}-full")
    complete(result)
    place = store.SHIPPED / f"{name}.json"
    store.write_result(place, result)
    return place


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and ship the experiments that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--out", type=Path, default=Path("results"), metavar="DIR")
    options = parser.parse_args(arguments)
    try:
        committed()
        for name in options.names or EXPERIMENTS:
            print(f"{name} …", file=sys.stderr)
            run(name, jobs=options.jobs, out=options.out, text="kjv", progress=True)
            print(ship(name, options.out))
    except (ValueError, OSError) as error:
        print(f"ship.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
