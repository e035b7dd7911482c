"""Every public name says what it needs and gives, and shows it by an example that runs.

Public is what the API pages list; `book/_ext/pe_api.py` finds it for them and for this.
"""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cached_property, reduce
from io import StringIO
from typing import Any

import pytest
import torch

import pe_lab
from tests.book.chapters import ROOT, expect_none

pytest.importorskip("sphinx", reason="the API pages are made by Sphinx")
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import pe_api

WORD = "(?:Args|Attributes|Convention|Example|Raises|Returns|Source|Yields)"
SECTION = re.compile(rf"^({WORD}(?:, {WORD})*):", re.MULTILINE)
REFUSES = re.compile(r"\braise [A-Z]|\brefuse\.\w|\b_(?:need|refuse\w*)\(")
MOST_LINES = 6  # of an example, its output included
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# Modules that compute no published formula, so that no source or convention is due.
NO_FORMULA = {
    "doctor": "looks at others' formulas; each check says its paper",
    "exercises": "questions of the book",
    "explore": "figures; each says which formula it draws",
    "hf": "reads configs; from_config says by which release",
    "lab": "experiments of the book; bleu says its paper",
    "plots": "draws",
    "positions": "counts; mrope says its paper",
    "properties": "measures of the book",
    "provenance": "versions and dates",
    "random": "seeds",
}
NO_EXAMPLE = {
    "pe_lab.lab.fetch.download": "needs the network",
    "pe_lab.lab.minilm.fetch": "needs the network",
    "pe_lab.lab.minilm.load": "needs the files that fetch fetches",
    "pe_lab.lab.text.fetch_kjv": "needs the network",
    "pe_lab.lab.text.kjv_verses": "needs the files that fetch_kjv fetches",
    "pe_lab.lab.text.read_kjv": "needs the file that fetch_kjv fetches",
    "pe_lab.lab.text.read_places": "needs the file that fetch_kjv fetches",
}


def at(path: str) -> Any:
    """The object that an autodoc directive names."""
    return reduce(getattr, path.split(".")[1:], pe_lab)


def listed() -> dict[str, Any]:
    """The functions and classes on the API pages, by their names there."""
    pages = sorted((ROOT / "book" / "api").glob("*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    patterns = " ".join(re.findall(r"\.\. public:: (.+)", text)).split()
    lines = [
        line
        for pattern in patterns
        for module in pe_api.modules(pattern)
        for line in pe_api.entries(module)
    ]
    found = (re.match(r"\.\. auto(?:class|function):: (\S+)", line) for line in lines)
    paths = [match[1] for match in found if match]
    return {path: at(path) for path in paths}


def members(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties of its own that a page shows below a class."""
    for member, value in vars(kind).items():
        call = code(value)
        path = f"{kind.__qualname__}.{member}"
        own = inspect.isfunction(call) and call.__qualname__ == path
        if own and member[0] != "_" and member != "extra_repr":
            yield f"{name}.{member}", value


def overrides(name: str) -> bool:
    """Whether a base of the method's class has a method of that name."""
    kind, _, member = name.rpartition(".")
    return any(hasattr(base, member) for base in at(kind).__mro__[1:])


def code(value: Any) -> Any:
    """What runs when the name is called, or read."""
    if inspect.isclass(value):
        return vars(value).get("__init__")
    if isinstance(value, cached_property):
        return value.func
    return getattr(value, "__func__", None) or getattr(value, "fget", None) or value


def sections(value: Any) -> list[str]:
    """The sections of a docstring; `Returns, Raises: as for …` is two."""
    headings = SECTION.findall(inspect.getdoc(value) or "")
    return [word for heading in headings for word in heading.split(", ")]


def example(value: Any) -> str:
    """The lines below `Example:`."""
    return (inspect.getdoc(value) or "").partition("\nExample:\n")[2]


def needed(value: Any) -> Iterator[set[str]]:
    """Sections of which a docstring has to have one, by its signature and code."""
    call = code(value)
    if not inspect.isfunction(call):
        return
    signature = inspect.signature(call)
    if signature.parameters.keys() - {"self", "cls"}:
        yield {"Args", "Attributes"}
    if call is value and signature.return_annotation not in (None, "None"):
        yield {"Returns", "Yields"}
    written = vars(value).get("__post_init__") if is_dataclass(value) else call
    if written and REFUSES.search(inspect.getsource(written).rpartition('"""')[2]):
        yield {"Raises"}


def lacks(value: Any, *, formula: bool) -> Iterator[str]:
    """What a docstring leaves unsaid."""
    has = set(sections(value))
    for either in [*needed(value), *formula * [{"Source", "Convention"}]]:
        if not either & has:
            yield f"no {' or '.join(sorted(either))}"
    if not (value.__doc__ or "").partition("\n")[0].strip():
        yield "no first line"


def misplaced(value: Any) -> Iterator[str]:
    """An example is the last section, a block, and short."""
    block = example(value)
    lines = [line for line in block.splitlines() if line.strip()]
    if not lines or not lines[0].startswith("    >>> "):
        yield "no example, as a block of >>> lines below Example:"
    if len(lines) > MOST_LINES:
        yield f"an example of {len(lines)} lines, {MOST_LINES} at most"
    if any(not line.startswith("    ") for line in lines):
        yield "more text after its example"


def run(name: str, value: Any, seed: int) -> str:
    """Run a docstring's examples as a reader would; what went wrong, in words."""
    names = {"pe_lab": pe_lab, "torch": torch}
    doc = inspect.getdoc(value) or ""
    test = doctest.DocTestParser().get_doctest(doc, names, name, None, 0)
    torch.set_printoptions(profile="default")
    torch.manual_seed(seed)
    told = StringIO()
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=told.write)
    return told.getvalue()


NAMES = listed()
METHODS = {
    member: value
    for name, kind in NAMES.items()
    if inspect.isclass(kind)
    for member, value in members(name, kind)
}
EXAMPLES = {
    name: value
    for name, value in (NAMES | METHODS).items()
    if ">>> " in (value.__doc__ or "")
}


def test_the_pages_list_the_package():
    """An empty list would make every test below pass: each module is in it."""
    assert set(dir(pe_lab.encodings)) >= {"RoPE"} and "pe_lab.RoPE" in NAMES
    for module in ("positions", "scaling", "hf", "flex", "properties", "lab", "plots"):
        assert any(name.startswith(f"pe_lab.{module}.") for name in NAMES), module
    assert "pe_lab.RoPE.rotate" in METHODS and "pe_lab.RoPE.inv_freq" in METHODS


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_says_what_a_caller_has_to_know(name):
    """Arguments, result, errors, and where a formula comes from."""
    value = NAMES[name]
    module = value.__module__.split(".")[1]
    expect_none(lacks(value, formula=module not in NO_FORMULA))


def test_methods_say_what_a_caller_has_to_know():
    """Those that override another say what is theirs: the other says the arguments."""
    expect_none(
        f"{name}: {problem}"
        for name, value in METHODS.items()
        for problem in lacks(value, formula=False)
        if not overrides(name)
    )


@pytest.mark.parametrize("name", [n for n in NAMES if n not in NO_EXAMPLE])
def test_a_docstring_ends_in_an_example(name):
    expect_none(misplaced(NAMES[name]))


@pytest.mark.parametrize("seed", (0, 1))
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, seed):
    """Whatever random numbers they draw: what an example prints is no accident."""
    told = run(name, EXAMPLES[name], seed)
    assert not told, told


def poor(x: int) -> int:
    """Half of x.

    Example: half(4) is 2.
    """
    if x % 2:
        raise ValueError("x needs an even number.")
    return x // 2


def wrong() -> None:
    """Nothing.

    Example:
        >>> torch.ones(2)
        tensor([1., 2.])
    """


def test_a_poor_docstring_is_seen():
    unsaid = ["no Args or Attributes", "no Returns or Yields", "no Raises"]
    assert list(lacks(poor, formula=False)) == unsaid
    assert list(lacks(poor, formula=True)) == [*unsaid, "no Convention or Source"]
    assert "no example" in next(misplaced(poor))
    assert list(misplaced(wrong)) == []
    assert "Got:\n    tensor([1., 1.])" in run("wrong", wrong, 0)


def test_what_is_excused_is_there():
    assert NO_EXAMPLE.keys() <= NAMES.keys()
    assert NO_FORMULA.keys() <= set(pe_lab.__all__) | {"provenance", "random"}
