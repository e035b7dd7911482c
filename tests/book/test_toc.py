"""The table of contents lists what exists, and all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.book.chapters import CHAPTERS, ROOT, expect_none, listed

TOC = ROOT / "_toc.yml"


def files_of(node: Any) -> Iterator[str]:
    """Every file that a table of contents names, in order."""
    if isinstance(node, list):
        for item in node:
            yield from files_of(item)
    elif isinstance(node, dict):
        yield from (node[key] for key in ("root", "file") if key in node)
        for key in ("parts", "chapters", "sections", "subtrees", "entries"):
            yield from files_of(node.get(key, []))


def toc_problems(toc: Any, root: Path, chapters: list[str]) -> list[str]:
    """Entries without a file, files listed twice, chapters that are not listed."""
    listed_files = list(files_of(toc))
    missing = [name for name in listed_files if not exists(root / name)]
    twice = [name for name, count in Counter(listed_files).items() if count > 1]
    absent = [
        name for name in chapters if f"notebooks/{name}" not in stems(listed_files)
    ]
    return [
        *(f"{name} is in the table of contents and does not exist" for name in missing),
        *(f"{name} is in the table of contents twice" for name in twice),
        *(f"{name} exists and is not in the table of contents" for name in absent),
    ]


def exists(path: Path) -> bool:
    """Entries may leave out the suffix."""
    suffixes = ("", ".md", ".ipynb")
    return any(path.with_name(path.name + suffix).is_file() for suffix in suffixes)


def stems(names: list[str]) -> set[str]:
    """Entries without the suffix of a notebook."""
    return {name.removesuffix(".ipynb") for name in names}


def order_problems(toc: Any) -> list[str]:
    """Chapters that are not in the order of their numbers."""
    names = [Path(name).name for name in files_of(toc) if name.startswith("notebooks/")]
    return [] if names == sorted(names) else [f"chapters are out of order: {names}"]


def test_the_table_of_contents_lists_what_exists():
    names = [chapter.name for chapter in CHAPTERS]
    if not TOC.exists():
        assert names == []
        return
    toc = yaml.safe_load(TOC.read_text(encoding="utf-8"))
    expect_none(toc_problems(toc, ROOT, names) + order_problems(toc))


def test_a_wrong_table_of_contents_is_seen(tmp_path: Path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "index.md").touch()
    (tmp_path / "notebooks" / "01_a.ipynb").touch()
    parts = [{"caption": "One", "chapters": [{"file": "notebooks/01_a"}]}]
    toc = {"format": "jb-book", "root": "index", "parts": parts}
    assert toc_problems(toc, tmp_path, ["01_a"]) == []
    assert "03_b exists" in listed(toc_problems(toc, tmp_path, ["01_a", "03_b"]))
    parts[0]["chapters"].append({"file": "notebooks/03_b"})
    assert "03_b is in" in listed(toc_problems(toc, tmp_path, ["01_a"]))
    parts[0]["chapters"] = [{"file": "notebooks/01_a", "sections": [{"file": "index"}]}]
    assert "index is in the table of contents twice" in listed(
        toc_problems(toc, tmp_path, ["01_a"])
    )


def test_chapters_out_of_order_are_seen():
    chapters = [{"file": "notebooks/03_b"}, {"file": "notebooks/01_a"}]
    assert order_problems({"root": "index", "chapters": chapters})
    assert not order_problems({"root": "index", "chapters": chapters[::-1]})
