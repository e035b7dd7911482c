"""xPos, grids and M-RoPE: rotations with more than one position."""

import pytest
import torch

import pe_lab
from pe_lab import positions


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_xpos_scores_decay_and_see_offsets_only(layout):
    module = pe_lab.XPos(8, layout=layout)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(m, n):
        a, b = module.rotate(q, k, torch.tensor([m]), torch.tensor([n]))
        return (a * b).sum().item()

    assert score(900, 300) == pytest.approx(score(1600, 1000), rel=1e-9)
    one = torch.ones(1, 1, 1, 8, dtype=torch.float64)
    a, b = module.rotate(one, one, torch.tensor([512]), torch.tensor([0]))
    zeta = (2 * torch.arange(4.0, dtype=torch.float64) / 8 + 0.4) / 1.4
    expected = (2 * zeta * (512 * module.inv_freq).cos()).sum()
    assert (a * b).sum().item() == pytest.approx(expected.item(), rel=1e-9)
    shifted = pe_lab.XPos(8, layout=layout, centre=700)
    a, b = shifted.rotate(q, k, torch.tensor([900]), torch.tensor([300]))
    assert (a * b).sum().item() == pytest.approx(score(900, 300), rel=1e-9)


def test_xpos_equals_rotary_embedding_torch_up_to_its_moving_centre():
    rotary = pytest.importorskip("rotary_embedding_torch")
    theirs = rotary.RotaryEmbedding(16, use_xpos=True)
    q, k = torch.randn(2, 1, 2, 40, 16)
    a, b = theirs.rotate_queries_and_keys(q, k)
    c, d = pe_lab.XPos(16, layout="interleaved").rotate(q, k, torch.arange(40), torch.arange(40))
    assert torch.allclose(a @ b.mT, c @ d.mT, atol=1e-3)


def test_grid_of_two_by_three():
    ids = positions.grid(2, 3)
    assert ids[:, 0].tolist() == [0, 0, 0, 1, 1, 1]
    assert ids[:, 1].tolist() == [0, 1, 2, 0, 1, 2]
    assert positions.grid(4).tolist() == [[0], [1], [2], [3]]
    assert positions.grid(0, 3).shape == (0, 2)
    assert positions.grid(2, 1, 3).shape == (6, 3)
    for bad in ((), (-1,), (1.5, 2)):
        with pytest.raises((TypeError, ValueError), match="need"):
            positions.grid(*bad)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_axial_shares_turn_with_their_own_axis(layout):
    module = pe_lab.AxialRoPE(8, layout=layout)
    x, ids = torch.randn(1, 2, 6, 8), positions.grid(2, 3)
    out, _ = module.rotate(x, x, ids, ids)
    for axis in (0, 1):
        share = x[..., 4 * axis : 4 * axis + 4]
        alone, _ = pe_lab.RoPE(4, layout=layout).rotate(share, share, ids[:, axis], ids[:, axis])
        assert torch.equal(out[..., 4 * axis : 4 * axis + 4], alone)
    wide = pe_lab.AxialRoPE(12, axes=3)
    y, places = torch.randn(2, 1, 6, 12), positions.grid(1, 2, 3)
    assert wide.rotate(y, y, places, places.expand(2, 6, 3))[0].shape == y.shape


def test_mrope_ids_of_a_public_bug_report():
    """Text 2, image 1×2×2, text 1: the next token is index 7, id 5."""
    ids, delta = positions.mrope([2, (1, 2, 2), 1])
    assert ids[:, 0].tolist() == [0, 1, 2, 2, 2, 2, 4]
    assert ids[:, 1].tolist() == [0, 1, 2, 2, 3, 3, 4]
    assert ids[:, 2].tolist() == [0, 1, 2, 3, 2, 3, 4]
    assert delta == -2
    assert positions.mrope([])[0].shape == (0, 3)
    for bad in ([(1, 2)], [-1], [1.5], ["a"]):
        with pytest.raises((TypeError, ValueError), match="need"):
            positions.mrope(bad)


def test_mrope_is_rope_on_text_and_transformers_on_images():
    module = pe_lab.MRoPE(16, (2, 3, 3))
    x = torch.randn(1, 2, 7, 16)
    text = torch.arange(7)[:, None].expand(7, 3)
    plain, _ = pe_lab.RoPE(16).rotate(x, x, torch.arange(7), torch.arange(7))
    assert torch.allclose(module.rotate(x, x, text, text)[0], plain, atol=1e-6)
    ids, _ = positions.mrope([2, (1, 2, 2), 1])
    qwen = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")
    config = pytest.importorskip("transformers").Qwen2VLTextConfig(
        hidden_size=32, num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
    )  # fmt: skip
    cos, sin = qwen.Qwen2VLRotaryEmbedding(config)(x, ids.T[:, None])
    theirs, _ = qwen.apply_rotary_pos_emb(x, x, cos, sin)
    assert torch.allclose(module.rotate(x, x, ids, ids)[0], theirs, atol=1e-5)


def test_a_model_reads_ids_with_axes_and_decodes_on():
    model = pe_lab.Transformer(11, 32, 2, 2, encoding=pe_lab.MRoPE(16, (2, 3, 3))).double().eval()
    tokens = torch.randint(11, (1, 8))
    ids, delta = positions.mrope([2, (1, 2, 2), 2])
    full = model(tokens, positions=ids[None])
    _, cache = model.extend(tokens[:, :7], positions=ids[None, :7])
    assert ids[7].tolist() == [7 + delta] * 3
    last, _ = model.extend(tokens[:, 7:], cache, positions=ids[None, 7:])
    assert torch.allclose(last[:, 0], full[:, -1], atol=1e-12)


def test_zigzag_shares_balance_the_causal_triangle():
    shares = [positions.zigzag(16, r, 4) for r in range(4)]
    assert sorted(torch.cat(shares).tolist()) == list(range(16))
    assert shares[1].tolist() == [2, 3, 12, 13]
    assert len({int((s + 1).sum()) for s in shares}) == 1  # keys visible in all
    for bad in ((15, 0, 4), (16, 4, 4), (16, -1, 4)):
        with pytest.raises(ValueError, match="needs"):
            positions.zigzag(*bad)


def test_a_zigzag_share_attends_as_in_the_full_pass():
    q, k, v = torch.randn(3, 1, 2, 16, 8, dtype=torch.float64)
    rope, ids = pe_lab.RoPE(8), torch.arange(16)
    full = pe_lab.attention(q, k, v, causal=True, encoding=rope)
    for r in range(4):
        mine = positions.zigzag(16, r, 4)
        out = pe_lab.attention(
            q[:, :, mine], k, v, encoding=rope, q_pos=mine, k_pos=ids,
            mask=positions.causal(mine, ids),
        )  # fmt: skip
        assert torch.allclose(out, full[:, :, mine], atol=1e-12)


def test_cached_ids_continue_each_row():
    assert positions.cached(3, 2).tolist() == [3, 4]
    assert positions.cached(torch.tensor([2, 4]), 1).tolist() == [[2], [4]]
    negative = torch.tensor([-1, 2])
    for bad in (-1, 1.5, torch.tensor([0.5]), torch.ones(1, 1).long(), negative):
        with pytest.raises((TypeError, ValueError), match="past needs"):
            positions.cached(bad, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pe_lab.AxialRoPE(6), "multiple of 4"),
        (lambda: pe_lab.MRoPE(16, (2, 3)), "add up to head_dim/2 = 8"),
        (lambda: pe_lab.AxialRoPE(8).rotate(torch.zeros(1, 1, 3, 8), torch.zeros(1, 1, 3, 8), torch.arange(3), torch.arange(3)), "2 numbers for each token"),
        (lambda: pe_lab.attention(torch.zeros(1, 1, 3, 8), torch.zeros(1, 1, 3, 8), torch.zeros(1, 1, 3, 8), encoding=pe_lab.AxialRoPE(8)), "2 numbers for each token"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
