"""Run chapters and store their outputs: NN_name.py -> NN_name.ipynb, reproducibly.

The .py file (py:percent) is the source. This runner is the only writer of the .ipynb:
it executes the source from top to bottom in a fresh kernel, removes everything that
differs from run to run (timestamps, versions, random widget ids), and replaces the
.ipynb in one step. Two runs of one source give the same bytes.

    python book/tools/run_notebooks.py                     # every chapter
    python book/tools/run_notebooks.py notebooks/05_*.py   # some chapters
    python book/tools/run_notebooks.py --changed           # those whose source moved on
    python book/tools/run_notebooks.py --check             # run, compare, write nothing
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"

CELL_TIMEOUT = 600  # seconds; a whole chapter should stay below 60
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_NOTEBOOK_METADATA = ("kernelspec", "language_info", "widgets")
KEPT_CELL_METADATA = ("tags", "mystnb", "reason")
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
RANDOM_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


class ChapterError(Exception):
    """A chapter that cannot be stored; the message names file, cell and reason."""


@dataclass(frozen=True)
class Outcome:
    """What happened to one chapter: `problem` is empty when all went well."""

    name: str
    cpu_seconds: float
    wall_seconds: float
    verb: str = "written"
    problem: str = ""

    def __str__(self) -> str:
        cost = f"{self.cpu_seconds:6.1f} s CPU {self.wall_seconds:6.1f} s wall"
        return f"{self.name:32} {cost}  {'FAILED' if self.problem else self.verb}"


def read_source(source: Path) -> NotebookNode:
    """The notebook written in `source` (py:percent), without outputs."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook = nbformat.from_dict({**notebook, "nbformat": 4, "nbformat_minor": 5})
    notebook.metadata = NotebookNode(kernelspec=KERNEL)
    return notebook


def cell_identity(cell: NotebookNode) -> tuple[str, str, dict[str, Any]]:
    """What a source cell and its stored pair must share: type, text, metadata."""
    kept = {k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA}
    return cell.cell_type, cell.source, kept


def same_source(one: NotebookNode, other: NotebookNode) -> bool:
    """Whether two notebooks have the same cells, outputs aside."""
    return [*map(cell_identity, one.cells)] == [*map(cell_identity, other.cells)]


def is_current(source: Path) -> bool:
    """Whether the stored notebook holds exactly the cells of `source`."""
    stored = source.with_suffix(".ipynb")
    if not stored.exists():
        return False
    return same_source(read_source(source), nbformat.read(stored, as_version=4))


# ── execution ────────────────────────────────────────────────────────────────────


def execute(notebook: NotebookNode, source: Path) -> None:
    """Run every cell in a fresh kernel, in the folder of `source`."""
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        extra_arguments=["--log-level=ERROR"],  # the kernel's own talk, not the cells'
        resources={"metadata": {"path": str(source.parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        reason = f"{error.ename}: {error.evalue}"
    except CellTimeoutError:
        reason = f"took longer than {CELL_TIMEOUT} s"
    except DeadKernelError:
        reason = "the kernel died"
    else:
        return
    raise ChapterError(describe(source, notebook, last_run(notebook), reason))


def last_run(notebook: NotebookNode) -> int:
    """Index of the last cell that the kernel started."""
    started = [i for i, cell in enumerate(notebook.cells) if was_started(cell)]
    return started[-1] if started else 0


def was_started(cell: NotebookNode) -> bool:
    """Whether nbclient sent this cell to the kernel (it notes the time)."""
    return bool(cell.metadata.get("execution"))


def describe(source: Path, notebook: NotebookNode, index: int, reason: str) -> str:
    """A sentence that leads an author to the cell: file, number, code, reason."""
    lines = notebook.cells[index].source.split("\n")
    code = "\n".join(f"    | {line}" for line in lines)
    return f"{source.name}, cell {index}: {reason}\n{code}"


def refuse_stderr(notebook: NotebookNode, source: Path) -> None:
    """Warnings and progress bars move from run to run: mend the cause instead."""
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                reason = f"wrote to stderr: {output.text.strip()}"
                raise ChapterError(describe(source, notebook, index, reason))


# ── normalisation ────────────────────────────────────────────────────────────────


def normalise(notebook: NotebookNode, stem: str) -> str:
    """The notebook as text from which all that differs between runs is gone."""
    metadata = notebook.metadata
    kept = {k: metadata[k] for k in KEPT_NOTEBOOK_METADATA if k in metadata}
    kept.get("language_info", {}).pop("version", None)
    notebook.metadata = nbformat.from_dict(kept)
    for index, cell in enumerate(notebook.cells):
        normalise_cell(cell, f"{stem[:2]}-{index:03d}")
    text = rename_widgets(nbformat.writes(notebook), widget_ids(notebook))
    return text if text.endswith("\n") else text + "\n"


def normalise_cell(cell: NotebookNode, name: str) -> None:
    """Stable id, only the source's own metadata, one output per run of a stream."""
    cell["id"] = name
    cell.metadata = nbformat.from_dict(cell_identity(cell)[2])
    if cell.cell_type == "code":
        cell.outputs = merge_streams(cell.outputs)


def merge_streams(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Join neighbouring writes to one stream: where they split depends on timing."""
    merged: list[NotebookNode] = []
    for output in outputs:
        if merged and stream(output) and stream(output) == stream(merged[-1]):
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def stream(output: NotebookNode) -> str:
    """`stdout` or `stderr` for a stream, empty for any other output."""
    return str(output.name) if output.output_type == "stream" else ""


def widget_ids(notebook: NotebookNode) -> dict[str, str]:
    """Random 32-hex model ids -> w000…1, w000…2, … in the order of creation."""
    state = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    random_ids = [key for key in state if RANDOM_ID.fullmatch(key)]
    return {key: f"w{number:031d}" for number, key in enumerate(random_ids, 1)}


def rename_widgets(text: str, names: dict[str, str]) -> str:
    """`text` with the model ids replaced; written again, as the keys are sorted."""
    renamed = RANDOM_ID.sub(lambda match: names.get(match[0], match[0]), text)
    return str(nbformat.writes(nbformat.reads(renamed, as_version=4)))


# ── one chapter, then all ────────────────────────────────────────────────────────


def run(source: Path) -> str:
    """Execute `source` and return the text of its .ipynb."""
    notebook = read_source(source)
    execute(notebook, source)
    refuse_stderr(notebook, source)
    return normalise(notebook, source.stem)


def write(path: Path, text: str) -> None:
    """Replace `path` in one step, so that nobody reads half a notebook."""
    partial_file = path.with_name(f".{path.name}.{os.getpid()}")
    partial_file.write_text(text, encoding="utf-8", newline="\n")
    os.replace(partial_file, path)


def differences(stored: Path, text: str) -> str:
    """Which cells of the stored notebook differ from the run; empty if none does."""
    if not stored.exists():
        return f"{stored.name} does not exist"
    if stored.read_text(encoding="utf-8") == text:
        return ""
    old = nbformat.read(stored, as_version=4).cells
    new = nbformat.reads(text, as_version=4).cells
    pairs = enumerate(zip_longest(old, new))
    cells = [str(index) for index, (before, after) in pairs if before != after]
    where = f"cells {', '.join(cells)}" if cells else "the notebook's metadata"
    return f"{stored.name} differs from this run in {where}"


def process(source: Path, check: bool = False) -> Outcome:
    """Run one chapter and write it, or with `check` only compare; count the cost."""
    wall, cpu = time.monotonic(), os.times()
    problem = ""
    try:
        text = run(source)
        if check:
            problem = differences(source.with_suffix(".ipynb"), text)
        else:
            write(source.with_suffix(".ipynb"), text)
    except ChapterError as error:
        problem = str(error)
    spent = os.times()
    seconds = spent.children_user + spent.children_system
    seconds -= cpu.children_user + cpu.children_system
    verb = "unchanged" if check else "written"
    return Outcome(source.stem, seconds, time.monotonic() - wall, verb, problem)


def process_all(sources: Sequence[Path], check: bool, jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of `sources`; `jobs` chapters run at a time."""
    work = partial(process, check=check)
    if jobs == 1:
        yield from map(work, sources)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, sources)


def find_sources(names: Sequence[str]) -> list[Path]:
    """Source files for `names` (.py or .ipynb); all chapters when none is named."""
    if not names:
        return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.py"))
    sources = [Path(name).resolve().with_suffix(".py") for name in names]
    for source in sources:
        if not source.exists():
            raise SystemExit(f"{source} does not exist: name a chapter's .py file")
    return sources


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("chapters", nargs="*", help="default: every chapter")
    parser.add_argument(
        "--changed", action="store_true", help="only where source and notebook differ"
    )
    parser.add_argument(
        "--check", action="store_true", help="only compare with what is stored"
    )
    parser.add_argument("--jobs", type=int, default=1, help="chapters run at a time")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 1 if any chapter failed."""
    options = parse(arguments)
    sources = find_sources(options.chapters)
    if options.changed:
        sources = [source for source in sources if not is_current(source)]
    if not sources:
        print("Nothing to run: every notebook is current.")
    failed = 0
    for outcome in process_all(sources, options.check, options.jobs):
        print(outcome, flush=True)
        if outcome.problem:
            print(outcome.problem, file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
