"""How exact every rotation and every table is, against 60 digits and float64 loops.

2⁻²⁵ = 2.98e-8 is half an ulp of float32 below 1; 3.3e-8 leaves float64 angles their
error at 10⁷ positions. No tensor of the package enters an expected value here.
"""

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

import pe_lab
from pe_lab import scaling
from tests.oracle import exact_angles, exact_inv_freq

FP32 = 3.3e-8
FAR = [0, 1, 255, 4097, 65_537, 10**6 - 1, 10**6, 9_999_991, 10**7]
LENGTH = 4096
SEARCHED = [1 + i / 7 for i in range(32)]  # LongRoPE's factors, as float64 has them


def by_parts(ladder, factor, low, high):
    """Kept where a pair makes `high` turns in LENGTH, divided below `low`."""
    out = []
    for w in ladder:
        turns = LENGTH * w / (2 * mpmath.pi)
        kept = min(max((turns - low) / (high - low), mpf(0)), mpf(1))
        out.append(kept * w + (1 - kept) * w / factor)
    return out


def yarn(ladder, factor, base, truncate):
    """The ramp in the pair's index; i = d·ln(L/2πr) / 2 ln b is where r turns are made."""
    pairs = len(ladder)
    low, high = (
        pairs * mpmath.log(LENGTH / (2 * mpmath.pi * turns)) / mpmath.log(base)
        for turns in (32, 1)
    )
    if truncate:
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    divided = [min(max((i - low) / (high - low), mpf(0)), mpf(1)) for i in range(pairs)]
    return [w * (1 - g) + w / factor * g for w, g in zip(ladder, divided, strict=True)]


def larger_base(ladder, factor, base):
    """NTK-aware: the base times s^(d/(d−2))."""
    d = 2 * len(ladder)
    other = base * mpmath.power(factor, mpf(d) / (d - 2))
    return [mpmath.power(other, -mpf(2 * i) / d) for i in range(len(ladder))]


# name -> (the package's rule, the same in 60 digits), of a ladder with this base
RULES = {
    "none": (lambda w: w, lambda w, b: w),
    "linear": (lambda w: scaling.linear(w, 3), lambda w, b: [x / 3 for x in w]),
    "ntk": (lambda w: scaling.ntk(w, 3), lambda w, b: larger_base(w, 3, b)),
    "dynamic_ntk": (
        lambda w: scaling.dynamic_ntk(w, 2, length=10_000, original_length=LENGTH),
        lambda w, b: larger_base(w, mpf(2) * 10_000 / LENGTH - 1, b),
    ),
    "ntk_by_parts": (
        lambda w: scaling.ntk_by_parts(w, 3, original_length=LENGTH),
        lambda w, b: by_parts(w, 3, 1, 32),
    ),
    "llama3": (
        lambda w: scaling.llama3(w, 8, original_length=LENGTH),
        lambda w, b: by_parts(w, 8, 1, 4),
    ),
    "yarn": (
        lambda w: scaling.yarn(w, 3, original_length=LENGTH),
        lambda w, b: yarn(w, 3, b, True),
    ),
    "yarn, not truncated": (
        lambda w: scaling.yarn(w, 3, original_length=LENGTH, truncate=False),
        lambda w, b: yarn(w, 3, b, False),
    ),
    "longrope": (
        lambda w: scaling.longrope(w, SEARCHED, [1.0] * 32, length=1, original_length=LENGTH),
        lambda w, b: [x / mpf(f) for x, f in zip(w, SEARCHED, strict=True)],
    ),
}  # fmt: skip


def rounded(rows):
    return torch.tensor([[float(x) for x in row] for row in rows], dtype=torch.float64)


def exact_circle(positions, ladder):
    """(cos, sin) of every position and frequency, each (positions, pairs) float64."""
    angles = exact_angles(positions, ladder)
    return tuple(
        rounded([[f(a) for a in row] for row in angles]) for f in (mpmath.cos, mpmath.sin)
    )  # fmt: skip


@pytest.mark.parametrize("base", [10.0, 1e4, 5e5, 1e8])
@pytest.mark.parametrize("rule", RULES)
def test_tables_of_every_rule_and_base(rule, base):
    """Scattered ids and both orders of the sinusoid: float32 is correctly rounded."""
    ours, exact = RULES[rule]
    ladder = exact(exact_inv_freq(64, base), base)
    w = ours(pe_lab.inv_freq(64, base=base))
    cos, sin = exact_circle(FAR, ladder)
    table = pe_lab.rope_table(torch.tensor(FAR), w)
    assert (table[0] - cos).abs().max() <= FP32
    assert (table[1] - sin).abs().max() <= FP32
    halves = pe_lab.sinusoidal(torch.tensor(FAR), 64, order="halves", inv_freq=w)
    assert (halves - torch.cat((sin, cos), -1)).abs().max() <= FP32
    mixed = pe_lab.Sinusoidal(64, inv_freq=w).embed(torch.zeros(1, len(FAR), 64), torch.tensor(FAR))  # fmt: skip
    assert (mixed[0] - torch.stack((sin, cos), -1).flatten(1)).abs().max() <= FP32


@pytest.mark.parametrize("start", [0, 10**6 - 150, 10**7 - 299])
@pytest.mark.parametrize("rule", RULES)
def test_runs_of_every_rule(rule, start):
    """A run of ids may be built by angle addition; every 23rd row is looked at."""
    ours, exact = RULES[rule]
    seen = list(range(start, start + 300, 23))
    cos, sin = exact_circle(seen, exact(exact_inv_freq(64, 5e5), 5e5))
    w = ours(pe_lab.inv_freq(64, base=5e5))
    run = torch.arange(start, start + 300)
    table = pe_lab.rope_table(run, w)
    assert (table[0][::23] - cos).abs().max() <= FP32
    assert (table[1][::23] - sin).abs().max() <= FP32
    wave = pe_lab.sinusoidal(run, 64, order="halves", inv_freq=w)[::23]
    assert (wave - torch.cat((sin, cos), -1)).abs().max() <= FP32


# ── applied ───────────────────────────────────────────────────────────────────────


def places_of(scheme, ids):
    """Ids for a scheme with one or several axes, different on each."""
    axes = getattr(scheme, "axes", len(getattr(scheme, "sections", ())))
    return torch.stack([ids // (a + 1) for a in range(axes)], -1) if axes else ids


def share(dim, axis, layout):
    """Pairs of one axial share: the channels, the frequencies, the axis."""
    start, pairs = axis * dim // 2, dim // 4
    for i in range(pairs):
        two = (i, i + pairs) if layout == "half" else (2 * i, 2 * i + 1)
        yield start + two[0], start + two[1], exact_inv_freq(dim // 2, 1e4)[i], axis


def pairs_of(name, dim):
    """(channel, channel, frequency, axis) of each pair that a scheme turns."""
    if name.startswith("axial"):
        layout = name.split()[1]
        return [p for axis in (0, 1) for p in share(dim, axis, layout)]
    width = dim // 2 if name.startswith("partial") else dim
    ladder = exact_inv_freq(width, 1e4)
    axis = [0] * 4 + [1] * 2 + [2] * 2 if name == "mrope" else [0] * dim
    if "interleaved" in name:
        return [(2 * i, 2 * i + 1, w, axis[i]) for i, w in enumerate(ladder)]
    return [(i, i + width // 2, w, axis[i]) for i, w in enumerate(ladder)]


DIM = 16
ROTATIONS = {
    "rope half": lambda: pe_lab.RoPE(DIM),
    "rope interleaved": lambda: pe_lab.RoPE(DIM, layout="interleaved"),
    "partial half": lambda: pe_lab.RoPE(DIM, rotary_dim=8),
    "partial interleaved": lambda: pe_lab.RoPE(DIM, rotary_dim=8, layout="interleaved"),
    "axial half": lambda: pe_lab.AxialRoPE(DIM),
    "axial interleaved": lambda: pe_lab.AxialRoPE(DIM, layout="interleaved"),
    "mrope": lambda: pe_lab.MRoPE(DIM, (4, 2, 2)),
    "xpos half": lambda: pe_lab.XPos(DIM, centre=10**6),
    "xpos interleaved": lambda: pe_lab.XPos(DIM, centre=10**6, layout="interleaved"),
}

SCALED = pe_lab.RoPE(DIM, scaling=lambda w: scaling.yarn(w, 4, original_length=64))


def turned(name, x, places, sign):
    """x with each pair turned, in float64 from 60-digit angles; xPos scales too."""
    out = x.double().clone()
    for a, b, w, axis in pairs_of(name, x.shape[-1]):
        column = places[:, axis] if places.dim() == 2 else places
        for t, p in enumerate(column.tolist()):
            c, s = float(mpmath.cos(p * w)), float(mpmath.sin(p * w))
            if name.startswith("xpos"):
                i = a if "half" in name else a // 2
                zeta = (2 * i / x.shape[-1] + 0.4) / 1.4
                grown = zeta ** (sign * (p - 10**6) / 512)
                c, s = c * grown, s * grown
            u, v = x[..., t, a].double(), x[..., t, b].double()
            out[..., t, a], out[..., t, b] = u * c - v * s, v * c + u * s
    return out


def ulp(x, dtype):
    """The distance of the two numbers of a dtype around x."""
    info = torch.finfo(dtype)
    least = torch.tensor(info.smallest_normal, dtype=torch.float64)
    return torch.exp2(torch.maximum(x.abs(), least).log2().floor()) * info.eps


NEAR_CENTRE = torch.tensor([10**6 - 700, 10**6 - 1, 10**6, 10**6 + 900, 10**6 + 901])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ROTATIONS)
def test_rotations_are_rounded_once(name, dtype):
    """Half an ulp of the result, and float32 arithmetic on the way: the table's
    rounding, two products, a sum and xPos' factor are at most 5 · 2⁻²⁴ (|a| + |b|).
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 5, DIM, generator=generator, dtype=torch.float64).to(dtype)
    scheme, ids = ROTATIONS[name](), NEAR_CENTRE
    places = places_of(scheme, ids)
    rotated = scheme.rotate(x, x, places, places)
    for ours, sign in zip(rotated, (1, -1), strict=True):
        exact = turned(name, x, places, sign)
        largest = max(exact.abs().max().item(), x.abs().max().item())
        assert ours.dtype == dtype
        error = (ours.double() - exact).abs()
        assert (error <= 0.5 * ulp(exact, dtype) + 5 * 2**-24 * 2 * largest).all()


@pytest.mark.parametrize("name", [n for n in ROTATIONS if not n.startswith("xpos")])
def test_what_is_applied_is_as_exact_as_the_table(name):
    """[1, 0] turned is [cos, sin]: on vectors, at 10⁷, with each pair's own ids."""
    scheme = ROTATIONS[name]()
    ids = torch.tensor([0, 3, 10**6 - 1, 10**7])
    places = places_of(scheme, ids)
    x = torch.zeros(1, 1, 4, DIM)
    for a, *_ in pairs_of(name, DIM):
        x[..., a] = 1
    ours, _ = scheme.rotate(x, x, places, places)
    assert (ours - turned(name, x, places, 1)).abs().max() <= FP32


@pytest.mark.parametrize("t", [10**6, 10**7])
@pytest.mark.parametrize("name", [*ROTATIONS, "scaled"])
def test_scores_see_offsets_only(name, t):
    """|s(m+t, n+t) − s(m, n)| ≤ 1e-6 |q||k| in float32.

    For xPos |q| and |k| are norms after its scaling, and the centre moves along: with
    a centre far away the factors leave float32, as its page says.
    """
    generator = torch.Generator().manual_seed(1)
    scheme = SCALED if name == "scaled" else ROTATIONS[name]()
    m, n = torch.tensor([5, 0, 2000, 77]), torch.tensor([0, 9, 1000, 77])
    q, k = torch.randn(2, 1, 1, 4, DIM, generator=generator)
    layout = name.split()[-1]
    near, far = scheme, scheme
    if name.startswith("xpos"):
        near, far = (pe_lab.XPos(DIM, layout=layout, centre=c) for c in (0, t))

    def scores(scheme, shift):
        places = [places_of(scheme, ids) + shift for ids in (m, n)]
        a, b = scheme.rotate(q, k, *places)
        return (a.double() * b.double()).sum(-1), a.norm(dim=-1) * b.norm(dim=-1)

    (here, size), (there, _) = scores(near, 0), scores(far, t)
    assert ((here - there).abs() <= 1e-6 * size).all()


# batch, heads, length and how the ids are given: few numbers, many, more than a cache
# holds; one row of ids, one for each; the same tensor for queries and keys, or two
WAYS = [
    (2, 2, 5, "shared"), (2, 2, 5, "apart"), (2, 2, 5, "rows"),
    (1, 3, 700, "shared"), (3, 1, 700, "rows"), (2, 8, 2200, "rows"), (64, 8, 1, "rows"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("dim", "width"), [(16, 16), (20, 16), (12, 10)])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_every_way_of_turning_is_rounded_once(layout, dim, width, dtype):
    """Against float64 complex numbers, with a gain, on some of the channels, of views
    with the strides of a projection; the bound is that of the test above.
    """
    gain = 1.25
    scheme = pe_lab.RoPE(dim, layout=layout, rotary_dim=width, gain=gain)
    w = torch.tensor(
        [float(x) for x in exact_inv_freq(width, 1e4)], dtype=torch.float64
    )
    for batch, number, length, way in WAYS:
        generator = torch.Generator().manual_seed(length)
        drawn = torch.randn(
            2, batch, length, number, dim, generator=generator, dtype=torch.float64
        )
        q, k = drawn.to(dtype).transpose(2, 3)
        ids = torch.arange(length) + 10**6 - 3
        ids = ids + 1000 * torch.arange(batch)[:, None] if way == "rows" else ids
        results = scheme.rotate(q, k, ids, ids.clone() if way == "apart" else ids)
        angle = (ids if ids.dim() == 2 else ids[None])[:, None, :, None].double() * w
        for x, ours in zip((q, k), results, strict=True):
            exact = as_points(x[..., :width].double(), layout) * torch.polar(torch.tensor(gain).double(), angle)  # fmt: skip
            error = as_points(ours[..., :width].double(), layout) - exact
            for axis in ("real", "imag"):
                bound = 0.5 * ulp(getattr(exact, axis), dtype) + 5 * 2**-24 * 2 * 6
                assert (getattr(error, axis).abs() <= bound).all(), (batch, length, way)
            assert torch.equal(ours[..., width:], x[..., width:])


@settings(max_examples=30)
@given(
    data=st.data(), batch=st.integers(1, 3), length=st.integers(1, 9), axes=st.integers(1, 3),
    pairs=st.integers(1, 8), layout=st.sampled_from(["half", "interleaved"]),
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64]),
)  # fmt: skip
def test_axes_in_any_shape(data, batch, length, axes, pairs, layout, dtype):
    """Each share against its complex numbers times e^{ipω}, in float64."""
    share = 2 * pairs
    ids = data.draw(st.lists(st.integers(-(10**6), 10**6), min_size=axes * batch * length, max_size=axes * batch * length))  # fmt: skip
    ids = torch.tensor(ids).view(batch, length, axes)
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(
        batch, 2, length, axes * share, generator=generator, dtype=torch.float64
    )
    x = x.to(dtype)
    scheme = pe_lab.AxialRoPE(axes * share, axes=axes, layout=layout)
    ours, _ = scheme.rotate(x, x, ids, ids)
    assert ours.dtype == dtype
    w = [1e4 ** (-2 * i / share) for i in range(pairs)]
    for axis, (a, b) in enumerate(zip(x.split(share, -1), ours.split(share, -1), strict=True)):  # fmt: skip
        angle = ids[:, None, :, axis, None] * torch.tensor(w, dtype=torch.float64)
        before, after = (as_points(t.double(), layout) for t in (a, b))
        exact = before * torch.polar(torch.ones_like(angle), angle)
        slack = {torch.float64: 1e-9}.get(dtype, 5 * 2**-24 * 10)
        bound = 0.71 * torch.finfo(dtype).eps * exact.abs() + slack
        assert ((after - exact).abs() <= bound).all()


def as_points(x, layout):
    if layout == "half":
        return torch.complex(*x.chunk(2, dim=-1))
    return torch.complex(x[..., 0::2], x[..., 1::2])


# ── biases ────────────────────────────────────────────────────────────────────────

BIASES = {
    "alibi": lambda: pe_lab.ALiBi(2),
    "alibi, symmetric": lambda: pe_lab.ALiBi(2, symmetric=True),
    "t5": lambda: pe_lab.T5Bias(2, bidirectional=True),
    "shaw": lambda: pe_lab.Shaw(8, 4),
    "kerple": lambda: pe_lab.Kerple(2),
    "kerple, power": lambda: pe_lab.Kerple(2, kind="power"),
}


@pytest.mark.parametrize("name", BIASES)
def test_biases_of_differences_do_not_move_at_all(name):
    """Made from whole differences: shifted by 10⁷, bit for bit the same."""
    pe_lab.seed(0)
    scheme = BIASES[name]()
    x, ids = torch.randn(1, 2, 6, 8), torch.tensor([0, 1, 2, 9, 500, 70])
    near = scheme.bias(x, x, ids, ids)
    assert torch.equal(scheme.bias(x, x, ids + 10**7, ids + 10**7), near)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*BIASES, "transformer-xl"])
def test_biases_are_no_coarser_for_queries_of_sixteen_bits(name, dtype):
    """The same bias as for those queries in float32, to the order of a sum."""
    pe_lab.seed(0)
    scheme = ALL[name]()
    q, k = torch.randn(2, 1, 2, 6, 8).to(dtype)
    ids = torch.tensor([0, 1, 2, 9, 500, 70])
    bias = scheme.bias(q, k, ids, ids)
    assert bias.dtype == torch.float32
    assert (bias - scheme.bias(q.float(), k.float(), ids, ids)).abs().max() <= 1e-5


def test_transformer_xl_moves_by_its_table_s_rounding():
    """Angle addition of two float32 tables: 1e-6 of the size of its terms."""
    pe_lab.seed(0)
    scheme = pe_lab.TransformerXL(2, 8)
    x, ids = torch.randn(1, 2, 6, 8), torch.tensor([0, 1, 2, 9, 500, 70])
    near = scheme.bias(x, x, ids, ids)
    far = scheme.bias(x, x, ids + 10**6, ids + 10**6)
    size = (x + scheme.v).norm(dim=-1).max() * scheme.weight.norm(dim=(1, 2)).max()
    assert ((near - far).abs() <= 1e-6 * size).all()


def test_fire_is_not_meant_to_be_shift_invariant():
    """ψ(m − n)/ψ(max(L, m)) sees m itself beyond the threshold, and only there."""
    pe_lab.seed(0)
    scheme, x = pe_lab.Fire(2, threshold=100), torch.randn(1, 2, 3, 8)
    ids = torch.tensor([40, 20, 3])
    near = scheme.bias(x, x, ids, ids)
    assert torch.equal(scheme.bias(x, x, ids + 50, ids + 50), near)
    assert (scheme.bias(x, x, ids + 5000, ids + 5000) - near).abs().max() > 1e-3


ALL = BIASES | ROTATIONS | {
    "transformer-xl": lambda: pe_lab.TransformerXL(2, 8),
    "tupe": lambda: pe_lab.TUPE(64, 16, 2),
    "fire": lambda: pe_lab.Fire(2),
    "xpos": lambda: pe_lab.XPos(8),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ALL)
def test_attention_of_every_scheme_stays_close_to_float64(name, dtype):
    """The same numbers in float64. |v| ≤ 4, so 8 eps is a few roundings of 4; float32
    has scores up to 20 to round as well, where 16 bits compute them in float32.
    """
    pe_lab.seed(0)
    scheme, length = ALL[name](), 40
    dim = DIM if name in ROTATIONS else 8
    generator = torch.Generator().manual_seed(2)
    q, k, v = (
        torch.randn(3, 2, 2, length, dim, generator=generator).clamp(-4, 4).to(dtype)
    )
    places = places_of(scheme, torch.arange(length))
    if name.startswith("xpos "):
        places = places + 10**6
    wide = {n: p.double() for n, p in scheme.named_parameters()}
    here = {"q_pos": places, "k_pos": places, "causal": True}
    ours = pe_lab.attention(q, k, v, encoding=scheme, **here)
    with torch.no_grad():
        exact = torch.func.functional_call(
            Attention(scheme), {f"scheme.{n}": p for n, p in wide.items()},
            (q.double(), k.double(), v.double(), here),
        )  # fmt: skip
    assert ours.dtype == dtype
    roundings = 80 if dtype == torch.float32 else 8
    assert (ours.double() - exact).abs().max() <= roundings * torch.finfo(dtype).eps


PLACES = {
    "near": torch.arange(40),
    "far": torch.arange(40) + 10**7,
    "rows": torch.stack((torch.arange(40), torch.arange(40) + 5000)),
    "negative": torch.arange(40) - 20,
    "spread": 37 * torch.arange(40),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("number", [1, 8, 12])
@pytest.mark.parametrize("where", PLACES)
def test_alibi_in_fused_attention_is_its_formula(where, number, dtype):
    """A causal square and a decoding step, each without an L×L tensor, against the
    formula in float64; tolerances as in the test above.
    """
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(3, 2, number, 40, 8, generator=generator).clamp(-4, 4).to(dtype)
    )
    ids, scheme = PLACES[where], pe_lab.ALiBi(number)
    offsets = (ids[..., :, None] - ids[..., None, :]).view(-1, 1, 40, 40)
    slopes = pe_lab.alibi_slopes(number)[:, None, None]
    scores = q.double() @ k.double().mT * 8**-0.5 - slopes * offsets
    scores = scores.masked_fill(~torch.ones(40, 40).bool().tril(), -torch.inf)
    exact = scores.softmax(-1) @ v.double()
    roundings = 80 if dtype == torch.float32 else 8
    for new in (40, 1):
        ours = pe_lab.attention(
            q[:, :, -new:], k, v, causal=True, encoding=scheme, q_pos=ids[..., -new:], k_pos=ids
        )  # fmt: skip
        error = (ours.double() - exact[:, :, -new:]).abs().max()
        assert error <= roundings * torch.finfo(dtype).eps


@pytest.mark.parametrize("scale", [-0.3, 0.0, 1e-4, 1.0])
@pytest.mark.parametrize("name", ["rope half", "alibi", "kerple"])
def test_a_scale_of_any_sign(name, scale):
    """Fused causal kernels multiply −∞ by the scale: NaN for 0 and below."""
    pe_lab.seed(0)
    scheme, dim = ALL[name](), DIM if name == "rope half" else 8
    q, k, v = torch.randn(3, 1, 2, 7, dim, dtype=torch.float64)
    words = {"causal": True, "encoding": scheme, "scale": scale}
    formula, _ = pe_lab.attention(q, k, v, return_weights=True, **words)
    fused = pe_lab.attention(q, k, v, **words)
    assert torch.allclose(fused, formula, rtol=0, atol=1e-11)


class Attention(torch.nn.Module):
    def __init__(self, scheme):
        super().__init__()
        self.scheme = scheme

    def forward(self, q, k, v, here):
        return pe_lab.attention(q, k, v, encoding=self.scheme, **here)


# ── gradients ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("alibi", "rope half")])
def test_gradients_of_inputs_and_parameters(name):
    """Finite differences, in float64, of queries, keys, values and what is trained."""
    pe_lab.seed(0)
    scheme = ALL[name]()
    dim = DIM if name in ROTATIONS else 8
    q, k, v = torch.randn(3, 1, 2, 3, dim, dtype=torch.float64, requires_grad=True)
    places = places_of(scheme, torch.tensor([2, 0, 3]))
    if name.startswith("xpos "):
        places = places + 10**6
    here = {"q_pos": places, "k_pos": places}
    names = [f"scheme.{n}" for n, _ in scheme.named_parameters()]
    numbers = [p.detach().double().requires_grad_() for p in scheme.parameters()]

    def run(q, k, v, *numbers):
        return torch.func.functional_call(
            Attention(scheme), dict(zip(names, numbers, strict=True)), (q, k, v, here)
        )

    assert torch.autograd.gradcheck(run, (q, k, v, *numbers), fast_mode=True)


@pytest.mark.parametrize(
    "scheme", [pe_lab.Sinusoidal(6), pe_lab.Learned(9, 6)], ids=str
)
def test_gradients_of_embeddings(scheme):
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    numbers = [p.detach().double().requires_grad_() for p in scheme.parameters()]

    class Door(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scheme = scheme

        def forward(self, x):
            return self.scheme.embed(x, torch.tensor([0, 4, 8]))

    def run(x, *numbers):
        return torch.func.functional_call(Door(), {f"scheme.{n}": p for (n, _), p in zip(scheme.named_parameters(), numbers, strict=True)}, (x,))  # fmt: skip

    assert torch.autograd.gradcheck(run, (x, *numbers))


def test_the_bound_of_the_tables_is_no_looser_than_it_must_be():
    """Some entry comes within 1 % of half an ulp: 3.3e-8 could not be 2.9e-8."""
    cos, _ = pe_lab.rope_table(4096, pe_lab.inv_freq(64))
    exact, _ = pe_lab.rope_table(4096, pe_lab.inv_freq(64), dtype=torch.float64)
    assert (cos - exact).abs().max() > 0.99 * math.ldexp(1, -25)
