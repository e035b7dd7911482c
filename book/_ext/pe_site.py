"""What the site serves itself: MathJax and its fonts, text fonts, no unused script.

Nothing of this is kept in git. Each file comes from a package on PyPI that the
``book`` extra installs, and is copied into the built site. So no page asks another
host for anything.
"""

from __future__ import annotations

import re
import shutil
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

from docutils import nodes
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from fontTools.varLib.instancer import instantiateVariableFont
from PIL import Image
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

# Parts of MathJax that the book can reach: the component, its extensions (loaded when
# a macro such as \boldsymbol is met), its fonts, and its spoken-formula explorer.
MATHJAX = (
    "tex-mml-chtml.js",
    "input/tex/extensions",
    "output/chtml/fonts/woff-v2",
    "a11y",
    "sre",
)

# Text fonts (SIL Open Font License): package, file in it, name on the site.
FONTS = (
    ("fontpkg_inter", "Inter[opsz,wght].ttf", "inter.woff"),
    ("fontpkg_inter", "Inter-Italic[opsz,wght].ttf", "inter-italic.woff"),
    ("fontpkg_jetbrains_mono", "JetBrainsMono[wght].ttf", "jetbrains-mono.woff"),
)

# Latin, combining marks, Greek, punctuation, super- and subscripts, arrows,
# mathematical operators, box drawing and shapes (the book's stars among them).
UNICODES = (
    *range(0x20, 0x180),
    *range(0x300, 0x400),
    *range(0x2000, 0x2270),
    *range(0x2500, 0x2670),
)

# Weights from regular to bold, drawn for text sizes.
AXES = {"wght": (400, 700), "opsz": 14}

# How wide an inch of a figure is drawn, so that its letters are as large as the text's.
PIXELS_PER_INCH = 104

# What is changed in each built page: (pattern, replacement).
PAGE = (
    # the theme's 1.5 MB icon script: its icons also come as a CSS font
    (
        r"\s*<!-- So that users can add custom icons -->"
        r'\s*<script defer src="[^"]*fontawesome\.js[^"]*"></script>',
        "",
    ),
    # ids that theorem and solution boxes all share, though an id must be unique
    (
        r'(<(?:section|div)[^>]*?) id="(?:proof|(?:proof|exercise|solution)-content)"',
        r"\1",
    ),
    # a role that ARIA has given up, in a list that needs items
    ('role="doc-biblioentry"', 'role="listitem"'),
    # a button without a name, for the pages below a page in the list of pages
    (
        '<summary><span class="toctree-toggle"',
        '<summary aria-label="Pages below"><span class="toctree-toggle"',
    ),
    (r"(<p>)Proof\.", r'\1<span class="proof-name">Proof.</span>'),
)


def copy_mathjax(static: Path) -> None:
    """Copy the parts of MathJax that the book uses to ``static/mathjax``."""
    package = distribution("sphinx-mathjax-offline")
    source = Path(str(package.locate_file("sphinx-mathjax-offline/static/mathjax")))
    for part in MATHJAX:
        target = static / "mathjax" / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target, dirs_exist_ok=True)
        else:
            shutil.copy(source / part, target)


def font_file(package: str, name: str) -> Path:
    """Where a font package keeps a font."""
    return Path(str(files(package))) / "files" / name


def subset_font(source: Path, target: Path) -> None:
    """Write the book's characters and weights of one variable font as WOFF."""
    font = TTFont(source)
    subsetter = Subsetter(Options(layout_features=["kern", "ccmp", "mark", "tnum"]))
    subsetter.populate(unicodes=UNICODES)
    subsetter.subset(font)
    axes = {axis.axisTag for axis in font["fvar"].axes}
    limits = {tag: limit for tag, limit in AXES.items() if tag in axes}
    font = instantiateVariableFont(font, limits)
    font.flavor = "woff"
    font.save(target)


def write_fonts(static: Path) -> None:
    """Write the text fonts and their licences to ``static/fonts``, once."""
    folder = static / "fonts"
    folder.mkdir(parents=True, exist_ok=True)
    for package, name, target in FONTS:
        source = font_file(package, name)
        if not (folder / target).exists():
            subset_font(source, folder / target)
        licence = source.parents[1] / "LICENSE"
        shutil.copy(licence, folder / f"{package}-LICENSE.txt")


def tidy_pages(output: Path) -> None:
    """Apply ``PAGE`` to every page and delete the script it drops."""
    for page in output.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for pattern, replacement in PAGE:
            text = re.sub(pattern, replacement, text)
        page.write_text(text, encoding="utf-8")
    for script in (output / "_static/scripts").glob("fontawesome.js*"):
        script.unlink()


def size_figures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Give each picture that knows its resolution its width on the page."""
    for node in doctree.findall(nodes.image):
        path = Path(app.srcdir, str(node["uri"]))
        if "width" in node or path.suffix != ".png" or not path.exists():
            continue
        with Image.open(path) as picture:
            if "dpi" in picture.info and "hero" not in node["classes"]:
                inches = picture.width / picture.info["dpi"][0]
                node["width"] = f"{inches * PIXELS_PER_INCH:.0f}px"


def refresh(app: Sphinx, env: BuildEnvironment, *changes: set[str]) -> list[str]:
    """Always rebuild the front page: with no page to write, Sphinx copies no CSS."""
    return [app.config.root_doc]


def finish(app: Sphinx, error: Exception | None) -> None:
    """Complete the built site."""
    if error or app.builder.format != "html":
        return
    output = Path(app.outdir)
    copy_mathjax(output / "_static")
    write_fonts(output / "_static")
    tidy_pages(output)


def setup(app: Sphinx) -> dict[str, object]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", size_figures)
    app.connect("env-get-outdated", refresh)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
