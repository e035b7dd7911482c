"""The examples of CONTRIBUTING.md work: they are added to a copy, and run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.book import test_figures, test_numbers, test_style
from tests.book.chapters import Chapter

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE = re.compile(
    r"^`(?P<path>[\w/.]+)`:\n\n(?P<fence>`{3,})\w+\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
FILES = {match["path"]: match["text"] for match in FILE.finditer(GUIDE)}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of package and tools, with the files of the guide in it."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("src", "book/tools", "book/_static/explorables", "tests/explore"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
        shutil.copy(ROOT / name, folder / name)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    register = folder / "src/pe_lab/explore/__init__.py"
    line = re.search(r'^ +"Wave": "wave",\n', GUIDE, flags=re.MULTILINE)
    assert line
    known = register.read_text().replace("_HOMES = {\n", "_HOMES = {\n" + line[0])
    register.write_text(known)
    return folder


def run(folder: Path, *command: str) -> str:
    """What a Python command prints, with the copy's package in front."""
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_guide_shows_every_file():
    assert len(FILES) == 7
    assert not [name for name in FILES if (ROOT / name).exists()]


def test_the_encoding_passes_its_test(copy: Path):
    assert "4 passed" in run(copy, "-m", "pytest", "tests/encodings")


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_the_explorable_passes_its_test(copy: Path):
    assert "1 passed" in run(copy, "-m", "pytest", "tests/explore/test_wave.py")


def test_the_explorable_starts(copy: Path):
    code = "import pe_lab; print(pe_lab.explore.Wave(omega=1.0))"
    assert run(copy, "-c", code) == "Wave(count=32, omega=1.0)\n"


def test_the_chapter_runs_and_keeps_the_rules(copy: Path):
    source = "notebooks/04_read_clocks.py"
    run(copy, "book/tools/exercises.py", "--check", source)
    run(copy, "book/tools/run_notebooks.py", source)
    chapter = Chapter(copy / source)
    answer = next(cell for cell in chapter.code if "exercise" in cell.tags)
    assert "04-turn: not answered yet" in answer.output_text
    assert [p for check in test_style.CHECKS for p in check(chapter)] == []
    assert test_numbers.number_problems(chapter.cells, {}) == []
    assert test_figures.reference_problems(chapter.cells) == []
    shown = [cell for cell in chapter.cells if cell.has_image]
    assert [p for cell in shown for p in test_figures.metadata_problems(cell)] == []
    assert len(shown) == 1


def test_the_solution_passes(copy: Path):
    solution = re.search(r"# ```python\n(.*?)# ```", GUIDE, flags=re.DOTALL)
    assert solution
    code = re.sub(r"^# ?", "", solution[1], flags=re.MULTILINE)
    shown = code.replace("pe_lab.check(", "print(pe_lab.check(").rstrip() + ")"
    assert "✓ 04-turn" in run(copy, "-c", "import torch, pe_lab\n" + shown)


@pytest.mark.skipif(not find_spec("ruff"), reason="ruff is not installed")
def test_the_files_keep_the_style(copy: Path):
    run(copy, "-m", "ruff", "check", *(name for name in FILES if name.endswith(".py")))
