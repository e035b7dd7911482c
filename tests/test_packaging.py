"""What is installed: complete, light to import, and the same for pip and conda."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

import pe_lab

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "pe_lab"
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

# Packages that only the book, the tests or the comparisons need.
HEAVY = [
    "IPython",
    "anywidget",
    "cn2an",
    "ipywidgets",
    "matplotlib",
    "num2words",
    "sacrebleu",
    "sphinx",
    "transformers",
]


def requirement_name(requirement: str) -> str:
    """jupyter-book for "jupyter-book>=1.0.4,<2", spelled as package indexes do."""
    name = re.match(r"[\w.-]+", requirement)
    assert name, requirement
    return normal_name(name[0])


def normal_name(name: str) -> str:
    """PEP 503: lower case, one hyphen."""
    return re.sub(r"[-_.]+", "-", name).lower()


# ── the wheel ────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in a wheel that is built here."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run(
        [*command, "--outdir", folder, ROOT], check=True, capture_output=True
    )
    (path,) = folder.glob("pe_lab-*.whl")
    return zipfile.ZipFile(path).namelist()


def package_files() -> list[str]:
    """Every file of the package that is not made by running it."""
    return [
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: list[str]):
    content = [name for name in wheel if not name.startswith("pe_lab-")]
    assert sorted(content) == sorted(package_files())


@pytest.mark.parametrize(
    "pattern",
    [
        r"pe_lab/py\.typed",
        r"pe_lab/explore/\w+\.js",
        r"pe_lab/lab/shipped/.+\.json",
        r"pe_lab/lab/shipped/minilm_positions\.safetensors",
        r"pe_lab/lab/shipped/NOTICE",  # which its licence asks for
        r"pe_lab/lab/shipped/LICENSE-Apache-2\.0\.txt",  # and this, too
    ],
)
def test_the_wheel_holds_what_is_no_python(wheel: list[str], pattern: str):
    assert [name for name in wheel if re.fullmatch(pattern, name)]


@pytest.mark.parametrize("file", ["/LICENSE", "/NOTICE", "/LICENSE-Apache-2.0.txt"])
def test_the_wheel_holds_its_licences(wheel: list[str], file: str):
    found = [name for name in wheel if name.endswith(file) and "licenses/" in name]
    assert len(found) == 1


# ── the import ───────────────────────────────────────────────────────────────────


def run_python(code: str) -> str:
    """What `code` prints in a fresh interpreter."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_torch_and_nothing_heavy():
    loaded = run_python("import sys, pe_lab; print(*sys.modules)").split()
    assert "torch" in loaded
    assert sorted(set(loaded) & set(HEAVY)) == []


def test_the_package_works_without_any_extra():
    # None in sys.modules makes an import fail as if the package were not installed
    absent = f"import sys; sys.modules.update(dict.fromkeys({HEAVY}))\n"
    use = "import pe_lab; print(tuple(pe_lab.sinusoidal(6, 8).shape))"
    assert run_python(absent + use).strip() == "(6, 8)"


def test_the_check_for_absent_packages_can_fail():
    absent = "import sys; sys.modules['matplotlib'] = None\n"
    with pytest.raises(AssertionError, match="matplotlib"):
        run_python(absent + "import matplotlib")


# ── what is declared ─────────────────────────────────────────────────────────────


def imported_modules(path: Path) -> Iterator[str]:
    """Top-level names of the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def distributions_in(*folders: str) -> dict[str, str]:
    """Distribution that a folder's files import -> a file that does."""
    providers = packages_distributions()
    found = {}
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for module in imported_modules(path):
                for name in providers.get(module, [])[:1]:
                    found[normal_name(name)] = str(path.relative_to(ROOT))
    found.pop("pe-lab", None)
    return found


def declared(*extras: str) -> set[str]:
    """Distributions that the package and these extras ask for."""
    items = [*PROJECT["dependencies"], *(r for extra in extras for r in EXTRAS[extra])]
    included = [re.match(r"pe-lab\[(.+)\]", item) for item in items]
    others = {requirement_name(item) for item in items} - {"pe-lab"}
    return others.union(
        *(declared(*match[1].split(",")) for match in included if match)
    )


@pytest.mark.parametrize(
    ("folders", "extras"),
    [
        (("src",), ("book", "peers")),  # the doctor examines peers where they are
        (("notebooks", "book/tools"), ("book",)),
        (("tests", "benchmarks"), ("book", "test", "peers")),
    ],
)
def test_every_import_is_declared(folders: tuple[str, ...], extras: tuple[str, ...]):
    used = distributions_in(*folders)
    known = declared(*extras)
    # Sphinx and docutils come with jupyter-book, which must choose their versions
    known |= {"sphinx", "docutils"} if "jupyter-book" in known else set()
    assert {name: path for name, path in used.items() if name not in known} == {}


def test_the_package_alone_asks_for_torch_and_numpy():
    names = sorted(requirement_name(item) for item in PROJECT["dependencies"])
    assert names == ["numpy", "torch"]


def test_every_requirement_has_a_tested_version():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.!]+", pin) for pin in pins)  # no "+cpu"
    pinned = {normal_name(pin.split("==")[0]) for pin in pins}
    assert sorted(declared(*EXTRAS) - pinned) == []


def numbers(version: str) -> list[int]:
    """[3, 11] for "3.11"."""
    return [int(part) for part in version.split(".")]


def test_conda_gets_what_pip_gets():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *conda, pip = environment["dependencies"]
    python = next(item for item in conda if item.startswith("python="))
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert numbers(python.split("=")[1]) >= numbers(oldest)
    assert "pip" in conda
    constraint, editable = pip["pip"]
    assert constraint == "-c constraints.txt"
    extras = re.fullmatch(r"-e \.\[(.+)\]", editable)
    assert extras
    assert declared(*extras[1].split(",")) == declared(*EXTRAS)


# ── versions ─────────────────────────────────────────────────────────────────────


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = PROJECT["version"]
    assert pe_lab.__version__ == version
    assert str(citation["version"]) == version
    assert re.search(rf"\b{re.escape(version)}\b", changelog)


def test_the_citation_has_what_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"] and citation["title"]
    assert citation["authors"] == [{"name": "The Where Am I? authors"}]
    assert citation["license"] == ["MIT", "CC-BY-4.0"]
