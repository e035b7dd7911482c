"""`pe-lab doctor`: subjects by name, reports by form, exit codes by severity."""

import json
import sys
from html.parser import HTMLParser

import pytest
import torch

from pe_lab import cli
from pe_lab.doctor import command

torch.set_num_threads(1)

TABLES = '''
"""A right table, a wrong one, and what cannot be examined."""
import torch
print("noise on import")

class Sines:
    def __init__(self, base=10000.0):
        self.base = base

    def __call__(self, length, width):
        i = torch.arange(width, dtype=torch.float64) // 2
        angles = torch.arange(length)[:, None] * self.base ** (-2 * i / width)
        even = torch.arange(width) % 2 == 0
        return torch.where(even, angles.sin(), angles.cos()).float()

class Refuses:
    def __init__(self):
        raise KeyError("a key")

class Leaves:
    def __init__(self):
        raise SystemExit(5)

def slopes(heads):
    print("noise while called")
    return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]

def made():
    return Sines(1000.0)

class inner:
    wrong = staticmethod(lambda heads: [2 ** (-h) for h in range(heads)])

number = 3
'''
CONFIG = {
    "model_type": "llama", "hidden_size": 128, "num_attention_heads": 2,
    "num_hidden_layers": 2, "rope_theta": 1e4,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with subjects, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "tables.py").write_text(TABLES, encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


def doctor(*arguments):
    return cli.main(["doctor", *map(str, arguments)])


@pytest.mark.parametrize(
    ("subject", "code", "words"),
    [
        ("config.json", 0, "config.json, examined as 'config'"),
        (".", 0, "examined as 'config'"),
        ("tables.py:Sines", 0, "Sines, examined as 'table'"),
        ("tables.py:Sines(base=1000.0)", 0, "base: 1000"),
        ("tables:Sines(1000.0)", 0, "base: 1000"),
        ("tables.py:made", 0, "base: 1000"),
        ("tables.py:inner.wrong", 1, "✗ wrong"),
        ("tables.py:slopes", 1, "! risky"),
    ],
)
def test_a_subject_is_named_and_its_worst_finding_is_the_exit_code(
    subject, code, words, folder, capsys
):
    assert doctor(subject) == code
    told = capsys.readouterr()
    assert words in told.out
    assert ("executes the code" in told.err) == (":" in subject)


@pytest.mark.parametrize(
    ("severity", "code"), [("wrong", 0), ("risky", 1), ("differs", 1), ("note", 1)]
)
def test_fail_on_says_from_which_severity(severity, code, folder, capsys):
    assert doctor("tables.py:slopes", "--kind", "slopes", "--fail-on", severity) == code


def test_json_is_nothing_but_json_whatever_the_subject_prints(folder, capsys):
    assert doctor("tables.py:slopes", "--kind", "slopes", "--json") == 1
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert report["severity"] == "risky" and report["findings"][0]["check"] == "D-BIAS"
    assert "noise on import" in told.err and "noise while called" in told.err


def test_sizes_and_expectations_are_set(folder, capsys):
    wanted = "expected={'base': 5e5}"
    assert doctor("config.json", "--set", wanted, "--set", "max_len=64") == 1
    assert "where 500000 is expected" in capsys.readouterr().out


class Page(HTMLParser):
    """What a browser has to be told: tags that are closed, and words."""

    VOID = ("meta", "br")

    def __init__(self):
        super().__init__()
        self.open, self.words, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_a_page_is_whole_and_needs_nothing_else(folder, capsys):
    """Severity as a word, both colour schemes, no request, names escaped, no table."""
    (folder / "tables.py").write_text(TABLES + "\nslopes.__name__ = '<script>'\n")
    assert doctor("tables.py:slopes", "--kind", "slopes", "--html", "page.html") == 1
    text = (folder / "page.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == [] and "<script" not in text and "&lt;script&gt;" in text
    assert "! risky" in "".join(page.words)
    assert "prefers-color-scheme:dark" in text and 'lang="en"' in text
    assert not any("src" in attrs or "href" in attrs for _, attrs in page.tags)
    assert "url(" not in text and not any(tag == "table" for tag, _ in page.tags)


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("nowhere.json", "there is no such file"),
        ("nowhere.py:Sines", "subject needs an existing file, got 'nowhere.py'"),
        ("tables.py", "needs a config.json, or FILE.py:NAME, or package.module:NAME"),
        ("tables.py:", "needs a config.json, or FILE.py:NAME, or package.module:NAME"),
        ("nowhere.at.all:Sines", "cannot be imported: ModuleNotFoundError"),
        ("tables.py:Cosines", "has no attribute 'Cosines'"),
        ("tables.py:Sines(base=ten)", "ten is no plain value"),
        ("tables.py:Sines(1, 2, 3)", "takes from 1 to 2 positional arguments"),
        ("tables.py:Sines(", "SyntaxError"),
        ("tables.py:Refuses", "KeyError: 'a key'"),
        ("tables.py:Leaves", "SystemExit: 5"),
        ("tables.py:number", "subject needs to be of a kind that can be examined"),
        ("raises.py:f", "raises.py cannot be imported: RuntimeError: no GPU here"),
        ("exits.py:f", "exits.py cannot be imported: SystemExit: 3"),
        ("syntax.py:f", "syntax.py cannot be imported: SyntaxError"),
        ("broken.json", "cannot be read"),
    ],
)
def test_what_cannot_be_examined_is_told_in_a_sentence_with_code_2(
    subject, words, folder, capsys
):
    (folder / "raises.py").write_text("raise RuntimeError('no GPU here')")
    (folder / "exits.py").write_text("import sys; sys.exit(3)")
    (folder / "syntax.py").write_text("def f(:")
    (folder / "broken.json").write_text("{")
    assert doctor(subject, "--seconds", "5") == 2
    told = capsys.readouterr()
    assert told.out == "" and words in told.err and "Traceback" not in told.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "head_dim"], "--set needs NAME=VALUE"),
        (["--set", "kind=rope"], "--set kind=… needs to be --kind"),
        (["--kind", "dance"], "kind needs 'config' or"),
        (["--seconds", "0"], "seconds needs a finite number from 0.1"),
        (["--html", "no/such/folder.html"], "folder.html"),
    ],
)
def test_wrong_options_are_told_too(options, words, folder, capsys):
    assert doctor("config.json", *options) == 2
    assert words in capsys.readouterr().err


def test_a_file_of_a_package_may_import_its_neighbours(folder, capsys):
    package = folder / "mypackage" / "inner"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package.parent / "__init__.py").write_text("from .inner import b")
    (package / "b.py").write_text("from pe_lab import alibi_slopes as right")
    (package / "a.py").write_text("from .b import right\nfrom .. import inner")
    assert doctor(package / "a.py:right", "--kind", "slopes") == 0
    assert doctor(package.parent / "__init__.py:b.right", "--kind", "slopes") == 0


def test_a_file_named_like_a_module_does_not_take_its_place(folder, capsys):
    (folder / "torch.py").write_text("from pe_lab import alibi_slopes as f")
    before = sys.modules["torch"]
    found = command.load("torch.py:f")
    assert sys.modules["torch"] is before and found(2).shape == (2,)
