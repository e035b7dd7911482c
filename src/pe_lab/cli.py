"""The command line: experiments, their results, and the doctor."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pe_lab
from pe_lab.doctor import command


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="pe-lab", description="Position in Transformers: run, measure, look."
    )
    top.add_argument("--version", action="version", version=pe_lab.__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="run an experiment on the CPU"))
    results = commands.add_parser("results", help="show results")
    results.add_argument(
        "name", nargs="?", help="a shipped result or a result file; without: a list"
    )
    command.add_options(commands.add_parser("doctor", help="find a bug in an encoding"))
    commands.add_parser("fetch", help="fetch and verify the King James text (1.5 MB)")
    return top


def _add_run(run: argparse.ArgumentParser) -> None:
    from pe_lab.lab.experiments import EXPERIMENTS

    run.add_argument("name", metavar="NAME", help=", ".join(EXPERIMENTS))
    run.add_argument(
        "--size", default="full", choices=("quick", "full", "gpu"),
        help="full is what is shipped, gpu is larger where one is planned (full)",
    )  # fmt: skip
    run.add_argument(
        "--quick", action="store_const", const="quick", dest="size",
        help="the same as --size quick: some 10 CPU seconds",
    )  # fmt: skip
    run.add_argument("--device", default="cpu", metavar="D", help="cpu or cuda (cpu)")
    run.add_argument(
        "--seeds", type=int, metavar="N", help="seeds 0 … N-1 (3; quick 1)"
    )
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    run.add_argument(
        "--out", type=Path, default=Path("results"), metavar="DIR",
        help="where runs are stored; the ones found there are not made again (results)",
    )  # fmt: skip
    run.add_argument(
        "--variant", action="append", metavar="V", dest="variants",
        help="run this variant only; may be given several times",
    )  # fmt: skip
    run.add_argument(
        "--text", default="auto", choices=("auto", "kjv", "topics"),
        help="text of the language models (auto: kjv if it was fetched)",
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: without the program's name; by default those of the process.

    Returns:
        0 if all went well, 1 for an error (told on stderr) or a finding of the doctor,
        2 if the doctor cannot examine, 130 for Ctrl-C; wrong usage ends in argparse's
        own message and 2.
    """
    options = parser().parse_args(arguments)
    verbs: dict[str, Callable[[argparse.Namespace], Any]] = {
        "run": _run,
        "results": _results,
        "fetch": _fetch,
        "doctor": command.run,
    }
    try:
        said = verbs[options.command](options)
        text, code = said if isinstance(said, tuple) else (said, 0)
        if text:
            print(text)
        return code
    except KeyboardInterrupt:
        print(
            "Stopped. Runs that were done are stored; the same command goes on there.",
            file=sys.stderr,
        )
        return 130
    except (ValueError, OSError, ArithmeticError, ImportError, RuntimeError) as error:
        print(f"pe-lab: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> str:
    from pe_lab.lab import run
    from pe_lab.lab.results import table

    result = run(
        options.name,
        size=options.size,
        device=options.device,
        variants=options.variants,
        seeds=options.seeds,
        jobs=options.jobs,
        out=options.out,
        text=options.text,
        progress=True,
    )
    stored = options.out / f"{result.experiment}-{result.mode}.json"
    return f"{table(result)}\n{result.cpu_seconds:.0f} CPU seconds; stored in {stored}"


def _results(options: argparse.Namespace) -> str:
    from pe_lab.lab.results import load, read_result, shipped, table

    if options.name is None:
        return "\n".join(shipped())
    file = Path(options.name)
    result = read_result(file) if file.suffix == ".json" else load(options.name)
    sources = sorted({str(run.provenance.get("commit")) for run in result.runs})
    source = f"{result.cpu_seconds:.0f} CPU seconds; commit {', '.join(sources)}"
    texts = sorted({run.config["text"] for run in result.runs if "text" in run.config})
    return "\n".join([table(result), source, *(f"text: {text}" for text in texts)])


def _fetch(options: argparse.Namespace) -> str:
    from pe_lab.lab.text import fetch_kjv

    return str(fetch_kjv())


if __name__ == "__main__":
    sys.exit(main())
