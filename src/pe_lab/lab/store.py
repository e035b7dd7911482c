"""The store: one JSON file for each run in a folder, and one for a whole result.

Files are written whole or not at all, so any number of processes may write into one
folder while others read it. What is there is checked when it is read; nothing is ever
deleted, and nothing that is damaged or strange is ever written over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .files import write_whole
from .results import Result, Run
from .schema import run_from

FORMAT = 1
SHIPPED = Path(__file__).parent / "shipped"
SIZES = ("quick", "full", "gpu")  # a folder is called after experiment and size
AGAIN = "; move it elsewhere and run the experiment again."


def shipped() -> list[str]:
    """The names of the results that come with the package."""
    return sorted(file.stem for file in SHIPPED.glob("*.json"))


def load(name: str) -> Result:
    """A result that comes with the package.

    Args:
        name: of the experiment, such as `sqrt-d`.

    Returns:
        All runs of the full experiment, with their provenance.

    Raises:
        ValueError: for another name; the message lists the shipped results.

    Example:
        >>> result = pe_lab.lab.load("stall")
        >>> loss = result.final("fixed-abc/none", "held_out_loss")  # of three seeds
        >>> bool((loss < 0.01).all())  # the trap: solved without any position
        True
    """
    if name not in shipped():
        names = ", ".join(shipped())
        raise ValueError(f"no shipped result is called {name!r}; there are: {names}.")
    return read_result(SHIPPED / f"{name}.json")


def find(name: str) -> Result:
    """A shipped result by its name, or one by its file or folder.

    Raises:
        ValueError: if there is none, and as for `read_result`.
    """
    path = Path(name)
    if name in shipped() or not (path.exists() or path.suffix or len(path.parts) > 1):
        return load(name)
    return read_result(path)


def read_result(path: Path | str) -> Result:
    """Read a result that `run` stored, whole or while it is still made.

    Args:
        path: of the file `NAME-SIZE.json`, or of the folder `NAME-SIZE` that holds a
            file for each run that is done. Other files in the folder do not matter.

    Returns:
        all runs that are there.

    Raises:
        FileNotFoundError: if there is no such file or folder.
        ValueError: if a file is cut short or damaged, is no result, has another format
            or another experiment's run, or if one run is there twice. The message names
            the file, which stays as it is.

    Example:
        >>> stored = pe_lab.lab.store.SHIPPED / "sqrt-d.json"
        >>> pe_lab.lab.read_result(stored).experiment
        'sqrt-d'
    """
    path = Path(path)
    if path.is_dir():
        return collect(path)
    content = read_json(path)
    _needs(content, {"experiment": str, "mode": str, "runs": list}, path)
    runs = [_run(entry, path) for entry in content["runs"]]
    _once([(run, path) for run in runs])
    return Result(content["experiment"], content["mode"], tuple(runs))


def write_result(path: Path, result: Result) -> None:
    """Store a result.

    Raises:
        ValueError: if a value is no finite number.
        OSError: if the file cannot be written; what was there stays.
    """
    runs = [_stored(run) for run in result.runs]
    head = {"format": FORMAT, "experiment": result.experiment, "mode": result.mode}
    write_json(path, {**head, "runs": runs})


def read_run(path: Path) -> Run:
    """Read one run; the errors are those of `read_result`."""
    return _read(path)[1]


def write_run(path: Path, experiment: str, run: Run) -> None:
    """Store one run; the errors are those of `write_result`."""
    content = {"format": FORMAT, "experiment": experiment, "run": _stored(run)}
    write_json(path, content)


def collect(folder: Path) -> Result:
    """All runs in a folder, in the experiment's order; errors as for `read_result`."""
    found = [(*_read(file), file) for file in _files(folder)]
    if not found:
        raise ValueError(
            f"{folder} holds no stored run yet; look again when one is done."
        )
    experiment, size = _name_and_size(folder, found[0][0])
    for other, _, file in found:
        if other != experiment:
            raise ValueError(
                f"{file} is a run of {other} among those of {experiment}; "
                "move it to a folder of its own."
            )
    _once([(run, file) for _, run, file in found])
    runs = in_order(experiment, [run for _, run, _ in found])
    return Result(experiment, size, tuple(runs))


def write_collected(folder: Path) -> Result:
    """Collect a folder into the file beside it, also when others do so too.

    Whoever writes last has looked at the folder before a run was added that another has
    collected. So each looks again after writing, until what it wrote is what is there.
    """
    result = collect(folder)
    while True:
        write_result(folder.parent / f"{folder.name}.json", result)
        again = collect(folder)
        if again == result:
            return result
        result = again


def in_order(experiment: str, runs: Iterable[Run]) -> list[Run]:
    """Runs as the experiment lists its variants, seed by seed; strange ones last."""
    from .experiments import EXPERIMENTS  # which read results themselves

    known = EXPERIMENTS[experiment].variants if experiment in EXPERIMENTS else ()
    place = {variant: n for n, variant in enumerate(known)}
    return sorted(
        runs,
        key=lambda run: (place.get(run.variant, len(place)), run.variant, run.seed),
    )


def planned(result: Result) -> int | None:
    """How many runs the experiment plans for this size; None if it is not known."""
    from .experiments import EXPERIMENTS

    if result.experiment not in EXPERIMENTS or result.mode not in SIZES:
        return None
    experiment = EXPERIMENTS[result.experiment]
    if result.mode == "quick":
        return len(experiment.quick_variants)
    return len(experiment.variants) * experiment.seeds


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all, whatever stops this process meanwhile."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    # a list of numbers on one line: a curve is a line of the file
    text = re.sub(r"\[[^][{}\"]*\]", lambda found: " ".join(found[0].split()), text)
    write_whole(path, f"{text}\n".encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that this module wrote.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is cut short, is not a result, or has another format.
    """
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        line = f" at line {error.lineno}" if hasattr(error, "lineno") else ""
        raise ValueError(
            f"{path} is not a whole JSON file (it breaks off or is damaged{line})"
            + AGAIN
        ) from error
    if not isinstance(content, dict) or "format" not in content:
        raise ValueError(
            f"{path} is JSON, but not a result of pe_lab.lab; move it elsewhere."
        )
    if content["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {content['format']!r}, this version reads {FORMAT}; "
            "use the version of pe_lab that wrote it, or run the experiment again."
        )
    return content


def _files(folder: Path) -> list[Path]:
    """The files of runs in a folder: no checkpoints, no files half written."""
    return sorted(file for file in folder.glob("*.json") if file.name[0] != ".")


def _read(path: Path) -> tuple[str, Run]:
    """The experiment and the run in a file."""
    content = read_json(path)
    if "runs" in content:
        raise ValueError(
            f"{path} is a whole result and not one run; "
            "name it, or the folder of its runs."
        )
    _needs(content, {"experiment": str, "run": dict}, path)
    return content["experiment"], _run(content["run"], path)


def _run(content: Any, path: Path) -> Run:
    """A run from its JSON form, or an error that names the file."""
    try:
        return run_from(content)
    except ValueError as error:
        raise ValueError(f"{path} {error}{AGAIN}") from error


def _stored(run: Run) -> dict[str, Any]:
    """A run in its JSON form, if it can be read again."""
    content = asdict(run)
    try:
        run_from(content)
    except ValueError as error:
        raise ValueError(
            f"the run of {run.variant} with seed {run.seed} {error}; "
            "leave it out of the measurement, or mend that."
        ) from error
    return content


def _needs(content: dict[str, Any], entries: dict[str, type], path: Path) -> None:
    """Refuse a file that lacks an entry, or has one of another type."""
    for name, kind in entries.items():
        if name not in content:
            raise ValueError(f"{path} lacks the entry {name!r}{AGAIN}")
        if not isinstance(content[name], kind):
            given = f"{content[name]!r:.60}"
            raise ValueError(f"{path} has {given} as {name}{AGAIN}")


def _once(found: list[tuple[Run, Path]]) -> None:
    """Refuse one run in two places."""
    seen: dict[tuple[str, int], Path] = {}
    for run, path in found:
        key = run.variant, run.seed
        if key in seen:
            where = f"{path}" if path == seen[key] else f"{seen[key]} and {path}"
            raise ValueError(
                f"{run.variant} with seed {run.seed} is stored twice, in {where}; "
                "move one of the two elsewhere."
            )
        seen[key] = path


def _name_and_size(folder: Path, first: str) -> tuple[str, str]:
    """Experiment and size by the folder's name; else those of the first run."""
    name, _, size = folder.resolve().name.rpartition("-")
    return (name, size) if size in SIZES else (first, "unknown")
