"""The Sphinx extensions in book/_ext, piece by piece."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pe_lab
from pe_lab.encodings import rotation
from pe_lab.lab import data
from tests.site.built import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import pe_api
import pe_docstrings
import pe_site


def tidied(text: str) -> list[str]:
    lines = text.split("\n")
    pe_docstrings.tidy(None, "function", "f", None, None, lines)
    return lines


def test_names_in_backticks_are_links_or_code():
    assert tidied("see `sinusoidal` and `x`") == [
        "see :py:obj:`~pe_lab.sinusoidal` and ``x``"
    ]


def test_bars_are_not_substitutions():
    assert tidied("−m·|m − n|") == [r"−m·\|m − n\|"]


def test_sections_on_one_line_are_fields():
    lines = tidied("Raises:\n    ValueError: if not.\nSource: Vaswani et al. 2017.")
    assert lines[:2] == ["Raises:", "    ValueError: if not."]
    assert lines[2:] == ["", ":Source: Vaswani et al. 2017."]
    assert tidied("Returns, Raises: as for f.") == ["", ":Returns, Raises: as for f."]


def test_an_example_is_a_block_of_code():
    assert tidied("Example:\n    >>> 1 | 2\n    3") == [
        "", "Example::", "", "    >>> 1 | 2", "    3",
    ]  # fmt: skip


def test_aligned_lines_stay_apart():
    assert tidied('"paper":          a\n"tensor2tensor":  b')[0].startswith("| ")
    assert tidied("one sentence\nand its end") == ["one sentence", "and its end"]


def test_every_public_name_has_a_page():
    """What the API pages list covers `pe_lab.__all__`; the build warns otherwise."""
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "book/api").glob("*.md")
    )
    patterns = " ".join(re.findall(r"\.\. public:: (.+)", text)).split()
    shown = {
        re.sub(r"^\.\. auto\w+:: ", "", line)
        for pattern in patterns
        for module in pe_api.modules(pattern)
        for line in pe_api.entries(module)
        if line.startswith("..")
    }
    assert {f"pe_lab.{name}" for name in pe_lab.__all__} <= shown


def test_a_page_leaves_out_what_only_other_modules_use():
    """`encodings.rotation.turn` is no public name, `lab.data.split` is one."""
    shown = "\n".join(pe_api.entries(rotation)), "\n".join(pe_api.entries(data))
    assert ":: pe_lab.encodings.rotation\n" in shown[0]
    assert "autofunction" not in shown[0]
    assert ".. autofunction:: pe_lab.lab.data.split" in shown[1]


def test_a_page_loses_the_icon_script_and_repeated_ids(tmp_path):
    (tmp_path / "_static/scripts").mkdir(parents=True)
    (tmp_path / "_static/scripts/fontawesome.js").touch()
    page = tmp_path / "page.html"
    page.write_text(
        "<!-- So that users can add custom icons -->\n"
        '<script defer src="_static/scripts/fontawesome.js?digest=1"></script>'
        '<div class="proof admonition" id="proof"><p>Proof. It holds.</p></div>'
        '<section class="x" id="proof-content"></section><h2 id="the-content">'
    )
    pe_site.tidy_pages(tmp_path)
    assert page.read_text() == (
        '<div class="proof admonition"><p><span class="proof-name">Proof.</span> It '
        'holds.</p></div><section class="x"></section><h2 id="the-content">'
    )
    assert not list((tmp_path / "_static/scripts").iterdir())


def test_the_site_gets_its_own_mathjax_and_fonts(tmp_path):
    pe_site.copy_mathjax(tmp_path)
    assert (tmp_path / "mathjax/tex-mml-chtml.js").stat().st_size > 1e6
    assert list((tmp_path / "mathjax/output/chtml/fonts/woff-v2").glob("*.woff"))
    # without its extensions one \boldsymbol would stop every formula on its page
    assert (tmp_path / "mathjax/input/tex/extensions/boldsymbol.js").exists()


def test_a_font_is_cut_to_the_characters_of_the_book(tmp_path):
    package, name, target = pe_site.FONTS[-1]
    source = pe_site.font_file(package, name)
    pe_site.subset_font(source, tmp_path / target)
    font = pe_site.TTFont(tmp_path / target)
    assert (tmp_path / target).stat().st_size < source.stat().st_size / 3
    assert set(map(ord, "aé√ΔωπΣ→≤")) <= set(font.getBestCmap())


def test_the_front_page_is_always_written():
    app = SimpleNamespace(config=SimpleNamespace(root_doc="book/intro"))
    assert pe_site.refresh(app, None, set(), set(), set()) == ["book/intro"]
