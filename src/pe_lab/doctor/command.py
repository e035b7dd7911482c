"""`pe-lab doctor`: a subject named on the command line, examined.

A file of Python is imported and its code runs, with the rights of whoever types the
command. A config is read, and nothing is run.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from pe_lab.doctor import SEVERITIES, Report, diagnose

_PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui;max-width:60rem;
margin:2rem auto;padding:0 1rem}}table{{border-collapse:collapse;margin:1rem 0}}
td,th{{border-bottom:1px solid #8886;padding:.3rem .6rem;text-align:left;
vertical-align:top}}</style>
<h1>{title}</h1>{body}
"""


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
    """What to print, and the exit code."""
    subject = load(options.subject)
    given = dict(_setting(text) for text in options.settings)
    report = diagnose(subject, kind=options.kind, seconds=options.seconds, **given)
    if options.html is not None:
        page = _PAGE.format(
            title=f"pe-lab doctor: {report.subject}", body=report.to_html()
        )
        options.html.write_text(page, encoding="utf-8")
    text = json.dumps(report.to_dict(), indent=2) if options.json else str(report)
    return text, int(_reaches(report, options.fail_on))


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
        the object. A class that was named without arguments is built without any.

    Raises:
        ValueError: if there is no such file, module or name, or it cannot be built.

    Example:
        >>> from pe_lab.doctor.command import load
        >>> load("pe_lab:RoPE(64, base=5e5)")
        RoPE(64, base=500000, layout='half', rotary_dim=64)
    """
    where, colon, what = text.partition(":")
    if not colon or not what.strip():
        if Path(text).exists() and Path(text).suffix != ".py":
            return Path(text)
        raise ValueError(
            "subject needs a config.json, or FILE.py:NAME, or package.module:NAME, got "
            f"{text!r}."
        )
    print(
        f"Running {where}: the doctor executes the code it is given.", file=sys.stderr
    )
    return _built(_module(where), what.strip(), text)


def _module(where: str) -> Any:
    path = Path(where)
    if path.suffix != ".py":
        sys.path.insert(0, "")
        return importlib.import_module(where)
    if not path.is_file():
        raise ValueError(f"subject needs an existing file, got {where!r}.")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _built(module: Any, what: str, text: str) -> Any:
    try:
        node = ast.parse(what, mode="eval").body
        called = isinstance(node, ast.Call)
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else what
        found = module
        for part in name.split("."):
            found = getattr(found, part)
        if isinstance(node, ast.Call):
            args = [ast.literal_eval(a) for a in node.args]
            return found(
                *args, **{k.arg or "": ast.literal_eval(k.value) for k in node.keywords}
            )
        return found() if inspect.isclass(found) and not called else found
    except (SyntaxError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"subject {text!r} cannot be had: {error}. Arguments are given as in "
            '"mine.py:Rotary(64, base=10000)".'
        ) from error
