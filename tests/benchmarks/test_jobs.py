"""Each benchmark at tiny sizes: it runs, and its file has what the page shows."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
import torch

from benchmarks import (
    alibi,
    decode,
    harness,
    many,
    memory,
    report,
    rotate,
    tables,
    train,
)

TIMED = (tables, rotate, decode, alibi, train, many)


@pytest.fixture(scope="module")
def contents():
    """One tiny run of each, without telling pytest's own allocator anything.

    Nothing is compiled: that takes most of the time and is no part of the sums.
    """
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "take_memory", lambda how: True)
        patch.setattr(torch, "compile", lambda function, **_: function)
        torch.set_num_threads(1)
        quick = harness.Settings(2, quick=True)
        found = {m.__name__.split(".")[1]: m.measure(quick) for m in (*TIMED, memory)}
    torch.set_num_threads(threads)
    return found


def cases(content):
    if "timings" in content:
        for rows in content["timings"].values():
            yield {**content, "rows": rows}
    else:
        yield from content["cases"]


@pytest.mark.parametrize("module", TIMED, ids=lambda module: module.__name__)
def test_every_figure_is_there_and_positive(contents, module: ModuleType):
    content = contents[module.__name__.split(".")[1]]
    assert content["baseline"] == module.BASELINE
    assert content["bound"] == module.BOUND
    for one in cases(content):
        assert {module.BASELINE, module.BOUND} <= set(one["rows"])
        for row in one["rows"].values():
            assert all(math.isfinite(value) and value > 0 for value in row.values())
        assert set(one["max_error"]) <= set(one["rows"])
        assert module.BASELINE in one["max_error"]


def test_ours_is_right_where_others_are_measured_against_it(contents):
    # 2⁻²⁴ of numbers up to 5, some roundings; in bf16 half a step of 2⁻⁸ of the same
    for name in ("rotate", "decode", "alibi"):
        for one in contents[name]["cases"]:
            most = 2e-6 if one["dtype"] == "float32" else 2e-2
            for entry, error in one["max_error"].items():
                if entry.startswith("pe_lab"):
                    assert error <= most, (name, entry)


def test_the_peers_do_the_same_job(contents):
    # another layout, position or axis would be off by the size of the numbers; at
    # these short lengths, coarse angles are not. One peer makes positions in bf16
    for name in ("rotate", "alibi"):
        for one in contents[name]["cases"]:
            if one["dtype"] == "float32":
                assert max(one["max_error"].values()) <= 1e-4, name


def test_models_that_train_side_by_side_are_of_one_size(contents):
    for one in contents["train"]["cases"]:
        counts = one["parameters"]
        for scheme in ("none", "RoPE", "ALiBi", "learned"):
            ours, theirs = (
                counts[f"pe_lab, {scheme}"],
                counts[f"x-transformers, {scheme}"],
            )
            # biases and gains are few beside matrices, but not at these tiny widths
            assert abs(ours - theirs) < 0.1 * theirs
        # a loss near ln 65, of some thousand float32 operations
        assert max(one["max_error"].values()) < 1e-5


def test_many_models_at_once_have_the_gradients_of_each_alone(contents):
    for one in contents["many"]["cases"]:
        # float32 sums in another order, gradients below 1
        assert 0 < one["max_error"][many.AT_ONCE] < 1e-5


def test_the_steps_that_are_timed_do_train():
    torch.manual_seed(0)
    size = train.TINY["small"]
    for model in (train.our_model("RoPE", size), train.their_model("RoPE", size)):
        step = train.training_step(model, train.batch_of(size))
        losses = [step() for _ in range(30)]
        assert losses[-1] < losses[0]


def test_the_bound_of_a_pass_with_a_gradient_copies_twice():
    x = torch.randn(3, 4, requires_grad=True)
    y = rotate.Copy.apply(x)
    (grad,) = torch.autograd.grad(y, x, y.detach())
    assert torch.equal(y, x)
    assert torch.equal(grad, x)
    assert len({t.data_ptr() for t in (x, y, grad)}) == 3


def test_the_reference_rotation_turns_back():
    x = rotate.queries(True, torch.float64)
    for layout in ("half", "interleaved"):
        there = rotate.truth(x, layout)
        assert not torch.allclose(there, x)
        torch.testing.assert_close(rotate.truth(there, layout, back=True), x)
        assert torch.equal(there[:, :, 0], x[:, :, 0])  # position 0 stays


def test_temporaries_are_counted_and_results_are_not():
    x = torch.randn(500, 500)  # 1 MB
    slack = 1000  # scalars
    assert memory.beyond_bytes(lambda: x + 1) <= slack
    assert abs(memory.beyond_bytes(lambda: (x + 1) * 2) - 10**6) <= slack
    assert abs(memory.beyond_bytes(lambda: ((x + 1) * (x + 2)) * 3) - 2e6) <= slack
    # what a kernel takes for itself is seen too: softmax of a transposed copy
    assert memory.beyond_bytes(lambda: x.T.contiguous().sum()) >= 10**6 - slack


def test_what_autograd_stores_is_counted_once():
    x = torch.randn(500, 500, requires_grad=True)
    table = torch.randn(2, 500, 500)
    cos, sin = table
    assert memory.kept_bytes(lambda: x + cos) == 0
    assert memory.kept_bytes(lambda: x * cos + x * sin) == 2 * 10**6
    assert memory.kept_bytes(lambda: x * x) == 10**6


def test_memory_has_both_numbers_for_each_job(contents):
    found = {one["job"]: one for one in contents["memory"]["cases"]}
    assert set(found) == set(report.JOBS)
    for one in contents["memory"]["cases"]:
        assert all(value >= 0 for value in one["beyond_megabytes"].values())
        if one["job"] != "table":
            # FlexAttention has no backward pass on a CPU
            left = set(one["beyond_megabytes"]) - set(one["kept_megabytes"])
            assert left <= {"FlexAttention compiled"}
    assert found["rotate"]["kept_megabytes"]["copy"] == 0


def test_every_table_target_and_number_can_be_made(contents):
    for name, content in contents.items():
        table = report.TABLES[name](content)
        assert all(len(row) == len(table.head) for row in table.rows)
        assert report.as_text(table).count("\n") == len(table.rows)
    assert all(target.measured > 0 for target in report.targets(contents))
    assert all(report.numbers(contents).values())
    panels = report.panels(contents)
    assert all(len(panel.names) == len(panel.values) for panel in panels)
    assert all(panel.title in report.describe(panels) for panel in panels)


def test_a_missing_peer_is_a_dash_and_a_line(contents):
    content = contents["alibi"]
    one = {**content["cases"][0]}
    name = "x-transformers"
    one["rows"] = {key: row for key, row in one["rows"].items() if key != name}
    one["max_error"] = {k: e for k, e in one["max_error"].items() if k != name}
    short = {**content, "cases": [one, *content["cases"][1:]], "missing": {name: "no"}}
    row = next(row for row in report.alibi(short).rows if row[0] == name)
    assert row[1] == "–"
    assert report.missing(short) == "Missing: x-transformers (no)\n"
