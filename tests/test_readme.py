"""What the README promises: its example runs, and its commands and files exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_does_what_it_shows():
    example = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert example
    test = doctest.DocTestParser().get_doctest(example[1], {}, "README", None, 0)
    results = doctest.DocTestRunner().run(test)
    assert results.attempted >= 8
    assert results.failed == 0


def test_the_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    words = re.findall(r"^make ([a-z -]+)|`make ([a-z -]+)", README, flags=re.MULTILINE)
    named = {name for pair in words for part in pair for name in part.split()}
    assert {"lab", "book", "test"} <= named
    assert sorted(named - targets) == []


def test_the_files_exist():
    names = re.findall(r"\b[\w/-]+\.(?:ipynb|yml|txt|md|cff|png)\b", README)
    assert len(set(names)) >= 6
    assert [name for name in sorted(set(names)) if not (ROOT / name).exists()] == []
