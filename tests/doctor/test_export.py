"""D-EXPORT: a program traced at one length is run at another, where that is asked for."""

import pytest
import torch

import pe_lab


def verdict(subject, kind, **options):
    report = pe_lab.diagnose(subject, kind=kind, **options)
    return next(v for v in report.verdicts if v.check == "D-EXPORT")


class Constant(torch.nn.Module):
    """Rows made from numbers that a tracer keeps: the mean of the first call's input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", pe_lab.sinusoidal(64, 32))

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class Looped(Constant):
    def forward(self, x):
        return x + torch.stack([self.table[i] for i in range(x.shape[1])])


class Remembered(Constant):
    """Keeps the rows of its first call, which are those of the trace."""

    def forward(self, x):
        rows = self.table[:11] if x.shape[1] == 11 else 2 * self.table[: x.shape[1]]
        return x + rows


def test_it_is_made_only_where_it_is_asked_for():
    assert "compile=True" in verdict(Constant(), "add").why


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_ours_are_exported_with_an_open_length(layout):
    found = verdict(pe_lab.RoPE(16, layout=layout), "rope", compile=True, head_dim=16)
    assert found.value <= found.tolerance
    found = verdict(pe_lab.Sinusoidal(32), "add", compile=True, d_model=32)
    assert found.value <= found.tolerance


def test_a_loop_over_the_length_fixes_it():
    found = verdict(Looped(), "add", compile=True)
    assert found.severity == "risky" and "at length 11" in found.message


def test_an_answer_kept_from_the_trace_is_seen():
    """A branch on the length: at 11 the program goes the way of 6, or cannot be made."""
    report = pe_lab.diagnose(Remembered(), kind="add", compile=True)
    assert report.severity in ("wrong", "risky")
