"""Shaw's vectors for keys and values, against the paper's sums written as loops."""

import pytest
import torch

import pe_lab


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_equals_equations_three_to_five(values, causal):
    pe_lab.seed(0)
    module = pe_lab.Shaw(4, 2, values=values).double()
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    out = pe_lab.attention(q, k, v, encoding=module, causal=causal)
    for h in range(2):
        for i in range(5):
            seen = range(i + 1 if causal else 5)
            row = [min(max(j - i, -2), 2) + 2 for j in seen]
            scores = torch.stack([q[0, h, i] @ (k[0, h, j] + module.keys[r]) / 2 for j, r in zip(seen, row, strict=True)])  # fmt: skip
            weights = scores.softmax(0)
            marked = [v[0, h, j] + (module.values[r] if values else 0) for j, r in zip(seen, row, strict=True)]  # fmt: skip
            expected = weights @ torch.stack(marked)
            assert torch.allclose(out[0, h, i], expected, atol=1e-12)


def test_distances_are_clipped():
    """Clip at 2: distances −5 … 5 are −2 −2 −2 −2 −1 0 1 2 2 2 2."""
    rows = pe_lab.Shaw(4, 2).rows(torch.tensor([5]), torch.arange(11)) - 2
    assert rows.flatten().tolist() == [-2, -2, -2, -2, -1, 0, 1, 2, 2, 2, 2]


def test_a_cache_keeps_the_value_vectors_too():
    model = pe_lab.Transformer(11, 16, 2, 2, encoding=pe_lab.Shaw(8, 3)).double().eval()
    ids = torch.randint(11, (2, 7))
    full, cache, out = model(ids), None, []
    for t in range(7):
        logits, cache = model.extend(ids[:, t : t + 1], cache)
        out.append(logits)
    assert torch.allclose(torch.cat(out, 1), full, atol=1e-12)


def test_gradients_reach_both_tables():
    module = pe_lab.Shaw(4, 2)
    x = torch.randn(1, 2, 5, 4)
    pe_lab.attention(x, x, x, encoding=module).square().sum().backward()
    assert (module.keys.grad.abs().sum(1) > 0).all()
    assert (module.values.grad.abs().sum(1) > 0).all()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="max_distance needs"):
        pe_lab.Shaw(4, 0)
    x, half = torch.zeros(1, 1, 2, 4), torch.tensor([0.0, 0.5])
    with pytest.raises(TypeError, match="whole positions"):
        pe_lab.Shaw(4, 2).bias(x, x, half, half)
    with pytest.raises(ValueError, match="head_dim = 6"):
        pe_lab.Shaw(6, 2).bias(x, x, torch.arange(2), torch.arange(2))
