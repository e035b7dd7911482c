"""The package's front door: what is exported exists, and loading it is cheap."""

import subprocess
import sys

import pytest

import pe_lab


@pytest.mark.parametrize("name", pe_lab.__all__)
def test_every_public_name_exists(name):
    assert getattr(pe_lab, name) is not None
    assert name in dir(pe_lab)


def test_public_names_are_documented():
    for name in pe_lab.__all__:
        assert (getattr(pe_lab, name).__doc__ or "").strip(), name


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="has no name 'rope'; it has:.*RoPE"):
        pe_lab.rope  # noqa: B018


def test_functions_are_not_hidden_by_their_modules():
    """`pe_lab.attention` is the function even after its module was imported."""
    import pe_lab.attention
    import pe_lab.model  # noqa: F401

    assert callable(pe_lab.attention)


def test_import_brings_neither_plots_nor_notebooks():
    code = (
        "import sys, torch; before = set(sys.modules); import pe_lab; "
        "print([m for m in ('matplotlib', 'ipywidgets', 'anywidget', 'IPython', "
        "'transformers', 'sacrebleu') if m in sys.modules and m not in before])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr
