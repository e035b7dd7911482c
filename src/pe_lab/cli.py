"""The command line: experiments, their results, and the doctor."""

from __future__ import annotations

import argparse
import json
import os
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
    _add_run(commands.add_parser("run", help="run an experiment"))
    _add_results(commands.add_parser("results", help="show results"))
    _add_plot(commands.add_parser("plot", help="draw curves or a profile of a result"))
    command.add_options(commands.add_parser("doctor", help="find a bug in an encoding"))
    _add_fetch(commands.add_parser("fetch", help="fetch and verify text or a model"))
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
    run.add_argument(
        "--seeds", type=int, metavar="N", help="seeds 0 … N-1 (3; quick 1)"
    )
    run.add_argument(
        "--variant", action="append", metavar="V", dest="variants",
        help="run this variant only; may be given several times",
    )  # fmt: skip
    run.add_argument(
        "--text", default="auto", choices=("auto", "kjv", "topics"),
        help="text of the language models (auto: kjv if it was fetched)",
    )  # fmt: skip
    _add_place(run)


def _add_place(run: argparse.ArgumentParser) -> None:
    """Where a run is made and kept, and by how many processes."""
    run.add_argument("--device", default="cpu", metavar="D", help="cpu or cuda (cpu)")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    run.add_argument(
        "--shard", type=_shard, default=(0, 1), metavar="K/N",
        help="make every N-th run only, from the K-th on, K = 0 … N-1; started N times "
        "with one --out, by a Slurm array or xargs, that makes all of them",
    )  # fmt: skip
    run.add_argument(
        "--out", type=Path, default=Path("results"), metavar="DIR",
        help="where runs are stored; the ones found there are not made again (results)",
    )  # fmt: skip
    run.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True,
        help="go on from what is stored there (the default); or refuse if it has any",
    )  # fmt: skip
    run.add_argument(
        "--every", type=int, default=200, metavar="N",
        help="steps between checkpoints, at most so many are made again (200)",
    )  # fmt: skip


def _add_fetch(fetch: argparse.ArgumentParser) -> None:
    fetch.add_argument(
        "what", nargs="?", default="kjv", choices=("kjv", "minilm"), metavar="WHAT",
        help="kjv, the King James text (1.5 MB), or minilm, a model (84 MB) (kjv)",
    )  # fmt: skip


def _add_results(results: argparse.ArgumentParser) -> None:
    results.add_argument(
        "name", nargs="?", metavar="NAME|FILE|FOLDER",
        help="a shipped result, a result file, or the folder of runs of a sweep, also "
        "one that is still running; without: a list of what is shipped",
    )  # fmt: skip
    results.add_argument(
        "--profile", metavar="P", help="show this profile, not the final values"
    )
    results.add_argument(
        "--json", action="store_true", help="all values of all seeds, for programs"
    )


def _add_plot(plot: argparse.ArgumentParser) -> None:
    plot.add_argument("name", metavar="NAME|FILE|FOLDER", help="as for results")
    plot.add_argument(
        "--metric", metavar="M", help="a curve or a profile (held_out_loss)"
    )
    plot.add_argument(
        "--variant", action="append", metavar="V", dest="variants",
        help="draw this variant only; may be given several times",
    )  # fmt: skip
    plot.add_argument("--xlog", action="store_true", help="a logarithmic axis")
    plot.add_argument("--ylog", action="store_true", help="a logarithmic axis")
    plot.add_argument(
        "--out", type=Path, metavar="FILE",
        help="where to, .png or .svg (EXPERIMENT-METRIC.png here)",
    )  # fmt: skip


def _shard(text: str) -> tuple[int, int]:
    """K/N as two numbers; `run` checks them."""
    part, _, parts = text.partition("/")
    try:
        return int(part), int(parts)
    except ValueError:
        raise argparse.ArgumentTypeError(f"needs K/N, as 0/4, got {text!r}") from None


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
        "plot": _plot,
        "fetch": _fetch,
        "doctor": command.run,
    }
    try:
        said = verbs[options.command](options)
        text, code = said if isinstance(said, tuple) else (said, 0)
        if text:
            _say(text)
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


def _say(text: str) -> None:
    """Print; a reader who has seen enough (`| head`) is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(options: argparse.Namespace) -> str:
    from pe_lab.lab import parallel, run, table

    result = run(
        options.name,
        size=options.size,
        device=options.device,
        variants=options.variants,
        seeds=options.seeds,
        jobs=options.jobs,
        shard=options.shard,
        out=options.out,
        every=options.every,
        resume=options.resume,
        text=options.text,
        progress=True,
    )
    if parallel.rank() != 0:
        return ""  # the first process says it
    if not result.runs:
        return f"There are fewer runs than shards; none is for {options.shard[0]}."
    stored = options.out / f"{result.experiment}-{result.mode}.json"
    return f"{table(result)}\n{result.cpu_seconds:.0f} CPU seconds; stored in {stored}"


def _results(options: argparse.Namespace) -> str:
    from pe_lab.lab import report, store

    if options.name is None:
        return report.listing()
    result = store.find(options.name)
    if options.json:
        return json.dumps(report.as_dict(result, options.profile), indent=1)
    return report.summary(result, options.profile)


def _plot(options: argparse.Namespace) -> str:
    from pe_lab.lab import figures, store

    result = store.find(options.name)
    metric = options.metric or figures.default_metric(result)
    figure = figures.draw(
        result,
        metric,
        variants=options.variants,
        xlog=options.xlog,
        ylog=options.ylog,
    )
    name = f"{result.experiment}-{metric.replace('/', '.')}.png"
    out = options.out or Path(name)
    figures.save(figure, out)
    return str(out)


def _fetch(options: argparse.Namespace) -> str:
    from pe_lab.lab import minilm, text

    return str(minilm.fetch() if options.what == "minilm" else text.fetch_kjv())


if __name__ == "__main__":
    sys.exit(main())
