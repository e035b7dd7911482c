"""What a module was through changes nothing: casts, contexts, copies, earlier calls.

Every scheme is asked the same question before and after, from outside.
"""

import copy
import io
import pickle

import pytest
import torch

import pe_lab
from pe_lab import scaling

HEADS, DIM = 2, 8
FACTORS = [1.0, 1.5, 2.0, 4.0]
FIXED = {
    "none": lambda: pe_lab.NoPE(),
    "rope": lambda: pe_lab.RoPE(DIM),
    "interleaved": lambda: pe_lab.RoPE(DIM, layout="interleaved"),
    "partial": lambda: pe_lab.RoPE(DIM, rotary_dim=4, gain=1.1),
    "hugging face": lambda: pe_lab.RoPE(DIM, compat="hf"),
    "linear": lambda: pe_lab.RoPE(DIM, scaling=lambda w: scaling.linear(w, 4)),
    "ntk": lambda: pe_lab.RoPE(DIM, scaling=lambda w: scaling.ntk(w, 4)),
    "dynamic": lambda: pe_lab.RoPE(DIM, scaling=lambda w: scaling.dynamic_ntk(w, 4, length=99, original_length=16)),
    "llama3": lambda: pe_lab.RoPE(DIM, scaling=lambda w: scaling.llama3(w, 4, original_length=64)),
    "yarn": lambda: pe_lab.RoPE(DIM, scaling=lambda w: scaling.yarn(w, 4, original_length=64)),
    "longrope": lambda: pe_lab.RoPE(DIM, scaling=lambda w: scaling.longrope(w, FACTORS, FACTORS, length=1, original_length=64)),
    "xpos": lambda: pe_lab.XPos(DIM),
    "axial": lambda: pe_lab.AxialRoPE(DIM),
    "mrope": lambda: pe_lab.MRoPE(DIM, (2, 1, 1)),
    "alibi": lambda: pe_lab.ALiBi(HEADS),
    "sinusoidal": lambda: pe_lab.Sinusoidal(DIM),
    "odd sinusoidal": lambda: pe_lab.Sinusoidal(7, order="halves"),
    "axial sinusoidal": lambda: pe_lab.AxialSinusoidal(DIM),
}  # fmt: skip
TRAINED = {
    "learned": lambda: pe_lab.Learned(64, DIM),
    "t5": lambda: pe_lab.T5Bias(HEADS),
    "shaw": lambda: pe_lab.Shaw(DIM, 4),
    "transformer-xl": lambda: pe_lab.TransformerXL(HEADS, DIM),
    "tupe": lambda: pe_lab.TUPE(64, HEADS * DIM, HEADS),
    "kerple": lambda: pe_lab.Kerple(HEADS),
    "kerple, power": lambda: pe_lab.Kerple(HEADS, kind="power"),
    "fire": lambda: pe_lab.Fire(HEADS),
}
SCHEMES = FIXED | TRAINED
every_scheme = pytest.mark.parametrize("name", SCHEMES)
every_fixed_one = pytest.mark.parametrize("name", FIXED)


def make(name):
    pe_lab.seed(0)
    return SCHEMES[name]()


def embeds(scheme):
    return type(scheme).embed is not pe_lab.PositionalEncoding.embed


def places(scheme, ids):
    """Ids for one or several axes."""
    axes = getattr(scheme, "axes", len(getattr(scheme, "sections", ())))
    return torch.stack([ids // (a + 1) for a in range(axes)], -1) if axes else ids


def numbers(scheme, batch, length, dtype=torch.float32):
    """What the scheme's door takes: embeddings, or queries, keys and values."""
    generator = torch.Generator().manual_seed(1)
    shape = (1, batch, length, scheme.d_model) if embeds(scheme) else (3, batch, HEADS, length, DIM)  # fmt: skip
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    return [t.clone() for t in drawn.to(dtype)]


def answer(scheme, given, ids):
    ids = places(scheme, ids)
    if embeds(scheme):
        return scheme.embed(*given, ids)
    return pe_lab.attention(*given, encoding=scheme, q_pos=ids, k_pos=ids, causal=True)


IDS = torch.tensor([0, 1, 2, 7, 11, 12, 13, 20, 33, 40])


def ask(scheme, dtype=torch.float32, ids=IDS):
    return answer(scheme, numbers(scheme, 2, len(ids), dtype), ids)


# ── dtypes ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16, torch.float64])
@every_fixed_one
def test_a_cast_rounds_nothing_that_is_not_trained(name, cast):
    """Frequencies and slopes are no buffers: positional-encodings and x-transformers
    are off by up to 2.0 after .to(bfloat16).
    """
    scheme = make(name)
    assert torch.equal(ask(copy.deepcopy(scheme).to(cast)), ask(scheme))


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", TRAINED)
def test_a_cast_rounds_parameters_and_nothing_else(name, cast):
    """As the same rounded parameters in float64: 16-bit biases of size 4, so 8 eps."""
    scheme = make(name).to(cast)
    exact = ask(copy.deepcopy(scheme).double(), torch.float64)
    error = (ask(scheme, torch.float32).double() - exact).abs().max()
    assert error <= 8 * torch.finfo(cast).eps


MIXES = [
    (torch.bfloat16, False), (torch.float16, False), (torch.float32, False),
    (torch.float64, False), (torch.bfloat16, True), (torch.float32, True),
    (torch.float64, True), (torch.float16, True),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "autocast"), MIXES)
@every_scheme
def test_results_have_the_dtype_of_what_was_given(name, dtype, autocast):
    """Whatever the module's own dtype: xformers#742, transformers#24261 and #13665."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        for cast in (dtype, torch.float32):
            out = ask(make(name).to(cast), dtype)
            assert out.dtype == dtype
            assert out.isfinite().all()


@every_scheme
def test_autocast_makes_no_table_coarser(name):
    """Rotations, tables and slopes under autocast, bit for bit: rotary-embedding-torch#46
    fences off CUDA alone. The networks of TUPE and FIRE are autocast's to round.
    """
    scheme = make(name)
    given, ids = numbers(scheme, 2, len(IDS)), places(scheme, IDS)

    def doors():
        if embeds(scheme):
            return [scheme.embed(*given, ids)]
        q, k, _ = given
        bias = scheme.bias(q, k, ids, ids)
        return [*scheme.rotate(q, k, ids, ids), *([] if bias is None else [bias])]

    plain = doors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = doors()
    tolerance = 0.05 if name in ("tupe", "fire") else 0
    for a, b in zip(under, plain, strict=True):
        assert (a.float() - b).abs().max() <= tolerance


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float16, torch.float64])
@every_scheme
def test_the_default_dtype_reaches_parameters_only(name, default):
    """Built and called while loaders have changed it: rotary-embedding-torch 0.9.1 is
    right on the first call then and off by 4.8 on the second.
    """
    plain = make(name)
    expected = ask(plain)
    torch.set_default_dtype(default)
    try:
        scheme = make(name)
        assert all(p.dtype == default for p in scheme.parameters())
        scheme = scheme.float()
        scheme.load_state_dict(plain.state_dict())
        answers = [ask(scheme), ask(scheme), ask(plain)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(out, expected) for out in answers)
    assert torch.equal(ask(scheme), expected)


# ── devices and modes ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", list(SCHEMES))
def test_built_without_memory_and_loaded(name, assign):
    """Frequencies that a checkpoint does not hold came back as recycled memory:
    transformers#34234 and #45902, FastPLMs#47, SpecForge#703.
    """
    plain = make(name)
    with torch.device("meta"):
        scheme = SCHEMES[name]()
    assert all(p.is_meta for p in scheme.parameters())
    if not assign:
        scheme = scheme.to_empty(device="cpu")
    scheme.load_state_dict(plain.state_dict(), assign=assign)
    assert torch.equal(ask(scheme), ask(plain))


@pytest.mark.parametrize("name", TRAINED)
def test_reset_parameters_leaves_no_number_of_before(name):
    """After to_empty the memory may hold anything, NaN included."""
    scheme = make(name)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.fill_(torch.nan)
    scheme.reset_parameters()
    assert all(p.isfinite().all() for p in scheme.parameters())


def test_a_whole_model_is_built_without_memory_and_loaded():
    pe_lab.seed(0)
    plain = pe_lab.Transformer(11, 16, 2, 2, encoding=make("yarn")).eval()
    with torch.device("meta"):
        model = pe_lab.Transformer(11, 16, 2, 2, encoding=FIXED["yarn"]()).eval()
    model = model.to_empty(device="cpu")
    model.load_state_dict(plain.state_dict())
    ids = torch.arange(9)[None]
    assert torch.equal(model(ids), plain(ids))


@every_scheme
def test_shapes_are_known_without_memory(name):
    scheme = make(name).to("meta")
    given = [t.to("meta") for t in numbers(scheme, 2, len(IDS))]
    out = answer(scheme, given, IDS.to("meta"))
    assert out.is_meta
    assert out.shape == given[0].shape


@every_scheme
def test_inference_first_and_training_after(name):
    """A cache filled under inference_mode breaks training: positional-encodings 6.0.3,
    x-transformers 2.31.
    """
    scheme = make(name)
    with torch.inference_mode():
        ask(scheme)
    given = [t.requires_grad_() for t in numbers(scheme, 2, len(IDS))]
    answer(scheme, given, IDS).square().sum().backward()
    assert all(t.grad.isfinite().all() for t in given)
    for parameter in scheme.parameters():
        assert parameter.grad.isfinite().all()


@every_fixed_one
def test_even_a_module_made_in_inference_mode_can_be_trained_through(name):
    with torch.inference_mode():
        scheme = FIXED[name]()
    given = [t.requires_grad_() for t in numbers(scheme, 1, len(IDS))]
    answer(scheme, given, IDS).sum().backward()
    assert all(t.grad is not None for t in given)


# ── copies and memory ─────────────────────────────────────────────────────────────


@every_scheme
def test_copies_give_the_same_bits(name):
    scheme = make(name)
    file = io.BytesIO()
    torch.save(scheme, file)
    file.seek(0)
    twin = SCHEMES[name]()
    twin.load_state_dict(scheme.state_dict(), strict=True)
    copies = [
        copy.deepcopy(scheme),
        pickle.loads(pickle.dumps(scheme)),
        torch.load(file, weights_only=False),
        twin,
    ]
    assert all(torch.equal(ask(other), ask(scheme)) for other in copies)


@every_scheme
def test_a_checkpoint_holds_what_is_trained_and_the_module_no_other_tensor(name):
    """A frequency in a checkpoint is expected by one release and refused by the next:
    gpt-neox#1161, transformers#35255, llama2.c#266. A plain attribute is left behind by
    .to(): RT-DETR#677, llama2.c#23, vllm#43844.
    """
    scheme = make(name)
    trained = [key for key, _ in scheme.named_parameters()]
    assert list(scheme.state_dict()) == trained
    assert bool(trained) == (name in TRAINED)
    assert not list(scheme.buffers())
    for module in scheme.modules():
        for attribute in vars(module).values():
            assert not isinstance(attribute, torch.Tensor)


@every_scheme
def test_no_call_leaves_a_trace(name):
    """Longer, shorter, elsewhere, coarser, finer: then the first question again, bit for
    bit (transformers' dynamic NTK is off by 0.14, rotary-embedding-torch's by 7.5).
    """
    scheme = make(name)
    expected = ask(scheme)
    before = {key: value.clone() for key, value in scheme.state_dict().items()}
    for ids in (torch.arange(64), torch.arange(3) + 50, torch.arange(1)):
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            ask(scheme, dtype, ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ask(scheme)
    assert torch.equal(ask(scheme), expected)
    after = scheme.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)


@every_scheme
def test_nothing_given_is_changed_and_nothing_returned_is_kept(name):
    """Editing a result once corrupted the next call: positional-encodings 6.0.3."""
    scheme, ids = make(name), places(make(name), IDS)
    given, at = numbers(scheme, 2, len(IDS)), ids.clone()
    if embeds(scheme):
        results = [scheme.embed(*given, ids)]
    else:
        q, k, _ = given
        bias = scheme.bias(q, k, ids, ids)
        results = [*scheme.rotate(q, k, ids, ids), *([] if bias is None else [bias])]
    again = numbers(scheme, 2, len(IDS))
    assert all(torch.equal(a, b) for a, b in zip(given, again, strict=True))
    expected = ask(scheme)
    with torch.no_grad():
        for result in results:
            result.add_(100)
    if hasattr(scheme, "inv_freq"):
        scheme.inv_freq.mul_(3)
    assert torch.equal(ask(scheme), expected)
    assert torch.equal(ids, at)


@every_scheme
def test_who_shares_the_batch_changes_nothing(name):
    """Rows with ids of their own, together, permuted and alone; sums of float64: 1e-12.
    (One long row changes every row of transformers' LongRoPE by 2.1 in cos.)
    """
    scheme = make(name).double()
    given = numbers(scheme, 3, 6, torch.float64)
    ids = torch.tensor(
        [[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3], [50, 51, 52, 53, 60, 63]]
    )
    together = answer(scheme, given, ids)
    order = torch.tensor([2, 0, 1])
    permuted = answer(scheme, [t[order] for t in given], ids[order])
    assert torch.allclose(permuted, together[order], rtol=0, atol=1e-12)
    for row in range(3):
        alone = answer(scheme, [t[row : row + 1] for t in given], ids[row])
        assert torch.allclose(alone[0], together[row], rtol=0, atol=1e-12)


# ── caches, padding, packing ──────────────────────────────────────────────────────


@pytest.fixture(params=[name for name in SCHEMES if name != "odd sinusoidal"])
def decoder(request):
    """Two layers of width 16; what embeds is built for that width."""
    wide = {
        "sinusoidal": lambda: pe_lab.Sinusoidal(16),
        "axial sinusoidal": lambda: pe_lab.AxialSinusoidal(16),
        "learned": lambda: pe_lab.Learned(64, 16, std=1.0),
    }
    pe_lab.seed(0)
    encoding = (SCHEMES | wide)[request.param]()
    return pe_lab.Transformer(11, 16, 2, 2, encoding=encoding).double().eval()


def rows_of(decoder, ids, batch=3):
    at = places(decoder.encoding, ids)
    return at.expand(batch, *at.shape) if ids.dim() == 1 else at


def tokens(batch=3, length=9):
    return torch.randint(
        11, (batch, length), generator=torch.Generator().manual_seed(2)
    )


@pytest.mark.parametrize("sizes", [[1] * 9, [5, 1, 3]], ids=["one by one", "pieces"])
def test_every_layer_s_cache_is_that_of_the_full_pass(decoder, sizes):
    """Keys, values and logits, at every step and layer; float64, so 1e-12."""
    text, at = tokens(), rows_of(decoder, torch.arange(9))
    full, whole = decoder.extend(text, positions=at)
    assert torch.allclose(full, decoder(text, positions=at), rtol=0, atol=1e-12)
    cache, out = None, []
    for piece, ids in zip(text.split(sizes, 1), at.split(sizes, 1), strict=True):
        logits, cache = decoder.extend(piece, cache, positions=ids)
        out.append(logits)
    assert torch.allclose(torch.cat(out, 1), full, rtol=0, atol=1e-12)
    for ours, theirs in zip(cache, whole, strict=True):
        assert torch.allclose(ours.k, theirs.k, rtol=0, atol=1e-12)
        assert torch.allclose(ours.v, theirs.v, rtol=0, atol=1e-12)
        assert torch.equal(ours.positions, theirs.positions)


def test_left_padding_and_packing_change_nothing(decoder):
    text = tokens()
    alone = [decoder(text[:, s], positions=rows_of(decoder, torch.arange(n))) for s, n in ((slice(4), 4), (slice(4, 9), 5))]  # fmt: skip
    ids, block = pe_lab.positions.packed([4, 5])
    packed = decoder(text, positions=rows_of(decoder, ids), mask=block.expand(3, 9, 9))
    assert torch.allclose(packed, torch.cat(alone, 1), rtol=0, atol=1e-12)
    mask = torch.arange(9).expand(3, 9) >= 5
    ids = pe_lab.positions.from_mask(mask)
    padded = decoder(text.roll(5, 1), positions=rows_of(decoder, ids), mask=mask)
    assert torch.allclose(padded[:, 5:], alone[0], rtol=0, atol=1e-12)
