"""`pe-lab doctor`: a subject named on the command line, examined.

A file of Python is imported and its code runs, with the rights of whoever types the
command. A config is read, and nothing is run.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import html
import importlib
import importlib.util
import inspect
import json
import re
import sys
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from pe_lab.doctor import SEVERITIES, Report, diagnose

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;
padding:0 1rem;color:#1c2128;background:#fff}}
h1{{font-size:1.4rem;overflow-wrap:anywhere}}
@media (prefers-color-scheme:dark){{body{{color:#dde3ea;background:#14181d}}}}
</style></head>
<body><main><h1>{title}</h1>
{body}
</main></body></html>
"""
_FORMS = "a config.json, or FILE.py:NAME, or package.module:NAME"


def add_options(doctor: argparse.ArgumentParser) -> None:
    """The options of the command."""
    doctor.add_argument(
        "subject",
        help="FILE.py:NAME or package.module:NAME (or NAME(arguments)), whose code is "
        "run; or a config.json or its folder, of which nothing is run",
    )
    doctor.add_argument("--kind", help="table, add, rope, bias, slopes, attention, …")
    doctor.add_argument("--seconds", type=float, default=20.0, help="at most (20)")
    doctor.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
        help="a size or expectation, such as head_dim=64 or \"expected={'base': 5e5}\"",
    )  # fmt: skip
    doctor.add_argument("--json", action="store_true", help="print JSON instead")
    doctor.add_argument("--html", type=Path, metavar="FILE", help="write a page too")
    doctor.add_argument(
        "--fail-on", choices=SEVERITIES, default="risky",
        help="exit with 1 from this severity on (risky)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> tuple[str, int]:
    """What to print, and the exit code: 0, 1 for a finding, 2 if there is no report."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the subject prints
            subject = load(options.subject)
            report = _examined(subject, options)
        if options.html is not None:
            _write_page(report, options.html)
    except (ValueError, TypeError, OSError) as error:
        print(f"pe-lab: {error}", file=sys.stderr)
        return "", 2
    text = json.dumps(report.to_dict(), indent=2) if options.json else str(report)
    return text, int(_reaches(report, options.fail_on))


def _examined(subject: Any, options: argparse.Namespace) -> Report:
    kind = options.kind or ("config" if isinstance(subject, Path) else None)
    settings = dict(map(_setting, options.settings))
    for name in ("subject", "kind", "seconds"):
        if name in settings:
            raise ValueError(f"--set {name}=… needs to be --{name}, or the subject.")
    return diagnose(subject, kind=kind, seconds=options.seconds, **settings)


def _write_page(report: Report, path: Path) -> None:
    title = html.escape(f"pe-lab doctor: {report.subject}")
    page = _PAGE.format(title=title, body=report.to_html())
    path.write_text(page, encoding="utf-8")


def _reaches(report: Report, severity: str) -> bool:
    worst = report.severity
    return worst is not None and SEVERITIES.index(worst) <= SEVERITIES.index(severity)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--set needs NAME=VALUE, got {text!r}.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def load(text: str) -> Any:
    """The subject that a text names.

    Args:
        text: a path of a config, or FILE.py:NAME, or package.module:NAME; a name may
            be dotted, or called with plain values as in `Rotary(64, base=1e4)`.

    Returns:
        the object. A class that was named without arguments is built without any, and
        a function without parameters is called.

    Raises:
        ValueError: if there is no such file, module or name, or it cannot be built.

    Example:
        >>> from pe_lab.doctor.command import load
        >>> load("pe_lab:RoPE(64, base=5e5)")
        RoPE(64, base=500000, layout='half', rotary_dim=64)
    """
    if Path(text).exists() and Path(text).suffix != ".py":
        return Path(text)
    where, what = _parts(text)
    print(
        f"Running {where}: the doctor executes the code it is given.", file=sys.stderr
    )
    return _built(_module(where), what, text)


def _parts(text: str) -> tuple[str, str]:
    """The file or module, and the name in it."""
    match = re.fullmatch(r"(.+?\.py):(.+)|([\w.]+):(.+)", text.strip(), re.DOTALL)
    if match is None:
        missing = "; there is no such file" if text.endswith(".json") else ""
        raise ValueError(f"subject needs {_FORMS}, got {text!r}{missing}.")
    return (match[1] or match[3]), (match[2] or match[4]).strip()


def _module(where: str) -> ModuleType:
    path = Path(where)
    if path.suffix == ".py" and not path.is_file():
        raise ValueError(f"subject needs an existing file, got {where!r}.")
    try:
        return _imported(path) if path.suffix == ".py" else _found(where)
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}".strip(": ")
        raise ValueError(
            f"{where} cannot be imported: {said}. The doctor needs code that can be "
            "imported without being run as a program."
        ) from error


def _found(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _imported(path: Path) -> ModuleType:
    """A file as a module; as a part of its package, if it is in one."""
    folder, names = path.resolve().parent, [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if len(names) > 1:
        return importlib.import_module(".".join(names).removesuffix(".__init__"))
    # not under a name that a module has, which imports of it would then get
    name = path.stem if path.stem not in sys.modules else f"subject_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _built(module: ModuleType, what: str, text: str) -> Any:
    """The name, called if it is given arguments or is a class."""
    try:
        node = ast.parse(what, mode="eval").body
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else what
        found: Any = reduce(getattr, name.split("."), module)
        if not isinstance(node, ast.Call):
            return found() if inspect.isclass(found) or _makes(found) else found
        args = [_value(a) for a in node.args]
        return found(*args, **{k.arg or "": _value(k.value) for k in node.keywords})
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}".strip(": ")
        raise ValueError(
            f"subject {text!r} cannot be had: {said}. Plain arguments are given as in "
            '"mine.py:Rotary(64, base=10000)"; for others, write a function without '
            "parameters that returns the subject, and name it."
        ) from error


def _makes(found: Any) -> bool:
    """Whether it is a function that takes nothing: it can only make the subject."""
    return inspect.isfunction(found) and not inspect.signature(found).parameters


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"{ast.unparse(node)} is no plain value") from None
