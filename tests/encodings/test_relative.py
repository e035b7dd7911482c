"""Transformer-XL, TUPE, KERPLE and FIRE against their formulas written out."""

import math

import pytest
import torch

import pe_lab


def heads(batch=2, num_heads=2, q_len=3, k_len=5, dim=4):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(batch, num_heads, q_len, dim, generator=generator).double()
    k = torch.randn(batch, num_heads, k_len, dim, generator=generator).double()
    return q, k, torch.tensor([2, 7, 4]), torch.tensor([0, 1, 2, 9, 4])


def test_transformer_xl_scores_a_sinusoid_of_the_offset():
    """(u·k + (q+v)·W r(Δ))/√D for each pair, with no angle addition."""
    module = pe_lab.TransformerXL(2, 4).double()
    q, k, q_pos, k_pos = heads()
    bias = module.bias(q, k, q_pos, k_pos)
    for h in range(2):
        for i in range(3):
            for j in range(5):
                offset = torch.tensor([q_pos[i] - k_pos[j]])
                r = pe_lab.sinusoidal(offset, 8, order="halves", dtype=torch.float64)[0]
                score = module.u[h, 0] @ k[1, h, j]
                score = score + (q[1, h, i] + module.v[h, 0]) @ module.weight[h] @ r
                assert torch.allclose(bias[1, h, i, j], score / 2, atol=1e-12)


def test_transformer_xl_is_xlnet_s_relative_attention():
    """XLNet's rel_attn_core with the same weights, both directions."""
    transformers = pytest.importorskip("transformers")
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    config = transformers.XLNetConfig(d_model=8, n_head=2, n_layer=1, d_inner=8, dropout=0.0, vocab_size=5)  # fmt: skip
    layer = xlnet.XLNetRelativeAttention(config).double()
    for p in (layer.q, layer.k, layer.v, layer.o, layer.r, layer.r_w_bias, layer.r_r_bias):  # fmt: skip
        torch.nn.init.normal_(p, std=0.3)
    length = 6
    table = pe_lab.sinusoidal(torch.arange(length, -length, -1), 8, order="halves", dtype=torch.float64)  # fmt: skip
    q, k, v = torch.randn(3, length, 1, 2, 4, dtype=torch.float64)
    r = torch.einsum("ih,hnd->ind", table, layer.r)[:, None]
    nothing = torch.zeros(length, length, 1, 1).double()
    theirs = layer.rel_attn_core(q, k, v, r, attn_mask=nothing)
    ours = pe_lab.TransformerXL(2, 4).double()
    with torch.no_grad():
        ours.weight.copy_(layer.r.permute(1, 2, 0))
        ours.u.copy_(layer.r_w_bias[:, None])
        ours.v.copy_(layer.r_r_bias[:, None])
    q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
    out = pe_lab.attention(q, k, v, encoding=ours).permute(2, 0, 1, 3)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    assert torch.allclose(out, theirs.view_as(out), atol=1e-10)


def test_tupe_scores_words_and_places_apart():
    module = pe_lab.TUPE(12, 8, 2, reset_cls=True).double()
    with torch.no_grad():
        module.cls.copy_(torch.tensor([[10.0, 20.0], [30.0, 40.0]]))
    q, k, q_pos, k_pos = heads(dim=4)
    q_pos[1] = 0
    scores = pe_lab.attention(q, k, k, encoding=module, q_pos=q_pos, k_pos=k_pos, return_weights=True)[1].log()  # fmt: skip
    p = module.norm(module.table)
    for h in range(2):
        rows = slice(4 * h, 4 * h + 4)
        for i, m in enumerate(q_pos.tolist()):
            expected = []
            for j, n in enumerate(k_pos.tolist()):
                place = (module.w_q.weight[rows] @ p[m]) @ (module.w_k.weight[rows] @ p[n]) / math.sqrt(8)  # fmt: skip
                if n == 0:
                    place = module.cls[1, h]
                if m == 0:
                    place = module.cls[0, h]
                expected.append(q[0, h, i] @ k[0, h, j] / math.sqrt(8) + place)
            expected = torch.stack(expected).log_softmax(0)
            assert torch.allclose(scores[0, h, i], expected, atol=1e-10)
    with pytest.raises(IndexError, match="position 12 has no row"):
        module.bias(q, k, q_pos, k_pos + 3)


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple(kind):
    module = pe_lab.Kerple(2, kind=kind).double()
    q, k, q_pos, k_pos = heads()
    bias = module.bias(q, k, q_pos, k_pos)
    assert bias.shape == (1, 2, 3, 5)
    for h in range(2):
        height, bend = module.weight.clamp(min=0.01)[:, h].tolist()
        for i, m in enumerate(q_pos.tolist()):
            for j, n in enumerate(k_pos.tolist()):
                x = abs(m - n)
                term = math.log(1 + bend * x) if kind == "log" else x**bend if x else 0
                assert bias[0, h, i, j].item() == pytest.approx(-height * term)
    bias.sum().backward()
    assert module.weight.grad.isfinite().all()
    with pytest.raises(ValueError, match="kind needs"):
        pe_lab.Kerple(2, kind="linear")


def test_fire():
    module = pe_lab.Fire(2, threshold=5).double()
    q, k, q_pos, k_pos = heads()
    bias = module.bias(q, k, q_pos, k_pos)
    psi = lambda x: math.log(0.1 * x + 1)  # noqa: E731
    for i, m in enumerate(q_pos.tolist()):
        for j, n in enumerate(k_pos.tolist()):
            progress = psi(abs(m - n)) / psi(max(5, m))
            expected = module.net(torch.tensor([progress]).double())
            assert torch.allclose(bias[0, :, i, j], expected, atol=1e-12)
    bias.sum().backward()
    assert all(p.grad is not None for p in module.parameters())


SCHEMES = {
    "t5": lambda: pe_lab.T5Bias(2),
    "shaw": lambda: pe_lab.Shaw(8, 4),
    "transformer-xl": lambda: pe_lab.TransformerXL(2, 8),
    "tupe": lambda: pe_lab.TUPE(40, 16, 2),
    "kerple": lambda: pe_lab.Kerple(2),
    "kerple-power": lambda: pe_lab.Kerple(2, kind="power"),
    "fire": lambda: pe_lab.Fire(2),
    "xpos": lambda: pe_lab.XPos(8),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_cache_padding_and_packing_change_nothing(scheme):
    pe_lab.seed(0)
    model = pe_lab.Transformer(11, 16, 2, 2, encoding=SCHEMES[scheme]()).double().eval()
    ids = torch.randint(11, (3, 9))
    full, cache, out = model(ids), None, []
    for piece in ids.split([4, 1, 4], dim=1):
        logits, cache = model.extend(piece, cache)
        out.append(logits)
    assert torch.allclose(torch.cat(out, 1), full, atol=1e-10)
    mask = torch.arange(12) >= 3
    mask = mask.expand(3, 12)
    rows = torch.cat((ids[:, :3], ids), 1)
    padded = model(rows, positions=pe_lab.positions.from_mask(mask), mask=mask)
    assert torch.allclose(padded[:, 3:], full, atol=1e-10)
    positions, block = pe_lab.positions.packed([4, 5])
    packed = model(ids, positions=positions, mask=block[None])
    alone = torch.cat((model(ids[:, :4]), model(ids[:, 4:])), 1)
    assert torch.allclose(packed, alone, atol=1e-10)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_and_one_graph(scheme, dtype):
    module = SCHEMES[scheme]().to(dtype)
    x, ids = torch.randn(1, 2, 6, 8, dtype=dtype), torch.arange(6)

    def run(x, ids):
        return pe_lab.attention(x, x, x, encoding=module, q_pos=ids, k_pos=ids, causal=True)  # fmt: skip

    out = run(x, ids)
    assert out.dtype == dtype
    assert out.isfinite().all()
    torch.compiler.reset()  # one process compiles more variants than dynamo keeps
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    tolerance = {torch.bfloat16: 5e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    assert torch.allclose(compiled(x, ids), out, atol=tolerance)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradcheck(scheme):
    module = SCHEMES[scheme]().double()
    q, k, v = (t.clone().requires_grad_() for t in torch.randn(3, 1, 2, 4, 8).double())

    def run(q, k, v):
        return pe_lab.attention(q, k, v, encoding=module, causal=True)

    assert torch.autograd.gradcheck(run, (q, k, v))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_ids_of_any_integer_dtype(scheme, dtype):
    pe_lab.seed(0)
    module, x, ids = SCHEMES[scheme](), torch.randn(1, 2, 6, 8), torch.arange(6)

    def run(ids):
        return pe_lab.attention(x, x, x, encoding=module, q_pos=ids, k_pos=ids)

    assert torch.equal(run(ids.to(dtype)), run(ids))


@pytest.mark.parametrize("scheme", ["shaw", "transformer-xl", "kerple", "kerple-power"])
def test_autocast_does_not_make_the_bias_coarser(scheme):
    module, x, ids = SCHEMES[scheme](), torch.randn(1, 2, 6, 8), torch.arange(6)
    plain = module.bias(x, x, ids, ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module.bias(x, x, ids, ids), plain)


@pytest.mark.parametrize("scheme", ["kerple", "kerple-power", "fire"])
def test_positions_do_not_overflow_in_float16(scheme):
    """Float16 ends at 65504, positions do not. The bias is of size 1 to 1e5: 1 %."""
    pe_lab.seed(0)
    module, x = SCHEMES[scheme]().half(), torch.randn(1, 2, 4, 8).half()
    q_pos, k_pos = torch.arange(4) + 100_000, torch.arange(4) * 30_000
    half = module.bias(x, x, q_pos, k_pos).double()
    exact = module.double().bias(x, x, q_pos, k_pos)
    assert torch.allclose(half, exact, rtol=1e-2, atol=1e-2)


def test_kerple_starts_as_the_released_code_does():
    """r₁, r₂ in U(0, 2), U(0, 1) for the logarithm and the other way round for the
    power: the largest of 4000 draws is within 1 % of the bound but once in e⁴⁰.
    """
    for kind, bounds in (("log", (2, 1)), ("power", (1, 2))):
        largest = pe_lab.Kerple(4000, kind=kind).weight.amax(1).tolist()
        assert largest == pytest.approx(bounds, rel=0.01)


@pytest.mark.parametrize("name", ["c", "threshold"])
def test_fire_needs_positive_numbers(name):
    with pytest.raises(ValueError, match=f"{name} needs"):
        pe_lab.Fire(2, **{name: 0.0})


def test_xpos_refuses_in_words():
    with pytest.raises(TypeError, match="q needs a torch tensor"):
        pe_lab.XPos(8).rotate(None, torch.zeros(1, 1, 2, 8), torch.arange(2), torch.arange(2))  # fmt: skip
