"""The page on speed says what the stored files say, and no number of its own."""

from __future__ import annotations

import json
import re
import sys
from xml.etree import ElementTree

import pytest

from benchmarks import gpu_report, report
from tests.book.chapters import ROOT
from tests.book.numbers import NOT_A_CLAIM, read_numbers

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import pe_speed

PAGE = (ROOT / "book" / "speed.md").read_text("utf-8")
STORED = report.load()
BUILT = ROOT / "_build" / "html" / "book" / "speed.html"


def test_every_benchmark_is_stored():
    assert set(STORED) == set(report.NAMES)
    for name, content in STORED.items():
        assert content["benchmark"] == name
        assert content["provenance"]["commit"]


def test_every_number_that_a_sentence_names_is_in_the_files():
    named = set(re.findall(r"\{speed\}`([^`]+)`", PAGE))
    known = report.numbers(STORED)
    assert named <= set(known)
    assert all(re.search(r"\d", known[name]) for name in named), "a peer is missing"


def claims(text):
    """Numbers that would have to be measured: fractions, and three digits or more."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    prose = NOT_A_CLAIM.sub(" ", re.sub(r"\{speed\}`[^`]+`|`[^`]+`", "", prose))
    return [number.written for number in read_numbers(prose) if number.is_claim]


def test_no_sentence_has_a_measured_number_of_its_own():
    assert claims(PAGE) == []
    assert claims("It takes 1.3 times, {speed}`a`, 4096 rows.") == ["1.3", "4096"]


def test_tables_and_aims_show_the_files():
    # one cell of each, by hand from the JSON
    rows = report.case(STORED["alibi"], length=2048, dtype="bfloat16")["rows"]
    shown = report.alibi(STORED["alibi"])
    row = next(row for row in shown.rows if row[0] == "pe_lab.attention, ALiBi")
    at = shown.head.index("× no bias, bf16, L = 2048")
    assert row[at] == f"{rows['pe_lab.attention, ALiBi']['over_bound']:.2f}"
    kinds = STORED["tables"]["timings"]
    ours = kinds[report.usual(kinds)]["pe_lab.rope_table"]["over_bound"]
    target = report.targets(STORED)[0]
    assert target.measured == ours
    assert target.met == (round(ours, 2) <= 3)


def test_a_new_run_makes_another_page():
    changed = json.loads(json.dumps(STORED))
    for rows in changed["tables"]["timings"].values():
        rows["pe_lab.rope_table"]["over_bound"] = 8.765
    assert report.numbers(changed)["table-ours"] == "8.77"
    assert "8.77" in str(report.tables(changed["tables"]))
    assert not report.targets(changed)[0].met
    assert "8.77" in report.describe(report.panels(changed))


def test_what_the_sentences_say_about_the_stored_run_is_true():
    """Another run may need other sentences; this says which. Nothing is timed here."""
    number = {k: float(v) for k, v in report.numbers(STORED).items() if is_number(v)}
    assert number["table-ours-new"] < number["table-ours"] < number["table-peer"]
    assert number["table-error"] <= 3.3e-8  # half a step of float32 below 1 is 3.0e-8
    assert number["table-peer-error"] > 1e-2
    fp32, bf16 = "rotate-fp32", "rotate-bf16"
    assert number[f"{fp32}-interleaved"] < number[f"{fp32}-half"]
    assert number[f"{fp32}-half-compiled"] < number[f"{fp32}-half"]
    assert number[f"{bf16}-half-compiled"] < number[f"{bf16}-half"]
    # the compiler's second pass: slower than eager, with all of x in float32 beside it
    assert number[f"{bf16}-interleaved-compiled"] > number[f"{bf16}-interleaved"]
    assert number["memory-rotate-compiled-bf16"] == number["rotate-mb"]
    for short in report.DTYPES:
        layouts = ("half-compiled", "interleaved")
        ours = min(number[f"rotate-{short}-{layout}"] for layout in layouts)
        assert ours < number[f"rotate-peer-{short}"]
        assert number[f"alibi-ours-{short}"] < number[f"alibi-built-{short}"]
    assert number["memory-alibi-kept"] < number["memory-alibi-peer-kept"] / 4


def is_number(text):
    return re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", text) is not None


def test_places_that_differ_are_all_named():
    other = json.loads(json.dumps(STORED))
    other["alibi"]["provenance"]["commit"] = "abc"
    assert " and abc" in report.origin(other)
    assert report.origin(other).count("Measured") == 1


@pytest.mark.parametrize(
    ("value", "text"), [(5.6e-7, "5.6e-7"), (9.21, "9.2"), (0.1, "0.1"), (None, "")]
)
def test_errors_are_written_with_two_digits(value, text):
    assert report.error(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.299, "1.30"), (9.994, "9.99"), (23.14, "23.1"), (None, "–")]
)
def test_ratios_are_written_with_three_digits(value, text):
    assert report.times(value) == text


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_is_the_same_each_time_and_has_every_bar(theme):
    picture = pe_speed.draw(STORED, theme)
    assert picture == pe_speed.draw(STORED, theme)
    root = ElementTree.fromstring(picture)
    bars = sum(len(panel.values) for panel in report.panels(STORED))
    paths = root.findall(".//{http://www.w3.org/2000/svg}path")
    assert len(paths) > bars
    ink = {"light": pe_speed.plots.INK, "dark": pe_speed.DARK["ink"]}[theme]
    assert ink.lower().encode() in picture.lower()


def test_a_table_becomes_a_table_of_the_page():
    node = pe_speed.table_node(report.Table(["", "ms"], [["a", "1.0"], ["b", "–"]]))
    assert node.astext().split() == ["ms", "a", "1.0", "b", "–"]


def test_without_a_gpu_run_the_page_says_so(tmp_path):
    assert gpu_report.load(tmp_path) is None
    published = (report.RESULTS / "gpu.json").exists()
    assert published or "No run on a GPU" in gpu_report.NONE


@pytest.mark.skipif(not BUILT.exists(), reason="the site is not built")
def test_the_built_page_shows_the_numbers():
    text = re.sub(r"<[^>]+>", "", BUILT.read_text("utf-8"))
    if BUILT.stat().st_mtime < max(p.stat().st_mtime for p in report.RESULTS.iterdir()):
        pytest.skip("the site is older than the results")
    for target in report.targets(STORED):
        assert target.what in text
        assert report.times(target.measured) in text
