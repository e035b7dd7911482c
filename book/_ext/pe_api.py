"""The API pages: a directive that lists what a module of ``pe_lab`` makes public.

``.. public:: encodings.rope`` documents every public name that this module defines. The
pages so follow the package, and a name in ``pe_lab.__all__`` that no directive reached
is a warning, which fails the build.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from inspect import Signature, isclass, isfunction, ismodule, signature
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import pe_lab

LOG = logging.getLogger(__name__)


def at_top(name: str, value: Any) -> bool:
    """Whether ``pe_lab.name`` is this very object."""
    return name in pe_lab.__all__ and getattr(pe_lab, name) is value


def public_names(module: ModuleType) -> list[str]:
    """What the module lists in ``__all__``, or else what it defines without a _."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and name[0] != "_"
    ]


def is_listed(module: ModuleType) -> bool:
    """Whether each package on the way to the module has it in its ``__all__``."""
    package, _, name = module.__name__.rpartition(".")
    if not package:
        return True
    outer = import_module(package)
    listed = name in getattr(outer, "__all__", ()) and ismodule(getattr(outer, name))
    return listed and is_listed(outer)


def entries(module: ModuleType) -> Iterator[str]:
    """The autodoc directive of each public name of a module, blank lines between.

    A name that ``pe_lab`` itself has is documented as ``pe_lab.name``; any other as
    ``pe_lab.module.name``, if the module is listed.
    """
    top = module.__name__.split(".")[1]
    is_public = top in pe_lab.__all__ and ismodule(getattr(pe_lab, top))
    if is_public:
        yield from (f".. automodule:: {module.__name__}", "   :no-members:", "")
    for name in public_names(module):
        value = getattr(module, name)
        here = f"{module.__name__}.{name}"
        if at_top(name, value):
            here = f"pe_lab.{name}"
            if value.__module__ != module.__name__:
                continue  # listed under the module that defines it
        elif not is_listed(module):
            continue  # for other modules of the package
        if ismodule(value):
            yield from entries(value)
        elif isclass(value):
            yield from (f".. autoclass:: {here}", "   :members:")
            yield from ("   :exclude-members: extra_repr", "   :show-inheritance:", "")
        elif isfunction(value):
            yield from (f".. autofunction:: {here}", "")


def modules(pattern: str) -> Iterator[ModuleType]:
    """The module of this name in ``pe_lab``, or all in a package for ``package.*``."""
    short = pattern.removesuffix(".*")
    module = import_module(f"pe_lab.{short}")
    yield module
    if short != pattern:
        for info in iter_modules(module.__path__, f"{module.__name__}."):
            yield import_module(info.name)


class Public(SphinxDirective):
    """``.. public:: module …``, names relative to ``pe_lab``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Parse the autodoc directives of all modules given."""
        lines: list[str] = []
        for pattern in self.arguments[0].split():
            for module in modules(pattern):
                lines += entries(module)
        return self.parse_text_to_nodes("\n".join(lines))


class Summary(SphinxDirective):
    """``.. public-summary::``, a table of the names of ``pe_lab`` itself."""

    def run(self) -> list[nodes.Node]:
        """Parse one autosummary table of all names, functions and classes first."""
        names = sorted(pe_lab.__all__, key=lambda name: ismodule(getattr(pe_lab, name)))
        table = [".. autosummary::", "   :nosignatures:", ""]
        table += [f"   ~pe_lab.{name}" for name in names]
        return self.parse_text_to_nodes("\n".join(table))


def exists(target: str) -> bool:
    """Whether ``pe_lab.module.name`` can be imported."""
    module, _, name = target.rpartition(".")
    try:
        return hasattr(import_module(module), name)
    except (ImportError, ValueError):
        return False


def resolve_home(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Node
) -> nodes.Node | None:
    """Let a type hint such as ``pe_lab.encodings.base.NoPE`` find ``pe_lab.NoPE``.

    A type that is not public is shown without a link.
    """
    target = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py":
        return None
    python = env.get_domain("py")
    name = "." + target.rpartition(".")[2]
    homes = [full for full, *_ in python.get_objects() if full.endswith(name)]
    if len(homes) == 1 and (exists(target) or "." not in target):
        where = node["refdoc"]
        return python.resolve_xref(env, where, app.builder, "obj", homes[0], node, text)
    return text if target.startswith("pe_lab.") and exists(target) else None


def own_signature(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: Any,
    given: str,
    returns: Any,
) -> tuple[str, Any] | None:
    """The signature of ``__init__`` where a base class hides it, as traitlets do."""
    if what != "class" or given != "(*args, **kwargs)":
        return None
    _, *parameters = signature(value.__init__).parameters.values()
    bare = [parameter.replace(annotation=Signature.empty) for parameter in parameters]
    return str(Signature(bare)), returns


def check_complete(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each name in ``pe_lab.__all__`` that the API page leaves out."""
    python = env.get_domain("py")
    known = {name for name, *_ in python.get_objects()}
    for name in pe_lab.__all__:
        if "book/api" in env.found_docs and f"pe_lab.{name}" not in known:
            LOG.warning("no page in book/api shows pe_lab.%s", name)


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.add_directive("public", Public)
    app.add_directive("public-summary", Summary)
    app.connect("autodoc-process-signature", own_signature)
    app.connect("missing-reference", resolve_home)
    app.connect("env-check-consistency", check_complete)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
