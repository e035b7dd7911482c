"""The measurements must tell schemes apart, and each must notice its own violation."""

import pytest
import torch
from torch import nn

import pe_lab
from pe_lab.properties import Measurement, permutation_error

HOLDS = {  # what each scheme is known to have, D1 … D10
    pe_lab.NoPE: "D3 D4 D5 D6 D7 D8 D9 D10",
    pe_lab.Sinusoidal: "D1 D2 D5 D6 D7 D8 D9 D10",
    pe_lab.Learned: "D1 D2 D5 D8 D9 D10",
    pe_lab.RoPE: "D1 D2 D3 D5 D6 D7 D8 D9 D10",
    pe_lab.ALiBi: "D1 D2 D3 D4 D5 D6 D7 D8 D9 D10",
}
SIZES = {
    pe_lab.NoPE: (), pe_lab.Sinusoidal: (32,), pe_lab.Learned: (64, 32),
    pe_lab.RoPE: (16,), pe_lab.ALiBi: (2,),
}  # fmt: skip


@pytest.mark.parametrize("scheme", HOLDS)
def test_each_scheme_has_its_known_properties(scheme):
    pe_lab.seed(0)
    measured = pe_lab.desiderata(scheme(*SIZES[scheme]))
    assert [m.name for m in measured] == [f"D{i}" for i in range(1, 11)]
    assert " ".join(m.name for m in measured if m.holds) == HOLDS[scheme]


class Stretched(pe_lab.RoPE):
    """Turns and stretches: norms are not kept."""

    def rotate(self, q, k, q_pos, k_pos):
        return super().rotate(2 * q, k, q_pos, k_pos)


class Counting(pe_lab.ALiBi):
    """Counts queries from 0 in every call: a cache changes the answer."""

    def bias(self, q, k, q_pos, k_pos):
        return super().bias(q, k, torch.arange(q.shape[2]), k_pos) ** 2


class Indexed(pe_lab.Sinusoidal):
    """Uses the place in the tensor instead of the id: padding changes the answer."""

    def embed(self, x, positions):
        return super().embed(x, torch.arange(x.shape[1]))


class Coarse(pe_lab.RoPE):
    """Makes positions in the dtype of the queries."""

    def rotate(self, q, k, q_pos, k_pos):
        q_pos, k_pos = (p.to(q.dtype).float() for p in (q_pos, k_pos))
        return super().rotate(q, k, q_pos, k_pos)


class Modulo(pe_lab.Sinusoidal):
    """Wraps after eight places: two places are one."""

    def embed(self, x, positions):
        return super().embed(x, positions % 8)


@pytest.mark.parametrize(
    ("mutant", "broken"),
    [
        (Stretched(16), "D5"),
        (Counting(2), "D9"),
        (Indexed(32), "D10"),
        (Coarse(16), "D8"),
        (Modulo(32), "D2"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_each_measurement_notices_its_violation(mutant, broken):
    by_name = {m.name: m for m in pe_lab.desiderata(mutant)}
    assert not by_name[broken].holds


def test_a_measurement_reads_well_and_never_holds_on_nan():
    good = Measurement("D3", "only offsets count", 1e-15, most=1e-9)
    assert repr(good) == "✓ D3 only offsets count: 1e-15 (≤ 1e-09)"
    assert repr(Measurement("D1", "order", 0.0, least=0.1)).startswith("✗ D1")
    assert not Measurement("D3", "x", float("nan"), most=1.0).holds
    assert not Measurement("D1", "x", float("nan"), least=1.0).holds


def test_permutation_error_of_maps_with_and_without_order():
    x, order = torch.randn(2, 5, 4), torch.tensor([4, 0, 3, 1, 2])
    assert permutation_error(nn.Linear(4, 3), x, order) < 1e-6
    assert permutation_error(lambda t: t.cumsum(1), x, order) > 0.1
    with pytest.raises(ValueError, match="permutation needs each of 0 … 4 once, as int64"):
        permutation_error(nn.Identity(), x, torch.tensor([0, 0, 1, 2, 3]))


def test_measuring_leaves_the_scheme_as_it_was():
    scheme = pe_lab.T5Bias(2)
    pe_lab.desiderata(scheme)
    assert scheme.weight.dtype == torch.float32
